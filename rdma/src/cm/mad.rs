//! The header of a management datagram (InfiniBand 13.4.3): 24 bytes, of 256.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) use crate::roce::MAD_LEN;

/// The header as it lies in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MadHeader {
    base_version: u8,
    class: u8,
    class_version: u8,
    method: u8,
    status: U16,
    class_specific: U16,
    transaction: U64,
    attribute: U16,
    reserved: U16,
    modifier: U32,
}

/// The class of the connection manager, and its version.
const CLASS: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const BASE_VERSION: u8 = 1;
/// Each message of a connection manager is sent, and none is a response by its method.
const SEND: u8 = 0x03;

/// Why a management datagram is none of a connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MadError {
    /// Not 256 bytes.
    Length,
    /// Another version of the datagram, or of the class.
    Version,
    /// Another class.
    Class(u8),
    /// Another method than Send.
    Method(u8),
    /// An attribute that is no message, or one of a path that is loaded later, which RoCE has not.
    Attribute(u16),
}

impl MadHeader {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// The header of a message.
    pub const fn new(attribute: u16, transaction: u64) -> Self {
        Self {
            base_version: BASE_VERSION,
            class: CLASS,
            class_version: CLASS_VERSION,
            method: SEND,
            status: U16::ZERO,
            class_specific: U16::ZERO,
            transaction: U64::new(transaction),
            attribute: U16::new(attribute),
            reserved: U16::ZERO,
            modifier: U32::ZERO,
        }
    }

    /// Checks that this is a message of a connection manager.
    ///
    /// # Errors
    /// [`MadError`].
    pub const fn check(&self) -> Result<(), MadError> {
        if self.class != CLASS {
            return Err(MadError::Class(self.class));
        }
        if self.base_version != BASE_VERSION || self.class_version != CLASS_VERSION {
            return Err(MadError::Version);
        }
        if self.method != SEND {
            return Err(MadError::Method(self.method));
        }
        Ok(())
    }

    /// Which message it is.
    pub const fn attribute(&self) -> u16 {
        self.attribute.get()
    }

    /// The number by which a sender finds what its message was about.
    pub const fn transaction(&self) -> u64 {
        self.transaction.get()
    }
}

impl core::fmt::Display for MadError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length => write!(f, "a management datagram has {MAD_LEN} bytes"),
            Self::Version => f.write_str("another version of management datagrams or of their class"),
            Self::Class(class) => write!(f, "management class {class:#04x}, which is not the connection manager's"),
            Self::Method(method) => write!(f, "method {method:#04x}, and messages of connections are sent (0x03)"),
            Self::Attribute(attribute) => write!(f, "attribute {attribute:#06x}, which is no message of connections"),
        }
    }
}

impl core::error::Error for MadError {}
