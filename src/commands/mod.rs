//! The subcommands, one file each.
//!
//! Every file has the arguments, whose comments are the manual; `perform`, which does the work on files and returns a
//! report; and `execute`, which also prints it. The demo performs the same commands on the same files.

pub mod certify;
pub mod commit;
pub mod decision;
pub mod demo;
pub mod import;
pub mod inspect;
pub mod params;
pub mod prove;
pub mod relation;
pub mod rotate;
pub mod run;
pub mod verify;
pub mod verify_model;
pub mod verify_rotation;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use crate::failure::{Failure, Outcome};
use crate::visible::Line;

const FLOW: &str = "\
From a checkpoint to a verdict:
  provider  zkmoe import ./checkpoint --out model.zkm
  provider  zkmoe commit model.zkm --id model.id --key model.key      (publish model.id, keep model.key)
  provider  zkmoe certify model.zkm --key model.key --id model.id --out model.cert      (publish model.cert)
  provider  zkmoe run model.zkm --prompt 'Once upon a time' --out story.json > story.txt
  provider  zkmoe prove model.zkm --key model.key --id model.id story.json --out proofs
  customer  zkmoe verify-model --id model.id --cert model.cert        (once)
  customer  zkmoe verify --id model.id --proof proofs/batch.proof --slip proofs/story.slip \\
                --prompt 'Once upon a time' --response-file story.txt

When the randomness of a commitment is used up:
  provider  zkmoe rotate model.zkm --key model.key --id model.id --out-id next.id --out-key next.key \\
                --proof rotate.proof                                  (publish next.id and rotate.proof)
  customer  zkmoe verify-rotation --from model.id --to next.id --proof rotate.proof

  zkmoe params --config ./checkpoint/config.json tells soundness error and sizes of proofs before all of this.

  zkmoe demo goes from a checkpoint to verdicts with a small model that is built in.

Exit codes: 0 done or accepted; 1 rejected (verify, verify-model, verify-rotation), with the check on standard output; 2 the
input cannot be used, or the command was refused, with the reason on standard error. Only 0 means that something was accepted.
With --json standard output is always one JSON object; for exit code 2 it has `error`, `exit_code` and, where something helps,
`advice`.";

/// Proves and checks that a reply came from exactly the committed Mixture-of-Experts model.
///
/// A provider commits to a model once and publishes the model id. Replies are computed in integers, and a proof shows
/// that each token of a reply is what the committed model decodes. A customer checks the proof with the id, the prompt
/// and the response, without the weights.
#[derive(Debug, Parser)]
#[command(name = "zkmoe", version, after_help = FLOW)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line of this process. The error, which may be a request for help as well, can be printed as it is.
    pub fn read() -> Result<Self, clap::Error> {
        Self::try_parse().map_err(visible)
    }
}

/// An error about the command line in which the words of the command line are escaped: names of files come from others.
fn visible(mut error: clap::Error) -> clap::Error {
    let line = |text: &dyn std::fmt::Display| Line(text).to_string();
    let words: Vec<_> = error
        .context()
        .filter_map(|(kind, value)| {
            let value = match value {
                ContextValue::String(text) => ContextValue::String(line(text)),
                ContextValue::Strings(list) => {
                    ContextValue::Strings(list.iter().map(|text| line(text)).collect())
                }
                // Suggestions repeat what was given. Only the usage is clap's own, and has several lines.
                ContextValue::StyledStr(text) if kind != ContextKind::Usage => {
                    ContextValue::StyledStr(line(text).into())
                }
                ContextValue::StyledStrs(list) => {
                    ContextValue::StyledStrs(list.iter().map(|text| line(text).into()).collect())
                }
                _ => return None,
            };
            Some((kind, value))
        })
        .collect();
    for (kind, value) in words {
        error.insert(kind, value);
    }
    error
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make an integer model from a checkpoint, and compare the two.
    Import(import::Args),
    /// Answer a prompt with an integer model.
    Run(run::Args),
    /// Commit to a model: make its public id and its private key.
    Commit(commit::Args),
    /// Prove that all weights of a committed model are in range.
    Certify(certify::Args),
    /// Prove replies in one batch.
    Prove(prove::Args),
    /// Check the certificate of a model id, once.
    VerifyModel(verify_model::Args),
    /// Check a reply against a proof and a model id.
    Verify(verify::Args),
    /// Commit to the same model again, and prove that the weights are the same.
    Rotate(rotate::Args),
    /// Check that two model ids commit to the same weights.
    VerifyRotation(verify_rotation::Args),
    /// Say what a file is and what it tells to whom.
    Inspect(inspect::Args),
    /// Print every equation and lookup that a proof proves.
    Relation(relation::Args),
    /// Print the soundness error and the sizes of a proof before anything is proved.
    Params(params::Args),
    /// Go through all steps with a small model that is built in.
    Demo(demo::Args),
}

impl Command {
    /// Whether standard output is to be one JSON object.
    pub fn json(&self) -> bool {
        match self {
            Self::Import(args) => args.json,
            Self::Run(args) => args.json,
            Self::Commit(args) => args.json,
            Self::Certify(args) => args.json,
            Self::Prove(args) => args.json,
            Self::VerifyModel(args) => args.options.json,
            Self::Verify(args) => args.options.json,
            Self::Rotate(args) => args.json,
            Self::VerifyRotation(args) => args.options.json,
            Self::Inspect(args) => args.json,
            Self::Relation(args) => args.json,
            Self::Params(args) => args.json,
            Self::Demo(_) => false,
        }
    }

    /// Runs the subcommand and prints its report.
    pub fn execute(&self) -> Result<Outcome, Failure> {
        match self {
            Self::Import(args) => import::execute(args),
            Self::Run(args) => run::execute(args),
            Self::Commit(args) => commit::execute(args),
            Self::Certify(args) => certify::execute(args),
            Self::Prove(args) => prove::execute(args),
            Self::VerifyModel(args) => verify_model::execute(args),
            Self::Verify(args) => verify::execute(args),
            Self::Rotate(args) => rotate::execute(args),
            Self::VerifyRotation(args) => verify_rotation::execute(args),
            Self::Inspect(args) => inspect::execute(args),
            Self::Relation(args) => relation::execute(args),
            Self::Params(args) => params::execute(args),
            Self::Demo(args) => demo::execute(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Cli, visible};
    use crate::visible::is_visible;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn words_of_the_command_line_are_escaped_where_they_are_repeated() {
        let word = "\u{1b}[2Jx\nACCEPTED\u{202e}\u{9b}";
        let option = format!("--{word}");
        for args in [
            &["zkmoe", word][..],
            &["zkmoe", &option],
            &["zkmoe", "inspect", "a", word],
            &["zkmoe", "inspect", "a", &option],
            &["zkmoe", "demo", word],
            &["zkmoe", "run", "m", "--out", "o", "--max-tokens", word],
            &["zkmoe", "verify", "--expect-id", word],
            &["zkmoe", "verify", "--json=x\u{1b}\n"],
        ] {
            let error = visible(Cli::try_parse_from(args).unwrap_err());
            let text = error.render().ansi().to_string();
            let plain = error.render().to_string();
            assert!(
                plain.chars().all(|c| is_visible(c) || c == '\n'),
                "{plain:?}"
            );
            assert!(
                !plain.lines().any(|line| line.starts_with("ACCEPTED")),
                "{plain}"
            );
            // What styles a terminal is clap's alone: nothing but colours.
            assert!(
                !text.contains("\u{1b}[2J") && !text.contains('\u{9b}'),
                "{text:?}"
            );
        }
        let error = visible(Cli::try_parse_from(["zkmoe", "\u{1b}[2J"]).unwrap_err());
        assert!(error.to_string().contains(r"\u{1b}[2J"), "{error}");
    }
}
