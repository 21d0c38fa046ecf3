//! REP: grants a connection (InfiniBand 12.6.8).

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::padded;
use crate::cm::mad::MadHeader;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// Bytes of a REP's private data.
pub const REP_DATA_LEN: usize = 196;

/// A REP as it lies in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Rep {
    header: MadHeader,
    local_comm_id: U32,
    remote_comm_id: U32,
    qkey: U32,
    qpn: U32,
    eecn: U32,
    psn: U32,
    responder_resources: u8,
    initiator_depth: u8,
    delay_failover_flow: u8,
    rnr_srq: u8,
    ca_guid: U64,
    private_data: [u8; REP_DATA_LEN],
}

/// The values of a REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepFields {
    /// The number of the exchange, of the REQ.
    pub transaction: u64,
    /// The sender's name of the connection.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// The number that the receiver's first packet is to have.
    pub psn: Psn,
    /// READs and atomic operations that the sender answers at once.
    pub responder_resources: u8,
    /// READs and atomic operations that the sender has under way at once.
    pub initiator_depth: u8,
    /// How long an acknowledgment takes within the sender's adapter, 4.096 µs · 2ⁿ, below 32.
    pub ack_delay: u8,
    /// Times that the receiver may send again to a sender without a receive, below 8.
    pub rnr_retry: u8,
    /// The sender's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// The sender's adapter.
    pub ca_guid: u64,
}

/// Neither is there a path to fail over to, which this says.
const NO_FAILOVER: u8 = 1 << 1;

impl Rep {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x13;

    /// A REP with these values.
    pub fn new(fields: &RepFields, private_data: &[u8]) -> Self {
        Self {
            header: MadHeader::new(Self::ATTRIBUTE, fields.transaction),
            local_comm_id: U32::new(fields.local_comm_id),
            remote_comm_id: U32::new(fields.remote_comm_id),
            qkey: U32::ZERO,
            qpn: U32::new(fields.qpn.get() << 8),
            eecn: U32::ZERO,
            psn: U32::new(fields.psn.get() << 8),
            responder_resources: fields.responder_resources,
            initiator_depth: fields.initiator_depth,
            delay_failover_flow: fields.ack_delay << 3 | NO_FAILOVER,
            rnr_srq: fields.rnr_retry << 5 | u8::from(fields.srq) << 4,
            ca_guid: U64::new(fields.ca_guid),
            private_data: padded(private_data),
        }
    }

    /// The values.
    pub fn fields(&self) -> RepFields {
        RepFields {
            transaction: self.header.transaction(),
            local_comm_id: self.local_comm_id.get(),
            remote_comm_id: self.remote_comm_id.get(),
            qpn: Qpn::new(self.qpn.get() >> 8),
            psn: Psn::new(self.psn.get() >> 8),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            ack_delay: self.delay_failover_flow >> 3,
            rnr_retry: self.rnr_srq >> 5,
            srq: self.rnr_srq & 16 != 0,
            ca_guid: self.ca_guid.get(),
        }
    }

    /// What the user sent with it.
    pub const fn private_data(&self) -> &[u8; REP_DATA_LEN] {
        &self.private_data
    }
}
