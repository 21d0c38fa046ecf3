//! The mbuf: an owned 8-byte handle to one packet buffer. The packet's metadata stands in the first
//! cache line of that buffer.
//!
//! An mbuf is neither `Clone` nor `Send`: its buffer belongs to one worker's pool. Each packet ends
//! for a named reason: it is handed on, kept, delivered, or discarded. `free` is for the first
//! three, `discard` in the pipeline for the last. Dropping an mbuf frees the buffer as well, and
//! the pool counts a drop *without a reason*.
//!
//! ```text
//!  buffer  | metadata 128 | headroom | data                | tailroom |
//!                                    ^ data pointer  ^ + len
//!                         <- prepend | advance ->   trim <- | append ->
//! ```
//!
//! Invariants: those of [`metadata`](super::metadata), cited by their numbers.

use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, forget};
use core::ops::Deref;
use core::ptr::NonNull;
use core::slice;

use super::copy::copy_frame;
use super::held::{Held, Segments};
use super::metadata::{
    ChecksumStatus, HAS_CHAIN, HAS_FLOW_TAG, HAS_HASH, HAS_TICKS, HAS_TIMESTAMP, HAS_VLAN, Headers, IS_VIEW,
    METADATA_LEN, Metadata, NO_FLOW_TAG, PacketInfo, RxInfo, release,
};
use super::pool::CACHE_LINE;
use crate::time::UnixTime;

/// An owned handle to a packet buffer. Eight bytes, and so is `Option<Mbuf>`.
pub struct Mbuf(pub(super) NonNull<Metadata>);

const _: () = assert!(size_of::<Option<Mbuf>>() == 8);

impl Mbuf {
    /// Bytes of the packet, over all its segments.
    #[inline]
    pub fn len(&self) -> usize {
        self.meta().len as usize + self.meta().rest_len as usize
    }

    /// Whether the packet is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the first segment: the whole packet if [`Mbuf::is_linear`], and in any case all
    /// its headers.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let meta = self.meta();
        // SAFETY: `data .. data + len` is inside the buffer and initialized (2); nothing writes
        // while `self` is borrowed (4).
        unsafe { slice::from_raw_parts(meta.data.as_ptr(), meta.len as usize) }
    }

    /// The bytes of the first segment, for writing. Panics if the bytes are shared (a [`Held`]
    /// exists or this is a view): check [`Mbuf::is_writable`].
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
        meta.refs.get() == 1 && meta.known.flags & IS_VIEW == 0
    }

    /// Whether all bytes are in one buffer.
    #[inline]
    pub fn is_linear(&self) -> bool {
        self.meta().known.flags & HAS_CHAIN == 0
    }

    /// Whether all bytes are in one buffer that the mbuf owns: no chain, no view. Nearly every
    /// packet is plain, so one test decides.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.meta().known.flags & (HAS_CHAIN | IS_VIEW) == 0
    }

    /// The packet's bytes, a slice per buffer, front to back.
    pub fn segments(&self) -> Segments<'_> {
        Segments::new(self.bytes(), self.meta().next, self.meta().rest_len as usize)
    }

    /// Free bytes before the data. In a view these are the bytes advanced over: readable, never
    /// written.
    #[inline]
    pub fn headroom(&self) -> usize {
        let meta = self.meta();
        let start = match meta.known.flags & IS_VIEW {
            0 => self.0.as_ptr() as usize + METADATA_LEN,
            _ => meta.view_start(),
        };
        meta.data.as_ptr() as usize - start
    }

    /// Free bytes after the data of the first segment. None in a view.
    #[inline]
    pub fn tailroom(&self) -> usize {
        let meta = self.meta();
        if meta.known.flags & IS_VIEW != 0 {
            return 0;
        }
        meta.room as usize - self.headroom() - meta.len as usize
    }

    /// Grows the front by `len` bytes and returns them, uncleared, for writing. Returns `None` and
    /// changes nothing if the headroom is too small or the bytes are shared.
    #[inline]
    pub fn prepend(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.headroom() || !self.is_writable() {
            return None;
        }
        let meta = self.meta_mut();
        // SAFETY: `len <= headroom`, so the new start is inside the buffer (2).
        meta.data = unsafe { meta.data.sub(len) };
        meta.len += len as u32;
        // SAFETY: as in `bytes_mut`.
        Some(unsafe { slice::from_raw_parts_mut(meta.data.as_ptr(), len) })
    }

    /// Removes `len` bytes from the front: a header that has been read. Panics if the first segment
    /// is shorter; the caller has already checked that header's length.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        let meta = self.meta_mut();
        assert!(len <= meta.len as usize, "advance past the first segment");
        // SAFETY: `len <= meta.len`, so the new start is inside the buffer or one past its data
        // (2).
        meta.data = unsafe { meta.data.add(len) };
        meta.len -= len as u32;
    }

    /// Keeps `len` bytes of the packet from `offset` on: removes a header that has been read, and
    /// padding. One call does the work of [`trim_to`](Self::trim_to) and
    /// [`advance`](Self::advance). Panics if the range is not inside the packet, or `offset` is not
    /// inside the first segment.
    #[inline(always)]
    pub fn narrow(&mut self, offset: usize, len: usize) {
        if !self.is_linear() {
            return Self::narrow_chain(self.alias(), offset, len);
        }
        let meta = self.meta_mut();
        assert!(offset <= meta.len as usize && len <= meta.len as usize - offset, "narrow past the packet");
        // SAFETY: `offset + len <= meta.len`, so the new start is inside the buffer or one past its
        // data (2).
        meta.data = unsafe { meta.data.add(offset) };
        meta.len = len as u32;
    }

    #[cold]
    #[inline(never)]
    fn narrow_chain(mut packet: ManuallyDrop<Self>, offset: usize, len: usize) {
        assert!(offset.saturating_add(len) <= packet.len(), "narrow past the packet");
        packet.trim_to(offset + len);
        packet.advance(offset);
    }

    /// Grows the back of a linear packet by `len` bytes and returns them, uncleared, for writing.
    /// Returns `None` and changes nothing if the tailroom is too small, the packet is a chain, or
    /// the bytes are shared.
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

    /// Keeps the first `len` bytes of the packet and drops the rest, including buffers of a chain.
    /// A packet that is not longer is unchanged. Panics on a chain that is held. Costs a few
    /// instructions on a linear packet.
    #[inline]
    pub fn trim_to(&mut self, len: usize) {
        if self.is_linear() {
            let meta = self.meta_mut();
            meta.len = meta.len.min(u32::try_from(len).unwrap_or(u32::MAX));
        } else if len < self.len() {
            Self::trim_chain_to(self.alias(), len);
        }
    }

    /// Removes `len` bytes from the back; all bytes if the packet is shorter.
    #[inline]
    pub fn trim(&mut self, len: usize) {
        self.trim_to(self.len().saturating_sub(len));
    }

    #[cold]
    #[inline(never)]
    fn trim_chain_to(mut packet: ManuallyDrop<Self>, len: usize) {
        let meta = packet.meta_mut();
        assert!(meta.refs.get() == 1, "the chain behind a held mbuf does not change");
        if len <= meta.len as usize {
            meta.len = len as u32;
            if let Some(next) = meta.take_chain() {
                Self(next).free();
            }
            return;
        }
        let left = len - meta.len as usize;
        meta.rest_len = left as u32;
        if let Some(next) = meta.next {
            // Code elsewhere has a handle only to the head of a chain, so this handle must not free
            // its buffer.
            let mut rest = ManuallyDrop::new(Self(next));
            rest.trim_to(left);
        }
    }

    /// Chains `rest` after the last segment of this packet; it reads all segments to find the last
    /// one. Panics on a chain that is held. Do not chain a view of this packet's own bytes to it:
    /// each would keep the other from being freed.
    pub fn attach(&mut self, rest: Self) {
        // The checks come before any link is made, so that a panic leaves two whole packets.
        let rest_len = u32::try_from(rest.len()).ok();
        let all = rest_len.and_then(|rest_len| self.meta().rest_len.checked_add(rest_len));
        let rest_len = all.expect("a packet is shorter than 4 GiB") - self.meta().rest_len;
        let mut last = self.0;
        // SAFETY: the chain is owned by `self` (5), borrowed mutably, and no reference into it is
        // outstanding.
        while let Some(next) = unsafe { last.as_ref() }.next {
            // SAFETY: as above.
            let meta = unsafe { last.as_mut() };
            assert!(meta.refs.get() == 1, "the chain behind a held mbuf does not change");
            meta.rest_len += rest_len;
            last = next;
        }
        // SAFETY: as above.
        let meta = unsafe { last.as_mut() };
        meta.next = Some(rest.0);
        meta.known.flags |= HAS_CHAIN;
        meta.home.mark();
        meta.rest_len = rest_len;
        forget(rest);
    }

    /// Takes the chain behind the first segment off.
    pub fn detach(&mut self) -> Option<Self> {
        let meta = self.meta_mut();
        assert!(meta.refs.get() == 1 || meta.next.is_none(), "the chain behind a held mbuf does not change");
        meta.take_chain().map(Self)
    }

    /// A second handle to the present bytes. While it lives, the mbuf cannot be written.
    #[inline]
    pub fn hold(&self) -> Held {
        let meta = self.meta();
        meta.add_handle();
        Held { buffer: self.0, data: meta.data, len: meta.len, rest_len: meta.rest_len }
    }

    /// As [`hold`](Self::hold), of `len` bytes from `offset`. Panics if they are not inside the
    /// first segment.
    #[inline(always)]
    pub fn hold_part(&self, offset: usize, len: usize) -> Held {
        let meta = self.meta();
        assert!(offset <= meta.len as usize && len <= meta.len as usize - offset, "hold past the first segment");
        meta.add_handle();
        // SAFETY: `offset <= meta.len`, so the start is inside the buffer or one past its data (2).
        let data = unsafe { meta.data.add(offset) };
        Held { buffer: self.0, data, len: len as u32, rest_len: 0 }
    }

    /// Frees a packet that was delivered, sent or consumed. The buffer returns to the free list
    /// unless a [`Held`] exists. About 2 ns. Any other end is a drop and goes through `discard`
    /// with its reason.
    #[inline]
    pub fn free(self) {
        let buffer = self.0;
        forget(self);
        release(buffer);
    }

    /// Stores the receive metadata of the device.
    #[inline]
    pub fn set_rx_info(&mut self, info: &RxInfo) {
        let meta = self.meta_mut();
        let PacketInfo { interface, flags, l2_len, l3_len, .. } = meta.known;
        let known = PacketInfo::of(info);
        meta.known =
            PacketInfo { interface, flags: known.flags | flags & (IS_VIEW | HAS_CHAIN), l2_len, l3_len, ..known };
        if let Some(timestamp) = info.timestamp.map(UnixTime::as_nanos).or(info.ticks) {
            meta.timestamp = timestamp;
        }
        if let Some(tag) = info.flow_tag {
            meta.flow_tag = tag;
        }
        if let Some(vlan) = info.vlan {
            meta.vlan = vlan;
        }
        if let Some(hash) = info.hash {
            meta.hash = hash;
        }
    }

    /// The receive metadata that the device stored.
    pub fn rx_info(&self) -> RxInfo {
        let meta = self.meta();
        RxInfo {
            timestamp: self.timestamp(),
            ticks: self.ticks(),
            flow_tag: self.flow_tag(),
            vlan: self.vlan(),
            hash: (meta.known.flags & HAS_HASH != 0 && meta.hash != 0).then_some(meta.hash),
            ip_checksum: meta.known.ip_checksum,
            l4_checksum: meta.known.l4_checksum,
            headers: meta.known.headers,
        }
    }

    /// The arrival time of the frame, if the device has one.
    #[inline]
    pub fn timestamp(&self) -> Option<UnixTime> {
        let meta = self.meta();
        (meta.known.flags & HAS_TIMESTAMP != 0).then(|| UnixTime::from_nanos(meta.timestamp))
    }

    /// The arrival time as ticks of the NIC's own clock, if the device is configured for that.
    #[inline]
    pub fn ticks(&self) -> Option<u64> {
        let meta = self.meta();
        (meta.known.flags & HAS_TICKS != 0).then_some(meta.timestamp)
    }

    /// The headers that the device recognized.
    #[inline]
    pub fn headers(&self) -> Headers {
        self.meta().known.headers
    }

    /// The tag of the steering rule that matched.
    #[inline]
    pub fn flow_tag(&self) -> Option<u32> {
        let meta = self.meta();
        (meta.known.flags & HAS_FLOW_TAG != 0 && meta.flow_tag != NO_FLOW_TAG).then_some(meta.flow_tag)
    }

    /// Tag control information (priority, DEI, VLAN id) of the innermost tag, stripped by the NIC
    /// or by the Ethernet node.
    #[inline]
    pub fn vlan(&self) -> Option<u16> {
        let meta = self.meta();
        (meta.known.flags & HAS_VLAN != 0).then_some(meta.vlan)
    }

    /// Stores the VLAN tag that a node has stripped.
    #[inline]
    pub fn set_vlan(&mut self, tci: u16) {
        let meta = self.meta_mut();
        meta.vlan = tci;
        meta.known.flags |= HAS_VLAN;
    }

    /// Index of the interface that received the frame, in the worker's own numbering; zero if the
    /// worker has one interface.
    #[inline]
    pub fn interface(&self) -> u16 {
        self.meta().known.interface
    }

    /// Stores the interface that received the frame.
    #[inline]
    pub fn set_interface(&mut self, interface: u16) {
        self.meta_mut().known.interface = interface;
    }

    /// The checksum status of the IPv4 header.
    #[inline]
    pub fn ip_checksum(&self) -> ChecksumStatus {
        self.meta().known.ip_checksum
    }

    /// The checksum status of UDP or TCP.
    #[inline]
    pub fn l4_checksum(&self) -> ChecksumStatus {
        self.meta().known.l4_checksum
    }

    /// Stores the UDP or TCP checksum status that a node determined.
    #[inline]
    pub fn set_l4_checksum(&mut self, verdict: ChecksumStatus) {
        self.meta_mut().known.l4_checksum = verdict;
    }

    /// Length of the link header before the packet, tags included; it remains known after an
    /// advance.
    #[inline]
    pub fn l2_len(&self) -> usize {
        self.meta().known.l2_len.into()
    }

    /// Length of the IP header behind the link header; it remains known after an advance.
    #[inline]
    pub fn l3_len(&self) -> usize {
        self.meta().known.l3_len.into()
    }

    /// Stores the length of the link header. Panics above 255: the caller bounds its tags.
    #[inline]
    pub fn set_l2_len(&mut self, len: usize) {
        self.meta_mut().known.l2_len = len as u8;
    }

    /// Stores the length of the IP header (at most 60 for IPv4).
    #[inline]
    pub fn set_l3_len(&mut self, len: usize) {
        self.meta_mut().known.l3_len = len as u8;
    }

    /// The last `len` bytes that were advanced over: a header that has been read. `None` if the
    /// headroom is shorter, or the packet is a view.
    #[inline]
    pub fn behind(&self, len: usize) -> Option<&[u8]> {
        if len > self.headroom() {
            return None;
        }
        let meta = self.meta();
        // SAFETY: `len <= headroom`, so the range is inside the buffer and initialized (2); shared
        // borrow (4).
        Some(unsafe { slice::from_raw_parts(meta.data.as_ptr().sub(len), len) })
    }

    /// The same handle by value, for a call to code that is not inlined while this one is borrowed.
    /// So the address of the handle itself does not escape, and the compiler keeps it in a
    /// register.
    #[inline(always)]
    fn alias(&mut self) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self(self.0))
    }

    /// Lends the mbuf by value; see [`MbufRef`].
    #[inline(always)]
    pub(crate) fn lend(&self) -> MbufRef<'_> {
        MbufRef { mbuf: ManuallyDrop::new(Self(self.0)), borrow: PhantomData }
    }

    /// Prefetches the first data line, for a loop that knows which packet comes next. It affects
    /// only the cache.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_line(self.meta().data.as_ptr());
    }

    #[inline(always)]
    fn meta(&self) -> &Metadata {
        // SAFETY: initialized and alive (1); shared while `self` is borrowed.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn meta_mut(&mut self) -> &mut Metadata {
        // SAFETY: initialized and alive (1). A `Held` keeps no reference into the metadata between
        // calls, so this is the only reference while `self` is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    /// Makes an empty mbuf of a buffer from the free list.
    ///
    /// # Safety
    /// `buffer` was on the free list, no handle names it, and `headroom <= room`.
    #[inline(always)]
    pub(super) unsafe fn init(buffer: NonNull<Metadata>, headroom: usize) -> Self {
        let meta = buffer.as_ptr();
        // SAFETY: the caller owns the buffer alone, its start is followed by `room` bytes (2), and
        // the fields that are not written here are valid on the free list (7) or guarded by a flag.
        unsafe {
            (*meta).data = buffer.cast::<u8>().add(METADATA_LEN + headroom);
            (*meta).len = 0;
            (*meta).known = PacketInfo::default();
        }
        Self(buffer)
    }

    /// As [`init`](Self::init), with a copy of the first `len` bytes of `line`.
    ///
    /// # Safety
    /// As [`init`](Self::init), and a line behind the headroom is inside `room`; `len` is at most a
    /// line.
    #[inline(always)]
    pub(super) unsafe fn init_line(
        buffer: NonNull<Metadata>,
        headroom: usize,
        line: &[u8; CACHE_LINE],
        len: usize,
    ) -> Self {
        // SAFETY: the caller's promise, passed on; a line after `data` is inside the buffer, and no
        // other handle names it.
        unsafe {
            let mbuf = Self::init(buffer, headroom);
            (*buffer.as_ptr()).data.cast::<[u8; CACHE_LINE]>().write(*line);
            (*buffer.as_ptr()).len = len as u32;
            mbuf
        }
    }

    /// As [`init_line`](Self::init_line), with three lines. They are copied one by one: for all
    /// three at once the compiler calls `memcpy`.
    ///
    /// # Safety
    /// As [`init`](Self::init). Also, the three lines after the headroom are inside `room`, and
    /// `len` is at most their length.
    #[inline(always)]
    pub(super) unsafe fn init_lines(
        buffer: NonNull<Metadata>,
        headroom: usize,
        [first, second, third]: &[[u8; CACHE_LINE]; 3],
        len: usize,
    ) -> Self {
        // SAFETY: the caller's promise, passed on; the lines after `data` are inside the buffer,
        // and no other handle names it.
        unsafe {
            let mbuf = Self::init_line(buffer, headroom, first, len);
            let data = (*buffer.as_ptr()).data.cast::<[u8; CACHE_LINE]>();
            data.add(1).write(*second);
            data.add(2).write(*third);
            mbuf
        }
    }

    /// As [`init`](Self::init), with `len` bytes, uncleared.
    ///
    /// # Safety
    /// As [`init`](Self::init), and `len` bytes behind the headroom are inside `room`.
    #[inline(always)]
    pub(super) unsafe fn init_fresh(buffer: NonNull<Metadata>, headroom: usize, len: usize) -> FreshMbuf {
        // SAFETY: the caller's promise, passed on; the caller owns the buffer alone.
        unsafe {
            let mbuf = Self::init(buffer, headroom);
            (*buffer.as_ptr()).len = len as u32;
            FreshMbuf { data: (*buffer.as_ptr()).data, mbuf, len }
        }
    }

    /// As [`init`](Self::init), with a copy of `frame`. The copy is made before the handle exists,
    /// so that no handle has to be in memory to be dropped if the copy panics.
    ///
    /// # Safety
    /// As [`init`](Self::init), and the frame behind the headroom is inside `room`.
    #[inline(always)]
    pub(super) unsafe fn init_copy(buffer: NonNull<Metadata>, headroom: usize, frame: &[u8]) -> FreshMbuf {
        // SAFETY: the bytes of the frame from there on are inside the buffer (caller) and
        // initialized (2), and the caller owns the buffer alone.
        let place = unsafe {
            let data = buffer.cast::<u8>().add(METADATA_LEN + headroom);
            slice::from_raw_parts_mut(data.as_ptr(), frame.len())
        };
        copy_frame(place, frame);
        // SAFETY: the caller's promise, passed on.
        unsafe { Self::init_fresh(buffer, headroom, frame.len()) }
    }

    /// Turns a fresh mbuf into a view of held bytes.
    pub(super) fn become_view(&mut self, held: Held) {
        let held = held.at_origin();
        let meta = self.meta_mut();
        assert!(held.rest_len == 0, "a view is of one buffer's bytes");
        meta.data = held.data;
        meta.len = held.len;
        meta.known.flags |= IS_VIEW;
        meta.home.mark();
        meta.view = Some(ManuallyDrop::new(held));
    }

    /// Address of the first data byte, for device set-up and descriptors.
    #[inline]
    pub fn data_ptr(&self) -> *const u8 {
        self.meta().data.as_ptr()
    }

    /// Turns the handle into a pointer that a device keeps in its ring while the NIC or the kernel
    /// owns the buffer.
    #[inline]
    pub fn into_raw(self) -> NonNull<u8> {
        let buffer = self.0;
        forget(self);
        buffer.cast()
    }

    /// Turns the pointer back into the handle.
    ///
    /// # Safety
    /// `raw` came from [`Mbuf::into_raw`] on this thread and has not been taken back since.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw.cast())
    }
}

/// A linear mbuf that has no second handle yet: its `refs` is one, it is no view, and it has `len`
/// bytes from `data` on.
pub(crate) struct FreshMbuf {
    mbuf: Mbuf,
    /// As in the metadata, so that writing the bytes does not read the metadata again.
    data: NonNull<u8>,
    len: usize,
}

impl FreshMbuf {
    /// All bytes, uncleared.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes from `data` on are inside the buffer and initialized (2); this is the
        // only handle (4), borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }

    /// The mbuf.
    #[inline(always)]
    pub(crate) fn into_mbuf(self) -> Mbuf {
        self.mbuf
    }

    /// The mbuf, and a handle to its bytes after the first `headers_len`, which a sender keeps for
    /// retransmission. The handle is empty if there are no more bytes.
    #[inline(always)]
    pub(crate) fn keep(self, headers_len: usize) -> (Mbuf, Held) {
        let Self { mbuf, data, len } = self;
        let offset = headers_len.min(len);
        let meta = mbuf.meta();
        meta.refs.set(2);
        meta.home.mark();
        // SAFETY: `offset <= len`, so the start is inside the buffer or one past its data (2).
        let data = unsafe { data.add(offset) };
        let held = Held { buffer: mbuf.0, data, len: (len - offset) as u32, rest_len: 0 };
        (mbuf, held)
    }
}

impl Drop for Mbuf {
    /// The safety net: it frees the buffer, and the pool counts a drop without a reason.
    fn drop(&mut self) {
        // SAFETY: the pool outlives its buffers (1).
        unsafe { self.meta().home.pool().as_ref() }.count_drop_without_reason();
        release(self.0);
    }
}

/// A shared borrow of an mbuf, passed as the handle itself and not as a pointer to it. So the
/// caller of a function that is not inlined keeps its own handle in a register.
pub(crate) struct MbufRef<'a> {
    /// Never dropped: the lender owns the handle (3).
    mbuf: ManuallyDrop<Mbuf>,
    borrow: PhantomData<&'a Mbuf>,
}

impl Deref for MbufRef<'_> {
    type Target = Mbuf;

    #[inline(always)]
    fn deref(&self) -> &Mbuf {
        &self.mbuf
    }
}

impl fmt::Debug for MbufRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mbuf.fmt(f)
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = self.meta();
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("headroom", &self.headroom())
            .field("refs", &meta.refs.get())
            .field("linear", &self.is_linear())
            .finish_non_exhaustive()
    }
}

/// Prefetches the cache line of an address, whether or not the address is valid. It affects only
/// the cache.
#[inline(always)]
pub(crate) fn prefetch_line(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
