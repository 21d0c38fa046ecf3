//! The send half of a tapped queue.

use std::rc::Rc;

use super::recorder::Recorder;
use crate::device::{Offload, Preposted, TxQueue, post_one_by_one};
use crate::forward;
use crate::mem::{Burst, Mbuf};

/// The send half of a tapped queue. It records each frame that the inner device accepts, as it was
/// posted: before checksum insertion and segmentation. The time is that of the turn in which it was
/// posted.
pub struct TapTx<T> {
    inner: T,
    tap: Rc<Recorder>,
}

impl<T: TxQueue> TapTx<T> {
    pub(super) fn new(inner: T, tap: Rc<Recorder>) -> Self {
        Self { inner, tap }
    }

    /// The wrapped send half.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The wrapped send half, to change settings while it runs.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Posts a frame that has no record.
    #[inline(always)]
    fn pass(&mut self, mbuf: Mbuf, post: impl FnOnce(&mut T, Mbuf) -> Result<(), Mbuf>) -> Result<(), Mbuf> {
        let posted = post(&mut self.inner, mbuf);
        self.tap.pass_sent(usize::from(posted.is_ok()));
        posted
    }

    #[inline(never)]
    fn record(
        &mut self,
        mbuf: Mbuf,
        offload: Offload,
        post: impl FnOnce(&mut T, Mbuf) -> Result<(), Mbuf>,
    ) -> Result<(), Mbuf> {
        // A worker that retries at a full ring must not fill the tap's ring with void records.
        if self.inner.room() == 0 {
            return self.pass(mbuf, post);
        }
        // Written before the frame is handed over, and removed if the device refuses it.
        self.tap.offer(&mbuf);
        let posted = post(&mut self.inner, mbuf);
        match &posted {
            Ok(()) => self.tap.keep(offload.vlan()),
            Err(_) => self.tap.retract(),
        }
        posted
    }
}

impl<T: TxQueue> TxQueue for TapTx<T> {
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if self.tap.has_listener() {
            return self.record(mbuf, offload, |inner, mbuf| inner.post(mbuf, offload));
        }
        self.pass(mbuf, |inner, mbuf| inner.post(mbuf, offload))
    }

    #[inline]
    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        if self.tap.has_listener() {
            return self.record(mbuf, Offload::URGENT, T::post_urgent);
        }
        self.pass(mbuf, T::post_urgent)
    }

    #[inline]
    fn post_unmarked(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if self.tap.has_listener() {
            return self.record(mbuf, offload, |inner, mbuf| inner.post_unmarked(mbuf, offload));
        }
        self.pass(mbuf, |inner, mbuf| inner.post_unmarked(mbuf, offload))
    }

    #[inline]
    fn post_burst(&mut self, burst: &mut Burst, offload: Offload) -> usize {
        if self.tap.has_listener() {
            return post_one_by_one(self, burst, offload);
        }
        let posted = self.inner.post_burst(burst, offload);
        self.tap.pass_sent(posted);
        posted
    }

    /// With a listener present no frame is preposted, because each frame must be recorded when it
    /// is posted.
    fn prepost(&mut self, frame: &[u8]) -> Option<Preposted> {
        if self.tap.has_listener() { None } else { self.inner.prepost(frame) }
    }

    #[inline]
    fn preposted(&mut self, which: Preposted) -> Option<&mut [u8]> {
        if self.tap.has_listener() { None } else { self.inner.preposted(which) }
    }

    #[inline]
    fn fire_preposted(&mut self, which: Preposted) -> bool {
        let is_fired = !self.tap.has_listener() && self.inner.fire_preposted(which);
        self.tap.pass_sent(usize::from(is_fired));
        is_fired
    }

    forward!(inner: dry_run, ring_doorbell, reap, room, in_flight, has_timestamps, take_timestamp, refresh_counters);
}
