//! The receive half of a tapped queue.

use std::rc::Rc;

use super::recorder::Recorder;
use crate::device::RxQueue;
use crate::forward;
use crate::mem::{Burst, Pool};
use crate::time::Instant;

/// The receive half of a tapped queue. Of both halves it is the one that checks for a listener.
pub struct TapRx<R> {
    inner: R,
    tap: Rc<Recorder>,
}

impl<R: RxQueue> TapRx<R> {
    pub(super) fn new(inner: R, tap: Rc<Recorder>) -> Self {
        Self { inner, tap }
    }

    /// Whether a listener was present at the last poll.
    pub fn has_listener(&self) -> bool {
        self.tap.has_listener()
    }

    /// The wrapped receive half.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// The wrapped receive half, to change settings while it runs.
    pub fn inner_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// The slow path of `receive`, while a capture reader (the listener) is attached or detaching.
    /// Not inlined, so that a turn without a listener occupies no registers for it.
    #[inline(never)]
    fn housekeep(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let has_listener = self.tap.housekeep(now);
        let before = burst.len();
        let received = self.inner.receive(burst, limit, pool, now);
        if has_listener {
            self.tap.record_received(&burst[before..]);
        } else {
            self.tap.pass_received(received);
        }
        received
    }
}

impl<R: RxQueue> RxQueue for TapRx<R> {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        if self.tap.wants_attention() {
            return self.housekeep(burst, limit, pool, now);
        }
        let received = self.inner.receive(burst, limit, pool, now);
        self.tap.pass_received(received);
        received
    }

    forward!(inner: state, wait_fd, refresh_counters);
}
