//! The send half of a captured queue.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::tap::Tap;
use crate::device::{Doorbell, Offload, TxQueue, post_one_by_one};
use crate::forward;
use crate::mem::{Burst, Mbuf};
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

    /// Posts a frame, with a record of it if the queue has records.
    #[inline(always)]
    fn record(
        &mut self,
        mbuf: Mbuf,
        offload: Offload,
        post: impl FnOnce(&mut T, Mbuf) -> Result<(), Mbuf>,
    ) -> Result<(), Mbuf> {
        if !self.records {
            return post(&mut self.inner, mbuf);
        }
        // Written before the frame is handed over, and removed if the ring is full.
        let mut tap = self.tap.borrow_mut();
        tap.offer(&mbuf, offload.vlan());
        let posted = post(&mut self.inner, mbuf);
        match &posted {
            Ok(()) => tap.keep(),
            Err(_) => tap.retract(),
        }
        posted
    }
}

impl<T: TxQueue> TxQueue for CaptureTx<T> {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.record(mbuf, offload, |inner, mbuf| inner.post(mbuf, offload))
    }

    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.record(mbuf, Offload::URGENT, T::post_urgent)
    }

    fn post_unmarked(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.record(mbuf, offload, |inner, mbuf| inner.post_unmarked(mbuf, offload))
    }

    fn post_burst(&mut self, burst: &mut Burst, offload: Offload) -> usize {
        if self.records { post_one_by_one(self, burst, offload) } else { self.inner.post_burst(burst, offload) }
    }

    fn ring_doorbell(&mut self, now: Instant) {
        self.tap.borrow_mut().set_now(now);
        self.inner.ring_doorbell(now);
    }

    fn defer_doorbell(&mut self, now: Instant) -> Option<Arc<dyn Doorbell>> {
        self.tap.borrow_mut().set_now(now);
        self.inner.defer_doorbell(now)
    }

    // A preposted frame would leave without a record.
    forward!(
        inner: dry_run, reap, room, in_flight, has_timestamps, take_timestamp, refresh_counters;
        by_default: prepost, preposted, fire_preposted
    );
}
