//! The send half with faults: they are applied to frames between the worker and the inner device.
//!
//! Frames that are held back leave with a doorbell, so the doorbell must be rung in every turn, as
//! a worker does. They enter the inner ring after the frames that were posted meanwhile.

use std::rc::Rc;
use std::sync::Arc;

use super::damage::{Flip, Stock, copy};
use super::delay_queue::{DelayQueue, HELD_BACK_MAX};
use super::frame_faults::{FaultDraws, FrameFaults, Hold};
use super::stamps::Stamps;
use super::tally::Tally;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{Doorbell, Offload, TxQueue, TxTimestamp};
use crate::forward;
use crate::mem::Mbuf;
use crate::time::Instant;

crate::drop_reasons! {
    /// Why a fault drops a sent frame.
    pub(crate) enum FaultTxDrop {
        /// Lost in the network.
        Loss => "loss",
    }
}

/// The send half of a queue with faults.
pub struct FaultTx<T> {
    inner: T,
    draws: FaultDraws,
    /// Frames accepted from the worker.
    taken: u64,
    /// Calls of `reap` until the full ring accepts frames again.
    stalled: u32,
    /// Becomes `stalled` at the next doorbell, so that `room` is right until then.
    stall_next: u32,
    held_back: DelayQueue<Posted>,
    stock: Rc<Stock>,
    stamps: Stamps,
    /// Time of the last doorbell.
    now: Instant,
    tally: Tally,
    ring_full: Counter,
    drops: Drops<FaultTxDrop>,
}

/// A frame on its way to the inner device.
struct Posted {
    mbuf: Mbuf,
    offload: Offload,
    /// The worker's number for its timestamp, if requested.
    stamp: Option<u64>,
}

impl<T: TxQueue> FaultTx<T> {
    pub(super) fn new(inner: T, draws: FaultDraws, stock: Rc<Stock>, scope: &Scope) -> Self {
        let scope = scope.scope("tx");
        Self {
            inner,
            draws,
            taken: 0,
            stalled: 0,
            stall_next: 0,
            held_back: DelayQueue::new(),
            stock,
            stamps: Stamps::new(),
            now: Instant::ZERO,
            tally: Tally::new(&scope),
            ring_full: scope.counter("ring_full", Unit::Events),
            drops: scope.tx_drops(),
        }
    }

    /// The wrapped send half.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Accepts the frame and uses up its number.
    fn take(&mut self, frame_faults: &FrameFaults, offload: Offload) {
        self.taken += 1;
        self.stall_next = self.stall_next.max(frame_faults.ring_full.unwrap_or(0));
        if offload.has(Offload::TIMESTAMP) {
            self.stamps.ask();
        }
    }

    /// A duplicate from the stock, if the faults demand one.
    fn twin(&self, frame_faults: &FrameFaults, mbuf: &Mbuf) -> Option<Mbuf> {
        // The duplicate needs a place, and the frame itself another one if it is held back.
        if !frame_faults.duplication || self.held_back.len() + 2 > HELD_BACK_MAX {
            return None;
        }
        match copy(mbuf, self.stock.take()?) {
            Ok(twin) => Some(twin),
            Err(spare) => {
                self.stock.give_back(spare);
                None
            }
        }
    }

    /// Corrupts the frame, if the faults demand it. A frame whose checksum the NIC fills in is not
    /// corrupted, because the corrupt bytes would get a correct checksum, which no network does.
    fn flip(frame_faults: &FrameFaults, mbuf: &mut Mbuf, offload: Offload) -> Option<Flip> {
        if offload.has(Offload::IP_CHECKSUM) || offload.has(Offload::L4_CHECKSUM) {
            return None;
        }
        Flip::apply(mbuf, frame_faults.corruption?)
    }

    /// Counts the faults of an accepted frame: those drawn, and those applied.
    fn count(&self, frame_faults: &FrameFaults, twin: bool, flip: bool, held_back: bool) {
        if frame_faults.duplication {
            self.tally.count(&self.tally.duplicated, twin);
        }
        if frame_faults.corruption.is_some() {
            self.tally.count(&self.tally.corrupted, flip);
        }
        match frame_faults.hold {
            Hold::No => {}
            Hold::For(_) => self.tally.count(&self.tally.delayed, held_back),
            Hold::Behind(_) => self.tally.count(&self.tally.reordered, held_back),
        }
    }

    /// Posts the frame to the inner device, or holds it back.
    fn forward(&mut self, posted: Posted, hold: Hold) -> Result<(), Posted> {
        if hold != Hold::No && !self.held_back.is_full() {
            self.held_back.push(posted, hold, self.now, self.taken + 1, self.draws.faults().delay_max);
            return Ok(());
        }
        self.post_inner(posted)
    }

    fn post_inner(&mut self, posted: Posted) -> Result<(), Posted> {
        let Posted { mbuf, offload, stamp } = posted;
        self.inner.post(mbuf, offload).map_err(|mbuf| Posted { mbuf, offload, stamp })?;
        if let Some(number) = stamp {
            self.stamps.posted(number);
        }
        Ok(())
    }

    /// The full ring that the faults demand begins after a doorbell.
    fn begin_stall(&mut self) {
        if self.stall_next > 0 {
            // The worker reaps before it posts: one more, so that the shortest stall has an effect.
            self.stalled = self.stall_next + 1;
            self.stall_next = 0;
        }
    }

    /// Sends held-back frames that are due, as long as the inner ring accepts them.
    fn release(&mut self, now: Instant) {
        self.now = now;
        while let Some(posted) = self.held_back.take_due(self.now, self.taken, false) {
            if let Err(posted) = self.post_inner(posted) {
                self.held_back.push(posted, Hold::No, self.now, self.taken, self.draws.faults().delay_max);
                return;
            }
        }
    }
}

impl<T: TxQueue> TxQueue for FaultTx<T> {
    fn post(&mut self, mut mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if self.stalled > 0 {
            self.ring_full.inc();
            return Err(mbuf);
        }
        let frame_faults = self.draws.of(self.taken);
        if frame_faults.loss {
            self.take(&frame_faults, offload);
            self.drops.count(FaultTxDrop::Loss);
            mbuf.free();
            return Ok(());
        }
        let twin = self.twin(&frame_faults, &mbuf);
        let flip = Self::flip(&frame_faults, &mut mbuf, offload);
        let held_back = !self.held_back.is_full();
        let stamp = offload.has(Offload::TIMESTAMP).then(|| self.stamps.next());
        if let Err(Posted { mut mbuf, .. }) = self.forward(Posted { mbuf, offload, stamp }, frame_faults.hold) {
            // The worker gets its frame back unchanged, and the frame keeps its number and faults.
            if let Some(flip) = flip {
                flip.toggle(&mut mbuf);
            }
            if let Some(twin) = twin {
                self.stock.give_back(twin);
            }
            return Err(mbuf);
        }
        self.take(&frame_faults, offload);
        self.count(&frame_faults, twin.is_some(), flip.is_some(), held_back);
        if let Some(mbuf) = twin {
            let offload = offload.without(Offload::TIMESTAMP);
            let twin = Posted { mbuf, offload, stamp: None };
            self.held_back.push(twin, Hold::No, self.now, self.taken, self.draws.faults().delay_max);
        }
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Instant) {
        self.release(now);
        self.inner.ring_doorbell(now);
        self.begin_stall();
    }

    fn defer_doorbell(&mut self, now: Instant) -> Option<Arc<dyn Doorbell>> {
        self.release(now);
        let doorbell = self.inner.defer_doorbell(now);
        self.begin_stall();
        doorbell
    }

    fn reap(&mut self) -> usize {
        self.stalled = self.stalled.saturating_sub(1);
        self.inner.reap()
    }

    fn room(&mut self) -> usize {
        if self.stalled > 0 { 0 } else { self.inner.room() }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held_back.len()
    }

    fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        while let Some(TxTimestamp { sequence, at }) = self.inner.take_timestamp() {
            if let Some(sequence) = self.stamps.translate(sequence) {
                return Some(TxTimestamp { sequence, at });
            }
        }
        None
    }

    // Each frame passes through `post`, which applies the faults; a preposted one would not.
    forward!(
        inner: dry_run, has_timestamps, refresh_counters;
        by_default: post_urgent, post_unmarked, post_burst, prepost, preposted, fire_preposted
    );
}

impl<T> Drop for FaultTx<T> {
    fn drop(&mut self) {
        while let Some(posted) = self.held_back.pop() {
            posted.mbuf.free();
        }
    }
}
