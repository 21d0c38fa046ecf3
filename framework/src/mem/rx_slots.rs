//! Receive slots: one for each ring entry, with the buffer that the NIC receives into. A completion
//! turns the buffer in its slot into an mbuf and puts a fresh buffer there. Metadata is touched
//! only at completion, so that posting loads no cache line.
//!
//! Invariants, beside those of [`metadata`](super::metadata):
//! 1. A buffer in a slot came from the free list of the pool that the slots were made for, and no
//!    handle names it: each buffer is in one slot, on the free list, or owned by a handle.
//! 2. `vacant` slots are `None`.
//! 3. `offset + room` is at most the length of that pool's buffers, so a frame of `room` bytes that
//!    begins `offset` bytes into a buffer is inside it. All buffers of a pool have the same length.
//! 4. Buffers in slots stay there when the slots are dropped: the NIC may still write into them. A
//!    caller who knows that the NIC has stopped frees them first.

use core::mem::forget;
use core::ptr::NonNull;
use core::slice;

use super::Burst;
use super::mbuf::Mbuf;
use super::metadata::{METADATA_LEN, Metadata};
use super::pool::{Pool, PoolInner};
use super::rx_meta::{MetaTemplate, RxFrame, RxMeta, UnwrittenMetadata};

/// Slots with the buffers that the NIC owns.
pub(crate) struct RxSlots {
    slots: Box<[Option<NonNull<Metadata>>]>,
    vacant: usize,
    /// Bytes from a buffer's start to the frame.
    offset: usize,
    room: u32,
    /// Headroom and data together.
    buffer_room: u16,
    /// Compared, never dereferenced.
    pool: NonNull<PoolInner>,
}

impl RxSlots {
    /// Vacant slots for buffers of `pool`.
    pub(crate) fn new(pool: &Pool, slots: usize) -> Self {
        let layout = pool.layout();
        Self {
            slots: vec![None; slots].into_boxed_slice(),
            vacant: slots,
            offset: METADATA_LEN + layout.room() - layout.data_room(),
            room: layout.data_room() as u32,
            buffer_room: layout.room() as u16,
            pool: pool.identity(),
        }
    }

    /// Buffers in slots.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.vacant
    }

    /// Bytes of a frame that fit one buffer.
    #[inline(always)]
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// Whether this is the pool that the slots were made for.
    #[inline(always)]
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        pool.identity() == self.pool
    }

    /// The metadata shared by frames that start as `meta`.
    #[inline]
    pub(crate) fn template(&self, meta: &RxMeta) -> MetaTemplate {
        MetaTemplate::new(meta, self.buffer_room)
    }

    /// Makes mbufs of the buffers in `count` slots from `first` on, appends them to `burst`, and
    /// puts fresh buffers in the slots. For each slot, counted from zero, the closure that
    /// `arrivals` makes describes the frame; then `post` receives the address for the ring. Stops
    /// early at a frame that is longer than a buffer, or if the pool has fewer than `count` free
    /// buffers. Returns the number of frames and of bytes.
    ///
    /// Panics on another pool, on vacant slots, and on a burst without the room.
    #[inline(always)]
    pub(crate) fn exchange<A: RxFrame, T: FnMut(usize) -> A>(
        &mut self,
        pool: &Pool,
        (first, count): (usize, usize),
        burst: &mut Burst,
        arrivals: impl FnOnce() -> T,
        mut post: impl FnMut(usize, u64),
    ) -> (usize, u64) {
        assert!(self.is_of(pool), "a queue receives into the pool that it was opened with");
        assert!(self.vacant == 0 && count <= burst.remaining_capacity(), "each slot has a buffer, each frame a place");
        let slots = &mut self.slots[first..][..count];
        let len = burst.len();
        // SAFETY: the burst has room for `count` more after its `len`. No slot is vacant (2), and a
        // handle is the pointer in it; `len` covers a place only once its frame has been written.
        let handles = unsafe {
            let places = burst.as_mut_ptr().add(len).cast::<Option<NonNull<Metadata>>>();
            places.copy_from_nonoverlapping(slots.as_ptr(), count);
            slice::from_raw_parts(places.cast::<NonNull<Metadata>>(), count)
        };
        if !pool.take_many(slots) {
            return (0, 0);
        }
        // Made after the copies, so that the registers it occupies need not be spilled around them.
        let mut arrival_at = arrivals();
        let (offset, room) = (self.offset, self.room);
        // Fits: a burst of buffers of 64 KiB at most.
        let (mut done, mut bytes) = (0, 0_u32);
        while done < count {
            let arrival = arrival_at(done);
            if arrival.len() > room {
                give_back(pool, &mut slots[done..], &handles[done..]);
                break;
            }
            // SAFETY: `take_many` has filled the slots, and the frame is inside the buffer (3).
            let address = unsafe { slots[done].unwrap_unchecked().cast::<u8>().add(offset) };
            post(done, address.as_ptr().expose_provenance() as u64);
            // SAFETY: the buffer was in the slot, so no handle names it (1), and the frame is
            // inside (3).
            forget(unsafe { arrived(handles[done], offset, &arrival) });
            done += 1;
            bytes = bytes.wrapping_add(arrival.len());
        }
        // SAFETY: `done` mbufs were written, and the burst has room for them.
        unsafe { burst.set_len(len + done) };
        (done, bytes.into())
    }

    /// Makes an mbuf of the buffer in a slot and leaves the slot vacant. `None` if it already was;
    /// also on a frame that is longer than a buffer, and then the buffer stays.
    pub(crate) fn take(&mut self, slot: usize, arrival: &impl RxFrame) -> Option<Mbuf> {
        if arrival.len() > self.room {
            return None;
        }
        let buffer = self.slots[slot].take()?;
        self.vacant += 1;
        // SAFETY: it was in a slot, so no handle names it (1), and the frame is inside (3).
        Some(unsafe { arrived(buffer, self.offset, arrival) })
    }

    /// Frees the buffer in a slot, if there is one. The caller knows that the NIC has released it.
    pub(crate) fn free(&mut self, slot: usize) {
        if let Some(buffer) = self.slots[slot].take() {
            self.vacant += 1;
            // SAFETY: its pool lives as long as one of its buffers is in use.
            unsafe { buffer.as_ref().home.pool().as_ref() }.put_back(buffer);
        }
    }

    /// The address of the buffer in a slot, for the ring; a vacant slot is filled with a fresh
    /// buffer first. `None` if no buffer is free. Panics on another pool.
    pub(crate) fn fill(&mut self, pool: &Pool, slot: usize) -> Option<u64> {
        assert!(self.is_of(pool), "a queue receives into the pool that it was opened with");
        let buffer = match self.slots[slot] {
            Some(buffer) => buffer,
            None => {
                let buffer = pool.inner().take()?;
                self.slots[slot] = Some(buffer);
                self.vacant -= 1;
                buffer
            }
        };
        // SAFETY: the frame is inside the buffer (3).
        let data = unsafe { buffer.cast::<u8>().add(self.offset) };
        Some(data.as_ptr().expose_provenance() as u64)
    }
}

impl Pool {
    /// An mbuf with a copy of `frame` and the metadata of `arrival`, except its length. `None` if
    /// no buffer is free or the frame is longer than one.
    #[inline]
    pub(crate) fn alloc_rx_frame(&self, frame: &[u8], arrival: &impl RxFrame) -> Option<Mbuf> {
        let layout = self.layout();
        if frame.len() > layout.data_room() {
            return None;
        }
        let buffer = self.inner().take()?;
        let offset = METADATA_LEN + layout.room() - layout.data_room();
        // SAFETY: the buffer was on the free list, so no handle names it, and the frame is inside;
        // it overlaps no buffer that a handle can read.
        unsafe {
            let place = buffer.cast::<u8>().add(offset);
            place.copy_from_nonoverlapping(NonNull::from(frame).cast(), frame.len());
            Some(arrived(buffer, offset, &arrival.with_len(frame.len() as u32)))
        }
    }
}

/// Puts the `buffers` back into `slots`, and frees those that had replaced them.
#[cold]
#[inline(never)]
fn give_back(pool: &Pool, slots: &mut [Option<NonNull<Metadata>>], buffers: &[NonNull<Metadata>]) {
    for (slot, &buffer) in slots.iter_mut().zip(buffers) {
        if let Some(fresh) = slot.replace(buffer) {
            pool.inner().put_back(fresh);
        }
    }
}

/// Makes an mbuf of a buffer with a frame in it, `offset` bytes from its start.
///
/// # Safety
/// The buffer was in a slot and has been taken out of it, and the frame is inside.
#[inline(always)]
unsafe fn arrived(buffer: NonNull<Metadata>, offset: usize, arrival: &impl RxFrame) -> Mbuf {
    let meta = buffer.as_ptr();
    // SAFETY: initialized by the pool, named by no handle (1), and the frame is inside (caller).
    unsafe {
        (*meta).data = buffer.cast::<u8>().add(offset);
        (*meta).len = arrival.len();
        arrival.write(&mut UnwrittenMetadata::new(buffer));
    }
    Mbuf(buffer)
}
