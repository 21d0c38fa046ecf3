//! The receiving half of a tapped queue.

use std::rc::Rc;

use super::recorder::Recorder;
use crate::device::{RxQueue, RxState};
use crate::mem::{Burst, Pool};
use crate::time::Instant;

/// The receiving half of a tapped queue. Of both halves it is the one that asks whether somebody listens.
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
}

impl<R: RxQueue> RxQueue for TapRx<R> {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        if !self.tap.ask(now) {
            let received = self.inner.receive(burst, limit, pool, now);
            self.tap.pass_received(received);
            return received;
        }
        let before = burst.len();
        let received = self.inner.receive(burst, limit, pool, now);
        burst[before..].iter().for_each(|mbuf| self.tap.record_received(mbuf));
        received
    }

    fn state(&self) -> RxState {
        self.inner.state()
    }

    fn refresh_counters(&mut self) {
        self.inner.refresh_counters();
    }
}
