//! From an mbuf to a WQE: which form a frame takes, and what is refused or dropped.

use super::Mlx5Tx;
use crate::device::Offload;
use crate::device::mlx5::send::shape::{self, HEADER_LEN_MAX, Tag, WqeShape};
use crate::device::mlx5::send::sq::Load;
use crate::device::mlx5::send::wqe::{self, HEADER_DS, Opcode};
use crate::mem::{Burst, Mbuf};

impl Mlx5Tx {
    /// Posts a frame that does not join the open multi-packet WQE or run.
    #[inline(never)]
    pub(super) fn post_other(&mut self, mut mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if self.refuses && self.still_refuses() {
            return self.refuse(mbuf);
        }
        let alone = self.sq.is_rung() || offload.has(Offload::URGENT);
        if !alone && self.is_plain(offload) && self.open_many(offload) {
            match self.sq.push_multi(mbuf, offload, self.plain_lens) {
                Ok(()) => return Ok(()),
                Err(back) => mbuf = back,
            }
        }
        self.sq.close_multi();
        let inline = alone && self.sq.free_blocks() >= 2 * self.inline_blocks_max;
        if mbuf.is_linear() && self.is_ordinary(offload) && self.plain_lens.contains(mbuf.bytes().len() as u32) {
            self.post_linear(mbuf, offload, inline)?;
        } else {
            self.post_any(mbuf, offload, inline)?;
        }
        if offload.has(Offload::URGENT) {
            self.ring();
        }
        Ok(())
    }

    /// Ensures that further frames with these offloads can be appended, in the form that the device
    /// has for many. Returns whether they can.
    #[inline(always)]
    fn open_many(&mut self, offload: Offload) -> bool {
        if self.has_multi {
            return self.sq.open_multi(offload);
        }
        self.limits.inline_len_min == 0 && self.sq.open_run(offload)
    }

    /// Posts a frame in one buffer, without offloads except checksums.
    #[inline(always)]
    fn post_linear(&mut self, mbuf: Mbuf, offload: Offload, inline: bool) -> Result<(), Mbuf> {
        let len = mbuf.bytes().len();
        if inline && (self.limits.inline_len_min..=self.limits.inline_len_max).contains(&len) {
            let units = self.sq.write_inline(offload.checksums(), None, mbuf.bytes());
            mbuf.free();
            let stamp = self.stamp(offload);
            self.sq.post(Opcode::Send, units, Load { frames: 1, mbufs: 0 }, len as u32, stamp);
            return Ok(());
        }
        if self.limits.inline_len_min > 0 || !shape::is_inside(mbuf.bytes(), &self.region) {
            return self.post_any(mbuf, offload, inline);
        }
        if self.sq.free_blocks() == 0 {
            return self.full(mbuf);
        }
        let stamp = self.stamp(offload);
        self.sq.post_pointer(mbuf, offload.checksums(), stamp);
        Ok(())
    }

    /// Posts chains, tags, payloads to be segmented, headers that must be inline; drops frames that
    /// can never be sent.
    #[inline(never)]
    fn post_any(&mut self, mbuf: Mbuf, offload: Offload, inline: bool) -> Result<(), Mbuf> {
        let shape = match shape::of(&mbuf, offload, &self.limits, &self.region, inline) {
            Ok(shape) => shape,
            Err(reason) => {
                self.stamp(offload);
                if !self.sq.is_dry_run() {
                    self.drops.count(reason);
                }
                mbuf.free();
                return Ok(());
            }
        };
        if wqe::blocks(shape.units) > self.sq.free_blocks() {
            return self.full(mbuf);
        }
        let mut idx = self.write_header(&mbuf, &shape);
        let len = mbuf.len() + shape.tag.len();
        if shape.has_pointers {
            for bytes in shape::behind(&mbuf, shape.inline_len) {
                self.sq.write_pointer(idx, bytes);
                idx += 1;
            }
            self.sq.keep(mbuf);
        } else {
            mbuf.free();
        }
        let opcode = if shape.segment_len.is_some() { Opcode::Segment } else { Opcode::Send };
        let stamp = self.stamp(offload);
        let load = Load { frames: 1, mbufs: shape.has_pointers.into() };
        self.sq.post(opcode, shape.units, load, len as u32, stamp);
        Ok(())
    }

    /// Writes the Ethernet segment; returns the unit behind it.
    fn write_header(&mut self, mbuf: &Mbuf, shape: &WqeShape) -> u32 {
        match shape.tag {
            Tag::ByDevice(tci) => self.sq.write(1, wqe::ethernet_tagging(shape.checksums, tci)),
            Tag::None if shape.header_len == 0 => self.sq.write(1, wqe::ethernet(shape.checksums)),
            Tag::None | Tag::Inline(_) => {
                let mut header = [0; HEADER_LEN_MAX];
                shape.gather(mbuf, &mut header);
                return self.sq.write_inline(shape.checksums, shape.segment_len, &header[..shape.header_len]);
            }
        }
        HEADER_DS
    }

    /// The sequence number of a frame that asks for a timestamp.
    #[inline(always)]
    fn stamp(&mut self, offload: Offload) -> Option<u64> {
        offload.has(Offload::TIMESTAMP).then(|| self.timestamps.next_sequence())
    }

    #[cold]
    fn refuse(&self, mbuf: Mbuf) -> Result<(), Mbuf> {
        if self.failed { &self.counters.refused_in_error } else { &self.counters.refused_before_ready }.inc();
        Err(mbuf)
    }

    #[cold]
    fn full(&self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.counters.ring_full.inc();
        Err(mbuf)
    }

    /// Whether a multi-packet WQE supports these offloads.
    #[inline(always)]
    pub(super) fn is_plain(&self, offload: Offload) -> bool {
        offload.is_within(self.checksum_flags)
    }

    /// Whether the frame is sent unchanged, by a separate WQE.
    #[inline(always)]
    fn is_ordinary(&self, offload: Offload) -> bool {
        offload.is_within(self.checksum_flags | Offload::TIMESTAMP | Offload::URGENT)
    }

    /// Posts frames in multi-packet WQEs as long as they are plain and there is room.
    #[inline(never)]
    pub(super) fn post_multi_burst(&mut self, burst: &mut Burst, offload: Offload) {
        while self.sq.open_multi(offload) {
            let taken = self.sq.push_multi_front_of(burst, self.plain_lens);
            if burst.is_empty() || taken == 0 {
                return;
            }
        }
    }

    /// Posts frames in separate WQEs as long as they are plain and there is room.
    #[inline(never)]
    pub(super) fn post_plain_burst(&mut self, burst: &mut Burst, checksums: u8) {
        self.sq.close_multi();
        while self.sq.post_front_of(burst, checksums, self.plain_lens) > 0 && !burst.is_empty() {}
    }

    #[inline]
    pub(super) fn ring(&mut self) {
        if self.sq.ring_doorbell() {
            self.note_rung();
        }
    }

    #[inline(always)]
    pub(super) fn note_rung(&mut self) {
        self.counters.doorbells.inc();
        let sent = self.sq.take_sent();
        self.counters.frames.add(sent.frames);
        self.counters.bytes.add(sent.bytes);
    }
}
