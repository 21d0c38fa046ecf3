//! The sending half: frames are copied into the ring, and the mbufs go home at once.

use super::ring::{BLOCK, Producer};
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

/// The sending half of a memory port. A frame costs a copy.
pub struct MemoryTx {
    producer: Producer,
    frame_len_max: usize,
    refusing: bool,
    frames: Counter,
    bytes: Counter,
    ring_full: Counter,
    drops: Drops<MemoryTxDrop>,
}

impl MemoryTx {
    pub(super) fn new(producer: Producer, frame_len_max: usize, scope: &Scope) -> Self {
        let scope = scope.scope("tx");
        Self {
            producer,
            frame_len_max,
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

impl TxQueue for MemoryTx {
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let tag_len = if offload.vlan.is_some() { TAG_LEN } else { 0 };
        let len = mbuf.len() + tag_len;
        if len > self.frame_len_max || (tag_len > 0 && mbuf.bytes().len() < TAG_OFFSET) {
            self.refuse(mbuf, MemoryTxDrop::TooLong);
            return Ok(());
        }
        if offload.ip_checksum || offload.l4_checksum || offload.segment_len.is_some() {
            self.refuse(mbuf, MemoryTxDrop::OffloadUnsupported);
            return Ok(());
        }
        let slot = if self.refusing { None } else { self.producer.slot() };
        let Some(mut slot) = slot else {
            self.ring_full.inc();
            return Err(mbuf);
        };
        match offload.vlan {
            None if mbuf.is_linear() => copy(slot.bytes_mut(), mbuf.bytes()),
            vlan => gather(&mbuf, vlan, slot.bytes_mut()),
        }
        slot.post(len);
        mbuf.free();
        self.frames.inc();
        self.bytes.add(len as u64);
        Ok(())
    }

    #[inline]
    fn ring_doorbell(&mut self, _now: Instant) {
        self.producer.publish();
    }

    fn reap(&mut self) -> usize {
        0
    }

    fn room(&mut self) -> usize {
        if self.refusing { 0 } else { self.producer.refresh_room() as usize }
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn refresh_counters(&mut self) {}
}

/// Copies a frame that is in one piece. Whole blocks are a few instructions each, the rest is a call.
#[inline]
fn copy(slot: &mut [u8], frame: &[u8]) {
    let (to, from) = (&mut slot[..frame.len()], frame);
    let ((to, to_rest), (from, from_rest)) = (to.as_chunks_mut::<BLOCK>(), from.as_chunks::<BLOCK>());
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
    if !from_rest.is_empty() {
        to_rest.copy_from_slice(from_rest);
    }
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
