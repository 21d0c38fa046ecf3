//! Why the sockets of a program stay on the kernel.

/// The reason why sockets stay on the kernel, and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Obstacle {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}
