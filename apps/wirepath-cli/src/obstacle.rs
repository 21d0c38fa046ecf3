//! Why the sockets of a program stay on the kernel.

use std::fmt;

/// The reason why sockets stay on the kernel, and the remedy. `Display` is one sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) what: String,
    /// Empty where `what` is a whole sentence of somebody else's, with the remedy in it.
    pub(crate) remedy: String,
}

impl Obstacle {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }

    /// One that an error says, whose sentence ends with the way on.
    pub(crate) fn said(error: impl fmt::Display) -> Self {
        Self::new(error.to_string(), "")
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remedy.as_str() {
            "" => f.write_str(&self.what),
            remedy => write!(f, "{}: {remedy}", self.what),
        }
    }
}
