//! What became of a file that a worker reads or writes, told to the thread that opened it.

use std::sync::{Arc, OnceLock};

use super::Error;

/// A place that is filled once: when a replay ends ([`End`](super::End)), or when a recording is
/// closed ([`Recorded`]). Clones look at the same place.
pub struct Outcome<T>(Arc<OnceLock<Result<T, Error>>>);

/// A recording that was closed in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Frames in the file.
    pub frames: u64,
}

impl<T> Outcome<T> {
    pub(in crate::device) fn new() -> Self {
        Self(Arc::new(OnceLock::new()))
    }

    /// How it went; `None` while it goes on.
    pub fn get(&self) -> Option<&Result<T, Error>> {
        self.0.get()
    }

    /// Fills the place; what was there first stays.
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
