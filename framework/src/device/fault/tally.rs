//! Counts the faults of frames that still arrive. Faults that drop a frame are drop reasons of `rx`
//! and `tx`.

use crate::counters::{Counter, Scope, Unit};

pub(super) struct Tally {
    pub(super) duplicated: Counter,
    pub(super) corrupted: Counter,
    pub(super) reordered: Counter,
    pub(super) delayed: Counter,
    /// Faults that were drawn but not applied: no spare buffer, shared bytes, too many frames held
    /// back already.
    pub(super) not_applied: Counter,
}

impl Tally {
    pub(super) fn new(scope: &Scope) -> Self {
        let counter = |name| scope.counter(name, Unit::Frames);
        Self {
            duplicated: counter("duplicated"),
            corrupted: counter("corrupted"),
            reordered: counter("reordered"),
            delayed: counter("delayed"),
            not_applied: counter("not_applied"),
        }
    }

    /// Counts a fault that was applied (`done`), or that could not be.
    pub(super) fn count(&self, counter: &Counter, done: bool) {
        if done { counter.inc() } else { self.not_applied.inc() }
    }
}
