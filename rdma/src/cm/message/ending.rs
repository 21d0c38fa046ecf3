//! The short messages: MRA, RTU, DREQ and DREP (InfiniBand 12.6.6, 12.6.9, 12.6.10 and 12.6.11).

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::About;
use crate::cm::mad::MadHeader;
use crate::wire::qpn::Qpn;

/// A message arrived, and its answer takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Mra {
    header: MadHeader,
    local_comm_id: U32,
    remote_comm_id: U32,
    about: u8,
    service_timeout: u8,
    private_data: [u8; 222],
}

/// The connection can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Rtu {
    header: MadHeader,
    local_comm_id: U32,
    remote_comm_id: U32,
    private_data: [u8; 224],
}

/// Ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Dreq {
    header: MadHeader,
    local_comm_id: U32,
    remote_comm_id: U32,
    remote_qpn: U32,
    private_data: [u8; 220],
}

/// The connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Drep {
    header: MadHeader,
    local_comm_id: U32,
    remote_comm_id: U32,
    private_data: [u8; 224],
}

macro_rules! ids {
    ($($name:ident),*) => {$(
        impl $name {
            /// The sender's name of the connection.
            pub const fn local_comm_id(&self) -> u32 {
                self.local_comm_id.get()
            }

            /// The receiver's.
            pub const fn remote_comm_id(&self) -> u32 {
                self.remote_comm_id.get()
            }

            /// The number of the exchange.
            pub const fn transaction(&self) -> u64 {
                self.header.transaction()
            }
        }
    )*};
}

ids!(Mra, Rtu, Dreq, Drep);

impl Mra {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x11;

    /// An MRA: the answer to a message takes up to 4.096 µs · 2ⁿ.
    pub const fn new(transaction: u64, local: u32, remote: u32, about: About, service_timeout: u8) -> Self {
        Self {
            header: MadHeader::new(Self::ATTRIBUTE, transaction),
            local_comm_id: U32::new(local),
            remote_comm_id: U32::new(remote),
            about: (about as u8) << 6,
            service_timeout: service_timeout << 3,
            private_data: [0; 222],
        }
    }

    /// The message that has arrived.
    pub const fn about(&self) -> About {
        About::from_bits(self.about >> 6)
    }

    /// How long its answer takes at most, 4.096 µs · 2ⁿ, below 32.
    pub const fn service_timeout(&self) -> u8 {
        self.service_timeout >> 3
    }
}

impl Rtu {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x14;

    /// An RTU.
    pub const fn new(transaction: u64, local: u32, remote: u32) -> Self {
        let header = MadHeader::new(Self::ATTRIBUTE, transaction);
        Self { header, local_comm_id: U32::new(local), remote_comm_id: U32::new(remote), private_data: [0; 224] }
    }
}

impl Dreq {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x15;

    /// A DREQ; `remote_qpn` is the receiver's queue pair.
    pub const fn new(transaction: u64, local: u32, remote: u32, remote_qpn: Qpn) -> Self {
        Self {
            header: MadHeader::new(Self::ATTRIBUTE, transaction),
            local_comm_id: U32::new(local),
            remote_comm_id: U32::new(remote),
            remote_qpn: U32::new(remote_qpn.get() << 8),
            private_data: [0; 220],
        }
    }

    /// The receiver's queue pair.
    pub const fn remote_qpn(&self) -> Qpn {
        Qpn::new(self.remote_qpn.get() >> 8)
    }
}

impl Drep {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x16;

    /// A DREP.
    pub const fn new(transaction: u64, local: u32, remote: u32) -> Self {
        let header = MadHeader::new(Self::ATTRIBUTE, transaction);
        Self { header, local_comm_id: U32::new(local), remote_comm_id: U32::new(remote), private_data: [0; 224] }
    }
}
