//! Several apps on one worker, over a wire of plain memory in virtual time.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::net::SocketAddrV4;

use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, pair};
use wirepath::device::{Device, Queue};
use wirepath::pipeline::tcp::{AcceptDecision, ListenerId, TcpConfig};
use wirepath::pipeline::{ForConsumers, HostStack};
use wirepath::prelude::*;
use wirepath::proto::{Flow, Group, Sharing};
use wirepath::worker::Worker;

type End<A> = Worker<
    <<MemoryDevice as Device>::Queue as Queue>::Rx,
    <<MemoryDevice as Device>::Queue as Queue>::Tx,
    HostStack,
    A,
>;

const GROUP: [u8; 4] = [239, 1, 1, 1];
const NEAR: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(192, 0, 2, 1), 80);
const FAR: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(192, 0, 2, 2), 81);

/// Records its calls.
#[derive(Default)]
struct Story(Vec<String>);

impl App for Story {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        self.0.push(datagram.payload.escape_ascii().to_string());
    }

    fn on_tcp_event(&mut self, _: ConnectionId, event: TcpEvent, _: &mut Cx<'_>) {
        let word = match event {
            TcpEvent::Connected { .. } => "connected".into(),
            TcpEvent::Closed(reason) => format!("{reason:?}"),
            other => format!("{other:?}"),
        };
        self.0.push(word);
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, _: &mut Cx<'_>) {
        self.0.push(data.payload.escape_ascii().to_string());
    }

    fn on_timer(&mut self, token: u64, _: &mut Cx<'_>) {
        self.0.push(format!("timer {token}"));
    }
}

/// Sets a timer when it starts.
struct Timed(Story, u64);

impl App for Timed {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        cx.after(Duration::from_millis(1), self.1)?;
        Ok(())
    }

    fn on_timer(&mut self, token: u64, cx: &mut Cx<'_>) {
        self.0.on_timer(token, cx);
    }
}

struct Wire<A, B> {
    near: End<A>,
    far: End<B>,
    now: Instant,
}

impl<A: App, B: App> Wire<A, B> {
    fn new(near: A, far: B) -> Self {
        let ((mut one, mut other), block) = (pair("several-apps", MemoryConfig::default()), Block::heap());
        let one = Worker::builder(&mut one).unwrap().address("192.0.2.1/24".parse().unwrap()).tcp(TcpConfig::default());
        let other = Worker::builder(&mut other).unwrap().address("192.0.2.2/24".parse().unwrap());
        let near = one.build(near, &block.scope("near")).unwrap();
        let far = other.tcp(TcpConfig::default()).build(far, &block.scope("far")).unwrap();
        Self { near, far, now: Instant::ZERO + Duration::from_secs(1) }
    }

    fn turn(&mut self, turns: u32) {
        for _ in 0..turns {
            self.now += Duration::from_millis(1);
            self.near.poll_once(self.now);
            self.far.poll_once(self.now);
        }
    }
}

fn two(first: Story, second: Story) -> (ForConsumers<Story>, ForConsumers<Story>) {
    (for_consumers(0..2, first), for_consumers(2..3, second))
}

#[test]
fn each_app_gets_the_datagrams_of_its_consumers() {
    let mut wire = Wire::new(two(Story::default(), Story::default()), ());
    wire.near.with_app(wire.now, |_, cx| {
        for (consumer, port) in [(0, 9_000), (1, 9_001), (2, 9_002)] {
            cx.udp().join(ConsumerId(consumer), Group::new(GROUP.into(), port)).unwrap();
        }
    });
    for port in [9_000, 9_001, 9_002, 9_003] {
        let (to, payload) = (SocketAddrV4::new(GROUP.into(), port), port.to_string());
        let sent = |cx: &mut Cx<'_>| cx.udp().send_to(FAR, to, &UdpOptions::default(), payload.as_bytes());
        wire.far.with_app(wire.now, |(), cx| sent(cx)).unwrap();
    }
    wire.turn(2);
    let (first, second) = wire.near.app();
    assert_eq!((&first.app().0[..], &second.app().0[..]), (&["9000".into(), "9001".into()][..], &["9002".into()][..]));
}

#[test]
fn app_of_a_tuple_without_a_share_gets_everything() {
    let mut wire = Wire::new((Story::default(), for_consumers(1..2, Story::default()), ()), ());
    wire.near.with_app(wire.now, |_, cx| {
        cx.udp().bind(ConsumerId(0), NEAR, Sharing::Shared).unwrap();
        cx.udp().bind(ConsumerId(1), NEAR, Sharing::Shared).unwrap();
    });
    wire.far.with_app(wire.now, |(), cx| cx.udp().send_to(FAR, NEAR, &UdpOptions::default(), b"tick")).unwrap();
    wire.turn(4);
    let (all, own, ()) = wire.near.app();
    assert_eq!((all.0.len(), own.app().0.len()), (2, 1));
}

#[test]
fn timers_of_apps_with_the_same_tokens_come_to_who_set_them() {
    let apps = [7, 7, 8].map(|token| Timed(Story::default(), token));
    let [first, second, third] = apps;
    let mut wire = Wire::new((for_consumers(0..1, first), for_consumers(1..2, second), third), ());
    wire.near.with_app(wire.now, |apps, cx| apps.on_start(cx)).unwrap();
    wire.turn(5);
    let (first, second, third) = wire.near.app();
    assert_eq!(first.app().0.0, ["timer 7"]);
    assert_eq!(second.app().0.0, ["timer 7"]);
    assert_eq!(third.0.0, ["timer 7", "timer 7", "timer 8"], "it has no share of its own");
}

/// Gives each peer the same answer.
struct Accepting(AcceptDecision);

impl App for Accepting {
    fn on_tcp_accept(&mut self, _: ListenerId, _: ConsumerId, _: Flow) -> AcceptDecision {
        self.0
    }
}

#[test]
fn app_decides_about_the_peers_of_its_own_listeners() {
    let apps = [AcceptDecision::Refuse, AcceptDecision::Yes].map(Accepting);
    let [first, second] = apps;
    let mut wire = Wire::new((for_consumers(0..2, first), for_consumers(2..3, second)), Story::default());
    let now = wire.now;
    let listen = |cx: &mut Cx<'_>, port, consumer| {
        let options = ListenOptions { consumer: ConsumerId(consumer), ..ListenOptions::default() };
        cx.tcp().listen(SocketAddrV4::new(*NEAR.ip(), port), &options).unwrap();
    };
    wire.near.with_app(now, |_, cx| listen(cx, 80, 1));
    wire.near.with_app(now, |_, cx| listen(cx, 81, 2));
    // A listener of no app's consumer: no one would hear of its connections.
    wire.near.with_app(now, |_, cx| listen(cx, 82, 9));
    for (port, expected) in [(80, "Refused"), (81, "connected"), (82, "Refused")] {
        wire.far.with_app(now, |_, cx| {
            let to = SocketAddrV4::new(*NEAR.ip(), port);
            let local = SocketAddrV4::new(*FAR.ip(), 0);
            cx.tcp().connect(local, to, &ConnectionOptions::default(), ConsumerId(0)).unwrap()
        });
        wire.turn(10);
        assert_eq!(wire.far.app().0.last().map(String::as_str), Some(expected), "port {port}");
    }
}

#[test]
fn apps_for_the_same_consumer_do_not_start() {
    let start = |one, other, third| {
        let apps = (for_consumers(one, ()), (for_consumers(other, ()), (), for_consumers(third, ())));
        let mut wire = Wire::new(apps, ());
        wire.near.with_app(wire.now, |apps, cx| apps.on_start(cx)).map_err(|error| error.to_string())
    };
    assert_eq!(start(0..2, 2..3, 3..4), Ok(()));
    let error = start(5..9, 0..2, 1..3).unwrap_err();
    assert!(error.starts_with("two apps of the worker have the consumers 0..2 and 1..3: "), "{error}");
    assert!(start(3..3, 0..1, 3..4).is_err(), "they would share their timers");
    assert_eq!(start(0..10, 5..5, 20..21), Ok(()), "an empty range shares nothing");
}

#[test]
fn connections_are_told_to_their_app_to_the_last_event() {
    let mut wire = Wire::new(two(Story::default(), Story::default()), Story::default());
    wire.far.with_app(wire.now, |_, cx| cx.tcp().listen(FAR, &ListenOptions::default())).unwrap();
    let call = |cx: &mut Cx<'_>, port, consumer| {
        let to = SocketAddrV4::new(*FAR.ip(), port);
        let local = SocketAddrV4::new(*NEAR.ip(), 0);
        cx.tcp().connect(local, to, &ConnectionOptions::default(), ConsumerId(consumer)).unwrap()
    };
    let now = wire.now;
    let (first, _) = wire.near.with_app(now, |_, cx| (call(cx, FAR.port(), 0), call(cx, 9, 2)));
    wire.turn(10);
    wire.near.with_app(now, |_, cx| cx.tcp().abort(first)).unwrap();
    wire.turn(10);
    let (first, second) = wire.near.app();
    assert_eq!(
        (&first.app().0[..], &second.app().0[..]),
        (&["connected".into(), "Aborted".into()][..], &["Refused".into()][..])
    );
}
