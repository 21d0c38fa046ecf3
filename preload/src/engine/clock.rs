//! Readings of the engines' clocks, and of the system's before there is one.

use std::sync::OnceLock;
use std::time::Instant;

use crate::engine::thread;

/// A reading of a clock: an engine's, or the system's where its engine is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// The engine that has read it, each of which has a clock of its own.
    pub(super) engine: Option<usize>,
    pub(super) ns: u64,
}

impl ClockReading {
    #[cfg(test)]
    pub(super) fn of(engine: usize, ns: u64) -> Self {
        Self { engine: Some(engine), ns }
    }

    /// Nanoseconds since an earlier reading; 0 if that was of the other clock.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> u64 {
        if self.engine == earlier.engine { self.ns.saturating_sub(earlier.ns) } else { 0 }
    }
}

/// The system's clock.
#[cold]
pub(crate) fn system_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    thread::once(&ORIGIN, Instant::now).elapsed().as_nanos() as u64
}
