//! `zkmoe rotate`: the same model under a new id, and the proof that the weights are the same.
//!
//! Which file is written when: the new key, then the new id, then, once the opening is counted and made, the proof.
//!
//! - The new key counts the opening of its rows from the start, so both keys have counted it on the disk before a byte
//!   of the proof exists.
//! - A run that ends before the proof leaves a key and an id that belong together: an ordinary commitment, which nobody
//!   takes for a rotation, because the proof is missing. With the proof before the id there would be a moment in which
//!   a finished proof is about an id that nobody has.
//! - Where the proof stands, everything does. What a kill between the count and the end of the proof costs is the
//!   rotation itself: an opening that was counted and not kept cannot be made a second time.
//!
//! A run that fails removes what it wrote.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use zkmoe_prover::commitment::os_randomness;
use zkmoe_prover::key::{KeyError, Opening};
use zkmoe_prover::rotate::{RotateError, Side, check, prove, recommit};

use super::prove::{Part, Phase, Watch};
use crate::failure::{Failure, Outcome};
use crate::input::{self, Written};
use crate::output::{self, Progress};
use crate::visible::Named;

/// Commit to the same model again, and prove that the weights are the same.
///
/// Every proof uses up some of the randomness of a commitment. This makes a new id and a new key with fresh randomness,
/// and a proof that both ids commit to the same weights, so that what was shown about the old id holds for the new one. A
/// key can be rotated once, also when it has no batches left. Publish the new id and the proof; keep the new key.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe rotate model.zkm --key model.key --id model.id \\
      --out-id next.id --out-key next.key --proof rotate.proof")]
pub struct Args {
    /// The model file.
    #[arg(value_name = "MODEL.zkm")]
    pub model: PathBuf,
    /// The private key of the old id.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The old id.
    #[arg(long, value_name = "FILE")]
    pub id: PathBuf,
    /// The new id to write; must not exist.
    #[arg(long, value_name = "FILE")]
    pub out_id: PathBuf,
    /// The new private key to write; must not exist.
    #[arg(long, value_name = "FILE")]
    pub out_key: PathBuf,
    /// The proof to write; must not exist.
    #[arg(long, value_name = "FILE")]
    pub proof: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A rotation that was made.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The old model id, in hexadecimal.
    pub from: String,
    /// The new model id, in hexadecimal.
    pub to: String,
    /// The file of the new id.
    pub id: Named,
    /// The file of the new key.
    pub key: Named,
    /// The file of the proof.
    pub proof: Named,
    /// Bytes of the proof.
    pub bytes: usize,
    /// Bytes of the proof by kind of message.
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
        writeln!(f, "model id {}", self.to)?;
        writeln!(f, "{}: public: publish it", self.id)?;
        writeln!(
            f,
            "{}: private; keep it, do not copy it, nothing can be proved under this id without it",
            self.key
        )?;
        writeln!(
            f,
            "{}: {}, public: shows that {} and the old id {} commit to the same weights",
            self.proof,
            output::bytes(self.bytes as u64),
            self.id,
            self.from
        )?;
        write!(f, "{}", Part::table(&self.parts))?;
        writeln!(
            f,
            "Took {}, {:.0} ns for each weight",
            output::seconds(self.seconds),
            self.nanoseconds_per_weight
        )?;
        write!(f, "{}", Phase::table(&self.phases))
    }
}

/// The one spelling of the name of a file that does not exist yet, in a folder that does.
fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = fs::canonicalize(folder).map_err(|error| Failure::file(path, error))?;
    Ok(path
        .file_name()
        .map_or(folder.clone(), |name| folder.join(name)))
}

/// Refuses names that are taken, in folders that do not exist, or equal.
fn check_names(args: &Args) -> Result<(), Failure> {
    input::check_new_key(&args.out_key)?;
    let mut seen = vec![resolved(&args.out_key)?];
    let others = [
        (
            &args.out_id,
            "the key that belongs to it would be useless without it",
        ),
        (&args.proof, "whoever was given it may still need it"),
    ];
    for (path, reason) in others {
        input::check_folder_of(path)?;
        // A link that leads nowhere takes a name as well.
        if path.symlink_metadata().is_ok() {
            return Err(
                Failure::file(path, format_args!("exists; {reason}")).advise("choose another name")
            );
        }
        let name = resolved(path)?;
        if seen.contains(&name) {
            return Err(
                Failure::file(path, "cannot be two of new key, new id and proof at once")
                    .advise("choose three names"),
            );
        }
        seen.push(name);
    }
    Ok(())
}

/// Why there is no rotation, in terms of files.
fn explain(error: &RotateError, args: &Args) -> Failure {
    match error {
        RotateError::OtherModel => Failure::file(
            &args.model,
            format_args!("is not the model of {}", args.id.display()),
        )
        .advise("take the model file that was committed to"),
        RotateError::Key(error @ KeyError::Spent { .. }) => Failure::file(&args.key, error).advise(
            "a commitment is rotated once; `zkmoe commit` makes a new one, with a new certificate",
        ),
        RotateError::Key(error @ KeyError::Mismatch(_)) => Failure::file(&args.key, error)
            .advise("take the two files that one `zkmoe commit` or `zkmoe rotate` wrote"),
        RotateError::Key(error) => {
            // It names the file.
            Failure::new(error).advise(input::key_advice(error))
        }
        RotateError::NoRoom => Failure::file(&args.id, error).advise(
            "`zkmoe commit --batches N` with a larger N makes a commitment that can be rotated",
        ),
        RotateError::OtherWeights => Failure::file(
            &args.model,
            format_args!(
                "does not have the weights that {} was made from",
                args.key.display()
            ),
        )
        .advise("take the model file that was committed to; nothing was spent"),
        RotateError::Violated(_) => Failure::new(error).advise("no proof was written"),
    }
}

/// Commits again, proves, and writes key, id and proof.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    check_names(args)?;
    let id = input::open_id(&args.id)?;
    let mut key = input::open_key(&args.key)?;
    if key.id() != id.digest() {
        let reason = format!("is the key of another id than {}", args.id.display());
        return Err(Failure::file(&args.key, reason)
            .advise("take the two files that one `zkmoe commit` or `zkmoe rotate` wrote"));
    }
    let (model, _) = input::open_model(&args.model)?;
    let from = Side {
        model: &model,
        id: &id,
        key: &key,
    };
    let randomness = os_randomness().map_err(Failure::new)?;
    let start = Instant::now();
    let mut phases = Vec::new();
    let mut lap = Instant::now();
    let mut phase = |name| {
        phases.push(Phase {
            phase: name,
            seconds: lap.elapsed().as_secs_f64(),
        });
        lap = Instant::now();
    };
    check(&from).map_err(|error| explain(&error, args))?;
    phase("compare model and key");

    let weights = model.parameters();
    let progress = Progress::new("weights");
    let (new_id, new_key, new_permit) = recommit(&from, randomness, &|done, rows| {
        let done = weights as u128 * done as u128 / rows.max(1) as u128;
        progress.stage("commit", done as u64, weights);
    })
    .map_err(|error| explain(&error, args))?;
    drop(progress);
    phase("commit");
    input::check_unchanged(&args.model, &model)?;

    let mut written = Written::default();
    new_key.save_new(&args.out_key).map_err(|error| {
        let advice = input::key_advice(&error);
        Failure::new(error)
            .advise(advice)
            .also("the key has counted nothing")
    })?;
    // An id without its key does harm, a key without its id none: the id is removed first.
    written.push(&args.out_key);
    let new_key = input::open_key(&args.out_key)?;
    input::write_new(&args.out_id, &new_id.encode())
        .map_err(|failure| failure.also("the key has counted nothing"))?;
    written.push(&args.out_id);

    // Everything that can be refused has been. From here on one opening of the old key is used, and the new key starts
    // with one used.
    let before = key.ledger().openings();
    let counted = |failure| {
        let then = "a key is rotated once, so `zkmoe commit` has to make a new id and key";
        input::counted(failure, &args.key, before, then)
    };
    let permit = key
        .spend(Opening::Rotation)
        .map_err(|error| counted(explain(&error.into(), args)))?;
    let from = Side {
        model: &model,
        id: &id,
        key: &key,
    };
    let to = Side {
        model: &model,
        id: &new_id,
        key: &new_key,
    };
    let mut watch = Watch::new();
    let rotation =
        prove(&from, &to, [permit, new_permit], randomness, &mut watch).map_err(|error| {
            let unchanged = input::check_unchanged(&args.model, &model);
            counted(unchanged.err().unwrap_or_else(|| explain(&error, args)))
        })?;
    watch.close();
    phases.append(&mut watch.phases);
    let seconds = start.elapsed().as_secs_f64();
    input::write_new(&args.proof, &rotation.proof).map_err(counted)?;
    written.keep();
    Ok(Report {
        from: output::hex(&id.digest()),
        to: output::hex(&new_id.digest()),
        id: Named::file(&args.out_id),
        key: Named::file(&args.out_key),
        proof: Named::file(&args.proof),
        bytes: rotation.proof.len(),
        parts: Part::list(&rotation.sizes),
        phases,
        seconds,
        nanoseconds_per_weight: seconds * 1e9 / weights.max(1) as f64,
    })
}

/// Rotates and prints the new id.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}
