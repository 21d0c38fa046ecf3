//! A list of connections, first in, first out, each at most once: two links a connection, allocated
//! at the start. A second list of other connections uses the same links.

use crate::proto::slab::NIL;

#[derive(Debug)]
pub(crate) struct SlotList {
    links: Box<[ListNode]>,
    ends: [Ends; 2],
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    head: u32,
    tail: u32,
}

impl Ends {
    const NONE: Self = Self { head: NIL, tail: NIL };
}

#[derive(Clone, Copy, Debug)]
struct ListNode {
    next: u32,
    prev: u32,
}

/// `prev` of a slot in no list.
const OUT: u32 = NIL - 1;

impl SlotList {
    /// Bytes of an entry in a list.
    pub(crate) const ENTRY_LEN: usize = size_of::<ListNode>();

    /// For slots below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { links: vec![ListNode { next: NIL, prev: OUT }; capacity].into_boxed_slice(), ends: [Ends::NONE; 2] }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ends[0].head == NIL
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        let head = self.ends[0].head;
        (head != NIL).then_some(head)
    }

    /// Appends a slot, if it is in neither list.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32) {
        self.push_to(0, slot);
    }

    /// Moves a slot to the end of the second list.
    pub(crate) fn defer(&mut self, slot: u32) {
        self.remove(slot);
        self.push_to(1, slot);
    }

    /// The first of the second list.
    pub(crate) fn first_aside(&self) -> Option<u32> {
        let head = self.ends[1].head;
        (head != NIL).then_some(head)
    }

    /// The second list, from its first on.
    pub(crate) fn aside(&self) -> impl Iterator<Item = u32> {
        let next = |&slot: &u32| Some(self.links[slot as usize].next).filter(|&next| next != NIL);
        core::iter::successors(self.first_aside(), next)
    }

    #[inline]
    fn push_to(&mut self, list: usize, slot: u32) {
        if self.links[slot as usize].prev != OUT {
            return;
        }
        let ends = &mut self.ends[list];
        self.links[slot as usize] = ListNode { next: NIL, prev: ends.tail };
        match ends.tail {
            NIL => ends.head = slot,
            tail => self.links[tail as usize].next = slot,
        }
        ends.tail = slot;
    }

    /// Takes a slot out, if it is in a list.
    pub(crate) fn remove(&mut self, slot: u32) {
        let ListNode { next, prev } = self.links[slot as usize];
        if prev == OUT {
            return;
        }
        self.links[slot as usize].prev = OUT;
        for ends in &mut self.ends {
            if ends.head == slot {
                ends.head = next;
            }
            if ends.tail == slot {
                ends.tail = prev;
            }
        }
        if prev != NIL {
            self.links[prev as usize].next = next;
        }
        if next != NIL {
            self.links[next as usize].prev = prev;
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
            seen.push(slot);
            list.remove(slot);
        }
        assert_eq!(seen, [2, 3, 0]);
        assert!(list.is_empty());
    }

    #[test]
    fn slot_is_in_one_of_the_two_lists() {
        let mut list = SlotList::new(4);
        [0, 1, 2].into_iter().for_each(|slot| list.push(slot));
        list.defer(1);
        list.defer(0);
        list.push(1);
        assert_eq!((list.first(), list.first_aside()), (Some(2), Some(1)));
        list.defer(1);
        assert_eq!(list.first_aside(), Some(0));
        [0, 1, 2].into_iter().for_each(|slot| list.remove(slot));
        assert!(list.is_empty() && list.first_aside().is_none());
    }
}
