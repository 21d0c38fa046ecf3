//! An echo over a wire that loses frames, between two machines in virtual time: its duration, and
//! the timeouts of the senders. Determined by a seed and the machines alone.
//!
//! ```text
//!  client: sends LEN bytes, hears them ── DELAY, each frame lost by chance, both ways ── server: sends back what comes
//! ```
//!
//! The wire loses frames only once both ends are connected, because a lost SYN costs every stack
//! the same (RFC 6298 2.1: a second).

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;

use wirepath::pipeline::tcp::{AcceptDecision, ConnectionId, ConnectionOptions, ListenOptions, TcpConfig, TcpEvent};
use wirepath::proto::{ConsumerId, Flow, HashSeed};
use wirepath::testing::tcp::{Arrival, Outgoing, Segment, Tcp};
use wirepath::time::{Duration, Instant};

use crate::mutate::Random;
use crate::script::wire::{Bytes, Wire};

const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 50_000);
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7);
/// Payload of a full segment with timestamps.
const SEGMENT_LEN: usize = 1448;
/// The longest interval between two polls of a worker here.
const TURN: Duration = Duration::from_micros(50);

/// An echo that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    /// It determines which frames are lost.
    pub seed: u64,
    /// Bytes each way.
    pub len: usize,
    /// Lost frames of each thousand, in each direction.
    pub per_mille: usize,
    /// The delay in each direction.
    pub delay: Duration,
    /// Of both ends.
    pub options: ConnectionOptions,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echoed {
    /// From the first byte sent to the last byte received.
    pub took: Duration,
    /// Retransmission timeouts, of both ends.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Segments that were sent again.
    pub resent: u64,
    /// Segments of these that the peer already had.
    pub duplicates: u64,
}

struct End {
    tcp: Tcp<Bytes>,
    wire: Wire,
    id: Option<ConnectionId>,
    /// Data that waits to be sent.
    waiting: VecDeque<Vec<u8>>,
    received_len: usize,
    echoes: bool,
}

impl End {
    fn new(seed: u64, echoes: bool) -> Self {
        let config = TcpConfig { connections_max: 8, ..TcpConfig::default() };
        Self {
            tcp: Tcp::new(config, HashSeed::new(seed, 2)).expect("the limits add up"),
            wire: Wire::new(Instant::ZERO),
            id: None,
            waiting: VecDeque::new(),
            received_len: 0,
            echoes,
        }
    }

    fn receive(&mut self, (outgoing, payload): (Outgoing, Vec<u8>), now: Instant) {
        let Outgoing { flow, seq, ack, flags, wnd, timestamps, sack_count, sacks, syn, .. } = outgoing;
        let (len, syn) = (payload.len() as u32, syn.unwrap_or_default());
        let segment = Segment { seq, ack, wnd, flags, len, timestamps, sack_count, sacks, syn, ce: false };
        let arrival = Arrival { flow: Flow { local: flow.remote, remote: flow.local }, segment };
        let payload = (!payload.is_empty()).then_some(Bytes(payload));
        if let Ok(Some((_, data))) =
            self.tcp.receive(&arrival, payload, |_, _| AcceptDecision::Yes, now, &mut self.wire)
        {
            self.take(data.0);
        }
        self.listen();
    }

    fn take(&mut self, bytes: Vec<u8>) {
        self.received_len += bytes.len();
        if self.echoes {
            self.waiting.push_back(bytes);
        }
    }

    fn listen(&mut self) {
        while let Some((id, _, event)) = self.tcp.next_event() {
            self.id = Some(id);
            if event == TcpEvent::Readable {
                while let Some(data) = self.tcp.next_data(id) {
                    self.take(data.0);
                }
            }
        }
    }

    /// The app sends as much as it may, and the burst ends.
    fn turn(&mut self, now: Instant) {
        while let (Some(id), Some(bytes)) = (self.id, self.waiting.pop_front()) {
            if let Err((_, unsent)) = self.tcp.send(id, Bytes(bytes), now, &mut self.wire) {
                self.waiting.push_front(unsent.0);
                break;
            }
        }
        self.tcp.tick(now, &mut self.wire);
        self.listen();
    }
}

/// Segments in flight, in the order of their arrival: to the server where true.
type Way = VecDeque<(Instant, bool, (Outgoing, Vec<u8>))>;

impl Echo {
    /// Makes it; `None` where it is not over in `limit`.
    pub fn run(&self, limit: Duration) -> Option<Echoed> {
        let mut random = Random::new(self.seed);
        let (mut client, mut server) = (End::new(self.seed, false), End::new(!self.seed, true));
        let mut now = Instant::ZERO + Duration::from_secs(1);
        let listening = ListenOptions { connection: self.options, ..ListenOptions::default() };
        server.tcp.listen(SERVER, &listening).ok()?;
        let flow = Flow { local: CLIENT, remote: SERVER };
        client.tcp.connect(flow, &self.options, ConsumerId(1), now, &mut client.wire).ok()?;
        let (mut way, mut begin) = (Way::new(), None);
        while client.received_len < self.len {
            while let Some((_, to_server, segment)) = way.pop_front_if(|(at, ..)| *at <= now) {
                let end = if to_server { &mut server } else { &mut client };
                end.receive(segment, now);
            }
            if begin.is_none() && client.id.is_some() && server.id.is_some() {
                begin = Some(now);
                let bytes: Vec<u8> = (0..self.len).map(|at| ((at * 31) >> 3) as u8).collect();
                client.waiting.extend(bytes.chunks(SEGMENT_LEN).map(<[u8]>::to_vec));
            }
            for (end, to_server) in [(&mut client, true), (&mut server, false)] {
                end.turn(now);
                for sent in end.wire.sent.drain(..) {
                    if begin.is_none() || random.below(1000) >= self.per_mille {
                        way.push_back((now + self.delay, to_server, (sent.segment, sent.payload)));
                    }
                }
            }
            now = way.front().map_or(now + TURN, |(at, ..)| (*at).min(now + TURN));
            if begin.is_some_and(|begin| now.since(begin) > limit) {
                return None;
            }
        }
        let (ours, theirs) = (client.tcp.tally(), server.tcp.tally());
        Some(Echoed {
            took: now.since(begin?),
            timeouts: ours.timeouts + theirs.timeouts,
            probes: ours.tail_loss_probes + theirs.tail_loss_probes,
            resent: ours.segments_resent + theirs.segments_resent,
            duplicates: ours.dsacks_in + theirs.dsacks_in,
        })
    }
}
