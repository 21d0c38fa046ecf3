//! UDP (RFC 768): eight bytes in front of a datagram.
//!
//! `parse` checks the length field against the available bytes and cuts the payload there: an IP
//! payload may be longer, and the bytes after it are not part of the datagram. The checksum is a
//! separate call, because a NIC may have verified it.

use core::net::Ipv4Addr;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{PseudoHeader, Sum};
use super::field::{EmitError, Protocol};

/// Bytes of the header.
pub(crate) const HEADER_LEN: usize = 8;

/// The header as it lies in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    source_port: U16,
    destination_port: U16,
    length: U16,
    checksum: U16,
}

/// The values of a header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFields {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Bytes behind the header.
    pub payload_len: usize,
}

impl UdpHeader {
    /// Bytes of the header.
    pub const LEN: usize = HEADER_LEN;

    /// A header without a checksum, which IPv4 allows: call [`UdpHeader::fill_checksum`] or leave
    /// it to the NIC.
    #[inline]
    pub fn new(fields: &UdpFields) -> Result<Self, EmitError> {
        let length = fields.payload_len.saturating_add(HEADER_LEN);
        let length = u16::try_from(length).map_err(|_| EmitError::TooLong)?;
        Ok(Self {
            source_port: U16::new(fields.source_port),
            destination_port: U16::new(fields.destination_port),
            length: U16::new(length),
            checksum: U16::ZERO,
        })
    }

    /// The header at the front of `bytes`, and its payload, with the length in the length field.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), UdpError> {
        let (header, _) = Self::ref_from_prefix(bytes).map_err(|_| UdpError::Short)?;
        let length = usize::from(header.length());
        if length < HEADER_LEN {
            return Err(UdpError::Length);
        }
        let payload = bytes.get(HEADER_LEN..length).ok_or(UdpError::Truncated)?;
        Ok((header, payload))
    }

    /// Verifies the checksum over pseudo-header, header and payload, as `parse` returned it. A zero
    /// field means that the sender computed none, and passes. The order of the two addresses does
    /// not change a sum.
    #[inline]
    pub fn verify_checksum(&self, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Result<(), UdpError> {
        if self.checksum == U16::ZERO || self.sum(source, destination).append(payload).is_valid() {
            return Ok(());
        }
        Err(UdpError::Checksum)
    }

    /// True if the field holds only the sum of the pseudo-header: the datagram was captured on the
    /// sender's host before its NIC completed the checksum, as in most captures made there and on
    /// virtual links with offloads. It proves nothing about the payload, but it distinguishes such
    /// a datagram from a damaged one.
    #[inline]
    pub fn has_partial_checksum(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.checksum() == self.pseudo_header(source, destination).sum().fold()
    }

    /// Computes the checksum. A result of zero is sent as all ones, because zero means none.
    #[inline]
    pub fn fill_checksum(&mut self, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) {
        self.checksum = U16::ZERO;
        let checksum = self.sum(source, destination).append(payload).finish();
        self.checksum = U16::new(if checksum == 0 { 0xffff } else { checksum });
    }

    /// The sum of pseudo-header and header: for payloads in several pieces.
    #[inline]
    pub fn sum(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Sum {
        self.pseudo_header(source, destination).sum().append(self.as_bytes())
    }

    #[inline]
    fn pseudo_header(&self, source: Ipv4Addr, destination: Ipv4Addr) -> PseudoHeader {
        PseudoHeader { source, destination, protocol: Protocol::UDP, len: self.length() }
    }

    /// Writes the header and returns its length of 8 bytes.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, EmitError> {
        self.write_to_prefix(bytes).map_err(|_| EmitError::NoRoom)?;
        Ok(HEADER_LEN)
    }

    /// Port of the sender.
    #[inline]
    pub fn source_port(&self) -> u16 {
        self.source_port.get()
    }

    /// Port of the receiver.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        self.destination_port.get()
    }

    /// Bytes of header and payload as the header states them.
    #[inline]
    pub fn length(&self) -> u16 {
        self.length.get()
    }

    /// The checksum field; zero means that the sender computed none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Replaces the checksum field: zero for none, or the value that an offload expects there.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = U16::new(checksum);
    }

    /// Replaces the length, in bytes with the header: for the next datagram of a prepared header.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        self.length = U16::new(length);
    }
}

reasons! {
    /// Why bytes are not a valid UDP datagram.
    UdpError {
        /// Fewer than 8 bytes.
        Short => "UDP header short of 8 bytes",
        /// The length field states fewer than 8 bytes.
        Length => "UDP length under 8 bytes",
        /// The length field exceeds the available bytes.
        Truncated => "UDP datagram shorter than its length",
        /// The checksum is wrong.
        Checksum => "UDP checksum wrong",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const GROUP: Ipv4Addr = Ipv4Addr::new(233, 54, 12, 111);

    fn datagram(payload: &[u8]) -> ([u8; 64], usize) {
        let fields = UdpFields { source_port: 4000, destination_port: 26477, payload_len: payload.len() };
        let mut header = UdpHeader::new(&fields).unwrap();
        header.fill_checksum(SOURCE, GROUP, payload);
        let mut bytes = [0xee; 64];
        let len = header.emit(&mut bytes).unwrap();
        bytes[len..len + payload.len()].copy_from_slice(payload);
        (bytes, len + payload.len())
    }

    #[test]
    fn bad_lengths_are_refused_by_name() {
        let (mut bytes, len) = datagram(b"abc");
        assert_eq!(UdpHeader::parse(&bytes[..7]), Err(UdpError::Short));
        assert_eq!(UdpHeader::parse(&bytes[..len - 1]), Err(UdpError::Truncated));
        bytes[5] = 7;
        assert_eq!(UdpHeader::parse(&bytes), Err(UdpError::Length));
    }

    #[test]
    fn bytes_behind_the_length_are_not_payload() {
        let (bytes, _) = datagram(b"abc");
        let (header, payload) = UdpHeader::parse(&bytes).unwrap();
        assert_eq!(payload, b"abc");
        assert_eq!(header.verify_checksum(SOURCE, GROUP, payload), Ok(()));
    }

    #[test]
    fn wrong_checksum_is_refused_and_zero_is_none() {
        let (mut bytes, len) = datagram(b"abc");
        bytes[len - 1] ^= 1;
        let (header, payload) = UdpHeader::parse(&bytes).unwrap();
        assert_eq!(header.verify_checksum(SOURCE, GROUP, payload), Err(UdpError::Checksum));
        let mut header = *header;
        header.set_checksum(0);
        assert_eq!(header.verify_checksum(SOURCE, GROUP, payload), Ok(()));
    }

    #[test]
    fn unfinished_checksum_is_told_from_a_wrong_one() {
        // The first datagram of an IEX capture that was made on the sender's host: length 48,
        // checksum 0x7e14.
        let (source, group) = (Ipv4Addr::new(26, 90, 130, 110), Ipv4Addr::new(224, 67, 0, 199));
        let mut bytes = [0; 48];
        bytes[..8].copy_from_slice(&[0xe5, 0xe6, 0x41, 0x02, 0x00, 0x30, 0x7e, 0x14]);
        let (header, payload) = UdpHeader::parse(&bytes).unwrap();
        assert_eq!(header.verify_checksum(source, group, payload), Err(UdpError::Checksum));
        assert!(header.has_partial_checksum(source, group));
        assert!(!header.has_partial_checksum(source, GROUP));
    }

    #[test]
    fn zero_sum_is_sent_as_all_ones() {
        let (bytes, _) = datagram(&[0, 0]);
        let (header, _) = UdpHeader::parse(&bytes).unwrap();
        // A payload equal to the checksum of the rest makes the sum all ones and its complement
        // zero.
        let (bytes, _) = datagram(&header.checksum().to_be_bytes());
        let (header, payload) = UdpHeader::parse(&bytes).unwrap();
        assert_eq!(header.checksum(), 0xffff);
        assert_eq!(header.verify_checksum(SOURCE, GROUP, payload), Ok(()));
    }

    #[test]
    fn too_long_payload_is_refused() {
        let fields = UdpFields { source_port: 1, destination_port: 2, payload_len: 65528 };
        assert_eq!(UdpHeader::new(&fields), Err(EmitError::TooLong));
    }
    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(mut bytes: Vec<u8>) {
            if bytes.len() > 5 {
                bytes[4] = 0;
            }
            if let Ok((header, payload)) = UdpHeader::parse(&bytes) {
                prop_assert_eq!(usize::from(header.length()), HEADER_LEN + payload.len());
                let _ = header.verify_checksum(SOURCE, GROUP, payload);
            }
        }

        #[test]
        fn written_headers_read_the_same(source_port: u16, destination_port: u16, payload: Vec<u8>, cut: prop::sample::Index) {
            let fields = UdpFields { source_port, destination_port, payload_len: payload.len() };
            let mut header = UdpHeader::new(&fields).unwrap();
            header.fill_checksum(SOURCE, GROUP, &payload);
            let mut bytes = vec![0; HEADER_LEN];
            header.emit(&mut bytes).unwrap();
            bytes.extend_from_slice(&payload);
            let (read, read_payload) = UdpHeader::parse(&bytes).unwrap();
            prop_assert_eq!(read_payload, &payload);
            prop_assert_eq!(read.verify_checksum(SOURCE, GROUP, read_payload), Ok(()));
            prop_assert_eq!((read.source_port(), read.destination_port()), (source_port, destination_port));
            // The same payload in two pieces.
            let (front, back) = payload.split_at(cut.index(payload.len() + 1));
            prop_assert!(read.sum(SOURCE, GROUP).append(front).append(back).is_valid());
        }
    }
}
