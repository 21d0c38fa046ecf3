//! Metadata at the start of each buffer: the packet's place and length, its receive metadata, and
//! its reference count. The handles ([`Mbuf`](super::Mbuf), [`Held`]) are pointers to it; they and
//! the pool share the rules below.
//!
//! Invariants:
//! 1. A `Metadata` lies at the start of a buffer that a live [`Pool`] cut from its region, aligned
//!    to a cache line and initialized by the pool. Only the pool's thread touches it (no handle is
//!    `Send`).
//! 2. The `room` bytes after the metadata are headroom, data and tailroom: `data .. data + len`
//!    lies inside them, or, in a view, inside the bytes of its `Held`. All bytes are initialized (a
//!    region starts zeroed).
//! 3. `refs` counts the live handles: the mbuf (one) plus every `Held`. Only the last one puts the
//!    buffer back on the free list.
//! 4. Bytes are written only through the mbuf, only while `refs` is one and it is not a view; so a
//!    `Held` may lend `&[u8]` freely.
//! 5. `next` is valid if the flags say so. This buffer owns it: each buffer is in at most one
//!    chain. While `refs` is above one, the chain after the buffer does not change, even if the
//!    buffer is itself chained after another one that is freed.
//! 6. A view's bytes belong to the `Held` in its `view` field, which lives as long as the view
//!    does.
//! 7. On the free list `refs` is one, as the next mbuf needs it; `next`, `rest_len` and `view` are
//!    empty; and `home` is not marked. So rarely used fields are reset only after they were used,
//!    not for each packet.
//! 8. `home` is marked while `refs` is above one, while there is a chain, and while the buffer is a
//!    view; the mark may stay longer. So a buffer whose `home` is not marked is freed without a
//!    check of any other field.

use core::cell::Cell;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::held::Held;
use super::pool::PoolInner;
use crate::time::UnixTime;

/// Bytes at the start of each buffer that hold the metadata: one hot cache line, and a cold one
/// that only views touch.
pub(crate) const METADATA_LEN: usize = 128;

/// Whether a checksum is known to be right, by the NIC or by the node that computed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum ChecksumStatus {
    /// Not checked: verify in software.
    #[default]
    Unknown = 0,
    /// Verified, or known not to be needed.
    Good = 1,
    /// Verified and wrong.
    Bad = 2,
}

/// Receive metadata: the findings of the device about a frame. Nodes skip the checks that the
/// device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxInfo {
    /// Arrival time by the NIC's clock or the capture's, in ns of the Unix epoch; `None` if
    /// unknown.
    pub timestamp: Option<UnixTime>,
    /// Arrival time in ticks of the NIC's own clock, if the device is configured for that. Never
    /// both: there is room for one.
    pub ticks: Option<u64>,
    /// The tag of the steering rule that matched.
    pub flow_tag: Option<u32>,
    /// The tag control information of a VLAN tag that the NIC stripped.
    pub vlan: Option<u16>,
    /// The RSS hash; zero means none.
    pub hash: Option<u32>,
    /// The IPv4 header checksum.
    pub ip_checksum: ChecksumStatus,
    /// The UDP or TCP checksum.
    pub l4_checksum: ChecksumStatus,
    /// The headers that the NIC found.
    pub headers: Headers,
}

/// Which headers a NIC recognized in a frame. `None` or `false` also means that the NIC did not
/// look for the header.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Headers(u8);

impl Headers {
    const IPV4: u8 = 1;
    const IPV6: u8 = 2;
    const L3: u8 = 3;
    const TCP: u8 = 4;
    const UDP: u8 = 8;
    const L4: u8 = 12;
    const FRAGMENT: u8 = 16;
    const IP_OPTIONS: u8 = 32;

    /// Nothing known.
    pub const UNKNOWN: Self = Self(0);

    /// With this network header.
    #[must_use]
    pub const fn with_l3(self, l3: L3) -> Self {
        let bit = match l3 {
            L3::Ipv4 => Self::IPV4,
            L3::Ipv6 => Self::IPV6,
        };
        Self(self.0 & !Self::L3 | bit)
    }

    /// With this transport header.
    #[must_use]
    pub const fn with_l4(self, l4: L4) -> Self {
        let bit = match l4 {
            L4::Tcp => Self::TCP,
            L4::Udp => Self::UDP,
        };
        Self(self.0 & !Self::L4 | bit)
    }

    /// A fragment of a packet.
    #[must_use]
    pub const fn with_fragment(self) -> Self {
        Self(self.0 | Self::FRAGMENT)
    }

    /// With options of IPv4 or extension headers of IPv6.
    #[must_use]
    pub const fn with_ip_options(self) -> Self {
        Self(self.0 | Self::IP_OPTIONS)
    }

    /// The network header.
    #[inline]
    pub const fn l3(self) -> Option<L3> {
        match self.0 & Self::L3 {
            Self::IPV4 => Some(L3::Ipv4),
            Self::IPV6 => Some(L3::Ipv6),
            _ => None,
        }
    }

    /// The transport header.
    #[inline]
    pub const fn l4(self) -> Option<L4> {
        match self.0 & Self::L4 {
            Self::TCP => Some(L4::Tcp),
            Self::UDP => Some(L4::Udp),
            _ => None,
        }
    }

    /// Whether it is a fragment of a packet.
    #[inline]
    pub const fn is_fragment(self) -> bool {
        self.0 & Self::FRAGMENT != 0
    }

    /// Whether there are options of IPv4 or extension headers of IPv6.
    #[inline]
    pub const fn has_ip_options(self) -> bool {
        self.0 & Self::IP_OPTIONS != 0
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Headers")
            .field("l3", &self.l3())
            .field("l4", &self.l4())
            .field("fragment", &self.is_fragment())
            .field("ip_options", &self.has_ip_options())
            .finish()
    }
}

/// A network header that NICs know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum L3 {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// A transport header that NICs know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum L4 {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The first two cache lines of a buffer.
#[repr(C, align(64))]
pub(super) struct Metadata {
    // The hot line.
    pub(super) home: PoolPointer,
    pub(super) data: NonNull<u8>,
    pub(super) next: Option<NonNull<Metadata>>,
    /// Bytes of this buffer's part of the packet.
    pub(super) len: u32,
    /// Bytes of the buffers behind `next`.
    pub(super) rest_len: u32,
    pub(super) refs: Cell<u32>,
    /// Bytes from the start of the headroom to the end of the tailroom, always of this buffer, even
    /// if it is a view.
    pub(super) room: u16,
    /// Valid if `HAS_VLAN` is set; the next two fields have flags as well.
    pub(super) vlan: u16,
    pub(super) timestamp: u64,
    /// A tag of [`NO_FLOW_TAG`] means no tag, and a hash of zero means no hash, so these two need
    /// no flag.
    pub(super) flow_tag: u32,
    pub(super) known: PacketInfo,
    pub(super) hash: u32,
    // The cold line begins here.
    pub(super) view: Option<ManuallyDrop<Held>>,
}

const _: () = assert!(size_of::<Metadata>() == METADATA_LEN && core::mem::offset_of!(Metadata, view) == 64);

/// The eight bytes of an mbuf that start at zero, adjacent, so that one store clears them. A device
/// with rich metadata prepares the word for each kind of frame ([`PacketInfo::of`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(4))]
pub(crate) struct PacketInfo {
    pub(super) interface: u16,
    pub(super) flags: u8,
    pub(super) ip_checksum: ChecksumStatus,
    pub(super) l4_checksum: ChecksumStatus,
    pub(super) l2_len: u8,
    pub(super) l3_len: u8,
    /// The eighth byte: without it the compiler would emit three stores.
    pub(super) headers: Headers,
}

impl PacketInfo {
    /// The flags of the values that are present in `info`, and its small values; timestamp, flow
    /// tag, hash and VLAN have their own fields.
    #[inline]
    pub(crate) fn of(info: &RxInfo) -> Self {
        let has = |there: bool, flag: u8| if there { flag } else { 0 };
        Self {
            interface: 0,
            flags: has(info.timestamp.is_some(), HAS_TIMESTAMP)
                | has(info.ticks.is_some(), HAS_TICKS)
                | has(info.flow_tag.is_some(), HAS_FLOW_TAG)
                | has(info.vlan.is_some(), HAS_VLAN)
                | has(info.hash.is_some(), HAS_HASH),
            ip_checksum: info.ip_checksum,
            l4_checksum: info.l4_checksum,
            l2_len: 0,
            l3_len: 0,
            headers: info.headers,
        }
    }

    /// The struct as one integer.
    pub(crate) fn word(self) -> PacketInfoWord {
        let [low, high] = self.interface.to_ne_bytes();
        let bytes = [
            low,
            high,
            self.flags,
            self.ip_checksum as u8,
            self.l4_checksum as u8,
            self.l2_len,
            self.l3_len,
            self.headers.0,
        ];
        PacketInfoWord(u64::from_ne_bytes(bytes))
    }
}

/// A [`PacketInfo`] in a register: the compiler would split a struct and join it again byte by
/// byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct PacketInfoWord(pub(super) u64);

const _: () = assert!(size_of::<PacketInfo>() == size_of::<PacketInfoWord>());

/// Stands for no flow tag; tags have 24 bits.
pub(super) const NO_FLOW_TAG: u32 = u32::MAX;

pub(super) const HAS_TIMESTAMP: u8 = 1;
pub(super) const HAS_FLOW_TAG: u8 = 2;
pub(super) const HAS_VLAN: u8 = 4;
pub(super) const HAS_HASH: u8 = 8;
pub(super) const IS_VIEW: u8 = 16;
/// Set if `next` is present: one test of the flags distinguishes a packet with a chain or borrowed
/// bytes from a plain one.
pub(super) const HAS_CHAIN: u8 = 32;
/// Set instead of `HAS_TIMESTAMP` if the field counts ticks of the NIC's clock.
pub(super) const HAS_TICKS: u8 = 64;

impl Metadata {
    /// The state on the free list, written by the pool once at start.
    pub(super) fn free_list_state(pool: NonNull<PoolInner>, room: u16) -> Self {
        Self {
            home: PoolPointer(Cell::new(pool)),
            data: NonNull::dangling(),
            next: None,
            len: 0,
            rest_len: 0,
            refs: Cell::new(1),
            room,
            vlan: 0,
            timestamp: 0,
            flow_tag: 0,
            known: PacketInfo::default(),
            hash: 0,
            view: None,
        }
    }
}

/// The pool of a buffer. A mark in the lowest bit of the address says that freeing the buffer must
/// check its other fields (8).
pub(super) struct PoolPointer(Cell<NonNull<PoolInner>>);

const _: () = assert!(align_of::<PoolInner>() > PoolPointer::MARK);

impl PoolPointer {
    const MARK: usize = 1;

    /// The pool.
    #[inline]
    pub(super) fn pool(&self) -> NonNull<PoolInner> {
        let marked = self.0.get();
        let pool = marked.as_ptr().map_addr(|addr| addr & !Self::MARK);
        NonNull::new(pool).unwrap_or(marked)
    }

    /// Whether the buffer belongs to this pool and is not marked.
    #[inline(always)]
    pub(super) fn is_unmarked_of(&self, pool: NonNull<PoolInner>) -> bool {
        self.0.get() == pool
    }

    #[inline(always)]
    fn is_marked(&self) -> bool {
        self.0.get().addr().get() & Self::MARK != 0
    }

    /// Sets the mark: freeing must check the other fields.
    #[inline(always)]
    pub(super) fn mark(&self) {
        self.0.set(self.0.get().map_addr(|addr| addr | Self::MARK));
    }

    /// Clears the mark: freeing need not check the other fields.
    ///
    /// # Safety
    /// It is marked.
    #[inline(always)]
    unsafe fn unmark(&self) {
        // SAFETY: the mark was put onto the address of a pool (caller), so this is that address
        // again.
        self.0.set(unsafe { self.0.get().byte_sub(Self::MARK) });
    }
}

impl Metadata {
    /// Counts one more handle. Panics if the count would wrap (leaked handles), because that would
    /// free a buffer that is held (3).
    #[inline(always)]
    pub(super) fn add_handle(&self) {
        let more = self.refs.get().checked_add(1).expect("a buffer has fewer than 2^32 handles");
        self.refs.set(more);
        self.home.mark();
    }

    /// Address of the first byte of a view.
    #[cold]
    pub(super) fn view_start(&self) -> usize {
        self.view.as_ref().map_or(self.data, |held| held.data).as_ptr() as usize
    }

    /// Takes the chain behind this buffer off, if there is one.
    pub(super) fn take_chain(&mut self) -> Option<NonNull<Self>> {
        self.known.flags &= !HAS_CHAIN;
        self.rest_len = 0;
        self.next.take()
    }
}

/// Drops one handle; the last one frees the buffer.
#[inline(always)]
pub(super) fn release(buffer: NonNull<Metadata>) {
    // SAFETY: the caller gave up a live handle (1), so the metadata is valid, and nothing writes to
    // it meanwhile.
    let home = unsafe { &(*buffer.as_ptr()).home };
    if home.is_marked() {
        return release_held(buffer);
    }
    // SAFETY: the pool outlives its buffers (1). Without the mark this was the last handle, and the
    // other fields are as (7) demands (8).
    unsafe { home.0.get().as_ref() }.put_back(buffer);
}

/// The same for a marked buffer with one more handle: the most frequent case, because the NIC has
/// sent bytes that a sender still holds.
#[inline(always)]
fn release_held(buffer: NonNull<Metadata>) {
    // SAFETY: as in `release`, and no reference to it is outstanding.
    let meta = unsafe { buffer.as_ref() };
    if meta.refs.get() != 2 || meta.known.flags & (IS_VIEW | HAS_CHAIN) != 0 {
        return release_other(buffer);
    }
    // SAFETY: only a marked buffer gets here.
    unsafe { meta.home.unmark() };
    meta.refs.set(1);
}

/// The same for every other marked buffer: with several more handles, with none, with a chain, or a
/// view.
#[inline(never)]
fn release_other(buffer: NonNull<Metadata>) {
    // SAFETY: as in `release`, and no reference to it is outstanding.
    let refs = unsafe { &buffer.as_ref().refs };
    match refs.get() - 1 {
        0 => release_last(buffer),
        left => refs.set(left),
    }
}

/// The same for its last handle.
#[inline(never)]
fn release_last(buffer: NonNull<Metadata>) {
    // SAFETY: as in `release`, and this was the last handle, so that nothing else refers to the
    // buffer.
    let meta = unsafe { &mut *buffer.as_ptr() };
    if meta.known.flags & (IS_VIEW | HAS_CHAIN) != 0 {
        release_parts(meta);
    }
    // SAFETY: only a marked buffer gets here.
    unsafe { meta.home.unmark() };
    // SAFETY: the pool outlives its buffers (1).
    unsafe { meta.home.pool().as_ref() }.put_back(buffer);
}

/// Frees the parts of a buffer that is being freed: the chain after it (in a loop, because a chain
/// may be long) and the bytes of a view. Then the buffer is as (7) demands.
#[cold]
fn release_parts(meta: &mut Metadata) {
    if let Some(held) = meta.view.take() {
        drop(ManuallyDrop::into_inner(held));
    }
    let mut next = meta.take_chain();
    while let Some(buffer) = next {
        // SAFETY: the chain was owned by the dying buffer (5), so this is a live handle.
        let meta = unsafe { &mut *buffer.as_ptr() };
        // If it is still held, the remaining handle owns the chain behind it from here on.
        next = if meta.refs.get() == 1 { meta.take_chain() } else { None };
        release(buffer);
    }
}
