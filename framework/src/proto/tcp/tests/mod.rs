//! Two machines, and a wire between them that is a list.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod attack;
mod audit;
mod calls;
mod config;
mod handover;
mod input;
mod line;
mod listening;
mod loss;
mod lossy;
mod output;
mod pause;
mod random;
mod route_watch;
mod script;
mod sender;
mod set_options;
mod state;
mod timers;

use core::net::{Ipv4Addr, SocketAddrV4};

use super::*;
use crate::proto::{ConsumerId, Flow, HashSeed};
use crate::time::{Duration, Instant};

/// Bytes of payload that one buffer of a test has room for.
const BUFFER_LEN: usize = 1500;

/// A payload of a test.
impl Payload for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn advance(&mut self, count: usize) {
        self.drain(..count);
    }

    fn trim_to(&mut self, len: usize) {
        self.truncate(len);
    }

    fn split_off(&mut self, at: usize) -> Option<Self> {
        Some(Vec::split_off(self, at))
    }

    fn append(&mut self, bytes: &[u8]) -> usize {
        self.extend_from_slice(bytes);
        bytes.len()
    }

    fn join(&mut self, next: &Self) -> bool {
        let has_room = self.len() + next.len() <= BUFFER_LEN;
        if has_room {
            self.extend_from_slice(next);
        }
        has_room
    }
}

/// Segments that a machine has sent and that are not received yet.
#[derive(Default)]
pub(super) struct SentSegments(pub(super) Vec<(Outgoing, Vec<u8>)>);

impl Output<Vec<u8>> for SentSegments {
    fn send(&mut self, _: Option<u32>, segment: &Outgoing, payload: Option<&mut Vec<u8>>) -> Result<(), Unsent> {
        self.0.push((*segment, payload.map_or(Vec::new(), |payload| payload.clone())));
        Ok(())
    }

    fn mtu(&self, _: Ipv4Addr) -> usize {
        1500
    }
}

/// A machine, its sent segments, and its app's events.
pub(super) struct End {
    pub(super) tcp: Tcp<Vec<u8>>,
    pub(super) sent: SentSegments,
    pub(super) events: Vec<TcpEvent>,
    pub(super) bytes: Vec<u8>,
    pub(super) now: Instant,
    pub(super) id: Option<ConnectionId>,
}

pub(super) const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 50_000);
pub(super) const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80);

impl End {
    pub(super) fn new(seed: u64) -> Self {
        let config = TcpConfig { connections_max: 8, chunks_max: 1024, ..TcpConfig::default() };
        Self {
            tcp: Tcp::new(config, HashSeed::new(seed, 2)).unwrap(),
            sent: SentSegments::default(),
            events: Vec::new(),
            bytes: Vec::new(),
            now: Instant::ZERO + Duration::from_secs(1),
            id: None,
        }
    }

    /// Gives the machine a segment of the other end, as if it had come over a wire.
    pub(super) fn note_received(&mut self, segment: (Outgoing, Vec<u8>)) -> Option<TcpDrop> {
        self.hear_if(segment, AcceptDecision::Yes)
    }

    /// The same, with the app's decision about a peer that wants to connect.
    pub(super) fn hear_if(
        &mut self,
        (outgoing, payload): (Outgoing, Vec<u8>),
        accept: AcceptDecision,
    ) -> Option<TcpDrop> {
        let Outgoing { flow, seq, ack, flags, wnd, timestamps, sack_count, sacks, syn, .. } = outgoing;
        let segment = Segment {
            seq,
            ack,
            wnd,
            flags,
            len: payload.len() as u32,
            timestamps,
            sack_count,
            sacks,
            syn: syn.unwrap_or_default(),
            ce: false,
        };
        let arrival = Arrival { flow: Flow { local: flow.remote, remote: flow.local }, segment };
        let payload = (!payload.is_empty()).then_some(payload);
        let received = self.tcp.receive(&arrival, payload, |_, _| accept, self.now, &mut self.sent);
        let dropped = received.as_ref().err().copied();
        if let Ok(Some((_, data))) = received {
            self.bytes.extend(data);
        }
        self.listen_to_events();
        dropped
    }

    /// The end of a burst.
    pub(super) fn tick(&mut self) {
        self.tcp.tick(self.now, &mut self.sent);
        self.listen_to_events();
        assert_eq!(self.tcp.check_timers(Some(self.now)), Ok(()));
    }

    fn listen_to_events(&mut self) {
        while let Some((id, _, event)) = self.tcp.next_event() {
            self.id = Some(id);
            self.events.push(event);
            while let Some(data) = self.tcp.next_data(id) {
                self.bytes.extend(data);
            }
        }
    }
}

/// Carries segments both ways until neither end sends any more.
pub(super) fn settle(a: &mut End, b: &mut End) {
    for _ in 0..1000 {
        a.tick();
        b.tick();
        let (from_a, from_b) = (core::mem::take(&mut a.sent.0), core::mem::take(&mut b.sent.0));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        from_a.into_iter().for_each(|segment| _ = b.note_received(segment));
        from_b.into_iter().for_each(|segment| _ = a.note_received(segment));
    }
    panic!("two machines that never fall silent");
}

/// A connection between two machines.
pub(super) fn connected() -> (End, End) {
    connected_with(&ConnectionOptions::default())
}

pub(super) fn connected_with(options: &ConnectionOptions) -> (End, End) {
    let (mut client, mut server) = (End::new(1), End::new(2));
    server.tcp.listen(SERVER, &ListenOptions::default()).unwrap();
    let flow = Flow { local: CLIENT, remote: SERVER };
    let now = client.now;
    client.id = Some(client.tcp.connect(flow, options, ConsumerId(1), now, &mut client.sent).unwrap());
    settle(&mut client, &mut server);
    (client, server)
}

#[test]
fn handshake_connects_both_ends() {
    let (client, server) = connected();
    assert_eq!(client.events, [TcpEvent::Connected { listener: None }]);
    assert!(matches!(server.events[..], [TcpEvent::Connected { listener: Some(_) }]));
}

#[test]
fn data_arrives_in_order() {
    let (mut client, mut server) = connected();
    for part in ["new ", "order ", "single"] {
        let (id, now) = (client.id.unwrap(), client.now);
        client.tcp.send(id, part.as_bytes().to_vec(), now, &mut client.sent).unwrap();
    }
    settle(&mut client, &mut server);
    assert_eq!(server.bytes, b"new order single");
    assert_eq!(client.tcp.chunks(), 0, "all is acknowledged");
}

#[test]
fn store_full_of_long_payloads_still_leaves_in_segments() {
    let (mut client, mut server) = connected();
    let (id, now) = (client.id.unwrap(), client.now);
    let options = ConnectionOptions { send_buffer: 1 << 24, ..ConnectionOptions::default() };
    client.tcp.set_options(id, &options, now, &mut client.sent).unwrap();
    let mut sent = 0;
    let refusal = loop {
        match client.tcp.send(id, vec![7; 3000], now, &mut client.sent) {
            Ok(()) => sent += 3000,
            Err((why, _)) => break why,
        }
    };
    assert_eq!(refusal, SendError::NoChunk);
    for _ in 0..100 {
        settle(&mut client, &mut server);
        let now = client.now + Duration::from_millis(5);
        (client.now, server.now) = (now, now);
    }
    assert_eq!((server.bytes.len(), client.tcp.chunks()), (sent, 0));
}

#[test]
fn app_that_aborts_with_unread_data_is_not_told_that_all_was_delivered() {
    let (mut client, mut server) = connected();
    let (id, now) = (server.id.unwrap(), server.now);
    server.tcp.pause(id).unwrap();
    server.tcp.shutdown(id, now, &mut server.sent).unwrap();
    settle(&mut client, &mut server);
    let (theirs, now) = (client.id.unwrap(), client.now);
    client.tcp.send(theirs, b"unread".to_vec(), now, &mut client.sent).unwrap();
    client.tcp.shutdown(theirs, now, &mut client.sent).unwrap();
    settle(&mut client, &mut server);
    server.events.clear();
    server.tcp.abort(id, server.now, &mut server.sent).unwrap();
    settle(&mut client, &mut server);
    assert!(matches!(server.events[..], [TcpEvent::Closed(_)]), "{:?}", server.events);
}
