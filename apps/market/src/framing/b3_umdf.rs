//! B3's binary UMDF packets, little endian: 16 bytes of header, then messages behind four bytes
//! that hold their length.
//!
//! `0:1 channel, 1:1 reserved, 2:2 sequence version, 4:4 number of the packet, 8:8 send time`; a
//! message is `0:2 length, itself and the next field included, 2:2 encoding (0xeb50, SBE of little
//! endian), 4:8 SBE header`, then its block and groups.
//!
//! The numbers count packets, one sequence for each channel and each of its feeds. They begin anew
//! with each sequence version, which is the [`Session`] here: B3 counts it up each week, and when
//! another engine takes over. While there is nothing to send a packet has one message, `Sequence`,
//! "the next application sequence number in the feed" by B3's schema. It is a heartbeat of that
//! number, whatever the packet's own one is: one that repeats the last number does not stand in for
//! the packet that had it, and if that was lost, the heartbeat shows the hole. Neither the schema
//! nor the public descriptions of the feed that were found say whether a heartbeat takes a number,
//! and no capture of one was found (looked for in November 2026). If one did, it would show as a
//! hole, and hide none.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Framing, FramingError, Header, PacketKind, Session};

/// The framing of B3's binary UMDF.
#[derive(Clone, Copy, Debug)]
pub struct B3Packet;

/// The header in B3's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct B3Header {
    /// Number of the channel.
    pub channel: u8,
    /// Numbers of another version have nothing to do with these.
    pub sequence_version: u16,
    /// Number of the packet.
    pub seq: u32,
    /// Send time, ns since 1970.
    pub sent_ns: u64,
    /// The number that a packet with `Sequence` alone names. Not of the header itself, and not
    /// written.
    pub next_seq: Option<u32>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    channel: u8,
    reserved: u8,
    sequence_version: U16,
    seq: U32,
    sent_ns: U64,
}

/// A message of a packet that has nothing to say: in front of it, its header, and its block.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SequenceWire {
    len: U16,
    encoding: U16,
    block_len: U16,
    template: U16,
    schema: U16,
    version: U16,
    next_seq: U32,
}

/// The length and the encoding in front of a message count in its length.
const FRAME_LEN: usize = 4;
/// With the header of a message without a block.
const BLOCK_LEN_MIN: usize = FRAME_LEN + 8;
/// SBE 1.0, little endian.
const ENCODING: u16 = 0xeb50;
/// The template of `Sequence`.
const SEQUENCE: u16 = 2;

impl SequenceWire {
    /// The number that it names, where the packet is this message alone.
    fn next_seq(blocks: &[u8]) -> Option<u32> {
        let wire = Self::ref_from_bytes(blocks).ok()?;
        (wire.template.get() == SEQUENCE).then_some(wire.next_seq.get())
    }
}

impl Framing for B3Packet {
    type Raw = B3Header;

    const NAME: &'static str = "B3 UMDF";
    const HEADER_LEN: usize = 16;
    const PREFIX_LEN: usize = FRAME_LEN;
    const COUNT_MAX: u32 = 0xffff;
    const MESSAGE_LEN_MAX: usize = 0xffff - FRAME_LEN;
    const NUMBERS_PACKETS: bool = true;

    fn parse_raw(packet: &[u8]) -> Result<(B3Header, &[u8]), FramingError> {
        let Ok((wire, blocks)) = Wire::ref_from_prefix(packet) else {
            return Err(FramingError::HeaderShort { len: packet.len() });
        };
        // A packet has a message at least: without one, any sixteen bytes would be a packet.
        if blocks.is_empty() {
            return Err(FramingError::MessageOverrun { idx: 0 });
        }
        let header = B3Header {
            channel: wire.channel,
            sequence_version: wire.sequence_version.get(),
            seq: wire.seq.get(),
            sent_ns: wire.sent_ns.get(),
            next_seq: SequenceWire::next_seq(blocks),
        };
        Ok((header, blocks))
    }

    fn header(raw: &B3Header) -> Header {
        let (kind, seq, count) = match raw.next_seq {
            Some(next_seq) => (PacketKind::Heartbeat, next_seq, 0),
            None => (PacketKind::Data, raw.seq, 1),
        };
        let session = Session(raw.sequence_version.into());
        Header { channel: raw.channel.into(), session, seq: seq.into(), count, kind, sent_ns: raw.sent_ns }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        let [len, len_high, encoding, encoding_high] = *blocks.first_chunk::<FRAME_LEN>()?;
        let len = usize::from(u16::from_le_bytes([len, len_high]));
        if len < BLOCK_LEN_MIN || u16::from_le_bytes([encoding, encoding_high]) != ENCODING {
            return None;
        }
        let (block, rest) = blocks.split_at_checked(len)?;
        Some((&block[FRAME_LEN..], rest))
    }

    fn emit_raw(raw: &B3Header, _count: u32, _body_len: usize, out: &mut [u8]) {
        let wire = Wire {
            channel: raw.channel,
            reserved: 0,
            sequence_version: raw.sequence_version.into(),
            seq: raw.seq.into(),
            sent_ns: raw.sent_ns.into(),
        };
        out[..Self::HEADER_LEN].copy_from_slice(wire.as_bytes());
    }

    fn emit_prefix(len: usize, out: &mut [u8]) {
        out[..2].copy_from_slice(&((len + FRAME_LEN) as u16).to_le_bytes());
        out[2..].copy_from_slice(&ENCODING.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::PacketWriter;
    use crate::sequence::{Gap, Policy, Sequence};

    const HEADER: B3Header = B3Header { channel: 72, sequence_version: 3, seq: 9, sent_ns: 5, next_seq: None };

    /// A packet with messages that are a header and a block of bytes each.
    fn packet(messages: &[&[u8]]) -> Vec<u8> {
        packet_of(HEADER, messages)
    }

    fn packet_of(header: B3Header, messages: &[&[u8]]) -> Vec<u8> {
        let mut room = [0; 128];
        let mut writer = PacketWriter::<B3Packet>::new(header, &mut room).unwrap();
        messages.iter().for_each(|message| writer.push(message).unwrap());
        writer.finish().to_vec()
    }

    /// `Sequence`, written by hand: the next number.
    fn silence(next: u8) -> [u8; 12] {
        [4, 0, 2, 0, 2, 0, 16, 0, next, 0, 0, 0]
    }

    #[test]
    fn packet_has_its_channel_its_version_as_session_and_one_number_for_all_messages() {
        let bytes = packet(&[b"header..a", b"header..bc"]);
        assert_eq!(bytes[..20], [72, 0, 3, 0, 9, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 13, 0, 0x50, 0xeb]);
        let packet = B3Packet::parse(&bytes).unwrap();
        let header = packet.header;
        assert_eq!((header.channel, header.session, header.seq, header.count), (72, Session(3), 9, 1));
        assert!(packet.numbered(0).eq([(9, &b"header..a"[..]), (9, b"header..bc")]));
    }

    #[test]
    fn packet_that_names_the_next_number_alone_is_a_heartbeat_of_it_whatever_its_own_number_is() {
        let header = |messages: &[&[u8]]| B3Packet::parse(&packet(messages)).unwrap().header;
        for next in [10, 9, 1] {
            let header = header(&[&silence(next)]);
            assert_eq!((header.kind, header.seq, header.count), (PacketKind::Heartbeat, next.into(), 0));
        }
        assert_eq!(header(&[&silence(1), b"header..a"]).kind, PacketKind::Data, "it has more to say");
    }

    #[test]
    fn heartbeat_that_repeats_the_number_of_a_lost_packet_shows_the_loss() {
        let mut sequence = Sequence::new(Policy::default());
        let mut gap_of = |seq, message: &[u8]| {
            let bytes = packet_of(B3Header { seq, ..HEADER }, &[message]);
            sequence.offer(&B3Packet::parse(&bytes).unwrap().header).gap
        };
        assert_eq!(gap_of(1, b"header..a"), None);
        assert_eq!(gap_of(1, &silence(2)), None);
        assert_eq!(gap_of(2, &silence(3)), Some(Gap { from: 2, to: 2 }));
        assert_eq!(gap_of(2, &silence(3)), None);
    }

    #[test]
    fn packet_without_a_message_of_another_encoding_or_cut_anywhere_is_refused() {
        let bytes = packet(&[b"header..a", b"header..bc"]);
        let name = |bytes: &[u8]| B3Packet::parse(bytes).map(|_| ()).map_err(FramingError::name);
        assert_eq!(name(&bytes[..15]), Err("header_short"));
        // Cut between two messages it is a shorter packet.
        assert!((16..bytes.len()).filter(|&len| len != 29).all(|len| name(&bytes[..len]) == Err("message_overrun")));
        let mut other = bytes.clone();
        other[18] = 0x51;
        assert_eq!(name(&other), Err("message_overrun"));
        let mut short = bytes;
        short[16] = 11;
        assert_eq!(name(&short), Err("message_overrun"));
    }
}
