//! The receive half with faults: they are applied to frames between the inner device and the
//! worker.

use std::rc::Rc;

use super::damage::{Flip, Stock, copy, forget_verdicts};
use super::delay_queue::DelayQueue;
use super::frame_faults::{FaultDraws, Hold};
use super::tally::Tally;
use crate::counters::{Drops, Scope};
use crate::device::{RxQueue, RxState};
use crate::forward;
use crate::mem::{Burst, Mbuf, Pool};
use crate::time::Instant;

crate::drop_reasons! {
    /// Why a fault drops a received frame.
    pub(crate) enum FaultRxDrop {
        /// Lost in the network.
        Loss => "loss",
        /// Lost because the ring was full.
        RingFull => "ring_full",
    }
}

/// The receive half of a queue with faults.
pub struct FaultRx<R> {
    inner: R,
    draws: FaultDraws,
    /// Frames processed so far.
    seen: u64,
    /// Frames that the full ring will still lose.
    overflow_left: u32,
    /// Received from the inner device and not processed yet, the oldest last.
    incoming: Burst,
    held_back: DelayQueue<Mbuf>,
    stock: Rc<Stock>,
    tally: Tally,
    drops: Drops<FaultRxDrop>,
}

impl<R: RxQueue> FaultRx<R> {
    pub(super) fn new(inner: R, draws: FaultDraws, stock: Rc<Stock>, scope: &Scope) -> Self {
        let scope = scope.scope("rx");
        Self {
            inner,
            draws,
            seen: 0,
            overflow_left: 0,
            incoming: Burst::new(),
            held_back: DelayQueue::new(),
            stock,
            tally: Tally::new(&scope),
            drops: scope.drops(),
        }
    }

    /// The wrapped receive half.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// Whether no further frame can overtake a waiting one.
    fn is_dry(&self) -> bool {
        self.incoming.is_empty() && self.inner.state() == RxState::Ended
    }

    /// Applies the faults to a frame: it is returned, held back, or dropped.
    fn apply_faults(&mut self, mut mbuf: Mbuf, pool: &Pool, now: Instant) -> Option<Mbuf> {
        let frame_faults = self.draws.of(self.seen);
        self.seen += 1;
        self.overflow_left = self.overflow_left.max(frame_faults.ring_full.unwrap_or(0));
        if self.overflow_left > 0 {
            self.overflow_left -= 1;
            return self.end(mbuf, FaultRxDrop::RingFull);
        }
        if frame_faults.loss {
            return self.end(mbuf, FaultRxDrop::Loss);
        }
        if frame_faults.duplication {
            let done = self.duplicate(&mbuf, pool, now);
            self.tally.count(&self.tally.duplicated, done);
        }
        if let Some(number) = frame_faults.corruption {
            let done = Flip::apply(&mut mbuf, number).is_some();
            forget_verdicts(&mut mbuf);
            self.tally.count(&self.tally.corrupted, done);
        }
        self.pass_or_hold(mbuf, frame_faults.hold, now)
    }

    fn end(&mut self, mbuf: Mbuf, reason: FaultRxDrop) -> Option<Mbuf> {
        self.drops.count(reason);
        mbuf.free();
        None
    }

    /// Holds a copy that leaves directly after the frame.
    fn duplicate(&mut self, mbuf: &Mbuf, pool: &Pool, now: Instant) -> bool {
        if self.held_back.is_full() || pool.available() == 0 {
            return false;
        }
        let Some(fresh) = pool.alloc() else { return false };
        match copy(mbuf, fresh) {
            Ok(twin) => {
                self.held_back.push(twin, Hold::No, now, self.seen, self.draws.faults().delay_max);
                true
            }
            Err(fresh) => {
                fresh.free();
                false
            }
        }
    }

    fn pass_or_hold(&mut self, mbuf: Mbuf, hold: Hold, now: Instant) -> Option<Mbuf> {
        let counter = match hold {
            Hold::No => return Some(mbuf),
            Hold::For(_) => &self.tally.delayed,
            Hold::Behind(_) => &self.tally.reordered,
        };
        let done = !self.held_back.is_full();
        self.tally.count(counter, done);
        if !done {
            return Some(mbuf);
        }
        self.held_back.push(mbuf, hold, now, self.seen, self.draws.faults().delay_max);
        None
    }
}

/// No [`wait_fd`](RxQueue::wait_fd), because held-back frames come without an event of the inner
/// queue. The device is polled.
impl<R: RxQueue> RxQueue for FaultRx<R> {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let limit = limit.min(burst.remaining_capacity());
        if self.incoming.is_empty() {
            self.inner.receive(&mut self.incoming, limit, pool, now);
            self.incoming.reverse();
        }
        let mut received = 0;
        while received < limit {
            let mbuf = match self.held_back.take_due(now, self.seen, self.is_dry()) {
                Some(mbuf) => mbuf,
                None => {
                    let Some(mbuf) = self.incoming.pop() else { break };
                    let Some(mbuf) = self.apply_faults(mbuf, pool, now) else { continue };
                    mbuf
                }
            };
            burst.push(mbuf);
            received += 1;
        }
        self.stock.fill(pool);
        received
    }

    fn state(&self) -> RxState {
        match self.inner.state() {
            RxState::Ended if !self.incoming.is_empty() || !self.held_back.is_empty() => RxState::Open,
            state => state,
        }
    }

    forward!(inner: refresh_counters; by_default: wait_fd, arm);
}

impl<R> Drop for FaultRx<R> {
    fn drop(&mut self) {
        self.incoming.drain(..).for_each(Mbuf::free);
        while let Some(mbuf) = self.held_back.pop() {
            mbuf.free();
        }
    }
}
