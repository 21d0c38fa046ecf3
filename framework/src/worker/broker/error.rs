//! The errors of a broker that does not start or cannot go on: one sentence each.

use core::fmt;

/// One sentence with the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerError(pub(super) String);

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BrokerError {}

/// Why a client's request is refused: an error number, and one sentence with the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) errno: i32,
    pub(super) sentence: String,
}

impl Refusal {
    pub(super) fn new(errno: i32, sentence: impl Into<String>) -> Self {
        Self { errno, sentence: sentence.into() }
    }
}
