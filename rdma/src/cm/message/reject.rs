//! REJ: refuses a connection (InfiniBand 12.6.7).

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{About, padded};
use crate::cm::mad::MadHeader;
use crate::cm::reason::RejectReason;

/// Bytes of a REJ's private data.
pub const REJ_DATA_LEN: usize = 148;

/// A REJ as it lies in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Rej {
    header: MadHeader,
    local_comm_id: U32,
    remote_comm_id: U32,
    about: u8,
    info_len: u8,
    reason: U16,
    info: [u8; 72],
    private_data: [u8; REJ_DATA_LEN],
}

/// The values of a REJ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejFields {
    /// The number of the exchange.
    pub transaction: u64,
    /// The sender's name of the connection; 0 where it has none.
    pub local_comm_id: u32,
    /// The receiver's; 0 where the sender knows none.
    pub remote_comm_id: u32,
    /// The message that is refused.
    pub about: About,
    /// Why.
    pub reason: RejectReason,
}

impl Rej {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x12;

    /// A REJ with these values. `info` is the additional information of the reason: of a timeout
    /// the sender's adapter, of a wrong value a right one; up to 72 bytes.
    pub fn new(fields: &RejFields, info: &[u8], private_data: &[u8]) -> Self {
        Self {
            header: MadHeader::new(Self::ATTRIBUTE, fields.transaction),
            local_comm_id: U32::new(fields.local_comm_id),
            remote_comm_id: U32::new(fields.remote_comm_id),
            about: (fields.about as u8) << 6,
            info_len: (info.len().min(72) as u8) << 1,
            reason: U16::new(fields.reason.code()),
            info: padded(info),
            private_data: padded(private_data),
        }
    }

    /// The values.
    pub const fn fields(&self) -> RejFields {
        RejFields {
            transaction: self.header.transaction(),
            local_comm_id: self.local_comm_id.get(),
            remote_comm_id: self.remote_comm_id.get(),
            about: About::from_bits(self.about >> 6),
            reason: RejectReason::from_code(self.reason.get()),
        }
    }

    /// The additional information of the reason.
    pub fn info(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len >> 1).min(self.info.len())]
    }

    /// What the user sent with it.
    pub const fn private_data(&self) -> &[u8; REJ_DATA_LEN] {
        &self.private_data
    }
}
