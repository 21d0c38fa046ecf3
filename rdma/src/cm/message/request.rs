//! REQ: asks for a connection (InfiniBand 12.6.5).

use core::net::Ipv6Addr;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::padded;
use crate::cm::mad::MadHeader;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// Bytes of a REQ's private data.
pub const REQ_DATA_LEN: usize = 92;

/// A REQ as it lies in the datagram. Words that hold several fields have them from the highest bit
/// down, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Req {
    header: MadHeader,
    local_comm_id: U32,
    reserved: U32,
    service_id: U64,
    ca_guid: U64,
    reserved_2: U32,
    qkey: U32,
    qpn_resources: U32,
    eecn_depth: U32,
    remote_eecn_timeout_transport: U32,
    psn_timeout_retries: U32,
    pkey: U16,
    mtu_rnr: u8,
    cm_retries_srq: u8,
    local_lid: U16,
    remote_lid: U16,
    local_gid: [u8; 16],
    remote_gid: [u8; 16],
    flow_label_rate: U32,
    traffic_class: u8,
    hop_limit: u8,
    sl_local: u8,
    ack_timeout: u8,
    /// Of an alternate path, which RoCE has not.
    alternate: [u8; 44],
    private_data: [u8; REQ_DATA_LEN],
}

/// The values of a REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReqFields {
    /// The number of the exchange.
    pub transaction: u64,
    /// The sender's name of the connection.
    pub local_comm_id: u32,
    /// What is asked for.
    pub service_id: u64,
    /// The sender's adapter.
    pub ca_guid: u64,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// READs and atomic operations that the sender answers at once.
    pub responder_resources: u8,
    /// READs and atomic operations that the sender wants to have under way at once.
    pub initiator_depth: u8,
    /// How long the receiver may take for its REP, 4.096 µs · 2ⁿ, below 32.
    pub remote_response_timeout: u8,
    /// The service: 0 RC, 1 UC, 2 RD, 3 another one.
    pub transport: u8,
    /// The number that the receiver's first packet is to have.
    pub psn: Psn,
    /// How long the sender may take for its RTU, as above.
    pub local_response_timeout: u8,
    /// Times that the receiver may send a packet again, below 8.
    pub retry_cnt: u8,
    /// The partition.
    pub pkey: u16,
    /// The code of the largest payload: 1 for 256 bytes, 5 for 4096.
    pub mtu: u8,
    /// Times that the receiver may send again to a sender without a receive, below 8.
    pub rnr_retry: u8,
    /// Times that the receiver may send its messages again, below 16.
    pub cm_retries: u8,
    /// The sender's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// The sender's address.
    pub local_gid: Ipv6Addr,
    /// The receiver's address.
    pub remote_gid: Ipv6Addr,
    /// The traffic class of the path.
    pub traffic_class: u8,
    /// The hop limit of the path.
    pub hop_limit: u8,
    /// The time to an acknowledgment that the receiver is to wait, 4.096 µs · 2ⁿ, below 32.
    pub ack_timeout: u8,
}

impl Req {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x10;

    /// A REQ with these values.
    pub fn new(fields: &ReqFields, private_data: &[u8]) -> Self {
        let timeout = u32::from(fields.remote_response_timeout & 31) << 3 | u32::from(fields.transport & 3) << 1;
        let psn_timeout = fields.psn.get() << 8 | u32::from(fields.local_response_timeout & 31) << 3;
        Self {
            header: MadHeader::new(Self::ATTRIBUTE, fields.transaction),
            local_comm_id: U32::new(fields.local_comm_id),
            service_id: U64::new(fields.service_id),
            ca_guid: U64::new(fields.ca_guid),
            qpn_resources: U32::new(fields.qpn.get() << 8 | u32::from(fields.responder_resources)),
            eecn_depth: U32::new(fields.initiator_depth.into()),
            remote_eecn_timeout_transport: U32::new(timeout),
            psn_timeout_retries: U32::new(psn_timeout | u32::from(fields.retry_cnt & 7)),
            pkey: U16::new(fields.pkey),
            mtu_rnr: fields.mtu << 4 | fields.rnr_retry & 7,
            cm_retries_srq: fields.cm_retries << 4 | u8::from(fields.srq) << 3,
            local_gid: fields.local_gid.octets(),
            remote_gid: fields.remote_gid.octets(),
            traffic_class: fields.traffic_class,
            hop_limit: fields.hop_limit,
            ack_timeout: fields.ack_timeout << 3,
            private_data: padded(private_data),
            ..Self::new_zeroed()
        }
    }

    fn new_zeroed() -> Self {
        <Self as FromBytes>::read_from_bytes(&[0; size_of::<Self>()]).expect("as many bytes as a REQ has")
    }

    /// The values.
    pub fn fields(&self) -> ReqFields {
        let (timeout, psn) = (self.remote_eecn_timeout_transport.get(), self.psn_timeout_retries.get());
        ReqFields {
            transaction: self.header.transaction(),
            local_comm_id: self.local_comm_id.get(),
            service_id: self.service_id.get(),
            ca_guid: self.ca_guid.get(),
            qpn: Qpn::new(self.qpn_resources.get() >> 8),
            responder_resources: self.qpn_resources.get() as u8,
            initiator_depth: self.eecn_depth.get() as u8,
            remote_response_timeout: (timeout >> 3 & 31) as u8,
            transport: (timeout >> 1 & 3) as u8,
            psn: Psn::new(psn >> 8),
            local_response_timeout: (psn >> 3 & 31) as u8,
            retry_cnt: (psn & 7) as u8,
            pkey: self.pkey.get(),
            mtu: self.mtu_rnr >> 4,
            rnr_retry: self.mtu_rnr & 7,
            cm_retries: self.cm_retries_srq >> 4,
            srq: self.cm_retries_srq & 8 != 0,
            local_gid: Ipv6Addr::from(self.local_gid),
            remote_gid: Ipv6Addr::from(self.remote_gid),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            ack_timeout: self.ack_timeout >> 3,
        }
    }

    /// What the user sent with it; of a service of RDMA_CM behind the header of addresses
    /// ([`IpHeader`](crate::cm::IpHeader)).
    pub const fn private_data(&self) -> &[u8; REQ_DATA_LEN] {
        &self.private_data
    }
}
