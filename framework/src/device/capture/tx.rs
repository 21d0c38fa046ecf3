//! The send half of a captured queue.

use std::cell::RefCell;
use std::rc::Rc;

use super::tap::Tap;
use crate::device::{Offload, TxQueue};
use crate::forward;
use crate::mem::Mbuf;
use crate::time::Instant;

/// The send half of a captured queue. It records each frame that the inner device accepts, as it
/// was posted: with the tag that the NIC will insert, but before checksum insertion and
/// segmentation. The recorded time is that of the turn in which the frame was posted.
pub struct CaptureTx<T> {
    inner: T,
    tap: Rc<RefCell<Tap>>,
    records: bool,
}

impl<T: TxQueue> CaptureTx<T> {
    pub(super) fn new(inner: T, tap: Rc<RefCell<Tap>>, records: bool) -> Self {
        Self { inner, tap, records }
    }

    /// The wrapped send half.
    pub fn inner(&self) -> &T {
        &self.inner
    }
}

impl<T: TxQueue> TxQueue for CaptureTx<T> {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if !self.records {
            return self.inner.post(mbuf, offload);
        }
        // Written before the frame is handed over, and removed if the ring is full.
        let mut tap = self.tap.borrow_mut();
        tap.offer(&mbuf, offload.vlan());
        let posted = self.inner.post(mbuf, offload);
        match &posted {
            Ok(()) => tap.keep(),
            Err(_) => tap.retract(),
        }
        posted
    }

    fn ring_doorbell(&mut self, now: Instant) {
        self.tap.borrow_mut().set_now(now);
        self.inner.ring_doorbell(now);
    }

    forward!(inner: dry_run, reap, room, in_flight, has_timestamps, take_timestamp, refresh_counters);
}
