//! Two NICs on a cable, each with a driver and a queue pair that is connected to the other's. Time
//! passes only where a test turns the clock.

use crate::hca::testing::rdma::{Side, remote_segment};
use crate::hca::testing::{CableEnd, ManualClock};
use crate::hca::*;

pub(super) use crate::hca::testing::rdma::{ALL_RIGHTS, Cqe, operands};

/// Both ends and the clock.
pub(super) struct Rig {
    pub(super) here: Side,
    pub(super) there: Side,
    pub(super) clock: ManualClock,
}

impl Rig {
    /// Two queue pairs of a service that are ready to send.
    pub(super) fn new(service: Service) -> Self {
        Self::with(service, [Config::default(), Config::default()], |_| {})
    }

    /// The same, where the ends differ from the usual ones.
    pub(super) fn with(service: Service, configs: [Config; 2], change: impl Fn(&mut QpAttributes)) -> Self {
        let (here, there) = CableEnd::pair();
        let [first, second] = configs;
        let mut rig = Self {
            here: Side::new(service, Config { mac: [2, 0, 0, 0, 0x5c, 1], ..first }, here),
            there: Side::new(service, Config { mac: [2, 0, 0, 0, 0x5c, 2], ..second }, there),
            clock: ManualClock::default(),
        };
        let (here, there) = (&mut rig.here, &mut rig.there);
        here.connect(service, there.number, there.hca.config().mac, &change);
        there.connect(service, here.number, here.hca.config().mac, &change);
        rig
    }

    /// Lets both NICs work until there is nothing left to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.here.step(&self.clock) + self.there.step(&self.clock) == 0 {
                return;
            }
        }
        panic!("the NICs never come to rest");
    }

    /// Lets time pass, in steps of a tenth of a millisecond.
    pub(super) fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms * 10 {
            self.clock.advance(100_000);
            self.settle();
        }
    }
}

/// The segment that names the memory of a side.
pub(super) fn remote(side: &Side, offset: u64) -> Vec<u8> {
    remote_segment(side.buffer + offset, side.key)
}

/// Bytes that differ from those elsewhere.
pub(super) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed * 31) as u8).collect()
}
