//! Why a run did not start or failed: one sentence, which names the next step.

use std::fmt;
use std::path::Path;

/// A failed run, by whose mistake it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The input is invalid: exit code 2.
    Usage(String),
    /// The input is valid, but the run failed: exit code 1.
    Failed(String),
}

impl Error {
    /// The exit code: 2 for usage, 1 for failure.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        }
    }

    /// A failure with the message of its cause.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A failure of the file `path`, which is `what`, with its cause and the next step.
    pub fn at(what: &str, path: &Path, error: impl fmt::Display, way_on: &str) -> Self {
        Self::Failed(format!("the {what} {}: {error}; {way_on}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) | Self::Failed(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for Error {}
