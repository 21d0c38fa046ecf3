//! MoldUDP64 1.00 (Nasdaq), big endian: 20 bytes of header, then blocks with a two-byte length.
//!
//! `0:10 session, 10:8 sequence of the first message, 18:2 count`. Count 0 is a heartbeat and
//! 0xFFFF the end of the session; both carry the next expected number. A length of 0 is legal.
//!
//! A receiver that misses messages sends a [`Request`], 20 bytes of the same layout, to the
//! re-request server, which answers with one ordinary packet to the sender's address: the messages
//! from the first requested one on, as many as fit.

use zerocopy::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Framing, FramingError, Header, PacketKind, Session, split_u16};

/// The framing of Nasdaq's multicast feeds.
#[derive(Clone, Copy, Debug)]
pub struct MoldUdp64;

/// The header in MoldUDP64's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoldHeader {
    /// Session name; opaque bytes, usually ASCII padded with spaces.
    pub session: [u8; 10],
    /// Number of the first message, or the next expected one.
    pub seq: u64,
    /// Messages in the packet, 0 for a heartbeat, [`MoldHeader::END_OF_SESSION`] for the end.
    pub count: u16,
}

impl MoldHeader {
    /// The count that ends a session.
    pub const END_OF_SESSION: u16 = 0xffff;

    /// The header of a packet that starts at `seq`; the writer fills in the count.
    pub const fn new(session: [u8; 10], seq: u64) -> Self {
        Self { session, seq, count: 0 }
    }

    /// Emits the packet that ends a session whose next number would have been `seq`.
    pub fn emit_end_of_session(session: [u8; 10], seq: u64) -> [u8; 20] {
        let mut out = [0; 20];
        write(&Self { session, seq, count: Self::END_OF_SESSION }, &mut out);
        out
    }
}

/// The messages that a receiver wants once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Session name, as the packets of the feed carry it.
    pub session: [u8; 10],
    /// Number of the first message wanted.
    pub seq: u64,
    /// Messages wanted. The answer may hold fewer: request again from the next missing one.
    pub count: u16,
}

impl Request {
    /// Bytes of a request.
    pub const LEN: usize = 20;

    /// Parses a request, which is exactly [`Request::LEN`] bytes long. The server checks its
    /// numbers.
    pub fn parse(packet: &[u8]) -> Result<Self, FramingError> {
        let (header, behind) = MoldUdp64::parse_raw(packet)?;
        if !behind.is_empty() {
            return Err(FramingError::TrailingBytes { len: behind.len() });
        }
        Ok(Self { session: header.session, seq: header.seq, count: header.count })
    }

    /// Writes the request.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        write(&MoldHeader { session: self.session, seq: self.seq, count: self.count }, &mut out);
        out
    }
}

/// The session's name as the wire has it.
pub const fn session_name(session: Session) -> [u8; 10] {
    let [name @ .., _, _, _, _, _, _] = session.0.to_le_bytes();
    name
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    session: [u8; 10],
    seq: U64,
    count: U16,
}

impl Framing for MoldUdp64 {
    type Raw = MoldHeader;

    const NAME: &'static str = "MoldUDP64";
    const HEADER_LEN: usize = 20;
    const PREFIX_LEN: usize = 2;
    const COUNT_MAX: u32 = 0xfffe;
    const MESSAGE_LEN_MAX: usize = 0xffff;

    fn parse_raw(packet: &[u8]) -> Result<(MoldHeader, &[u8]), FramingError> {
        let Ok((wire, blocks)) = Wire::ref_from_prefix(packet) else {
            return Err(FramingError::HeaderShort { len: packet.len() });
        };
        Ok((MoldHeader { session: wire.session, seq: wire.seq.get(), count: wire.count.get() }, blocks))
    }

    fn header(raw: &MoldHeader) -> Header {
        let (kind, count) = match raw.count {
            0 => (PacketKind::Heartbeat, 0),
            MoldHeader::END_OF_SESSION => (PacketKind::EndOfSession, 0),
            count => (PacketKind::Data, u32::from(count)),
        };
        let mut session = [0; 16];
        session[..10].copy_from_slice(&raw.session);
        Header { channel: 0, session: Session(u128::from_le_bytes(session)), seq: raw.seq, count, kind, sent_ns: 0 }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        split_u16(blocks, u16::from_be_bytes)
    }

    fn emit_raw(raw: &MoldHeader, count: u32, _body_len: usize, out: &mut [u8]) {
        write(&MoldHeader { count: count as u16, ..*raw }, out);
    }

    fn emit_prefix(len: usize, out: &mut [u8]) {
        out.copy_from_slice(&(len as u16).to_be_bytes());
    }
}

fn write(header: &MoldHeader, out: &mut [u8]) {
    let wire = Wire { session: header.session, seq: header.seq.into(), count: header.count.into() };
    out[..20].copy_from_slice(wire.as_bytes());
}
