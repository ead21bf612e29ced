//! `zkmoe commit`: the public id and the private key of a model.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use zkmoe_commit::params::{MAX_BATCHES, Params};
use zkmoe_prover::commitment::{commit, os_randomness};

use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output::{self, Progress};

/// Commit to a model: make its public id and its private key.
///
/// The id binds every weight without showing any. The key belongs to this one id; whoever has it and the model can
/// prove replies, and without it nothing can be proved under the id. Commitments are randomized, so the same model has
/// another id each time.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe commit model.zkm --id model.id --key model.key
  zkmoe commit model.zkm --id model.id --key model.key --batches 1000")]
pub struct Args {
    /// The model file.
    #[arg(value_name = "MODEL.zkm")]
    pub model: PathBuf,
    /// The public id to write; must not exist.
    #[arg(long, value_name = "FILE")]
    pub id: PathBuf,
    /// The private key to write; must not exist.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// How many batches the randomness of the commitment must last for.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=MAX_BATCHES as i64))]
    pub batches: u32,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A commitment that was made.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The model id, in hexadecimal.
    pub model_id: String,
    /// The id file.
    pub id: String,
    /// Bytes of the id file.
    pub id_bytes: u64,
    /// The key file.
    pub key: String,
    /// Batches that may be proved under the id.
    pub batches: usize,
    /// Wall time.
    pub seconds: f64,
    /// Weights committed in a second.
    pub weights_per_second: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model_id,
            id,
            id_bytes,
            key,
            batches,
            seconds,
            weights_per_second,
        } = self;
        writeln!(f, "model id {model_id}")?;
        writeln!(f, "{id}: {}, public: publish it", output::bytes(*id_bytes))?;
        writeln!(
            f,
            "{key}: private; keep it, do not copy it, nothing can be proved under this id without it"
        )?;
        writeln!(f, "The randomness lasts for {batches} batches.")?;
        let rate = output::count(*weights_per_second as u64);
        writeln!(f, "Took {}, {rate} weights/s", output::seconds(*seconds))?;
        writeln!(
            f,
            "One model has many ids: each commitment draws new randomness, and proofs name the id they belong to."
        )
    }
}

/// Commits and writes key and id.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    if args.id == args.key {
        return Err(
            Failure::file(&args.id, "id and key cannot be the same file")
                .advise("choose two names"),
        );
    }
    for path in [&args.key, &args.id] {
        input::check_folder_of(path)?;
    }
    if args.key.exists() {
        return Err(
            Failure::file(&args.key, "exists; a key is never overwritten")
                .advise("without it nothing can be proved under its model id; choose another name"),
        );
    }
    if args.id.exists() {
        return Err(Failure::file(
            &args.id,
            "exists; the key that belongs to it would be useless without it",
        )
        .advise("choose another name"));
    }
    let (model, _) = input::open_model(&args.model)?;
    let weights = model.parameters();
    let params = Params::choose(weights as usize, args.batches as usize);
    let seed = os_randomness().map_err(Failure::new)?;
    let start = Instant::now();
    let progress = Progress::new("weights");
    let (id, key) = commit(&model, params, seed, &|done, rows| {
        progress.stage(
            "commit",
            (weights as u128 * done as u128 / rows.max(1) as u128) as u64,
            weights,
        );
    });
    let seconds = start.elapsed().as_secs_f64();
    drop(progress);
    // The key first: an id without its key would be published for nothing.
    key.save_new(&args.key).map_err(Failure::new)?;
    let bytes = id.encode();
    if let Err(failure) = input::write_new(&args.id, &bytes) {
        // Nobody has the id, so the key is of no use, and it would stand in the way of the next try.
        let _ = std::fs::remove_file(&args.key);
        return Err(failure);
    }
    Ok(Report {
        model_id: output::hex(&id.digest()),
        id: args.id.display().to_string(),
        id_bytes: bytes.len() as u64,
        key: args.key.display().to_string(),
        batches: id.params.batches(),
        seconds,
        weights_per_second: weights as f64 / seconds.max(1e-9),
    })
}

/// Commits and prints the id.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}
