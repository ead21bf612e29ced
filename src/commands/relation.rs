//! `zkmoe relation`: everything that a proof proves, as text.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use zkmoe_verifier::olmoe;

use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output;

/// Print every equation and lookup that a proof proves.
///
/// The text is made from the data that the verifier itself works on, so nothing is left out. Sizes are symbolic: the
/// text has the same length for a model with four layers and one with forty.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Example:
  zkmoe relation --id model.id | less")]
pub struct Args {
    /// The model id, whose header names sizes and shifts.
    #[arg(long, value_name = "FILE")]
    pub id: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The relation of a model.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The model id, in hexadecimal.
    pub model_id: String,
    /// Committed tensors.
    pub tensors: usize,
    /// Equations.
    pub constraints: usize,
    /// Sides of lookups.
    pub lookups: usize,
    /// All of them, one a line.
    pub text: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Builds the relation.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    let id = input::open_id(&args.id)?;
    let relation = olmoe::relation(&id.header);
    Ok(Report {
        model_id: output::hex(&id.digest()),
        tensors: relation.tensors.len(),
        constraints: relation.constraints.len(),
        lookups: relation.lookups.len(),
        text: relation.dump(),
    })
}

/// Prints the relation.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}
