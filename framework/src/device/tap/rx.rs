//! The receiving half of a tapped queue.

use std::rc::Rc;

use super::recorder::Recorder;
use crate::device::{RxQueue, RxState};
use crate::mem::{Burst, Pool};
use crate::time::Instant;

/// The receiving half of a tapped queue. Of both halves it is the one that asks whether somebody
/// listens.
pub struct TapRx<R> {
    inner: R,
    tap: Rc<Recorder>,
}

impl<R: RxQueue> TapRx<R> {
    pub(super) fn new(inner: R, tap: Rc<Recorder>) -> Self {
        Self { inner, tap }
    }

    /// Whether somebody listened when the queue was polled last.
    pub fn is_heard(&self) -> bool {
        self.tap.is_heard()
    }

    /// The receiving half within.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// The receiving half within, to change what may change while it runs.
    pub fn inner_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// The burst of a turn in which somebody listens or leaves. Out of line, so that a turn without
    /// listeners keeps nothing in registers for it.
    #[inline(never)]
    fn attend(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let is_heard = self.tap.attend(now);
        let before = burst.len();
        let received = self.inner.receive(burst, limit, pool, now);
        if is_heard {
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
        if self.tap.is_asked() {
            return self.attend(burst, limit, pool, now);
        }
        let received = self.inner.receive(burst, limit, pool, now);
        self.tap.pass_received(received);
        received
    }

    fn state(&self) -> RxState {
        self.inner.state()
    }

    fn refresh_counters(&mut self) {
        self.inner.refresh_counters();
    }
}
