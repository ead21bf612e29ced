//! How commands end: with an outcome, or with a failure that says which file and field is at fault and what to do.
//!
//! A failure is not a verdict. A proof that was checked and found wrong is [`Outcome::Rejected`]; a failure means that
//! nothing could be checked or made.

use std::fmt::Display;
use std::path::Path;

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
}

impl Failure {
    /// A failure with a message that names what is wrong.
    pub fn new(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            advice: None,
        }
    }

    /// A failure of one file.
    pub fn file(path: &Path, reason: impl Display) -> Self {
        Self::new(format_args!("{}: {reason}", path.display()))
    }

    /// Adds the way out.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The way out, if there is one.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }
}
