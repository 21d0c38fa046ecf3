//! The sending half: short frames and chains are copied into the ring, and their mbufs go home at once; long frames are lent to the other
//! side, and go home when they were received there.

use super::device::MemoryConfig;
use super::ring::{COPIED_LEN_MAX, Lender, Producer};
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{Offload, TxQueue};
use crate::mem::Mbuf;
use crate::time::Instant;

crate::drop_reasons! {
    /// Why a posted frame does not go onto the wire.
    pub enum MemoryTxDrop {
        /// Longer than the port's frames.
        TooLong => "too_long",
        /// Asks for a checksum or for segmentation, which this device does not do.
        OffloadUnsupported => "offload_unsupported",
    }
}

/// Bytes of an 802.1Q tag, and where it goes: behind the two addresses.
const TAG_LEN: usize = 4;
const TAG_OFFSET: usize = 12;

/// The sending half of a memory port. A short frame costs a copy.
pub struct MemoryTx {
    producer: Lender,
    frame_len_max: usize,
    skips_checksums: bool,
    refusing: bool,
    frames: Counter,
    bytes: Counter,
    ring_full: Counter,
    drops: Drops<MemoryTxDrop>,
}

impl MemoryTx {
    pub(super) fn new(producer: Producer, config: &MemoryConfig, scope: &Scope) -> Self {
        let scope = scope.scope("tx");
        Self {
            producer: Lender::new(producer),
            frame_len_max: config.frame_len_max,
            skips_checksums: config.skips_checksums,
            refusing: false,
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            ring_full: scope.counter("ring_full", Unit::Events),
            drops: scope.drops(),
        }
    }

    /// Behaves as if the ring were full until told otherwise.
    pub fn set_refusing(&mut self, refusing: bool) {
        self.refusing = refusing;
    }

    /// Ends a frame that can never be sent.
    fn refuse(&mut self, mbuf: Mbuf, reason: MemoryTxDrop) {
        self.drops.count(reason);
        mbuf.free();
    }
}

impl MemoryTx {
    /// Every frame that is not as usual: tagged, over several buffers, with wishes, too long, or for a full ring.
    #[inline(never)]
    fn post_other(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let tag_len = if offload.vlan.is_some() { TAG_LEN } else { 0 };
        let len = mbuf.len() + tag_len;
        if len > self.frame_len_max || (tag_len > 0 && mbuf.bytes().len() < TAG_OFFSET) {
            self.refuse(mbuf, MemoryTxDrop::TooLong);
            return Ok(());
        }
        if self.wants_work(offload) {
            self.refuse(mbuf, MemoryTxDrop::OffloadUnsupported);
            return Ok(());
        }
        let slot = if self.refusing { None } else { self.producer.slot() };
        let Some(mut slot) = slot else {
            self.ring_full.inc();
            return Err(mbuf);
        };
        gather(&mbuf, offload.vlan, slot.bytes_mut());
        slot.post(len);
        self.end(mbuf, len);
        Ok(())
    }

    #[inline(always)]
    fn wants_work(&self, offload: Offload) -> bool {
        offload.ip_checksum || offload.segment_len.is_some() || (offload.l4_checksum && !self.skips_checksums)
    }

    /// A linear frame without wishes that is longer, for a ring that is not refused.
    #[inline(never)]
    fn post_long(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        let len = mbuf.bytes().len();
        match self.producer.post_lent(mbuf) {
            Ok(()) => {
                self.count(len);
                Ok(())
            }
            Err(mbuf) => self.post_other(mbuf, Offload::default()),
        }
    }

    /// Sends the buffer of a posted frame home.
    #[inline(always)]
    fn end(&self, mbuf: Mbuf, frame_len: usize) {
        mbuf.free();
        self.count(frame_len);
    }

    #[inline(always)]
    fn count(&self, frame_len: usize) {
        self.frames.inc();
        self.bytes.add(frame_len as u64);
    }
}

impl TxQueue for MemoryTx {
    /// A linear frame without wishes is nearly every one, and goes straight on its way; a short one without a call, so that nothing is to
    /// be saved for it.
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let len = mbuf.bytes().len();
        let is_usual =
            mbuf.is_linear() && len <= self.frame_len_max && offload.vlan.is_none() && !self.wants_work(offload);
        if !is_usual || self.refusing {
            return self.post_other(mbuf, offload);
        }
        if len > COPIED_LEN_MAX {
            return self.post_long(mbuf);
        }
        let Some(slot) = self.producer.slot() else { return self.post_other(mbuf, offload) };
        slot.post_copy(mbuf.bytes());
        self.end(mbuf, len);
        Ok(())
    }

    /// The frame is written into the slot that the next one takes.
    fn rehearse(&mut self, mbuf: Mbuf, _offload: Offload) {
        if mbuf.is_linear()
            && mbuf.len() <= self.frame_len_max
            && let Some(mut slot) = self.producer.slot()
        {
            slot.copy(mbuf.bytes());
        }
        mbuf.free();
    }

    #[inline]
    fn ring_doorbell(&mut self, _now: Instant) {
        self.producer.publish();
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

    fn refresh_counters(&mut self) {}
}

/// Writes the frame's segments one behind the other, with the tag where it is asked for.
#[inline]
fn gather(mbuf: &Mbuf, vlan: Option<u16>, slot: &mut [u8]) {
    let mut segments = mbuf.segments();
    let first = segments.next().unwrap_or(&[]);
    let mut at = match vlan {
        None => {
            slot[..first.len()].copy_from_slice(first);
            first.len()
        }
        Some(tci) => {
            slot[..TAG_OFFSET].copy_from_slice(&first[..TAG_OFFSET]);
            slot[TAG_OFFSET..TAG_OFFSET + 2].copy_from_slice(&0x8100u16.to_be_bytes());
            slot[TAG_OFFSET + 2..TAG_OFFSET + TAG_LEN].copy_from_slice(&tci.to_be_bytes());
            slot[TAG_OFFSET + TAG_LEN..first.len() + TAG_LEN].copy_from_slice(&first[TAG_OFFSET..]);
            first.len() + TAG_LEN
        }
    };
    for segment in segments {
        slot[at..at + segment.len()].copy_from_slice(segment);
        at += segment.len();
    }
}
