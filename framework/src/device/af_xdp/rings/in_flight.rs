//! Frames that the kernel has to send. A completion gives only an address. This file finds the
//! frame, in any order of completions, even if other frames have bytes of the same chunk in flight
//! (a retransmitted view of a held packet).
//!
//! ```text
//!  chunk of the address ──▶ head ──▶ slot ──▶ slot     one slot a descriptor; those of one chunk are a list
//!                                      └─ frame ──▶ slot of the frame's first descriptor: the mbuf, descriptors left
//! ```

use super::umem::Geometry;
use crate::mem::Mbuf;

/// No slot.
const NONE: u32 = u32::MAX;

/// One descriptor.
struct Slot {
    addr: u64,
    /// The next slot of the same chunk, or the next free one.
    next: u32,
    /// The slot with the frame's mbuf.
    frame: u32,
    /// In that slot: incomplete descriptors of the frame.
    left: u32,
    mbuf: Option<Mbuf>,
}

/// The result of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completed {
    /// The last descriptor of a frame: its mbuf has been freed.
    Frame,
    /// A part of a frame whose other parts are still in flight.
    Part,
    /// An address that is not in flight.
    Unknown,
}

/// All frames in flight.
pub(crate) struct InFlight {
    geometry: Geometry,
    heads: Box<[u32]>,
    slots: Box<[Slot]>,
    free: u32,
    free_count: usize,
    frames: usize,
}

impl InFlight {
    /// For as many descriptors as the tx ring has, and also the completion ring: so neither
    /// overflows.
    pub(crate) fn new(geometry: Geometry, ring_len: u32) -> Self {
        let next = |idx| if idx + 1 < ring_len { idx + 1 } else { NONE };
        Self {
            geometry,
            heads: vec![NONE; geometry.chunks()].into(),
            slots: (0..ring_len).map(|idx| Slot { addr: 0, next: next(idx), frame: 0, left: 0, mbuf: None }).collect(),
            free: 0,
            free_count: ring_len as usize,
            frames: 0,
        }
    }

    /// Descriptors that can still be posted.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.free_count
    }

    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// Records a frame whose descriptors have these addresses. Panics if there is no room for them.
    #[inline]
    pub(crate) fn post(&mut self, mbuf: Mbuf, addrs: &[u64]) {
        let frame = self.free;
        for &addr in addrs {
            let idx = self.free;
            let chunk = self.geometry.chunk(addr).expect("an address that was checked");
            let slot = &mut self.slots[idx as usize];
            self.free = slot.next;
            (slot.addr, slot.frame, slot.next) = (addr, frame, self.heads[chunk]);
            self.heads[chunk] = idx;
        }
        self.free_count -= addrs.len();
        self.frames += 1;
        let first = &mut self.slots[frame as usize];
        (first.left, first.mbuf) = (addrs.len() as u32, Some(mbuf));
    }

    /// Processes a completion; frees the mbuf of a finished frame.
    #[inline]
    pub(crate) fn complete(&mut self, addr: u64) -> Completed {
        let Some(idx) = self.unlink(addr) else { return Completed::Unknown };
        let frame = self.slots[idx as usize].frame;
        if idx != frame {
            self.give_back(idx);
        }
        let first = &mut self.slots[frame as usize];
        first.left -= 1;
        if first.left > 0 {
            return Completed::Part;
        }
        if let Some(mbuf) = first.mbuf.take() {
            mbuf.free();
        }
        self.give_back(frame);
        self.frames -= 1;
        Completed::Frame
    }

    /// Removes the slot of `addr` from its chunk's list. Nearly always it is the first.
    #[inline]
    fn unlink(&mut self, addr: u64) -> Option<u32> {
        let chunk = self.geometry.chunk(addr)?;
        let mut before = NONE;
        let mut idx = self.heads[chunk];
        while idx != NONE && self.slots[idx as usize].addr != addr {
            before = idx;
            idx = self.slots[idx as usize].next;
        }
        if idx == NONE {
            return None;
        }
        let next = self.slots[idx as usize].next;
        match before {
            NONE => self.heads[chunk] = next,
            before => self.slots[before as usize].next = next,
        }
        Some(idx)
    }

    #[inline]
    fn give_back(&mut self, idx: u32) {
        self.slots[idx as usize].next = self.free;
        self.free = idx;
        self.free_count += 1;
    }

    /// Takes all mbufs, because the kernel's side is gone or closing. Afterwards no frame is in
    /// flight.
    pub(crate) fn take_all(&mut self) -> Vec<Mbuf> {
        let mbufs = self.slots.iter_mut().filter_map(|slot| slot.mbuf.take()).collect();
        *self = Self::new(self.geometry, self.slots.len() as u32);
        mbufs
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mem::{Layout, Pool, Region};

    fn pool() -> Pool {
        let layout = Layout::umem(2048);
        Pool::new(Arc::new(Region::heap(layout.region_len(8)).unwrap()), layout).unwrap()
    }

    fn in_flight(pool: &Pool) -> InFlight {
        InFlight::new(Geometry::of(pool), 4)
    }

    fn addr(pool: &Pool, mbuf: &Mbuf) -> u64 {
        Geometry::of(pool).addr_of(mbuf.bytes()).unwrap()
    }

    #[test]
    fn frames_come_home_in_any_order() {
        let pool = pool();
        let mut sent = in_flight(&pool);
        let addrs: Vec<u64> = (0..4)
            .map(|_| {
                let mbuf = pool.alloc_copy(&[1; 60]).unwrap();
                let addr = addr(&pool, &mbuf);
                sent.post(mbuf, &[addr]);
                addr
            })
            .collect();
        assert_eq!((sent.room(), sent.frames()), (0, 4));
        for idx in [2, 0, 3, 1] {
            assert_eq!(sent.complete(addrs[idx]), Completed::Frame);
        }
        assert_eq!((sent.room(), sent.frames(), pool.in_use(), pool.drops_without_reason()), (4, 0, 0, 0));
    }

    #[test]
    fn address_that_is_not_in_flight_changes_nothing() {
        let pool = pool();
        let mut sent = in_flight(&pool);
        let mbuf = pool.alloc_copy(&[1; 60]).unwrap();
        let addr = addr(&pool, &mbuf);
        sent.post(mbuf, &[addr]);
        for wrong in [addr + 1, addr + 2048, u64::MAX] {
            assert_eq!(sent.complete(wrong), Completed::Unknown);
        }
        assert_eq!((sent.complete(addr), sent.complete(addr)), (Completed::Frame, Completed::Unknown));
    }

    #[test]
    fn chain_comes_home_with_its_last_descriptor() {
        let pool = pool();
        let mut sent = in_flight(&pool);
        let (mut head, rest) = (pool.alloc_copy(&[1; 60]).unwrap(), pool.alloc_copy(&[2; 60]).unwrap());
        let addrs = [addr(&pool, &head), addr(&pool, &rest)];
        head.attach(rest);
        sent.post(head, &addrs);
        assert_eq!((sent.complete(addrs[1]), sent.frames(), pool.in_use()), (Completed::Part, 1, 2));
        assert_eq!((sent.complete(addrs[0]), sent.room(), pool.in_use()), (Completed::Frame, 4, 0));
    }

    #[test]
    fn one_chunk_may_be_in_flight_twice() {
        let pool = pool();
        let mut sent = in_flight(&pool);
        let first = pool.alloc_copy(&[1; 60]).unwrap();
        let again = pool.view(first.hold()).unwrap();
        let addr = addr(&pool, &first);
        sent.post(first, &[addr]);
        sent.post(again, &[addr]);
        assert_eq!((sent.complete(addr), sent.complete(addr)), (Completed::Frame, Completed::Frame));
        assert_eq!((sent.complete(addr), pool.in_use()), (Completed::Unknown, 0));
    }

    #[test]
    fn what_is_taken_all_at_once_leaves_room_for_all() {
        let pool = pool();
        let mut sent = in_flight(&pool);
        let mbuf = pool.alloc_copy(&[1; 60]).unwrap();
        let addr = addr(&pool, &mbuf);
        sent.post(mbuf, &[addr]);
        sent.take_all().into_iter().for_each(Mbuf::free);
        assert_eq!((sent.room(), sent.frames(), pool.in_use(), pool.drops_without_reason()), (4, 0, 0, 0));
    }
}
