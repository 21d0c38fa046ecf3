//! CME's, B3's, T7's and MEMX's messages by both readings of their schemas, and what servers of
//! recovery send: codecs, and images of books beside a model of ten lines.

use std::sync::LazyLock;

use market::b3_umdf::B3Umdf;
use market::eobi::Eobi;
use market::framing::b3_umdf::B3Packet;
use market::framing::eobi::EobiPacket;
use market::framing::iex_tp::GapRequest;
use market::framing::itch_file::FileMessages;
use market::framing::mdp3::Mdp3Packet;
use market::framing::memx_udp::{MemxHeader, MemxUdp};
use market::framing::{Framing, PacketWriter};
use market::image::{ImagePolicy, ImageRecovery, ImageRequest, ImageVerdict, LiveMessage};
use market::itch50::glimpse::{emit_end, parse_end};
use market::mdp3::Mdp3;
use market::memx::MemoirDepth;
use market::pitch::servers::{ClientMessage, ServerMessage};
use market::sbe::schema::Schema;
use market::sbe::{SbeError, Value, Visitor};
use market::{
    BookIdx, Books, Capacity, Decoder, DepthBooks, Gap, MessageCounts, MessageError, NumberedBooks, OfChannel,
    OrderBooks,
};

use crate::fuzz::Input;

static MDP3: LazyLock<Schema> = LazyLock::new(|| {
    Schema::parse(include_str!("../../../../apps/market/schemas/cme-mdp3.xml")).expect("our own schema")
});
static B3_UMDF: LazyLock<Schema> = LazyLock::new(|| {
    Schema::parse(include_str!("../../../../apps/market/schemas/b3-umdf.xml")).expect("our own schema")
});
static EOBI: LazyLock<Schema> = LazyLock::new(|| {
    Schema::parse(include_str!("../../../../apps/market/schemas/eurex-eobi.xml")).expect("our own schema")
});
static MEMOIR_DEPTH: LazyLock<Schema> = LazyLock::new(|| {
    Schema::parse(include_str!("../../../../apps/market/schemas/memx-memoir-depth.xml")).expect("our own schema")
});

/// The generated reading of a message.
type Walk = fn(&[u8], &mut dyn Visitor) -> Result<(), SbeError>;

/// Books of at most so many instruments.
const BOOKS_MAX: usize = 16;
const CAPACITY: Capacity = Capacity { books: BOOKS_MAX, orders: 64, levels: 64 };

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

/// Messages of a feed: the schema and the generated code read the same, and books take any.
fn messages<C: Decoder + Default>(data: &[u8], schema: &Schema, walk: Walk, books: &mut impl Books) {
    let (mut codec, mut counts) = (C::default(), MessageCounts::new());
    let mut messages = 0;
    for message in FileMessages::new(data) {
        messages += 1;
        assert_eq!(told(|visitor| schema.walk(message, visitor)), told(|visitor| walk(message, visitor)));
        let mut events = 0;
        let before = counts.decoded();
        let outcome = codec.decode_each(message, &mut counts, &mut |event| {
            events += 1;
            books.apply(event);
        });
        match outcome {
            Ok(()) => assert_eq!(counts.decoded(), before + 1),
            Err(error) => {
                // What is done to an order may be unknown: then its book is made stale.
                let may_have_events = matches!(error, MessageError::Unknown { .. });
                assert!(
                    (events == 0 || may_have_events) && counts.decoded() == before,
                    "{error} after {events} events"
                );
            }
        }
        assert!(books.len() <= BOOKS_MAX);
    }
    assert!(counts.total() <= messages);
    for idx in 0..books.len() as u32 {
        books.top(BookIdx(idx));
    }
}

/// What was read of a packet can be written, and is the same.
fn packet<F: Framing>(data: &[u8]) {
    let Ok(packet) = F::parse(data) else { return };
    if data.len() > F::PACKET_LEN_MAX {
        return;
    }
    let mut out = vec![0; data.len()];
    let mut writer = PacketWriter::<F>::new(packet.raw, &mut out).expect("there was a header");
    let mut messages: Vec<_> = packet.messages().collect();
    if F::HEADER_IS_MESSAGE {
        messages.pop();
    }
    messages.into_iter().for_each(|message| writer.push(message).expect("what was read can be written"));
    assert_eq!(writer.finish(), data);
}

/// Messages of MDP 3.0.
pub(in crate::fuzz) fn mdp3(data: &[u8]) {
    messages::<Mdp3>(data, &MDP3, market::mdp3::layout::walk, &mut DepthBooks::new(BOOKS_MAX));
}

/// A packet of MDP 3.0.
pub(in crate::fuzz) fn mdp3_packet(data: &[u8]) {
    packet::<Mdp3Packet>(data);
}

/// Messages of B3's UMDF.
pub(in crate::fuzz) fn b3_umdf(data: &[u8]) {
    messages::<B3Umdf>(data, &B3_UMDF, market::b3_umdf::layout::walk, &mut <NumberedBooks>::new(CAPACITY));
}

/// A packet of B3's UMDF.
pub(in crate::fuzz) fn b3_packet(data: &[u8]) {
    let mut data = data.to_vec();
    // What is reserved is not kept.
    data.iter_mut().skip(1).take(1).for_each(|reserved| *reserved = 0);
    packet::<B3Packet>(&data);
}

/// Messages of T7's EOBI, live ones and those of a loop.
pub(in crate::fuzz) fn eobi(data: &[u8]) {
    let mut books = NumberedBooks::<OfChannel>::new(CAPACITY);
    messages::<Eobi>(data, &EOBI, market::eobi::layout::walk, &mut books);
}

/// A packet of T7's EOBI.
pub(in crate::fuzz) fn eobi_packet(data: &[u8]) {
    let mut data = data.to_vec();
    // Of the header's bytes that are not kept, what is written.
    for (at, byte) in (4..8).chain([19]).map(|at| (at, 0xff)).chain((20..24).map(|at| (at, 0))) {
        data.iter_mut().skip(at).take(1).for_each(|of| *of = byte);
    }
    data.iter_mut().skip(17).take(2).for_each(|flag| *flag = u8::from(*flag == 1));
    packet::<EobiPacket>(&data);
}

/// Messages of MEMX's MEMOIR Depth.
pub(in crate::fuzz) fn memoir_depth(data: &[u8]) {
    messages::<MemoirDepth>(data, &MEMOIR_DEPTH, market::memx::layout::walk, &mut OrderBooks::new(CAPACITY));
}

/// A packet of MEMX-UDP; one without messages is shorter than what the writer makes.
pub(in crate::fuzz) fn memx_packet(data: &[u8]) {
    // A longer header has bytes that are not kept.
    let has_usual_header = data.get(1) == Some(&(MemxHeader::LEN as u8));
    if has_usual_header && MemxUdp::parse(data).is_ok_and(|packet| packet.raw.kind == MemxHeader::SEQUENCED) {
        packet::<MemxUdp>(data);
    }
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

/// Each template's number with a block of zeros of a length that all have room in.
fn seeds(templates: &[u16], schema: u16, version: u16) -> Vec<Vec<u8>> {
    let message = |template: &u16| {
        let head = [240, *template, schema, version].map(u16::to_le_bytes).concat();
        let message = [&head[..], &[0; 280]].concat();
        [&(message.len() as u16).to_be_bytes()[..], &message].concat()
    };
    vec![templates.iter().map(message).collect::<Vec<_>>().concat()]
}

pub(in crate::fuzz) fn mdp3_seeds() -> Vec<Vec<u8>> {
    seeds(&[4, 12, 30, 37, 46, 47, 48, 52, 53, 54], 1, 12)
}

pub(in crate::fuzz) fn b3_umdf_seeds() -> Vec<Vec<u8>> {
    seeds(&[2, 3, 9, 11, 12, 15, 30, 50, 51, 52, 53, 55, 57, 71], 2, 16)
}

pub(in crate::fuzz) fn eobi_seeds() -> Vec<Vec<u8>> {
    let live = [13_000, 13_100, 13_101, 13_102, 13_103, 13_104, 13_105, 13_106, 13_200, 13_201, 13_202, 13_300];
    let others = [13_301, 13_302, 13_400, 13_500, 13_504, 13_600, 13_601, 13_602, 13_602];
    let message = |template: u16| {
        let message = [&[104, 0][..], &template.to_le_bytes(), &[1, 0, 0, 0], &[1; 96]].concat();
        [&(message.len() as u16).to_be_bytes()[..], &message].concat()
    };
    vec![live.into_iter().chain(others).flat_map(message).collect()]
}

pub(in crate::fuzz) fn eobi_packet_seeds() -> Vec<Vec<u8>> {
    let head = [&[32_u8, 0, 0xc8, 0x32, 0xff, 0xff, 0xff, 0xff][..], &[5, 0, 0, 0, 0xb0, 2, 0, 0, 4, 1, 0, 0xff]];
    let head = [&head.concat()[..], &[0; 4], &[7; 8]].concat();
    let order = [&[56_u8, 0, 0x2c, 0x33, 9, 0, 0, 0][..], &[1; 48]].concat();
    let heartbeat = [16_u8, 0, 0xc9, 0x32, 0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0, 0, 0, 0, 0];
    vec![[&head[..], &order, &order].concat(), [&head[..], &heartbeat].concat()]
}

pub(in crate::fuzz) fn memoir_depth_seeds() -> Vec<Vec<u8>> {
    let message = |template: u8| {
        let message = [&[0, 60, template, 2, 1, 3][..], &[1; 60]].concat();
        [&(message.len() as u16).to_be_bytes()[..], &message].concat()
    };
    vec![[1, 2, 3, 5, 10, 11, 12, 13, 14, 15, 16, 18, 100].into_iter().flat_map(message).collect()]
}

pub(in crate::fuzz) fn memx_packet_seeds() -> Vec<Vec<u8>> {
    let head = [&[2_u8, 18][..], &1_u64.to_be_bytes(), &5_u64.to_be_bytes(), &[0, 2]].concat();
    vec![[&head[..], &[0, 3, 1, 2, 3], &[0, 1, 9]].concat()]
}

pub(in crate::fuzz) fn b3_packet_seeds() -> Vec<Vec<u8>> {
    let sequence = [&[16_u8, 0, 0x50, 0xeb][..], &[4, 0, 2, 0, 2, 0, 16, 0], &[2, 0, 0, 0]].concat();
    vec![[&[72, 0, 1, 0, 1, 0, 0, 0][..], &[7; 8], &sequence, &sequence].concat()]
}

pub(in crate::fuzz) fn mdp3_packet_seeds() -> Vec<Vec<u8>> {
    let heartbeat = [&[10_u8, 0][..], &[0, 0, 12, 0, 1, 0, 12, 0]].concat();
    vec![[&[1, 0, 0, 0][..], &[7; 8], &heartbeat, &heartbeat].concat()]
}
