//! `zkmoe run`: answers a prompt with the integer arithmetic that is proved.

use std::io::{IsTerminal, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;

use serde::Serialize;
use zkmoe_prover::infer::{Ended as Reason, InferError, generate};
use zkmoe_prover::tokenizer::TokenizerError;

use crate::failure::{Failure, Outcome};
use crate::input::{self, Prompt};
use crate::output;
use crate::reply::{Decoding, Ended, REPLY_VERSION, Reply};
use crate::visible::{Named, Prose};

/// Answer a prompt with an integer model.
///
/// Decoding is greedy. The text is printed as it comes (on a terminal with control characters escaped, to a file byte for
/// byte), and the reply is written to a file that `zkmoe prove` takes.
/// Tokens come in groups of up to eight, because a reply is served only as far as it can be proved. The prompt is
/// continued as it stands: nothing is added, no chat template is applied, and a special token that is spelled out
/// becomes that token.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe run model.zkm --prompt 'Once upon a time' --out story.json > story.txt
  printf 'Once upon a time' | zkmoe run model.zkm --max-tokens 200 --out story.json")]
pub struct Args {
    /// The model file.
    #[arg(value_name = "MODEL.zkm")]
    pub model: PathBuf,
    /// The prompt; without one it is read from standard input, byte for byte.
    #[command(flatten)]
    pub prompt: Prompt,
    /// The most tokens of the response.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_tokens: u32,
    /// The reply file to write; an existing reply is replaced, and nothing else.
    #[arg(long, value_name = "REPLY.json")]
    pub out: PathBuf,
    /// Print the reply as one JSON object instead of its text.
    #[arg(long)]
    pub json: bool,
}

/// A reply and how it came about.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The reply file.
    pub file: Named,
    /// What the file holds.
    pub reply: Reply,
    /// Special tokens that the prompt spells out: the model read them as such and not as text.
    pub special_in_prompt: usize,
    /// The overflow that cut the reply, if one did.
    pub overflow: Option<String>,
}

fn prompt_of(args: &Args) -> Result<String, Failure> {
    if let Some(text) = args.prompt.text()? {
        return Ok(text);
    }
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        output::note("Type the prompt; Ctrl-D on a line of its own ends it.");
    }
    let mut bytes = Vec::new();
    stdin
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(format_args!("standard input: {error}")))?;
    input::utf8(bytes).map_err(|reason| {
        Failure::new(format_args!("standard input: the prompt is {reason}"))
            .advise("convert it to UTF-8")
    })
}

/// Answers the prompt and writes the reply; `show` gets the text as it comes.
pub fn perform(
    args: &Args,
    show: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    input::check_folder_of(&args.out)?;
    input::check_apart(
        &args.out,
        &[Some(&args.model), args.prompt.prompt_file.as_deref()],
    )?;
    input::check_replaceable(&args.out, "reply", Reply::is_one)?;
    let prompt = prompt_of(args)?;
    let (model, tokenizer) = input::open_model(&args.model)?;
    let prompt_ids = tokenizer
        .encode_prompt(&prompt, model.header().sizes.max_position_embeddings)
        .map_err(|error| {
            let failure = Failure::new(format_args!("prompt: {error}"));
            match error {
                TokenizerError::Long { .. } => failure.advise("shorten the prompt"),
                _ => failure,
            }
        })?;
    let special_in_prompt = tokenizer.special(&prompt_ids);
    let mut stream = tokenizer.stream();
    let mut broken: Option<Failure> = None;
    let generation = generate(&model, &prompt_ids, args.max_tokens as usize, |token| {
        if broken.is_none() {
            let text = stream.push(token).map_err(|error| Failure::file(&args.model, error));
            broken = text.and_then(|text| show(&text)).err();
        }
        if broken.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .map_err(|error| {
        let failure = Failure::new(format_args!("prompt: {error}"));
        match error {
            InferError::Empty => Failure::new("prompt: it is empty")
                .advise("give it some text with --prompt, --prompt-file or on standard input"),
            InferError::Context { needed, available } => Failure::new(format_args!(
                "prompt: its {} tokens and one of response need {needed} positions, the context of {} has {available}",
                prompt_ids.len(),
                args.model.display()
            ))
            .advise("shorten the prompt"),
            InferError::Overflow(_) => failure.advise(
                "the integer model cannot serve this prompt; import again with --calibration on text that is more like it",
            ),
            InferError::Token { .. } => failure,
        }
    })?;
    if let Some(failure) = broken {
        return Err(failure);
    }
    let in_model = |error| Failure::file(&args.model, error);
    show(&stream.finish().map_err(in_model)?)?;
    let reply = Reply {
        version: REPLY_VERSION,
        response: tokenizer
            .decode(&generation.response_ids)
            .map_err(in_model)?,
        prompt,
        prompt_ids,
        response_ids: generation.response_ids,
        max_tokens: args.max_tokens,
        decoding: Decoding::Greedy,
        ended: Ended::from(&generation.ended),
    };
    input::check_unchanged(&args.model, &model)?;
    reply.save(&args.out)?;
    let overflow = match generation.ended {
        Reason::Overflow(overflow) => Some(overflow.to_string()),
        _ => None,
    };
    Ok(Report {
        file: Named::file(&args.out),
        reply,
        special_in_prompt,
        overflow,
    })
}

/// Answers the prompt and prints the reply.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    if args.json {
        output::emit_json(&perform(args, &mut |_| Ok(()))?)?;
        return Ok(Outcome::Done);
    }
    // A file gets the text byte for byte, as whoever verifies it needs it. A terminal would act on what a model may well write.
    let watched = std::io::stdout().is_terminal();
    let report = perform(args, &mut |text| {
        if watched {
            output::print(Prose(text))
        } else {
            output::print(text)
        }
    })?;
    if watched {
        output::print("\n")?;
    }
    let Report {
        file,
        reply,
        special_in_prompt,
        overflow,
    } = report;
    let ids = reply.response_ids.len();
    output::note(format_args!(
        "{file}: {ids} tokens; ended because {}",
        reply.ended.words()
    ));
    if special_in_prompt > 0 {
        output::note(format_args!(
            "the prompt spells out special tokens ({special_in_prompt}), which the model read as such and not as text"
        ));
    }
    if let Some(overflow) = overflow {
        output::note(overflow);
    }
    Ok(Outcome::Done)
}
