//! The receive half: delivers the active leg's frames, and drops all others by name.

use super::device::ActiveLeg;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{RxQueue, RxState};
use crate::forward;
use crate::mem::{BURST_MAX, Burst, Pool};
use crate::time::Instant;

crate::drop_reasons! {
    /// Why a bond drops a frame.
    pub(crate) enum BondDrop {
        /// The frame arrived on a leg that is not active.
        StandbyLeg => "standby_leg",
    }
}

/// The receive half of a bond's queue.
pub struct BondRx<R> {
    legs: Vec<R>,
    active: ActiveLeg,
    /// Frames received on the other legs, to be dropped.
    standby: Burst,
    last_active: usize,
    changes: Counter,
    drops: Drops<BondDrop>,
}

impl<R: RxQueue> BondRx<R> {
    pub(super) fn new(legs: Vec<R>, active: ActiveLeg, scope: &Scope) -> Self {
        let last_active = active.get();
        let changes = scope.counter("changes", Unit::Events);
        Self { legs, active, standby: Burst::new(), last_active, changes, drops: scope.drops() }
    }

    /// The leg at this index.
    pub fn leg(&self, idx: usize) -> Option<&R> {
        self.legs.get(idx)
    }
}

/// No [`wait_fd`](RxQueue::wait_fd), because a bond has one for each leg, and the active leg
/// changes. The bond is polled.
impl<R: RxQueue> RxQueue for BondRx<R> {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let active = self.active.get();
        if active != self.last_active {
            self.last_active = active;
            self.changes.inc();
        }
        let mut received = 0;
        for (idx, leg) in self.legs.iter_mut().enumerate() {
            if idx == active {
                received = leg.receive(burst, limit, pool, now);
                continue;
            }
            if leg.receive(&mut self.standby, BURST_MAX, pool, now) > 0 {
                for mbuf in self.standby.drain(..) {
                    self.drops.count(BondDrop::StandbyLeg);
                    mbuf.free();
                }
            }
        }
        received
    }

    /// The active leg's state, as long as any leg may still receive.
    fn state(&self) -> RxState {
        if self.legs.iter().all(|leg| leg.state() == RxState::Ended) {
            return RxState::Ended;
        }
        match self.legs.get(self.active.get()).map(R::state) {
            Some(RxState::Open) => RxState::Open,
            _ => RxState::LinkDown,
        }
    }

    fn refresh_counters(&mut self) {
        self.legs.iter_mut().for_each(R::refresh_counters);
    }

    forward!(by_default: wait_fd, arm);
}
