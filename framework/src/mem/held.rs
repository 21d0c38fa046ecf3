//! The explicit second handle to a packet: it keeps the bytes alive and unchanged after the mbuf is
//! freed or sent. Fan-out to consumers holds one, and TCP holds one for each segment until it is
//! acknowledged.
//!
//! Invariants: those of [`metadata`](super::metadata), cited by their numbers.

use core::fmt;
use core::mem::forget;
use core::ptr::NonNull;
use core::slice;

use super::mbuf::Mbuf;
use super::metadata::{Metadata, release};

/// Buffers that return to their pool by one copy: those of a turn.
const DROPPED_AT_ONCE: usize = 32;

/// The explicit second handle to a packet's bytes, made by [`Mbuf::hold`]: read only, counted in
/// the buffer.
///
/// It keeps the range with which it was made: advancing or trimming the mbuf later does not change
/// it. Dropping a `Held` is its normal end and does not count as a packet drop.
pub struct Held {
    pub(super) buffer: NonNull<Metadata>,
    pub(super) data: NonNull<u8>,
    /// Bytes at `data`, in the first buffer.
    pub(super) len: u32,
    /// Bytes in the buffers chained behind it.
    pub(super) rest_len: u32,
}

impl Held {
    /// Bytes held, over all segments.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize + self.rest_len as usize
    }

    /// Whether the range is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes if they are in one buffer; `None` for a chain: see [`Held::segments`].
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        (self.rest_len == 0).then(|| self.first())
    }

    /// The bytes, one slice per buffer.
    pub fn segments(&self) -> Segments<'_> {
        // SAFETY: the metadata is alive while a handle is (1, 3), and the chain after it does not
        // change (5).
        let next = unsafe { (*self.buffer.as_ptr()).next };
        Segments::new(self.first(), next, self.rest_len as usize)
    }

    /// A further handle to the same bytes. `Held` is not `Clone`, so that no handle is made by
    /// accident.
    #[inline]
    pub fn another(&self) -> Self {
        // SAFETY: alive (1, 3).
        unsafe { &*self.buffer.as_ptr() }.add_handle();
        Self { ..*self }
    }

    /// A handle to `len` of the bytes from `offset`; `None` if they are not inside the first
    /// buffer.
    pub fn slice(&self, offset: usize, len: usize) -> Option<Self> {
        if offset.checked_add(len)? > self.len as usize {
            return None;
        }
        let mut part = self.another();
        // SAFETY: `offset <= self.len`, so the start stays inside the buffer (2).
        part.data = unsafe { part.data.add(offset) };
        part.len = len as u32;
        part.rest_len = 0;
        Some(part)
    }

    /// The buffer as an mbuf if this is its last handle: the posted packet has been sent, and there
    /// is no other holder. Otherwise the handle is returned.
    pub fn into_mbuf(self) -> Result<Mbuf, Self> {
        // SAFETY: alive (1, 3).
        if unsafe { (*self.buffer.as_ptr()).refs.get() } != 1 {
            return Err(self);
        }
        let mbuf = Mbuf(self.buffer);
        forget(self);
        Ok(mbuf)
    }

    /// Drops handles, many at a time: buffers of one pool that are plain, and have no other handle,
    /// return to it together, for half of what each costs by itself.
    pub fn drop_all(handles: impl IntoIterator<Item = Self>) {
        let mut handles = handles.into_iter();
        let mut plain = [NonNull::dangling(); DROPPED_AT_ONCE];
        // The pool of the last buffer that was freed by itself: of the first one at the latest.
        let mut pool = NonNull::dangling();
        loop {
            let (mut count, mut odd) = (0, None);
            for (place, held) in plain.iter_mut().zip(&mut handles) {
                let buffer = held.into_buffer();
                // SAFETY: its handle was given up without being counted down, so it is alive (1).
                if !unsafe { &(*buffer.as_ptr()).home }.is_unmarked_of(pool) {
                    odd = Some(buffer);
                    break;
                }
                *place = buffer;
                count += 1;
            }
            if count > 0 {
                // SAFETY: it is the pool of these buffers, which are in use until here, so it is
                // alive (1). They are not marked, so these were their last handles, and their other
                // fields are as (7) demands (8).
                unsafe { pool.as_ref() }.put_back_many(&plain[..count]);
            }
            match odd {
                Some(buffer) => {
                    // SAFETY: alive, as above.
                    pool = unsafe { &(*buffer.as_ptr()).home }.pool();
                    release(buffer);
                }
                None if count < plain.len() => return,
                None => (),
            }
        }
    }

    /// Resolves a handle to a view into a handle to the bytes' own buffer, and releases the view.
    /// So no view refers to a view, and freeing one frees at most one more buffer, however often
    /// bytes were forwarded.
    pub(super) fn at_origin(self) -> Self {
        // SAFETY: alive (1, 3).
        let meta = unsafe { &*self.buffer.as_ptr() };
        let Some(origin) = &meta.view else { return self };
        let (data, len, rest_len) = (self.data, self.len, self.rest_len);
        Self { buffer: origin.another().into_buffer(), data, len, rest_len }
    }

    /// Gives up the handle and returns its buffer; the reference count is unchanged.
    #[inline]
    fn into_buffer(self) -> NonNull<Metadata> {
        let buffer = self.buffer;
        forget(self);
        buffer
    }

    #[inline]
    fn first(&self) -> &[u8] {
        // SAFETY: inside the buffer and initialized (2); not written while this handle lives (4).
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.len as usize) }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        release(self.buffer);
    }
}

/// The bytes of a packet, one slice per buffer.
pub struct Segments<'a> {
    first: Option<&'a [u8]>,
    next: Option<NonNull<Metadata>>,
    left: usize,
}

impl<'a> Segments<'a> {
    /// The first segment's bytes, then `left` bytes in the buffers from `next` on.
    pub(super) fn new(first: &'a [u8], next: Option<NonNull<Metadata>>, left: usize) -> Self {
        Self { first: Some(first), next, left }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.left == 0 {
            return None;
        }
        // SAFETY: the chain lives and does not change while its head is borrowed (5).
        let meta = unsafe { &*self.next?.as_ptr() };
        let len = self.left.min(meta.len as usize);
        self.left -= len;
        self.next = meta.next;
        // SAFETY: inside that buffer and initialized (2), not written meanwhile (4, 5).
        Some(unsafe { slice::from_raw_parts(meta.data.as_ptr(), len) })
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("len", &self.len()).finish_non_exhaustive()
    }
}
