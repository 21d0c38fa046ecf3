//! Exchange formats: packets are accepted or refused as a whole, a packet that is parsed and
//! written again is unchanged, and each message is one event or one named error. `books` compares
//! the effect of events on books with a simple model.

use market::event::Event;
use market::framing::cboe_unit::CboeUnit;
use market::framing::iex_tp::IexTp;
use market::framing::itch_file::{FileEnd, FileMessages, ItchFile, whole_blocks};
use market::framing::mold_udp64::{MoldUdp64, Request};
use market::framing::pillar::PillarPacket;
use market::framing::{Framing, FramingError, PacketKind, PacketWriter};
use market::iex::deep10::Deep10;
use market::iex::tops16::Tops16;
use market::iex::{deep10, tops16};
use market::itch50::Itch50;
use market::pillar::Pillar;
use market::pitch::Pitch;
use market::{Codec, MessageCounts, MessageError, itch50, pillar, pitch};

use super::books::{CheckedLevels, CheckedOrders, CheckedQuotes};

/// MoldUDP64.
pub(in crate::fuzz) fn mold_udp64(data: &[u8]) {
    framing::<MoldUdp64>(data, &[]);
}

/// IEX-TP; its second byte is reserved and written as zero.
pub(in crate::fuzz) fn iex_tp(data: &[u8]) {
    framing::<IexTp>(data, &[1]);
}

/// The Cboe sequenced unit header.
pub(in crate::fuzz) fn cboe_unit(data: &[u8]) {
    framing::<CboeUnit>(data, &[]);
}

/// NYSE's XDP: nanoseconds beyond a second are written as seconds.
pub(in crate::fuzz) fn pillar_packet(data: &[u8]) {
    let mut data = data.to_vec();
    // The last byte of the nanoseconds: below 2^24 ns there is no second.
    data.iter_mut().skip(15).take(1).for_each(|high| *high = 0);
    framing::<PillarPacket>(&data, &[]);
}

/// A file of length-prefixed messages, whole and in chunks.
pub(in crate::fuzz) fn itch_file(data: &[u8]) {
    framing::<ItchFile>(data, &[]);
    let mut messages = FileMessages::new(data);
    let count = messages.by_ref().count();
    let walked = data.len() - messages.rest().len();
    assert_eq!(messages.end() == FileEnd::Clean, walked == data.len());
    assert_eq!(whole_blocks(data), walked);

    // A reader that takes the file in pieces finds the same messages.
    let (mut buffer, mut in_pieces) = (Vec::new(), 0);
    for piece in data.chunks(5) {
        buffer.extend_from_slice(piece);
        let whole = whole_blocks(&buffer);
        in_pieces += ItchFile::parse(&buffer[..whole]).expect("whole blocks are a packet").header.count as usize;
        buffer.drain(..whole);
    }
    assert_eq!(in_pieces, count);
}

/// Parses and writes again; the bytes at `unkept` need not be kept.
fn framing<F: Framing<Raw: PartialEq>>(data: &[u8], unkept: &[usize]) {
    let packet = match F::parse(data) {
        Ok(packet) => packet,
        Err(error) => {
            assert_eq!(error.name(), FramingError::NAMES[error.idx()]);
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let bodies: usize = packet.messages().map(|message| message.len() + F::PREFIX_LEN).sum();
    assert_eq!(packet.messages().count(), packet.header.count as usize);
    assert_eq!(F::HEADER_LEN + bodies, data.len(), "the messages fill the packet");
    if data.len() > F::PACKET_LEN_MAX || packet.header.kind == PacketKind::EndOfSession {
        return;
    }
    let mut out = vec![0; data.len()];
    let mut writer = PacketWriter::<F>::new(packet.raw, &mut out).expect("there was a header");
    for message in packet.messages() {
        writer.push(message).expect("a packet that was read can be written");
    }
    let written = writer.finish();
    let mut expected = data.to_vec();
    for &idx in unkept {
        expected[idx] = written[idx];
    }
    assert_eq!(written, expected);
    let again = F::parse(written).expect("what was written can be read");
    assert!(again.raw == packet.raw && again.header == packet.header);
}

/// ITCH 5.0 and the order books.
pub(in crate::fuzz) fn itch50(data: &[u8]) {
    let mut books = CheckedOrders::new();
    codec(
        Itch50,
        data,
        |message| itch50::Message::parse(message).map(|view| view.as_bytes()),
        |event| {
            books.apply(event);
        },
    );
}

/// PITCH and the order books.
pub(in crate::fuzz) fn pitch(data: &[u8]) {
    let mut books = CheckedOrders::new();
    codec(
        Pitch::default(),
        data,
        |message| pitch::Message::parse(message).map(|view| view.as_bytes()),
        |event| {
            books.apply(event);
        },
    );
}

/// NYSE's Integrated Feed and the order books.
pub(in crate::fuzz) fn pillar(data: &[u8]) {
    let (mut pillar, mut counts) = (Pillar::default(), MessageCounts::new());
    let mut books = CheckedOrders::new();
    let mut messages = 0;
    for message in FileMessages::new(data) {
        messages += 1;
        if let Some(event) = pillar.decode_counted(message, &mut counts) {
            books.apply(&event);
        }
    }
    assert_eq!(counts.total(), messages);
}

/// TOPS 1.6 and the quotes.
pub(in crate::fuzz) fn tops16(data: &[u8]) {
    let mut quotes = CheckedQuotes::new();
    codec(
        Tops16,
        data,
        |message| tops16::Message::parse(message).map(|view| view.as_bytes()),
        |event| {
            quotes.apply(event);
        },
    );
}

/// DEEP 1.0 and the books of levels.
pub(in crate::fuzz) fn deep10(data: &[u8]) {
    let mut books = CheckedLevels::new();
    codec(
        Deep10,
        data,
        |message| deep10::Message::parse(message).map(|view| view.as_bytes()),
        |event| {
            books.apply(event);
        },
    );
}

/// Decodes `data` as a file of messages with two-byte lengths.
fn codec<C: Codec>(
    mut codec: C,
    data: &[u8],
    parse: impl Fn(&[u8]) -> Result<&[u8], MessageError>,
    mut apply: impl FnMut(&Event),
) {
    let mut counts = MessageCounts::new();
    let mut messages = 0;
    for message in FileMessages::new(data) {
        messages += 1;
        let event = codec.decode_counted(message, &mut counts);
        match parse(message) {
            // What a venue has appended to a message is left out.
            Ok(bytes) => assert!(message.starts_with(bytes)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert_eq!(event.is_some(), parse(message).is_ok());
        if let Some(event) = event {
            apply(&event);
        }
    }
    assert_eq!(counts.total(), messages);
}

/// A request to the server of MoldUDP64: it has exactly one length, and is written as it was read.
pub(in crate::fuzz) fn mold_request(data: &[u8]) {
    match Request::parse(data) {
        Ok(request) => assert_eq!(request.emit(), data),
        Err(_) => assert_ne!(data.len(), Request::LEN),
    }
}

/// A message of each type: the definition of the instrument first, which the others are read by.
pub(in crate::fuzz) fn pillar_seeds() -> Vec<Vec<u8>> {
    let message = |&(kind, len): &(u8, usize)| {
        let head = [&(len as u16).to_be_bytes()[..], &(len as u16).to_le_bytes(), &[kind, 0]].concat();
        [&head[..], &vec![0; len - 4]].concat()
    };
    let mut lengths = pillar::LENGTHS.to_vec();
    lengths.sort_by_key(|(kind, _)| *kind != pillar::SymbolIndexMapping::KIND);
    vec![lengths.iter().map(message).collect::<Vec<_>>().concat()]
}

pub(in crate::fuzz) fn pillar_packet_seeds() -> Vec<Vec<u8>> {
    let messages = [&[6_u8, 0, 3, 0, 1, 2][..], &[4, 0, 31, 0]].concat();
    let packet = |flag: u8, count: u8, messages: &[u8]| {
        let len = (16 + messages.len()) as u16;
        [&len.to_le_bytes()[..], &[flag, count], &[1, 0, 0, 0], &[7, 0, 0, 0, 9, 0, 0, 0], messages].concat()
    };
    vec![packet(11, 2, &messages), packet(1, 0, &[]), packet(12, 1, &messages[..6]), packet(17, 2, &messages)]
}
