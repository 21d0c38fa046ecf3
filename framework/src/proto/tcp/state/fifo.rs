//! Connections that wait for the end of the burst, first in, first out. A ring of numbers rather
//! than links in each connection: a push writes after the last entry, which is in the cache, and
//! touches no memory of a million connections.
//!
//! No entry is removed from the middle, but the last one may be taken back, for example for a
//! connection whose app has answered at once. The last entry is kept outside the ring until the
//! next push, so that a push that is taken back costs two stores; with many connections most are. A
//! connection that no longer waits, or is gone, still has its entry, and the caller of `pop` sees
//! that it is void. There is always room, because each slot is in the ring at most once, even where
//! another connection uses it meanwhile.

use crate::proto::slab::NIL;

#[derive(Debug)]
pub(crate) struct SlotFifo {
    /// The last slot pushed, which is not in the ring yet; or `NIL`.
    newest: u32,
    ring: Box<[u32]>,
    /// Slots in the ring, a bit each.
    is_in: Box<[u64]>,
    head: usize,
    len: usize,
}

impl SlotFifo {
    /// Bytes of a slot, its bit rounded up.
    pub(crate) const ENTRY_LEN: usize = size_of::<u32>() + 1;

    /// For slots below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            newest: NIL,
            ring: vec![NIL; capacity].into_boxed_slice(),
            is_in: vec![0; capacity.div_ceil(64)].into_boxed_slice(),
            head: 0,
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.newest == NIL && self.len == 0
    }

    /// The last entry: where a bounded walk stops.
    #[inline]
    pub(crate) fn last(&self) -> Option<u32> {
        match self.newest {
            NIL if self.len == 0 => None,
            NIL => Some(self.ring[self.wrap(self.head + self.len - 1)]),
            newest => Some(newest),
        }
    }

    /// Whether a slot was pushed.
    #[inline(always)]
    pub(crate) fn has(&self, slot: u32) -> bool {
        slot == self.newest || self.is_in[slot as usize / 64] & bit(slot) != 0
    }

    /// Pushes a slot, unless it is in the ring.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32) {
        if self.has(slot) {
            return;
        }
        if self.newest != NIL {
            self.append(self.newest);
        }
        self.newest = slot;
    }

    #[inline(always)]
    fn append(&mut self, slot: u32) {
        self.is_in[slot as usize / 64] |= bit(slot);
        let behind = self.wrap(self.head + self.len);
        self.ring[behind] = slot;
        self.len += 1;
    }

    /// Takes back the slot that was pushed last, once. Returns whether it was this one.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, slot: u32) -> bool {
        let was_last = self.newest == slot;
        if was_last {
            self.newest = NIL;
        }
        was_last
    }

    /// Takes the first out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            let newest = core::mem::replace(&mut self.newest, NIL);
            return (newest != NIL).then_some(newest);
        }
        let slot = self.ring[self.head];
        self.is_in[slot as usize / 64] &= !bit(slot);
        self.head = self.wrap(self.head + 1);
        self.len -= 1;
        Some(slot)
    }

    /// The index of a position up to twice around.
    #[inline]
    fn wrap(&self, at: usize) -> usize {
        if at < self.ring.len() { at } else { at - self.ring.len() }
    }
}

/// The bit of a slot in its word.
#[inline(always)]
fn bit(slot: u32) -> u64 {
    1 << (slot % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_once_in_their_order_around_the_end() {
        let mut fifo = SlotFifo::new(3);
        for _ in 0..4 {
            [2, 0, 2, 1, 0].into_iter().for_each(|slot| fifo.push(slot));
            assert_eq!((fifo.last(), fifo.pop()), (Some(1), Some(2)));
            fifo.push(2);
            assert_eq!(fifo.last(), Some(2));
            let rest: Vec<_> = core::iter::from_fn(|| fifo.pop()).collect();
            assert_eq!(rest, [0, 1, 2]);
            assert!(fifo.is_empty() && fifo.last().is_none());
            // The next lap begins elsewhere in the ring.
            fifo.push(0);
            assert_eq!(fifo.pop(), Some(0));
        }
    }

    #[test]
    fn last_may_be_taken_back_and_nobody_else() {
        let mut fifo = SlotFifo::new(2);
        assert!(!fifo.take_back(0));
        fifo.push(1);
        fifo.push(0);
        assert!(!fifo.take_back(1) && fifo.take_back(0) && !fifo.take_back(0));
        fifo.push(0);
        assert_eq!([fifo.pop(), fifo.pop(), fifo.pop()], [Some(1), Some(0), None]);
        assert!(fifo.is_empty());
    }

    #[test]
    fn fifo_of_no_slots_is_empty() {
        assert_eq!(SlotFifo::new(0).pop(), None);
    }
}
