//! The receive half of a captured queue.

use std::cell::RefCell;
use std::rc::Rc;

use super::tap::Tap;
use crate::device::RxQueue;
use crate::forward;
use crate::mem::{Burst, Pool};
use crate::time::Instant;

/// The receive half of a captured queue.
pub struct CaptureRx<R> {
    inner: R,
    tap: Rc<RefCell<Tap>>,
    records: bool,
}

impl<R: RxQueue> CaptureRx<R> {
    pub(super) fn new(inner: R, tap: Rc<RefCell<Tap>>, records: bool) -> Self {
        Self { inner, tap, records }
    }

    /// The wrapped receive half.
    pub fn inner(&self) -> &R {
        &self.inner
    }
}

impl<R: RxQueue> RxQueue for CaptureRx<R> {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let before = burst.len();
        let received = self.inner.receive(burst, limit, pool, now);
        let mut tap = self.tap.borrow_mut();
        tap.set_now(now);
        if self.records {
            burst[before..].iter().for_each(|mbuf| tap.record_received(mbuf));
        }
        received
    }

    forward!(inner: state, wait_fd, refresh_counters);
}
