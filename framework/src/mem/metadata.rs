//! What stands at the start of each buffer: where its packet is, what is known of it, and who holds
//! it. The handles ([`Mbuf`](super::Mbuf), [`Held`]) are pointers to it; the rules below are theirs
//! and the pool's together.
//!
//! Invariants:
//! 1. A `Metadata` lies at the start of a buffer that a live [`Pool`] cut from its region, aligned
//!    to a cache line and initialised by the pool. Nobody but the pool's thread touches it (no
//!    handle is `Send`).
//! 2. The `room` bytes behind the metadata are headroom, data and tailroom: `data .. data + len`
//!    lies inside them, or, in a view, inside the bytes of its `Held`. All bytes are initialised (a
//!    region starts zeroed).
//! 3. `refs` counts the live handles: the mbuf (one) plus every `Held`. The last one sends the
//!    buffer back to the free list, and nobody else does.
//! 4. Bytes are written only through the mbuf, only while `refs` is one and it is not a view; so a
//!    `Held` may lend `&[u8]` freely.
//! 5. `next`, which is there where the flags say so, is owned by this buffer: each buffer is in at
//!    most one chain. While `refs` is above one the chain behind it does not change, also where it
//!    is itself chained behind another that goes home.
//! 6. A view's bytes belong to the `Held` in its `view` field, which lives as long as the view
//!    does.
//! 7. On the free list `refs` is one, as the next mbuf wants it, `next`, `rest_len` and `view` are
//!    empty, and `home` is not marked: so what is rarely used is put in order where it was used,
//!    and not for each packet.
//! 8. `home` is marked where `refs` is above one, where there is a chain and where the buffer is a
//!    view. It may also be marked where that was so once. So a buffer whose `home` is not marked
//!    goes home without a look at anything else.

use core::cell::Cell;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::held::Held;
use super::pool::PoolInner;
use crate::time::UnixTime;

/// Bytes at the start of each buffer that hold the metadata: one hot cache line, and a second one
/// that only views touch.
pub(crate) const METADATA_LEN: usize = 128;

/// Whether a checksum is known to be right. The NIC's word, or that of the node that computed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ChecksumStatus {
    /// Nobody has looked: verify in software.
    #[default]
    Unknown = 0,
    /// Verified, or known not to be needed.
    Good = 1,
    /// Verified and wrong.
    Bad = 2,
}

/// What a device already knows about a frame that it received; nodes skip the work that is done
/// here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxInfo {
    /// When the frame arrived, by the NIC's clock or the capture's, in ns of the Unix epoch; `None`
    /// where unknown.
    pub timestamp: Option<UnixTime>,
    /// The same as a count of the NIC's own clock, where that was asked for instead. Not both:
    /// there is room for one.
    pub ticks: Option<u64>,
    /// The tag of the steering rule that matched.
    pub flow_tag: Option<u32>,
    /// The tag control information of a VLAN tag that the NIC stripped.
    pub vlan: Option<u16>,
    /// The receive-side-scaling hash; a hash of zero is none.
    pub hash: Option<u32>,
    /// The IPv4 header checksum.
    pub ip_checksum: ChecksumStatus,
    /// The UDP or TCP checksum.
    pub l4_checksum: ChecksumStatus,
    /// The headers that the NIC found.
    pub headers: Headers,
}

/// Which headers a NIC found in a frame. What it did not look for, and what it did not know, is
/// `None` or `false`.
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
pub enum L3 {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// A transport header that NICs know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4 {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What stands in the first two cache lines of a buffer.
#[repr(C, align(64))]
pub(super) struct Metadata {
    // The hot line.
    pub(super) home: Home,
    pub(super) data: NonNull<u8>,
    pub(super) next: Option<NonNull<Metadata>>,
    /// Bytes of this buffer's part of the packet.
    pub(super) len: u32,
    /// Bytes of the buffers behind `next`.
    pub(super) rest_len: u32,
    pub(super) refs: Cell<u32>,
    /// Bytes from the start of the headroom to the end of the tailroom: of this buffer, also where
    /// it is a view.
    pub(super) room: u16,
    /// Guarded by `HAS_VLAN`, as the next two are by their flags.
    pub(super) vlan: u16,
    pub(super) timestamp: u64,
    /// Also without a tag where it is [`NO_FLOW_TAG`], and without a hash where that is zero: what
    /// a device does not know of each frame needs no flag of each.
    pub(super) flow_tag: u32,
    pub(super) known: Known,
    pub(super) hash: u32,
    // The cold line begins here.
    pub(super) view: Option<ManuallyDrop<Held>>,
}

const _: () = assert!(size_of::<Metadata>() == METADATA_LEN && core::mem::offset_of!(Metadata, view) == 64);

/// What a fresh mbuf begins with at zero: eight bytes together, so that one store clears them. A
/// device that finds out much makes it ahead for each kind of frame ([`Known::of`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(4))]
pub(crate) struct Known {
    pub(super) interface: u16,
    pub(super) flags: u8,
    pub(super) ip_checksum: ChecksumStatus,
    pub(super) l4_checksum: ChecksumStatus,
    pub(super) l2_len: u8,
    pub(super) l3_len: u8,
    /// The eighth byte: without it the store would be three.
    pub(super) headers: Headers,
}

impl Known {
    /// What `info` says, and which of its values there are; the values themselves have their own
    /// fields.
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

    /// All of it as one number.
    pub(crate) fn word(self) -> KnownWord {
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
        KnownWord(u64::from_ne_bytes(bytes))
    }
}

/// A [`Known`] in a register: as a struct it would be taken apart and put together again, byte by
/// byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct KnownWord(pub(super) u64);

const _: () = assert!(size_of::<Known>() == size_of::<KnownWord>());

/// Instead of a tag, which has 24 bits.
pub(super) const NO_FLOW_TAG: u32 = u32::MAX;

pub(super) const HAS_TIMESTAMP: u8 = 1;
pub(super) const HAS_FLOW_TAG: u8 = 2;
pub(super) const HAS_VLAN: u8 = 4;
pub(super) const HAS_HASH: u8 = 8;
pub(super) const IS_VIEW: u8 = 16;
/// Set where `next` is: one test of the flags tells a packet with a chain or borrowed bytes from a
/// plain one.
pub(super) const HAS_CHAIN: u8 = 32;
/// Instead of `HAS_TIMESTAMP`: the same field counts the NIC's own clock.
pub(super) const HAS_TICKS: u8 = 64;

impl Metadata {
    /// As the pool writes it once at start: a buffer on the free list.
    pub(super) fn home(pool: NonNull<PoolInner>, room: u16) -> Self {
        Self {
            home: Home(Cell::new(pool)),
            data: NonNull::dangling(),
            next: None,
            len: 0,
            rest_len: 0,
            refs: Cell::new(1),
            room,
            vlan: 0,
            timestamp: 0,
            flow_tag: 0,
            known: Known::default(),
            hash: 0,
            view: None,
        }
    }
}

/// The pool of a buffer, and in the lowest bit of the address a mark: on its way home the buffer
/// wants to be looked at (8).
pub(super) struct Home(Cell<NonNull<PoolInner>>);

const _: () = assert!(align_of::<PoolInner>() > Home::MARK);

impl Home {
    const MARK: usize = 1;

    /// The pool.
    #[inline]
    pub(super) fn pool(&self) -> NonNull<PoolInner> {
        let marked = self.0.get();
        let pool = marked.as_ptr().map_addr(|addr| addr & !Self::MARK);
        NonNull::new(pool).unwrap_or(marked)
    }

    /// Whether it is this pool, and there is nothing to look at.
    #[inline(always)]
    pub(super) fn is_straight_to(&self, pool: NonNull<PoolInner>) -> bool {
        self.0.get() == pool
    }

    #[inline(always)]
    fn is_marked(&self) -> bool {
        self.0.get().addr().get() & Self::MARK != 0
    }

    /// From here on there is something to look at.
    #[inline(always)]
    pub(super) fn mark(&self) {
        self.0.set(self.0.get().map_addr(|addr| addr | Self::MARK));
    }

    /// There is nothing left to look at.
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
    /// Counts one more handle. It panics where the count would wrap (handles that were forgotten),
    /// as that would free a buffer that is held (3).
    #[inline(always)]
    pub(super) fn add_handle(&self) {
        let more = self.refs.get().checked_add(1).expect("a buffer has fewer than 2^32 handles");
        self.refs.set(more);
        self.home.mark();
    }

    /// Where the bytes of a view begin.
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

/// Takes one handle off the count; the last one sends the buffer home.
#[inline(always)]
pub(super) fn release(buffer: NonNull<Metadata>) {
    // SAFETY: the caller gave up a live handle (1), so the metadata is valid, and nobody writes to
    // it meanwhile.
    let home = unsafe { &(*buffer.as_ptr()).home };
    if home.is_marked() {
        return release_held(buffer);
    }
    // SAFETY: the pool outlives its buffers (1). Not marked, so this was the last handle, and the
    // rest is as (7) wants it (8).
    unsafe { home.0.get().as_ref() }.put_back(buffer);
}

/// The same for a buffer that is held once more, as most often where it is marked: the NIC is done
/// with what somebody else holds.
#[inline(always)]
fn release_held(buffer: NonNull<Metadata>) {
    // SAFETY: as in `release`, and no reference to it is outstanding.
    let meta = unsafe { buffer.as_ref() };
    if meta.refs.get() != 2 || meta.known.flags & (IS_VIEW | HAS_CHAIN) != 0 {
        return release_other(buffer);
    }
    // SAFETY: only what is marked comes here.
    unsafe { meta.home.unmark() };
    meta.refs.set(1);
}

/// The same for one that is held by many or by none, has or had a chain, or is a view.
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
    // SAFETY: as in `release_marked`.
    let meta = unsafe { &mut *buffer.as_ptr() };
    if meta.known.flags & (IS_VIEW | HAS_CHAIN) != 0 {
        release_parts(meta);
    }
    // SAFETY: only what is marked comes here.
    unsafe { meta.home.unmark() };
    // SAFETY: the pool outlives its buffers (1).
    unsafe { meta.home.pool().as_ref() }.put_back(buffer);
}

/// Lets go of what a dying buffer owns: the chain behind it (a loop, as a chain may be long) and a
/// view's bytes. It goes to the free list as (7) says.
#[cold]
fn release_parts(meta: &mut Metadata) {
    if let Some(held) = meta.view.take() {
        drop(ManuallyDrop::into_inner(held));
    }
    let mut next = meta.take_chain();
    while let Some(buffer) = next {
        // SAFETY: the chain was owned by the dying buffer (5), so this is a live handle.
        let meta = unsafe { &mut *buffer.as_ptr() };
        // Where somebody else holds it, the chain behind it is his from here on.
        next = if meta.refs.get() == 1 { meta.take_chain() } else { None };
        release(buffer);
    }
}
