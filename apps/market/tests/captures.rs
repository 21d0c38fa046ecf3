//! Real captures against the counts of independent decoders (docs/captures.md).

use std::fs;
use std::io::Read;

use market::event::Event;
use market::framing::Framing;
use market::framing::cboe_unit::CboeUnit;
use market::framing::iex_tp::IexTp;
use market::framing::itch_file::{FileEnd, FileMessages};
use market::iex::tops16::Tops16;
use market::itch50::Itch50;
use market::pitch::Pitch;
use market::{Action, Books, Channels, Codec, Gap, MessageCounts, OrderBooks, Quotes};
use market::{ChannelKey, Policy, SequenceCounts};

/// The bytes of a capture, decompressed; `None`, with a printed reason, where it is absent.
fn capture(test: &str, name: &str) -> Option<Vec<u8>> {
    let file = fs::read(wirepath_captures::find(test, name)?).expect("the capture can be read");
    if !name.ends_with(".gz") {
        return Some(file);
    }
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&file[..]).read_to_end(&mut bytes).expect("the capture is whole");
    Some(bytes)
}

fn u16_be(bytes: &[u8], at: usize) -> usize {
    u16::from_be_bytes([bytes[at], bytes[at + 1]]).into()
}

fn u32_le(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

/// Last byte of the destination group and UDP payload of each frame; all frames are Ethernet, IPv4,
/// UDP.
fn datagram(frame: &[u8]) -> (u8, &[u8]) {
    let ip = &frame[14..];
    let udp = &ip[usize::from(ip[0] & 0xf) * 4..u16_be(ip, 2)];
    (ip[19], &udp[8..u16_be(udp, 4)])
}

fn pcap_frames(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = &file[24..];
    std::iter::from_fn(move || {
        let (frame, behind) = rest.get(16..)?.split_at_checked(u32_le(rest, 8))?;
        rest = behind;
        Some(frame)
    })
}

/// Frames of the enhanced packet blocks of a little-endian pcapng; a block that is cut short ends
/// the walk.
fn pcapng_frames(file: &[u8]) -> Vec<&[u8]> {
    let (mut frames, mut rest) = (Vec::new(), file);
    while rest.len() >= 12 && u32_le(rest, 4) <= rest.len() {
        let (block, behind) = rest.split_at(u32_le(rest, 4));
        if u32_le(block, 0) == 6 {
            frames.push(&block[28..28 + u32_le(block, 20)]);
        }
        rest = behind;
    }
    frames
}

/// The work of a feed handler, with everything counted.
struct Handler<C, B> {
    codec: C,
    channels: Channels,
    counts: MessageCounts,
    books: B,
    gaps: Vec<Gap>,
}

impl<C: Codec, B: Books> Handler<C, B> {
    fn new(codec: C, books: B) -> Self {
        let channels = Channels::new(Policy::default(), 8);
        Self { codec, channels, counts: MessageCounts::new(), books, gaps: Vec::new() }
    }

    fn hear<F: Framing>(&mut self, group: u8, payload: &[u8]) {
        let packet = F::parse(payload).expect("captures hold whole packets");
        let key = ChannelKey::of(group.into(), &packet.header);
        let verdict = self.channels.get(key).expect("few channels").offer(&packet.header);
        self.gaps.extend(verdict.gap);
        let Action::Deliver { skip } = verdict.action else { return };
        for message in packet.messages().skip(skip as usize) {
            if let Some(event) = self.codec.decode_counted(message, &mut self.counts) {
                self.books.apply(&event);
            }
        }
    }

    fn sequence(&self, group: u8) -> SequenceCounts {
        let (_, sequence) = self.channels.iter().find(|(key, _)| key.group == u32::from(group)).expect("was heard");
        *sequence.counts()
    }

    fn check_types(&self, expected: &[(u8, u64)]) {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(self.counts.iter().collect::<Vec<_>>(), expected);
        assert_eq!(self.counts.total(), self.counts.decoded(), "every message became an event");
    }
}

fn small() -> market::Capacity {
    market::Capacity { books: 16, orders: 8192, levels: 8192 }
}

#[test]
fn itch_file_has_its_messages_by_type_and_its_unknown_orders() {
    let Some(file) = capture("itch_file", "itch50_synthetic_ritch.bin.gz") else { return };
    let mut handler = Handler::new(Itch50, OrderBooks::new(small()));
    let mut messages = FileMessages::new(&file);
    for message in messages.by_ref() {
        let event = handler.codec.decode_counted(message, &mut handler.counts).unwrap();
        handler.books.apply(&event);
    }
    assert_eq!(messages.end(), FileEnd::Clean);
    handler.check_types(&[
        (b'A', 4997),
        (b'F', 3),
        (b'E', 198),
        (b'X', 45),
        (b'D', 1745),
        (b'U', 12),
        (b'P', 5000),
        (b'S', 6),
        (b'R', 3),
        (b'H', 3),
    ]);
    assert_eq!(handler.counts.total(), 12_012);
    let counts = handler.books.counts();
    assert_eq!(counts.unknown_orders, 117, "{counts:?}");
    assert_eq!((handler.books.len(), counts.orders_full, counts.levels_full, counts.books_full), (3, 0, 0, 0));
}

#[test]
fn iex_capture_has_its_counts_and_no_gap() {
    let Some(file) = capture("iex_capture", "iex_tops16_20170710_uat.pcap.gz") else { return };
    let mut handler = Handler::new(Tops16, Quotes::new(8192));
    let mut packets = 0;
    for frame in pcap_frames(&file) {
        packets += 1;
        let (group, payload) = datagram(frame);
        handler.hear::<IexTp>(group, payload);
    }
    assert_eq!(packets, 13_022);
    handler.check_types(&[
        (b'P', 7802),
        (b'O', 7801),
        (b'H', 7803),
        (b'Q', 27_217),
        (b'T', 6390),
        (b'A', 642),
        (b'D', 10),
        (b'S', 6),
        (b'B', 3),
    ]);
    let counts = handler.sequence(199);
    assert_eq!((counts.delivered, counts.heartbeats, counts.packets), (57_674, 237, 12_785));
    assert_eq!((counts.gaps, counts.duplicates, counts.late, counts.restarts), (0, 0, 0, 0));
    assert_eq!(handler.books.counts().applied, 27_217);
}

#[test]
fn pitch_capture_has_one_gap() {
    let Some(file) = capture("pitch_capture", "cboe_pitch_realtime_20140901.pcap") else { return };
    let mut handler = Handler::new(Pitch::default(), OrderBooks::new(small()));
    for frame in pcap_frames(&file) {
        let (group, payload) = datagram(frame);
        handler.hear::<CboeUnit>(group, payload);
    }
    assert_eq!(handler.gaps, [Gap { from: 1, to: 2 }]);
    handler.check_types(&[
        (0x20, 19),
        (0x21, 4),
        (0x22, 3),
        (0x23, 3),
        (0x26, 2),
        (0x27, 1),
        (0x28, 1),
        (0x29, 4),
        (0x2a, 2),
        (0x2b, 1),
    ]);
    let (real_time, gap_response) = (handler.sequence(190), handler.sequence(191));
    assert_eq!((real_time.delivered, real_time.packets, real_time.heartbeats), (40, 19, 356));
    assert_eq!((real_time.gaps, real_time.missing, real_time.restarts), (1, 2, 0));
    assert_eq!((gap_response.heartbeats, gap_response.gaps, gap_response.packets), (364, 0, 0));
}

#[test]
fn truncated_iex_production_capture_gives_its_two_packets() {
    let Some(file) = capture("truncated_iex", "iex_tops_prod_20180103_truncated.pcapng") else { return };
    let frames = pcapng_frames(&file);
    assert_eq!(frames.len(), 2);
    let mut codec = Tops16;
    let mut counts = MessageCounts::new();
    let mut events = Vec::new();
    for frame in frames {
        let packet = IexTp::parse(datagram(frame).1).unwrap();
        events.extend(packet.messages().filter_map(|message| codec.decode_counted(message, &mut counts)));
    }
    assert_eq!((events.len(), counts.total()), (53, 53));
    assert!(events.iter().all(|event| !matches!(event, Event::Clear(_))));
}
