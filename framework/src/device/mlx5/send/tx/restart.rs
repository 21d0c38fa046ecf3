//! A queue that has failed, or that ends: it refuses frames until the NIC has released it, and
//! gives back the mbufs in flight.

use core::sync::atomic::Ordering;
use std::time::Duration;

use super::{Mlx5Tx, Mlx5TxDrop};
use crate::device::TxQueue;
use crate::time::Instant;

/// Polls of the CQ while a dropped half waits for its last frames: first without pauses, because a
/// NIC needs microseconds, then with pauses, tens of milliseconds in all, for a slow NIC.
const LAST_REAPS: usize = 1_000;
const LAST_PAUSES: usize = 200;
const LAST_PAUSE: Duration = Duration::from_micros(100);

impl Mlx5Tx {
    /// The NIC's queue is in error: posts are refused until it is reset.
    #[cold]
    pub(super) fn stop(&mut self) {
        self.sq.close_multi();
        (self.refuses, self.failed) = (true, true);
    }

    /// Restarts the queue, once that is due.
    #[cold]
    #[inline(never)]
    pub(super) fn recover(&mut self, now: Instant) {
        if self.failed && self.recovery.reset(now) {
            self.reset();
            self.failed = !self.recovery.ready();
        }
        self.still_refuses();
    }

    /// Checks again whether frames may leave: whether the queue is up, and whether answers would
    /// reach us.
    #[cold]
    pub(super) fn still_refuses(&mut self) -> bool {
        self.may_send.take_if(|may_send| may_send.load(Ordering::Acquire));
        self.refuses = self.failed || self.may_send.is_some();
        self.refuses
    }

    /// The NIC has released the queue: completions already written count, everything else was
    /// flushed, and all mbufs are freed.
    #[cold]
    fn reset(&mut self) {
        for _ in 0..self.cq.count() {
            if !self.take_completion() {
                break;
            }
        }
        self.cq.publish_again();
        let flushed = self.sq.reset();
        self.drops.count_many(Mlx5TxDrop::Flushed, flushed.frames);
        self.counters.timestamps_lost.add(flushed.stamps_lost.into());
    }
}

impl Drop for Mlx5Tx {
    /// Waits a bounded time for the posted frames to leave. Then the NIC releases the queue, and
    /// all mbufs are freed. If the NIC does not release it, the mbufs in flight are leaked.
    fn drop(&mut self) {
        if !self.failed {
            self.ask_for_rest();
        }
        for look in 0..LAST_REAPS + LAST_PAUSES {
            if self.sq.is_empty() || self.failed {
                break;
            }
            self.reap();
            if look < LAST_REAPS {
                core::hint::spin_loop();
            } else {
                std::thread::sleep(LAST_PAUSE);
            }
        }
        if self.recovery.close() {
            return self.reset();
        }
        // The NIC may still read, and send, incomplete frames.
        while self.reap() > 0 {}
        let (flushed, mbufs) = self.sq.leak();
        self.drops.count_many(Mlx5TxDrop::Flushed, flushed.frames);
        self.recovery.leak(mbufs.into());
    }
}
