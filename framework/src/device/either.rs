//! One of two kinds of device, chosen when it is opened. So the configuration can decide without a
//! second copy of all code above the device. It costs a branch that always goes the same way, one
//! per burst on receive and one per frame on send.

use super::steering::{Rule, RuleId, SteerError};
use super::{
    Capabilities, Device, DeviceError, Doorbell, Offload, Preposted, Queue, RxQueue, RxState, TxQueue, TxTimestamp,
};
use crate::counters::Scope;
use crate::mem::{Burst, Layout, Mbuf, Pool, Region, Sizing};
use crate::time::Instant;
use std::os::fd::RawFd;
use std::sync::Arc;

/// A device, a queue, or half of one, of one of the two kinds.
#[derive(Debug)]
pub enum Either<L, R> {
    /// The first.
    Left(L),
    /// The other.
    Right(R),
}

/// Forwards a call to the variant that is present.
macro_rules! either {
    ($value:expr, $it:ident => $call:expr) => {
        match $value {
            Self::Left($it) => $call,
            Self::Right($it) => $call,
        }
    };
}

impl<L: Device, R: Device> Device for Either<L, R> {
    type Queue = Either<L::Queue, R::Queue>;

    fn name(&self) -> &str {
        either!(self, device => device.name())
    }

    fn capabilities(&self) -> Capabilities {
        either!(self, device => device.capabilities())
    }

    fn take_queue(&mut self, idx: u16) -> Result<Self::Queue, DeviceError> {
        Ok(match self {
            Self::Left(device) => Either::Left(device.take_queue(idx)?),
            Self::Right(device) => Either::Right(device.take_queue(idx)?),
        })
    }

    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        either!(self, device => device.steer(rule, idx))
    }

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        either!(self, device => device.unsteer(id))
    }
}

impl<L: Queue, R: Queue> Queue for Either<L, R> {
    type Rx = Either<L::Rx, R::Rx>;
    type Tx = Either<L::Tx, R::Tx>;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Self::Tx), DeviceError> {
        Ok(match self {
            Self::Left(queue) => {
                let (rx, tx) = queue.open(pool, scope)?;
                (Either::Left(rx), Either::Left(tx))
            }
            Self::Right(queue) => {
                let (rx, tx) = queue.open(pool, scope)?;
                (Either::Right(rx), Either::Right(tx))
            }
        })
    }

    fn layout(&self, frame_len_max: usize) -> Layout {
        either!(self, queue => queue.layout(frame_len_max))
    }

    fn buffers(&self) -> Sizing {
        either!(self, queue => queue.buffers())
    }

    fn region(&mut self, layout: Layout, buffers: usize) -> Result<Option<Region>, DeviceError> {
        either!(self, queue => queue.region(layout, buffers))
    }
}

impl<L: RxQueue, R: RxQueue> RxQueue for Either<L, R> {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        either!(self, rx => rx.receive(burst, limit, pool, now))
    }

    fn state(&self) -> RxState {
        either!(self, rx => rx.state())
    }

    fn wait_fd(&self) -> Option<RawFd> {
        either!(self, rx => rx.wait_fd())
    }

    fn arm(&mut self) {
        either!(self, rx => rx.arm());
    }

    fn refresh_counters(&mut self) {
        either!(self, rx => rx.refresh_counters());
    }
}

impl<L: TxQueue, R: TxQueue> TxQueue for Either<L, R> {
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        either!(self, tx => tx.post(mbuf, offload))
    }

    #[inline]
    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        either!(self, tx => tx.post_urgent(mbuf))
    }

    #[inline]
    fn post_unmarked(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        either!(self, tx => tx.post_unmarked(mbuf, offload))
    }

    #[inline]
    fn post_burst(&mut self, burst: &mut Burst, offload: Offload) -> usize {
        either!(self, tx => tx.post_burst(burst, offload))
    }

    fn dry_run(&mut self, mbuf: Mbuf, offload: Offload) {
        either!(self, tx => tx.dry_run(mbuf, offload));
    }

    fn prepost(&mut self, frame: &[u8]) -> Option<Preposted> {
        either!(self, tx => tx.prepost(frame))
    }

    #[inline]
    fn preposted(&mut self, which: Preposted) -> Option<&mut [u8]> {
        either!(self, tx => tx.preposted(which))
    }

    #[inline]
    fn fire_preposted(&mut self, which: Preposted) -> bool {
        either!(self, tx => tx.fire_preposted(which))
    }

    #[inline]
    fn ring_doorbell(&mut self, now: Instant) {
        either!(self, tx => tx.ring_doorbell(now));
    }

    #[inline]
    fn defer_doorbell(&mut self, now: Instant) -> Option<Arc<dyn Doorbell>> {
        either!(self, tx => tx.defer_doorbell(now))
    }

    #[inline]
    fn reap(&mut self) -> usize {
        either!(self, tx => tx.reap())
    }

    #[inline]
    fn room(&mut self) -> usize {
        either!(self, tx => tx.room())
    }

    #[inline]
    fn in_flight(&self) -> usize {
        either!(self, tx => tx.in_flight())
    }

    fn has_timestamps(&self) -> bool {
        either!(self, tx => tx.has_timestamps())
    }

    fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        either!(self, tx => tx.take_timestamp())
    }

    fn refresh_counters(&mut self) {
        either!(self, tx => tx.refresh_counters());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::MemoryDevice;
    use crate::device::testing::conformance::assert_conforms;
    use crate::device::testing::wire_rig::{WireRig, wire};

    #[test]
    fn either_conforms_as_what_it_is() {
        assert_conforms(&mut WireRig::new(|| {
            let (near, far) = wire();
            (Either::Left(near), Either::<_, MemoryDevice>::Right(far))
        }));
    }
}
