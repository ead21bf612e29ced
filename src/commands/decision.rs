//! What the three commands that check have in common: a verdict with the check that failed, its soundness error, and
//! the exit code that goes with it.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use zkmoe_commit::soundness::Term;
use zkmoe_verifier::soundness::total_bits;
use zkmoe_verifier::verify::VerifyError;

use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output::{self, Table};
use crate::state::StateArgs;
use crate::visible::Line;

/// How a check is made and printed.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Where the secret is that marks the notes.
    #[command(flatten)]
    pub state: StateArgs,
    /// Print the soundness error term by term.
    #[arg(long)]
    pub verbose: bool,
    /// Print the verdict as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Why nothing is accepted.
#[derive(Debug)]
pub enum Stop {
    /// A check failed, which is named: a verdict.
    Rejected(String),
    /// There is no verdict.
    Unusable(Failure),
}

impl Stop {
    /// From the verifier, about the file that it read; `advice` says where to get another one if this one is no such file.
    pub fn at(file: &Path, error: VerifyError, advice: &str) -> Self {
        match error {
            VerifyError::Rejected(reject) => Self::Rejected(reject.to_string()),
            VerifyError::Unusable(error) => {
                Self::Unusable(input::undecodable(file, &error, advice))
            }
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Unusable(failure)
    }
}

/// A verdict: what was found, or what was asked `about` and which check failed.
#[derive(Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "UPPERCASE")]
pub enum Verdict<Found, About> {
    /// It was shown.
    Accepted(Accepted<Found>),
    /// It was not.
    Rejected(Rejected<About>),
}

/// Something that was shown.
#[derive(Debug, Serialize)]
pub struct Accepted<Found> {
    /// What.
    #[serde(flatten)]
    pub found: Found,
    /// Wall time of the check.
    pub seconds: f64,
}

/// Something that was not shown.
#[derive(Debug, Serialize)]
pub struct Rejected<About> {
    /// The check that failed.
    pub check: String,
    /// The ids in question.
    #[serde(flatten)]
    pub about: About,
}

/// The model in question.
#[derive(Debug, Serialize)]
pub struct AboutModel {
    /// The id in the id file, in hexadecimal.
    pub model_id: String,
}

impl<Found, About> Verdict<Found, About> {
    /// The verdict of a check.
    pub fn of(about: About, check: impl FnOnce() -> Result<Found, Stop>) -> Result<Self, Failure> {
        let start = Instant::now();
        match check() {
            Ok(found) => Ok(Self::Accepted(Accepted {
                found,
                seconds: start.elapsed().as_secs_f64(),
            })),
            Err(Stop::Rejected(check)) => Ok(Self::Rejected(Rejected { check, about })),
            Err(Stop::Unusable(failure)) => Err(failure),
        }
    }

    /// What was found, or the check that failed.
    pub fn found(self) -> Result<Found, String> {
        match self {
            Self::Accepted(accepted) => Ok(accepted.found),
            Self::Rejected(rejected) => Err(rejected.check),
        }
    }
}

impl<Found: fmt::Display + Serialize, About: Serialize> Verdict<Found, About> {
    /// Prints the verdict, and says how the command ends.
    pub fn print(&self, options: &Options) -> Result<Outcome, Failure> {
        output::emit(self, options.json)?;
        Ok(match self {
            Self::Accepted(_) => Outcome::Done,
            Self::Rejected(_) => Outcome::Rejected,
        })
    }
}

/// The first word is the verdict. What was found says the rest of its line, and the lines that follow.
impl<Found: fmt::Display, About> fmt::Display for Verdict<Found, About> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(rejected) => writeln!(f, "REJECTED: {}", Line(&rejected.check)),
            Self::Accepted(accepted) => {
                write!(f, "ACCEPTED {}", accepted.found)?;
                writeln!(f, "Checked in {}", output::seconds(accepted.seconds))
            }
        }
    }
}

/// One term of the soundness error.
#[derive(Debug, Serialize)]
pub struct TermReport {
    /// What would have to go wrong.
    pub name: String,
    /// How the bound follows from sizes.
    pub formula: String,
    /// Who proved it.
    pub source: &'static str,
    /// `-log2` of the bound; none where the event cannot happen.
    pub bits: f64,
}

impl TermReport {
    /// The reports of all terms.
    pub fn list(terms: &[Term]) -> Vec<Self> {
        let report = |t: &Term| Self {
            name: t.name.clone(),
            formula: t.formula.clone(),
            source: t.source,
            bits: t.bits,
        };
        terms.iter().map(report).collect()
    }
}

/// The soundness error of a proof.
#[derive(Debug, Serialize)]
pub struct Soundness {
    /// `-log2` of it.
    pub soundness_bits: f64,
    /// Its terms, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermReport>,
}

impl Soundness {
    /// The sum of these terms, which are listed if they are asked for.
    pub fn of(terms: &[Term], listed: bool) -> Self {
        Self {
            soundness_bits: total_bits(terms),
            terms: TermReport::list(if listed { terms } else { &[] }),
        }
    }
}

impl fmt::Display for Soundness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Soundness: {}", bits(self.soundness_bits))?;
        let row = |t: &TermReport| vec![t.name.clone(), bits(t.bits)];
        write!(f, "{}", Table(self.terms.iter().map(row).collect()))?;
        for term in &self.terms {
            writeln!(f, "  {}: {}; {}", term.name, term.formula, term.source)?;
        }
        Ok(())
    }
}

/// Bits of soundness for people. Rounded down: a bound must not look better than it is.
pub fn bits(bits: f64) -> String {
    format!("{:.1} bits", (bits * 10.0).floor() / 10.0)
}
