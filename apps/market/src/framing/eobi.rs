//! Packets of T7's Enhanced Order Book Interface (EOBI), little endian: messages one behind the
//! other, of which the first is the packet's header.
//!
//! Each message begins with `0:2 its length, itself included, 2:2 template, 4:4 number`. The header
//! is template 13000: `8:4 number of the packet (ApplSeqNum), 12:4 product (MarketSegmentID), 16:1
//! partition, 17:1 whether an event of the venue ends with the packet, 18:1 whether the numbers
//! begin anew, 24:8 send time`. A packet has messages of one product.
//!
//! The messages of a product are numbered without a hole, and packets those of a group, whatever
//! their products are. The product is the channel here, and the numbers are its messages', so a
//! lost packet is a hole of its product alone, and of the products of a group those that nobody
//! wants cost a look. A packet with a `Heartbeat` alone (13001) names the product's last number.
//!
//! The numbers begin anew with 1 when a partition's service restarts, and the first packets say so:
//! that of a product which has its number 1 is a [`PacketKind::SequenceReset`]. The books of the
//! venue stay as they are: who hears such a packet first does not know them.
//!
//! In the loop of snapshots messages are numbered from 0 over all products, so that the numbers of
//! one product have holes. There the packets' own numbers count: [`Framing::loop_header`].

use std::ops::RangeInclusive;

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Framing, FramingError, Header, PacketKind, Session};

/// The framing of EOBI.
#[derive(Clone, Copy, Debug)]
pub struct EobiPacket;

/// The header in T7's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EobiHeader {
    /// Number of the packet among those of its group (ApplSeqNum).
    pub packet: u32,
    /// The product (MarketSegmentID).
    pub product: i32,
    /// The partition that the product belongs to.
    pub partition: u8,
    /// The venue's event is over behind this packet (CompletionIndicator); of a loop, the product's
    /// part of it.
    pub is_complete: bool,
    /// The service has restarted, and this is one of its first packets (ApplSeqResetIndicator).
    pub is_reset: bool,
    /// Send time, ns since 1970.
    pub sent_ns: u64,
    /// What its messages say. Not of the header itself, and not written.
    pub body: EobiBody,
}

/// What follows the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EobiBody {
    /// The first message's number.
    pub seq: u32,
    /// Messages.
    pub count: u32,
    /// The last number of the product, where the packet is a heartbeat.
    pub last_seq: Option<u32>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    len: U16,
    template: U16,
    unused: U32,
    packet: U32,
    product: I32,
    partition: u8,
    completion: u8,
    reset: u8,
    dscp: u8,
    pad: [u8; 4],
    sent_ns: U64,
}

const HEADER_LEN: usize = size_of::<Wire>();
const HEADER: u16 = 13_000;
const HEARTBEAT: u16 = 13_001;
/// Summaries of products and instruments, and the orders of a snapshot.
const SNAPSHOT: RangeInclusive<u16> = 13_600..=13_602;
/// Length, template and number.
const MESSAGE_LEN_MIN: usize = 8;

/// The length of a message is its own part.
#[inline]
fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(u16::from_le_bytes(*blocks.first_chunk()?));
    if len < MESSAGE_LEN_MIN { None } else { blocks.split_at_checked(len) }
}

/// 0 where the message is shorter.
#[inline]
fn word(message: &[u8], at: usize) -> u32 {
    message.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

impl EobiBody {
    /// A packet without a message has no number. Those of the stream are numbered one by one: books
    /// judge each by its own number, and the channel by the first. No source says whether those of
    /// a snapshot are, whose own numbers count for nothing.
    #[inline]
    fn of(blocks: &[u8]) -> Result<Self, FramingError> {
        let (first, mut rest) = split(blocks).ok_or(FramingError::MessageOverrun { idx: 0 })?;
        let word = |at: usize| word(first, at);
        let is_of_snapshot = SNAPSHOT.contains(&u16::from_le_bytes([first[2], first[3]]));
        let mut count = 1;
        while let Some((message, behind)) = split(rest) {
            if !is_of_snapshot && self::word(message, 4).checked_sub(count) != Some(word(4)) {
                return Err(FramingError::MessageNumber { idx: count });
            }
            (rest, count) = (behind, count + 1);
        }
        let is_heartbeat = count == 1 && first[2..4] == HEARTBEAT.to_le_bytes();
        let last_seq = is_heartbeat.then(|| word(8));
        Ok(Self { seq: word(4), count, last_seq })
    }
}

impl Framing for EobiPacket {
    type Raw = EobiHeader;

    const NAME: &'static str = "EOBI";
    const HEADER_LEN: usize = HEADER_LEN;
    const PREFIX_LEN: usize = 0;
    const COUNT_MAX: u32 = 0xffff;
    const MESSAGE_LEN_MAX: usize = 0xffff;
    const HEADER_IS_MESSAGE: bool = true;

    fn parse_raw(packet: &[u8]) -> Result<(EobiHeader, &[u8]), FramingError> {
        let Ok((wire, blocks)) = Wire::ref_from_prefix(packet) else {
            return Err(FramingError::HeaderShort { len: packet.len() });
        };
        if (wire.template.get(), usize::from(wire.len.get())) != (HEADER, HEADER_LEN) {
            return Err(FramingError::MessageOverrun { idx: 0 });
        }
        let body = EobiBody::of(blocks)?;
        let header = EobiHeader {
            packet: wire.packet.get(),
            product: wire.product.get(),
            partition: wire.partition,
            is_complete: wire.completion == 1,
            is_reset: wire.reset == 1,
            sent_ns: wire.sent_ns.get(),
            body,
        };
        Ok((header, blocks))
    }

    #[inline]
    fn header(raw: &EobiHeader) -> Header {
        let EobiBody { seq, count, last_seq } = raw.body;
        let (kind, seq, count) = match last_seq {
            Some(last_seq) => (PacketKind::Heartbeat, u64::from(last_seq) + 1, 0),
            None if raw.is_reset && seq == 1 => (PacketKind::SequenceReset, 1, count),
            None => (PacketKind::Data, seq.into(), count),
        };
        Header { channel: raw.product as u32, session: Session::default(), seq, count, kind, sent_ns: raw.sent_ns }
    }

    fn loop_header(raw: &EobiHeader) -> Header {
        Header { seq: raw.packet.into(), count: 1, kind: PacketKind::Data, ..Self::header(raw) }
    }

    #[inline]
    fn split(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
        split(blocks)
    }

    fn emit_raw(raw: &EobiHeader, _count: u32, _body_len: usize, out: &mut [u8]) {
        let wire = Wire {
            len: (HEADER_LEN as u16).into(),
            template: HEADER.into(),
            unused: U32::new(u32::MAX),
            packet: raw.packet.into(),
            product: raw.product.into(),
            partition: raw.partition,
            completion: raw.is_complete.into(),
            reset: raw.is_reset.into(),
            dscp: u8::MAX,
            pad: [0; 4],
            sent_ns: raw.sent_ns.into(),
        };
        out[..HEADER_LEN].copy_from_slice(wire.as_bytes());
    }

    fn emit_prefix(_len: usize, _out: &mut [u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::PacketWriter;

    const HEADER_OF: EobiHeader = EobiHeader {
        packet: 500,
        product: 688,
        partition: 4,
        is_complete: true,
        is_reset: false,
        sent_ns: 5,
        body: EobiBody { seq: 0, count: 0, last_seq: None },
    };

    /// A message that is its head alone.
    fn message(template: u16, seq: u32) -> [u8; 8] {
        let mut message = [8, 0, 0, 0, 0, 0, 0, 0];
        message[2..4].copy_from_slice(&template.to_le_bytes());
        message[4..].copy_from_slice(&seq.to_le_bytes());
        message
    }

    /// Written by hand: the last number is 9.
    const SILENCE: [u8; 16] = [16, 0, 0xc9, 0x32, 0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0, 0, 0, 0, 0];

    fn packet(header: EobiHeader, messages: &[&[u8]]) -> Vec<u8> {
        let mut room = [0; 128];
        let mut writer = PacketWriter::<EobiPacket>::new(header, &mut room).unwrap();
        messages.iter().for_each(|message| writer.push(message).unwrap());
        writer.finish().to_vec()
    }

    #[test]
    fn packet_has_its_product_as_channel_and_its_messages_numbers_and_its_header_comes_last() {
        let messages = [message(13_100, 9), message(13_102, 10)];
        let bytes = packet(HEADER_OF, &[&messages[0], &messages[1]]);
        let expected = [32, 0, 0xc8, 0x32, 255, 255, 255, 255, 0xf4, 1, 0, 0, 0xb0, 2, 0, 0, 4, 1, 0, 255, 0, 0, 0, 0];
        assert_eq!(bytes[..24], expected);
        let packet = EobiPacket::parse(&bytes).unwrap();
        let header = packet.header;
        assert_eq!((header.channel, header.seq, header.count, header.sent_ns), (688, 9, 2, 5));
        assert!(packet.numbered(0).eq([(9, &messages[0][..]), (10, &messages[1]), (10, &bytes[..32])]));
        assert!(packet.numbered(1).eq([(10, &messages[1][..]), (10, &bytes[..32])]));
        assert_eq!(EobiPacket::loop_header(&packet.raw).seq, 500, "in loops the packets are numbered");
    }

    #[test]
    fn heartbeat_names_the_products_last_number() {
        let bytes = packet(HEADER_OF, &[&SILENCE]);
        let header = EobiPacket::parse(&bytes).unwrap().header;
        assert_eq!((header.kind, header.seq, header.count), (PacketKind::Heartbeat, 10, 0));
    }

    #[test]
    fn first_number_of_a_restarted_service_is_a_reset_and_those_behind_it_are_not() {
        let kind = |is_reset, seq| {
            let bytes = packet(EobiHeader { is_reset, ..HEADER_OF }, &[&message(13_100, seq)]);
            EobiPacket::parse(&bytes).unwrap().header.kind
        };
        assert_eq!((kind(true, 1), kind(true, 2)), (PacketKind::SequenceReset, PacketKind::Data));
        assert_eq!(kind(false, 1), PacketKind::Data);
    }

    #[test]
    fn packet_whose_messages_are_not_numbered_one_by_one_is_refused() {
        for (first, second) in [(9, u32::MAX - 1), (9, 9), (9, 8), (9, 11), (u32::MAX, 0)] {
            let bytes = packet(HEADER_OF, &[&message(13_100, first), &message(13_102, second)]);
            let refused = EobiPacket::parse(&bytes).map(|_| ()).map_err(FramingError::name);
            assert_eq!(refused, Err("message_number"), "{second} behind {first}");
        }
    }

    #[test]
    fn packet_without_a_message_of_another_template_or_cut_anywhere_is_refused() {
        let bytes = packet(HEADER_OF, &[&message(13_100, 9), &message(13_102, 10)]);
        let name = |bytes: &[u8]| EobiPacket::parse(bytes).map(|_| ()).map_err(FramingError::name);
        for len in (0..bytes.len()).filter(|&len| len != 40) {
            let expected = if len < 32 { "header_short" } else { "message_overrun" };
            assert_eq!(name(&bytes[..len]), Err(expected), "cut at {len}");
        }
        for (at, byte) in [(0, 40), (2, 0xc9), (32, 7)] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert_eq!(name(&other), Err("message_overrun"), "{byte} at {at}");
        }
    }
}
