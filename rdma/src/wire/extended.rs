//! The headers behind the BTH that need no file of their own: the other end's memory, atomic
//! operations, datagrams (InfiniBand 9.3 and 9.4).

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::qpn::Qpn;

/// Memory of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Reth {
    address: U64,
    rkey: U32,
    len: U32,
}

impl Reth {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// `len` bytes at `address`, under a key.
    #[inline]
    pub const fn new(address: u64, rkey: u32, len: u32) -> Self {
        Self { address: U64::new(address), rkey: U32::new(rkey), len: U32::new(len) }
    }

    /// The address, as the other end counts.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address.get()
    }

    /// The key that the other end gave.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.rkey.get()
    }

    /// Bytes of the whole message.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len.get()
    }

    /// True for a message without a byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An atomic operation on eight bytes of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AtomicEth {
    address: U64,
    rkey: U32,
    swap_or_add: U64,
    compare: U64,
}

impl AtomicEth {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// The eight bytes at `address`, under a key; what is written or added, and for a compare and
    /// swap what must be there.
    #[inline]
    pub const fn new(address: u64, rkey: u32, swap_or_add: u64, compare: u64) -> Self {
        Self {
            address: U64::new(address),
            rkey: U32::new(rkey),
            swap_or_add: U64::new(swap_or_add),
            compare: U64::new(compare),
        }
    }

    /// The address, as the other end counts.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address.get()
    }

    /// The key that the other end gave.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.rkey.get()
    }

    /// What is written, or added.
    #[inline]
    pub fn swap_or_add(&self) -> u64 {
        self.swap_or_add.get()
    }

    /// What must be there for a swap.
    #[inline]
    pub fn compare(&self) -> u64 {
        self.compare.get()
    }
}

/// The sender of a datagram, and the key that lets it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Deth {
    qkey: U32,
    source: U32,
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// A datagram of `source`.
    #[inline]
    pub const fn new(qkey: u32, source: Qpn) -> Self {
        Self { qkey: U32::new(qkey), source: U32::new(source.get()) }
    }

    /// The key.
    #[inline]
    pub fn qkey(&self) -> u32 {
        self.qkey.get()
    }

    /// The sender's queue pair.
    #[inline]
    pub fn source(&self) -> Qpn {
        Qpn::new(self.source.get())
    }
}
