//! `zkmoe verify-model`: a verdict about the weights behind an id, kept for every later `zkmoe verify`.
//!
//! What was accepted is noted beside the id ([`crate::verdict`]). What was rejected is not, and a note that is there
//! stays: it says that some certificate of exactly this id was accepted, and a bad file does not make that untrue.
//! Otherwise whoever sends a broken certificate could take a good one away.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use zkmoe_commit::soundness::Term;
use zkmoe_verifier::certificate::{START, certificate_digest, file_length, verify_certificate};
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::soundness::total_bits;
use zkmoe_verifier::verify::VerifyError;

use super::verify::{TermReport, write_soundness};
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output;
use crate::state::StateArgs;
use crate::verdict::{Certified, How, verdict_path, write_verdict};

/// Check the certificate of a model id: that every committed weight is in range.
///
/// The first line of the output is the verdict: ACCEPTED, or REJECTED with the check that failed. The exit code is 0
/// or 1; 2 means that a file could not be read, so that there is no verdict. On acceptance a note is left beside the
/// id (model.id.certified), and `zkmoe verify` asks for no certificate any more. The note is marked with a secret of
/// yours, which is drawn the first time and kept in the state folder: notes that somebody else made are not believed.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe verify-model --id model.id --cert model.cert
  zkmoe verify-model --id model.id --cert model.cert --verbose")]
pub struct Args {
    /// The model id that the provider published.
    #[arg(long, value_name = "FILE")]
    pub id: PathBuf,
    /// The certificate that the provider published with it.
    #[arg(long, value_name = "FILE")]
    pub cert: PathBuf,
    /// Where the secret is that marks the note.
    #[command(flatten)]
    pub state: StateArgs,
    /// Print the soundness error term by term.
    #[arg(long)]
    pub verbose: bool,
    /// Print the verdict as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// An accepted certificate.
#[derive(Debug, Serialize)]
pub struct Accepted {
    /// The model id, in hexadecimal.
    pub model_id: String,
    /// The note that was left.
    pub verdict_file: String,
    /// `-log2` of the soundness error.
    pub soundness_bits: f64,
    /// Its terms, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermReport>,
    /// Wall time.
    pub seconds: f64,
}

/// What was decided.
#[derive(Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "UPPERCASE")]
pub enum Verdict {
    /// All weights are in range.
    Accepted(Accepted),
    /// It was not shown that they are.
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
                writeln!(f, "ACCEPTED model id {}", a.model_id)?;
                writeln!(
                    f,
                    "Proved: every weight committed under this id lies in its range, so no sum of the integer model wraps."
                )?;
                writeln!(
                    f,
                    "Noted in {}, for your own `zkmoe verify` and nobody else's",
                    a.verdict_file
                )?;
                write_soundness(f, a.soundness_bits, &a.terms)?;
                writeln!(f, "Checked in {}", output::seconds(a.seconds))?;
                Ok(())
            }
        }
    }
}

/// The terms of an accepted certificate with what to note about it, or why it is rejected.
pub(super) fn check(
    id: &ModelId,
    path: &Path,
) -> Result<Result<(Certified, Vec<Term>), String>, Failure> {
    let certificate = input::Proof::open(path, START)?.read(|start| file_length(id, start))?;
    let checked = certificate.and_then(|bytes| {
        let terms = verify_certificate(id, &bytes)?;
        Ok((terms, certificate_digest(&bytes)))
    });
    match checked {
        Ok((terms, digest)) => {
            let certified = Certified::new(How::Certificate { digest }, total_bits(&terms));
            Ok(Ok((certified, terms)))
        }
        Err(VerifyError::Rejected(reject)) => Ok(Err(reject.to_string())),
        Err(VerifyError::Unusable(error)) => Err(input::undecodable(
            path,
            &error,
            "take the certificate that the provider published with the id",
        )),
    }
}

/// Reads id and certificate, decides, and notes an acceptance.
pub fn perform(args: &Args) -> Result<Verdict, Failure> {
    input::check_apart(&verdict_path(&args.id), &[Some(&args.cert)])?;
    let state = args.state.locate()?;
    let id = input::open_id(&args.id)?;
    let start = Instant::now();
    let digest = id.digest();
    let model_id = output::hex(&digest);
    let (certified, terms) = match check(&id, &args.cert)? {
        Ok(accepted) => accepted,
        Err(check) => {
            return Ok(Verdict::Rejected { check, model_id });
        }
    };
    let secret = state.secret_or_new()?;
    write_verdict(&secret, &args.id, &digest, &certified).map_err(|failure| {
        failure.also("the certificate is accepted, but this cannot be noted; copy the id to a folder of your own, or give the certificate to `zkmoe verify --cert`")
    })?;
    let shown = if args.verbose { &terms[..] } else { &[] };
    Ok(Verdict::Accepted(Accepted {
        model_id,
        verdict_file: verdict_path(&args.id).display().to_string(),
        soundness_bits: total_bits(&terms),
        terms: TermReport::list(shown),
        seconds: start.elapsed().as_secs_f64(),
    }))
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
