//! `zkmoe certify`: the proof that every weight behind an id is in range.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use zkmoe_prover::certify::certify;
use zkmoe_prover::commitment::os_randomness;
use zkmoe_prover::key::KeyError;
use zkmoe_prover::prove::ProveError;

use super::prove::{Part, Phase, Watch};
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output;
use crate::visible::Named;

/// Prove that every weight of a committed model is in range.
///
/// Proofs about replies compute with committed weights as integers, and the integers must be small enough for no sum to wrap
/// around. The certificate shows that they are, once for each id. Customers need it to verify: publish it with the id.
/// It uses up the part of the key's randomness that `zkmoe commit` keeps for it.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe certify model.zkm --key model.key --id model.id --out model.cert")]
pub struct Args {
    /// The model file.
    #[arg(value_name = "MODEL.zkm")]
    pub model: PathBuf,
    /// The private key of the id.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The model id.
    #[arg(long, value_name = "FILE")]
    pub id: PathBuf,
    /// The certificate to write; must not exist.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A certificate that was made.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The certificate.
    pub certificate: Named,
    /// Its bytes.
    pub bytes: usize,
    /// The model id, in hexadecimal.
    pub model_id: String,
    /// Weights of the model.
    pub weights: u64,
    /// Bytes by kind of message.
    pub parts: Vec<Part>,
    /// Wall time by phase.
    pub phases: Vec<Phase>,
    /// Wall time of all phases.
    pub seconds: f64,
    /// Wall time for each weight, in nanoseconds.
    pub nanoseconds_per_weight: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}, public: publish it with the id",
            self.certificate,
            output::bytes(self.bytes as u64)
        )?;
        writeln!(f, "model id {}", self.model_id)?;
        write!(f, "{}", Part::table(&self.parts))?;
        writeln!(
            f,
            "Took {}, {:.0} ns for each of {} weights",
            output::seconds(self.seconds),
            self.nanoseconds_per_weight,
            output::count(self.weights)
        )?;
        write!(f, "{}", Phase::table(&self.phases))
    }
}

/// Refuses to take the place of a file, or of a link that leads nowhere.
fn check_free(path: &Path) -> Result<(), Failure> {
    input::check_folder_of(path)?;
    if path.symlink_metadata().is_ok() {
        return Err(
            Failure::file(path, "exists; whoever was given it may still need it")
                .advise("choose another name with --out"),
        );
    }
    Ok(())
}

/// Certifies and writes the certificate.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    check_free(&args.out)?;
    let id = input::open_id(&args.id)?;
    let mut key = input::open_key(&args.key)?;
    if key.id() != id.digest() {
        let reason = format!("is the key of another id than {}", args.id.display());
        return Err(Failure::file(&args.key, reason)
            .advise("take the two files that one `zkmoe commit` wrote"));
    }
    let (model, _) = input::open_model(&args.model)?;
    let weights = model.parameters();
    let randomness = os_randomness().map_err(Failure::new)?;
    let before = key.ledger().openings();
    let counted = |failure| {
        let then = "a key makes one certificate, so `zkmoe rotate` has to make a new key, which can certify its id";
        input::counted(failure, &args.key, before, then)
    };
    let mut watch = Watch::new();
    let start = Instant::now();
    let certificate =
        certify(&model, &id, &mut key, randomness, &mut watch).map_err(|error| match error {
            ProveError::Mismatch(_) => counted(
                Failure::file(
                    &args.model,
                    format_args!("is not the model of {}", args.id.display()),
                )
                .advise("take the model file that was committed to"),
            ),
            ProveError::Key(error @ KeyError::Spent { .. }) => {
                let advice = input::key_advice(&error);
                Failure::file(&args.key, error).advise(advice)
            }
            ProveError::Key(error) => {
                let advice = input::key_advice(&error);
                counted(Failure::new(error).advise(advice))
            }
            error => counted(
                input::check_unchanged(&args.model, &model)
                    .err()
                    .unwrap_or_else(|| Failure::new(error)),
            ),
        })?;
    watch.close();
    let seconds = start.elapsed().as_secs_f64();
    input::write_new(&args.out, &certificate.bytes).map_err(counted)?;
    Ok(Report {
        certificate: Named::file(&args.out),
        bytes: certificate.bytes.len(),
        model_id: output::hex(&id.digest()),
        weights,
        parts: Part::list(&certificate.sizes),
        phases: watch.phases,
        seconds,
        nanoseconds_per_weight: seconds * 1e9 / weights.max(1) as f64,
    })
}

/// Certifies and prints sizes and times.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}
