//! The TCP machine against segments, calls and time at random: it never panics, never sends beyond
//! the peer's window or data that the app did not pass to it, its states follow each other as in
//! RFC 9293 3.3.2, and at the end it has released all payloads.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use wirepath::pipeline::tcp::{
    AcceptDecision, Congestion, ConnectionId, ConnectionOptions, Keepalive, ListenOptions, Seq, State, TcpConfig,
    TcpEvent,
};
use wirepath::proto::{ConsumerId, Flow, HashSeed};
use wirepath::testing::tcp::{
    Arrival, Outgoing, Output, Payload, Range, SACK_BLOCKS_MAX, Segment, SynOptions, Tcp, Unsent,
};
use wirepath::time::{Duration, Instant};
use wirepath::wire::tcp::{TcpFlags, Timestamps};

use crate::fuzz::Input;

const US: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 80);
const PEER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 5_000);

/// A payload that is counted: all share one count.
struct Bytes {
    data: Vec<u8>,
    alive: Rc<()>,
}

impl Payload for Bytes {
    fn len(&self) -> usize {
        self.data.len()
    }

    fn advance(&mut self, count: usize) {
        self.data.drain(..count);
    }

    fn trim_to(&mut self, len: usize) {
        assert!(len <= self.data.len(), "cut longer than it is");
        self.data.truncate(len);
    }

    fn split_off(&mut self, at: usize) -> Option<Self> {
        Some(Self { data: self.data.split_off(at), alive: Rc::clone(&self.alive) })
    }

    fn append(&mut self, bytes: &[u8]) -> usize {
        self.data.extend_from_slice(bytes);
        bytes.len()
    }

    fn join(&mut self, next: &Self) -> bool {
        // Now and then somebody still reads it.
        let can = !(self.data.len() + next.data.len()).is_multiple_of(3);
        if can {
            self.data.extend_from_slice(&next.data);
        }
        can
    }
}

/// The way out: checks each segment.
#[derive(Default)]
struct Wire {
    /// Segments that still find room.
    room: u32,
    /// Where our numbers begin, and up to where the peer has ever let us send.
    iss: Option<Seq>,
    edge: Option<Seq>,
    /// Bytes that the app has handed over.
    written: u32,
    rcv_nxt: Option<Seq>,
}

impl Output<Bytes> for Wire {
    fn send(&mut self, _: Option<u32>, segment: &Outgoing, payload: Option<&mut Bytes>) -> Result<(), Unsent> {
        self.room = self.room.checked_sub(1).ok_or(Unsent::Busy)?;
        assert!(segment.sacks().iter().all(|range| !range.is_empty()), "an empty block: {segment:?}");
        if segment.flags.contains(TcpFlags::SYN) {
            self.iss = Some(segment.seq);
            (self.edge, self.written) = (None, 0);
        }
        if segment.flags.contains(TcpFlags::ACK) && !segment.flags.contains(TcpFlags::RST) {
            self.rcv_nxt = Some(segment.ack);
        }
        let Some(payload) = payload else { return Ok(()) };
        assert!(!payload.is_empty(), "a payload without a byte");
        let end = segment.seq + payload.len() as u32;
        if let (Some(edge), Some(iss)) = (self.edge, self.iss) {
            assert!(end.is_at_most(edge), "{end:?} is beyond the window's edge {edge:?}: {segment:?}");
            assert!(end - (iss + 1) <= self.written, "more than the app has handed over");
        }
        Ok(())
    }

    fn mtu(&self, _: Ipv4Addr) -> usize {
        1500
    }
}

/// A machine with one peer.
struct Scene {
    tcp: Tcp<Bytes>,
    wire: Wire,
    now: Instant,
    /// When the last tick was.
    ticked_at: Option<Instant>,
    id: Option<ConnectionId>,
    state: Option<State>,
    alive: Rc<()>,
    /// The shift of the windows that the peer shows: by its SYN.
    scale: u8,
}

/// Plays the plan.
pub(in crate::fuzz) fn machine(data: &[u8]) {
    let mut input = Input::new(data);
    let mut scene = Scene::new(&mut input);
    while !input.is_empty() {
        scene.step(&mut input);
        scene.listen();
        assert_eq!(scene.tcp.check_timers(scene.ticked_at), Ok(()));
    }
    scene.end();
}

/// Plans that get through a handshake.
pub(in crate::fuzz) fn seeds() -> Vec<Vec<u8>> {
    let handshake = [0x5a, 1, 0, 2, 0x02, 0, 0, 0, 0, 0, 0, 0, 0xff, 2, 0x10, 0, 0, 0, 0, 0, 0, 0, 0xff];
    let mut seeds = crate::fuzz::seeds::plans();
    seeds.extend((0u8..16).map(|tail| [&handshake[..], &[tail, 0x40, tail ^ 0x2f, 3, tail, 9, 1, 1, tail]].concat()));
    seeds
}

impl Scene {
    fn new(input: &mut Input<'_>) -> Self {
        let config = TcpConfig {
            connections_max: 2,
            listeners_max: 1,
            chunks_max: 32,
            reassembly_max: 8,
            time_wait: Duration::from_secs(1),
            ..TcpConfig::default()
        };
        let mut tcp = Tcp::new(config, HashSeed::new(1, 2)).expect("the limits add up");
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut wire = Wire { room: 8, ..Wire::default() };
        let options = options(input);
        let id = if input.u8() & 1 == 0 {
            tcp.connect(Flow { local: US, remote: PEER }, &options, ConsumerId(0), now, &mut wire).ok()
        } else {
            let listen = ListenOptions { connection: options, backlog: 1, ..ListenOptions::default() };
            tcp.listen(US, &listen).expect("nobody listens yet");
            None
        };
        Self { tcp, wire, now, ticked_at: None, id, state: None, alive: Rc::new(()), scale: 0 }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        self.wire.room = u32::from(input.below(16));
        match input.below(16) {
            0..8 => self.receive(input),
            8 => self.write(usize::from(input.u16() % 5_000)),
            9 => self.now += Duration::from_millis(input.u8().into()),
            10 => self.now += Duration::from_millis(input.u16().into()),
            11 => self.call(input),
            _ => {
                self.tcp.tick(self.now, &mut self.wire);
                self.ticked_at = Some(self.now);
            }
        }
    }

    /// A segment that is nearly correct.
    fn receive(&mut self, input: &mut Input<'_>) {
        let flags = TcpFlags(input.u8() & 0x3f);
        let rcv_nxt = self.wire.rcv_nxt.unwrap_or(Seq(7_000));
        let snd = self.info().map_or(Seq(0), |_| self.wire.iss.unwrap_or(Seq(0)) + 1);
        let seq = near(rcv_nxt, input);
        let ack = near(snd + self.wire.written.min(u32::from(input.u16())), input);
        let len = usize::from(input.u8() % 64) * 16;
        let mut sacks = [Range::default(); SACK_BLOCKS_MAX];
        let sack_count = input.below(5);
        for range in &mut sacks[..usize::from(sack_count)] {
            *range = Range { left: near(snd, input), right: near(snd + 2_000, input) };
        }
        let is_syn = flags.contains(TcpFlags::SYN);
        let syn = SynOptions { mss: Some(input.u16()), window_scale: Some(input.below(15)), sack_permitted: true };
        let timestamps = (input.u8() & 1 == 0).then(|| Timestamps { value: input.u32(), echo_reply: input.u32() });
        let segment = Segment {
            seq,
            ack,
            wnd: input.u16(),
            flags,
            len: len as u32,
            timestamps,
            sack_count,
            sacks,
            syn: if is_syn { syn } else { SynOptions::default() },
            ce: input.u8() & 7 == 0,
        };
        self.widen(&segment, is_syn);
        let payload = (len > 0).then(|| Bytes { data: vec![1; len], alive: Rc::clone(&self.alive) });
        let arrival = Arrival { flow: Flow { local: US, remote: PEER }, segment };
        let received = self.tcp.receive(&arrival, payload, |_, _| AcceptDecision::Yes, self.now, &mut self.wire);
        if let Ok(Some((_, data))) = received {
            assert!(!data.is_empty(), "nothing is delivered as data");
        }
    }

    /// The furthest number that the peer may have let us send with this segment, whether the
    /// segment was accepted or not.
    fn widen(&mut self, segment: &Segment, is_syn: bool) {
        if is_syn {
            self.scale = self.scale.max(segment.syn.window_scale.unwrap_or(0));
        }
        let scale = if is_syn { 0 } else { self.scale };
        let edge = segment.ack + (u32::from(segment.wnd) << scale);
        // Where our numbers are far from, no acknowledgment is believed.
        if self.wire.iss.is_some_and(|iss| edge - iss < 1 << 30) {
            self.wire.edge = Some(self.wire.edge.map_or(edge, |held| held.max(edge)));
        }
    }

    fn write(&mut self, len: usize) {
        let Some(id) = self.id else { return };
        let payload = Bytes { data: vec![2; len], alive: Rc::clone(&self.alive) };
        // Before it leaves, so that the wire knows of it.
        self.wire.written += len as u32;
        if self.tcp.send(id, payload, self.now, &mut self.wire).is_err() {
            self.wire.written -= len as u32;
        }
    }

    fn call(&mut self, input: &mut Input<'_>) {
        let Some(id) = self.id else { return };
        let (now, wire) = (self.now, &mut self.wire);
        let _ = match input.below(8) {
            0 => self.tcp.shutdown(id, now, wire),
            1 => self.tcp.close(id, now, wire),
            2 => self.tcp.abort(id, now, wire),
            3 | 4 => self.tcp.pause(id),
            5 | 6 => self.tcp.resume(id),
            _ => self.tcp.set_options(id, &options(input), now, wire),
        };
    }

    fn listen(&mut self) {
        while let Some((id, _, event)) = self.tcp.next_event() {
            match event {
                TcpEvent::Connected { .. } => self.id = Some(id),
                TcpEvent::Closed(_) => (self.id, self.state) = (None, None),
                _ => (),
            }
            while let Some(data) = self.tcp.next_data(id) {
                assert!(!data.is_empty(), "nothing is delivered as data");
            }
        }
        let state = self.info();
        if let (Some(from), Some(to)) = (self.state, state) {
            assert!(from == to || may_follow(from, to), "{from:?} does not lead to {to:?}");
        }
        self.state = state;
        assert!(self.tcp.chunks() <= 32 && self.tcp.len() <= 2, "more is kept than there is room for");
    }

    fn info(&self) -> Option<State> {
        Some(self.tcp.info(self.id?, self.now)?.state)
    }

    /// All kept payloads are released, in any state of the connections.
    fn end(mut self) {
        self.wire.room = u32::MAX;
        if let Some(id) = self.id {
            let _ = self.tcp.resume(id);
            self.listen();
            let _ = self.tcp.abort(id, self.now, &mut self.wire);
        }
        for _ in 0..400 {
            self.now += Duration::from_secs(2);
            self.tcp.tick(self.now, &mut self.wire);
            self.listen();
        }
        assert_eq!((self.tcp.len(), self.tcp.chunks()), (0, 0), "something was kept for ever");
        assert_eq!(Rc::strong_count(&self.alive), 1, "a payload is still held");
    }
}

fn options(input: &mut Input<'_>) -> ConnectionOptions {
    let bits = input.u8();
    let is = |bit: u8| bits & (1 << bit) != 0;
    ConnectionOptions {
        nodelay: is(0),
        quickack: is(1),
        keepalive: is(2).then_some(Keepalive::SESSION),
        user_timeout: is(3).then_some(Duration::from_secs(5)),
        congestion: input.pick(&[Congestion::Cubic, Congestion::Reno, Congestion::None]),
        pacing_rate: is(4).then_some(100_000),
        send_buffer: 16_000,
        receive_buffer: 8_000,
        timestamps: is(5),
        sack: is(6),
        ecn: is(7),
        ..ConnectionOptions::default()
    }
}

/// A number that is nearly the right one.
fn near(right: Seq, input: &mut Input<'_>) -> Seq {
    match input.below(8) {
        0..5 => right,
        5 => right + u32::from(input.u8()),
        6 => right - u32::from(input.u8()),
        _ => Seq(input.u32()),
    }
}

/// RFC 9293 3.3.2, figure 5; several arrows may be gone along between two looks.
fn may_follow(from: State, to: State) -> bool {
    let order = |state| match state {
        State::SynSent => 0,
        State::SynReceived => 1,
        State::Established => 2,
        State::FinWait1 | State::CloseWait => 3,
        State::FinWait2 | State::Closing | State::LastAck => 4,
        State::TimeWait => 5,
        State::Closed => 6,
    };
    order(from) < order(to)
}
