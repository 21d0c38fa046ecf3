//! The outcome of a file that a worker reads or writes, reported to the thread that opened it.

use std::sync::{Arc, OnceLock};

use super::Error;

/// A cell that is set once: when a replay ends ([`End`](super::End)), or when a recording is closed
/// ([`Recorded`]). Clones share it.
pub struct Outcome<T>(Arc<OnceLock<Result<T, Error>>>);

/// A recording that was closed without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Frames in the file.
    pub frames: u64,
}

impl<T> Outcome<T> {
    pub(in crate::device) fn new() -> Self {
        Self(Arc::new(OnceLock::new()))
    }

    /// The outcome; `None` until there is one.
    pub fn get(&self) -> Option<&Result<T, Error>> {
        self.0.get()
    }

    /// Sets the outcome; the first one remains.
    pub(in crate::device) fn set(&self, outcome: Result<T, Error>) {
        // A second outcome of the same file has nothing to add.
        let _ = self.0.set(outcome);
    }
}

impl<T> Clone for Outcome<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
