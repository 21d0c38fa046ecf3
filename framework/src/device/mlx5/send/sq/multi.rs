//! Many frames at once: multi-packet WQEs, and bursts of WQEs with a frame each. Only *simple*
//! mbufs (of the pool, linear, without a second handle) are accepted, so that a frame is one
//! pointer segment and is freed without a check.

use super::LenRange;
use super::Sq;
use super::at;
use super::ledger::Load;
use crate::device::Offload;
use crate::device::mlx5::send::wqe::{self, BLOCK_UNITS, HEADER_DS, Opcode, Unit};
use crate::mem::{Burst, Mbuf, Span};

/// The multi-packet WQE that is being filled, which begins at `posted`.
#[derive(Clone, Copy)]
pub(super) struct Multi {
    /// Units written; zero while none is open.
    pub(super) used: u32,
    /// Maximum number of units; zero while none is open.
    limit: u32,
    /// Bytes of the frames in it.
    bytes: u32,
    /// The offloads of its frames: checksums.
    offload: Offload,
}

impl Multi {
    /// None is open.
    pub(super) const CLOSED: Self = Self { used: 0, limit: 0, bytes: 0, offload: Offload::NONE };
}

impl Sq {
    /// Ensures that a multi-packet WQE with these checksum offloads, and no others, is open and has
    /// room. Returns whether one is open now.
    #[inline(always)]
    pub(crate) fn open_multi(&mut self, offload: Offload) -> bool {
        if self.multi.used < self.multi.limit && self.multi.offload == offload {
            return true;
        }
        self.close_multi();
        let units = (self.free_blocks() * BLOCK_UNITS).min(self.multi_units_max);
        if units == 0 {
            return false;
        }
        self.multi = Multi { used: HEADER_DS, limit: units, bytes: 0, offload };
        // If the WQE stays without a frame, the ring does not advance.
        self.overwrite();
        self.write(1, wqe::ethernet(offload.checksums()));
        true
    }

    /// Appends a simple frame to the open multi-packet WQE, if its length is in `lens`. Otherwise,
    /// and if no WQE is open for these offloads, the frame is returned.
    #[inline(always)]
    pub(crate) fn push_multi(&mut self, mbuf: Mbuf, offload: Offload, lens: LenRange) -> Result<(), Mbuf> {
        if self.multi.used >= self.multi.limit || self.multi.offload != offload {
            return Err(mbuf);
        }
        let position = at(self.posted).wrapping_add(self.multi.used);
        let (units, multi, key) = (&mut self.units, &mut self.multi, self.key);
        self.in_flight.push_simple(mbuf, |Span { addr, len }| {
            if !lens.contains(len) {
                return false;
            }
            multi.bytes += len;
            multi.used += 1;
            units.write(position, wqe::pointer(len, key, addr));
            true
        })
    }

    /// Appends simple frames from the front of `burst` to the open multi-packet WQE, as long as
    /// there is room and their lengths are in `lens`. Returns their number.
    #[inline(always)]
    pub(crate) fn push_multi_front_of(&mut self, burst: &mut Burst, lens: LenRange) -> usize {
        let position = at(self.posted).wrapping_add(self.multi.used);
        let room = (self.multi.limit - self.multi.used).min(self.units.until_end(position));
        let units = self.units.run(position, room);
        let key = self.key;
        let takes = move |len| lens.contains(len);
        let write = move |unit: &mut Unit, Span { addr, len }, _| *unit = wqe::pointer(len, key, addr);
        let (count, bytes) = self.in_flight.push_front_of(burst, units, takes, write);
        self.multi.bytes += bytes as u32;
        self.multi.used += count as u32;
        count
    }

    /// Posts the open multi-packet WQE; discards one without a frame.
    #[inline(always)]
    pub(crate) fn close_multi(&mut self) {
        if self.multi.used > 0 {
            self.post_multi();
        }
    }

    #[inline(never)]
    fn post_multi(&mut self) {
        if let Some((units, load, bytes)) = self.take_multi() {
            self.post(Opcode::MultiPacket, units, load, bytes, None);
        }
    }

    /// Units, load and bytes of the open multi-packet WQE, if it has a frame.
    #[inline(always)]
    pub(super) fn take_multi(&mut self) -> Option<(u32, Load, u32)> {
        let Multi { used, bytes, .. } = self.multi;
        if used == 0 {
            return None;
        }
        (self.multi.used, self.multi.limit) = (0, 0);
        if used == HEADER_DS {
            return None;
        }
        let count = (used - HEADER_DS) as u8;
        Some((used, Load { frames: count, mbufs: count }, bytes))
    }

    /// Posts simple frames from the front of `burst`, one WQE each, as long as there is room and
    /// their lengths are in `lens`. Returns their number. No multi-packet WQE may be open.
    #[inline(always)]
    pub(crate) fn post_front_of(&mut self, burst: &mut Burst, checksums: u8, lens: LenRange) -> usize {
        let first = self.posted;
        let unsignaled = first.wrapping_sub(self.signaled);
        let until_signal = self.signal_every - unsignaled.min(self.signal_every - 1);
        let room = self.free_blocks().min(self.units.until_end(at(first)) / BLOCK_UNITS).min(until_signal);
        let wqes = self.units.run(at(first), at(room)).as_chunks_mut::<{ BLOCK_UNITS as usize }>().0;
        let (key, number) = (self.key, self.number);
        let takes = move |len| lens.contains(len);
        let write = move |wqe: &mut [Unit; BLOCK_UNITS as usize], Span { addr, len }, idx: usize| {
            let idx = (first as u16).wrapping_add(idx as u16);
            wqe[0] = wqe::control(Opcode::Send, idx, number, HEADER_DS + 1, false);
            wqe[1] = wqe::ethernet(checksums);
            wqe[2] = wqe::pointer(len, key, addr);
        };
        let (count, bytes) = self.in_flight.push_front_of(burst, wqes, takes, write);
        if count > 0 {
            self.ledger.note_plain(first, count);
            self.posted = first.wrapping_add(count as u32);
            self.last = self.posted.wrapping_sub(1);
            self.sent.frames += count as u64;
            self.sent.bytes += bytes;
            if count as u32 == until_signal {
                self.signal_last();
            }
        }
        count
    }
}
