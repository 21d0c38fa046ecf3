//! IPv4 (RFC 791): the header, its options, and the end of the payload.
//!
//! `parse` checks version, header length and total length against the available bytes, and removes
//! Ethernet's padding: the payload ends at the total length. It does not verify the checksum, so
//! that the NIC's checksum status can replace [`Ipv4Packet::verify_checksum`]; nor does it check
//! addresses, TTL or fragmentation: the node does.

use core::net::Ipv4Addr;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{self, PseudoHeader, Sum};
use super::field::{EmitError, Protocol};
use super::options::{BadLength, next_option};

/// Bytes of a header without options.
pub(crate) const HEADER_LEN: usize = 20;
/// Maximum bytes of options: the header length counts to fifteen words.
pub(crate) const OPTIONS_LEN_MAX: usize = 40;
/// Router alert, which IGMP messages carry (RFC 2113 2.1): routers must examine the packet.
pub(crate) const ROUTER_ALERT: [u8; 4] = [OPTION_ROUTER_ALERT, 4, 0, 0];

const OPTION_ROUTER_ALERT: u8 = 148;

const RESERVED: u16 = 0x8000;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// A parsed packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Packet<'a> {
    /// The fixed 20 bytes.
    pub header: &'a Ipv4Header,
    /// The bytes between the fixed header and the payload; read them with [`Ipv4Packet::options`].
    pub options: &'a [u8],
    /// The payload, ending at the total length.
    pub payload: &'a [u8],
}

impl<'a> Ipv4Packet<'a> {
    /// Parses a packet. A header without options takes the first branch.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let (header, _) = Ipv4Header::ref_from_prefix(bytes).map_err(|_| Ipv4Error::Short)?;
        if header.version_ihl != 0x45 {
            return Self::parse_options(header, bytes);
        }
        let total_len = usize::from(header.total_len());
        if total_len < HEADER_LEN {
            return Err(Ipv4Error::TotalLength);
        }
        let payload = bytes.get(HEADER_LEN..total_len).ok_or(Ipv4Error::Truncated)?;
        Ok(Self { header, options: &[], payload })
    }

    /// Parses headers of other lengths and versions.
    fn parse_options(header: &'a Ipv4Header, bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let header_len = header.checked_header_len()?;
        let total_len = usize::from(header.total_len());
        if total_len < header_len {
            return Err(Ipv4Error::TotalLength);
        }
        let bytes = bytes.get(..total_len).ok_or(Ipv4Error::Truncated)?;
        Ok(Self { header, options: &bytes[HEADER_LEN..header_len], payload: &bytes[header_len..] })
    }

    /// Parses the start of a packet that an ICMP error quotes: the payload may end before the total
    /// length (RFC 792 promises eight bytes of it, and some senders give fewer).
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let (header, _) = Ipv4Header::ref_from_prefix(bytes).map_err(|_| Ipv4Error::Short)?;
        let header_len = header.checked_header_len()?;
        let total_len = usize::from(header.total_len());
        if total_len < header_len {
            return Err(Ipv4Error::TotalLength);
        }
        let bytes = &bytes[..total_len.min(bytes.len())];
        let options = bytes.get(HEADER_LEN..header_len).ok_or(Ipv4Error::Truncated)?;
        Ok(Self { header, options, payload: &bytes[header_len..] })
    }

    /// Checks the header's checksum. 20 instructions without options.
    #[inline(always)]
    pub fn verify_checksum(&self) -> Result<(), Ipv4Error> {
        let valid = match self.options {
            [] => checksum::verify_ipv4_header(zerocopy::transmute_ref!(self.header)),
            options => verify_with_options(self.header, options),
        };
        if valid { Ok(()) } else { Err(Ipv4Error::Checksum) }
    }

    /// The options, one by one.
    #[inline]
    pub fn options(&self) -> Ipv4Options<'a> {
        Ipv4Options { rest: self.options }
    }

    /// True if the packet has the router alert option.
    pub fn has_router_alert(&self) -> bool {
        self.options().any(|option| option.is_ok_and(|option| option.kind == OPTION_ROUTER_ALERT))
    }

    /// Bytes of the header and its options: the offset of the payload.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Bytes of the whole packet, without padding.
    #[inline]
    pub fn total_len(&self) -> usize {
        self.header_len() + self.payload.len()
    }

    /// The pseudo-header of the payload, for transports whose length is the payload's.
    #[inline]
    pub fn pseudo_header(&self) -> PseudoHeader {
        PseudoHeader {
            source: self.header.source(),
            destination: self.header.destination(),
            protocol: self.header.protocol(),
            len: self.payload.len() as u16,
        }
    }
}

/// Not inlined, so that the check without options is small enough to be inlined.
#[inline(never)]
fn verify_with_options(header: &Ipv4Header, options: &[u8]) -> bool {
    Sum::of(header.as_bytes()).append(options).is_valid()
}

/// The fixed part of the header, as in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    version_ihl: u8,
    tos: u8,
    total_len: U16,
    identification: U16,
    flags_offset: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}

/// The values of a header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Fields {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// The payload's protocol.
    pub protocol: Protocol,
    /// Maximum number of hops.
    pub ttl: u8,
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Identifies the fragments of one packet (RFC 6864: arbitrary in packets that are not
    /// fragmented).
    pub identification: u16,
    /// Routers must not fragment.
    pub dont_fragment: bool,
    /// Bytes after the header and its options.
    pub payload_len: usize,
}

impl Ipv4Header {
    /// Bytes of a header without options.
    pub const LEN: usize = HEADER_LEN;

    /// A whole packet's header without options, with its checksum.
    #[inline(always)]
    pub fn new(fields: &Ipv4Fields) -> Result<Self, EmitError> {
        Self::before(fields, 0, Sum::EMPTY)
    }

    /// A whole packet's header before `options`, which its lengths and its checksum cover.
    pub fn with_options(fields: &Ipv4Fields, options: &[u8]) -> Result<Self, EmitError> {
        if options.len() > OPTIONS_LEN_MAX || !options.len().is_multiple_of(4) {
            return Err(EmitError::Options);
        }
        Self::before(fields, options.len(), Sum::of(options))
    }

    /// A header before `options_len` bytes of options with the given sum.
    #[inline(always)]
    fn before(fields: &Ipv4Fields, options_len: usize, options: Sum) -> Result<Self, EmitError> {
        let header_len = HEADER_LEN + options_len;
        let total_len = fields.payload_len.saturating_add(header_len);
        let total_len = u16::try_from(total_len).map_err(|_| EmitError::TooLong)?;
        let version_ihl = 0x40 | (header_len / 4) as u8;
        let flags = if fields.dont_fragment { DONT_FRAGMENT } else { 0 };
        let sum = Sum::of_words([
            u32::from_be_bytes([version_ihl, fields.tos, 0, 0]) | u32::from(total_len),
            u32::from(fields.identification) << 16 | u32::from(flags),
            u32::from_be_bytes([fields.ttl, fields.protocol.0, 0, 0]),
            fields.source.to_bits(),
            fields.destination.to_bits(),
        ]);
        Ok(Self {
            version_ihl,
            tos: fields.tos,
            total_len: U16::new(total_len),
            identification: U16::new(fields.identification),
            flags_offset: U16::new(flags),
            ttl: fields.ttl,
            protocol: fields.protocol.0,
            checksum: U16::new(sum.combine(options).finish()),
            source: fields.source.octets(),
            destination: fields.destination.octets(),
        })
    }

    /// Writes the fixed header and returns its length of 20 bytes.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, EmitError> {
        self.write_to_prefix(bytes).map_err(|_| EmitError::NoRoom)?;
        Ok(HEADER_LEN)
    }

    /// Writes the header and the options that it was made for; returns the bytes written.
    pub fn emit_with_options(&self, options: &[u8], bytes: &mut [u8]) -> Result<usize, EmitError> {
        let header_len = HEADER_LEN + options.len();
        if header_len != self.header_len() {
            return Err(EmitError::Options);
        }
        let bytes = bytes.get_mut(..header_len).ok_or(EmitError::NoRoom)?;
        self.emit(bytes)?;
        bytes[HEADER_LEN..].copy_from_slice(options);
        Ok(header_len)
    }

    /// Computes the checksum, over the header and the options that follow it.
    #[inline]
    pub fn fill_checksum(&mut self, options: &[u8]) {
        self.checksum = U16::ZERO;
        let checksum = if options.is_empty() {
            checksum::ipv4_header(zerocopy::transmute_ref!(self))
        } else {
            Sum::of(self.as_bytes()).append(options).finish()
        };
        self.checksum = U16::new(checksum);
    }

    fn checked_header_len(&self) -> Result<usize, Ipv4Error> {
        if self.version_ihl >> 4 != 4 {
            return Err(Ipv4Error::Version);
        }
        if self.header_len() < HEADER_LEN {
            return Err(Ipv4Error::HeaderLength);
        }
        Ok(self.header_len())
    }

    /// Bytes of header and options as the header states them, 0 to 60.
    #[inline]
    pub const fn header_len(&self) -> usize {
        (self.version_ihl & 0x0f) as usize * 4
    }

    /// Bytes of the whole packet as the header states them.
    #[inline]
    pub fn total_len(&self) -> u16 {
        self.total_len.get()
    }

    /// Type of service: DSCP and ECN in one byte.
    #[inline]
    pub const fn tos(&self) -> u8 {
        self.tos
    }

    /// Differentiated services code point, 0 to 63 (RFC 2474).
    #[inline]
    pub const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Explicit congestion notification, 0 to 3 (RFC 3168).
    #[inline]
    pub const fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// Identifies the fragments of one packet.
    #[inline]
    pub fn identification(&self) -> u16 {
        self.identification.get()
    }

    /// True if routers must not fragment.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset.get() & DONT_FRAGMENT != 0
    }

    /// True if this is not the last fragment.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.flags_offset.get() & MORE_FRAGMENTS != 0
    }

    /// Offset of the payload in the whole packet's payload, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (self.flags_offset.get() & OFFSET_MASK) * 8
    }

    /// True for every fragment, including the first and the last. One test detects unfragmented
    /// packets.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_offset.get() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Remaining hops.
    #[inline]
    pub const fn ttl(&self) -> u8 {
        self.ttl
    }

    /// The payload's protocol.
    #[inline]
    pub const fn protocol(&self) -> Protocol {
        Protocol(self.protocol)
    }

    /// The checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Source address.
    #[inline]
    pub const fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.source)
    }

    /// Destination address.
    #[inline]
    pub const fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.destination)
    }

    /// Decrements the TTL and patches the checksum; returns false and changes nothing if no hop is
    /// left.
    #[inline]
    pub fn decrement_ttl(&mut self) -> bool {
        if self.ttl <= 1 {
            return false;
        }
        let old = u16::from_be_bytes([self.ttl, self.protocol]);
        self.ttl -= 1;
        let new = u16::from_be_bytes([self.ttl, self.protocol]);
        self.checksum = U16::new(checksum::update_u16(self.checksum.get(), old, new));
        true
    }

    /// Replaces the length of the whole packet, in bytes, and patches the checksum: for the next
    /// packet of a prepared header.
    #[inline]
    pub fn set_total_len(&mut self, total_len: u16) {
        let checksum = checksum::update_u16(self.checksum.get(), self.total_len.get(), total_len);
        self.total_len = U16::new(total_len);
        self.checksum = U16::new(checksum);
    }

    /// Replaces the identification and patches the checksum.
    #[inline]
    pub fn set_identification(&mut self, identification: u16) {
        let checksum = checksum::update_u16(self.checksum.get(), self.identification.get(), identification);
        self.identification = U16::new(identification);
        self.checksum = U16::new(checksum);
    }

    /// Makes this the header of a fragment and patches the checksum. The offset is in bytes and a
    /// multiple of 8 (RFC 791 3.1); lower bits are dropped. DF is unchanged.
    #[inline]
    pub fn set_fragment(&mut self, offset: u16, more_fragments: bool) {
        let old = self.flags_offset.get();
        let more = if more_fragments { MORE_FRAGMENTS } else { 0 };
        let new = old & (RESERVED | DONT_FRAGMENT) | more | (offset / 8);
        self.checksum = U16::new(checksum::update_u16(self.checksum.get(), old, new));
        self.flags_offset = U16::new(new);
    }
}

/// One option of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Copied flag, class and number in one byte.
    pub kind: u8,
    /// The bytes behind the length byte.
    pub data: &'a [u8],
}

impl Ipv4Option<'_> {
    /// Router alert as bytes of a header, which IGMP messages carry (RFC 2113 2.1): routers must
    /// examine the packet.
    pub const ROUTER_ALERT: [u8; 4] = ROUTER_ALERT;

    /// True if every fragment carries the option, not only the first (RFC 791 3.1).
    pub const fn is_copied(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

/// The options of a header; no-operations are skipped. Ends at the end-of-list option, at the last
/// byte, or after one error: at most forty iterations.
#[derive(Clone, Debug)]
pub struct Ipv4Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, Ipv4Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let option = next_option(&mut self.rest)?;
        Some(option.map(|(kind, data)| Ipv4Option { kind, data }).map_err(|BadLength| Ipv4Error::Option))
    }
}

reasons! {
    /// Why bytes are not a valid IPv4 packet.
    Ipv4Error {
        /// Fewer than 20 bytes.
        Short => "IPv4 header short of 20 bytes",
        /// The version is not 4.
        Version => "IP version is not 4",
        /// The header length states fewer than 20 bytes.
        HeaderLength => "IPv4 header length under 20 bytes",
        /// The total length ends inside the header.
        TotalLength => "IPv4 total length ends inside the header",
        /// The total length exceeds the available bytes.
        Truncated => "IPv4 packet shorter than its total length",
        /// The header's checksum is wrong.
        Checksum => "IPv4 header checksum wrong",
        /// An option's length is under 2 or leaves the header.
        Option => "IPv4 option length wrong",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A TCP packet of four bytes between 172.16.10.99 and 172.16.10.12, with a correct checksum.
    const PACKET: [u8; 24] = [
        0x45, 0x00, 0x00, 0x18, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x06, 0xb1, 0xe2, 0xac, 0x10, 0x0a, 0x63, 0xac, 0x10,
        0x0a, 0x0c, 1, 2, 3, 4,
    ];

    fn patched(idx: usize, byte: u8) -> [u8; 24] {
        let mut bytes = PACKET;
        bytes[idx] = byte;
        bytes
    }

    fn check(bytes: &[u8], expected: Ipv4Error) {
        assert_eq!(Ipv4Packet::parse(bytes).and_then(|packet| packet.verify_checksum()), Err(expected));
    }

    #[test]
    fn bad_headers_are_refused_by_name() {
        check(&[], Ipv4Error::Short);
        check(&PACKET[..19], Ipv4Error::Short);
        check(&patched(0, 0x65), Ipv4Error::Version);
        check(&patched(0, 0x44), Ipv4Error::HeaderLength);
        check(&patched(0, 0x4f), Ipv4Error::TotalLength);
        check(&patched(3, 19), Ipv4Error::TotalLength);
        check(&patched(3, 25), Ipv4Error::Truncated);
        check(&patched(8, 0x41), Ipv4Error::Checksum);
    }

    #[test]
    fn payload_ends_at_the_total_length() {
        let mut frame = [0xee; 46];
        frame[..24].copy_from_slice(&PACKET);
        let packet = Ipv4Packet::parse(&frame).unwrap();
        assert_eq!(packet.payload, [1, 2, 3, 4]);
        assert_eq!(packet.total_len(), 24);
    }

    #[test]
    fn option_lengths_of_zero_one_and_too_many_end_the_list() {
        for len in [0, 1, 5, 255] {
            let mut options = Ipv4Options { rest: &[1, 1, 7, len, 0, 0] };
            assert_eq!(options.next(), Some(Err(Ipv4Error::Option)), "length {len}");
            assert_eq!(options.next(), None);
        }
        let mut kind_alone = Ipv4Options { rest: &[1, 7] };
        assert_eq!(kind_alone.next(), Some(Err(Ipv4Error::Option)));
        assert_eq!(Ipv4Options { rest: &[0, 7, 0, 0] }.next(), None);
    }
    #[test]
    fn options_that_cannot_be_are_refused() {
        let fields = fields(0);
        assert_eq!(Ipv4Header::with_options(&fields, &[0; 44]), Err(EmitError::Options));
        assert_eq!(Ipv4Header::with_options(&fields, &[0; 3]), Err(EmitError::Options));
        let header = Ipv4Header::with_options(&fields, &ROUTER_ALERT).unwrap();
        assert_eq!(header.emit_with_options(&[], &mut [0; 60]), Err(EmitError::Options));
        assert_eq!(header.emit_with_options(&ROUTER_ALERT, &mut [0; 23]), Err(EmitError::NoRoom));
    }

    #[test]
    fn payload_beyond_16_bits_is_refused() {
        assert!(Ipv4Header::new(&fields(65515)).is_ok());
        assert_eq!(Ipv4Header::new(&fields(65516)), Err(EmitError::TooLong));
        assert_eq!(Ipv4Header::new(&fields(usize::MAX)), Err(EmitError::TooLong));
    }

    #[test]
    fn router_alert_is_found_among_options() {
        let options = [1, 7, 3, 4, 148, 4, 0, 0];
        let mut bytes = [0; 28];
        Ipv4Header::with_options(&fields(0), &options).unwrap().emit_with_options(&options, &mut bytes).unwrap();
        let packet = Ipv4Packet::parse(&bytes).unwrap();
        assert!(packet.has_router_alert());
        assert_eq!(packet.verify_checksum(), Ok(()));
        let copied: Vec<_> = packet.options().map(|option| option.unwrap().is_copied()).collect();
        assert_eq!(copied, [false, true]);
        assert!(!Ipv4Packet::parse(&PACKET).unwrap().has_router_alert());
    }

    #[test]
    fn last_hop_is_not_taken() {
        for ttl in [0, 1] {
            let mut header = Ipv4Header::new(&Ipv4Fields { ttl, ..fields(0) }).unwrap();
            let before = header;
            assert!(!header.decrement_ttl());
            assert_eq!(header, before);
        }
    }

    fn fields(payload_len: usize) -> Ipv4Fields {
        Ipv4Fields {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(224, 0, 0, 22),
            protocol: Protocol::IGMP,
            ttl: 1,
            tos: 0xc0,
            identification: 0,
            dont_fragment: true,
            payload_len,
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(mut bytes: Vec<u8>, version_ihl in 0x43u8..0x52) {
            if let Some(first) = bytes.first_mut() {
                *first = version_ihl;
            }
            if bytes.len() > 3 {
                bytes[2] = 0;
            }
            for packet in [Ipv4Packet::parse(&bytes), Ipv4Packet::parse_quoted(&bytes)].into_iter().flatten() {
                prop_assert!(packet.total_len() <= bytes.len());
                prop_assert!(packet.options().count() <= OPTIONS_LEN_MAX);
                let _ = packet.verify_checksum();
            }
        }

        #[test]
        fn written_headers_read_the_same(
            addresses: [u32; 2],
            (protocol, ttl, tos) in any::<(u8, u8, u8)>(),
            identification: u16,
            dont_fragment: bool,
            options in prop::collection::vec(any::<[u8; 4]>(), 0..=10),
            payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let options = options.concat();
            let fields = Ipv4Fields {
                source: addresses[0].into(),
                destination: addresses[1].into(),
                protocol: Protocol(protocol),
                ttl,
                tos,
                identification,
                dont_fragment,
                payload_len: payload.len(),
            };
            let mut bytes = [0xee; 110];
            let header = Ipv4Header::with_options(&fields, &options).unwrap();
            let len = header.emit_with_options(&options, &mut bytes).unwrap();
            bytes[len..len + payload.len()].copy_from_slice(&payload);
            let packet = Ipv4Packet::parse(&bytes).unwrap();
            prop_assert_eq!(packet.verify_checksum(), Ok(()));
            prop_assert_eq!((packet.options, packet.payload, packet.header_len()), (&options[..], &payload[..], len));
            let read = Ipv4Fields {
                source: packet.header.source(),
                destination: packet.header.destination(),
                protocol: packet.header.protocol(),
                ttl: packet.header.ttl(),
                tos: packet.header.dscp() << 2 | packet.header.ecn(),
                identification: packet.header.identification(),
                dont_fragment: packet.header.dont_fragment(),
                payload_len: packet.payload.len(),
            };
            prop_assert_eq!(read, fields);
            prop_assert!(!packet.header.is_fragment());
        }

        #[test]
        fn patched_headers_keep_a_right_checksum(total_len: u16, identification: u16, offset in 0u16..8192, more: bool, ttl in 2u8..) {
            let mut header = Ipv4Header::new(&Ipv4Fields { ttl, ..fields(100) }).unwrap();
            header.set_total_len(total_len);
            header.set_identification(identification);
            header.set_fragment(offset * 8, more);
            prop_assert!(header.decrement_ttl());
            let mut fresh = header;
            fresh.fill_checksum(&[]);
            prop_assert_eq!(header, fresh);
            prop_assert_eq!((header.total_len(), header.identification(), header.ttl()), (total_len, identification, ttl - 1));
            prop_assert_eq!((header.fragment_offset(), header.more_fragments()), (offset * 8, more));
            prop_assert_eq!(header.is_fragment(), more || offset != 0);
            prop_assert!(header.dont_fragment());
        }
    }
}
