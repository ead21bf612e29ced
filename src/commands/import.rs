//! `zkmoe import`: from a checkpoint in Hugging Face's layout to `model.zkm`.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use zkmoe_prover::import::{ImportOptions, ImportReport, import};
use zkmoe_prover::model::{MODEL_MAGIC, ModelError};

use crate::failure::{Failure, Outcome, io_advice};
use crate::input;
use crate::output::{self, Progress, Table};
use crate::visible::{Line, Named};

/// Make an integer model from a checkpoint, and compare the two.
///
/// The integer model is the model that is served and proved. The report says how much of their range its values used
/// on the calibration text, and how close it is to the float model on text that calibration has not seen.
///
/// A checkpoint may come from anybody: its files have to hold exactly the tensors that config.json asks for, in the folder
/// itself. Links are followed within it, and from a folder of the Hugging Face cache to the blobs of that cache.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe import ./OLMoE-1B-7B --out olmoe.zkm
  zkmoe import ./checkpoint --out model.zkm --calibration typical.txt --heldout other.txt --json > report.json")]
pub struct Args {
    /// A folder with config.json, tokenizer.json and safetensors files of an `OLMoE` model.
    #[arg(value_name = "CHECKPOINT_DIR")]
    pub checkpoint: PathBuf,
    /// The model file to write; an existing model is replaced, and nothing else.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// A UTF-8 text that is typical of later prompts and replies; without it, a text that is built in.
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// A UTF-8 text, or JSON {"ids": [...], "window": n}, to compare on; without it, a text that is built in.
    #[arg(long, value_name = "FILE")]
    pub heldout: Option<PathBuf>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What was imported.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The model file.
    pub file: Named,
    /// Sizes, head-room and comparison.
    #[serde(flatten)]
    pub import: ImportReport,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.import;
        let compared = &report.evaluation;
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        writeln!(
            f,
            "{}: {} weights, {}",
            self.file,
            report.parameters,
            output::bytes(report.file_size)
        )?;
        writeln!(
            f,
            "\nRange used at most during calibration on {} positions",
            report.calibration_positions
        )?;
        let mut rows = vec![
            ["value", "layer", "largest", "of its range"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(report.head_room.iter().map(|room| {
            vec![
                room.kind.to_owned(),
                room.layer.to_string(),
                format!("{:.3}", room.largest),
                format!("{:.1} %", 100.0 * room.share),
            ]
        }));
        write!(f, "{}", Table(rows))?;
        writeln!(f, "\nMultipliers of the weights")?;
        let mut rows = vec![
            ["tensor", "shift", "smallest", "median", "largest"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(report.multipliers.iter().map(|m| {
            vec![
                m.tensor.to_owned(),
                m.shift
                    .map_or_else(|| "-".to_owned(), |shift| shift.to_string()),
                m.smallest.to_string(),
                m.median.to_string(),
                m.largest.to_string(),
            ]
        }));
        write!(f, "{}", Table(rows))?;
        writeln!(
            f,
            "\nInteger model beside float model on {} held-out tokens",
            compared.tokens
        )?;
        let pair = |name: &str, value: String| vec![name.to_owned(), value];
        write!(
            f,
            "{}",
            Table(vec![
                pair(
                    "perplexity, float",
                    format!("{:.3}", compared.float_perplexity)
                ),
                pair(
                    "perplexity, integer",
                    format!("{:.3}", compared.integer_perplexity)
                ),
                pair("same most likely token", percent(compared.same_token)),
                pair("same experts", percent(compared.same_experts)),
                pair(
                    "windows that overflowed",
                    compared.overflows.len().to_string()
                ),
            ])
        )?;
        for warning in &report.warnings {
            writeln!(f, "warning: {}", Line(warning))?;
        }
        Ok(())
    }
}

/// Imports and writes the model.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    input::check_folder_of(&args.out)?;
    let inputs = [args.calibration.as_deref(), args.heldout.as_deref()];
    input::check_apart(&args.out, &inputs)?;
    input::check_replaceable(&args.out, "model", |bytes| bytes.starts_with(&MODEL_MAGIC))?;
    let options = ImportOptions {
        calibration: args.calibration.clone(),
        heldout: args.heldout.clone(),
    };
    let progress = Progress::new("");
    let (model, import) = import(&args.checkpoint, &options, &|stage, done, total| {
        progress.stage(stage, done, total);
    })
    .map_err(|error| {
        // Some errors name a file of the checkpoint without its folder.
        let (message, folder) = (error.to_string(), args.checkpoint.display().to_string());
        let failure = if message.contains(&folder) {
            Failure::new(message)
        } else {
            Failure::file(&args.checkpoint, message)
        };
        failure.advise(error.advice())
    })?;
    progress.stage("write the model", 0, 1);
    model.save(&args.out).map_err(|error| {
        let advice = match &error {
            ModelError::Io { error, .. } => io_advice(error),
            ModelError::Invalid { .. } => None,
        };
        Failure::new(error).advise(advice.unwrap_or("choose another name with --out"))
    })?;
    Ok(Report {
        file: Named::file(&args.out),
        import,
    })
}

/// Imports and prints the report.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}
