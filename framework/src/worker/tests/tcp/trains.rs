//! Consecutive segments, in a burst or merged by the device: whatever their content, and whatever
//! the app does between two of them, the result is the same as for segments processed one by one.

use super::frames::{SegmentEnds, frame};
use super::*;
use crate::device::{Offload, RxQueue, RxState, TxQueue};
use crate::mem::{Burst, ChecksumStatus, Mbuf, RxInfo};
use crate::wire::tcp::Timestamps;
use crate::wire::{TcpFields, TcpFlags, TcpOption, TcpSegment};

/// A wire whose other end is the test: the frames to receive, and the frames sent.
#[derive(Default)]
struct Wire {
    coming: Vec<Coming>,
}

/// A frame to be received, and its form.
struct Coming {
    frame: Vec<u8>,
    /// The lengths of its buffers; the last one is for all remaining bytes.
    buffers: Vec<usize>,
    verdict: ChecksumStatus,
}

impl RxQueue for Wire {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, _: Instant) -> usize {
        let count = self.coming.len().min(limit);
        for Coming { frame, buffers, verdict } in self.coming.drain(..count) {
            let mut mbuf = over_buffers(pool, &frame, &buffers);
            mbuf.set_rx_info(&RxInfo { l4_checksum: verdict, ..RxInfo::default() });
            burst.push(mbuf);
        }
        count
    }

    fn state(&self) -> RxState {
        RxState::Open
    }

    fn refresh_counters(&mut self) {}
}

fn over_buffers(pool: &Pool, bytes: &[u8], buffers: &[usize]) -> Mbuf {
    let Some((&len, buffers)) = buffers.split_first().filter(|(len, _)| **len < bytes.len()) else {
        return pool.alloc_copy(bytes).unwrap();
    };
    let mut mbuf = pool.alloc_copy(&bytes[..len]).unwrap();
    mbuf.attach(over_buffers(pool, &bytes[len..], buffers));
    mbuf
}

/// The frames sent.
#[derive(Default)]
struct Outbox(Vec<Vec<u8>>);

impl TxQueue for Outbox {
    fn post(&mut self, mbuf: Mbuf, _: Offload) -> Result<(), Mbuf> {
        self.0.push(mbuf.bytes().to_vec());
        mbuf.free();
        Ok(())
    }

    fn ring_doorbell(&mut self, _: Instant) {}

    fn reap(&mut self) -> usize {
        0
    }

    fn room(&mut self) -> usize {
        64
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn refresh_counters(&mut self) {}
}

/// The app's action when it receives data.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AppAction {
    Nothing,
    Pause,
    PauseAndResume,
    Send,
    Shutdown,
    Close,
    Abort,
    AckAtOnce,
}

const APP_ACTIONS: [AppAction; 8] = [
    AppAction::Nothing,
    AppAction::Pause,
    AppAction::PauseAndResume,
    AppAction::Send,
    AppAction::Shutdown,
    AppAction::Close,
    AppAction::Abort,
    AppAction::AckAtOnce,
];

/// An app that records its data, and acts at its second call.
struct Listener {
    action: AppAction,
    given: Vec<(ConnectionId, Vec<u8>)>,
    infos: Vec<TcpInfo>,
    events: Vec<(ConnectionId, TcpEvent)>,
}

impl App for Listener {
    fn on_tcp_event(&mut self, id: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        self.events.push((id, event));
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let id = data.connection;
        self.given.push((id, data.payload.to_vec()));
        assert!(data.hold().bytes() == Some(data.payload), "what is held is what was shown");
        self.infos.extend(cx.tcp().info(id));
        if self.given.len() != 2 {
            return;
        }
        match self.action {
            AppAction::Nothing => (),
            AppAction::Pause => cx.tcp().pause(id).unwrap(),
            AppAction::PauseAndResume => {
                cx.tcp().pause(id).unwrap();
                cx.tcp().resume(id).unwrap();
            }
            AppAction::Send => assert_eq!(cx.tcp().send(id, b"seen"), Ok(4)),
            AppAction::Shutdown => cx.tcp().shutdown(id).unwrap(),
            AppAction::Close => cx.tcp().close(id).unwrap(),
            AppAction::Abort => cx.tcp().abort(id).unwrap(),
            AppAction::AckAtOnce => {
                let options = ConnectionOptions { quickack: true, ..cx.tcp().options(id).unwrap() };
                cx.tcp().set_options(id, &options).unwrap();
            }
        }
    }
}

/// A peer made of headers.
struct Peer {
    port: u16,
    seq: u32,
    ack: u32,
    ts_value: u32,
    ts_echo: u32,
}

/// A segment of a peer.
#[derive(Clone, Debug)]
struct Said {
    peer: usize,
    seq: u32,
    ack: u32,
    flags: TcpFlags,
    window: u16,
    timestamps: Option<(u32, u32)>,
    payload: Vec<u8>,
    flaw: u8,
}

/// The layout of options. Unaligned ones are never merged into a train, and have the same meaning.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    Aligned,
    Odd,
}

impl Said {
    fn frame(&self, port: u16, layout: Layout) -> Vec<u8> {
        let fields = TcpFields {
            source_port: port,
            destination_port: 80,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent_pointer: 0,
        };
        let mut options = Vec::new();
        if let Some((value, echo)) = self.timestamps {
            let times = [&[8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
            options = if layout == Layout::Aligned { [&[1, 1], &times[..]] } else { [&times[..], &[1, 1]] }.concat();
        }
        if self.flags.contains(TcpFlags::SYN) {
            options.extend_from_slice(&[2, 4, 5, 180, 4, 2, 1, 1]);
        }
        let ends = SegmentEnds { from: (address(1), mac(1)), to: (address(2), mac(2)) };
        let mut frame = frame(&ends, &fields, &options, &self.payload);
        frame[14 + 20 + 17] ^= self.flaw;
        frame
    }
}

/// A server, and peers that the test simulates.
struct Stage {
    server: Worker<Wire, Outbox, Stack, Listener>,
    peers: [Peer; 2],
    now: Instant,
    block: Block,
    layout: Layout,
}

impl Stage {
    /// Two connections without data yet. `timestamps` selects the option.
    fn new(action: AppAction, layout: Layout, timestamps: bool, burst_len: usize) -> Self {
        let (block, seed) = (Block::heap(), HashSeed::new(2, 7));
        let (scope, pool) = (block.scope("2"), Pool::heap(256).unwrap());
        let sockets = TcpSocketsConfig {
            machine: TcpConfig { connections_max: 4, chunks_max: 256, ..TcpConfig::default() },
            capabilities: pair("none", MemoryConfig::default()).0.capabilities(),
            seed,
        };
        let parts = Parts {
            rx: Wire::default(),
            tx: Outbox::default(),
            pipeline: stack(2, seed, &scope),
            app: Listener { action, given: Vec::new(), infos: Vec::new(), events: Vec::new() },
            pool,
            host: host(2, seed),
            sockets: UdpSockets::new(SocketCapacity::default(), seed),
            egress: EgressConfig::quiet(seed),
            burst_len,
        };
        let mut server = Worker::new(parts, &scope).with_tcp(TcpSockets::new(&sockets, &scope).unwrap());
        let now = Instant::ZERO + Duration::from_secs(1);
        server.with_app(now, |_, cx| cx.tcp().listen(SERVER, &ListenOptions::default()).unwrap());
        let peers = [5_000, 5_001].map(|port| Peer { port, seq: 7, ack: 0, ts_value: 100, ts_echo: 0 });
        let mut stage = Self { server, peers, now, block, layout };
        (0..2).for_each(|peer| stage.handshake(peer, timestamps));
        stage
    }

    fn handshake(&mut self, peer: usize, timestamps: bool) {
        let mut syn = self.said(peer, b"");
        (syn.flags, syn.timestamps) = (TcpFlags::SYN, timestamps.then_some((100, 0)));
        self.hear(&[syn]);
        let answer = self.server.tx_mut().0.pop().unwrap();
        let parsed = TcpSegment::parse(&answer[34..]).unwrap();
        let times = |option: TcpOption<'_>| match option {
            TcpOption::Timestamps(Timestamps { value, .. }) => Some(value),
            _ => None,
        };
        let reported = parsed.options().flatten().find_map(times);
        assert_eq!(reported.is_some(), timestamps);
        let heard = &mut self.peers[peer];
        (heard.seq, heard.ack, heard.ts_echo) = (8, parsed.header.seq() + 1, reported.unwrap_or(0));
        let mut ack = self.said(peer, b"");
        ack.timestamps = ack.timestamps.filter(|_| timestamps);
        self.hear(&[ack]);
        assert_eq!(self.server.app().events.len(), peer + 1, "connected");
    }

    /// A peer's next segment; its sequence numbers do not advance.
    fn said(&self, peer: usize, payload: &[u8]) -> Said {
        let Peer { seq, ack, ts_value, ts_echo, .. } = self.peers[peer];
        let timestamps = Some((ts_value, ts_echo));
        Said { peer, seq, ack, flags: TcpFlags::ACK, window: 60_000, timestamps, payload: payload.to_vec(), flaw: 0 }
    }

    /// A peer's next bytes, in segments of `len`.
    fn stream(&self, peer: usize, bytes: &[u8], len: usize) -> Vec<Said> {
        let mut said = self.said(peer, b"");
        let segment = |part: &[u8]| {
            let one = Said { payload: part.to_vec(), ..said.clone() };
            said.seq += part.len() as u32;
            one
        };
        bytes.chunks(len).map(segment).collect()
    }

    fn hear(&mut self, said: &[Said]) {
        let coming = said.iter().map(|said| Coming {
            frame: said.frame(self.peers[said.peer].port, self.layout),
            buffers: Vec::new(),
            verdict: ChecksumStatus::Unknown,
        });
        let coming: Vec<_> = coming.collect();
        self.take(coming);
    }

    fn take(&mut self, coming: Vec<Coming>) {
        self.server.rx_mut().coming = coming;
        while !self.server.rx().coming.is_empty() {
            self.now += Duration::from_micros(10);
            self.server.poll_once(self.now);
        }
    }

    /// The result, once there is nothing left to do.
    fn outcome(mut self) -> Outcome {
        (0..400).for_each(|_| {
            self.now += Duration::from_millis(1);
            self.server.poll_once(self.now);
        });
        let now = self.now;
        let infos = self.server.with_app(now, |app, cx| {
            let ids: Vec<_> = app.events.iter().map(|(id, _)| *id).collect();
            ids.into_iter().map(|id| cx.tcp().info(id)).collect()
        });
        let tally = self.server.tcp().tally();
        assert_eq!(self.server.pool().drops_without_reason(), 0);
        let in_use = self.server.pool().in_use();
        let drops = self.block.snapshot();
        let names = ["segments_in", "payload_bytes_in", "drop/not_acceptable", "drop/bad_ack", "drop/bad_checksum"];
        let counts = names.map(|name| drops.count(&format!("2/tcp/{name}")).unwrap());
        let sent = core::mem::take(&mut self.server.tx_mut().0);
        let Listener { given, infos: seen, events, .. } = self.server.into_app();
        Outcome { given, seen, events, infos, tally, in_use, counts, sent }
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    given: Vec<(ConnectionId, Vec<u8>)>,
    /// The app's view of the connection at each call.
    seen: Vec<TcpInfo>,
    events: Vec<(ConnectionId, TcpEvent)>,
    infos: Vec<Option<TcpInfo>>,
    tally: TcpTally,
    in_use: usize,
    counts: [u64; 5],
    sent: Vec<Vec<u8>>,
}

/// One segment of six differs from those around it.
type Mutation = (&'static str, fn(&mut Vec<Said>));

const MUTATIONS: &[Mutation] = &[
    ("as the others", |_| ()),
    ("acknowledges what was not sent", |said| said[3].ack += 1),
    ("acknowledges less", |said| said[3].ack -= 1),
    ("another window", |said| said[3].window = 30_000),
    ("no window", |said| said[3].window = 0),
    ("of a later time", |said| said[3..].iter_mut().for_each(|said| said.timestamps = Some((101, 0)))),
    ("of the past", |said| said[3].timestamps = said[3].timestamps.map(|(value, echo)| (value - 1, echo))),
    ("without its time", |said| said[3].timestamps = None),
    ("the time of who has none", |said| said[3].timestamps = Some((1, 1))),
    ("missing", |said| _ = said.remove(3)),
    ("late", |said| said.swap(3, 4)),
    ("twice", |said| said.insert(3, said[3].clone())),
    ("partly twice", |said| {
        let old = said[3].payload.clone();
        said[3].seq -= 10;
        said[3].payload = [&[0; 10], &old[..]].concat();
    }),
    ("the last", |said| said[3].flags = TcpFlags::ACK | TcpFlags::FIN),
    ("the last of all", |said| said[5].flags = TcpFlags::ACK | TcpFlags::FIN | TcpFlags::PSH),
    ("pushed", |said| said[3].flags = TcpFlags::ACK | TcpFlags::PSH),
    ("all pushed", |said| said.iter_mut().for_each(|said| said.flags = TcpFlags::ACK | TcpFlags::PSH)),
    ("a reset", |said| said[3].flags = TcpFlags::RST),
    ("a SYN", |said| said[3].flags = TcpFlags::SYN | TcpFlags::ACK),
    ("without ACK", |said| said[3].flags = TcpFlags::NONE),
    ("urgent", |said| said[3].flags = TcpFlags::ACK | TcpFlags::URG),
    ("congested", |said| said[3].flags = TcpFlags::ACK | TcpFlags::ECE),
    ("empty", |said| {
        let empty = Said { payload: Vec::new(), ..said[3].clone() };
        said.insert(3, empty);
    }),
    ("broken", |said| said[3].flaw = 1),
    ("shorter", |said| {
        said.truncate(4);
        said[3].payload.truncate(77);
    }),
    ("of another connection", |said| {
        let other = Said { peer: 1, seq: 8, ..said[3].clone() };
        said.insert(3, other);
    }),
];

fn outcome(action: AppAction, mutation: &Mutation, layout: Layout, timestamps: bool, burst_len: usize) -> Outcome {
    let mut stage = Stage::new(action, layout, timestamps, burst_len);
    let mut said = stage.stream(0, &pattern(6_000), 1_000);
    if !timestamps {
        said.iter_mut().for_each(|said| said.timestamps = None);
    }
    (mutation.1)(&mut said);
    // Each connection has its own sequence numbers.
    for said in said.iter_mut().filter(|said| said.peer == 1) {
        (said.ack, said.timestamps) = (stage.peers[1].ack, said.timestamps.map(|_| (100, stage.peers[1].ts_echo)));
    }
    stage.hear(&said);
    stage.outcome()
}

#[test]
fn train_comes_to_what_its_segments_come_to_one_by_one() {
    for mutation in MUTATIONS {
        for action in APP_ACTIONS {
            for burst_len in [1, 2, 32] {
                let by_train = outcome(action, mutation, Layout::Aligned, true, burst_len);
                let by_phases = outcome(action, mutation, Layout::Odd, true, burst_len);
                assert_eq!(by_train, by_phases, "{} and {action:?} in bursts of {burst_len}", mutation.0);
            }
        }
    }
}

/// Without options there is no layout to distinguish the two: the bytes show the result.
#[test]
fn train_without_timestamps_delivers_each_byte_once() {
    for mutation in MUTATIONS {
        let Outcome { given, .. } = outcome(AppAction::Nothing, mutation, Layout::Aligned, false, 32);
        let first = given.first().map(|(id, _)| *id);
        let bytes: Vec<u8> =
            given.into_iter().filter(|(id, _)| Some(*id) == first).flat_map(|(_, part)| part).collect();
        assert!(bytes.len() >= 3_000 && pattern(6_000).starts_with(&bytes), "{}: {}", mutation.0, bytes.len());
    }
}

#[test]
fn two_trains_that_take_turns_are_told_apart() {
    for layout in [Layout::Aligned, Layout::Odd] {
        let mut stage = Stage::new(AppAction::Nothing, layout, true, 32);
        let [a, b] = [0, 1].map(|peer| stage.stream(peer, &pattern(4_000 + peer * 4_000), 500 + peer * 500));
        let said: Vec<_> = a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect();
        stage.hear(&said);
        let (ids, Outcome { given, .. }) = (stage.server.app().events.clone(), stage.outcome());
        for (peer, (id, _)) in ids.into_iter().enumerate() {
            let of_it = given.iter().filter(|(whose, _)| *whose == id);
            let bytes: Vec<u8> = of_it.flat_map(|(_, part)| part.clone()).collect();
            assert!(bytes == pattern(4_000 + peer * 4_000), "{peer}");
        }
    }
}

/// RFC 5681 4.2: at least every second full segment, at the end of its burst.
#[test]
fn burst_of_a_train_is_acknowledged_at_its_end_once() {
    let mut stage = Stage::new(AppAction::Nothing, Layout::Aligned, true, 32);
    // After the first segments, each of which is acknowledged.
    let said = stage.stream(0, &pattern(60_000), 1_000);
    for (burst, acked) in [(0..30, 30_000), (30..32, 32_000), (32..33, 32_000), (33..60, 60_000)] {
        let before = stage.server.tx_mut().0.len();
        stage.hear(&said[burst.clone()]);
        let sent = &stage.server.tx_mut().0;
        assert_eq!(sent.len() - before, usize::from(burst.len() > 1), "{burst:?}");
        let last = TcpSegment::parse(&sent.last().unwrap()[34..]).unwrap().header.ack();
        assert_eq!(last, 8 + acked, "{burst:?}");
    }
}

#[test]
fn answer_from_within_a_train_acknowledges_what_the_app_has_seen() {
    let mut stage = Stage::new(AppAction::Send, Layout::Aligned, true, 32);
    let said = stage.stream(0, &pattern(6_000), 1_000);
    stage.hear(&said);
    let acks: Vec<_> =
        stage.server.tx_mut().0.iter().map(|sent| TcpSegment::parse(&sent[34..]).unwrap().header.ack()).collect();
    assert_eq!(acks, [8 + 2_000, 8 + 6_000], "with the answer, and at the end of the burst");
}

/// The output of a device with LRO: the segments of a train as one, in buffers of any length.
fn merged(stage: &Stage, bytes: &[u8], buffers: &[usize], verdict: ChecksumStatus) -> Coming {
    let said = stage.said(0, bytes);
    Coming { frame: said.frame(5_000, Layout::Aligned), buffers: buffers.to_vec(), verdict }
}

/// Buffers of a merged segment: only the headers, split headers, headers with some bytes, and
/// several full ones.
const BUFFERS: [&[usize]; 6] = [
    &[66, 1_448, 1_448, 1_448],
    &[1_514, 1_448, 1_448],
    &[66, 1, 2, 3, 1_500, 1_500, 1_500],
    &[1_500, 1_500, 1_500],
    &[54, 1_500, 1_500, 1_500],
    &[100, 1_500, 1_500, 1_500],
];

#[test]
fn merged_segment_is_shown_where_it_lies_whatever_buffers_it_came_over() {
    let bytes = pattern(5_500);
    for buffers in BUFFERS {
        for verdict in [ChecksumStatus::Good, ChecksumStatus::Unknown] {
            if verdict == ChecksumStatus::Good && buffers[0] < 66 {
                // A checksum can be verified only if the first buffer has the headers.
                continue;
            }
            let mut stage = Stage::new(AppAction::Nothing, Layout::Aligned, true, 32);
            stage.take(vec![merged(&stage, &bytes, buffers, verdict)]);
            let out = stage.outcome();
            let given: Vec<u8> = out.given.iter().flat_map(|(_, part)| part.clone()).collect();
            assert!(given == bytes, "{buffers:?}");
            assert_eq!(out.in_use, 0, "every buffer is home");
            let last = TcpSegment::parse(&out.sent.last().unwrap()[34..]).unwrap().header.ack();
            assert_eq!(last, 8 + 5_500, "all of it is acknowledged");
        }
    }
}

#[test]
fn merged_segment_in_one_large_buffer_is_taken_as_one() {
    let bytes = pattern(1_500);
    let mut stage = Stage::new(AppAction::Nothing, Layout::Aligned, true, 32);
    stage.take(vec![merged(&stage, &bytes, &[], ChecksumStatus::Good)]);
    let given = &stage.server.app().given;
    assert!(given.len() == 1 && given[0].1 == bytes, "longer than a segment that we told of");
}

#[test]
fn app_that_acts_between_two_buffers_of_a_merged_segment_is_heeded() {
    let (bytes, buffers) = (pattern(5_500), BUFFERS[0]);
    for action in APP_ACTIONS {
        let mut stage = Stage::new(action, Layout::Aligned, true, 32);
        stage.take(vec![merged(&stage, &bytes, buffers, ChecksumStatus::Good)]);
        let id = stage.server.app().given[0].0;
        let ends = matches!(action, AppAction::Pause | AppAction::Close | AppAction::Abort);
        assert_eq!(stage.server.app().given.len(), if ends { 2 } else { 4 }, "{action:?}");
        if action == AppAction::Pause {
            let now = stage.now;
            stage.server.with_app(now, |_, cx| cx.tcp().resume(id).unwrap());
        }
        let out = stage.outcome();
        let given: Vec<u8> = out.given.iter().flat_map(|(_, part)| part.clone()).collect();
        assert!(given == bytes || action != AppAction::Pause && ends && bytes.starts_with(&given), "{action:?}");
        assert_eq!(out.in_use, usize::from(action == AppAction::Send), "{action:?}: but what was not acknowledged");
    }
}

#[test]
fn merged_segment_that_was_partly_seen_comes_late_or_is_the_last_is_put_where_it_belongs() {
    let bytes = pattern(9_000);
    let mut stage = Stage::new(AppAction::Nothing, Layout::Aligned, true, 32);
    let part = |stage: &Stage, from: usize, to: usize, fin: bool| {
        let mut said = stage.said(0, &bytes[from..to]);
        said.seq += from as u32;
        said.flags = if fin { TcpFlags::ACK | TcpFlags::FIN } else { TcpFlags::ACK };
        let frame = said.frame(5_000, Layout::Aligned);
        Coming { frame, buffers: BUFFERS[1].to_vec(), verdict: ChecksumStatus::Good }
    };
    // Beyond a hole, with the end of all; before it; across both, where whole buffers are old data.
    stage.take(vec![part(&stage, 5_000, 9_000, true)]);
    assert!(stage.server.app().given.is_empty());
    stage.take(vec![part(&stage, 0, 3_100, false)]);
    stage.take(vec![part(&stage, 1_000, 6_000, false)]);
    let out = stage.outcome();
    let given: Vec<u8> = out.given.iter().flat_map(|(_, part)| part.clone()).collect();
    assert!(given == bytes);
    assert_eq!(out.events.last().map(|(_, event)| *event), Some(TcpEvent::PeerClosed));
    assert_eq!(out.in_use, 0, "every buffer is home");
}

#[test]
fn merged_segment_that_is_broken_is_dropped_whole() {
    let mut stage = Stage::new(AppAction::Nothing, Layout::Aligned, true, 32);
    let mut coming = merged(&stage, &pattern(5_500), BUFFERS[0], ChecksumStatus::Unknown);
    *coming.frame.last_mut().unwrap() ^= 1;
    stage.take(vec![coming, merged(&stage, &pattern(5_500), BUFFERS[0], ChecksumStatus::Bad)]);
    assert!(stage.server.app().given.is_empty());
    assert_eq!((stage.outcome().counts[4], 0), (2, 0), "both by name");
}
