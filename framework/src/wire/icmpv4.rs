//! ICMP for IPv4 (RFC 792): echo, and errors, which quote the packet that caused them.
//!
//! Not on the fast path, so `parse` also checks the checksum and returns one enum; `emit` is its
//! mirror. The caller decides whether an error may be sent at all (never about an error, a
//! broadcast, a later fragment: RFC 1122 3.2.2).

use core::net::Ipv4Addr;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::Sum;
use super::field::{EmitError, Protocol};
use super::ipv4::{self, Ipv4Packet};

/// Bytes of the header, common to all messages.
pub(crate) const HEADER_LEN: usize = 8;
/// Maximum bytes of a packet that an error should quote, so that the error stays within 576 (RFC
/// 1812 4.3.2.3).
pub(crate) const QUOTED_LEN_MAX: usize = 576 - ipv4::HEADER_LEN - HEADER_LEN;

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// A message whose data is borrowed from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv4Message<'a> {
    /// A ping.
    EchoRequest(Echo<'a>),
    /// The answer, with the same identifier, sequence and data.
    EchoReply(Echo<'a>),
    /// A packet did not reach its destination.
    DestinationUnreachable {
        /// The reason.
        code: Unreachable,
        /// The start of that packet.
        quoted: &'a [u8],
    },
    /// The TTL of a packet, or the reassembly of its fragments, has expired.
    TimeExceeded {
        /// Which of the two.
        code: TimeExceeded,
        /// The start of that packet.
        quoted: &'a [u8],
    },
    /// A header was rejected.
    ParameterProblem {
        /// 0 if the pointer locates the error; 1 for a missing option, 2 for a bad length (RFC
        /// 1108, RFC 4884).
        code: u8,
        /// Offset of the rejected byte in the quoted packet.
        pointer: u8,
        /// The start of that packet.
        quoted: &'a [u8],
    },
    /// Any other type: redirect, timestamp, router discovery.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The second half of the header, whose meaning depends on the type.
        rest: [u8; 4],
        /// The bytes behind the header.
        payload: &'a [u8],
    },
}

/// The content of echo messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Chosen by the requester, often one per process.
    pub identifier: u16,
    /// Chosen by the requester, often one per request.
    pub sequence: u16,
    /// The data to return unchanged.
    pub data: &'a [u8],
}

/// Why a destination was not reached (RFC 792, RFC 1122 3.2.2.1, RFC 1812 5.2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unreachable {
    /// 0: no route to the network.
    Net,
    /// 1: the host does not answer.
    Host,
    /// 2: the host does not speak the protocol.
    Protocol,
    /// 3: no socket on the port.
    Port,
    /// 4: too large for the next link, and fragmentation was forbidden.
    FragmentationNeeded {
        /// MTU of that link in bytes (RFC 1191 4); 0 from routers that do not report it.
        mtu: u16,
    },
    /// 5: a source route failed.
    SourceRoute,
    /// 6: the network does not exist.
    NetUnknown,
    /// 7: the host does not exist.
    HostUnknown,
    /// 8: the source is isolated.
    SourceIsolated,
    /// 9: the network is forbidden.
    NetProhibited,
    /// 10: the host is forbidden.
    HostProhibited,
    /// 11: no route to the network for this type of service.
    NetTos,
    /// 12: no route to the host for this type of service.
    HostTos,
    /// 13: a filter forbids it.
    Prohibited,
    /// 14: the precedence is forbidden.
    HostPrecedence,
    /// 15: the precedence is too low.
    PrecedenceCutoff,
    /// An unassigned code.
    Other(u8),
}

impl Unreachable {
    fn parse(code: u8, mtu: u16) -> Self {
        match code {
            0 => Self::Net,
            1 => Self::Host,
            2 => Self::Protocol,
            3 => Self::Port,
            4 => Self::FragmentationNeeded { mtu },
            5 => Self::SourceRoute,
            6 => Self::NetUnknown,
            7 => Self::HostUnknown,
            8 => Self::SourceIsolated,
            9 => Self::NetProhibited,
            10 => Self::HostProhibited,
            11 => Self::NetTos,
            12 => Self::HostTos,
            13 => Self::Prohibited,
            14 => Self::HostPrecedence,
            15 => Self::PrecedenceCutoff,
            other => Self::Other(other),
        }
    }

    /// The code as a number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Net => 0,
            Self::Host => 1,
            Self::Protocol => 2,
            Self::Port => 3,
            Self::FragmentationNeeded { .. } => 4,
            Self::SourceRoute => 5,
            Self::NetUnknown => 6,
            Self::HostUnknown => 7,
            Self::SourceIsolated => 8,
            Self::NetProhibited => 9,
            Self::HostProhibited => 10,
            Self::NetTos => 11,
            Self::HostTos => 12,
            Self::Prohibited => 13,
            Self::HostPrecedence => 14,
            Self::PrecedenceCutoff => 15,
            Self::Other(code) => code,
        }
    }
}

/// The kind of timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeExceeded {
    /// 0: the TTL reached zero on the way.
    Ttl,
    /// 1: the destination did not get all fragments in time.
    Reassembly,
    /// An unassigned code.
    Other(u8),
}

impl TimeExceeded {
    fn parse(code: u8) -> Self {
        match code {
            0 => Self::Ttl,
            1 => Self::Reassembly,
            other => Self::Other(other),
        }
    }

    /// The code as a number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ttl => 0,
            Self::Reassembly => 1,
            Self::Other(code) => code,
        }
    }
}

impl<'a> Icmpv4Message<'a> {
    /// Parses the message that fills `bytes`, an IPv4 packet's payload, and checks its checksum.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Icmpv4Error> {
        let (header, payload) = Icmpv4Header::ref_from_prefix(bytes).map_err(|_| Icmpv4Error::Short)?;
        if !Sum::of(bytes).is_valid() {
            return Err(Icmpv4Error::Checksum);
        }
        let code = header.code;
        Ok(match header.kind {
            ECHO_REQUEST => Self::EchoRequest(header.echo(payload)),
            ECHO_REPLY => Self::EchoReply(header.echo(payload)),
            DESTINATION_UNREACHABLE => Self::DestinationUnreachable {
                code: Unreachable::parse(code, header.rest_words().1),
                quoted: header.quoted(payload),
            },
            TIME_EXCEEDED => Self::TimeExceeded { code: TimeExceeded::parse(code), quoted: header.quoted(payload) },
            PARAMETER_PROBLEM => {
                Self::ParameterProblem { code, pointer: header.rest[0], quoted: header.quoted(payload) }
            }
            kind => Self::Other { kind, code, rest: header.rest, payload },
        })
    }

    /// Writes the message with its checksum and returns the bytes written. An error quotes all
    /// bytes given: cut the packet to 548 first (RFC 1812 4.3.2.3).
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, EmitError> {
        let bytes = bytes.get_mut(..self.len()).ok_or(EmitError::NoRoom)?;
        let mut header = self.header();
        header.checksum = U16::new(Sum::of(header.as_bytes()).append(self.payload()).finish());
        let (front, back) = bytes.split_at_mut(HEADER_LEN);
        front.copy_from_slice(header.as_bytes());
        back.copy_from_slice(self.payload());
        Ok(bytes.len())
    }

    /// Bytes of the message.
    #[inline]
    pub fn len(&self) -> usize {
        HEADER_LEN + self.payload().len()
    }

    /// Never: every message has a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// True for messages about another packet, which must never cause an error themselves (RFC 1122
    /// 3.2.2). Unknown types count as errors, which is the safe side; so do source quench and
    /// redirect.
    pub fn is_error(&self) -> bool {
        match self {
            Self::EchoRequest(_) | Self::EchoReply(_) => false,
            Self::DestinationUnreachable { .. } | Self::TimeExceeded { .. } | Self::ParameterProblem { .. } => true,
            // 9 and 10 discover routers; 13 to 18 request and return time, information and masks.
            Self::Other { kind, .. } => !matches!(kind, 9 | 10 | 13..=18),
        }
    }

    /// The packet that caused the error; `None` for messages that quote none.
    pub fn quoted(&self) -> Option<&'a [u8]> {
        match *self {
            Self::DestinationUnreachable { quoted, .. }
            | Self::TimeExceeded { quoted, .. }
            | Self::ParameterProblem { quoted, .. } => Some(quoted),
            Self::EchoRequest(_) | Self::EchoReply(_) | Self::Other { .. } => None,
        }
    }

    fn payload(&self) -> &'a [u8] {
        match *self {
            Self::EchoRequest(echo) | Self::EchoReply(echo) => echo.data,
            Self::DestinationUnreachable { quoted, .. }
            | Self::TimeExceeded { quoted, .. }
            | Self::ParameterProblem { quoted, .. } => quoted,
            Self::Other { payload, .. } => payload,
        }
    }

    fn header(&self) -> Icmpv4Header {
        let (kind, code, rest) = match *self {
            Self::EchoRequest(echo) => (ECHO_REQUEST, 0, echo.rest()),
            Self::EchoReply(echo) => (ECHO_REPLY, 0, echo.rest()),
            Self::DestinationUnreachable { code, .. } => {
                let mtu = if let Unreachable::FragmentationNeeded { mtu } = code { mtu } else { 0 };
                let [high, low] = mtu.to_be_bytes();
                (DESTINATION_UNREACHABLE, code.code(), [0, 0, high, low])
            }
            Self::TimeExceeded { code, .. } => (TIME_EXCEEDED, code.code(), [0; 4]),
            Self::ParameterProblem { code, pointer, .. } => (PARAMETER_PROBLEM, code, [pointer, 0, 0, 0]),
            Self::Other { kind, code, rest, .. } => (kind, code, rest),
        };
        Icmpv4Header { kind, code, checksum: U16::ZERO, rest }
    }
}

impl Echo<'_> {
    fn rest(&self) -> [u8; 4] {
        (u32::from(self.identifier) << 16 | u32::from(self.sequence)).to_be_bytes()
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Icmpv4Header {
    kind: u8,
    code: u8,
    checksum: U16,
    rest: [u8; 4],
}

impl Icmpv4Header {
    fn rest_words(&self) -> (u16, u16) {
        let [a, b, c, d] = self.rest;
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }

    fn echo<'a>(&self, data: &'a [u8]) -> Echo<'a> {
        let (identifier, sequence) = self.rest_words();
        Echo { identifier, sequence, data }
    }

    /// The quoted packet without the extensions that may follow it: if there are any, the second
    /// byte of the rest is its length in words, otherwise zero (RFC 4884 4).
    fn quoted<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        match usize::from(self.rest[1]) * 4 {
            0 => payload,
            len => payload.get(..len).unwrap_or(payload),
        }
    }
}

/// The flow that an ICMP error is about: it identifies the socket or connection to notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedFlow {
    /// Source address of the quoted packet: ours, if the error is genuine.
    pub source: Ipv4Addr,
    /// Destination address of the quoted packet.
    pub destination: Ipv4Addr,
    /// UDP or TCP.
    pub protocol: Protocol,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Bytes 4 to 8 of the transport header: for TCP the sequence number, which a blind forger does
    /// not know (RFC 5927 4.1).
    pub sequence: u32,
}

impl QuotedFlow {
    /// Parses the flow; `None` if the quote is too short, carries neither UDP nor TCP, or is a
    /// later fragment.
    pub fn parse(quoted: &[u8]) -> Option<Self> {
        let packet = Ipv4Packet::parse_quoted(quoted).ok()?;
        let header = packet.header;
        if !matches!(header.protocol(), Protocol::UDP | Protocol::TCP) || header.fragment_offset() != 0 {
            return None;
        }
        let &[a, b, c, d, e, f, g, h] = packet.payload.first_chunk()?;
        Some(Self {
            source: header.source(),
            destination: header.destination(),
            protocol: header.protocol(),
            source_port: u16::from_be_bytes([a, b]),
            destination_port: u16::from_be_bytes([c, d]),
            sequence: u32::from_be_bytes([e, f, g, h]),
        })
    }
}

reasons! {
    /// Why bytes are not an ICMP message.
    Icmpv4Error {
        /// Fewer than 8 bytes.
        Short => "ICMP message short of 8 bytes",
        /// The checksum is wrong.
        Checksum => "ICMP checksum wrong",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Ipv4Fields, Ipv4Header};

    fn emit(message: &Icmpv4Message<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; message.len()];
        assert_eq!(message.emit(&mut bytes), Ok(message.len()));
        bytes
    }

    fn quote(protocol: Protocol, offset: u16) -> [u8; 28] {
        let mut header = Ipv4Header::new(&Ipv4Fields {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            protocol,
            ttl: 1,
            tos: 0,
            identification: 9,
            dont_fragment: false,
            payload_len: 1400,
        })
        .unwrap();
        header.set_fragment(offset, false);
        let mut bytes = [0; 28];
        header.emit(&mut bytes).unwrap();
        bytes[20..].copy_from_slice(&[0x0f, 0xa0, 0x1f, 0x90, 1, 2, 3, 4]);
        bytes
    }

    #[test]
    fn short_and_damaged_messages_are_refused() {
        let mut bytes = emit(&Icmpv4Message::EchoRequest(Echo { identifier: 1, sequence: 2, data: b"abc" }));
        assert_eq!(Icmpv4Message::parse(&bytes[..7]), Err(Icmpv4Error::Short));
        bytes[9] ^= 1;
        assert_eq!(Icmpv4Message::parse(&bytes), Err(Icmpv4Error::Checksum));
        let message = Icmpv4Message::TimeExceeded { code: TimeExceeded::Ttl, quoted: &[0; 28] };
        assert_eq!(message.emit(&mut [0; 35]), Err(EmitError::NoRoom));
    }

    #[test]
    fn quoted_flow_is_found_behind_a_long_total_length() {
        let quoted = quote(Protocol::TCP, 0);
        let flow = QuotedFlow::parse(&quoted).unwrap();
        assert_eq!((flow.source_port, flow.destination_port, flow.sequence), (4000, 8080, 0x0102_0304));
        assert_eq!(flow.source, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(QuotedFlow::parse(&quoted[..27]), None);
        assert_eq!(QuotedFlow::parse(&quote(Protocol::ICMP, 0)), None);
        assert_eq!(QuotedFlow::parse(&quote(Protocol::UDP, 8)), None);
    }

    #[test]
    fn extensions_behind_the_quote_are_cut_off() {
        let quoted = [7; 12];
        let mut bytes = emit(&Icmpv4Message::TimeExceeded { code: TimeExceeded::Ttl, quoted: &quoted });
        for (words, len) in [(0, 12), (2, 8), (3, 12), (200, 12)] {
            bytes[5] = words;
            bytes[2..4].fill(0);
            let checksum = Sum::of(&bytes).finish();
            bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            assert_eq!(Icmpv4Message::parse(&bytes).unwrap().quoted(), Some(&quoted[..len]), "{words} words");
        }
    }

    #[test]
    fn errors_are_told_from_questions() {
        let other = |kind| Icmpv4Message::Other { kind, code: 0, rest: [0; 4], payload: &[] };
        assert!(other(5).is_error() && other(4).is_error() && other(200).is_error());
        assert!(!other(13).is_error());
        assert!(!Icmpv4Message::EchoReply(Echo { identifier: 0, sequence: 0, data: &[] }).is_error());
    }

    #[test]
    fn every_code_round_trips() {
        for code in 0..=255 {
            assert_eq!(Unreachable::parse(code, 1400).code(), code);
            assert_eq!(TimeExceeded::parse(code).code(), code);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(mut bytes: Vec<u8>, fix: bool) {
            if fix && bytes.len() >= 4 {
                bytes[2..4].fill(0);
                let checksum = Sum::of(&bytes).finish();
                bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            }
            if let Ok(message) = Icmpv4Message::parse(&bytes) {
                let written = emit(&message);
                prop_assert_eq!(Icmpv4Message::parse(&written), Ok(message));
                let _ = message.quoted().map(QuotedFlow::parse);
            }
        }

        #[test]
        fn written_messages_read_the_same(kind in 0..5, code: u8, a: u16, b: u16, data: Vec<u8>) {
            let quoted = &data[..];
            let message = match kind {
                0 => Icmpv4Message::EchoRequest(Echo { identifier: a, sequence: b, data: quoted }),
                1 => Icmpv4Message::EchoReply(Echo { identifier: a, sequence: b, data: quoted }),
                2 => Icmpv4Message::DestinationUnreachable { code: Unreachable::parse(code, a), quoted },
                3 => Icmpv4Message::TimeExceeded { code: TimeExceeded::parse(code), quoted },
                _ => Icmpv4Message::ParameterProblem { code, pointer: a as u8, quoted },
            };
            let bytes = emit(&message);
            prop_assert_eq!(Icmpv4Message::parse(&bytes), Ok(message));
        }
    }
}
