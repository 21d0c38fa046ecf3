//! The send half: on the active leg. Frames posted on another leg before a failover are still
//! reaped.

use super::device::ActiveLeg;
use crate::device::{Offload, TxQueue};
use crate::forward;
use crate::mem::{Burst, Mbuf};
use crate::time::Instant;

/// The send half of a bond's queue.
pub struct BondTx<T> {
    legs: Vec<T>,
    active: ActiveLeg,
}

impl<T: TxQueue> BondTx<T> {
    pub(super) fn new(legs: Vec<T>, active: ActiveLeg) -> Self {
        Self { legs, active }
    }
}

impl<T: TxQueue> TxQueue for BondTx<T> {
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        match self.legs.get_mut(self.active.get()) {
            Some(leg) => leg.post(mbuf, offload),
            None => Err(mbuf),
        }
    }

    #[inline]
    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        match self.legs.get_mut(self.active.get()) {
            Some(leg) => leg.post_urgent(mbuf),
            None => Err(mbuf),
        }
    }

    #[inline]
    fn post_unmarked(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        match self.legs.get_mut(self.active.get()) {
            Some(leg) => leg.post_unmarked(mbuf, offload),
            None => Err(mbuf),
        }
    }

    #[inline]
    fn post_burst(&mut self, burst: &mut Burst, offload: Offload) -> usize {
        self.legs.get_mut(self.active.get()).map_or(0, |leg| leg.post_burst(burst, offload))
    }

    fn dry_run(&mut self, mbuf: Mbuf, offload: Offload) {
        match self.legs.get_mut(self.active.get()) {
            Some(leg) => leg.dry_run(mbuf, offload),
            None => mbuf.free(),
        }
    }

    fn ring_doorbell(&mut self, now: Instant) {
        self.legs.iter_mut().for_each(|leg| leg.ring_doorbell(now));
    }

    fn reap(&mut self) -> usize {
        self.legs.iter_mut().map(T::reap).sum()
    }

    fn room(&mut self) -> usize {
        self.legs.get_mut(self.active.get()).map_or(0, T::room)
    }

    fn in_flight(&self) -> usize {
        self.legs.iter().map(T::in_flight).sum()
    }

    fn refresh_counters(&mut self) {
        self.legs.iter_mut().for_each(T::refresh_counters);
    }

    // A preposted frame could stand on a leg that is no longer active, each leg numbers its own
    // timestamps, and each may have a doorbell to defer.
    forward!(by_default: prepost, preposted, fire_preposted, defer_doorbell, has_timestamps, take_timestamp);
}
