//! How commands end: with an outcome, or with a failure that says which file and field is at fault and what to do.
//!
//! A failure is not a verdict. A proof that was checked and found wrong is [`Outcome::Rejected`]; a failure means that
//! nothing could be checked or made.

use std::fmt::Display;
use std::io;
use std::path::Path;

use serde::Serialize;

/// The exit code of a command that could not do its work.
pub const FAILED: u8 = 2;

/// How a command ended that did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was done; what was checked was accepted.
    Done,
    /// A proof, slip or text was checked and rejected.
    Rejected,
}

impl Outcome {
    /// The exit code of the process.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Rejected => 1,
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    advice: Option<String>,
    reported: bool,
}

impl Failure {
    /// A failure with a message that names what is wrong.
    pub fn new(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            advice: None,
            reported: false,
        }
    }

    /// A failure of one file.
    pub fn file(path: &Path, reason: impl Display) -> Self {
        Self::new(format_args!("{}: {reason}", path.display()))
    }

    /// A file that the system did not let be read or written.
    pub fn io(path: &Path, error: &io::Error) -> Self {
        let failure = Self::file(path, error);
        match io_advice(error) {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }

    /// Names the way out, instead of the one that was named before.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Adds to the way out.
    #[must_use]
    pub fn also(mut self, advice: impl Display) -> Self {
        self.advice = Some(match self.advice {
            Some(before) => format!("{before}; {advice}"),
            None => advice.to_string(),
        });
        self
    }

    /// Marks a failure that the report on standard output tells of.
    #[must_use]
    pub fn reported(mut self) -> Self {
        self.reported = true;
        self
    }

    /// Whether the report on standard output tells of it.
    pub fn is_reported(&self) -> bool {
        self.reported
    }

    /// The way out, if there is one.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }
}

/// What helps where the system refuses.
pub fn io_advice(error: &io::Error) -> Option<&'static str> {
    use io::ErrorKind as Kind;
    Some(match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded => {
            "free some space there, or choose another place, and run the command again"
        }
        Kind::FileTooLarge => {
            "raise the limit on the size of files (`ulimit -f`), or choose a place that has none, and run the command again"
        }
        Kind::ReadOnlyFilesystem | Kind::PermissionDenied => {
            "choose another place, or have its owner let you in"
        }
        Kind::NotFound | Kind::NotADirectory | Kind::IsADirectory => "look at the name again",
        _ => return None,
    })
}

/// A failure as one JSON object, for whoever asked for JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What is wrong.
    pub error: String,
    /// The way out, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The exit code of the process.
    pub exit_code: u8,
}

impl From<&Failure> for Report {
    fn from(failure: &Failure) -> Self {
        Self {
            error: failure.message.clone(),
            advice: failure.advice.clone(),
            exit_code: FAILED,
        }
    }
}
