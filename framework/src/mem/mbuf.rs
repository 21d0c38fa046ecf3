//! The mbuf: an owned 8-byte handle to one packet buffer, with what is known about the packet in the buffer's own
//! first cache line. And [`Held`], the explicit second handle: it keeps the bytes alive and unchanged after the mbuf
//! has moved on (fan-out to consumers, a TCP segment until it is acknowledged).
//!
//! An mbuf is neither `Clone` nor `Send`: its buffer belongs to one worker's pool. Dropping one gives the buffer back
//! and counts it as *unnamed* at the pool, because a packet must end with a name: handed on, kept, delivered, or
//! discarded for a reason. `free` is for the first three; `discard` in the pipeline for the last.
//!
//! ```text
//!  buffer  | metadata 128 | headroom | data                | tailroom |
//!                                    ^ data pointer  ^ + len
//!                         <- prepend | advance ->   trim <- | append ->
//! ```
//!
//! Invariants:
//! 1. A `Metadata` lies at the start of a buffer that a live [`Pool`] cut from its region, aligned to a cache line
//!    and initialised by the pool. Nobody but the pool's thread touches it (no handle is `Send`).
//! 2. `data - headroom .. data - headroom + room` lies inside one buffer of the same region, and
//!    `headroom + len <= room`. All its bytes are initialised (a region starts zeroed).
//! 3. `refs` counts the live handles: the mbuf (one) plus every `Held`. The buffer goes back to the free list when it
//!    falls to zero, and only then.
//! 4. Bytes are written only through the mbuf, only while `refs` is one and it is not a view; so a `Held` may lend
//!    `&[u8]` freely.
//! 5. `next` is owned by this buffer: each buffer is in at most one chain. While `refs` is above one the chain behind
//!    the head does not change.
//! 6. A view's bytes belong to the `Held` in its `view` field, which lives as long as the view does.

use core::cell::Cell;
use core::fmt;
use core::mem::{ManuallyDrop, forget};
use core::ptr::NonNull;
use core::slice;

use super::pool::PoolInner;
use crate::time::Instant;

/// Bytes at the start of each buffer that hold the metadata: one hot cache line, and a second one that only chains,
/// views and hashes touch.
pub const METADATA_LEN: usize = 128;

/// An owned handle to a packet buffer. Eight bytes, and so is `Option<Mbuf>`.
pub struct Mbuf(NonNull<Metadata>);

/// The explicit second handle to a packet's bytes, made by [`Mbuf::hold`]: read only, counted in the buffer.
///
/// It keeps the view it was made with: advancing or trimming the mbuf later does not change what a `Held` shows.
/// Dropping it is the normal end of keeping and is not a drop of a packet.
pub struct Held {
    buffer: NonNull<Metadata>,
    data: NonNull<u8>,
    /// Bytes at `data`, in the first buffer.
    len: u32,
    /// Bytes in the buffers chained behind it.
    rest_len: u32,
}

/// Whether a checksum is known to be right. The NIC's word, or that of the node that computed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Nobody has looked: verify in software.
    #[default]
    Unknown = 0,
    /// Verified, or known not to be needed.
    Good = 1,
    /// Verified and wrong.
    Bad = 2,
}

/// What a device already knows about a frame that it received; nodes skip the work that is done here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxInfo {
    /// When the frame arrived, by the NIC's clock or the capture's, in ns of the Unix epoch; `None` where unknown.
    pub timestamp: Option<Instant>,
    /// The tag of the steering rule that matched.
    pub flow_tag: Option<u32>,
    /// The tag control information of a VLAN tag that the NIC stripped.
    pub vlan: Option<u16>,
    /// The receive-side-scaling hash.
    pub hash: Option<u32>,
    /// The IPv4 header checksum.
    pub ip_checksum: Verdict,
    /// The UDP or TCP checksum.
    pub l4_checksum: Verdict,
}

/// What stands in the first two cache lines of a buffer.
#[repr(C, align(64))]
pub(super) struct Metadata {
    // The hot line.
    pool: NonNull<PoolInner>,
    data: NonNull<u8>,
    next: Option<NonNull<Metadata>>,
    /// Bytes of this buffer's part of the packet.
    len: u32,
    /// Bytes of the buffers behind `next`.
    rest_len: u32,
    headroom: u16,
    /// Bytes from the start of the headroom to the end of the tailroom.
    room: u16,
    refs: Cell<u32>,
    timestamp: u64,
    flow_tag: u32,
    vlan: u16,
    interface: u16,
    flags: u8,
    ip_checksum: Verdict,
    l4_checksum: Verdict,
    l2_len: u8,
    l3_len: u8,
    // The cold line begins here.
    hash: u32,
    view: Option<ManuallyDrop<Held>>,
}

const _: () = assert!(size_of::<Metadata>() == METADATA_LEN && core::mem::offset_of!(Metadata, hash) == 64);
const _: () = assert!(size_of::<Option<Mbuf>>() == 8);

const HAS_TIMESTAMP: u8 = 1;
const HAS_FLOW_TAG: u8 = 2;
const HAS_VLAN: u8 = 4;
const HAS_HASH: u8 = 8;
const IS_VIEW: u8 = 16;

impl Mbuf {
    /// Bytes of the packet, over all its segments.
    #[inline]
    pub fn len(&self) -> usize {
        self.meta().len as usize + self.meta().rest_len as usize
    }

    /// Whether the packet has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the first segment: the whole packet where [`Mbuf::is_linear`], and always its headers.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let meta = self.meta();
        // SAFETY: `data .. data + len` is inside the buffer and initialised (2); nobody writes while `self` is
        // borrowed (4).
        unsafe { slice::from_raw_parts(meta.data.as_ptr(), meta.len as usize) }
    }

    /// The bytes of the first segment, to write. Panics where the bytes are shared (a [`Held`] exists or this is a
    /// view): ask [`Mbuf::is_writable`].
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_writable(), "bytes of a held mbuf or of a view are read only");
        let meta = self.meta();
        // SAFETY: as in `bytes`, and `self` is the only handle (3, 4), borrowed mutably.
        unsafe { slice::from_raw_parts_mut(meta.data.as_ptr(), meta.len as usize) }
    }

    /// Whether this is the only handle to the bytes.
    #[inline]
    pub fn is_writable(&self) -> bool {
        let meta = self.meta();
        meta.refs.get() == 1 && meta.flags & IS_VIEW == 0
    }

    /// Whether all bytes are in one buffer.
    #[inline]
    pub fn is_linear(&self) -> bool {
        self.meta().next.is_none()
    }

    /// The packet's bytes, a slice per buffer, front to back.
    pub fn segments(&self) -> Segments<'_> {
        Segments { first: Some(self.bytes()), next: self.meta().next, left: self.meta().rest_len as usize }
    }

    /// Free bytes before the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.meta().headroom.into()
    }

    /// Free bytes behind the data of the first segment.
    #[inline]
    pub fn tailroom(&self) -> usize {
        let meta = self.meta();
        meta.room as usize - meta.headroom as usize - meta.len as usize
    }

    /// Grows the front by `len` bytes and lends them, uncleared, to be written. `None` (and nothing changes) where
    /// the headroom is too small or the bytes are shared.
    #[inline]
    pub fn prepend(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.headroom() || !self.is_writable() {
            return None;
        }
        let meta = self.meta_mut();
        // SAFETY: `len <= headroom`, so the new start is inside the buffer (2).
        meta.data = unsafe { meta.data.sub(len) };
        meta.headroom -= len as u16;
        meta.len += len as u32;
        // SAFETY: as in `bytes_mut`.
        Some(unsafe { slice::from_raw_parts_mut(meta.data.as_ptr(), len) })
    }

    /// Drops `len` bytes from the front: a header that has been read. Panics where the first segment is shorter;
    /// the caller has checked the header it leaves behind.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        let meta = self.meta_mut();
        assert!(len <= meta.len as usize, "advance past the first segment");
        // SAFETY: `len <= meta.len`, so the new start is inside the buffer or one past its data (2).
        meta.data = unsafe { meta.data.add(len) };
        meta.len -= len as u32;
        // A view has no headroom to grow back into: its bytes belong to another.
        if meta.flags & IS_VIEW == 0 {
            meta.headroom += len as u16;
        } else {
            meta.room -= len as u16;
        }
    }

    /// Grows the back of a linear packet by `len` bytes and lends them, uncleared, to be written. `None` (and nothing
    /// changes) where the tailroom is too small, the packet is a chain, or the bytes are shared.
    #[inline]
    pub fn append(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.tailroom() || !self.is_writable() || !self.is_linear() {
            return None;
        }
        let meta = self.meta_mut();
        let old = meta.len as usize;
        meta.len += len as u32;
        // SAFETY: `old + len` ends inside the buffer (2); `self` is the only handle (4).
        Some(unsafe { slice::from_raw_parts_mut(meta.data.as_ptr().add(old), len) })
    }

    /// Keeps the first `len` bytes of the packet and drops the rest, buffers of a chain included. Nothing happens where
    /// the packet is not longer. Panics on a chain that is held. Linear: a few instructions.
    #[inline]
    pub fn trim_to(&mut self, len: usize) {
        let meta = self.meta_mut();
        if meta.next.is_none() {
            meta.len = meta.len.min(u32::try_from(len).unwrap_or(u32::MAX));
        } else if len < self.len() {
            self.trim_chain_to(len);
        }
    }

    /// Drops `len` bytes from the back; everything where the packet is shorter.
    #[inline]
    pub fn trim(&mut self, len: usize) {
        self.trim_to(self.len().saturating_sub(len));
    }

    #[cold]
    fn trim_chain_to(&mut self, len: usize) {
        let meta = self.meta_mut();
        assert!(meta.refs.get() == 1, "the chain behind a held mbuf does not change");
        if len <= meta.len as usize {
            meta.len = len as u32;
            meta.rest_len = 0;
            if let Some(next) = meta.next.take() {
                Self(next).free();
            }
            return;
        }
        let left = len - meta.len as usize;
        meta.rest_len = left as u32;
        if let Some(next) = meta.next {
            // Only the head of a chain is a handle elsewhere, so this handle must not free what it names.
            let mut rest = ManuallyDrop::new(Self(next));
            rest.trim_to(left);
        }
    }

    /// Chains `rest` behind this packet. Panics where this one already has a chain: build chains from the back.
    pub fn attach(&mut self, rest: Self) {
        let rest_len = rest.len();
        let meta = self.meta_mut();
        assert!(meta.next.is_none(), "attach to a packet that already has a chain");
        meta.next = Some(rest.0);
        meta.rest_len = u32::try_from(rest_len).expect("a packet is shorter than 4 GiB");
        forget(rest);
    }

    /// Takes the chain behind the first segment off.
    pub fn detach(&mut self) -> Option<Self> {
        let meta = self.meta_mut();
        assert!(meta.refs.get() == 1 || meta.next.is_none(), "the chain behind a held mbuf does not change");
        meta.rest_len = 0;
        meta.next.take().map(Self)
    }

    /// A second handle to the bytes as they are now. While it lives, the mbuf cannot be written.
    #[inline]
    pub fn hold(&self) -> Held {
        let meta = self.meta();
        meta.refs.set(meta.refs.get() + 1);
        Held { buffer: self.0, data: meta.data, len: meta.len, rest_len: meta.rest_len }
    }

    /// Ends the packet in good order: it was delivered, sent or consumed. The buffer goes home unless somebody holds
    /// it. About 2 ns; what is *not* in good order goes through `discard` with its reason.
    #[inline]
    pub fn free(self) {
        let buffer = self.0;
        forget(self);
        release(buffer);
    }

    /// Writes down what the device knows.
    #[inline]
    pub fn set_rx_info(&mut self, info: &RxInfo) {
        let meta = self.meta_mut();
        let mut flags = meta.flags & IS_VIEW;
        if let Some(timestamp) = info.timestamp {
            meta.timestamp = timestamp.as_nanos();
            flags |= HAS_TIMESTAMP;
        }
        if let Some(tag) = info.flow_tag {
            meta.flow_tag = tag;
            flags |= HAS_FLOW_TAG;
        }
        if let Some(vlan) = info.vlan {
            meta.vlan = vlan;
            flags |= HAS_VLAN;
        }
        if let Some(hash) = info.hash {
            meta.hash = hash;
            flags |= HAS_HASH;
        }
        meta.flags = flags;
        meta.ip_checksum = info.ip_checksum;
        meta.l4_checksum = info.l4_checksum;
    }

    /// What the device knew.
    pub fn rx_info(&self) -> RxInfo {
        let meta = self.meta();
        RxInfo {
            timestamp: self.timestamp(),
            flow_tag: self.flow_tag(),
            vlan: self.vlan(),
            hash: (meta.flags & HAS_HASH != 0).then_some(meta.hash),
            ip_checksum: meta.ip_checksum,
            l4_checksum: meta.l4_checksum,
        }
    }

    /// When the frame arrived, where the device knows it.
    #[inline]
    pub fn timestamp(&self) -> Option<Instant> {
        let meta = self.meta();
        (meta.flags & HAS_TIMESTAMP != 0).then(|| Instant::from_nanos(meta.timestamp))
    }

    /// The tag of the steering rule that matched.
    #[inline]
    pub fn flow_tag(&self) -> Option<u32> {
        let meta = self.meta();
        (meta.flags & HAS_FLOW_TAG != 0).then_some(meta.flow_tag)
    }

    /// Tag control information (priority, DEI, VLAN id) of the innermost tag, stripped by the NIC or by the Ethernet
    /// node.
    #[inline]
    pub fn vlan(&self) -> Option<u16> {
        let meta = self.meta();
        (meta.flags & HAS_VLAN != 0).then_some(meta.vlan)
    }

    /// Records the tag that a node has taken off.
    #[inline]
    pub fn set_vlan(&mut self, tci: u16) {
        let meta = self.meta_mut();
        meta.vlan = tci;
        meta.flags |= HAS_VLAN;
    }

    /// Index of the interface that the frame arrived on: the worker's own numbering, zero where there is one.
    #[inline]
    pub fn interface(&self) -> u16 {
        self.meta().interface
    }

    /// Records the interface that the frame arrived on.
    #[inline]
    pub fn set_interface(&mut self, interface: u16) {
        self.meta_mut().interface = interface;
    }

    /// What is known about the IPv4 header checksum.
    #[inline]
    pub fn ip_checksum(&self) -> Verdict {
        self.meta().ip_checksum
    }

    /// What is known about the UDP or TCP checksum.
    #[inline]
    pub fn l4_checksum(&self) -> Verdict {
        self.meta().l4_checksum
    }

    /// Records what a node found out about the UDP or TCP checksum.
    #[inline]
    pub fn set_l4_checksum(&mut self, verdict: Verdict) {
        self.meta_mut().l4_checksum = verdict;
    }

    /// Bytes of the link header that stands (or stood, once advanced) before the packet, tags included.
    #[inline]
    pub fn l2_len(&self) -> usize {
        self.meta().l2_len.into()
    }

    /// Bytes of the IP header that stands (or stood) behind the link header.
    #[inline]
    pub fn l3_len(&self) -> usize {
        self.meta().l3_len.into()
    }

    /// Records the length of the link header. Panics above 255: the caller bounds its tags.
    #[inline]
    pub fn set_l2_len(&mut self, len: usize) {
        self.meta_mut().l2_len = len as u8;
    }

    /// Records the length of the IP header (at most 60 for IPv4).
    #[inline]
    pub fn set_l3_len(&mut self, len: usize) {
        self.meta_mut().l3_len = len as u8;
    }

    /// The `len` bytes that were advanced over last: a header that has been read. `None` where the headroom does not
    /// hold so many, or the packet is a view.
    #[inline]
    pub fn behind(&self, len: usize) -> Option<&[u8]> {
        if len > self.headroom() {
            return None;
        }
        let meta = self.meta();
        // SAFETY: `len <= headroom`, so the range is inside the buffer and initialised (2); shared borrow (4).
        Some(unsafe { slice::from_raw_parts(meta.data.as_ptr().sub(len), len) })
    }

    /// Asks the CPU to load the first data line, for the loop that knows which packet comes next. Free of effects.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_line(self.meta().data.as_ptr());
    }

    #[inline(always)]
    fn meta(&self) -> &Metadata {
        // SAFETY: initialised and alive (1); shared while `self` is borrowed.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn meta_mut(&mut self) -> &mut Metadata {
        // SAFETY: initialised and alive (1). A `Held` keeps no reference into the metadata between calls, so this is
        // the only one while `self` is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    /// Writes fresh metadata into a buffer from the free list.
    ///
    /// # Safety
    /// `buffer` is the start of a buffer of `pool` that no handle names; `headroom <= room`, and `METADATA_LEN + room`
    /// bytes belong to the buffer.
    #[inline(always)]
    pub(super) unsafe fn init(buffer: NonNull<Metadata>, pool: NonNull<PoolInner>, headroom: u16, room: u16) -> Self {
        let meta = buffer.as_ptr();
        // SAFETY: the buffer is ours alone, aligned and large enough (caller). The cold line is left as it is: its
        // `hash` is guarded by a flag, and `view` is `None` in every buffer on the free list.
        unsafe {
            (*meta).pool = pool;
            (*meta).data = buffer.cast::<u8>().add(METADATA_LEN + headroom as usize);
            (*meta).next = None;
            (*meta).len = 0;
            (*meta).rest_len = 0;
            (*meta).headroom = headroom;
            (*meta).room = room;
            (*meta).refs = Cell::new(1);
            (*meta).interface = 0;
            (*meta).flags = 0;
            (*meta).ip_checksum = Verdict::Unknown;
            (*meta).l4_checksum = Verdict::Unknown;
            (*meta).l2_len = 0;
            (*meta).l3_len = 0;
        }
        Self(buffer)
    }

    /// Turns a fresh mbuf into a view of held bytes.
    pub(super) fn become_view(&mut self, held: Held) {
        let meta = self.meta_mut();
        assert!(held.rest_len == 0 && held.len <= u16::MAX.into(), "a view is of one buffer's bytes");
        meta.data = held.data;
        meta.len = held.len;
        meta.headroom = 0;
        meta.room = held.len as u16;
        meta.flags |= IS_VIEW;
        meta.view = Some(ManuallyDrop::new(held));
    }

    /// Address of the first data byte, for device set-up and descriptors.
    #[inline]
    pub fn data_ptr(&self) -> *const u8 {
        self.meta().data.as_ptr()
    }

    /// Gives the handle up as a number that a device keeps in its ring while the NIC or the kernel has the buffer.
    #[inline]
    pub fn into_raw(self) -> NonNull<u8> {
        let buffer = self.0;
        forget(self);
        buffer.cast()
    }

    /// Takes the handle back.
    ///
    /// # Safety
    /// `raw` came from [`Mbuf::into_raw`] on this thread and has not been taken back since.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw.cast())
    }
}

/// Takes one handle off the count; the last one sends the buffer home.
#[inline(always)]
fn release(buffer: NonNull<Metadata>) {
    // SAFETY: the caller gave up a live handle (1), so the metadata is valid, and no reference to it is outstanding.
    let meta = unsafe { &mut *buffer.as_ptr() };
    let refs = meta.refs.get() - 1;
    meta.refs.set(refs);
    if refs != 0 {
        return;
    }
    if meta.next.is_some() || meta.flags & IS_VIEW != 0 {
        release_parts(meta);
    }
    // SAFETY: the pool outlives its buffers (1).
    unsafe { meta.pool.as_ref() }.put_back(buffer);
}

/// Lets go of what a dying buffer owns: the chain behind it (a loop, as a chain may be long) and a view's bytes.
#[cold]
fn release_parts(meta: &mut Metadata) {
    if let Some(held) = meta.view.take() {
        drop(ManuallyDrop::into_inner(held));
    }
    let mut next = meta.next.take();
    while let Some(buffer) = next {
        // SAFETY: the chain was owned by the dying buffer (5), so this is a live handle.
        next = unsafe { (*buffer.as_ptr()).next.take() };
        release(buffer);
    }
}

impl Drop for Mbuf {
    /// The safety net: the buffer goes home, and the pool counts a packet that ended without a name.
    fn drop(&mut self) {
        // SAFETY: the pool outlives its buffers (1).
        unsafe { self.meta().pool.as_ref() }.count_unnamed();
        release(self.0);
    }
}

impl Held {
    /// Bytes held, over all segments.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize + self.rest_len as usize
    }

    /// Whether no byte is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes where they are in one buffer; `None` for a chain: see [`Held::segments`].
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        (self.rest_len == 0).then(|| self.first())
    }

    /// The bytes, a slice per buffer.
    pub fn segments(&self) -> Segments<'_> {
        // SAFETY: the metadata is alive while a handle is (1, 3), and the chain behind it stays as it is (5).
        let next = unsafe { (*self.buffer.as_ptr()).next };
        Segments { first: Some(self.first()), next, left: self.rest_len as usize }
    }

    /// One more handle to the same bytes. Not `Clone`, so that it is never made by accident.
    #[inline]
    pub fn another(&self) -> Self {
        // SAFETY: alive (1, 3).
        let refs = unsafe { &(*self.buffer.as_ptr()).refs };
        refs.set(refs.get() + 1);
        Self { ..*self }
    }

    /// A handle to `len` of the bytes from `offset`; `None` where they are not inside the first buffer.
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

    /// The buffer itself, where this is the last handle to it: the packet that was posted has been sent, nobody else
    /// holds it. Otherwise the handle comes back.
    pub fn into_mbuf(self) -> Result<Mbuf, Self> {
        // SAFETY: alive (1, 3).
        if unsafe { (*self.buffer.as_ptr()).refs.get() } != 1 {
            return Err(self);
        }
        let mbuf = Mbuf(self.buffer);
        forget(self);
        Ok(mbuf)
    }

    #[inline]
    fn first(&self) -> &[u8] {
        // SAFETY: inside the buffer and initialised (2); not written while this handle lives (4).
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.len as usize) }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        release(self.buffer);
    }
}

/// The bytes of a packet, buffer by buffer.
pub struct Segments<'a> {
    first: Option<&'a [u8]>,
    next: Option<NonNull<Metadata>>,
    left: usize,
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
        // SAFETY: inside that buffer and initialised (2), not written meanwhile (4, 5).
        Some(unsafe { slice::from_raw_parts(meta.data.as_ptr(), len) })
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = self.meta();
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("headroom", &meta.headroom)
            .field("refs", &meta.refs.get())
            .field("linear", &meta.next.is_none())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[inline(always)]
fn prefetch_line(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// The metadata as the pool writes it once at start: a buffer on the free list.
impl Metadata {
    pub(super) const fn home(pool: NonNull<PoolInner>) -> Self {
        Self {
            pool,
            data: NonNull::dangling(),
            next: None,
            len: 0,
            rest_len: 0,
            headroom: 0,
            room: 0,
            refs: Cell::new(0),
            timestamp: 0,
            flow_tag: 0,
            vlan: 0,
            interface: 0,
            flags: 0,
            ip_checksum: Verdict::Unknown,
            l4_checksum: Verdict::Unknown,
            l2_len: 0,
            l3_len: 0,
            hash: 0,
            view: None,
        }
    }
}
