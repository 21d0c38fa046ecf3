//! MEMX-UDP, big endian: 18 bytes of header, and where it has messages their count and a length in
//! front of each.
//!
//! `0:1 type, 1:1 bytes of this header, 2:8 session, 10:8 number`, then `18:2 count`, and each
//! message as `0:2 length` and its bytes. The type is 0 for a heartbeat, 1 for the end of the
//! session and 2 for messages. The number is that of the first message; of the other two, the
//! highest that was sent, 0 before the first.

use zerocopy::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Framing, FramingError, Header, PacketKind, Session, split_u16};

/// The framing of MEMX's multicast feeds.
#[derive(Clone, Copy, Debug)]
pub struct MemxUdp;

/// The header in MEMX's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemxHeader {
    /// One of the constants below.
    pub kind: u8,
    /// The session.
    pub session: u64,
    /// Number of the first message; without messages the highest that was sent.
    pub seq: u64,
    /// Messages in the packet.
    pub count: u16,
}

impl MemxHeader {
    /// The session lives; no messages.
    pub const HEARTBEAT: u8 = 0;
    /// Nothing more comes in this session.
    pub const SESSION_SHUTDOWN: u8 = 1;
    /// Messages.
    pub const SEQUENCED: u8 = 2;
    /// Bytes on the wire without the count.
    pub const LEN: usize = 18;

    /// A packet of nothing but the header: a heartbeat, or the end of the session.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let wire =
            Wire { kind: self.kind, header_len: Self::LEN as u8, session: self.session.into(), seq: self.seq.into() };
        let mut out = [0; Self::LEN];
        out.copy_from_slice(wire.as_bytes());
        out
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    kind: u8,
    header_len: u8,
    session: U64,
    seq: U64,
}

impl Framing for MemxUdp {
    type Raw = MemxHeader;

    const NAME: &'static str = "MEMX-UDP";
    const HEADER_LEN: usize = MemxHeader::LEN + 2;
    const PREFIX_LEN: usize = 2;
    const COUNT_MAX: u32 = 0xffff;
    const MESSAGE_LEN_MAX: usize = 0xffff;

    /// A header that is longer than ours has more at its end, which is skipped.
    fn parse_raw(packet: &[u8]) -> Result<(MemxHeader, &[u8]), FramingError> {
        let short = FramingError::HeaderShort { len: packet.len() };
        let (wire, _) = Wire::ref_from_prefix(packet).map_err(|_| short)?;
        if wire.kind > MemxHeader::SEQUENCED || usize::from(wire.header_len) < MemxHeader::LEN {
            return Err(FramingError::Version { found: wire.kind });
        }
        let mut rest = packet.get(usize::from(wire.header_len)..).ok_or(short)?;
        let mut count = 0;
        if wire.kind == MemxHeader::SEQUENCED {
            let (wire_count, blocks) = U16::ref_from_prefix(rest).map_err(|_| short)?;
            (count, rest) = (wire_count.get(), blocks);
        }
        Ok((MemxHeader { kind: wire.kind, session: wire.session.get(), seq: wire.seq.get(), count }, rest))
    }

    fn header(raw: &MemxHeader) -> Header {
        let next = raw.seq.saturating_add(1);
        let (kind, seq) = match (raw.kind, raw.count) {
            (MemxHeader::HEARTBEAT, _) => (PacketKind::Heartbeat, next),
            (MemxHeader::SESSION_SHUTDOWN, _) => (PacketKind::EndOfSession, next),
            (_, 0) => (PacketKind::Heartbeat, raw.seq),
            _ => (PacketKind::Data, raw.seq),
        };
        Header { channel: 0, session: Session(raw.session.into()), seq, count: raw.count.into(), kind, sent_ns: 0 }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        split_u16(blocks, u16::from_be_bytes)
    }

    /// Without a message it is one of type 2 with none.
    fn emit_raw(raw: &MemxHeader, count: u32, _body_len: usize, out: &mut [u8]) {
        let header = MemxHeader { kind: MemxHeader::SEQUENCED, ..*raw };
        out[..MemxHeader::LEN].copy_from_slice(&header.emit());
        out[MemxHeader::LEN..Self::HEADER_LEN].copy_from_slice(&(count as u16).to_be_bytes());
    }

    fn emit_prefix(len: usize, out: &mut [u8]) {
        out.copy_from_slice(&(len as u16).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::PacketWriter;

    const HEADER: MemxHeader = MemxHeader { kind: MemxHeader::SEQUENCED, session: 9, seq: 7, count: 0 };

    fn packet(messages: &[&[u8]]) -> Vec<u8> {
        let mut room = [0; 128];
        let mut writer = PacketWriter::<MemxUdp>::new(HEADER, &mut room).unwrap();
        messages.iter().for_each(|message| writer.push(message).unwrap());
        writer.finish().to_vec()
    }

    #[test]
    fn messages_are_numbered_from_the_header() {
        let bytes = packet(&[b"one", b"three"]);
        assert_eq!(bytes[..22], [2, 18, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 2, 0, 3]);
        let packet = MemxUdp::parse(&bytes).unwrap();
        assert!(packet.numbered(0).eq([(7, &b"one"[..]), (8, b"three")]));
        assert_eq!((packet.header.kind, packet.header.session), (PacketKind::Data, Session(9)));
    }

    #[test]
    fn heartbeat_and_end_have_the_highest_number_that_was_sent() {
        for (kind, expected) in
            [(MemxHeader::HEARTBEAT, PacketKind::Heartbeat), (MemxHeader::SESSION_SHUTDOWN, PacketKind::EndOfSession)]
        {
            let bytes = MemxHeader { kind, ..HEADER }.emit();
            let header = MemxUdp::parse(&bytes).unwrap().header;
            assert_eq!((header.kind, header.seq, header.count), (expected, 8, 0));
        }
        let last = MemxHeader { kind: MemxHeader::HEARTBEAT, seq: u64::MAX, ..HEADER }.emit();
        assert_eq!(MemxUdp::parse(&last).unwrap().header.seq, u64::MAX);
    }

    #[test]
    fn longer_header_is_skipped_and_an_impossible_one_refused() {
        let bytes = packet(&[b"one"]);
        let mut longer = bytes.clone();
        longer.splice(18..18, [1, 2, 3]);
        longer[1] = 21;
        assert!(MemxUdp::parse(&longer).unwrap().messages().eq([b"one"]));
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            MemxUdp::parse(&bytes).map(|_| ()).map_err(FramingError::name)
        };
        assert_eq!(changed(0, 3), Err("version"));
        assert_eq!(changed(1, 17), Err("version"));
        assert_eq!(changed(1, 250), Err("header_short"));
        assert_eq!(changed(0, 0), Err("trailing_bytes"), "a heartbeat has no messages");
        assert_eq!(changed(19, 2), Err("message_overrun"));
        assert!((0..20).all(|len| MemxUdp::parse(&bytes[..len]).is_err()));
    }
}
