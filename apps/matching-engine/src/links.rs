//! Lists of orders that are apart from the queues of the prices: a book's pegged orders. Two links
//! for each place of the arena, in an array of their own, because few orders need them.

use crate::arena::{NONE, Slot};

/// A list, in the order in which its members came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: Slot,
    tail: Slot,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

/// The links of all lists of one kind: an order is in one of them at most.
#[derive(Debug)]
pub(crate) struct Links(Vec<[Slot; 2]>);

impl Links {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(vec![[NONE; 2]; capacity])
    }

    #[inline]
    pub(crate) fn next(&self, slot: Slot) -> Slot {
        self.0[slot as usize][1]
    }

    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, slot: Slot) {
        self.0[slot as usize] = [list.tail, NONE];
        match list.tail {
            NONE => list.head = slot,
            tail => self.0[tail as usize][1] = slot,
        }
        list.tail = slot;
    }

    #[inline]
    pub(crate) fn remove(&mut self, list: &mut List, slot: Slot) {
        let [prev, next] = self.0[slot as usize];
        match prev {
            NONE => list.head = next,
            prev => self.0[prev as usize][1] = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.0[next as usize][0] = prev,
        }
    }
}
