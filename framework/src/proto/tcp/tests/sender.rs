//! One sender whose peer is the test: sent chunks are marked by hand, received segments are made
//! up. The test sets the time.

use super::*;
use crate::proto::slab::NIL;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::segment::Segment;
use crate::proto::tcp::state::connection::{Connection, InputFlags, Micros, Recovery, State};
use crate::proto::tcp::state::queue::{Chunk, LOST, RESENT, SACKED, SENT};
use crate::wire::tcp::{TcpFlags, Timestamps};

pub(super) const MSS: u32 = 1_000;
/// The first number of the data; near the end of the ring.
pub(super) const FIRST: Seq = Seq(u32::MAX - 5_000);

pub(super) struct Sender {
    pub(super) tcp: Tcp<Vec<u8>>,
    pub(super) slot: u32,
    pub(super) sent: SentSegments,
    pub(super) now: Instant,
}

impl Sender {
    pub(super) fn new(options: &ConnectionOptions) -> Self {
        let config = TcpConfig { connections_max: 1, chunks_max: 8192, ..TcpConfig::default() };
        let mut tcp = Tcp::new(config, HashSeed::new(1, 2)).unwrap();
        let now = Instant::ZERO + Duration::from_secs(10);
        let flow = Flow { local: CLIENT, remote: SERVER };
        let mut connection = Connection::new(flow, State::SynSent, options, ConsumerId(1), now);
        connection.state = State::Established;
        (connection.rare_snd.iss, connection.snd.una, connection.snd.nxt) = (FIRST - 1, FIRST, FIRST);
        (connection.snd.wnd, connection.rare_snd.wnd_max) = (65_535 << 8, 65_535 << 8);
        connection.snd.wscale = 8;
        connection.snd.wl2 = FIRST;
        connection.snd.mss = MSS as u16;
        if options.sack {
            connection.set(InputFlags::SACK);
        }
        if options.timestamps {
            connection.set(InputFlags::TIMESTAMPS);
        }
        if options.ecn {
            connection.set(InputFlags::ECN);
        }
        let slot = tcp.insert(connection).unwrap();
        let mut sender = Self { tcp, slot, sent: SentSegments::default(), now };
        sender.context(|cx| cx.begin_congestion());
        sender
    }

    /// With SACK and timestamps, and a measured round trip of 10 ms.
    pub(super) fn with_sack() -> Self {
        Self::measured(&ConnectionOptions { congestion: Congestion::Reno, ..ConnectionOptions::default() })
    }

    pub(super) fn without_sack() -> Self {
        let options = ConnectionOptions {
            congestion: Congestion::Reno,
            sack: false,
            timestamps: false,
            ..ConnectionOptions::default()
        };
        Self::measured(&options)
    }

    pub(super) fn measured(options: &ConnectionOptions) -> Self {
        let mut sender = Self::new(options);
        sender.context(|cx| {
            let now = cx.now;
            cx.connection.take_rtt(Micros(10_000), true, now);
        });
        sender
    }

    pub(super) fn context<R>(&mut self, action: impl FnOnce(&mut Context<'_, Vec<u8>, SentSegments>) -> R) -> R {
        let result = action(&mut self.tcp.context(self.slot, &mut self.sent, self.now));
        self.check();
        result
    }

    pub(super) fn check(&self) {
        self.connection().check_scoreboard(&self.tcp.shared.chunks);
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.tcp.connections[self.slot]
    }

    pub(super) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.tcp.connections[self.slot]
    }

    pub(super) fn wait_ms(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Sends `count` full segments, regardless of the windows.
    pub(super) fn send(&mut self, count: u32) {
        for _ in 0..count {
            self.send_len(MSS);
        }
    }

    pub(super) fn send_len(&mut self, len: u32) {
        self.context(|cx| {
            let seq = cx.connection.snd.nxt;
            let mut chunk = Chunk::new(seq, len, Some(vec![0; len as usize]));
            chunk.flags = SENT;
            let idx = cx.connection.send.queue.push_back(&mut cx.shared.chunks, chunk).unwrap();
            cx.connection.send.len += len;
            cx.connection.snd.nxt = seq + len;
            cx.on_sent(idx, false);
        });
    }

    /// Retransmits lost data, as far as the window allows; returns the numbers of the segments.
    pub(super) fn resend(&mut self) -> Vec<u32> {
        let mut segments = Vec::new();
        while let Some(idx) = self.context(|cx| cx.next_lost()) {
            segments.push((self.tcp.shared.chunks[idx].seq - FIRST) / MSS);
            self.context(|cx| cx.on_sent(idx, true));
        }
        segments
    }

    /// An acknowledgment of all before segment `to`, with SACK blocks of segments beyond; the
    /// echoed timestamp is the current one.
    pub(super) fn ack(&mut self, to: u32, sacks: &[(u32, u32)]) -> Option<TcpDrop> {
        let echo = self.connection().ts.now(self.now);
        self.ack_echoing(to, sacks, echo)
    }

    pub(super) fn ack_echoing(&mut self, to: u32, sacks: &[(u32, u32)], echo: u32) -> Option<TcpDrop> {
        let range = |&(left, right): &(u32, u32)| Range { left: FIRST + left * MSS, right: FIRST + right * MSS };
        let ranges: Vec<Range> = sacks.iter().map(range).collect();
        let mut segment = self.segment(FIRST + to * MSS, &ranges);
        if self.connection().has(InputFlags::TIMESTAMPS) {
            segment.timestamps = Some(Timestamps { value: 1, echo_reply: echo });
        }
        self.note_received(&segment)
    }

    pub(super) fn segment(&self, ack: Seq, ranges: &[Range]) -> Segment {
        let mut sacks = [Range::default(); SACK_BLOCKS_MAX];
        sacks[..ranges.len()].copy_from_slice(ranges);
        Segment {
            seq: Seq(0),
            ack,
            wnd: u16::MAX,
            flags: TcpFlags::ACK,
            len: 0,
            timestamps: None,
            sack_count: ranges.len() as u8,
            sacks,
            syn: SynOptions::default(),
            ce: false,
        }
    }

    pub(super) fn note_received(&mut self, segment: &Segment) -> Option<TcpDrop> {
        self.context(|cx| cx.process_ack(segment)).err()
    }

    /// The marks of all unacknowledged chunks, a letter each.
    pub(super) fn marks(&self) -> String {
        let mut idx = self.connection().send.queue.head;
        let mut marks = String::new();
        while let Some(chunk) = self.tcp.shared.chunks.get(idx) {
            marks.push(match chunk.flags & (SENT | SACKED | LOST | RESENT) {
                0 => '_',
                flags if flags & SACKED != 0 => 'S',
                flags if flags & RESENT != 0 => 'R',
                flags if flags & LOST != 0 => 'L',
                _ => '.',
            });
            idx = chunk.next;
        }
        marks
    }

    pub(super) fn recovery(&self) -> Recovery {
        self.connection().recovery
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connection().send.queue.head == NIL
    }
}
