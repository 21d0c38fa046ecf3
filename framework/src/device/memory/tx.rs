//! The send half: short frames and chains are copied into the ring, and their mbufs are freed at
//! once; long frames are lent to the other side, and freed after it has copied them. A packet to be
//! segmented leaves as frames whose headers are copied and whose payload is lent.

use core::num::NonZeroU16;
use core::ops::RangeInclusive;

use super::device::MemoryConfig;
use super::ring::{COPIED_LEN_MAX, LendingProducer, Producer};
use super::segmentation::{Headers, TAG_OFFSET, finish, tag};
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::tx_timestamps::TxTimestamps;
use crate::device::{Offload, TxQueue, TxTimestamp};
use crate::mem::{Mbuf, SHORT_MIN, copy_segments};
use crate::time::{Instant, UnixTime};
use crate::wire::vlan::TAG_LEN;

crate::drop_reasons! {
    /// Why a posted frame is dropped.
    pub(crate) enum MemoryTxDrop {
        /// Longer than the port's frames, or to be segmented into more frames than the ring has.
        TooLong => "too_long",
        /// The frame asks for a checksum or for segmentation, which this device does not support at
        /// all or not for such a frame.
        OffloadUnsupported => "offload_unsupported",
    }
}

/// Lengths of the frames that are copied in pieces.
const SHORT_LENS: RangeInclusive<u32> = SHORT_MIN as u32..=COPIED_LEN_MAX as u32;

/// The send half of a memory port. A short frame costs a copy.
pub struct MemoryTx {
    producer: LendingProducer,
    frame_len_max: usize,
    /// Longer frames take the slow path: all frames do while the ring is set full.
    usual_len_max: usize,
    slots: u32,
    /// Requested offloads that are skipped: the checksum, if the other side does not verify it.
    skipped: Offload,
    segments: bool,
    refusing: bool,
    frames: Counter,
    bytes: Counter,
    ring_full: Counter,
    /// Frames that asked for a timestamp: their sequence numbers until the doorbell with which they
    /// leave, then the times.
    asking: Vec<u64>,
    timestamps: TxTimestamps,
    timestamps_lost: Counter,
    drops: Drops<MemoryTxDrop>,
}

impl MemoryTx {
    pub(super) fn new(producer: Producer, config: &MemoryConfig, scope: &Scope) -> Self {
        let scope = scope.scope("tx");
        Self {
            producer: LendingProducer::new(producer),
            frame_len_max: config.frame_len_max,
            usual_len_max: config.frame_len_max,
            slots: config.ring_len(),
            skipped: Offload::L4_CHECKSUM.when(config.skips_checksums),
            segments: config.segments,
            refusing: false,
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            ring_full: scope.counter("ring_full", Unit::Events),
            asking: Vec::with_capacity(config.ring_len() as usize),
            timestamps: TxTimestamps::new(),
            timestamps_lost: scope.counter("timestamps_lost", Unit::Events),
            drops: scope.tx_drops(),
        }
    }

    /// Makes the ring behave as if full, until reset.
    pub fn set_ring_full(&mut self, refusing: bool) {
        self.refusing = refusing;
        self.usual_len_max = if refusing { 0 } else { self.frame_len_max };
    }

    /// Drops a frame that can never be sent.
    fn refuse(&mut self, mbuf: Mbuf, reason: MemoryTxDrop) {
        self.drops.count(reason);
        mbuf.free();
    }
}

impl MemoryTx {
    /// Posts every frame off the fast path: tagged, over several buffers, with offloads, too long,
    /// or for a full ring.
    #[inline(never)]
    fn post_other(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if offload.has(Offload::TIMESTAMP) {
            return self.post_asking(mbuf, offload);
        }
        if let Some(segment_len) = offload.segment_len().filter(|_| self.segments) {
            return self.post_segments(mbuf, offload, segment_len);
        }
        let tag_len = if offload.vlan().is_some() { TAG_LEN } else { 0 };
        let len = mbuf.len() + tag_len;
        if len > self.frame_len_max || (tag_len > 0 && mbuf.bytes().len() < TAG_OFFSET) {
            self.refuse(mbuf, MemoryTxDrop::TooLong);
            return Ok(());
        }
        let needed = offload.without(self.skipped);
        let checksums = needed.has(Offload::IP_CHECKSUM) || needed.has(Offload::L4_CHECKSUM);
        let is_to_finish = checksums || needed.segment_len().is_some();
        if is_to_finish && !self.segments {
            self.refuse(mbuf, MemoryTxDrop::OffloadUnsupported);
            return Ok(());
        }
        let slot = if self.refusing { None } else { self.producer.slot() };
        let Some(mut slot) = slot else {
            self.ring_full.inc();
            return Err(mbuf);
        };
        gather(&mbuf, offload.vlan(), slot.bytes_mut());
        if is_to_finish && !finish(&mut slot.bytes_mut()[..len], &mbuf, needed) {
            self.refuse(mbuf, MemoryTxDrop::OffloadUnsupported);
            return Ok(());
        }
        slot.post(len);
        self.end(mbuf, len);
        Ok(())
    }

    /// Posts a frame that asks for a timestamp. A dropped one takes a sequence number too.
    #[cold]
    #[inline(never)]
    fn post_asking(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let before = self.frames.get();
        self.post_other(mbuf, offload.without(Offload::TIMESTAMP))?;
        let number = self.timestamps.next_sequence();
        if self.frames.get() == before {
            return Ok(());
        }
        if self.asking.len() < self.asking.capacity() {
            self.asking.push(number);
        } else {
            self.timestamps_lost.inc();
        }
        Ok(())
    }

    /// Stamps the frames that leave now.
    #[cold]
    fn note_departures(&mut self, now: Instant) {
        for number in self.asking.drain(..) {
            if !self.timestamps.push((number, now.as_nanos())) {
                self.timestamps_lost.inc();
            }
        }
    }

    /// Posts a packet to be segmented.
    fn post_segments(&mut self, mbuf: Mbuf, offload: Offload, segment_len: NonZeroU16) -> Result<(), Mbuf> {
        let Some((mut headers, cut)) = Headers::of(&mbuf, offload, segment_len, self.skipped == Offload::NONE) else {
            self.refuse(mbuf, MemoryTxDrop::OffloadUnsupported);
            return Ok(());
        };
        let payload_len = mbuf.len() - cut.headers_len;
        let longest = cut.head_len + cut.segment_len.min(payload_len);
        if longest > self.frame_len_max || cut.count > self.slots {
            self.refuse(mbuf, MemoryTxDrop::TooLong);
            return Ok(());
        }
        if self.refusing {
            self.ring_full.inc();
            return Err(mbuf);
        }
        let mut left = cut.count;
        let posted = self.producer.post_cut(mbuf, cut, |place, payload| {
            left -= 1;
            headers.write_next(place, payload, left == 0);
        });
        match posted {
            Ok(()) => {
                self.frames.add(cut.count.into());
                self.bytes.add((payload_len + cut.count as usize * cut.head_len) as u64);
            }
            Err(_) => self.ring_full.inc(),
        }
        posted
    }

    /// Posts an urgent frame that is long, very short, a chain, or that needs a fresh read of the
    /// ring's state.
    #[inline(never)]
    fn post_urgent_other(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        let posted = self.post_complete(mbuf);
        self.producer.publish();
        posted
    }

    /// Posts a frame that is urgent, or that has offloads.
    #[inline(never)]
    fn post_with_wishes(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let posted = match offload.is_within(self.skipped | Offload::URGENT) {
            true => self.post_complete(mbuf),
            false => self.post_other(mbuf, offload),
        };
        if offload.has(Offload::URGENT) {
            self.producer.publish();
        }
        posted
    }

    /// Posts a frame without offloads. A short frame in one buffer is handled inline, so that no
    /// call spills registers.
    #[inline(always)]
    fn post_complete(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        let len = mbuf.bytes().len();
        if !mbuf.is_linear() || len > self.usual_len_max {
            return self.post_unusual(mbuf);
        }
        match self.producer.known_slot() {
            // Compared in 32 bits, the width of the mbuf's field: so the compiler knows that no
            // piece is longer than the frame.
            Some(slot) if SHORT_LENS.contains(&(len as u32)) => {
                let is_posted = slot.post_copy(mbuf.bytes());
                debug_assert!(is_posted, "a slot has room for a short frame");
                self.end(mbuf, len);
                Ok(())
            }
            _ => self.post_long(mbuf),
        }
    }

    /// Posts a linear frame without offloads that is longer, or very short, or that needs a fresh
    /// read of the ring's state.
    #[inline(never)]
    fn post_long(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        let len = mbuf.bytes().len();
        let lent = if len > COPIED_LEN_MAX { self.producer.post_lent(mbuf) } else { Err(mbuf) };
        match lent {
            Ok(()) => {
                self.count(len);
                Ok(())
            }
            Err(mbuf) => self.post_other(mbuf, Offload::NONE),
        }
    }

    /// Posts a frame without offloads that is a chain, or too long. The offload word is made here,
    /// not on the caller's stack.
    #[inline(never)]
    fn post_unusual(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.post_other(mbuf, Offload::NONE)
    }

    /// Frees the buffer of a posted frame.
    #[inline(always)]
    fn end(&self, mbuf: Mbuf, frame_len: usize) {
        // Last, so that no register is occupied by it meanwhile.
        self.count(frame_len);
        mbuf.free();
    }

    #[inline(always)]
    fn count(&self, frame_len: usize) {
        self.frames.inc();
        self.bytes.add(frame_len as u64);
    }
}

impl TxQueue for MemoryTx {
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if !offload.is_within(self.skipped) {
            return self.post_with_wishes(mbuf, offload);
        }
        self.post_complete(mbuf)
    }

    #[inline]
    fn post_urgent(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        let len = mbuf.bytes().len();
        match self.producer.known_slot() {
            Some(slot) if mbuf.is_linear() && len <= self.usual_len_max && SHORT_LENS.contains(&(len as u32)) => {
                let is_posted = slot.post_copy(mbuf.bytes());
                debug_assert!(is_posted, "a slot has room for a short frame");
                self.producer.publish();
                self.end(mbuf, len);
                Ok(())
            }
            _ => self.post_urgent_other(mbuf),
        }
    }

    /// The frame is written into the next slot if it would be copied.
    fn dry_run(&mut self, mbuf: Mbuf, _offload: Offload) {
        if mbuf.is_linear()
            && mbuf.len() <= self.frame_len_max
            && let Some(mut slot) = self.producer.slot()
        {
            slot.copy(mbuf.bytes());
        }
        mbuf.free();
    }

    #[inline]
    fn ring_doorbell(&mut self, now: Instant) {
        self.producer.publish();
        if !self.asking.is_empty() {
            self.note_departures(now);
        }
    }

    #[inline]
    fn reap(&mut self) -> usize {
        self.producer.reap()
    }

    fn room(&mut self) -> usize {
        if self.refusing { 0 } else { self.producer.refresh_room() as usize }
    }

    fn in_flight(&self) -> usize {
        self.producer.lent_count()
    }

    fn has_timestamps(&self) -> bool {
        true
    }

    /// The time of the doorbell that the frame left with, with the worker's clock counted from the
    /// epoch.
    fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        let (sequence, ns) = self.timestamps.pop()?;
        Some(TxTimestamp { sequence, at: UnixTime::from_nanos(ns) })
    }

    fn refresh_counters(&mut self) {}
}

/// Writes the frame's segments one after the other, with the tag if requested.
#[inline]
fn gather(mbuf: &Mbuf, vlan: Option<u16>, slot: &mut [u8]) {
    let mut segments = mbuf.segments();
    let first = segments.next().unwrap_or(&[]);
    let at = tag(first, vlan, slot);
    copy_segments(segments, &mut slot[at..]);
}
