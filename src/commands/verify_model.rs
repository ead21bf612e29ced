//! `zkmoe verify-model`: a verdict about the weights behind an id, kept for every later `zkmoe verify`.
//!
//! What was accepted is noted beside the id ([`crate::verdict`]). What was rejected is not, and a note that is there
//! stays: it says that some certificate of exactly this id was accepted, and a bad file does not make that untrue.
//! Otherwise whoever sends a broken certificate could take a good one away.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zkmoe_commit::soundness::Term;
use zkmoe_verifier::certificate::{START, certificate_digest, file_length, verify_certificate};
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::soundness::total_bits;

use super::decision::{self, AboutModel, Options, Soundness, Stop};
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output;
use crate::verdict::{Certified, How, verdict_path, write_verdict};
use crate::visible::Named;

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
    /// How to check and print.
    #[command(flatten)]
    pub options: Options,
}

/// An accepted certificate.
#[derive(Debug, Serialize)]
pub struct Found {
    /// The model id, in hexadecimal.
    pub model_id: String,
    /// The note that was left.
    pub verdict_file: Named,
    /// The soundness error.
    #[serde(flatten)]
    pub soundness: Soundness,
}

/// What was decided: whether all weights are in range.
pub type Verdict = decision::Verdict<Found, AboutModel>;

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model_id,
            verdict_file,
            soundness,
        } = self;
        writeln!(f, "model id {model_id}")?;
        writeln!(
            f,
            "Proved: every weight committed under this id lies in its range, so no sum of the integer model wraps."
        )?;
        writeln!(
            f,
            "Noted in {verdict_file}, for your own `zkmoe verify` and nobody else's"
        )?;
        write!(f, "{soundness}")
    }
}

/// The terms of an accepted certificate with what to note about it.
pub(super) fn check(id: &ModelId, path: &Path) -> Result<(Certified, Vec<Term>), Stop> {
    let unfit = |error| {
        let advice = "take the certificate that the provider published with the id";
        Stop::at(path, error, advice)
    };
    let file = input::Proof::open(path, START)?;
    let bytes = file.read(|start| file_length(id, start))?.map_err(unfit)?;
    let terms = verify_certificate(id, &bytes).map_err(unfit)?;
    let digest = certificate_digest(&bytes);
    let certified = Certified::new(How::Certificate { digest }, total_bits(&terms));
    Ok((certified, terms))
}

/// Reads id and certificate, decides, and notes an acceptance.
pub fn perform(args: &Args) -> Result<Verdict, Failure> {
    input::check_apart(&verdict_path(&args.id), &[Some(&args.cert)])?;
    let state = args.options.state.locate()?;
    let id = input::open_id(&args.id)?;
    let digest = id.digest();
    let model_id = output::hex(&digest);
    let about = AboutModel {
        model_id: model_id.clone(),
    };
    Verdict::of(about, || {
        let (certified, terms) = check(&id, &args.cert)?;
        let secret = state.secret_or_new()?;
        write_verdict(&secret, &args.id, &digest, &certified).map_err(|failure| {
            failure.also("the certificate is accepted, but this cannot be noted; copy the id to a folder of your own, or give the certificate to `zkmoe verify --cert`")
        })?;
        Ok(Found {
            model_id,
            verdict_file: Named::file(&verdict_path(&args.id)),
            soundness: Soundness::of(&terms, args.options.verbose),
        })
    })
}

/// Decides and prints the verdict.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    perform(args)?.print(&args.options)
}
