//! Where a script is played: the machine, the wire, the app and the clock. Both ends write the same
//! pattern, so that a misplaced byte is noticed in every script.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;

use wirepath::pipeline::tcp::{
    AcceptDecision, ConnectionId, ListenOptions, ListenerId, Seq, TcpConfig, TcpDrop, TcpEvent,
};
use wirepath::proto::{Flow, HashSeed};
use wirepath::testing::tcp::{Arrival, Segment, Tcp};
use wirepath::time::{Duration, Instant};
use wirepath::wire::tcp::TcpFlags;

use super::wire::{Bytes, Wire};

const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 1000);
const REMOTE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 2000);
/// The flow of lines that name none.
const FIRST: &str = "a";

pub(super) struct Stage {
    pub(super) tcp: Tcp<Bytes>,
    pub(super) wire: Wire,
    pub(super) now: Instant,
    pub(super) options: ListenOptions,
    pub(super) policy: AcceptDecision,
    /// The app reads data as soon as it gets it.
    pub(super) reads: bool,
    pub(super) flows: Vec<Peer>,
    pub(super) listener: Option<ListenerId>,
    pub(super) events: VecDeque<(usize, TcpEvent)>,
    /// Why the last segment was dropped.
    pub(super) dropped: Option<TcpDrop>,
    /// A promise that no script has to ask for was broken.
    pub(super) fault: Option<String>,
    /// The number of frames in `wire.sent` in which numbers to learn were searched.
    learned: usize,
    /// Something happened since the last tick.
    in_burst: bool,
}

/// The other end of a flow, and its knowledge of ours.
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) flow: Flow,
    pub(super) id: Option<ConnectionId>,
    /// Ours, since our SYN was seen.
    pub(super) iss: Option<Seq>,
    /// The initial sequence number of the connection before.
    pub(super) iss_before: Option<Seq>,
    /// TSval of our first segment.
    pub(super) clock: Option<u32>,
    /// The peer's own, since its SYN was played.
    pub(super) irs: Option<Seq>,
    /// The next number of the peer.
    pub(super) next: Seq,
    pub(super) win: u16,
    /// Bytes that the app has sent.
    pub(super) written: u32,
    /// Bytes that the app got, and those of them that the script asked for.
    pub(super) delivered: u32,
    pub(super) expected: u32,
}

impl Stage {
    pub(super) fn new(config: TcpConfig, options: ListenOptions, now: Instant) -> Result<Self, String> {
        Ok(Self {
            tcp: Tcp::new(config, HashSeed::new(7, 11)).map_err(|error| error.to_string())?,
            wire: Wire::new(now),
            now,
            options,
            policy: AcceptDecision::Yes,
            reads: true,
            flows: Vec::new(),
            listener: None,
            events: VecDeque::new(),
            dropped: None,
            fault: None,
            learned: 0,
            in_burst: false,
        })
    }

    /// The place of the flow of that name, which is made where there is none.
    pub(super) fn flow(&mut self, name: Option<&str>) -> usize {
        let name = name.unwrap_or(FIRST);
        if let Some(idx) = self.flows.iter().position(|peer| peer.name == name) {
            return idx;
        }
        let remote = SocketAddrV4::new(*REMOTE.ip(), REMOTE.port() + self.flows.len() as u16);
        self.flows.push(Peer {
            name: name.to_owned(),
            flow: Flow { local: LOCAL, remote },
            id: None,
            iss: None,
            iss_before: None,
            clock: None,
            irs: None,
            next: Seq(0),
            win: 65_535,
            written: 0,
            delivered: 0,
            expected: 0,
        });
        self.flows.len() - 1
    }

    /// A segment arrives.
    pub(super) fn receive(&mut self, flow: usize, segment: Segment, payload: Vec<u8>) {
        self.begin();
        let arrival = Arrival { flow: self.flows[flow].flow, segment };
        let payload = (!payload.is_empty()).then_some(Bytes(payload));
        let policy = self.policy;
        let received = self.tcp.receive(&arrival, payload, |_, _| policy, self.now, &mut self.wire);
        self.dropped = received.as_ref().err().copied();
        if let Ok(Some((id, data))) = received {
            self.flows[flow].id = Some(id);
            self.deliver(flow, &data.0);
        }
        self.after(flow);
    }

    /// Something is about to happen.
    pub(super) fn begin(&mut self) {
        self.wire.now = self.now;
        self.in_burst = true;
    }

    /// After each step: the app gets its events, and our SYN shows our numbers.
    pub(super) fn after(&mut self, flow: usize) {
        while let Some((id, _, event)) = self.tcp.next_event() {
            let known = self.flows.iter().position(|peer| peer.id == Some(id));
            let flow = known.unwrap_or(flow);
            self.flows[flow].id = Some(id);
            if event == TcpEvent::Readable && self.reads {
                while self.read(flow) {}
            } else {
                self.events.push_back((flow, event));
            }
        }
        self.learn();
    }

    /// Takes one payload that waits.
    pub(super) fn read(&mut self, flow: usize) -> bool {
        let Some(data) = self.flows[flow].id.and_then(|id| self.tcp.next_data(id)) else { return false };
        self.deliver(flow, &data.0);
        true
    }

    /// The end of a burst, where one has begun.
    pub(super) fn end_burst(&mut self) {
        if self.in_burst {
            self.tick();
        }
    }

    /// Advances to `until`, or to the time at which `stop` says so. The longer the distance, the
    /// longer the steps.
    pub(super) fn advance(&mut self, until: Instant, stop: impl Fn(&Self) -> bool) {
        let step = step(until.since(self.now));
        while self.now < until && !stop(self) {
            self.now = if until.since(self.now) < step { until } else { self.now + step };
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.wire.now = self.now;
        self.tcp.tick(self.now, &mut self.wire);
        self.in_burst = false;
        self.after(0);
    }

    fn deliver(&mut self, flow: usize, data: &[u8]) {
        let peer = &mut self.flows[flow];
        for (idx, byte) in data.iter().enumerate() {
            let at = peer.delivered + idx as u32;
            if *byte != pattern(at) {
                self.fault = Some(format!("byte {at} of the stream was handed to the app, and is another"));
            }
        }
        peer.delivered += data.len() as u32;
    }

    fn learn(&mut self) {
        for sent in self.wire.sent.iter().skip(self.learned) {
            let segment = &sent.segment;
            let is_its = |peer: &&mut Peer| {
                let local = peer.flow.local;
                peer.flow.remote == segment.flow.remote && (local == segment.flow.local || local.port() == 0)
            };
            let Some(peer) = self.flows.iter_mut().find(is_its) else {
                self.fault = Some(format!("a segment for {}, which is no flow's", segment.flow.remote));
                continue;
            };
            peer.flow.local = segment.flow.local;
            if segment.flags.contains(TcpFlags::SYN) && peer.iss.is_none() {
                peer.iss = Some(segment.seq);
            }
            if let Some(timestamps) = segment.timestamps.filter(|_| peer.clock.is_none()) {
                peer.clock = Some(timestamps.value);
            }
            // Our data is the same pattern from number 1 on.
            let at = (segment.seq - peer.iss.unwrap_or_default()).wrapping_sub(1);
            if sent.payload.iter().enumerate().any(|(idx, byte)| *byte != pattern(at.wrapping_add(idx as u32))) {
                self.fault = Some(format!("a segment carries other bytes than the app wrote, number {}", at + 1));
            }
        }
        self.learned = self.wire.sent.len();
    }

    /// The segment that left first of those that no line has asked for.
    pub(super) fn take_sent(&mut self) -> Option<super::wire::SentSegment> {
        let sent = self.wire.sent.pop_front()?;
        self.learned -= 1;
        Some(sent)
    }
}

/// Steps in which time goes on over a span.
pub(super) fn step(span: Duration) -> Duration {
    let ns = span.as_nanos();
    match ns / 1_000_000_000 {
        0..2 => Duration::from_micros(250),
        2..120 => Duration::from_micros(500),
        _ => Duration::from_nanos(ns / 200_000),
    }
}

/// Byte `at` of every stream.
pub(super) fn pattern(at: u32) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8 ^ 0x5a
}
