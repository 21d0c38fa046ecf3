//! Why a run did not start or did not end well: one sentence each, with the next step in it.

use std::fmt;

/// A run that failed, by whose turn it is.
#[derive(Debug)]
pub enum Error {
    /// What was asked for makes no sense: exit code 2.
    Usage(String),
    /// It made sense and failed: exit code 1.
    Failed(String),
}

impl Error {
    /// What a shell is told: 2 for usage, 1 for failure.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        }
    }

    /// A failure in the words of whatever failed.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
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
