//! Stands in for a device that was not built, because code generic over several devices needs a
//! type there. The type has no values, so its methods are never called and cost nothing.

use super::steering::{Rule, RuleId, SteerError};
use super::{Capabilities, Device, DeviceError, Offload, Queue, RxQueue, RxState, TxQueue};
use crate::counters::Scope;
use crate::mem::{Burst, Mbuf, Pool};
use crate::time::Instant;

/// The device, its queue and both halves of the queue.
#[derive(Debug)]
pub enum Absent {}

impl Device for Absent {
    type Queue = Self;

    fn name(&self) -> &str {
        match *self {}
    }

    fn capabilities(&self) -> Capabilities {
        match *self {}
    }

    fn take_queue(&mut self, _idx: u16) -> Result<Self, DeviceError> {
        match *self {}
    }

    fn steer(&mut self, _rule: &Rule, _idx: u16) -> Result<RuleId, SteerError> {
        match *self {}
    }

    fn unsteer(&mut self, _id: RuleId) -> Result<(), SteerError> {
        match *self {}
    }
}

impl Queue for Absent {
    type Rx = Self;
    type Tx = Self;

    fn open(self, _pool: &Pool, _scope: &Scope) -> Result<(Self, Self), DeviceError> {
        match self {}
    }
}

impl RxQueue for Absent {
    fn receive(&mut self, _burst: &mut Burst, _limit: usize, _pool: &Pool, _now: Instant) -> usize {
        match *self {}
    }

    fn state(&self) -> RxState {
        match *self {}
    }

    fn refresh_counters(&mut self) {
        match *self {}
    }
}

impl TxQueue for Absent {
    fn post(&mut self, _mbuf: Mbuf, _offload: Offload) -> Result<(), Mbuf> {
        match *self {}
    }

    fn ring_doorbell(&mut self, _now: Instant) {
        match *self {}
    }

    fn reap(&mut self) -> usize {
        match *self {}
    }

    fn room(&mut self) -> usize {
        match *self {}
    }

    fn in_flight(&self) -> usize {
        match *self {}
    }

    fn refresh_counters(&mut self) {
        match *self {}
    }
}
