//! CME's messages by both readings of their schema, and what servers of recovery send: codecs, and
//! images of books beside a model of ten lines.

use std::sync::LazyLock;

use market::framing::iex_tp::GapRequest;
use market::framing::itch_file::FileMessages;
use market::framing::mdp3::Mdp3Packet;
use market::framing::{Framing, PacketWriter};
use market::image::{ImagePolicy, ImageRecovery, ImageRequest, ImageVerdict, LiveMessage};
use market::itch50::glimpse::{emit_end, parse_end};
use market::mdp3::Mdp3;
use market::mdp3::layout::walk;
use market::pitch::servers::{ClientMessage, ServerMessage};
use market::sbe::schema::Schema;
use market::sbe::{SbeError, Value, Visitor};
use market::{BookIdx, Books, Decoder, DepthBooks, Gap, HealingBooks, MessageCounts};

use crate::fuzz::Input;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    Schema::parse(include_str!("../../../../apps/market/schemas/cme-mdp3.xml")).expect("our own schema")
});

/// Books by position of at most so many instruments.
const BOOKS_MAX: usize = 16;

/// A message as it is shown.
#[derive(Debug, Default, PartialEq)]
struct Story(String);

impl Visitor for Story {
    fn message(&mut self, name: &str, template: u16, version: u16) {
        self.0 += &format!("{name} {template} {version}\n");
    }

    fn field(&mut self, name: &str, value: Value<'_>) {
        self.0 += &format!("{name} {value:?}\n");
    }

    fn group(&mut self, name: &str, count: usize) {
        self.0 += &format!("{name} [{count}\n");
    }

    fn entry(&mut self) {
        self.0 += ";\n";
    }

    fn end_group(&mut self) {
        self.0 += "]\n";
    }
}

fn told(show: impl FnOnce(&mut dyn Visitor) -> Result<(), SbeError>) -> Result<Story, SbeError> {
    let mut story = Story::default();
    show(&mut story).map(|()| story)
}

/// Messages of MDP 3.0: the schema and the generated code read the same, and books take any.
pub(in crate::fuzz) fn mdp3(data: &[u8]) {
    let (mut books, mut counts) = (DepthBooks::new(BOOKS_MAX), MessageCounts::new());
    let mut messages = 0;
    for message in FileMessages::new(data) {
        messages += 1;
        assert_eq!(told(|visitor| SCHEMA.walk(message, visitor)), told(|visitor| walk(message, visitor)));
        let mut events = 0;
        let before = counts.decoded();
        let outcome = Mdp3.decode_each(message, &mut counts, &mut |event| {
            events += 1;
            books.apply(event);
        });
        match outcome {
            Ok(()) => assert_eq!(counts.decoded(), before + 1),
            Err(error) => {
                assert!(events == 0 && counts.decoded() == before, "{error} after {events} events");
            }
        }
        assert!(books.len() <= BOOKS_MAX && books.stale_count() <= books.len());
    }
    assert!(counts.total() <= messages);
    for idx in 0..books.len() as u32 {
        books.top(BookIdx(idx));
    }
}

/// A packet of MDP 3.0.
pub(in crate::fuzz) fn mdp3_packet(data: &[u8]) {
    let Ok(packet) = Mdp3Packet::parse(data) else { return };
    if data.len() > Mdp3Packet::PACKET_LEN_MAX {
        return;
    }
    let mut out = vec![0; data.len()];
    let mut writer = PacketWriter::<Mdp3Packet>::new(packet.raw, &mut out).expect("there was a header");
    packet.messages().for_each(|message| writer.push(message).expect("what was read can be written"));
    assert_eq!(writer.finish(), data);
}

/// Requests and answers of Cboe's and IEX's servers, and the end of a snapshot of GLIMPSE.
pub(in crate::fuzz) fn servers(data: &[u8]) {
    if let Some(message) = ClientMessage::parse(data) {
        assert_eq!(ClientMessage::parse(&message.emit()), Some(message));
    }
    if let Some(message) = ServerMessage::parse(data) {
        assert_eq!(&message.emit()[..], data);
    }
    if let Ok(request) = GapRequest::parse(data) {
        assert_eq!(GapRequest::parse(&request.emit()), Ok(request));
    }
    if let Some(first_live) = parse_end(data) {
        assert_eq!(parse_end(&emit_end(first_live)), Some(first_live));
    }
}

/// A channel that loses messages, and a server whose images may be of any time: books that are said
/// to be whole have every message.
pub(in crate::fuzz) fn image(data: &[u8]) {
    let mut input = Input::new(data);
    let policy = ImagePolicy {
        queue_len_max: input.pick(&[0, 24, 64, 4_096]),
        messages_max: input.pick(&[0, 1, 8, 64]),
        interval_ns: 50,
        timeout_ns: 1_000,
        distance_max: 30,
    };
    let mut recovery = ImageRecovery::new(policy);
    let (mut next, mut now_ns, mut asked) = (1_u64, 0_u64, None::<ImageRequest>);
    let mut books: Vec<u64> = Vec::new();
    while !input.is_empty() {
        now_ns += u64::from(input.u8());
        let count = 1 + u64::from(input.below(6));
        match input.below(8) {
            0 => {
                recovery.gap(Gap { from: next, to: next + count - 1 });
                next += count;
            }
            1 => asked = recovery.poll(now_ns).or(asked),
            2 => {
                let first_live = (next + 4).saturating_sub(input.below(64).into()).max(1);
                let id = asked.map_or(count, |asked| asked.id);
                if recovery.offer(id, first_live, now_ns) == ImageVerdict::Take {
                    books = (1..first_live).collect();
                }
            }
            3 => {
                recovery.catch_up(count as usize, |seq, message| {
                    assert_eq!(message, seq.to_le_bytes());
                    books.push(seq);
                });
            }
            4 if input.below(8) == 0 => {
                recovery.restart();
                (next, books) = (1, Vec::new());
            }
            4 => recovery.failed(asked.map_or(0, |asked| asked.id), now_ns),
            _ => {
                for seq in next..next + count {
                    if recovery.live(seq, &seq.to_le_bytes()) == LiveMessage::Apply {
                        books.push(seq);
                    }
                }
                next += count;
            }
        }
        if !recovery.is_active() {
            assert!(books.iter().copied().eq(1..next), "whole, and not all that was sent: {books:?} of {next}");
        }
    }
}

pub(in crate::fuzz) fn server_seeds() -> Vec<Vec<u8>> {
    let request = GapRequest { protocol: 0x8004, channel: 1, session: 2, first: 5, last: 9 }.emit().to_vec();
    let gap = ClientMessage::GapRequest { unit: 1, first: 5, count: 4 }.emit().to_vec();
    let response = ServerMessage::GapResponse { unit: 1, first: 5, count: 4, status: b'A' }.emit().to_vec();
    vec![request, gap, response, emit_end(42).to_vec()]
}

pub(in crate::fuzz) fn mdp3_seeds() -> Vec<Vec<u8>> {
    // Each template's number with a block of zeros of a length that all have room in.
    let message = |template: u16| {
        let head = [200_u16, template, 1, 12].map(u16::to_le_bytes).concat();
        let message = [&head[..], &[0; 240]].concat();
        [&(message.len() as u16).to_be_bytes()[..], &message].concat()
    };
    vec![[4, 12, 30, 37, 46, 47, 48, 52, 53, 54].map(message).concat()]
}

pub(in crate::fuzz) fn mdp3_packet_seeds() -> Vec<Vec<u8>> {
    let heartbeat = [&[10_u8, 0][..], &[0, 0, 12, 0, 1, 0, 12, 0]].concat();
    vec![[&[1, 0, 0, 0][..], &[7; 8], &heartbeat, &heartbeat].concat()]
}
