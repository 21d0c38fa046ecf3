//! The exchange over real sockets of this host, its orders entered by Cboe BOE: the library's
//! client of either version.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

#[path = "common/exchange.rs"]
mod exchange;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use exchange_sim::{BoeVersion, Served};
use market::{Price, Symbol};
use order_entry::Text;
use order_entry::boe::v2::{self, Field, FieldId, ReturnFields};
use order_entry::boe::{
    Capacity, Client, ClientConfig, ClientEvent, Credentials, OrderType, ReasonCode, Side, TimeInForce, V2, V3,
    Version, v3,
};
use order_entry::session::Output;
use wirepath::worker::StopFlag;
use zerocopy::{FromZeros, IntoBytes};

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    address: SocketAddr,
    listed: (Symbol, Price),
    stop: StopFlag,
    thread: JoinHandle<Served>,
}

fn start(port: u16, version: BoeVersion, faults: &[&str]) -> Running {
    let mut exchange = exchange::open(port, faults);
    let address = exchange.open_boe(exchange::ANY, version).unwrap();
    let (listed, stop) = (exchange.listing()[0], StopFlag::new());
    let flag = stop.clone();
    Running { address, listed, stop, thread: thread::spawn(move || exchange.run(&flag).unwrap()) }
}

impl Running {
    fn stop(self) -> Served {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

struct Trader<V> {
    session: Client<V>,
    stream: TcpStream,
    /// Type, and body, of each message of the venue.
    received: Vec<(u16, Vec<u8>)>,
    events: Vec<String>,
    is_down: bool,
    started: Instant,
}

impl<V: Version> Trader<V> {
    fn new(session: Client<V>, address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let (received, events) = (Vec::new(), Vec::new());
        let mut trader = Self { session, stream, received, events, is_down: false, started: Instant::now() };
        trader.log_in();
        trader
    }

    fn reconnect(&mut self, address: SocketAddr) {
        self.session.disconnected();
        self.stream = TcpStream::connect(address).unwrap();
        self.is_down = false;
        self.log_in();
    }

    fn log_in(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        let now_ns = self.now_ns();
        self.write(|session, output| session.connect(now_ns, output).unwrap());
    }

    fn now_ns(&self) -> u64 {
        1 + self.started.elapsed().as_nanos() as u64
    }

    fn write(&mut self, put: impl FnOnce(&mut Client<V>, &mut Output<'_>)) {
        let mut bytes = [0; 1024];
        let mut output = Output::new(&mut bytes);
        put(&mut self.session, &mut output);
        self.stream.write_all(output.written()).unwrap();
    }

    fn send(&mut self, kind: u16, body: &[u8]) {
        let now_ns = self.now_ns();
        self.write(|session, output| assert!(session.send(now_ns, kind, body, output).unwrap() > 0));
    }

    fn turn(&mut self) {
        let now_ns = self.now_ns();
        let mut bytes = [0; 4_096];
        let len = match self.stream.read(&mut bytes) {
            Ok(len) if len > 0 => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            _ => {
                self.is_down = true;
                0
            }
        };
        let mut rest = &bytes[..len];
        while let Some(event) = self.session.receive(now_ns, &mut rest).unwrap() {
            match event {
                ClientEvent::Message(message) => self.received.push((message.kind, message.body.to_vec())),
                ClientEvent::Heartbeat => {}
                other => self.events.push(format!("{other:?}")),
            }
        }
    }

    fn wait(&mut self, what: &str, mut is_done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_done(self) {
            assert!(Instant::now() < end, "{what} did not come: {:?} {:?}", self.events, self.received);
            self.turn();
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_until_active(&mut self) {
        self.wait("the end of the replay", |trader| trader.session.is_active());
    }

    fn next(&mut self, kind: u16) -> Vec<u8> {
        self.wait(&format!("{kind:#x}"), |trader| !trader.received.is_empty());
        let (found, body) = self.received.remove(0);
        assert_eq!(found, kind, "{body:?}");
        body
    }
}

fn config(password: &str) -> ClientConfig {
    ClientConfig::new(Credentials::new("ALIC", "E", password).unwrap())
}

fn id(text: &str) -> Text<20> {
    Text::zero_padded(text).unwrap()
}

/// A version 2 order of 100 shares.
fn order2(name: &str, (symbol, price): (Symbol, i64)) -> Vec<u8> {
    let order = v2::NewOrder { cl_ord_id: id(name), side: Side::BUY, quantity: 100.into() };
    let symbol = Text::zero_padded(std::str::from_utf8(symbol.0.trim_ascii_end()).unwrap()).unwrap();
    let fields = [Field::Symbol(symbol), Field::Price(price.into()), Field::Capacity(Capacity::PRINCIPAL)];
    let mut body = [0; 128];
    let len = order.emit(&fields, &mut body).unwrap();
    body[..len].to_vec()
}

fn cancel2(name: &str) -> Vec<u8> {
    let mut body = [0; 64];
    let len = v2::CancelOrder { orig_cl_ord_id: id(name) }.emit(&[], &mut body).unwrap();
    body[..len].to_vec()
}

#[test]
fn order_by_boe_2_trades_rests_is_modified_and_canceled() {
    let exchange = start(26650, BoeVersion::V2, &[]);
    let (symbol, price) = (exchange.listed.0, exchange.listed.1.0);
    let returns = ReturnFields::new().ask(v2::OrderExecution::KIND, &[FieldId::Side, FieldId::Capacity]).unwrap();
    let mut trader = Trader::new(Client::<V2>::new(config("SECRET")).returning(returns), exchange.address);
    trader.wait_until_active();
    trader.send(v2::NewOrder::KIND.into(), &order2("one", (symbol, price + 100)));
    trader.next(0x25);
    let body = trader.next(0x2c);
    let (fill, optional) = v2::Outbound::parse(0x2c, &body).unwrap();
    let v2::Outbound::OrderExecution(fill) = fill else { panic!() };
    assert_eq!((fill.cl_ord_id, fill.last_shares.get(), fill.leaves.get()), (id("one"), 100, 0));
    let returned: Vec<_> = optional.fields().collect();
    assert_eq!(returned, [Field::Side(Side::BUY), Field::Capacity(Capacity::PRINCIPAL)]);
    trader.send(v2::NewOrder::KIND.into(), &order2("two", (symbol, price - 2_000)));
    trader.next(0x25);
    let modify = v2::ModifyOrder { cl_ord_id: id("three"), orig_cl_ord_id: id("two") };
    let mut body = [0; 64];
    let len =
        modify.emit(&[Field::OrderQuantity(200.into()), Field::Price((price - 2_100).into())], &mut body).unwrap();
    trader.send(v2::ModifyOrder::KIND.into(), &body[..len]);
    trader.next(0x27);
    trader.send(v2::CancelOrder::KIND.into(), &cancel2("three"));
    let canceled = trader.next(0x2a);
    assert_eq!((&canceled[8..13], canceled[28]), (&b"three"[..], ReasonCode::USER.0));
    trader.send(v2::CancelOrder::KIND.into(), &cancel2("three"));
    assert_eq!(trader.next(0x2b)[28], ReasonCode::TOO_LATE.0);
    trader.send(v2::CancelOrder::KIND.into(), &cancel2("none"));
    assert_eq!(trader.next(0x2b)[28], ReasonCode::UNKNOWN_ORDER.0);
    trader.send(v2::NewOrder::KIND.into(), &order2("one", (symbol, price)));
    assert_eq!(trader.next(0x26)[28], ReasonCode::DUPLICATE.0);
    trader.send(v2::NewOrder::KIND.into(), &order2("four", (Symbol(*b"NOBODY  "), price)));
    assert_eq!(trader.next(0x26)[28], ReasonCode::UNKNOWN_SYMBOL.0);
    trader.send(v2::NewOrder::KIND.into(), &order2("five", (symbol, price - 2_000)));
    trader.next(0x25);
    let len = v2::PurgeOrders { reserved: 0 }.emit(&[Field::MassCancelId(id("all"))], &[], &mut body).unwrap();
    trader.send(v2::PurgeOrders::KIND.into(), &body[..len]);
    trader.next(0x2a);
    assert_eq!(trader.next(0x36)[8..11], *b"all");
    let served = exchange.stop();
    assert_eq!((served.violations, served.trades[0].bought), (0, 100));
}

#[test]
fn boe_2_replays_what_a_login_lacks_to_a_trader_that_has_restarted() {
    let exchange = start(26652, BoeVersion::V2, &["lost-ack@2"]);
    let (symbol, price) = (exchange.listed.0, exchange.listed.1.0 - 2_000);
    let mut trader = Trader::new(Client::<V2>::new(config("SECRET")), exchange.address);
    trader.wait_until_active();
    trader.send(v2::NewOrder::KIND.into(), &order2("one", (symbol, price)));
    trader.next(0x25);
    trader.send(v2::NewOrder::KIND.into(), &order2("two", (symbol, price)));
    trader.wait("the end of the line", |trader| trader.is_down);
    trader.reconnect(exchange.address);
    trader.wait_until_active();
    assert_eq!(trader.next(0x25)[8..11], *b"two");
    drop(trader);
    // A new process, which knows from its journal the numbers of both ends.
    let mut session = Client::<V2>::new(config("SECRET"));
    session.set_received(1, 1);
    session.set_sent(2);
    let mut trader = loop {
        let mut trader = Trader::new(session, exchange.address);
        trader.wait("an answer", |trader| trader.session.is_active() || trader.is_down);
        if trader.session.is_active() {
            break trader;
        }
        // The venue has not seen the end of the first line yet.
        assert!(trader.events[0].contains("in use"), "{:?}", trader.events);
        session = trader.session;
    };
    assert_eq!(trader.next(0x25)[8..11], *b"two");
    trader.send(v2::CancelOrder::KIND.into(), &cancel2("two"));
    trader.next(0x2a);
    assert_eq!(exchange.stop().violations, 0);
}

#[test]
fn boe_login_is_refused_by_name() {
    let exchange = start(26654, BoeVersion::V2, &[]);
    let mut stranger = Trader::new(Client::<V2>::new(config("WRONG")), exchange.address);
    stranger.wait("the end of the line", |trader| trader.is_down);
    assert!(stranger.events[0].contains("not authorized"), "{:?}", stranger.events);
    let mut session = Client::<V2>::new(config("SECRET"));
    session.set_received(1, 9);
    let mut ahead = Trader::new(session, exchange.address);
    ahead.wait("the end of the line", |trader| trader.is_down);
    assert!(ahead.events[0].contains("sequence ahead"), "{:?}", ahead.events);
    exchange.stop();
}

#[test]
fn boe_session_that_the_venue_has_lost_is_refused_by_name() {
    let exchange = start(26658, BoeVersion::V2, &["new-session@1"]);
    let mut trader = Trader::new(Client::<V2>::new(config("SECRET")), exchange.address);
    trader.wait_until_active();
    trader.send(v2::NewOrder::KIND.into(), &order2("one", (exchange.listed.0, exchange.listed.1.0 - 2_000)));
    trader.next(0x25);
    let now_ns = trader.now_ns();
    trader.write(|session, output| session.logout(now_ns, output).unwrap());
    trader.wait("the end of the line", |trader| trader.is_down);
    trader.events.clear();
    trader.reconnect(exchange.address);
    trader.wait("the end of the line", |trader| trader.is_down);
    assert!(trader.events[0].contains("sequence ahead"), "{:?}", trader.events);
    trader.reconnect(exchange.address);
    trader.wait_until_active();
    exchange.stop();
}

#[test]
fn order_by_boe_3_trades_rests_is_modified_and_canceled() {
    let exchange = start(26656, BoeVersion::V3, &[]);
    let (symbol, price) = (exchange.listed.0, exchange.listed.1.0);
    let mut trader = Trader::new(Client::<V3>::new(config("SECRET")), exchange.address);
    trader.wait_until_active();
    let order = |name, price: i64| {
        let mut order = v3::NewOrder::new_zeroed();
        (order.cl_ord_id, order.side, order.quantity, order.price) = (id(name), Side::BUY, 100.into(), price.into());
        (order.order_type, order.time_in_force, order.capacity) = (OrderType::LIMIT, TimeInForce::DAY, Capacity::FIRM);
        order.symbol = Text(symbol.0);
        order
    };
    trader.send(v3::NewOrder::KIND, order("one", price + 100).as_bytes());
    let body = trader.next(1501);
    let v3::Outbound::OrderAcknowledgment(accepted) = v3::Outbound::parse(1501, &body).unwrap().0 else { panic!() };
    assert_eq!((accepted.capacity, accepted.leaves.get()), (Capacity::FIRM, 100));
    trader.next(1505);
    trader.send(v3::NewOrder::KIND, order("two", price - 2_000).as_bytes());
    trader.next(1501);
    let mut modify = v3::ModifyOrder::new_zeroed();
    (modify.cl_ord_id, modify.orig_cl_ord_id) = (id("three"), id("two"));
    (modify.quantity, modify.price, modify.order_type) = (200.into(), (price - 2_100).into(), OrderType::LIMIT);
    trader.send(v3::ModifyOrder::KIND, modify.as_bytes());
    trader.next(1503);
    let mut cancel = v3::CancelOrder::new_zeroed();
    cancel.orig_cl_ord_id = id("three");
    trader.send(v3::CancelOrder::KIND, cancel.as_bytes());
    trader.next(1506);
    trader.send(v3::CancelOrder::KIND, cancel.as_bytes());
    assert_eq!(trader.next(1507)[32], ReasonCode::TOO_LATE.0);
    trader.send(v3::NewOrder::KIND, order("four", price - 2_000).as_bytes());
    trader.next(1501);
    let mut mass = v3::MassCancelOrder::new_zeroed();
    mass.mass_cancel_id = id("all");
    trader.send(v3::MassCancelOrder::KIND, mass.as_bytes());
    trader.next(1506);
    let body = trader.next(1508);
    let v3::Outbound::MassCancelAcknowledgment(done) = v3::Outbound::parse(1508, &body).unwrap().0 else { panic!() };
    assert_eq!(done.cancelled_count.get(), 1);
    assert_eq!(exchange.stop().violations, 0);
}
