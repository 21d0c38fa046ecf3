//! Many frames at once: multi-packet WQEs, and runs and bursts of WQEs with a frame each. Only
//! *simple* mbufs (of the pool, linear, without a second handle) are accepted, so that a frame is
//! one pointer segment and is freed without a check.

use super::LenRange;
use super::Sq;
use super::at;
use super::ledger::Load;
use crate::device::Offload;
use crate::device::mlx5::send::wqe::{self, BLOCK_UNITS, HEADER_DS, Opcode, Unit};
use crate::mem::{Burst, Mbuf, Span};

/// The multi-packet WQE that is being filled, or the run of WQEs of a block each that is being
/// extended. It begins at `posted`, and is recorded as a whole when it is closed.
#[derive(Clone, Copy)]
pub(super) struct Multi {
    /// Units written; zero while none is open, and for a run without a frame.
    pub(super) used: u32,
    /// Maximum number of units; zero while none is open.
    limit: u32,
    /// Bytes of the frames in it.
    bytes: u32,
    /// The offloads of its frames: checksums.
    offload: Offload,
    /// Each frame has a WQE of its own.
    is_run: bool,
}

impl Multi {
    /// None is open.
    pub(super) const CLOSED: Self = Self { used: 0, limit: 0, bytes: 0, offload: Offload::NONE, is_run: false };
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
        self.multi = Multi { used: HEADER_DS, limit: units, bytes: 0, offload, is_run: false };
        // If the WQE stays without a frame, the ring does not advance.
        self.overwrite();
        self.write(1, wqe::ethernet(offload.checksums()));
        true
    }

    /// The same for a run of WQEs of a block each. It ends at the end of the ring, and where a WQE
    /// is to be signaled.
    #[inline(always)]
    pub(crate) fn open_run(&mut self, offload: Offload) -> bool {
        if self.multi.used < self.multi.limit && self.multi.offload == offload {
            return true;
        }
        self.close_multi();
        let room = self.plain_room();
        if room == 0 {
            return false;
        }
        self.multi = Multi { used: 0, limit: at(room), bytes: 0, offload, is_run: true };
        // Its WQEs are written before the ring advances.
        self.overwrite();
        true
    }

    /// Appends a simple frame to the open multi-packet WQE or run, if its length is in `lens`.
    /// Otherwise, and if none is open for these offloads, the frame is returned.
    #[inline(always)]
    pub(crate) fn push_multi(&mut self, mbuf: Mbuf, offload: Offload, lens: LenRange) -> Result<(), Mbuf> {
        if self.multi.used >= self.multi.limit || self.multi.offload != offload {
            return Err(mbuf);
        }
        let position = at(self.posted).wrapping_add(self.multi.used);
        let (units, multi, key, number) = (&mut self.units, &mut self.multi, self.key, self.number);
        self.in_flight.push_simple(mbuf, |Span { addr, len }| {
            if !lens.contains(len) {
                return false;
            }
            multi.bytes += len;
            let pointer = wqe::pointer(len, key, addr);
            if multi.is_run {
                let idx = (position / BLOCK_UNITS) as u16;
                units.write(position, wqe::control(Opcode::Send, idx, number, HEADER_DS + 1, false));
                units.write(position.wrapping_add(1), wqe::ethernet(offload.checksums()));
                units.write(position.wrapping_add(2), pointer);
                multi.used += BLOCK_UNITS;
            } else {
                units.write(position, pointer);
                multi.used += 1;
            }
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

    /// Posts the open multi-packet WQE or run; discards one without a frame.
    #[inline(always)]
    pub(crate) fn close_multi(&mut self) {
        if self.multi.limit > 0 {
            self.post_multi();
        }
    }

    #[inline(never)]
    fn post_multi(&mut self) {
        self.close_run();
        if let Some((units, load, bytes)) = self.take_multi() {
            self.post(Opcode::MultiPacket, units, load, bytes, None);
        }
    }

    /// Posts the open run.
    #[inline(always)]
    pub(super) fn close_run(&mut self) {
        if self.multi.is_run {
            let Multi { used, bytes, .. } = core::mem::replace(&mut self.multi, Multi::CLOSED);
            self.book_plain(used / BLOCK_UNITS, bytes.into());
        }
    }

    /// Units, load and bytes of the open multi-packet WQE, if it has a frame. No run is open.
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
    /// their lengths are in `lens`. Returns their number. No multi-packet WQE or run may be open.
    #[inline(always)]
    pub(crate) fn post_front_of(&mut self, burst: &mut Burst, checksums: u8, lens: LenRange) -> usize {
        let (first, room) = (self.posted, self.plain_room());
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
        self.book_plain(count as u32, bytes);
        count
    }

    /// WQEs of a block each that may follow up to the end of the ring, and up to the one that is to
    /// be signaled.
    #[inline(always)]
    fn plain_room(&self) -> u32 {
        let unsignaled = self.posted.wrapping_sub(self.signaled);
        let until_signal = self.signal_every - unsignaled.min(self.signal_every - 1);
        self.free_blocks().min(self.units.until_end(at(self.posted)) / BLOCK_UNITS).min(until_signal)
    }

    /// Records `count` WQEs of a block each, which are written and at most as many as
    /// [`plain_room`](Self::plain_room).
    #[inline(always)]
    fn book_plain(&mut self, count: u32, bytes: u64) {
        if count == 0 {
            return;
        }
        self.ledger.note_plain(self.posted, count as usize);
        self.posted = self.posted.wrapping_add(count);
        self.last = self.posted.wrapping_sub(1);
        self.sent.frames += u64::from(count);
        self.sent.bytes += bytes;
        if self.posted.wrapping_sub(self.signaled) >= self.signal_every {
            self.signal_last();
        }
    }
}
