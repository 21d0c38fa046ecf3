//! For arbitrary bytes, from packet to book nothing panics and every message is counted.
#![allow(clippy::unwrap_used, reason = "a test may unwrap: a panic is the report")]

use market::b3_umdf::B3Umdf;
use market::eobi::Eobi;
use market::framing::b3_umdf::{B3Header, B3Packet};
use market::framing::cboe_unit::CboeUnit;
use market::framing::eobi::{EobiBody, EobiHeader, EobiPacket};
use market::framing::iex_tp::IexTp;
use market::framing::memx_udp::{MemxHeader, MemxUdp};
use market::framing::mold_udp64::MoldUdp64;
use market::framing::pillar::{PillarHeader, PillarPacket};
use market::framing::{Framing, PacketWriter, cboe_unit, iex_tp, mold_udp64};
use market::iex::deep10::Deep10;
use market::iex::tops16::Tops16;
use market::itch50::Itch50;
use market::memx::MemoirDepth;
use market::pillar::Pillar;
use market::pitch::Pitch;
use market::{
    Action, Books, Capacity, Decoder, LevelBooks, MessageCounts, NumberedBooks, OfChannel, OrderBooks, Policy, Quotes,
    Sequence,
};
use proptest::prelude::*;

/// Types and lengths of the feeds, so that random bodies reach the decoders.
fn known(feed: &str) -> &'static [(u8, usize)] {
    match feed {
        "itch50" => market::itch50::Message::LENGTHS,
        "tops16" => market::iex::tops16::Message::LENGTHS,
        "deep10" => market::iex::deep10::Message::LENGTHS,
        "pillar" => market::pillar::LENGTHS,
        "memoir_depth" => MEMOIR_DEPTH,
        "b3_umdf" => B3_UMDF,
        "eobi" => EOBI,
        _ => market::pitch::Message::LENGTHS,
    }
}

/// Templates of MEMOIR Depth and the lengths of their blocks and headers.
const MEMOIR_DEPTH: &[(u8, usize)] = &[
    (1, 42),
    (2, 17),
    (3, 18),
    (5, 15),
    (10, 37),
    (11, 24),
    (12, 28),
    (13, 44),
    (14, 36),
    (15, 36),
    (16, 48),
    (18, 16),
    (100, 22),
];

/// Types of T7's EOBI and the lengths of their messages.
const EOBI: &[(u8, usize)] = &[
    (0x10, 56),
    (0x11, 88),
    (0x12, 64),
    (0x13, 24),
    (0x14, 56),
    (0x15, 56),
    (0x16, 72),
    (0x21, 56),
    (0x22, 104),
    (0x32, 32),
    (0x40, 80),
    (0x60, 24),
    (0x61, 64),
    (0x62, 40),
];

/// Templates of B3's UMDF that books are built from, and the lengths of their blocks and headers.
const B3_UMDF: &[(u8, usize)] = &[
    (3, 44),
    (9, 28),
    (11, 20),
    (12, 240),
    (15, 52),
    (30, 42),
    (50, 80),
    (51, 60),
    (52, 36),
    (53, 64),
    (57, 56),
    (71, 61),
];

/// A message with a known type and length three times out of four; `type_at` is where its type
/// stands.
fn message((choice, truth, mut body): (usize, u8, Vec<u8>), feed: &str, type_at: usize) -> Vec<u8> {
    let (kind, len) = known(feed)[choice % known(feed).len()];
    if truth > 0 {
        body.resize(len, 0x30);
    }
    if let Some(byte) = body.get_mut(type_at)
        && truth != 1
    {
        *byte = kind;
    }
    // A PITCH message carries its own length, and framing refuses one below two bytes.
    if type_at == 1 {
        body.resize(body.len().max(2), 0);
        body[0] = body.len() as u8;
    }
    // One of Pillar too, in two bytes, and its type has two.
    if type_at == 2 {
        body.resize(body.len().max(4), 0);
        (body[0], body[1], body[3]) = (body.len() as u8, 0, body[3] & 1);
    }
    body
}

/// A message's header of MEMOIR Depth: its template is the message's first byte, and the block is
/// what follows. A message that is shorter stays as it is.
fn sbe_head(message: &[u8]) -> Vec<u8> {
    match message.len().checked_sub(6) {
        Some(block) => vec![0, block as u8, message[0], 2, 1, 3],
        None => message.to_vec(),
    }
}

/// The same of B3's UMDF; the block of orders of a snapshot has eight bytes, and its group follows.
fn b3_head(message: &[u8]) -> Vec<u8> {
    let Some(block) = message.len().checked_sub(8) else { return message.to_vec() };
    let block = if message[0] == 71 { block.min(8) } else { block };
    vec![block as u8, 0, message[0], 0, 2, 0, 16, 0]
}

fn any_messages() -> impl Strategy<Value = Vec<(usize, u8, Vec<u8>)>> {
    // Small values make order references and symbols repeat.
    let body = proptest::collection::vec(prop_oneof![3 => 0_u8..3, 1 => any::<u8>()], 0..82);
    proptest::collection::vec((any::<usize>(), 0_u8..4, body), 0..60)
}

/// Every message becomes events or a count; where the sequence numbers packets there is one.
fn check<F: Framing, C: Decoder + Default>(
    raw: F::Raw,
    messages: &[Vec<u8>],
    mut books: impl Books,
) -> Result<(), TestCaseError> {
    let mut out = vec![0; 1 << 14];
    let mut writer = PacketWriter::<F>::new(raw, &mut out).unwrap();
    for message in messages {
        writer.push(message).unwrap();
    }
    let packet = F::parse(writer.finish()).unwrap();
    let mut sequence = Sequence::new(Policy::default());
    let mut counts = MessageCounts::new();
    let mut codec = C::default();
    if let Action::Deliver { skip } = sequence.offer(&packet.header).action {
        for message in packet.messages().skip(skip as usize) {
            let mut changes = Vec::new();
            codec.decode_all(message, &mut counts, &mut |event| changes.extend(books.apply(event)));
            for change in changes {
                prop_assert!((change.book.0 as usize) < books.len());
                books.top(change.book);
            }
        }
    }
    prop_assert_eq!(counts.total(), messages.len() as u64 + u64::from(F::HEADER_IS_MESSAGE));
    prop_assert_eq!(sequence.counts().delivered, if F::NUMBERS_PACKETS { 1 } else { messages.len() as u64 });
    Ok(())
}

proptest! {
    #[test]
    fn every_message_becomes_an_event_or_a_count(messages in any_messages()) {
        let of = |feed, type_at| -> Vec<_> { messages.iter().cloned().map(|m| message(m, feed, type_at)).collect() };
        let capacity = Capacity { books: 4, orders: 8, levels: 8 };

        let mold = mold_udp64::MoldHeader::new(*b"0123456789", 1);
        check::<MoldUdp64, Itch50>(mold, &of("itch50", 0), OrderBooks::new(capacity))?;
        let iex = iex_tp::IexHeader { protocol: 0, channel: 1, session: 1, count: 0, offset: 0, seq: 1, sent_ns: 9 };
        check::<IexTp, Tops16>(iex, &of("tops16", 0), Quotes::new(4))?;
        check::<IexTp, Deep10>(iex, &of("deep10", 0), LevelBooks::new(4, 8))?;
        let unit = cboe_unit::UnitHeader { unit: 1, count: 0, seq: 1 };
        check::<CboeUnit, Pitch>(unit, &of("pitch", 1), OrderBooks::new(capacity))?;
        let xdp = PillarHeader { delivery_flag: PillarHeader::ORIGINAL, count: 0, seq: 1, sent_ns: 9 };
        check::<PillarPacket, Pillar>(xdp, &of("pillar", 2), OrderBooks::new(capacity))?;
        let memx = MemxHeader { kind: MemxHeader::SEQUENCED, session: 1, seq: 1, count: 0 };
        let with_head = |mut message: Vec<u8>| {
            message.splice(0..message.len().min(6), sbe_head(&message));
            message
        };
        let memoir = messages.iter().cloned().map(|m| with_head(message(m, "memoir_depth", 0))).collect::<Vec<_>>();
        check::<MemxUdp, MemoirDepth>(memx, &memoir, OrderBooks::new(capacity))?;
        let b3 = B3Header { channel: 1, sequence_version: 1, seq: 1, sent_ns: 9, next_seq: None };
        let with_head = |mut message: Vec<u8>| {
            message.resize(message.len().max(8), 0);
            message.splice(0..8, b3_head(&message));
            message
        };
        let mut umdf = messages.iter().cloned().map(|m| with_head(message(m, "b3_umdf", 0))).collect::<Vec<_>>();
        // A packet has a message at least.
        umdf.push(vec![0; 8]);
        check::<B3Packet, B3Umdf>(b3, &umdf, <NumberedBooks>::new(capacity))?;
        let eobi = EobiHeader {
            packet: 1,
            product: 1,
            partition: 1,
            is_complete: true,
            is_reset: false,
            sent_ns: 9,
            body: EobiBody::default(),
        };
        let with_head = |(idx, mut message): (u32, Vec<u8>)| {
            message.resize(message.len().max(8), 0);
            let template = market::eobi::template(message[0]).to_le_bytes();
            message.splice(0..8, [&(message.len() as u16).to_le_bytes(), &template[..], &(idx + 1).to_le_bytes()].concat());
            message
        };
        let mut numbered = messages.iter().cloned().map(|m| message(m, "eobi", 0)).collect::<Vec<_>>();
        numbered.push(vec![0; 8]);
        let numbered = (0..).zip(numbered).map(with_head).collect::<Vec<_>>();
        check::<EobiPacket, Eobi>(eobi, &numbered, NumberedBooks::<OfChannel>::new(capacity))?;
    }
}
