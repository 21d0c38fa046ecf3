//! SIDR_REQ and SIDR_REP: which queue pair takes a service's datagrams (InfiniBand 12.11).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::padded;
use crate::cm::mad::MadHeader;
use crate::cm::reason::SidrStatus;
use crate::wire::qpn::Qpn;

/// Bytes of a SIDR_REQ's private data.
pub const SIDR_REQ_DATA_LEN: usize = 216;
/// Bytes of a SIDR_REP's private data.
pub const SIDR_REP_DATA_LEN: usize = 136;

/// A SIDR_REQ as it lies in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SidrReq {
    header: MadHeader,
    request_id: U32,
    pkey: U16,
    reserved: U16,
    service_id: U64,
    private_data: [u8; SIDR_REQ_DATA_LEN],
}

/// A SIDR_REP as it lies in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SidrRep {
    header: MadHeader,
    request_id: U32,
    status: u8,
    info_len: u8,
    reserved: U16,
    qpn: U32,
    service_id: U64,
    qkey: U32,
    info: [u8; 72],
    private_data: [u8; SIDR_REP_DATA_LEN],
}

impl SidrReq {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x17;

    /// A SIDR_REQ for a service in the partition `pkey`.
    pub fn new(transaction: u64, request_id: u32, pkey: u16, service_id: u64, private_data: &[u8]) -> Self {
        Self {
            header: MadHeader::new(Self::ATTRIBUTE, transaction),
            request_id: U32::new(request_id),
            pkey: U16::new(pkey),
            reserved: U16::ZERO,
            service_id: U64::new(service_id),
            private_data: padded(private_data),
        }
    }

    /// The number of the exchange.
    pub const fn transaction(&self) -> u64 {
        self.header.transaction()
    }

    /// The sender's name of the request.
    pub const fn request_id(&self) -> u32 {
        self.request_id.get()
    }

    /// The partition.
    pub const fn pkey(&self) -> u16 {
        self.pkey.get()
    }

    /// What is asked for.
    pub const fn service_id(&self) -> u64 {
        self.service_id.get()
    }

    /// What the user sent with it, behind the header of addresses.
    pub const fn private_data(&self) -> &[u8; SIDR_REQ_DATA_LEN] {
        &self.private_data
    }
}

impl SidrRep {
    /// The message's number.
    pub const ATTRIBUTE: u16 = 0x18;

    /// The answer to `request`: queue pair and Q_Key count where the status is success.
    pub fn new(request: (u64, u32, u64), status: SidrStatus, qpn: Qpn, qkey: u32, private_data: &[u8]) -> Self {
        let (transaction, request_id, service_id) = request;
        Self {
            header: MadHeader::new(Self::ATTRIBUTE, transaction),
            request_id: U32::new(request_id),
            status: status.code(),
            info_len: 0,
            reserved: U16::ZERO,
            qpn: U32::new(qpn.get() << 8),
            service_id: U64::new(service_id),
            qkey: U32::new(qkey),
            info: [0; 72],
            private_data: padded(private_data),
        }
    }

    /// The number of the exchange.
    pub const fn transaction(&self) -> u64 {
        self.header.transaction()
    }

    /// The receiver's name of the request.
    pub const fn request_id(&self) -> u32 {
        self.request_id.get()
    }

    /// Whether there is such a service.
    pub const fn status(&self) -> SidrStatus {
        SidrStatus::from_code(self.status)
    }

    /// The queue pair of the service.
    pub const fn qpn(&self) -> Qpn {
        Qpn::new(self.qpn.get() >> 8)
    }

    /// What was asked for.
    pub const fn service_id(&self) -> u64 {
        self.service_id.get()
    }

    /// The key of its datagrams.
    pub const fn qkey(&self) -> u32 {
        self.qkey.get()
    }

    /// What the user sent with it.
    pub const fn private_data(&self) -> &[u8; SIDR_REP_DATA_LEN] {
        &self.private_data
    }
}
