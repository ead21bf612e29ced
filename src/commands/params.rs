//! `zkmoe params`: the soundness error and the sizes of a batch, before anything is proved.
//!
//! All numbers but the length of the proof are those that the verifier would arrive at for a proof of these sizes, see
//! [`zkmoe_verifier::forecast`]. How the router will spread tokens is unknown; it is assumed as in [`crate::estimate`].

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zkmoe_commit::params::{MAX_BATCHES, POLICY_BITS, Params};
use zkmoe_prover::import::config::Config;
use zkmoe_verifier::batch::{BatchHeader, MAX_REQUESTS};
use zkmoe_verifier::certificate::check_limits;
use zkmoe_verifier::forecast::Forecast;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::limits::{Extent, MAX_CELLS};
use zkmoe_verifier::soundness::check;
use zkmoe_verifier::verify::batch_length;

use super::commit::default_batches;
use super::decision::Soundness;
use super::prove::SizeArgs;
use crate::estimate::{Lengths, likely_shape};
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::neutral;
use crate::output::{self, Table};
use crate::visible::Named;

/// The padded positions of a reply where none were asked for and the model has room for as many.
const DEFAULT_TOKENS: usize = 1024;

/// Print the soundness error and the sizes of a proof before anything is proved.
///
/// For a batch of replies of equal length under a model id, or under the id that `zkmoe commit` would make for a checkpoint,
/// of which only `config.json` is needed. Prints each term of the soundness error with its formula and source, their sum,
/// the parameters of the code, and how much is committed, looked up and sent.
///
/// Loads of experts are taken to be even, but for one busy expert. A checkpoint's shifts are not known before it is
/// imported; they are taken so that no term is better than that of the imported model, but for those about pads.
///
/// The exit code is 2 if such a proof would be refused; the numbers are printed all the same, if they can be counted.
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("model").args(["id", "config"]).required(true)))]
#[command(after_help = "\
Examples:
  zkmoe params --id model.id
  zkmoe params --id model.id --tokens 256 --replies 8 --hide-loads --json
  zkmoe params --config checkpoint/config.json --tokens 512 --response 128 --batches 100")]
pub struct Args {
    /// A model id.
    #[arg(long, value_name = "FILE")]
    pub id: Option<PathBuf>,
    /// The `config.json` of a checkpoint.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Tokens of each reply, prompt and response together. Without this 1024, or as many as the model takes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    pub tokens: Option<u32>,
    /// Tokens of each response; more of them cost more lookups. Without this all tokens of a reply but one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub response: Option<u32>,
    /// Replies of the batch.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=MAX_REQUESTS as i64)
    )]
    pub replies: u32,
    /// With --config: how many batches the commitment is for; without this as many as `zkmoe commit` chooses.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "id",
        value_parser = clap::value_parser!(u32).range(1..=MAX_BATCHES as i64)
    )]
    pub batches: Option<u32>,
    /// How public sizes are rounded up.
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Bits of work before challenges.
#[derive(Debug, Serialize)]
pub struct Work {
    /// Before the first challenges, and before those of the lookups.
    pub lookup: u32,
    /// Before each of the two challenges that combine rows.
    pub combination: u32,
    /// Before the positions at which rows are opened.
    pub positions: u32,
}

/// The parameters of a commitment and of its openings.
#[derive(Debug, Serialize)]
pub struct Code {
    /// Data slots of a row.
    pub row_length: u64,
    /// Random elements behind them in rows of the model.
    pub model_tail: usize,
    /// Random elements behind them in rows of the trace.
    pub trace_tail: usize,
    /// Symbols of a codeword.
    pub code_length: u64,
    /// Coefficients of the longest row for each symbol.
    pub rate: f64,
    /// Positions at which all rows are opened.
    pub positions: usize,
    /// Bits of work.
    pub work_bits: Work,
    /// Batches that the tails have room for.
    pub batches: usize,
}

impl From<&Params> for Code {
    fn from(params: &Params) -> Self {
        Self {
            row_length: 1 << params.log_row,
            model_tail: params.model_tail,
            trace_tail: params.trace_tail,
            code_length: 1 << params.log_code,
            rate: params.rate(),
            positions: params.queries,
            work_bits: Work {
                lookup: params.grinding.lookup,
                combination: params.grinding.combination,
                positions: params.grinding.positions,
            },
            batches: params.batches(),
        }
    }
}

/// What is committed, looked up and sent.
#[derive(Debug, Serialize)]
pub struct Sizes {
    /// Weights.
    pub weights: u64,
    /// Cells that are committed for the batch.
    pub cells: u64,
    /// Cells of all lookups, tables included.
    pub lookups: u64,
    /// The most that weights, cells and lookups may be together.
    pub most_cells: u64,
    /// Rows of the model.
    pub model_rows: usize,
    /// Rows of the batch, without the mask.
    pub batch_rows: usize,
    /// Claims that the opening proves.
    pub claims: usize,
    /// Values that are sent hidden.
    pub hidden_values: usize,
    /// Products of hidden values.
    pub products: usize,
    /// About how many bytes the proof has.
    pub proof_bytes: usize,
}

impl Sizes {
    /// What counts towards [`Sizes::most_cells`].
    fn total(&self) -> u64 {
        self.weights + self.cells + self.lookups
    }
}

/// What a proof would be.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The file that the model was taken from.
    pub model: Named,
    /// Replies of the batch.
    pub replies: usize,
    /// Positions of all replies, padding included.
    pub positions: usize,
    /// Rows for decoded tokens, padding included.
    pub decoded: usize,
    /// Rows of experts in all layers, padding included.
    pub expert_rows: usize,
    /// The code.
    pub code: Code,
    /// Counts.
    pub sizes: Sizes,
    /// The soundness error of the batch proof.
    #[serde(flatten)]
    pub soundness: Soundness,
    /// The least that a verifier accepts.
    pub policy_bits: f64,
    /// Why a verifier would refuse such a proof, if it would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model,
            replies,
            positions,
            decoded,
            expert_rows,
            code,
            sizes,
            soundness,
            policy_bits,
            refused,
        } = self;
        let count = |n: usize| output::count(n as u64);
        writeln!(
            f,
            "{model}: a batch of {replies}, with {positions} positions, {decoded} decoded rows and {expert_rows} rows of \
             experts"
        )?;
        let Work {
            lookup,
            combination,
            positions,
        } = &code.work_bits;
        let rows = [
            ("slots of a row", code.row_length.to_string()),
            (
                "random elements behind them, model",
                code.model_tail.to_string(),
            ),
            (
                "random elements behind them, batch",
                code.trace_tail.to_string(),
            ),
            (
                "symbols of a codeword",
                format!("{}, rate {:.3}", code.code_length, code.rate),
            ),
            ("opened positions", code.positions.to_string()),
            (
                "bits of work: lookups, rows, positions",
                format!("{lookup}, {combination}, {positions}"),
            ),
            ("batches that tails have room for", code.batches.to_string()),
            ("weights", output::count(sizes.weights)),
            ("committed cells of the batch", output::count(sizes.cells)),
            ("lookups", output::count(sizes.lookups)),
            (
                "all three, of those that a proof may have",
                format!(
                    "{:.1} %",
                    100.0 * sizes.total() as f64 / sizes.most_cells as f64
                ),
            ),
            (
                "rows of model and batch",
                format!("{} + {}", sizes.model_rows, sizes.batch_rows),
            ),
            ("claims", sizes.claims.to_string()),
            ("hidden values", count(sizes.hidden_values)),
            ("products of hidden values", count(sizes.products)),
            (
                "bytes of the proof, about",
                output::bytes(sizes.proof_bytes as u64),
            ),
        ];
        let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
        write!(f, "{}", Table(rows.to_vec()))?;
        write!(f, "{soundness}")?;
        match refused {
            None => writeln!(f, "Policy: at least {policy_bits} bits; met"),
            Some(reason) => writeln!(
                f,
                "Policy: at least {policy_bits} bits. A proof of these sizes would be refused: {reason}"
            ),
        }
    }
}

/// The id that `zkmoe commit` would make for a configuration, with neither root nor tokenizer.
fn expected_id(args: &Args, path: &Path) -> Result<ModelId, Failure> {
    let config = Config::parse(&input::read(path)?).map_err(|error| {
        Failure::file(path, error)
            .advise("name the config.json of a checkpoint of the OLMoE family")
    })?;
    let header = neutral::header(&config).map_err(|error| {
        Failure::file(path, error).advise("the README lists the limits of models")
    })?;
    let cells = Extent::of_model(&header).cells as usize;
    let batches = args
        .batches
        .map_or_else(|| default_batches(cells), |n| n as usize);
    Ok(ModelId {
        params: Params::choose(cells, batches),
        header,
        root: [0; 32],
        tokenizer: Vec::new(),
    })
}

/// The public sizes of the batch.
fn expected_batch(args: &Args, id: &ModelId) -> Result<BatchHeader, Failure> {
    let sizes = &id.header.sizes;
    let context = sizes.max_position_embeddings;
    let tokens = args
        .tokens
        .map_or(DEFAULT_TOKENS.min(context), |n| n as usize);
    let response = args.response.map_or(tokens - 1, |n| n as usize);
    if response >= tokens {
        return Err(Failure::new(format_args!(
            "--response: {response} of {tokens} tokens leave none for the prompt"
        ))
        .advise("take a smaller --response or more --tokens"));
    }
    let padding = args.sizes.padding();
    if padding.length(tokens, context) > context {
        return Err(Failure::new(format_args!(
            "--tokens: {tokens} tokens, with padding, are more than the model's context of {context}"
        ))
        .advise("take fewer --tokens"));
    }
    let lengths = Lengths {
        prompt: tokens - response,
        response,
    };
    let shape = likely_shape(sizes, &vec![lengths; args.replies as usize], padding);
    BatchHeader::of_sizes(&id.header, shape).map_err(|error| {
        Failure::new(format_args!("the batch: {error}")).advise("take fewer --replies or --tokens")
    })
}

/// Counts what the proof would be.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    let (id, path) = match (&args.id, &args.config) {
        (Some(path), _) => (input::open_id(path)?, path),
        (None, Some(path)) => (expected_id(args, path)?, path),
        (None, None) => {
            return Err(Failure::new("no model was named").advise("add --id or --config"));
        }
    };
    let batch = expected_batch(args, &id)?;
    let forecast = Forecast::new(&id, &batch)
        .map_err(|error| Failure::new(error).advise("take fewer --replies or --tokens"))?;
    let refused = check_limits(&id)
        .and_then(|()| batch_length(&id, &batch))
        .and_then(|_| check(&forecast.soundness))
        .err();
    let [weights, first, second] = forecast.cells;
    let [model_rows, first_rows, second_rows] = forecast.rows;
    Ok(Report {
        model: Named::file(path),
        replies: batch.shape.lengths.len(),
        positions: batch.shape.lengths.iter().sum(),
        decoded: batch.shape.decoded,
        expert_rows: batch.shape.blocks.iter().map(|b| b.2).sum(),
        code: Code::from(&id.params),
        sizes: Sizes {
            weights,
            cells: first + second,
            lookups: forecast.lookups,
            most_cells: MAX_CELLS,
            model_rows,
            batch_rows: first_rows + second_rows,
            claims: forecast.claims,
            hidden_values: forecast.hidden_values,
            products: forecast.products,
            proof_bytes: forecast.bytes,
        },
        soundness: Soundness::of(&forecast.soundness, true),
        policy_bits: POLICY_BITS,
        refused: refused.map(|reason| reason.to_string()),
    })
}

/// Counts and prints; fails if such a proof would be refused.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    let report = perform(args)?;
    output::emit(&report, args.json)?;
    match report.refused {
        None => Ok(Outcome::Done),
        Some(reason) => Err(Failure::new(format_args!(
            "a proof of these sizes would be refused: {reason}"
        ))
        .advise("take fewer --replies or --tokens")
        .reported()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use zkmoe_verifier::relation::Dims;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: Args,
    }

    /// The report on the bundled checkpoint.
    fn report(options: &[&str]) -> Report {
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/data/olmoe-tiny/config.json");
        let line = ["params", "--config", config].into_iter();
        let line = line.chain(options.iter().copied());
        perform(&CommandLine::parse_from(line).args).unwrap()
    }

    /// `-log2` of a sum of errors, in units in which none of them is too small for a number.
    fn sum(bits: impl IntoIterator<Item = f64>) -> f64 {
        let errors = bits.into_iter().map(|bits| (POLICY_BITS - bits).exp2());
        POLICY_BITS - errors.sum::<f64>().log2()
    }

    #[test]
    fn the_printed_sum_is_that_of_the_printed_terms() {
        for options in [
            &["--tokens", "512"][..],
            &["--tokens", "64", "--replies", "16", "--hide-loads"],
            &["--tokens", "2"],
        ] {
            let report = report(options);
            let exact = sum(report.soundness.terms.iter().map(|t| t.bits));
            assert!(
                (report.soundness.soundness_bits - exact).abs() < 1e-9,
                "{exact}"
            );

            let json = serde_json::to_value(&report).unwrap();
            let terms = json["terms"].as_array().unwrap();
            let of_json = sum(terms.iter().filter_map(|t| t["bits"].as_f64()));
            assert!((json["soundness_bits"].as_f64().unwrap() - of_json).abs() < 1e-9);

            // The text has bits rounded down, so what it shows adds up to no more and to little less.
            let text = report.to_string();
            let bits = |line: &str| -> Option<f64> {
                line.trim_end()
                    .strip_suffix(" bits")?
                    .rsplit(' ')
                    .next()?
                    .parse()
                    .ok()
            };
            let shown = text.lines().find(|line| line.starts_with("Soundness: "));
            let shown = bits(shown.unwrap()).unwrap();
            assert!(shown <= exact && exact < shown + 0.1, "{shown} for {exact}");
            let lines = report.soundness.terms.iter().map(|term| {
                let named =
                    |line: &&str| line.trim_start().starts_with(&format!("{}  ", term.name));
                let line = text.lines().find(named);
                let line = line.unwrap_or_else(|| panic!("`{}` is not shown", term.name));
                let formula = format!("  {}: {}; {}\n", term.name, term.formula, term.source);
                assert!(text.contains(&formula), "{formula}");
                assert!(
                    !term.formula.is_empty() && !term.source.is_empty(),
                    "{formula}"
                );
                bits(line).unwrap()
            });
            let of_text = sum(lines);
            assert!(
                of_text <= exact && exact < of_text + 0.1,
                "{of_text} for {exact}"
            );
            assert!(text.ends_with("Policy: at least 100 bits; met\n"), "{text}");
        }
    }

    #[test]
    fn a_weak_code_is_below_the_policy() {
        let config = Config::parse(include_bytes!("../../data/olmoe-tiny/config.json")).unwrap();
        let header = neutral::header(&config).unwrap();
        let mut id = ModelId {
            params: Params::choose(1 << 20, 1),
            header,
            root: [0; 32],
            tokenizer: Vec::new(),
        };
        let shape = Dims::of_model(id.header.sizes.clone()).batch().clone();
        let batch = BatchHeader::of_sizes(&id.header, shape).unwrap();
        let strong = Forecast::new(&id, &batch).unwrap().soundness;
        assert_eq!(check(&strong), Ok(()));
        id.params.queries /= 2;
        let weak = Forecast::new(&id, &batch).unwrap().soundness;
        assert!(check(&weak).is_err());
    }
}
