//! IEX Transport Protocol 1, little endian: 40 bytes of header, then blocks with a two-byte length.
//!
//! `0:1 version, 1:1 reserved, 2:2 protocol, 4:4 channel, 8:4 session, 12:2 payload length, 14:2
//! count, 16:8 stream offset, 24:8 first sequence, 32:8 send time`. A heartbeat has no payload and
//! the next sequence.
//!
//! A receiver that misses messages sends a [`GapRequest`] to the gap-fill server, which answers
//! with ordinary segments to the sender's address.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Framing, FramingError, Header, PacketKind, Session, split_u16};

/// The framing of IEX's feeds.
#[derive(Clone, Copy, Debug)]
pub struct IexTp;

/// The header in IEX-TP's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IexHeader {
    /// The feed of the messages: [`IexHeader::TOPS_1_5`], [`IexHeader::TOPS_1_6`],
    /// [`IexHeader::DEEP_1_0`].
    pub protocol: u16,
    /// The channel; each has its own sequence.
    pub channel: u32,
    /// The session; a new one restarts the numbers.
    pub session: u32,
    /// Messages in the packet.
    pub count: u16,
    /// Position of the payload in the session's byte stream.
    pub offset: u64,
    /// Number of the first message, or the next expected one.
    pub seq: u64,
    /// Send time, ns since 1970.
    pub sent_ns: u64,
}

impl IexHeader {
    /// Protocol id of TOPS 1.5.
    pub const TOPS_1_5: u16 = 0x8002;
    /// Protocol id of TOPS 1.6.
    pub const TOPS_1_6: u16 = 0x8003;
    /// Protocol id of DEEP 1.0.
    pub const DEEP_1_0: u16 = 0x8004;
}

/// The messages that a receiver wants once more: one range of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapRequest {
    /// The feed's protocol.
    pub protocol: u16,
    /// Its channel.
    pub channel: u32,
    /// The current session; no other can be asked for.
    pub session: u32,
    /// The first number wanted.
    pub first: u64,
    /// The last number wanted, itself included. Over UDP at most
    /// [`GapRequest::MESSAGES_MAX`] are.
    pub last: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct GapRequestWire {
    version: u8,
    kind: u8,
    protocol: U16,
    channel: U32,
    session: U32,
    ranges: U32,
    first: U64,
    last: U64,
}

impl GapRequest {
    /// Bytes of a request with one range.
    pub const LEN: usize = size_of::<GapRequestWire>();
    /// Most messages that the server of TOPS sends for one request over UDP.
    pub const MESSAGES_MAX: u64 = 1_000;
    /// A range of messages; 2 would be a range of bytes.
    const BY_MESSAGES: u8 = 1;

    /// Writes the request.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(GapRequestWire {
            version: 1,
            kind: Self::BY_MESSAGES,
            protocol: self.protocol.into(),
            channel: self.channel.into(),
            session: self.session.into(),
            ranges: 1.into(),
            first: self.first.into(),
            last: self.last.into(),
        })
    }

    /// Parses a request with one range of messages. The server checks its numbers.
    pub fn parse(packet: &[u8]) -> Result<Self, FramingError> {
        let Ok((wire, behind)) = GapRequestWire::ref_from_prefix(packet) else {
            return Err(FramingError::HeaderShort { len: packet.len() });
        };
        if wire.version != 1 {
            return Err(FramingError::Version { found: wire.version });
        }
        if wire.kind != Self::BY_MESSAGES || wire.ranges.get() != 1 {
            return Err(FramingError::MessageOverrun { idx: 0 });
        }
        if !behind.is_empty() {
            return Err(FramingError::TrailingBytes { len: behind.len() });
        }
        Ok(Self {
            protocol: wire.protocol.get(),
            channel: wire.channel.get(),
            session: wire.session.get(),
            first: wire.first.get(),
            last: wire.last.get(),
        })
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    version: u8,
    reserved: u8,
    protocol: U16,
    channel: U32,
    session: U32,
    payload_len: U16,
    count: U16,
    offset: U64,
    seq: U64,
    sent_ns: U64,
}

impl Framing for IexTp {
    type Raw = IexHeader;

    const NAME: &'static str = "IEX-TP";
    const HEADER_LEN: usize = 40;
    const PREFIX_LEN: usize = 2;
    const COUNT_MAX: u32 = 0xffff;
    const MESSAGE_LEN_MAX: usize = 0xffff;

    fn parse_raw(packet: &[u8]) -> Result<(IexHeader, &[u8]), FramingError> {
        let Ok((wire, blocks)) = Wire::ref_from_prefix(packet) else {
            return Err(FramingError::HeaderShort { len: packet.len() });
        };
        if wire.version != 1 {
            return Err(FramingError::Version { found: wire.version });
        }
        let declared = Self::HEADER_LEN + usize::from(wire.payload_len.get());
        if declared != packet.len() {
            return Err(FramingError::LengthMismatch { declared, len: packet.len() });
        }
        let raw = IexHeader {
            protocol: wire.protocol.get(),
            channel: wire.channel.get(),
            session: wire.session.get(),
            count: wire.count.get(),
            offset: wire.offset.get(),
            seq: wire.seq.get(),
            sent_ns: wire.sent_ns.get(),
        };
        Ok((raw, blocks))
    }

    fn header(raw: &IexHeader) -> Header {
        Header {
            channel: raw.channel,
            session: Session(raw.session.into()),
            seq: raw.seq,
            count: raw.count.into(),
            kind: if raw.count == 0 { PacketKind::Heartbeat } else { PacketKind::Data },
            sent_ns: raw.sent_ns,
        }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        split_u16(blocks, u16::from_le_bytes)
    }

    fn emit_raw(raw: &IexHeader, count: u32, body_len: usize, out: &mut [u8]) {
        let wire = Wire {
            version: 1,
            reserved: 0,
            protocol: raw.protocol.into(),
            channel: raw.channel.into(),
            session: raw.session.into(),
            payload_len: (body_len as u16).into(),
            count: (count as u16).into(),
            offset: raw.offset.into(),
            seq: raw.seq.into(),
            sent_ns: raw.sent_ns.into(),
        };
        out[..Self::HEADER_LEN].copy_from_slice(wire.as_bytes());
    }

    fn emit_prefix(len: usize, out: &mut [u8]) {
        out.copy_from_slice(&(len as u16).to_le_bytes());
    }
}
