//! `zkmoe commit`: the public id and the private key of a model.
//!
//! Each batch that is proved shows positions of every row, and random elements at the end of the rows hide them. More
//! batches need more of these, and at some point longer rows or a longer code, which every proof pays for. So a small
//! model gets as many batches as its rows have room for, unless a number is asked for.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use zkmoe_commit::params::{MAX_BATCHES, Params};
use zkmoe_prover::commitment::{commit, os_randomness};
use zkmoe_verifier::certificate::check_limits;
use zkmoe_verifier::id::ModelId;

use crate::failure::{Failure, Outcome};
use crate::input::{self, Written};
use crate::output::{self, Progress};
use crate::visible::Named;

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
    /// How many batches may be proved. Each costs randomness at the end of the rows: many batches make rows, code and
    /// key longer. Without this 1000, or for a small model as many as leave rows and codewords as short as one batch
    /// would, with tails of at most a quarter of a row. Beside them there is always one certificate and one rotation.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_BATCHES as i64))]
    pub batches: Option<u32>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What the code of a commitment costs.
#[derive(Debug, Serialize)]
pub struct Code {
    /// Data slots of a row.
    pub row_length: u64,
    /// Random elements behind them.
    pub tail: usize,
    /// Symbols of a codeword.
    pub code_length: u64,
    /// Coefficients of a row for each symbol.
    pub rate: f64,
    /// Positions that each proof shows.
    pub positions: usize,
    /// Bytes of the key.
    pub key_bytes: u64,
    /// Data slots of a row over those of the cheapest code for this model, which is made for one batch.
    pub row_ratio: f64,
    /// Symbols of a codeword over those of the cheapest code.
    pub code_ratio: f64,
}

impl Code {
    fn new(params: &Params, cells: usize, key_bytes: u64) -> Self {
        let cheapest = Params::choose(cells, 1);
        let ratio = |log: u32, least: u32| (f64::from(log) - f64::from(least)).exp2();
        Self {
            row_length: 1 << params.log_row,
            tail: params.model_tail,
            code_length: 1 << params.log_code,
            rate: params.rate(),
            positions: params.queries,
            key_bytes,
            row_ratio: ratio(params.log_row, cheapest.log_row),
            code_ratio: ratio(params.log_code, cheapest.log_code),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            row_length,
            tail,
            code_length,
            rate,
            positions,
            key_bytes,
            row_ratio,
            code_ratio,
        } = self;
        let rows = [
            (
                "row",
                format!("{row_length} + {tail} random"),
                format!("{row_ratio} x"),
            ),
            (
                "codeword",
                format!("{code_length}, rate {rate:.3}"),
                format!("{code_ratio} x"),
            ),
            ("positions of a proof", positions.to_string(), String::new()),
            ("key", output::bytes(*key_bytes), format!("{code_ratio} x")),
        ];
        let rows = rows.map(|(name, size, ratio)| vec![name.to_owned(), size, ratio]);
        write!(f, "{}", output::Table(rows.to_vec()))?;
        writeln!(
            f,
            "  x: times the cheapest code for this model, that for one batch; time and memory of proofs grow with it"
        )
    }
}

/// The number of batches that is chosen where none was asked for: 1000, or as many as leave rows and codewords of the
/// length that one batch needs, with tails of at most a quarter of a row. Longer tails make proofs larger and slower.
pub(super) fn default_batches(cells: usize) -> usize {
    const MOST: usize = 1000;
    let least = Params::choose(cells, 1);
    let fits = |batches: usize| {
        let params = Params::choose(cells, batches);
        (params.log_row, params.log_code) == (least.log_row, least.log_code)
            && params.model_tail <= 1 << params.log_row >> 2
    };
    // Longer tails never make shorter rows, so the numbers that fit come first.
    let (mut fitting, mut end) = (1, MOST + 1);
    while end - fitting > 1 {
        let middle = fitting.midpoint(end);
        if fits(middle) {
            fitting = middle;
        } else {
            end = middle;
        }
    }
    fitting
}

/// A commitment that was made.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The model id, in hexadecimal.
    pub model_id: String,
    /// The id file.
    pub id: Named,
    /// Bytes of the id file.
    pub id_bytes: u64,
    /// The key file.
    pub key: Named,
    /// Batches that may be proved under the id.
    pub batches: u32,
    /// What they cost.
    pub code: Code,
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
            code,
            seconds,
            weights_per_second,
        } = self;
        writeln!(f, "model id {model_id}")?;
        writeln!(f, "{id}: {}, public: publish it", output::bytes(*id_bytes))?;
        writeln!(
            f,
            "{key}: private; keep it, do not copy it, nothing can be proved under this id without it"
        )?;
        writeln!(
            f,
            "The key is for {batches} batch{}, one certificate and one rotation.",
            if *batches == 1 { "" } else { "es" }
        )?;
        write!(f, "{code}")?;
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
    input::check_new_key(&args.key)?;
    input::check_folder_of(&args.id)?;
    // A link that leads nowhere takes a name as well.
    if args.id.symlink_metadata().is_ok() {
        return Err(Failure::file(
            &args.id,
            "exists; the key that belongs to it would be useless without it",
        )
        .advise("choose another name"));
    }
    let (model, _) = input::open_model(&args.model)?;
    let weights = model.parameters();
    let cells = weights as usize;
    let batches = args
        .batches
        .map_or_else(|| default_batches(cells), |n| n as usize);
    let params = Params::choose(cells, batches);
    let without_root = ModelId {
        header: model.header().clone(),
        params: params.clone(),
        root: [0; 32],
        tokenizer: Vec::new(),
    };
    check_limits(&without_root).map_err(|reject| {
        Failure::file(&args.model, format_args!("cannot be certified: {reject}"))
            .advise("the README lists the limits of models")
    })?;
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
    input::check_unchanged(&args.model, &model)?;
    // A tail is a power of two, so it may last for more than was asked for; only who asked is held to the number.
    let key = match args.batches {
        Some(n) => key.with_limit(n),
        None => key,
    };
    let (limit, key_bytes) = (key.limit(), key.file_size());
    // The key first: an id without its key would be published for nothing.
    key.save_new(&args.key).map_err(|error| {
        let advice = input::key_advice(&error);
        Failure::new(error).advise(advice)
    })?;
    // Without the id, which nobody has then, the key is of no use, and it would stand in the way of the next try.
    let mut written = Written::default();
    written.push(&args.key);
    let bytes = id.encode();
    input::write_new(&args.id, &bytes)?;
    written.keep();
    Ok(Report {
        model_id: output::hex(&id.digest()),
        id: Named::file(&args.id),
        id_bytes: bytes.len() as u64,
        key: Named::file(&args.key),
        batches: limit,
        code: Code::new(&id.params, cells, key_bytes),
        seconds,
        weights_per_second: weights as f64 / seconds.max(1e-9),
    })
}

/// Commits and prints the id.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_models_get_what_their_rows_have_room_for() {
        for cells in [1, 5_000, 100_000, 2_365_568, 40_000_000, 7_000_000_000] {
            let batches = default_batches(cells);
            let code = |n| {
                let params = Params::choose(cells, n);
                let long = params.model_tail > 1 << params.log_row >> 2;
                (params.log_row, params.log_code, long && n > 1)
            };
            assert_eq!(code(batches), code(1), "{cells}");
            assert!(batches == 1000 || code(batches + 1) > code(1), "{cells}");
        }
        assert_eq!(default_batches(7_000_000_000), 1000);
        assert!((64..1000).contains(&default_batches(2_365_568)));
    }
}
