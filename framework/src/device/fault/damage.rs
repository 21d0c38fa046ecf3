//! Changes to a frame's bytes: copies and bit flips.

use std::cell::RefCell;

use arrayvec::ArrayVec;

use crate::mem::{ChecksumStatus, Mbuf, Pool, RxInfo};

/// A flipped bit, to be flipped back if the frame is refused after all.
#[derive(Clone, Copy)]
pub(super) struct Flip {
    idx: usize,
    mask: u8,
}

impl Flip {
    /// Flips a bit of the first segment. `None` if the segment is empty, or another handle shares
    /// the bytes: a retransmission must not inherit the damage.
    pub(super) fn apply(mbuf: &mut Mbuf, number: u64) -> Option<Self> {
        let len = mbuf.bytes().len();
        if len == 0 || !mbuf.is_writable() {
            return None;
        }
        let bit = (number % (len as u64 * 8)) as usize;
        let flip = Self { idx: bit / 8, mask: 1 << (bit % 8) };
        flip.toggle(mbuf);
        Some(flip)
    }

    /// Flips the bit (back).
    pub(super) fn toggle(self, mbuf: &mut Mbuf) {
        mbuf.bytes_mut()[self.idx] ^= self.mask;
    }
}

/// Resets the checksum status, which the NIC determined from other bytes.
pub(super) fn forget_verdicts(mbuf: &mut Mbuf) {
    let info = RxInfo { ip_checksum: ChecksumStatus::Unknown, l4_checksum: ChecksumStatus::Unknown, ..mbuf.rx_info() };
    mbuf.set_rx_info(&info);
}

/// Makes a fresh mbuf a linear copy of `frame` with its metadata; the mbuf is returned if it is too
/// small.
pub(super) fn copy(frame: &Mbuf, mut into: Mbuf) -> Result<Mbuf, Mbuf> {
    let Some(mut room) = into.append(frame.len()) else { return Err(into) };
    for segment in frame.segments() {
        let (here, rest) = room.split_at_mut(segment.len());
        here.copy_from_slice(segment);
        room = rest;
    }
    into.set_rx_info(&frame.rx_info());
    into.set_interface(frame.interface());
    into.set_l2_len(frame.l2_len());
    into.set_l3_len(frame.l3_len());
    Ok(into)
}

/// Spare mbufs for the send half, which has no pool; the receive half refills them.
pub(super) struct Stock {
    spare: RefCell<ArrayVec<Mbuf, STOCK_MAX>>,
    wanted: usize,
}

/// Maximum number of duplicates between two calls of `receive`.
const STOCK_MAX: usize = 16;

impl Stock {
    /// A pool for duplicates if `wanted`; otherwise one that stays empty and takes no buffer.
    pub(super) fn new(wanted: bool) -> Self {
        Self { spare: RefCell::new(ArrayVec::new()), wanted: if wanted { STOCK_MAX } else { 0 } }
    }

    /// Refills the stock, but leaves at least as many buffers as it takes: a stock that emptied a
    /// small pool would stop receive.
    pub(super) fn fill(&self, pool: &Pool) {
        let mut spare = self.spare.borrow_mut();
        while spare.len() < self.wanted && pool.available() > spare.len() + 1 {
            spare.extend(pool.alloc());
        }
    }

    pub(super) fn take(&self) -> Option<Mbuf> {
        self.spare.borrow_mut().pop()
    }

    /// Takes back an unused mbuf, empty or not.
    pub(super) fn give_back(&self, mut mbuf: Mbuf) {
        mbuf.trim_to(0);
        match self.spare.borrow_mut().try_push(mbuf) {
            Ok(()) => {}
            Err(full) => full.element().free(),
        }
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.spare.get_mut().drain(..).for_each(Mbuf::free);
    }
}
