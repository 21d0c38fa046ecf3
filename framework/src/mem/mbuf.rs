//! The mbuf: an owned 8-byte handle to one packet buffer, with what is known about the packet in the buffer's own
//! first cache line.
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
//! Invariants: those of [`metadata`](super::metadata), cited by their numbers.

use core::fmt;
use core::mem::{ManuallyDrop, forget};
use core::ptr::NonNull;
use core::slice;

use super::held::{Held, Segments};
use super::metadata::{
    HAS_FLOW_TAG, HAS_HASH, HAS_TIMESTAMP, HAS_VLAN, IS_VIEW, METADATA_LEN, Metadata, RxInfo, Verdict, add_handle,
    release,
};
use super::pool::PoolInner;
use crate::time::Instant;

/// An owned handle to a packet buffer. Eight bytes, and so is `Option<Mbuf>`.
pub struct Mbuf(pub(super) NonNull<Metadata>);

const _: () = assert!(size_of::<Option<Mbuf>>() == 8);

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
        Segments::new(self.bytes(), self.meta().next, self.meta().rest_len as usize)
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
        // Of a view as well: it can be read ([`Mbuf::behind`]), and is written by nobody.
        meta.headroom += len as u16;
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

    /// Chains `rest` behind the last segment of this packet: a walk over its segments. Panics on a chain that is held.
    /// A view of this packet's own bytes must not be chained to it: the two would keep each other from going home.
    pub fn attach(&mut self, rest: Self) {
        // Before any link is made, so that a refusal leaves two whole packets.
        let rest_len = u32::try_from(rest.len()).ok();
        let all = rest_len.and_then(|rest_len| self.meta().rest_len.checked_add(rest_len));
        let rest_len = all.expect("a packet is shorter than 4 GiB") - self.meta().rest_len;
        let mut last = self.0;
        // SAFETY: the chain is owned by `self` (5), borrowed mutably, and no reference into it is outstanding.
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
        meta.rest_len = rest_len;
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
        add_handle(&meta.refs);
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
            (*meta).refs.set(1);
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
        let held = held.at_origin();
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

impl Drop for Mbuf {
    /// The safety net: the buffer goes home, and the pool counts a packet that ended without a name.
    fn drop(&mut self) {
        // SAFETY: the pool outlives its buffers (1).
        unsafe { self.meta().pool.as_ref() }.count_unnamed();
        release(self.0);
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
