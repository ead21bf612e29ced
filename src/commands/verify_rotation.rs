//! `zkmoe verify-rotation`: a verdict about two ids.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use zkmoe_commit::soundness::Term;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::rotation::{START, file_length, verify_rotation};
use zkmoe_verifier::soundness::total_bits;

use super::decision::{self, Options, Soundness, Stop};
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output;
use crate::state::State;
use crate::verdict::{
    Certified, How, floor_bits, read_verdict, together, verdict_path, write_verdict,
};
use crate::visible::Named;

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
    /// How to check and print.
    #[command(flatten)]
    pub options: Options,
}

/// Two ids.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// The old model id, in hexadecimal.
    pub from: String,
    /// The new model id, in hexadecimal.
    pub to: String,
}

/// An accepted rotation.
#[derive(Debug, Serialize)]
pub struct Found {
    /// From which id to which.
    #[serde(flatten)]
    pub ids: Pair,
    /// The soundness error.
    #[serde(flatten)]
    pub soundness: Soundness,
    /// The note beside the new id that its weights are in range.
    pub certified: Option<Named>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_certified: Option<Named>,
}

/// What was decided: whether both ids commit to the same weights.
pub type Verdict = decision::Verdict<Found, Pair>;

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model id {}", self.ids.to)?;
        writeln!(f, "rotated from    {}", self.ids.from)?;
        writeln!(
            f,
            "Proved: both ids commit to the same weights, with the same sizes, shifts, tables and tokenizer."
        )?;
        if let Some(file) = &self.certified {
            writeln!(
                f,
                "The weights were shown to be in range, for both ids: noted in {file}"
            )?;
        }
        if let Some(reason) = &self.not_certified {
            writeln!(
                f,
                "It is not known here whether the weights are in range: {reason}. Check the certificate of the old id \
                 with `zkmoe verify-model` and then this rotation again, or the certificate of the new id"
            )?;
        }
        write!(f, "{}", self.soundness)
    }
}

/// Reads both ids and the proof, and decides.
pub fn perform(args: &Args) -> Result<Verdict, Failure> {
    input::check_apart(&verdict_path(&args.to), &[Some(&args.proof)])?;
    let state = args.options.state.locate()?;
    let file = input::Proof::open(&args.proof, START)?;
    let (old, new) = (input::open_id(&args.from)?, input::open_id(&args.to)?);
    let [from, to] = [&old, &new].map(|id| output::hex(&id.digest()));
    let ids = Pair { from, to };
    Verdict::of(ids.clone(), || {
        let proof = file.read(|start| file_length(&old, &new, start))?;
        let rotation = proof
            .and_then(|proof| verify_rotation(&old, &new, &proof))
            .map_err(|error| {
                let advice = "take the proof that the provider published with the new id";
                Stop::at(&args.proof, error, advice)
            })?;
        let inherited = inherit(args, &state, [&old, &new], &rotation.soundness)?;
        let (certified, not_certified) = match inherited {
            Ok(file) => (Some(Named(file)), None),
            Err(reason) => (None, Some(Named(reason))),
        };
        Ok(Found {
            ids,
            soundness: Soundness::of(&rotation.soundness, args.options.verbose),
            certified,
            not_certified,
        })
    })
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
    perform(args)?.print(&args.options)
}
