//! `zkmoe verify-rotation`: a verdict about two ids.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use zkmoe_commit::soundness::Term;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::rotation::verify_rotation;
use zkmoe_verifier::soundness::total_bits;
use zkmoe_verifier::verify::VerifyError;

use super::verify::{TermReport, write_soundness};
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output;
use crate::verdict::{Certified, How, read_verdict, verdict_path, write_verdict};

/// Check that two model ids commit to the same weights.
///
/// The first line of the output is the verdict: ACCEPTED, or REJECTED with the check that failed. The exit code is 0
/// or 1; 2 means that a file could not be read, so that there is no verdict. ACCEPTED says that a proof under the new id is
/// about the model of the old one. If the old id has been certified here (`zkmoe verify-model`), the new one is from now
/// on as well, and `zkmoe verify` takes it.
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
    /// The note beside the new id that its weights are in range; none if there is none beside the old id.
    pub certified: Option<String>,
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
                match &a.certified {
                    Some(file) => writeln!(
                        f,
                        "The weights of the old id were shown to be in range, so those of the new one are: noted in {file}"
                    )?,
                    None => writeln!(
                        f,
                        "Nothing is known here about the weights' ranges: check the certificate of the old id with `zkmoe \
                         verify-model`, then this rotation again"
                    )?,
                }
                write_soundness(f, a.soundness_bits, &a.terms)?;
                writeln!(f, "Checked in {}", output::seconds(a.seconds))
            }
        }
    }
}

/// Reads both ids and the proof, and decides.
pub fn perform(args: &Args) -> Result<Verdict, Failure> {
    let proof = input::read(&args.proof)?;
    let (old, new) = (input::open_id(&args.from)?, input::open_id(&args.to)?);
    let start = Instant::now();
    let [from, to] = [&old, &new].map(|id| output::hex(&id.digest()));
    match verify_rotation(&old, &new, &proof) {
        Ok(rotation) => {
            let terms = if args.verbose {
                &rotation.soundness[..]
            } else {
                &[]
            };
            Ok(Verdict::Accepted(Accepted {
                from,
                to,
                soundness_bits: total_bits(&rotation.soundness),
                terms: TermReport::list(terms),
                certified: inherit(args, [&old, &new], &rotation.soundness)?,
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

/// Notes beside the new id that its weights are in range, if there is such a note beside the old one.
fn inherit(
    args: &Args,
    [old, new]: [&ModelId; 2],
    soundness: &[Term],
) -> Result<Option<String>, Failure> {
    let from = old.digest();
    let Some(certified) = read_verdict(&args.from, &from)? else {
        return Ok(None);
    };
    // Either proof may be the one that is false.
    let error = (-certified.soundness_bits()).exp2() + (-total_bits(soundness)).exp2();
    let certified = Certified::new(How::Rotation { from }, -error.log2());
    write_verdict(&args.to, &new.digest(), &certified)?;
    Ok(Some(verdict_path(&args.to).display().to_string()))
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
