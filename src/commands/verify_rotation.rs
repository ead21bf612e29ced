//! `zkmoe verify-rotation`: a verdict about two ids.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use zkmoe_commit::soundness::Term;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::rotation::{START, file_length, verify_rotation};
use zkmoe_verifier::soundness::total_bits;
use zkmoe_verifier::verify::VerifyError;

use super::verify::{TermReport, write_soundness};
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output;
use crate::state::{State, StateArgs};
use crate::verdict::{
    Certified, How, floor_bits, read_verdict, together, verdict_path, write_verdict,
};

/// Check that two model ids commit to the same weights.
///
/// The first line of the output is the verdict: ACCEPTED, or REJECTED with the check that failed. The exit code is 0
/// or 1; 2 means that a file could not be read, so that there is no verdict. ACCEPTED says that a proof under the new
/// id is about the model of the old one. If you have checked the certificate of the old id (`zkmoe verify-model`),
/// the new one is from now on certified as well, and `zkmoe verify` takes it.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe verify-rotation --from model.id --to next.id --proof rotate.proof
  zkmoe verify-rotation --from model.id --to next.id --proof rotate.proof --verbose")]
pub struct Args {
    /// The old id, which is trusted.
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// The new id.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// The proof that `zkmoe rotate` wrote.
    #[arg(long, value_name = "FILE")]
    pub proof: PathBuf,
    /// Where the secret is that marks the notes.
    #[command(flatten)]
    pub state: StateArgs,
    /// Print the soundness error term by term.
    #[arg(long)]
    pub verbose: bool,
    /// Print the verdict as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// An accepted rotation.
#[derive(Debug, Serialize)]
pub struct Accepted {
    /// The old model id, in hexadecimal.
    pub from: String,
    /// The new model id, in hexadecimal.
    pub to: String,
    /// `-log2` of the soundness error.
    pub soundness_bits: f64,
    /// Its terms, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermReport>,
    /// The note beside the new id that its weights are in range.
    pub certified: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_certified: Option<String>,
    /// Wall time.
    pub seconds: f64,
}

/// What was decided.
#[derive(Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Both ids commit to the same weights.
    Accepted(Accepted),
    /// It was not shown that they do.
    Rejected {
        /// The check that failed.
        check: String,
        /// The old model id, in hexadecimal.
        from: String,
        /// The new model id, in hexadecimal.
        to: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { check, .. } => writeln!(f, "REJECTED: {check}"),
            Self::Accepted(a) => {
                writeln!(f, "ACCEPTED model id {}", a.to)?;
                writeln!(f, "rotated from    {}", a.from)?;
                writeln!(
                    f,
                    "Proved: both ids commit to the same weights, with the same sizes, shifts, tables and tokenizer."
                )?;
                if let Some(file) = &a.certified {
                    writeln!(
                        f,
                        "The weights were shown to be in range, for both ids: noted in {file}"
                    )?;
                }
                if let Some(reason) = &a.not_certified {
                    writeln!(
                        f,
                        "It is not known here whether the weights are in range: {reason}. Check the certificate of the old id \
                         with `zkmoe verify-model` and then this rotation again, or the certificate of the new id"
                    )?;
                }
                write_soundness(f, a.soundness_bits, &a.terms)?;
                writeln!(f, "Checked in {}", output::seconds(a.seconds))
            }
        }
    }
}

/// Reads both ids and the proof, and decides.
pub fn perform(args: &Args) -> Result<Verdict, Failure> {
    input::check_apart(&verdict_path(&args.to), &[Some(&args.proof)])?;
    let state = args.state.locate()?;
    let proof = input::Proof::open(&args.proof, START)?;
    let (old, new) = (input::open_id(&args.from)?, input::open_id(&args.to)?);
    let start = Instant::now();
    let [from, to] = [&old, &new].map(|id| output::hex(&id.digest()));
    let checked = proof
        .read(|start| file_length(&old, &new, start))?
        .and_then(|proof| verify_rotation(&old, &new, &proof));
    match checked {
        Ok(rotation) => {
            let terms = if args.verbose {
                &rotation.soundness[..]
            } else {
                &[]
            };
            let inherited = inherit(args, &state, [&old, &new], &rotation.soundness)?;
            let (certified, not_certified) = match inherited {
                Ok(file) => (Some(file), None),
                Err(reason) => (None, Some(reason)),
            };
            Ok(Verdict::Accepted(Accepted {
                from,
                to,
                soundness_bits: total_bits(&rotation.soundness),
                terms: TermReport::list(terms),
                certified,
                not_certified,
                seconds: start.elapsed().as_secs_f64(),
            }))
        }
        Err(VerifyError::Rejected(reject)) => Ok(Verdict::Rejected {
            check: reject.to_string(),
            from,
            to,
        }),
        Err(VerifyError::Unusable(error)) => Err(input::undecodable(
            &args.proof,
            &error,
            "take the proof that the provider published with the new id",
        )),
    }
}

/// Notes beside the new id that its weights are in range, if there is such a note beside the old one: the note's
/// file, or why there is none. A note for at least as many bits stays.
fn inherit(
    args: &Args,
    state: &State,
    [old, new]: [&ModelId; 2],
    soundness: &[Term],
) -> Result<Result<String, String>, Failure> {
    let (from, to) = (old.digest(), new.digest());
    let file = verdict_path(&args.to).display().to_string();
    let inherited = read_verdict(state, &args.from, &from)?.and_then(|shown| {
        let bits = together(shown.soundness_bits(), total_bits(soundness));
        let certified = Certified::new(How::Rotation { from }, bits);
        if certified.is_enough() {
            Ok(certified)
        } else {
            Err(format!(
                "the old id's note and this rotation together are for {:.1} bits, and {:.1} are needed",
                certified.soundness_bits(),
                floor_bits()
            ))
        }
    });
    // A note beside the new id may have come with it: one that cannot be used is no fault, and is replaced.
    let present = read_verdict(state, &args.to, &to).ok().and_then(Result::ok);
    match (inherited, present) {
        (Err(reason), None) => Ok(Err(reason)),
        (Ok(inherited), present) if present.is_none_or(|p| p.tenths < inherited.tenths) => {
            write_verdict(&state.secret_or_new()?, &args.to, &to, &inherited)?;
            Ok(Ok(file))
        }
        _ => Ok(Ok(file)),
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
