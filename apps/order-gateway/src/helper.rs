//! The threads beside the one that trades.

use std::io;
use std::thread::{Builder, JoinHandle};

use wirepath::worker::affinity::spawn_helper;

/// A thread that lives as long as the gateway. One that ends before has a defect, and a person is
/// to know what is done no more.
#[derive(Debug)]
pub struct Helper {
    name: &'static str,
    thread: JoinHandle<()>,
}

impl Helper {
    /// Starts one that has no real-time policy of the caller.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(name: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Ok(Self::of(name, spawn_helper(Builder::new().name(name.into()), work)?))
    }

    /// One that was started already.
    pub(crate) const fn of(name: &'static str, thread: JoinHandle<()>) -> Self {
        Self { name, thread }
    }

    /// What it is called.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it has ended. One load.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}
