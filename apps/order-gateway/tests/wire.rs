//! A gateway on a worker of wirepath: its venue is reached by our TCP over a wire of plain memory,
//! and its feed comes by the same wire.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use common::{Buyer, RESERVE, SECOND, SYMBOL, Venue, config, session};
use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::itch50::{AddOrder, Head, Message};
use market::{Capacity, Locate, Price};
use order_entry::journal::Journal;
use order_entry::ouch::OuchClient;
use order_entry::risk::KillSwitch;
use order_gateway::host::{Host, Listener, Stream, Waits};
use order_gateway::latency::{Arrival, IDLE_NS, Latency, Stage};
use order_gateway::standby::StandbyLink;
use order_gateway::wire::{WireCounts, WireGateway, WireHost, consumer};
use order_gateway::{Core, CoreConfig, Feed, FeedConfig, Gateway, KillLine, LineConfig, Run};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::pipeline::HostStack;
use wirepath::prelude::*;
use wirepath::proto::{Group, HashSeed, Ipv4Prefix};
use wirepath::wire::MacAddr;
use wirepath::worker::Worker;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const VENUE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 9_100);
const FEED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 1), 26_477);
const STEP: Duration = Duration::from_micros(10);

/// The kernel of the test, whose time is that of the turns.
#[derive(Clone, Debug)]
struct Kernel(Rc<Cell<u64>>);

impl Host for Kernel {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        Err(ErrorKind::ConnectionRefused.into())
    }
}

/// The gateway, and what it did in the call of each tick.
struct Watched {
    gateway: WireGateway<Buyer, OuchClient, Vec<u8>, Kernel>,
    /// Its last connection.
    connection: Option<ConnectionId>,
    /// How its requests had left when the call was over, and what it had allocated.
    ticks: Vec<(WireCounts, u64)>,
}

impl App for Watched {
    fn on_start(&mut self, cx: &mut Cx<'_>) -> Result<(), AppError> {
        self.gateway.on_start(cx)
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, cx: &mut Cx<'_>) {
        let before = allocations::count();
        self.gateway.on_datagram(datagram, cx);
        self.ticks.push((self.gateway.counts(), allocations::count() - before));
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        self.connection = Some(connection);
        self.gateway.on_tcp_event(connection, event, cx);
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        self.gateway.on_tcp_data(data, cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.gateway.tick(cx);
    }
}

/// The venue, and the feed beside it.
struct Exchange {
    venue: Venue,
    connection: Option<ConnectionId>,
    connections: usize,
    has_heard: bool,
    next_seq: u64,
}

impl Exchange {
    /// A packet of the feed with an order to buy at `bid` cents, and at first one to sell.
    fn tick(&mut self, bid: i64, cx: &mut Cx<'_>) {
        let mut bytes = [0; 512];
        let header = MoldHeader::new(*b"DAY       ", self.next_seq);
        let mut packet = PacketWriter::<MoldUdp64>::new(header, &mut bytes).unwrap();
        let offer = (self.next_seq == 1).then_some((b'S', 11_000));
        for (side, cents) in offer.into_iter().chain([(b'B', bid)]) {
            let head = Head::new(AddOrder::KIND, Locate(1), 0);
            let price = u32::try_from(Price::from_cents(cents).0).unwrap().into();
            let add = AddOrder { head, order: self.next_seq.into(), side, shares: 100.into(), stock: SYMBOL, price };
            packet.push(Message::from(&add).as_bytes()).unwrap();
            self.next_seq += 1;
        }
        let ours = SocketAddrV4::new(*VENUE.ip(), 26_477);
        send_to(ours, FEED, &UdpOptions::default(), packet.finish(), cx).unwrap();
    }
}

impl App for Exchange {
    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { .. } => {
                self.connection = Some(connection);
                (self.connections, self.has_heard) = (self.connections + 1, false);
            }
            TcpEvent::PeerClosed => _ = cx.tcp().close(connection),
            TcpEvent::Closed(_) => {
                self.venue.disconnected();
                self.connection = None;
            }
            _ => (),
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let now_ns = cx.now.as_nanos();
        let answers = match std::mem::replace(&mut self.has_heard, true) {
            true => self.venue.answers_to_more(data.payload, now_ns),
            false => self.venue.answers_to(data.payload, now_ns),
        };
        assert_eq!(cx.tcp().send(data.connection, &answers), Ok(answers.len()));
    }
}

type End<A> = Worker<MemoryRx, MemoryTx, HostStack, A>;

/// Both ends.
struct Both {
    near: End<Watched>,
    far: End<Exchange>,
    kernel: Kernel,
    said: Rc<std::cell::RefCell<Vec<String>>>,
    now: Instant,
}

impl Both {
    /// An armed gateway whose session is open, and whose feed has brought a first packet.
    fn new(kill: &KillSwitch) -> Self {
        Self::of(kill, &ListenOptions::default())
    }

    fn of(kill: &KillSwitch, listen: &ListenOptions) -> Self {
        let (mut near, mut far) = pair("wire", MemoryConfig::default());
        let kernel = Kernel(Rc::new(Cell::new(SECOND)));
        let machine = WireHost::new(kernel.clone(), [Some(VENUE), None]);
        let handle = machine.handle();
        let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
        let kill_line = KillLine { after_ns: Some(SECOND), cancels_on_disconnect: false };
        let core = Core::new(CoreConfig { kill_line, ..config(kill) }, session(), journal);
        let mut run = Run::new(Gateway::new(Buyer::default(), core), LineConfig::new(VENUE), Box::new(machine));
        let books = Capacity { books: 4, orders: 64, levels: 64 };
        run.feed = Some((Feed::new(&[SYMBOL], &FeedConfig { books, ..FeedConfig::default() }), Vec::new()));
        run.gateway.core_mut().arm(SECOND);
        let said = Rc::new(std::cell::RefCell::new(Vec::new()));
        let hear = said.clone();
        let report = move |sentence: &str| hear.borrow_mut().push(sentence.to_owned());
        let gateway = WireGateway::new(run, handle, [40_000, 40_001], report);
        let watched = Watched { gateway, connection: None, ticks: Vec::with_capacity(64) };
        let venue = Venue::new();
        let exchange = Exchange { venue, connection: None, connections: 0, has_heard: false, next_seq: 1 };
        let (near, far) = (worker(&mut near, 1, watched), worker(&mut far, 2, exchange));
        let mut both = Self { near, far, kernel, said, now: Instant::from_nanos(SECOND) };
        both.near.with_app(both.now, |app, cx| {
            app.on_start(cx).unwrap();
            cx.sockets.join(consumer::FEED, Group::new(*FEED.ip(), FEED.port())).unwrap();
        });
        both.far.with_app(both.now, |_, cx| cx.tcp().listen(VENUE, listen)).unwrap();
        both.turns(50);
        assert!(both.near.app().gateway.run.gateway.strategy().is_open, "{:?}", both.said.borrow());
        both
    }

    fn turn_near(&mut self) {
        self.now += STEP;
        self.kernel.0.set(self.now.as_nanos());
        self.near.poll_once(self.now);
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn_near();
            self.far.poll_once(self.now);
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        self.turns(50);
    }

    fn tick(&mut self, bid: i64) {
        self.far.with_app(self.now, |exchange, cx| exchange.tick(bid, cx));
    }

    fn orders(&self) -> Vec<u64> {
        self.far.app().venue.orders.iter().map(|order| order.price.get()).collect()
    }
}

/// A host of that number.
fn worker<A: App>(device: &mut MemoryDevice, number: u8, app: A) -> End<A> {
    let address = Ipv4Prefix::new(Ipv4Addr::new(192, 0, 2, number), 24).unwrap();
    let builder = Worker::builder(device).unwrap().address(address).mac(MacAddr([2, 0, 0, 0, 0, number]));
    let builder = builder.seed(HashSeed::new(1, 2)).tcp(TcpConfig::default());
    builder.build(app, &Block::heap().scope("end")).unwrap()
}

#[test]
fn order_leaves_in_the_call_of_its_tick_and_not_behind_the_burst() {
    let mut both = Both::new(&KillSwitch::new());
    // The first of a length goes without a prepared segment, in the same call.
    both.tick(10_000);
    both.turns(4);
    assert_eq!((both.orders(), both.near.app().gateway.counts()), (vec![1_000_000], WireCounts { fired: 0, sent: 1 }));
    let burst = [10_001, 10_002, 10_003];
    burst.into_iter().for_each(|bid| both.tick(bid));
    both.near.app_mut().ticks.clear();
    both.turn_near();
    let fired = [1, 2, 3].map(|fired| (WireCounts { fired, sent: 1 }, 0));
    assert_eq!(both.near.app().ticks, fired, "each in its own call, which allocates nothing");
    both.far.poll_once(both.now);
    assert_eq!(both.orders(), [1_000_000, 1_000_100, 1_000_200, 1_000_300]);
    // The venue hears no byte twice, and its answers find their orders.
    both.far.with_app(both.now, |exchange, cx| {
        (0..4).for_each(|idx| exchange.venue.accept(idx, cx.now.as_nanos()));
        exchange.venue.fill(3, 100, 1, cx.now.as_nanos());
        let bytes = exchange.venue.answers_to_more(&[], cx.now.as_nanos());
        assert_eq!(cx.tcp().send(exchange.connection.unwrap(), &bytes), Ok(bytes.len()));
    });
    both.turns(4);
    let core = both.near.app().gateway.run.gateway.core();
    assert_eq!((core.orders().live_count(), core.risk().position(common::STOCK)), (3, Some(100)));
    assert_eq!(core.counts().alarms, 0);
}

#[test]
fn measured_order_leaves_in_the_call_of_its_tick_which_allocates_nothing() {
    let mut both = Both::new(&KillSwitch::new());
    both.near.app_mut().gateway.run.gateway.measure(Latency::start(IDLE_NS));
    both.tick(10_000);
    both.turns(4);
    [10_001, 10_002, 10_003].into_iter().for_each(|bid| both.tick(bid));
    both.near.app_mut().ticks.clear();
    both.turn_near();
    let fired = [1, 2, 3].map(|fired| (WireCounts { fired, sent: 1 }, 0));
    assert_eq!(both.near.app().ticks, fired);
    let latency = both.near.app().gateway.run.gateway.latency().unwrap();
    for stage in [Stage::PollToDecoded, Stage::DecodedToDecided, Stage::DecidedToPosted, Stage::PollToPosted] {
        let counts = [Arrival::AfterIdle, Arrival::First].map(|arrival| latency.histogram(stage, arrival).len());
        assert_eq!(counts.iter().sum::<u64>(), 2, "{stage:?}: the first packet of each poll");
        assert_eq!(latency.histogram(stage, Arrival::Later).len(), 2, "{stage:?}");
    }
    assert_eq!((latency.measured(), latency.histogram(Stage::WireToPoll, Arrival::Later).len()), (4, 0));
}

#[test]
fn prepared_segments_are_those_of_the_connection_that_is() {
    let mut both = Both::new(&KillSwitch::new());
    (0..3).for_each(|idx| {
        both.tick(10_000 + idx);
        both.turns(4);
    });
    assert_eq!(both.near.app().gateway.counts(), WireCounts { fired: 2, sent: 1 });
    let connection = both.far.app().connection.unwrap();
    both.far.with_app(both.now, |_, cx| cx.tcp().abort(connection)).unwrap();
    both.turns(4);
    assert!(both.said.borrow().iter().any(|said| said.contains("reset by the peer")), "{:?}", both.said.borrow());
    both.pass(Duration::from_secs(1));
    assert_eq!(both.far.app().connections, 2, "{:?}", both.said.borrow());
    both.tick(10_003);
    both.turns(4);
    both.tick(10_004);
    both.turns(4);
    assert_eq!(both.near.app().gateway.counts(), WireCounts { fired: 3, sent: 2 });
    assert_eq!(both.orders().len(), 5);
}

#[test]
fn venue_that_is_not_there_is_called_again() {
    let mut both = Both::new(&KillSwitch::new());
    // Its program ends, and starts again later.
    both.far.with_app(both.now, |exchange, cx| {
        let connection = exchange.connection.unwrap();
        cx.tcp().abort(connection).unwrap();
    });
    both.turns(4);
    assert!(!both.near.app().gateway.run.gateway.strategy().is_open);
    let silent: Vec<_> = both.near.app().gateway.run.gateway.strategy().refusals.clone();
    both.tick(10_000);
    both.turns(2);
    assert_eq!(both.near.app().gateway.run.gateway.strategy().refusals.len(), silent.len() + 1, "no session, no order");
    both.pass(Duration::from_secs(1));
    assert!(both.near.app().gateway.run.gateway.strategy().is_open);
}

#[test]
fn killed_gateway_logs_out_over_wirepaths_tcp_too() {
    let kill = KillSwitch::new();
    let mut both = Both::new(&kill);
    kill.throw();
    both.turns(2);
    both.pass(Duration::from_secs(1));
    assert!(both.said.borrow().iter().any(|said| said.contains("logged out until somebody arms")));
    assert!(both.near.app().gateway.is_closed() && both.far.app().connection.is_none());
    both.pass(Duration::from_secs(5));
    assert_eq!(both.far.app().connections, 1);
}

/// Without TCP timestamps of the venue the port of a connection that we have closed rests for a
/// minute.
#[test]
fn gateway_that_is_armed_behind_its_kill_calls_at_once_from_its_other_port() {
    let kill = KillSwitch::new();
    let connection = ConnectionOptions { timestamps: false, ..ConnectionOptions::default() };
    let mut both = Both::of(&kill, &ListenOptions { connection, ..ListenOptions::default() });
    kill.throw();
    both.turns(2);
    both.pass(Duration::from_secs(1));
    assert!(both.near.app().gateway.is_closed());
    let now_ns = both.now.as_nanos();
    both.near.app_mut().gateway.run.gateway.core_mut().arm(now_ns);
    both.pass(Duration::from_secs(2));
    assert_eq!(both.far.app().connections, 2, "{:?}", both.said.borrow());
    assert!(both.near.app().gateway.run.gateway.strategy().is_open);
}

#[test]
fn order_that_tcp_does_not_take_is_not_counted_as_sent() {
    let mut both = Both::new(&KillSwitch::new());
    both.near.with_app(both.now, |app, cx| cx.tcp().close(app.connection.unwrap())).unwrap();
    both.tick(10_000);
    both.turn_near();
    assert_eq!(both.near.app().gateway.counts(), WireCounts::default());
}

#[test]
fn gateway_that_has_logged_out_calls_no_more_and_hears_no_tick() {
    let mut both = Both::new(&KillSwitch::new());
    both.near.with_app(both.now, |app, cx| app.gateway.log_out(cx));
    // The venue delays its acknowledgment for a millisecond.
    both.turns(200);
    assert!(both.far.app().connection.is_none());
    both.tick(10_000);
    both.pass(Duration::from_secs(9));
    assert_eq!((both.far.app().connections, both.orders()), (1, vec![]));
}

#[test]
fn kill_behind_the_last_turn_is_obeyed_before_the_logout_over_wirepaths_tcp_too() {
    let kill = KillSwitch::new();
    let mut both = Both::new(&kill);
    both.tick(10_000);
    both.turns(4);
    kill.throw();
    both.near.with_app(both.now, |app, cx| app.gateway.log_out(cx));
    assert!(!both.near.app().gateway.is_closed(), "the venue has acknowledged nothing");
    both.turns(10);
    assert_eq!(both.far.app().venue.mass_cancels, 1);
    assert!(both.near.app().gateway.is_closed() && both.far.app().connection.is_none());
}

#[test]
fn gateway_that_logs_out_waits_no_longer_than_it_is_polled_for_a_venue_that_acknowledges_nothing() {
    let mut both = Both::new(&KillSwitch::new());
    both.near.with_app(both.now, |app, cx| app.gateway.log_out(cx));
    (0..10).for_each(|_| both.turn_near());
    assert!(!both.near.app().gateway.is_closed());
    both.near.with_app(both.now, |app, cx| app.gateway.end_leaving(cx));
    assert!(both.near.app().gateway.is_closed());
    // What TCP still has leaves within a second, or never.
    let connection = both.near.app().connection.unwrap();
    let options = both.near.with_app(both.now, |_, cx| cx.tcp().options(connection)).unwrap();
    assert_eq!(options.user_timeout, Some(Duration::from_secs(1)));
}

/// Nobody is the standby.
#[derive(Debug)]
struct Nobody;

impl Listener for Nobody {
    fn accept(&self) -> Option<Box<dyn Stream>> {
        None
    }
}

#[test]
fn connection_of_a_gateway_with_a_standby_is_given_up_where_the_venue_acknowledges_nothing_for_a_lease() {
    let mut both = Both::new(&KillSwitch::new());
    let of = |both: &mut Both| {
        let connection = both.near.app().connection.unwrap();
        both.near.with_app(both.now, |_, cx| cx.tcp().options(connection)).unwrap().user_timeout
    };
    assert_eq!(of(&mut both), None);
    let lease = std::time::Duration::from_millis(250);
    both.near.app_mut().gateway.run.standby = Some(StandbyLink::new(Box::new(Nobody), lease, 0));
    let connection = both.far.app().connection.unwrap();
    both.far.with_app(both.now, |_, cx| cx.tcp().abort(connection)).unwrap();
    both.turns(4);
    both.pass(Duration::from_secs(1));
    assert_eq!(both.far.app().connections, 2);
    assert_eq!(of(&mut both), Some(Duration::from_millis(250)));
}
