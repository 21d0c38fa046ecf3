//! A queue of mbufs that are freed in the order in which they were pushed, many at a time: the
//! in-flight mbufs of a device with an ordered ring.
//!
//! Nearly all its mbufs are *simple*: from one pool, without a chain, view or second handle. One
//! comparison at push finds that out, so that freeing is a copy of handles onto the pool's stack:
//! one instruction per mbuf instead of a dozen.
//!
//! ```text
//!   tail ──▶ [mbuf] [mbuf] [mbuf] ──▶ head        slots: a power of two, positions run freely
//!            free_front ▲      ▲ push, pop_back
//! ```
//!
//! Invariants, beside those of [`metadata`](super::metadata), which are cited by their numbers with
//! an M:
//! 1. The slots of `tail .. head` hold mbufs, each owned by the queue; the others are empty.
//!    `head - tail` is at most the number of slots, which is a power of two.
//! 2. Every mbuf from `odd_end` (or `tail` if that is later) on was simple at its push: its `home`
//!    is `pool` and not marked, so its metadata is as the free list demands (M8). It is still
//!    simple, because its only handle is the one in the slot.
//! 3. `pool` is dereferenced only while an mbuf of that pool is in the queue, so it is alive (M1).

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::{self, NonNull};

use super::Burst;
use super::mbuf::Mbuf;
use super::metadata::Metadata;
use super::pool::{Pool, PoolInner};

/// Mbufs in the order in which they are freed.
pub(crate) struct Fifo {
    slots: Box<[MaybeUninit<Mbuf>]>,
    tail: u32,
    head: u32,
    /// Position behind the last mbuf that was not simple.
    odd_end: u32,
    pool: NonNull<PoolInner>,
}

/// Address and length of a simple mbuf's bytes, without the handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Address of the first byte.
    pub(crate) addr: u64,
    /// Number of bytes.
    pub(crate) len: u32,
}

impl Fifo {
    /// A queue for `capacity` mbufs, most of which come from `pool`. Panics if `capacity` is not a
    /// power of two.
    pub(crate) fn new(pool: &Pool, capacity: usize) -> Self {
        assert!(capacity.is_power_of_two() && capacity <= 1 << 31, "a line of {capacity} mbufs");
        let slots = (0..capacity).map(|_| MaybeUninit::uninit()).collect();
        Self { slots, tail: 0, head: 0, odd_end: 0, pool: pool.identity() }
    }

    /// Mbufs in the queue.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Mbufs pushed so far; a free-running position.
    #[inline(always)]
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Mbufs freed so far from the front; a free-running position.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// Pushes any mbuf. Panics if the queue is full.
    #[inline]
    pub(crate) fn push(&mut self, mbuf: Mbuf) {
        if !is_simple(&mbuf, self.pool) {
            self.odd_end = self.head.wrapping_add(1);
        }
        self.place(mbuf);
    }

    /// Pushes a simple mbuf if `write` returns true for its bytes; otherwise returns the mbuf.
    /// Panics if the queue is full.
    #[inline(always)]
    pub(crate) fn push_simple(&mut self, mbuf: Mbuf, write: impl FnOnce(Span) -> bool) -> Result<(), Mbuf> {
        if !is_simple(&mbuf, self.pool) || !write(span(&mbuf)) {
            return Err(mbuf);
        }
        self.place(mbuf);
        Ok(())
    }

    /// Pushes simple mbufs from the front of `burst`, one for each of `places`, as long as `takes`
    /// accepts their lengths. `write` receives a place, the bytes for it, and the number of mbufs
    /// before it. Returns the number of mbufs and of bytes. The rest of the burst moves up. It may
    /// stop early, so a caller with more mbufs calls it again until it takes none.
    #[inline(always)]
    pub(crate) fn push_front_of<P>(
        &mut self,
        burst: &mut Burst,
        places: &mut [P],
        takes: impl Fn(u32) -> bool,
        write: impl Fn(&mut P, Span, usize),
    ) -> (usize, u64) {
        let first = self.slot(self.head);
        let room = (self.slots.len() - first).min(self.slots.len() - self.len() as usize);
        let limit = places.len().min(burst.len()).min(room);
        // SAFETY: the burst, the places and the slots up to their end have that many entries. The
        // slots are empty (1). The queue owns the copied handles only once `head` has moved, and
        // then the burst no longer owns them.
        let (count, bytes) = unsafe {
            let slots = self.slots.as_mut_ptr().add(first).cast();
            copy_simple(burst.as_ptr(), slots, places.as_mut_ptr(), limit, self.pool, takes, write)
        };
        self.give_up_front(burst, count);
        (count, bytes)
    }

    /// Leaks all mbufs in place, because the NIC may still read their bytes; returns their number.
    /// Their pool's memory stays mapped.
    #[cold]
    pub(crate) fn leak(&mut self) -> u32 {
        let count = self.len();
        self.tail = self.head;
        count
    }

    /// Takes back the mbuf that was pushed last.
    pub(crate) fn pop_back(&mut self) -> Option<Mbuf> {
        if self.len() == 0 {
            return None;
        }
        self.head = self.head.wrapping_sub(1);
        if self.odd_end == self.head.wrapping_add(1) {
            // The removed mbuf was the last odd one, and the position of the previous odd one is
            // not recorded: any mbuf may be odd.
            self.odd_end = self.head;
        }
        let slot = self.slot(self.head);
        // SAFETY: the slot was inside `tail .. head` and no longer is (1).
        Some(unsafe { self.slots[slot].assume_init_read() })
    }

    /// Frees the `count` oldest mbufs. Panics if there are fewer.
    #[inline]
    pub(crate) fn free_front(&mut self, count: u32) {
        assert!(count <= self.len(), "more mbufs go home than are in the line");
        let has_odd = self.odd_end.wrapping_sub(self.tail).wrapping_sub(1) < self.len();
        if has_odd {
            return self.free_each(count);
        }
        if count == 0 {
            return;
        }
        let first = self.slot(self.tail);
        let until_end = (self.slots.len() - first).min(count as usize);
        self.tail = self.tail.wrapping_add(count);
        // Positions wrap, so `odd_end` must not seem to be ahead when the next mbuf is pushed.
        self.odd_end = self.tail;
        // SAFETY: 1, 2: the handles are the last ones of buffers whose metadata is as the free list
        // demands, and the slots are given up; 3: the buffers are of this pool, so it is alive.
        unsafe {
            let pool = self.pool.as_ref();
            pool.put_back_many(handles(&self.slots[first..first + until_end]));
            if until_end < count as usize {
                pool.put_back_many(handles(&self.slots[..count as usize - until_end]));
            }
        }
    }

    /// The same one by one, for a range with a chain, a view, a held mbuf or one of another pool.
    #[cold]
    #[inline(never)]
    fn free_each(&mut self, count: u32) {
        for _ in 0..count {
            let slot = self.slot(self.tail);
            self.tail = self.tail.wrapping_add(1);
            // SAFETY: the slot was inside `tail .. head` and no longer is (1).
            unsafe { self.slots[slot].assume_init_read() }.free();
        }
    }

    #[inline(always)]
    fn place(&mut self, mbuf: Mbuf) {
        assert!((self.len() as usize) < self.slots.len(), "the line is full");
        let slot = self.slot(self.head);
        self.slots[slot].write(mbuf);
        self.head = self.head.wrapping_add(1);
    }

    /// Removes the first `count` handles from the burst: they were copied behind `head`, and the
    /// queue owns them.
    #[inline(always)]
    fn give_up_front(&mut self, burst: &mut Burst, count: usize) {
        let left = burst.len() - count;
        // SAFETY: `count` is at most the length of the burst; the burst owns none of its handles
        // while those after them move up.
        unsafe {
            burst.set_len(0);
            if left > 0 && count > 0 {
                let first = burst.as_mut_ptr();
                ptr::copy(first.add(count), first, left);
            }
            burst.set_len(left);
        }
        self.head = self.head.wrapping_add(count as u32);
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> usize {
        position as usize & (self.slots.len() - 1)
    }
}

impl Drop for Fifo {
    /// Mbufs still in the queue are dropped, and the pool counts each as a drop without a reason.
    fn drop(&mut self) {
        while let Some(mbuf) = self.pop_back() {
            drop(mbuf);
        }
    }
}

/// Copies the handles of simple mbufs into slots, as long as `takes` accepts their lengths; returns
/// the number of mbufs and of bytes.
///
/// Not inlined, so that the loop has all registers.
///
/// # Safety
/// There are `limit` mbufs, slots and places. Of each copied handle, only the copy or the original
/// is used afterwards.
#[inline(never)]
unsafe fn copy_simple<P>(
    from: *const Mbuf,
    to: *mut Mbuf,
    places: *mut P,
    limit: usize,
    pool: NonNull<PoolInner>,
    takes: impl Fn(u32) -> bool,
    write: impl Fn(&mut P, Span, usize),
) -> (usize, u64) {
    let mut bytes = 0;
    let mut step = |idx: usize| {
        // SAFETY: `idx` is below `limit` (caller). A copy that is not written to a slot is not
        // dropped.
        unsafe {
            let mbuf = ManuallyDrop::new(ptr::read(from.add(idx)));
            let span = span(&mbuf);
            if !is_simple(&mbuf, pool) || !takes(span.len) {
                return false;
            }
            bytes += u64::from(span.len);
            to.cast::<ManuallyDrop<Mbuf>>().add(idx).write(mbuf);
            write(&mut *places.add(idx), span, idx);
        }
        true
    };
    let mut count = 0;
    // Eight per iteration, each of them checked: the compiler does not unroll a loop that may end
    // anywhere.
    'walk: {
        while limit - count >= 8 {
            for _ in 0..8 {
                if !step(count) {
                    break 'walk;
                }
                count += 1;
            }
        }
        while count < limit && step(count) {
            count += 1;
        }
    }
    (count, bytes)
}

/// Whether only the handle must be freed, and to this pool.
#[inline(always)]
fn is_simple(mbuf: &Mbuf, pool: NonNull<PoolInner>) -> bool {
    // SAFETY: initialized and alive (M1), shared while the mbuf is borrowed.
    unsafe { mbuf.0.as_ref() }.home.is_unmarked_of(pool)
}

#[inline(always)]
fn span(mbuf: &Mbuf) -> Span {
    Span { addr: mbuf.data_ptr().expose_provenance() as u64, len: mbuf.bytes().len() as u32 }
}

/// The handles in `slots` as the addresses of their buffers.
///
/// # Safety
/// All slots hold an mbuf.
#[inline(always)]
unsafe fn handles(slots: &[MaybeUninit<Mbuf>]) -> &[NonNull<Metadata>] {
    const { assert!(size_of::<Mbuf>() == size_of::<NonNull<Metadata>>()) };
    // SAFETY: an mbuf is one such pointer, and these are there (caller).
    unsafe { &*(ptr::from_ref(slots) as *const [NonNull<Metadata>]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Layout, Region};
    use std::sync::Arc;

    fn pool(buffers: usize) -> Pool {
        let layout = Layout::default();
        Pool::new(Arc::new(Region::heap(layout.region_len(buffers)).unwrap()), layout).unwrap()
    }

    fn mbuf(pool: &Pool, byte: u8) -> Mbuf {
        pool.alloc_copy(&[byte; 60]).unwrap()
    }

    /// No buffer is in use, and no mbuf was dropped without a reason.
    fn check_home(pool: &Pool) {
        assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
        let mut all: Vec<_> = core::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(all.len(), pool.capacity());
        let mut addrs: Vec<_> = all.iter().map(|mbuf| mbuf.data_ptr().addr()).collect();
        addrs.sort_unstable();
        addrs.dedup();
        assert_eq!(addrs.len(), pool.capacity(), "a buffer is on the free list twice");
        all.drain(..).for_each(Mbuf::free);
    }

    #[test]
    fn simple_mbufs_go_home_over_the_end_of_the_slots() {
        let pool = pool(8);
        let mut line = Fifo::new(&pool, 4);
        for turn in 0..10u8 {
            for byte in 0..3 {
                line.push(mbuf(&pool, turn + byte));
            }
            line.free_front(2);
            assert_eq!((line.len(), pool.in_use()), (1, 1));
            line.free_front(1);
        }
        check_home(&pool);
    }

    #[test]
    fn chains_views_held_and_foreign_mbufs_go_home_to_whom_they_belong() {
        let (own, other) = (pool(8), pool(2));
        let mut line = Fifo::new(&own, 8);
        let mut chain = mbuf(&own, 1);
        chain.attach(mbuf(&own, 2));
        let kept = mbuf(&own, 3);
        let held = kept.hold();
        let view = own.view(kept.hold()).unwrap();
        for mbuf in [mbuf(&own, 0), chain, kept, view, mbuf(&other, 5), mbuf(&own, 6)] {
            line.push(mbuf);
        }
        line.free_front(6);
        assert_eq!((own.in_use(), other.in_use()), (1, 0), "the held buffer is out");
        drop(held);
        check_home(&own);
        check_home(&other);
    }

    #[test]
    fn chain_goes_home_whole_also_where_one_behind_it_was_taken_out_again() {
        let pool = pool(8);
        let mut line = Fifo::new(&pool, 4);
        for _ in 0..2 {
            let mut chain = mbuf(&pool, 1);
            chain.attach(mbuf(&pool, 2));
            line.push(chain);
        }
        line.pop_back().unwrap().free();
        line.push(mbuf(&pool, 3));
        line.free_front(2);
        check_home(&pool);
    }

    #[test]
    fn mbuf_that_was_held_when_it_came_is_looked_at_when_it_goes() {
        let pool = pool(4);
        let mut line = Fifo::new(&pool, 4);
        let packet = mbuf(&pool, 1);
        let held = packet.hold();
        line.push(packet);
        line.push(mbuf(&pool, 2));
        drop(held);
        line.free_front(1);
        line.free_front(1);
        check_home(&pool);
    }

    #[test]
    fn mbuf_that_is_not_simple_comes_back_unseen() {
        let pool = pool(4);
        let mut line = Fifo::new(&pool, 4);
        let packet = mbuf(&pool, 1);
        let held = packet.hold();
        let back = line.push_simple(packet, |_| panic!("it was shown")).unwrap_err();
        drop(held);
        let back = line.push_simple(back, |span| span.len != 60).unwrap_err();
        assert_eq!(line.push_simple(back, |span| span.len == 60).map_err(|_| "came back"), Ok(()));
        line.free_front(1);
        check_home(&pool);
    }

    #[test]
    fn front_of_a_burst_is_taken_and_the_rest_moves_up() {
        let pool = pool(16);
        let mut line = Fifo::new(&pool, 16);
        for (places, refused, taken) in
            [(12, 99, 11), (12, 3, 3), (2, 99, 2), (5, 99, 5), (12, 8, 8), (9, 9, 9), (0, 0, 0)]
        {
            // From the first slot on, so that none of them is the last.
            (line.tail, line.head, line.odd_end) = (0, 0, 0);
            let frame = |idx| pool.alloc_copy(&vec![idx as u8; if idx == refused { 61 } else { 60 }]).unwrap();
            let mut burst: Burst = (0..11).map(frame).collect();
            let mut written = vec![99; places];
            let (count, bytes) =
                line.push_front_of(&mut burst, &mut written, |len| len == 60, |place, _, idx| *place = idx);
            assert_eq!((count, bytes), (taken, 60 * taken as u64));
            assert_eq!((burst.len(), line.len()), (11 - taken, taken as u32));
            assert!(written.iter().take(taken).copied().eq(0..taken));
            assert!(burst.iter().enumerate().all(|(idx, mbuf)| mbuf.bytes()[0] == (taken + idx) as u8));
            burst.drain(..).for_each(Mbuf::free);
            line.free_front(taken as u32);
        }
        check_home(&pool);
    }

    #[test]
    fn burst_goes_over_the_end_of_the_slots_in_two_steps() {
        let pool = pool(16);
        let mut line = Fifo::new(&pool, 8);
        for turn in 0..9u8 {
            let mut burst: Burst = (0..5).map(|byte| mbuf(&pool, turn + byte)).collect();
            while line.push_front_of(&mut burst, &mut [(); 3], |_| true, |_, _, _| ()).0 > 0 {}
            assert_eq!((burst.len(), line.len()), (0, 5));
            line.free_front(5);
        }
        check_home(&pool);
    }

    #[test]
    fn odd_mbuf_ends_a_burst_before_it() {
        let pool = pool(16);
        let mut line = Fifo::new(&pool, 16);
        let mut burst: Burst = (0..7).map(|byte| mbuf(&pool, byte)).collect();
        let held = burst[5].hold();
        assert_eq!(line.push_front_of(&mut burst, &mut [(); 7], |_| true, |_, _, _| ()).0, 5);
        assert_eq!((burst.len(), burst[0].bytes()[0]), (2, 5));
        drop(held);
        assert_eq!(line.push_front_of(&mut burst, &mut [(); 7], |_| true, |_, _, _| ()).0, 2, "it is simple again");
        line.free_front(7);
        check_home(&pool);
    }

    #[test]
    fn last_comes_out_first_from_the_back() {
        let pool = pool(4);
        let mut line = Fifo::new(&pool, 4);
        (0..3).for_each(|byte| line.push(mbuf(&pool, byte)));
        for byte in [2, 1, 0] {
            let mbuf = line.pop_back().unwrap();
            assert_eq!(mbuf.bytes()[0], byte);
            mbuf.free();
        }
        assert!(line.pop_back().is_none());
        check_home(&pool);
    }

    #[test]
    fn positions_run_over_two_to_the_32() {
        let pool = pool(4);
        let mut line = Fifo::new(&pool, 4);
        (line.tail, line.head, line.odd_end) = (u32::MAX - 1, u32::MAX - 1, u32::MAX - 1);
        let packet = mbuf(&pool, 0);
        let held = packet.hold();
        line.push(packet);
        (1..4).for_each(|byte| line.push(mbuf(&pool, byte)));
        line.free_front(4);
        drop(held);
        (0..4).for_each(|byte| line.push(mbuf(&pool, byte)));
        line.free_front(4);
        check_home(&pool);
    }

    #[test]
    fn dropped_line_gives_back_what_it_has() {
        let pool = pool(4);
        let mut line = Fifo::new(&pool, 4);
        line.push(mbuf(&pool, 1));
        drop(line);
        assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 1));
    }

    #[test]
    #[should_panic(expected = "the line is full")]
    fn full_line_is_never_pushed_to() {
        let pool = pool(4);
        let mut line = Fifo::new(&pool, 2);
        (0..3).for_each(|byte| line.push(mbuf(&pool, byte)));
    }
}
