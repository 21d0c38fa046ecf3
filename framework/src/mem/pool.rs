//! A pool: the buffers of one worker. The free list is a stack, so that the buffer freed last,
//! still warm in the cache, is allocated next. A pool and its mbufs stay on one thread, so there
//! are no atomics.
//!
//! Invariants:
//! 1. `free[..top]` names buffers that no handle names; each buffer is named at most once. So a
//!    buffer is on the stack or in use, never both, and `top` is at most the length of `free`.
//! 2. The buffers are disjoint, lie inside the region, start on a cache line, and carry `Metadata`
//!    that was written at construction.
//! 3. `PoolInner` stays in memory as long as any of its buffers is in use: a `Pool` that is dropped
//!    before its mbufs leaks it (and the region) on purpose.
//! 4. Headroom and data room are whole cache lines, and the data room is at least one:
//!    `Layout::check` ensures it.
//! 5. `Pool` is neither `Send` nor `Sync` (it holds a raw pointer), and neither is any type that
//!    reaches `PoolInner`.

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use super::held::Held;
use super::mbuf::{FreshMbuf, Mbuf};
use super::metadata::{METADATA_LEN, Metadata};
use super::region::Region;

/// Bytes of a cache line.
pub(crate) const CACHE_LINE: usize = 64;

/// The division of a region into buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    stride: usize,
    headroom: u16,
}

impl Layout {
    /// Free bytes before a received frame, for the tags and headers that a tunnel or a reply
    /// prepends. The kernel's side of AF_XDP keeps 256 bytes before each frame.
    pub const HEADROOM: usize = 128;

    /// Buffers for frames of up to `frame_len_max` bytes (Ethernet header to last payload byte).
    ///
    /// The stride is an odd number of cache lines: with a power of two, the metadata of all buffers
    /// would fall into two of the 64 sets of the L1 cache, and a burst of 32 would evict itself.
    pub const fn for_frames(frame_len_max: usize) -> Self {
        let lines = (METADATA_LEN + Self::HEADROOM + frame_len_max).div_ceil(CACHE_LINE);
        Self { stride: (lines | 1) * CACHE_LINE, headroom: Self::HEADROOM as u16 }
    }

    /// Buffers that are chunks of an AF_XDP umem: `chunk_len` (2048 or 4096) apart, with 256 bytes
    /// of headroom, where the kernel puts the frame.
    pub const fn umem(chunk_len: usize) -> Self {
        Self { stride: chunk_len, headroom: 256 }
    }

    /// Bytes from one buffer to the next.
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// Bytes of a region that holds `buffers` buffers.
    pub const fn region_len(&self, buffers: usize) -> usize {
        self.stride * buffers
    }

    /// Bytes for headroom, data and tailroom of a buffer.
    pub const fn room(&self) -> usize {
        self.stride - METADATA_LEN
    }

    /// Bytes for data and tailroom of a fresh buffer: the largest frame that fits linear.
    pub const fn data_room(&self) -> usize {
        self.room() - self.headroom as usize
    }

    fn check(&self) -> Result<(), PoolError> {
        let fits = self.stride > METADATA_LEN + self.headroom as usize && self.room() <= u16::MAX as usize;
        let in_lines = self.stride.is_multiple_of(CACHE_LINE) && self.headroom.is_multiple_of(CACHE_LINE as u16);
        if fits && in_lines { Ok(()) } else { Err(PoolError::Stride(self.stride)) }
    }
}

impl Default for Layout {
    /// Frames of an MTU of 1500 with two VLAN tags.
    fn default() -> Self {
        Self::for_frames(1500 + 14 + 8)
    }
}

/// The buffers of one worker.
///
/// ```
/// use wirepath::mem::Pool;
///
/// let pool = Pool::heap(64)?; // a worker's own is of hugepages: `WorkerContext::pool`
/// let mut frame = pool.alloc_copy(b"payload").expect("all buffers are at home");
/// frame.prepend(4).expect("there is headroom").copy_from_slice(b"HEAD");
/// assert_eq!((frame.bytes(), pool.in_use()), (&b"HEADpayload"[..], 1));
/// frame.free();
/// assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
/// # Ok::<(), wirepath::mem::PoolError>(())
/// ```
pub struct Pool {
    inner: NonNull<PoolInner>,
}

/// The state that the pool and, through their metadata, all its buffers point to.
pub(super) struct PoolInner {
    free: Box<[Cell<NonNull<Metadata>>]>,
    top: Cell<usize>,
    headroom: usize,
    /// [`Layout::data_room`].
    data_room: usize,
    /// Packets that ended without a reason.
    drops_without_reason: Cell<u64>,
    /// Calls of `alloc` that found no free buffer.
    exhausted: Cell<u64>,
    layout: Layout,
    region: Arc<Region>,
}

impl Pool {
    /// Cuts `region` into as many buffers of `layout` as fit. The pool belongs to the calling
    /// thread.
    pub fn new(region: Arc<Region>, layout: Layout) -> Result<Self, PoolError> {
        layout.check()?;
        let count = region.len() / layout.stride;
        if count == 0 {
            return Err(PoolError::Empty { region: region.len(), stride: layout.stride });
        }
        if !region.claim() {
            return Err(PoolError::Claimed);
        }
        let base = region.base();
        let room = layout.room() as u16;
        // The lowest buffer ends on top, so a fresh pool hands out rising addresses.
        // SAFETY: `count` buffers of `stride` bytes fit the region (2).
        let buffer = |idx: usize| unsafe { base.add((count - 1 - idx) * layout.stride) }.cast::<Metadata>();
        let free = (0..count).map(|idx| Cell::new(buffer(idx))).collect();
        let inner = NonNull::from(Box::leak(Box::new(PoolInner {
            free,
            top: Cell::new(count),
            headroom: layout.headroom.into(),
            data_room: layout.data_room(),
            drops_without_reason: Cell::new(0),
            exhausted: Cell::new(0),
            layout,
            region,
        })));
        for idx in 0..count {
            // SAFETY: each buffer is inside the claimed region and starts on a cache line (2).
            unsafe { buffer(idx).write(Metadata::free_list_state(inner, room)) };
        }
        Ok(Self { inner })
    }

    /// A pool of `buffers` buffers of the default layout on the heap: tests and tools.
    pub fn heap(buffers: usize) -> Result<Self, PoolError> {
        let layout = Layout::default();
        let region = Region::heap(layout.region_len(buffers)).map_err(|_| PoolError::NoMemory { buffers })?;
        Self::new(Arc::new(region), layout)
    }

    /// An empty mbuf with full headroom. `None` if all buffers are in use; the pool counts this,
    /// and it is not an error. Takes one to two nanoseconds while the buffer's metadata is in the
    /// cache.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        let buffer = self.inner().take()?;
        // SAFETY: the buffer was in the stack, so no handle names it (1), and it has its headroom
        // (2).
        Some(unsafe { Mbuf::init(buffer, self.inner().headroom) })
    }

    /// An mbuf of the first `len` bytes of `line`: copies the whole line, whatever `len` is. `None`
    /// if all buffers are in use. Panics if `len` is more than the line.
    #[inline]
    pub(crate) fn alloc_line(&self, line: &[u8; CACHE_LINE], len: usize) -> Option<Mbuf> {
        assert!(len <= CACHE_LINE, "more bytes than a cache line");
        let buffer = self.inner().take()?;
        // SAFETY: as in `alloc`, and a line follows the headroom (2, 4).
        Some(unsafe { Mbuf::init_line(buffer, self.inner().headroom, line, len) })
    }

    /// As [`alloc_line`](Self::alloc_line), with three lines: enough for an order with its headers.
    /// `None` also if a buffer has no room for them.
    #[inline]
    pub(crate) fn alloc_lines(&self, lines: &[[u8; CACHE_LINE]; 3], len: usize) -> Option<Mbuf> {
        assert!(len <= lines.as_flattened().len(), "more bytes than in the lines");
        if lines.as_flattened().len() > self.inner().data_room {
            return None;
        }
        let buffer = self.inner().take()?;
        // SAFETY: as in `alloc`, and the lines fit behind the headroom.
        Some(unsafe { Mbuf::init_lines(buffer, self.inner().headroom, lines, len) })
    }

    /// A linear mbuf of `len` bytes without a second handle, to be written and kept. `None` if all
    /// buffers are in use or `len` does not fit one.
    #[inline(always)]
    pub(crate) fn alloc_fresh(&self, len: usize) -> Option<FreshMbuf> {
        if len > self.inner().data_room {
            return None;
        }
        let buffer = self.inner().take()?;
        // SAFETY: as in `alloc`, and `len` bytes fit behind the headroom.
        Some(unsafe { Mbuf::init_fresh(buffer, self.inner().headroom, len) })
    }

    /// As [`alloc_fresh`](Self::alloc_fresh), with a copy of `frame`.
    #[inline(always)]
    pub(crate) fn alloc_fresh_copy(&self, frame: &[u8]) -> Option<FreshMbuf> {
        if frame.len() > self.inner().data_room {
            return None;
        }
        let buffer = self.inner().take()?;
        // SAFETY: as in `alloc_fresh`.
        Some(unsafe { Mbuf::init_copy(buffer, self.inner().headroom, frame) })
    }

    /// A linear mbuf with a copy of `frame`; `None` if all buffers are in use or the frame is
    /// larger than one.
    #[inline]
    pub fn alloc_copy(&self, frame: &[u8]) -> Option<Mbuf> {
        let mut mbuf = self.alloc()?;
        match mbuf.append(frame.len()) {
            Some(room) => {
                room.copy_from_slice(frame);
                Some(mbuf)
            }
            None => {
                mbuf.free();
                None
            }
        }
    }

    /// An mbuf that refers to held bytes without copying them, to be sent behind a header. The
    /// handle is returned if all buffers are in use or the bytes are a chain.
    pub fn view(&self, held: Held) -> Result<Mbuf, Held> {
        if held.bytes().is_none() {
            return Err(held);
        }
        match self.alloc() {
            Some(mut mbuf) => {
                mbuf.become_view(held);
                Ok(mbuf)
            }
            None => Err(held),
        }
    }

    /// Buffers in all.
    pub fn capacity(&self) -> usize {
        self.inner().free.len()
    }

    /// Whether a buffer is free, and has room for `len` bytes: whether the next
    /// [`alloc_fresh_copy`](Self::alloc_fresh_copy) succeeds.
    #[inline(always)]
    pub(crate) fn has_buffer_of(&self, len: usize) -> bool {
        self.inner().top.get() > 0 && len <= self.inner().data_room
    }

    /// Free buffers.
    #[inline]
    pub fn available(&self) -> usize {
        self.inner().top.get()
    }

    /// Buffers in use: in rings, in the pipeline, held.
    pub fn in_use(&self) -> usize {
        self.capacity() - self.available()
    }

    /// Packets that went out of scope instead of being freed or discarded with a reason. Anything
    /// above zero is a bug of a node, an app or a device, and the conservation tests check for it.
    pub fn drops_without_reason(&self) -> u64 {
        self.inner().drops_without_reason.get()
    }

    /// Calls of [`Pool::alloc`] that found no free buffer.
    pub fn exhausted(&self) -> u64 {
        self.inner().exhausted.get()
    }

    /// The layout of the buffers.
    pub fn layout(&self) -> Layout {
        self.inner().layout
    }

    /// The memory that the buffers are cut from, for a device to register.
    pub fn region(&self) -> &Arc<Region> {
        &self.inner().region
    }

    /// Takes as many buffers as `into` has room for, without making handles of them. If fewer are
    /// free, it returns `false` and takes none. The caller makes handles of them or puts them back.
    #[inline(always)]
    pub(super) fn take_many(&self, into: &mut [Option<NonNull<Metadata>>]) -> bool {
        let inner = self.inner();
        let Some(left) = inner.top.get().checked_sub(into.len()) else { return false };
        let taken = inner.free.as_ptr().cast::<Option<NonNull<Metadata>>>();
        // SAFETY: `top` is at most the length of `free` (1), so the places between `left` and `top`
        // are inside; a cell has the layout of its content, and so has an option of a non-null
        // pointer.
        unsafe { taken.add(left).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        inner.top.set(left);
        true
    }

    /// Identifies this pool among others, also after it is dropped.
    #[inline(always)]
    pub(super) fn identity(&self) -> NonNull<PoolInner> {
        self.inner
    }

    #[inline(always)]
    pub(super) fn inner(&self) -> &PoolInner {
        // SAFETY: the pool keeps it alive (3); all its changing parts are cells.
        unsafe { self.inner.as_ref() }
    }
}

impl PoolInner {
    /// Puts an unreferenced buffer on the free list.
    #[inline(always)]
    pub(super) fn put_back(&self, buffer: NonNull<Metadata>) {
        let top = self.top.get();
        // Past the end means that a buffer was freed twice: the index panics, in the words of a
        // slice.
        self.free[top].set(buffer);
        self.top.set(top + 1);
    }

    /// Puts unreferenced buffers, already reset (invariant 7 of the metadata), on the free list: no
    /// field is checked.
    #[inline(always)]
    pub(super) fn put_back_many(&self, buffers: &[NonNull<Metadata>]) {
        let top = self.top.get();
        let end = top + buffers.len();
        // Past the end means that a buffer was freed twice, as above.
        let free = &self.free[top..end];
        // SAFETY: the stack has that many places from `top` on (checked above), and a cell may be
        // written through a shared reference. The two ranges do not overlap, because only the pool
        // can access the stack.
        unsafe {
            free.as_ptr()
                .cast_mut()
                .cast::<NonNull<Metadata>>()
                .copy_from_nonoverlapping(buffers.as_ptr(), buffers.len())
        };
        self.top.set(end);
    }

    /// Takes the buffer on top of the stack; the caller owns it from here on.
    #[inline(always)]
    pub(super) fn take(&self) -> Option<NonNull<Metadata>> {
        let top = self.top.get();
        if top == 0 {
            self.count_exhausted();
            return None;
        }
        self.top.set(top - 1);
        // SAFETY: `put_back` keeps `top` at most at the length of `free`, and here it is above zero
        // (1). One check there is enough, because each buffer that is taken has been put back
        // before.
        Some(unsafe { self.free.get_unchecked(top - 1) }.get())
    }

    #[cold]
    fn count_exhausted(&self) {
        self.exhausted.set(self.exhausted.get() + 1);
    }

    #[cold]
    pub(super) fn count_drop_without_reason(&self) {
        self.drops_without_reason.set(self.drops_without_reason.get() + 1);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let inner = self.inner();
        if inner.top.get() == inner.free.len() {
            // SAFETY: every buffer is free, so no handle can reach the box again (1, 3); it was
            // leaked from a `Box`.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("capacity", &self.capacity())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// Why a pool could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// Another pool is already cut from this region.
    Claimed,
    /// The region is smaller than one buffer.
    Empty {
        /// Bytes in the region.
        region: usize,
        /// Bytes a buffer.
        stride: usize,
    },
    /// A stride that is no multiple of a cache line, too small for metadata and headroom, or over
    /// 64 KiB.
    Stride(usize),
    /// No memory for this number of buffers.
    NoMemory {
        /// Requested number of buffers.
        buffers: usize,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claimed => write!(f, "the region already has a pool; map one region for each worker"),
            Self::Empty { region, stride } => {
                write!(f, "a region of {region} bytes holds no buffer of {stride}; map a larger region")
            }
            Self::Stride(stride) => write!(
                f,
                "a buffer stride of {stride} bytes does not work: use a multiple of 64 between 320 and 65,536"
            ),
            Self::NoMemory { buffers } => write!(f, "no memory for {buffers} packet buffers; use a smaller pool"),
        }
    }
}

impl std::error::Error for PoolError {}
