//! The send half of a tapped queue.

use std::rc::Rc;

use super::recorder::Recorder;
use crate::device::{Offload, Preposted, TxQueue};
use crate::forward;
use crate::mem::Mbuf;

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

    fn pass(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let posted = self.inner.post(mbuf, offload);
        self.tap.pass_sent(usize::from(posted.is_ok()));
        posted
    }

    #[inline(never)]
    fn record(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        // A worker that retries at a full ring must not fill the tap's ring with void records.
        if self.inner.room() == 0 {
            return self.pass(mbuf, offload);
        }
        // Written before the frame is handed over, and removed if the device refuses it.
        self.tap.offer(&mbuf);
        let posted = self.inner.post(mbuf, offload);
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
            return self.record(mbuf, offload);
        }
        self.pass(mbuf, offload)
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
