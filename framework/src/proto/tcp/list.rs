//! A list of connections, first in, first out, each at most once: two links a connection, taken at the start.

use crate::proto::slab::NIL;

#[derive(Debug)]
pub(super) struct SlotList {
    links: Box<[Link]>,
    head: u32,
    tail: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    prev: u32,
}

/// `prev` of who is in no list.
const OUT: u32 = NIL - 1;

impl SlotList {
    /// Bytes of a place in a list.
    pub(super) const ENTRY_LEN: usize = size_of::<Link>();

    /// For slots below `capacity`.
    pub(super) fn new(capacity: usize) -> Self {
        Self { links: vec![Link { next: NIL, prev: OUT }; capacity].into_boxed_slice(), head: NIL, tail: NIL }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    pub(super) fn first(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    /// The last: where a walk that must end stops.
    pub(super) fn last(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    /// Appends a slot, if it is not in the list.
    pub(super) fn push(&mut self, slot: u32) {
        if self.links[slot as usize].prev != OUT {
            return;
        }
        self.links[slot as usize] = Link { next: NIL, prev: self.tail };
        match self.tail {
            NIL => self.head = slot,
            tail => self.links[tail as usize].next = slot,
        }
        self.tail = slot;
    }

    /// Takes a slot out, if it is in the list.
    pub(super) fn remove(&mut self, slot: u32) {
        let Link { next, prev } = self.links[slot as usize];
        if prev == OUT {
            return;
        }
        self.links[slot as usize].prev = OUT;
        match prev {
            NIL => self.head = next,
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => self.links[next as usize].prev = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_once_in_their_order() {
        let mut list = SlotList::new(4);
        [2, 0, 2, 3].into_iter().for_each(|slot| list.push(slot));
        list.remove(0);
        list.remove(0);
        list.push(0);
        let mut seen = Vec::new();
        while let Some(slot) = list.first() {
            list.remove(slot);
            seen.push(slot);
        }
        assert_eq!(seen, [2, 3, 0]);
        assert!(list.is_empty() && list.last().is_none());
    }
}
