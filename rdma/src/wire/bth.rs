//! The base transport header (InfiniBand 9.2): twelve bytes in front of each packet.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode::Opcode;
use super::psn::Psn;
use super::qpn::Qpn;

/// The header as it lies in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Bth {
    opcode: u8,
    flags: u8,
    pkey: U16,
    destination: U32,
    sequence: U32,
}

/// The values of a header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BthFields {
    /// What the packet does.
    pub opcode: Opcode,
    /// The receiver's completion wakes who waits for solicited events only.
    pub solicited: bool,
    /// Zero bytes behind the payload, 0 to 3.
    pub pad: u8,
    /// The partition.
    pub pkey: u16,
    /// The queue pair of the receiver.
    pub destination: Qpn,
    /// The receiver is to acknowledge at once.
    pub ack_request: bool,
    /// The sequence number.
    pub psn: Psn,
}

const SOLICITED: u8 = 0x80;
/// NVIDIA's NICs take packets without it to a slow path, and no receiver minds it.
const MIGRATED: u8 = 0x40;
const FECN: u32 = 0x8000_0000;
const BECN: u32 = 0x4000_0000;
const ACK_REQUEST: u32 = 0x8000_0000;

impl Bth {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();
    /// The partition that all ports are full members of unless somebody says otherwise.
    pub const DEFAULT_PKEY: u16 = 0xffff;

    /// A header with these values: migrated, version 0, without FECN and BECN.
    #[inline]
    pub fn new(fields: &BthFields) -> Self {
        let solicited = if fields.solicited { SOLICITED } else { 0 };
        let ack_request = if fields.ack_request { ACK_REQUEST } else { 0 };
        Self {
            opcode: fields.opcode.0,
            flags: solicited | MIGRATED | (fields.pad & 3) << 4,
            pkey: U16::new(fields.pkey),
            destination: U32::new(fields.destination.get()),
            sequence: U32::new(ack_request | fields.psn.get()),
        }
    }

    /// The header of a congestion notification packet for the sender's queue pair; 16 bytes of
    /// zeros follow it.
    #[inline]
    pub fn congestion_notification(pkey: u16, destination: Qpn) -> Self {
        let psn = Psn::default();
        let fields =
            BthFields { opcode: Opcode::CNP, solicited: false, pad: 0, pkey, destination, ack_request: false, psn };
        let header = Self::new(&fields);
        Self { destination: U32::new(header.destination.get() | BECN), ..header }
    }

    /// What the packet does.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }

    /// The receiver's completion wakes who waits for solicited events only.
    #[inline]
    pub const fn is_solicited(&self) -> bool {
        self.flags & SOLICITED != 0
    }

    /// Zero bytes behind the payload, 0 to 3.
    #[inline]
    pub const fn pad(&self) -> usize {
        (self.flags >> 4 & 3) as usize
    }

    /// The version of the transport: 0 is the only one.
    #[inline]
    pub const fn version(&self) -> u8 {
        self.flags & 0x0f
    }

    /// The partition.
    #[inline]
    pub fn pkey(&self) -> u16 {
        self.pkey.get()
    }

    /// A switch saw congestion on the packet's way.
    #[inline]
    pub fn has_fecn(&self) -> bool {
        self.destination.get() & FECN != 0
    }

    /// The receiver saw congestion on the way of our packets.
    #[inline]
    pub fn has_becn(&self) -> bool {
        self.destination.get() & BECN != 0
    }

    /// The queue pair of the receiver.
    #[inline]
    pub fn destination(&self) -> Qpn {
        Qpn::new(self.destination.get())
    }

    /// The receiver is to acknowledge at once.
    #[inline]
    pub fn ack_request(&self) -> bool {
        self.sequence.get() & ACK_REQUEST != 0
    }

    /// The sequence number.
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(self.sequence.get())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_has_the_bits_of_the_specification() {
        let fields = BthFields {
            opcode: Opcode(0x0a),
            solicited: true,
            pad: 3,
            pkey: 0xffff,
            destination: Qpn::new(0x0001_0203),
            ack_request: true,
            psn: Psn::new(0x00ab_cdef),
        };
        assert_eq!(Bth::new(&fields).as_bytes(), [0x0a, 0xf0, 0xff, 0xff, 0, 1, 2, 3, 0x80, 0xab, 0xcd, 0xef]);
    }

    #[test]
    fn congestion_notification_has_becn_alone() {
        let header = Bth::congestion_notification(Bth::DEFAULT_PKEY, Qpn::new(0x118));
        assert_eq!(header.as_bytes(), [0x81, 0x40, 0xff, 0xff, 0x40, 0, 1, 0x18, 0, 0, 0, 0]);
        assert_eq!((header.has_becn(), header.has_fecn()), (true, false));
    }

    proptest! {
        #[test]
        fn written_headers_read_the_same(
            opcode: u8, solicited: bool, pad in 0_u8..4, pkey: u16, qpn: u32, ack_request: bool, psn: u32,
        ) {
            let (opcode, destination, psn) = (Opcode(opcode), Qpn::new(qpn), Psn::new(psn));
            let fields = BthFields { opcode, solicited, pad, pkey, destination, ack_request, psn };
            let header = Bth::new(&fields);
            let read = BthFields {
                opcode: header.opcode(),
                solicited: header.is_solicited(),
                pad: header.pad() as u8,
                pkey: header.pkey(),
                destination: header.destination(),
                ack_request: header.ack_request(),
                psn: header.psn(),
            };
            prop_assert_eq!(read, fields);
            prop_assert_eq!((header.version(), header.has_fecn(), header.has_becn()), (0, false, false));
        }
    }
}
