//! A preposted WQE: complete, in the next free blocks, but without a doorbell. The application has
//! decided on all but some of its bytes. To fire it, the caller writes these bytes, and rings.
//!
//! ```text
//!   rung             posted
//!   ──▶ [no doorbell] ──▶ [preposted WQE] free ..           not in the ledger
//! ```
//!
//! It has the index, the signal and the blocks of the next WQE, so any other post overwrites and
//! voids it. The void is recognized by the advance of the ring; code that writes to these blocks
//! without an advance calls [`Sq::overwrite`].

use super::Sq;
use super::at;
use super::ledger::Load;
use crate::device::Preposted;
use crate::device::mlx5::send::wqe::{self, BLOCK_UNITS, INLINE_OFFSET, Opcode};
use zerocopy::IntoBytes;

/// The preposted WQE.
#[derive(Clone, Copy)]
pub(super) struct PrepostedWqe {
    /// Its block in the lower bits, and above them the number of preposts so far. Zero: there is
    /// none.
    name: u64,
    number: u32,
    units: u32,
    /// Bytes of its frame.
    len: u32,
    is_signaled: bool,
}

impl PrepostedWqe {
    /// No WQE is preposted.
    pub(super) const NONE: Self = Self { name: 0, number: 0, units: 0, len: 0, is_signaled: false };
}

impl Sq {
    /// Preposts a WQE of the whole frame, of at least two bytes, in the next free blocks. `None` if
    /// the ring has no room for it. It must be contiguous: NOP WQEs fill the rest up to the end of
    /// the ring, and leave with the next doorbell.
    pub(crate) fn prepost(&mut self, frame: &[u8]) -> Option<Preposted> {
        self.close_multi();
        let units = 1 + wqe::ethernet_units(frame.len());
        let blocks = wqe::blocks(units);
        let until_end = self.units.until_end(at(self.posted)) / BLOCK_UNITS;
        let filler = if blocks > until_end { until_end } else { 0 };
        if filler + blocks > self.free_blocks() {
            return None;
        }
        (0..filler).for_each(|_| self.post(Opcode::Nop, 1, Load::default(), 0, None));
        let is_signaled = self.posted.wrapping_add(blocks).wrapping_sub(self.signaled) >= self.signal_every;
        self.write_inline(0, None, frame);
        self.write(0, wqe::control(Opcode::Send, self.posted as u16, self.number, units, is_signaled));
        let number = self.standing.number.wrapping_add(1).max(1);
        let name = u64::from(number) << 32 | u64::from(self.posted);
        self.standing = PrepostedWqe { name, number, units, len: frame.len() as u32, is_signaled };
        Preposted::new(name)
    }

    /// Whether this preposted WQE is still valid.
    #[inline(always)]
    pub(crate) fn has_preposted(&self, which: Preposted) -> bool {
        which.get() == self.standing.name && which.get() as u32 == self.posted
    }

    /// The frame of the preposted WQE.
    #[inline(always)]
    pub(crate) fn preposted_frame(&mut self) -> &mut [u8] {
        let PrepostedWqe { units, len, .. } = self.standing;
        let bytes = self.units.run(at(self.posted), units).as_mut_bytes();
        &mut bytes[INLINE_OFFSET..INLINE_OFFSET + len as usize]
    }

    /// Posts the preposted WQE, and rings. If no other WQE waits for the doorbell, the ledger is
    /// updated after it.
    #[inline(always)]
    pub(crate) fn fire_preposted_wqe(&mut self) {
        let PrepostedWqe { units, .. } = self.standing;
        let (first, end) = (self.posted, self.posted.wrapping_add(wqe::blocks(units)));
        let whole = at(wqe::blocks(units));
        if first != self.rung || whole > self.doorbell.blueflame_units() {
            self.book_standing();
            self.ring_doorbell();
            return;
        }
        self.doorbell.ring_blueflame(end as u16, self.units.run(at(first), whole), &[]);
        self.book_standing();
        self.rung = end;
    }

    #[inline(always)]
    fn book_standing(&mut self) {
        let PrepostedWqe { units, len, is_signaled, .. } = self.standing;
        self.book(units, Load { frames: 1, mbufs: 0 }, len);
        if is_signaled {
            self.ask(None);
        }
    }

    /// Another WQE overwrites a preposted one.
    #[inline(always)]
    pub(super) fn overwrite(&mut self) {
        self.standing.name = 0;
    }
}
