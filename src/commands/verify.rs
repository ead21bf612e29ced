//! `zkmoe verify`: a verdict about one reply.
//!
//! All cryptography is in [`zkmoe_verifier`]. This file decides that the texts are the tokens: the prompt's tokens are
//! the tokenizer's encoding of the prompt, and the response's tokens, which the slip names, decode to the response byte
//! for byte. The tokenizer is the one in the id file, which the model id binds.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use zkmoe_commit::channel::Reject;
use zkmoe_prover::tokenizer::{Tokenizer, TokenizerError};
use zkmoe_verifier::batch::MAX_START;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::slip::{MAX_SLIP, Slip};
use zkmoe_verifier::verify::{Batch, Ended, check_slip, file_length, verify_batch};

use super::decision::{self, AboutModel, Options, Soundness, Stop, bits};
use super::verify_model;
use crate::appearance::{Texts, remarks};
use crate::failure::{Failure, Outcome};
use crate::input::{self, Prompt, Response};
use crate::output;
use crate::texts;
use crate::verdict::{How, read_verdict, together, verdict_path};
use crate::visible::{Named, shell_word};

/// Check a reply against a proof and a model id.
///
/// The first line of the output is the verdict: ACCEPTED, or REJECTED with the check that failed. The exit code is 0
/// or 1; 2 means that a file could not be read, so that there is no verdict.
///
/// The verdict is about the texts byte for byte, under the id that is named: a newline at the end of a file belongs to the
/// text, and a special token that is spelled out in the prompt, like <|endoftext|>, is that token to the model and to the
/// proof; the verdict says so. What no option compared with what you know is
/// listed as taken on trust: whose id it is (--expect-id), how many tokens the reply may have (--max-tokens). What may
/// look different from what it is, like characters that do not show, is listed to be looked at closely. A reply that was
/// cut short is accepted as such; --ended rejects it.
///
/// Nothing is accepted of a model whose weights were not shown to be in range. `zkmoe verify-model` checks that once and leaves
/// a note beside the id, which is believed only with the secret in your state folder; without the note, name the
/// certificate with --cert.
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("prompt_source").args(["prompt", "prompt_file"]).required(true)))]
#[command(after_help = "\
Examples:
  zkmoe verify --id model.id --proof batch.proof --slip story.slip \\
      --prompt 'Once upon a time' --response-file story.txt
  zkmoe verify --id model.id --expect-id 5f0c... --proof batch.proof --slip story.slip \\
      --prompt-file prompt.txt --response-file story.txt --max-tokens 200 --verbose")]
pub struct Args {
    /// The model id that the provider published.
    #[arg(long, value_name = "FILE")]
    pub id: PathBuf,
    /// The proof of the batch.
    #[arg(long, value_name = "FILE")]
    pub proof: PathBuf,
    /// The certificate of the model, to be checked here; without it, model.id.certified has to be beside the id.
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// The slip of this reply.
    #[arg(long, value_name = "FILE")]
    pub slip: PathBuf,
    /// The prompt that was asked.
    #[command(flatten)]
    pub prompt: Prompt,
    /// The response that was given.
    #[command(flatten)]
    pub response: Response,
    /// Reject unless this is the model's id: 64 hexadecimal digits from a source that you trust.
    #[arg(long, value_name = "HEX", value_parser = output::parse_id)]
    pub expect_id: Option<[u8; 32]>,
    /// Reject unless this limit on response tokens was asked for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Reject unless the reply ended this way.
    #[arg(long, value_name = "END")]
    pub ended: Option<End>,
    /// How to check and print.
    #[command(flatten)]
    pub options: Options,
}

/// How a reply ended, as far as it is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The model ended the text.
    Eos,
    /// It has as many tokens as its limit, and the text was not at its end.
    Limit,
    /// Neither; why is not proved.
    Early,
}

impl End {
    /// For people, of a reply with this limit on its tokens.
    fn words(self, max_tokens: u32) -> String {
        match self {
            Self::Eos => "ended with the end of the text".to_owned(),
            Self::Limit => format!("ended at its limit of {max_tokens} tokens"),
            Self::Early => {
                format!(
                    "was stopped early, below its limit of {max_tokens} tokens; the reason is not proved"
                )
            }
        }
    }
}

impl From<Ended> for End {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::EndOfText => Self::Eos,
            Ended::Limit => Self::Limit,
            Ended::Early => Self::Early,
        }
    }
}

/// How it was shown that the model's weights are in range.
#[derive(Debug, Serialize)]
pub struct Weights {
    /// `certificate`, or `rotation` from an id that has one.
    pub shown_by: &'static str,
    /// The file that says so: a certificate that was checked now, or the note of an earlier check.
    pub file: Named,
    /// `-log2` of the soundness error.
    pub soundness_bits: f64,
}

/// An accepted reply.
#[derive(Debug, Serialize)]
pub struct Found {
    /// The model id, in hexadecimal.
    pub model_id: String,
    /// The number of the request in its batch.
    pub request: u32,
    /// Requests of the batch.
    pub requests: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the response, the end token included.
    pub response_tokens: usize,
    /// Special tokens that the prompt spells out: the model read them as such and not as text.
    pub special_in_prompt: usize,
    /// Special tokens of the response, without the one that ends it: its text does not show them.
    pub special_in_response: usize,
    /// The limit on response tokens that was asked for.
    pub max_tokens: u32,
    /// How the reply ended.
    pub ended: End,
    /// What was not compared with anything that the customer knows.
    pub taken_on_trust: Vec<&'static str>,
    /// What may look different from what it is.
    pub look_closely: Vec<Named>,
    /// The soundness error of the batch proof.
    #[serde(flatten)]
    pub soundness: Soundness,
    /// What shows that the weights are in range.
    pub weights: Weights,
    /// `-log2` of the error of both together: the verdict is wrong only if one of them is.
    pub total_bits: f64,
}

/// What was decided: whether the reply is the model's.
pub type Verdict = decision::Verdict<Found, AboutModel>;

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model_id,
            request,
            requests,
            response_tokens,
            max_tokens,
            weights,
            soundness,
            ..
        } = self;
        writeln!(
            f,
            "request {request} of a batch of {requests}, {response_tokens} response tokens"
        )?;
        writeln!(f, "model id {model_id}")?;
        writeln!(
            f,
            "Proved: the response is, token for token, what the integer model committed under this id decodes greedily \
             for the prompt."
        )?;
        writeln!(f, "The reply {}.", self.ended.words(*max_tokens))?;
        for what in &self.taken_on_trust {
            writeln!(f, "Taken on trust: {what}")?;
        }
        for remark in &self.look_closely {
            writeln!(f, "Look closely: {remark}")?;
        }
        writeln!(
            f,
            "Weights in range: {}, by {}",
            bits(weights.soundness_bits),
            weights.file
        )?;
        write!(f, "{soundness}")?;
        writeln!(f, "Altogether: {}", bits(self.total_bits))
    }
}

/// Everything that was read.
struct Case<'a> {
    args: &'a Args,
    id: ModelId,
    tokenizer: Tokenizer,
    slip: Slip,
    prompt: String,
    prompt_ids: Vec<u32>,
    response: String,
}

/// The checks that need no proof, cheapest first.
fn check_texts(case: &Case<'_>, digest: &[u8; 32]) -> Result<(), String> {
    let Case { args, slip, .. } = case;
    if args.expect_id.is_some_and(|expected| expected != *digest) {
        return Err(format!(
            "model id: {} is not the id that was expected",
            args.id.display()
        ));
    }
    if slip.model != *digest {
        return Err(format!(
            "model id: the slip was issued under {}",
            output::hex(&slip.model)
        ));
    }
    if let Some(limit) = args.max_tokens.filter(|&limit| limit != slip.max_tokens) {
        return Err(format!(
            "limit: the reply was made with a limit of {} tokens, not {limit}",
            slip.max_tokens
        ));
    }
    if case.prompt_ids.is_empty() {
        return Err("prompt: it is empty, and nothing is proved about empty prompts".to_owned());
    }
    let decoded = case
        .tokenizer
        .decode_beside(&slip.response, &case.response)
        .map_err(|error| format!("response: {error}"))?;
    let Some(decoded) = decoded else {
        return Err("response: the slip is for another text; it is far longer".to_owned());
    };
    if decoded != case.response {
        return Err(format!(
            "response: the slip is for another text; {}",
            texts::difference(&case.response, &decoded)
        ));
    }
    Ok(())
}

/// What the verdict rests on that was not compared with anything. A limit that a reply did not reach is of no account.
fn taken_on_trust(args: &Args, ended: End) -> Vec<&'static str> {
    let id = args.expect_id.is_none().then_some(
        "that this is the id of the model you mean; --expect-id compares it with one that you know from elsewhere",
    );
    let limit = (args.max_tokens.is_none() && ended != End::Eos).then_some(
        "that the reply may have no more tokens; --max-tokens compares the limit with the one that you asked for",
    );
    id.into_iter().chain(limit).collect()
}

/// Why a slip does not open its request: in words, if it would with a prompt that looks the same.
fn explain_slip(case: &Case<'_>, batch: &Batch, reject: &Reject) -> String {
    let fits = |text: &str| {
        let ids = case.tokenizer.encode(text);
        ids.is_ok_and(|ids| check_slip(&case.id, batch, &case.slip, &ids).is_ok())
    };
    let changes = texts::unseen_changes(&case.prompt);
    match changes.into_iter().find(|(_, changed)| fits(changed)) {
        Some((how, _)) => format!("{reject}; it holds the prompt that was given, {how}"),
        None => reject.to_string(),
    }
}

/// What shows that the weights are in range.
fn check_weights(case: &Case<'_>, digest: &[u8; 32]) -> Result<Weights, Stop> {
    let (certified, file) = if let Some(path) = &case.args.cert {
        let (certified, _) = verify_model::check(&case.id, path).map_err(|stop| match stop {
            Stop::Rejected(check) => Stop::Rejected(format!("certificate: {check}")),
            unusable @ Stop::Unusable(_) => unusable,
        })?;
        (certified, path.clone())
    } else {
        let id = &case.args.id;
        let path = verdict_path(id);
        let state = case.args.options.state.locate()?;
        let noted = read_verdict(&state, id, digest)?;
        let certified = noted.map_err(|reason| {
            let message = format!("its weights were not shown to be in range; {reason}");
            Stop::Unusable(Failure::file(id, message).advise(format!(
                "check its certificate once with `zkmoe verify-model --id {} --cert FILE` here, or name the certificate with --cert",
                shell_word(id)
            )))
        })?;
        (certified, path)
    };
    Ok(Weights {
        shown_by: match certified.how {
            How::Certificate { .. } => "certificate",
            How::Rotation { .. } => "rotation",
        },
        file: Named::file(&file),
        soundness_bits: certified.soundness_bits(),
    })
}

fn decide(case: &Case<'_>, proof: input::Proof) -> Result<Found, Stop> {
    let Case { args, id, slip, .. } = case;
    let digest = id.digest();
    check_texts(case, &digest).map_err(Stop::Rejected)?;
    let weights = check_weights(case, &digest)?;
    let proof = proof.read(|start| file_length(id, start))?;
    let batch = proof.and_then(|proof| verify_batch(id, &proof));
    let batch = batch.map_err(|error| {
        let advice = "take the batch.proof that came with the slip";
        Stop::at(&args.proof, error, advice)
    })?;
    let ended: End = check_slip(id, &batch, slip, &case.prompt_ids)
        .map_err(|reject| Stop::Rejected(explain_slip(case, &batch, &reject)))?
        .into();
    if args.ended.is_some_and(|expected| expected != ended) {
        let how = ended.words(slip.max_tokens);
        return Err(Stop::Rejected(format!("end: the reply {how}")));
    }
    let texts = Texts {
        prompt: &case.prompt,
        prompt_ids: &case.prompt_ids,
        response: &case.response,
        response_ids: &slip.response,
    };
    let look_closely = remarks(&case.tokenizer, &texts, id.header.eos_token)
        .map_err(|error| Failure::file(&args.id, error))?;
    let shown = match slip.response.split_last() {
        Some((_, rest)) if ended == End::Eos => rest,
        _ => &slip.response[..],
    };
    let soundness = Soundness::of(&batch.soundness, args.options.verbose);
    Ok(Found {
        model_id: output::hex(&digest),
        request: slip.request,
        requests: batch.header.shape.lengths.len(),
        prompt_tokens: case.prompt_ids.len(),
        response_tokens: slip.response.len(),
        special_in_prompt: case.tokenizer.special(&case.prompt_ids),
        special_in_response: case.tokenizer.special(shown),
        max_tokens: slip.max_tokens,
        ended,
        taken_on_trust: taken_on_trust(args, ended),
        look_closely: look_closely.into_iter().map(Named).collect(),
        total_bits: together(soundness.soundness_bits, weights.soundness_bits),
        soundness,
        weights,
    })
}

/// Reads everything and decides.
pub fn perform(args: &Args) -> Result<Verdict, Failure> {
    let prompt = args
        .prompt
        .text()?
        .ok_or_else(|| Failure::new("no prompt was given").advise("add --prompt"))?;
    let response = args.response.text()?;
    let proof = input::Proof::open(&args.proof, MAX_START)?;
    let slip = input::read_at_most(&args.slip, MAX_SLIP as u64)?;
    let slip = Slip::decode(&slip).map_err(|error| {
        input::undecodable(
            &args.slip,
            &error,
            "ask the provider for the slip of this reply again",
        )
    })?;
    let id = input::open_id(&args.id)?;
    let about = AboutModel {
        model_id: output::hex(&id.digest()),
    };
    Verdict::of(about, || {
        let tokenizer = input::tokenizer(&args.id, &id.tokenizer)?;
        let prompt_ids = tokenizer
            .encode_prompt(&prompt, id.header.sizes.max_position_embeddings)
            .map_err(|error| match error {
                TokenizerError::Long { .. } => Stop::Rejected(format!("prompt: {error}")),
                _ => Failure::new(format_args!("prompt: {error}")).into(),
            })?;
        let case = Case {
            args,
            id,
            tokenizer,
            slip,
            prompt,
            prompt_ids,
            response,
        };
        decide(&case, proof)
    })
}

/// Decides and prints the verdict.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    perform(args)?.print(&args.options)
}
