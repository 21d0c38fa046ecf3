//! The send half: mbufs become descriptors of the tx ring, and the completion ring frees them.

use core::sync::atomic::{Ordering, fence};
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::doorbell::KICK_BATCH;
use super::gate::Gate;
use super::rings::in_flight::{Completed, InFlight};
use super::rings::ring::{ConsumerRing, Desc, MORE, ProducerRing};
use super::rings::socket::{SEGMENTS_MAX, Statistics};
use super::rings::sys;
use super::rings::umem::Umem;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{Doorbell, Offload, TxQueue};
use crate::mem::Mbuf;
use crate::time::Instant;

crate::drop_reasons! {
    /// Why a posted frame is dropped.
    pub(crate) enum AfXdpTxDrop {
        /// Longer than the interface's frames.
        TooLong => "too_long",
        /// Shorter than an Ethernet header.
        TooShort => "too_short",
        /// A chain of more buffers than kernel or driver accept.
        TooManySegments => "too_many_segments",
        /// Asks for a checksum, segmentation or a VLAN tag, which AF_XDP does not support.
        OffloadUnsupported => "offload_unsupported",
        /// Bytes that are not in the pool that the queue was opened with.
        ForeignBuffer => "foreign_buffer",
        /// In flight when the interface went away.
        InterfaceGone => "interface_gone",
    }
}

/// Completions per `reap` at most: bounded work, and more than a turn of the loop posts.
const REAP_MAX: usize = 256;
/// System calls by which a dropped half sends its last frames.
const LAST_KICKS: usize = 64;
const ETHERNET_LEN: usize = 14;

/// The send half of a queue. `ring_doorbell`, and the post of an urgent frame, make a system call
/// when the kernel needs one: in copy mode once for all posted frames (once per 32 frames before
/// Linux 6.17), in zero-copy mode when the driver sleeps. The first post makes another system call
/// if the queue was not polled before, so that answers do not go to the kernel. For the same reason
/// the queue reports no room until all taken queues of the port receive.
pub struct AfXdpTx {
    umem: Rc<Umem>,
    gate: Rc<Gate>,
    tx: ProducerRing<Desc>,
    completion: ConsumerRing<u64>,
    in_flight: InFlight,
    frame_len_max: usize,
    segments_max: usize,
    unpublished: bool,
    kernel: Statistics,
    counters: TxCounters,
    drops: Drops<AfXdpTxDrop>,
}

struct TxCounters {
    frames: Counter,
    bytes: Counter,
    ring_full: Counter,
    /// Frames refused because the kernel would have received their answers: not all taken queues of
    /// the port receive yet.
    refused_before_ready: Counter,
    /// System calls that woke the kernel.
    wakeups: Counter,
    /// Frames that did not wait for the doorbell. In copy mode each costs one more system call.
    urgent: Counter,
    /// Refused wakeups: the link is down, or the driver's ring or the socket's buffer is full. They
    /// are repeated with the next doorbell; posted frames wait in the ring.
    wakeups_refused: Counter,
    /// Completions of an address that was not in flight.
    completions_invalid: Counter,
    /// Descriptors that the kernel refused.
    kernel_invalid_descs: Counter,
    kernel_ring_empty: Counter,
    ring_faults: Counter,
}

impl AfXdpTx {
    pub(super) fn new(
        (umem, gate): (Rc<Umem>, Rc<Gate>),
        (tx, completion): (ProducerRing<Desc>, ConsumerRing<u64>),
        frame_len_max: usize,
        segments_max: usize,
        scope: &Scope,
    ) -> Self {
        let scope = scope.scope("tx");
        let counters = TxCounters {
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            ring_full: scope.counter("ring_full", Unit::Events),
            refused_before_ready: scope.counter("refused_before_ready", Unit::Frames),
            wakeups: scope.counter("wakeups", Unit::Events),
            urgent: scope.counter("urgent", Unit::Frames),
            wakeups_refused: scope.counter("wakeups_refused", Unit::Events),
            completions_invalid: scope.counter("completions_invalid", Unit::Events),
            kernel_invalid_descs: scope.counter("kernel_invalid_descs", Unit::Events),
            kernel_ring_empty: scope.counter("kernel_ring_empty", Unit::Events),
            ring_faults: scope.counter("ring_faults", Unit::Events),
        };
        Self {
            in_flight: InFlight::new(umem.geometry(), tx.len()),
            umem,
            gate,
            tx,
            completion,
            frame_len_max,
            segments_max: segments_max.min(SEGMENTS_MAX),
            unpublished: false,
            kernel: Statistics::default(),
            counters,
            drops: scope.tx_drops(),
        }
    }

    /// Maximum number of buffers of a frame.
    pub fn segments_max(&self) -> usize {
        self.segments_max
    }

    /// Drops a frame that can never be sent.
    #[cold]
    fn refuse(&mut self, mbuf: Mbuf, reason: AfXdpTxDrop) -> Result<(), Mbuf> {
        self.drops.count(reason);
        mbuf.free();
        Ok(())
    }

    #[cold]
    fn full(&self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.counters.ring_full.inc();
        Err(mbuf)
    }

    #[cold]
    fn refuse_before_ready(&self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.counters.refused_before_ready.inc();
        Err(mbuf)
    }

    /// Posts a frame of several buffers: a descriptor each, all but the last with the flag that
    /// more follow.
    fn post_chain(&mut self, mbuf: Mbuf, len: usize) -> Result<(), Mbuf> {
        let mut descs = ArrayVec::<Desc, SEGMENTS_MAX>::new();
        for segment in mbuf.segments().filter(|segment| !segment.is_empty()) {
            let Some(addr) = self.umem.geometry().addr_of(segment) else {
                return self.refuse(mbuf, AfXdpTxDrop::ForeignBuffer);
            };
            if descs.len() == self.segments_max {
                return self.refuse(mbuf, AfXdpTxDrop::TooManySegments);
            }
            descs.push(Desc { addr, len: segment.len() as u32, options: MORE });
        }
        if let Some(last) = descs.last_mut() {
            last.options = 0;
        }
        if self.in_flight.room() < descs.len() || !self.tx.has_room(descs.len() as u32) {
            return self.full(mbuf);
        }
        let addrs: ArrayVec<u64, SEGMENTS_MAX> = descs.iter().map(|desc| desc.addr).collect();
        descs.into_iter().for_each(|desc| self.tx.post(desc));
        self.posted(mbuf, len, &addrs);
        Ok(())
    }

    #[inline]
    fn posted(&mut self, mbuf: Mbuf, len: usize, addrs: &[u64]) {
        self.in_flight.post(mbuf, addrs);
        self.unpublished = true;
        self.counters.frames.inc();
        self.counters.bytes.add(len as u64);
    }

    /// Publishes the posted frames, and wakes the kernel.
    #[inline]
    fn ring(&mut self) {
        self.publish();
        if self.in_flight.frames() > 0 {
            self.kick();
        }
    }

    #[inline]
    fn publish(&mut self) {
        if self.unpublished {
            self.tx.publish();
            self.unpublished = false;
        }
    }

    /// Counts what the kernel has refused to a thread that rang without the queue.
    #[inline]
    fn note_refusal(&self) {
        if let Some(error) = self.umem.doorbell().take_refusal() {
            self.kick_refused(&error, 0);
        }
    }

    /// Wakes the kernel so that it processes the ring, as long as the ring needs a wakeup and makes
    /// progress.
    fn kick(&mut self) {
        if self.umem.is_forwarded() {
            // The broker sets its flag and then looks at the ring; so we look at the flag after the
            // ring was published.
            fence(Ordering::SeqCst);
        }
        let mut left = self.tx.unconsumed();
        for _ in 0..=left / KICK_BATCH {
            if left == 0 || !self.tx.needs_wakeup() {
                return;
            }
            self.counters.wakeups.inc();
            let kicked = sys::kick_tx(self.umem.socket().as_raw_fd());
            let still_left = self.tx.unconsumed();
            if let Err(error) = kicked {
                self.kick_refused(&error, left.saturating_sub(still_left));
            }
            if still_left >= left {
                return;
            }
            left = still_left;
        }
    }

    #[cold]
    fn kick_refused(&self, error: &io::Error, taken: u32) {
        match error.raw_os_error() {
            // The kernel stopped after its batch; the loop continues.
            Some(libc::EAGAIN) if taken > 0 => {}
            // No longer bound: the interface was removed, or moved to another network namespace.
            Some(libc::ENXIO | libc::ENODEV) => self.umem.set_gone(),
            _ => self.counters.wakeups_refused.inc(),
        }
    }

    /// The kernel will complete nothing any more: frames in flight are freed and counted as lost.
    #[cold]
    fn abandon(&mut self) -> usize {
        let frames = self.in_flight.frames();
        self.drops.count_many(AfXdpTxDrop::InterfaceGone, frames as u64);
        self.in_flight.take_all().into_iter().for_each(Mbuf::free);
        frames
    }

    /// Posts a frame that waits for the doorbell.
    #[inline]
    fn place(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if !self.gate.open() {
            return self.refuse_before_ready(mbuf);
        }
        let len = mbuf.len();
        if len > self.frame_len_max {
            return self.refuse(mbuf, AfXdpTxDrop::TooLong);
        }
        if len < ETHERNET_LEN {
            return self.refuse(mbuf, AfXdpTxDrop::TooShort);
        }
        if !offload.is_within(Offload::URGENT | Offload::TIMESTAMP) {
            return self.refuse(mbuf, AfXdpTxDrop::OffloadUnsupported);
        }
        if !mbuf.is_linear() {
            return self.post_chain(mbuf, len);
        }
        let Some(addr) = self.umem.geometry().addr_of(mbuf.bytes()) else {
            return self.refuse(mbuf, AfXdpTxDrop::ForeignBuffer);
        };
        if self.in_flight.room() == 0 || !self.tx.has_room(1) {
            return self.full(mbuf);
        }
        self.tx.post(Desc { addr, len: len as u32, options: 0 });
        self.posted(mbuf, len, &[addr]);
        Ok(())
    }
}

impl TxQueue for AfXdpTx {
    /// An urgent frame has been handed to the kernel when this returns, in copy mode also to the
    /// driver. If the kernel refuses (`wakeups_refused`: the link is down, the driver's ring is
    /// full), each doorbell tries again.
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.place(mbuf, offload)?;
        if offload.has(Offload::URGENT) {
            self.counters.urgent.inc();
            self.ring();
        }
        Ok(())
    }

    /// The descriptor is written to the next slot but not published: no system call is made.
    fn dry_run(&mut self, mbuf: Mbuf, _offload: Offload) {
        if mbuf.is_linear()
            && let Some(addr) = self.umem.geometry().addr_of(mbuf.bytes())
            && self.in_flight.room() > 0
            && self.tx.has_room(1)
        {
            self.tx.write(Desc { addr, len: mbuf.len() as u32, options: 0 });
        }
        mbuf.free();
    }

    #[inline]
    fn ring_doorbell(&mut self, _now: Instant) {
        self.ring();
    }

    /// A broker's part is done here, since its flag is looked at with the ring.
    #[inline]
    fn defer_doorbell(&mut self, now: Instant) -> Option<Arc<dyn Doorbell>> {
        if self.umem.is_forwarded() {
            self.ring_doorbell(now);
            return None;
        }
        self.publish();
        let left = self.tx.unconsumed();
        if left == 0 || !self.tx.needs_wakeup() {
            return None;
        }
        self.counters.wakeups.inc();
        let doorbell = self.umem.doorbell();
        doorbell.expect(left);
        Some(Arc::clone(doorbell) as Arc<dyn Doorbell>)
    }

    #[inline]
    fn reap(&mut self) -> usize {
        if self.in_flight.frames() == 0 {
            return 0;
        }
        self.note_refusal();
        if self.umem.is_gone() {
            return self.abandon();
        }
        let (mut frames, mut taken) = (0, 0);
        while taken < REAP_MAX {
            let Some(addr) = self.completion.take() else { break };
            taken += 1;
            match self.in_flight.complete(addr) {
                Completed::Frame => frames += 1,
                Completed::Part => {}
                Completed::Unknown => self.counters.completions_invalid.inc(),
            }
        }
        if taken > 0 {
            self.completion.give_back();
        }
        frames
    }

    /// Counts frames of one buffer. Reaps first, because only completions make room.
    fn room(&mut self) -> usize {
        self.reap();
        if self.gate.open() { self.in_flight.room() } else { 0 }
    }

    fn in_flight(&self) -> usize {
        self.in_flight.frames()
    }

    /// One system call.
    fn refresh_counters(&mut self) {
        let Some(now) = Statistics::read(&self.umem) else { return };
        let new = now.since(&core::mem::replace(&mut self.kernel, now));
        self.counters.kernel_invalid_descs.add(new.tx_invalid_descs);
        self.counters.kernel_ring_empty.add(new.tx_ring_empty);
        self.counters.ring_faults.add(self.tx.faults() + self.completion.faults() - self.counters.ring_faults.get());
    }
}

impl Drop for AfXdpTx {
    /// Posted frames leave as far as the kernel accepts them.
    fn drop(&mut self) {
        self.tx.publish();
        for _ in 0..LAST_KICKS {
            if self.tx.unconsumed() == 0 || self.umem.is_gone() {
                break;
            }
            self.kick();
        }
        self.reap();
        self.umem.keep(self.in_flight.take_all().into_iter());
    }
}
