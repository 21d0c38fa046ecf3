//! Which thread polls while it waits, and which sleeps.

use crate::engine::ClockReading;

/// A thread that polls does so again within this time, unless it has lost its core.
const LONGEST_POLL_NS: u64 = 20_000;

/// The thread that polls, and when it last did.
pub(crate) struct Polling {
    poller: Option<(usize, ClockReading)>,
}

impl Polling {
    pub(crate) const fn new() -> Self {
        Self { poller: None }
    }

    /// Whether `thread`, which waits, may poll at `now`, where `sleeping` others sleep: one thread
    /// polls at once, and none where the sleeping ones are as many as the other cores, because the
    /// thread that polls would take the core of one that has work, or of a peer.
    pub(crate) fn may_poll(&mut self, thread: usize, now: ClockReading, sleeping: usize, cores: usize) -> bool {
        // A handler may have left the call of the other one by a jump.
        let is_taken = self.poller.is_some_and(|(other, at)| other != thread && now.since(at) < LONGEST_POLL_NS);
        if is_taken || sleeping + 1 >= cores.max(2) {
            self.end(thread);
            return false;
        }
        self.poller = Some((thread, now));
        true
    }

    /// Whether a thread polls at `now`.
    pub(crate) fn is_on(&self, now: ClockReading) -> bool {
        self.poller.is_some_and(|(_, at)| now.since(at) < LONGEST_POLL_NS)
    }

    /// `thread` does not poll, or no longer.
    pub(crate) fn end(&mut self, thread: usize) {
        if self.poller.is_some_and(|(poller, _)| poller == thread) {
            self.poller = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> ClockReading {
        ClockReading::of(0, ns)
    }

    #[test]
    fn one_thread_polls_at_once() {
        let mut polling = Polling::new();
        assert!(polling.may_poll(1, at(0), 0, 8));
        assert!(!polling.may_poll(2, at(1_000), 0, 8));
        assert!(polling.may_poll(1, at(2_000), 1, 8));
    }

    #[test]
    fn next_one_polls_once_the_first_has_returned() {
        let mut polling = Polling::new();
        assert!(polling.may_poll(1, at(0), 0, 8));
        polling.end(1);
        assert!(polling.may_poll(2, at(0), 0, 8));
    }

    #[test]
    fn thread_that_never_polled_leaves_the_one_that_does() {
        let mut polling = Polling::new();
        assert!(polling.may_poll(1, at(0), 0, 8));
        polling.end(2);
        assert!(!polling.may_poll(2, at(0), 0, 8));
    }

    #[test]
    fn none_polls_where_as_many_sleep_as_there_are_other_cores() {
        let mut polling = Polling::new();
        assert!(polling.may_poll(1, at(0), 2, 4));
        assert!(!polling.may_poll(1, at(0), 3, 4));
        assert!(polling.may_poll(2, at(0), 2, 4), "the first one has stopped");
    }

    #[test]
    fn lone_thread_polls_also_where_there_is_one_core() {
        assert!(Polling::new().may_poll(1, at(0), 0, 1));
        assert!(!Polling::new().may_poll(1, at(0), 1, 1));
    }

    #[test]
    fn poller_that_is_not_back_for_long_is_replaced() {
        let mut polling = Polling::new();
        assert!(polling.may_poll(1, at(0), 0, 8));
        assert!(!polling.may_poll(2, at(LONGEST_POLL_NS - 1), 0, 8));
        assert!(polling.may_poll(2, at(LONGEST_POLL_NS), 0, 8));
    }
}
