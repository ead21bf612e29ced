//! `zkmoe verify`: a verdict about one reply.
//!
//! All cryptography is in [`zkmoe_verifier`]. This file decides that the texts are the tokens: the prompt's tokens are
//! the tokenizer's encoding of the prompt, and the response's tokens, which the slip names, decode to the response byte
//! for byte. The tokenizer is the one in the id file, which the model id binds.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use zkmoe_commit::channel::Reject;
use zkmoe_commit::soundness::Term;
use zkmoe_prover::tokenizer::Tokenizer;
use zkmoe_verifier::batch::MAX_START;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::slip::{MAX_SLIP, Slip};
use zkmoe_verifier::soundness::total_bits;
use zkmoe_verifier::verify::{
    Batch, Ended, VerifyError, check_slip, file_length, verify_batch,
};

use super::verify_model;
use crate::failure::{Failure, Outcome};
use crate::input::{self, Prompt, Response};
use crate::output::{self, Table};
use crate::state::StateArgs;
use crate::texts;
use crate::verdict::{How, read_verdict, together, verdict_path};

/// Check a reply against a proof and a model id.
///
/// The first line of the output is the verdict: ACCEPTED, or REJECTED with the check that failed. The exit code is 0
/// or 1; 2 means that a file could not be read, so that there is no verdict.
///
/// Prompt and response are taken byte for byte: a newline at the end of a file belongs to the text. A special token that
/// is spelled out in the prompt, like <|endoftext|>, is that token to the model and to the proof; the verdict says so.
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
    /// Where the secret is that marks the note.
    #[command(flatten)]
    pub state: StateArgs,
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
    /// Print the soundness error term by term.
    #[arg(long)]
    pub verbose: bool,
    /// Print the verdict as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// One term of the soundness error.
#[derive(Debug, Serialize)]
pub struct TermReport {
    /// What would have to go wrong.
    pub name: String,
    /// How the bound follows from sizes.
    pub formula: String,
    /// Who proved it.
    pub source: &'static str,
    /// `-log2` of the bound; none where the event cannot happen.
    pub bits: f64,
}

impl TermReport {
    /// The reports of all terms.
    pub fn list(terms: &[Term]) -> Vec<Self> {
        let report = |t: &Term| Self {
            name: t.name.clone(),
            formula: t.formula.clone(),
            source: t.source,
            bits: t.bits,
        };
        terms.iter().map(report).collect()
    }
}

/// Bits of soundness for people. Rounded down: a bound must not look better than it is.
fn bits(bits: f64) -> String {
    format!("{:.1} bits", (bits * 10.0).floor() / 10.0)
}

/// Writes the soundness error, term by term where there are terms.
pub fn write_soundness(
    f: &mut fmt::Formatter<'_>,
    soundness_bits: f64,
    terms: &[TermReport],
) -> fmt::Result {
    writeln!(f, "Soundness: {}", bits(soundness_bits))?;
    let rows = terms
        .iter()
        .map(|t| vec![t.name.clone(), bits(t.bits)])
        .collect();
    write!(f, "{}", Table(rows))?;
    for term in terms {
        writeln!(f, "  {}: {}; {}", term.name, term.formula, term.source)?;
    }
    Ok(())
}

/// How it was shown that the model's weights are in range.
#[derive(Debug, Serialize)]
pub struct Weights {
    /// `certificate`, or `rotation` from an id that has one.
    pub shown_by: &'static str,
    /// The file that says so: a certificate that was checked now, or the note of an earlier check.
    pub file: String,
    /// `-log2` of the soundness error.
    pub soundness_bits: f64,
}

/// An accepted reply.
#[derive(Debug, Serialize)]
pub struct Accepted {
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
    /// `eos`, `limit` or `early`; why a reply ended early is not proved.
    pub ended: &'static str,
    /// `-log2` of the soundness error of the batch proof.
    pub soundness_bits: f64,
    /// Its terms, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermReport>,
    /// What shows that the weights are in range.
    pub weights: Weights,
    /// `-log2` of the error of both together: the verdict is wrong only if one of them is.
    pub total_bits: f64,
    /// Wall time.
    pub seconds: f64,
}

/// What was decided.
#[derive(Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The reply is the model's.
    Accepted(Accepted),
    /// It was not shown to be.
    Rejected {
        /// The check that failed.
        check: String,
        /// The id of the model in the id file, in hexadecimal.
        model_id: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { check, .. } => writeln!(f, "REJECTED: {check}"),
            Self::Accepted(a) => {
                let Accepted {
                    request,
                    requests,
                    max_tokens,
                    response_tokens,
                    ..
                } = a;
                writeln!(
                    f,
                    "ACCEPTED request {request} of a batch of {requests}, {response_tokens} response tokens"
                )?;
                writeln!(f, "model id {}", a.model_id)?;
                writeln!(
                    f,
                    "Proved: the response is, token for token, what the integer model committed under this id decodes \
                     greedily for the prompt."
                )?;
                match a.ended {
                    "eos" => writeln!(f, "The reply ended with the end of the text.")?,
                    "limit" => writeln!(f, "The reply ended at its limit of {max_tokens} tokens.")?,
                    _ => writeln!(
                        f,
                        "The reply was stopped early, below its limit of {max_tokens} tokens; the reason is not proved."
                    )?,
                }
                let tokens = |n: usize| {
                    if n == 1 {
                        "a special token".to_owned()
                    } else {
                        format!("{n} special tokens")
                    }
                };
                if a.special_in_prompt > 0 {
                    writeln!(
                        f,
                        "The prompt spells out {}, read by the model as such and not as text.",
                        tokens(a.special_in_prompt)
                    )?;
                }
                if a.special_in_response > 0 {
                    writeln!(
                        f,
                        "The response has {} that its text does not show.",
                        tokens(a.special_in_response)
                    )?;
                }
                writeln!(
                    f,
                    "Weights in range: {}, by {}",
                    bits(a.weights.soundness_bits),
                    a.weights.file
                )?;
                write_soundness(f, a.soundness_bits, &a.terms)?;
                writeln!(f, "Altogether: {}", bits(a.total_bits))?;
                writeln!(f, "Checked in {}", output::seconds(a.seconds))?;
                Ok(())
            }
        }
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

/// Why there is no acceptance.
enum Stop {
    Rejected(String),
    Unusable(Failure),
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
        .decode(&slip.response)
        .map_err(|error| format!("response: {error}"))?;
    if decoded != case.response {
        return Err(format!(
            "response: the slip is for another text; {}",
            texts::difference(&case.response, &decoded)
        ));
    }
    Ok(())
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
        let (certified, _) = verify_model::check(&case.id, path)
            .map_err(Stop::Unusable)?
            .map_err(|check| Stop::Rejected(format!("certificate: {check}")))?;
        (certified, path.clone())
    } else {
        let id = &case.args.id;
        let path = verdict_path(id);
        let state = case.args.state.locate().map_err(Stop::Unusable)?;
        let noted = read_verdict(&state, id, digest).map_err(Stop::Unusable)?;
        let certified = noted.map_err(|reason| {
            let message = format!("its weights were not shown to be in range; {reason}");
            Stop::Unusable(Failure::file(id, message).advise(format!(
                "check its certificate once with `zkmoe verify-model --id {} --cert FILE` here, or name the certificate with --cert",
                id.display()
            )))
        })?;
        (certified, path)
    };
    Ok(Weights {
        shown_by: match certified.how {
            How::Certificate { .. } => "certificate",
            How::Rotation { .. } => "rotation",
        },
        file: file.display().to_string(),
        soundness_bits: certified.soundness_bits(),
    })
}

fn decide(case: &Case<'_>, proof: input::Proof, start: Instant) -> Result<Accepted, Stop> {
    let digest = case.id.digest();
    check_texts(case, &digest).map_err(Stop::Rejected)?;
    let weights = check_weights(case, &digest)?;
    let batch = proof
        .read(|start| file_length(&case.id, start))
        .map_err(Stop::Unusable)?
        .and_then(|proof| verify_batch(&case.id, &proof));
    let batch = batch.map_err(|error| match error {
        VerifyError::Rejected(reject) => Stop::Rejected(reject.to_string()),
        VerifyError::Unusable(error) => Stop::Unusable(input::undecodable(
            &case.args.proof,
            &error,
            "take the batch.proof that came with the slip",
        )),
    })?;
    let ended = check_slip(&case.id, &batch, &case.slip, &case.prompt_ids)
        .map_err(|reject| Stop::Rejected(explain_slip(case, &batch, &reject)))?;
    let shown = match case.slip.response.split_last() {
        Some((_, rest)) if ended == Ended::EndOfText => rest,
        _ => &case.slip.response[..],
    };
    let terms = if case.args.verbose {
        &batch.soundness[..]
    } else {
        &[]
    };
    let soundness_bits = total_bits(&batch.soundness);
    Ok(Accepted {
        model_id: output::hex(&digest),
        request: case.slip.request,
        requests: batch.header.shape.lengths.len(),
        prompt_tokens: case.prompt_ids.len(),
        response_tokens: case.slip.response.len(),
        special_in_prompt: case.tokenizer.special(&case.prompt_ids),
        special_in_response: case.tokenizer.special(shown),
        max_tokens: case.slip.max_tokens,
        ended: match ended {
            Ended::EndOfText => "eos",
            Ended::Limit => "limit",
            Ended::Early => "early",
        },
        soundness_bits,
        terms: TermReport::list(terms),
        total_bits: together(soundness_bits, weights.soundness_bits),
        weights,
        seconds: start.elapsed().as_secs_f64(),
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
    let start = Instant::now();
    let tokenizer = input::tokenizer(&args.id, &id.tokenizer)?;
    let prompt_ids = tokenizer
        .encode(&prompt)
        .map_err(|error| Failure::new(format_args!("prompt: {error}")))?;
    let case = Case {
        args,
        id,
        tokenizer,
        slip,
        prompt,
        prompt_ids,
        response,
    };
    match decide(&case, proof, start) {
        Ok(accepted) => Ok(Verdict::Accepted(accepted)),
        Err(Stop::Unusable(failure)) => Err(failure),
        Err(Stop::Rejected(check)) => Ok(Verdict::Rejected {
            check,
            model_id: output::hex(&case.id.digest()),
        }),
    }
}

/// Decides and prints the verdict.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    let verdict = perform(args)?;
    output::emit(&verdict, args.json)?;
    Ok(match verdict {
        Verdict::Accepted(_) => Outcome::Done,
        Verdict::Rejected { .. } => Outcome::Rejected,
    })
}
