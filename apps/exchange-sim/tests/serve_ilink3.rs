//! The exchange over real sockets of this host, its orders entered by CME's iLink 3: the library's
//! client.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

#[path = "common/exchange.rs"]
mod exchange;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use exchange_sim::Served;
use market::{Price, Side, Symbol};
use order_entry::Text;
use order_entry::ilink3::{ClientConfig, Identity, Ilink3Client, IlinkFirm, Key};
use order_entry::journal::SessionMark;
use order_entry::orders::{Instructions, OrderKey, VenueEvent, VenueMessage};
use order_entry::risk::InstrumentIdx;
use order_entry::session::{SessionEvent, VenueSession, WireOrder, WireTarget};
use wirepath::worker::StopFlag;

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const EPOCH_NS: u64 = 1_795_727_114_000_000_000;

struct Running {
    address: SocketAddr,
    listed: (Symbol, Price),
    stop: StopFlag,
    thread: JoinHandle<Served>,
}

fn start(port: u16, faults: &[&str]) -> Running {
    let mut exchange = exchange::open(port, faults);
    let address = exchange.open_ilink3(exchange::ANY).unwrap();
    let (listed, stop) = (exchange.listing()[0], StopFlag::new());
    let flag = stop.clone();
    Running { address, listed, stop, thread: thread::spawn(move || exchange.run(&flag).unwrap()) }
}

impl Running {
    fn stop(self) -> Served {
        self.stop.stop();
        self.thread.join().unwrap()
    }

    /// A buy of 100 for so much more than the reference price, in units of [`Price`].
    fn order(&self, id: u64, more: i64) -> WireOrder {
        WireOrder {
            id,
            instrument: InstrumentIdx(0),
            symbol: self.listed.0,
            side: Side::Buy,
            is_short: false,
            qty: 100,
            price: Price(self.listed.1.0 + more),
            instructions: Instructions::PLAIN,
        }
    }

    fn target(&self, id: u64, venue_id: u64) -> WireTarget {
        let WireOrder { instrument, symbol, side, is_short, qty, .. } = self.order(id, 0);
        WireTarget { id, venue_id: Some(venue_id), instrument, symbol, side, is_short, qty }
    }
}

struct Trader {
    session: Ilink3Client,
    stream: TcpStream,
    /// What the venue said about orders.
    said: Vec<(u64, VenueEvent)>,
    is_settled: bool,
    /// Why the line is over.
    end: Option<String>,
    started: Instant,
}

/// The first three letters of the user are the session, the others the firm.
fn client(key: &[u8]) -> Ilink3Client {
    let config = ClientConfig::new(Identity {
        session: Text(*b"ALI"),
        firm: Text::zero_padded("CE").unwrap(),
        access_key: Text([0; 20]),
        key: Key::from_bytes(key),
        system: Text([0; 30]),
        system_version: Text([0; 10]),
        system_vendor: Text([0; 10]),
    });
    let firm =
        IlinkFirm { operator: Text([b'O'; 20]), location: Text(*b"US,IL"), party_details: 1, securities: [1].into() };
    Ilink3Client::new(config, firm, EPOCH_NS)
}

impl Trader {
    fn new(session: Ilink3Client, address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let (said, started) = (Vec::new(), Instant::now());
        let mut trader = Self { session, stream, said, is_settled: false, end: None, started };
        trader.connected();
        trader
    }

    fn reconnect(&mut self, address: SocketAddr) {
        self.session.disconnected();
        self.stream = TcpStream::connect(address).unwrap();
        (self.is_settled, self.end) = (false, None);
        self.connected();
    }

    fn connected(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        let now_ns = self.now_ns();
        self.session.connected(now_ns).unwrap();
    }

    fn now_ns(&self) -> u64 {
        1 + self.started.elapsed().as_nanos() as u64
    }

    fn turn(&mut self) {
        let (now_ns, mut bytes) = (self.now_ns(), [0; 4_096]);
        self.session.tick(now_ns).unwrap();
        let len = self.session.to_send().len();
        if self.stream.write_all(self.session.to_send()).is_ok() {
            self.session.sent(len);
        }
        let len = match self.stream.read(&mut bytes) {
            Ok(len) if len > 0 => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            other => return self.is_over(&format!("{other:?}")),
        };
        let mut rest = &bytes[..len];
        loop {
            match self.session.receive(now_ns, &mut rest) {
                Ok(None) => return,
                Ok(Some(SessionEvent::Message { message, .. })) => match message {
                    VenueMessage::Answer { key: OrderKey::Client(id), event, .. } => self.said.push((id, event)),
                    VenueMessage::Settled { .. } => self.is_settled = true,
                    _ => (),
                },
                Ok(Some(SessionEvent::LoggedIn { is_gap, .. })) => assert!(!is_gap, "nothing is lost"),
                Ok(Some(_)) => (),
                Err(error) => return self.is_over(&error.to_string()),
            }
        }
    }

    /// The first reason counts.
    fn is_over(&mut self, why: &str) {
        self.end.get_or_insert_with(|| why.to_owned());
    }

    fn wait(&mut self, what: &str, mut is_done: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_done(self) {
            assert!(Instant::now() < until, "{what} did not come: {:?} {:?}", self.end, self.said);
            self.turn();
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_until_open(&mut self) {
        self.wait("the session", |trader| trader.session.is_open() && trader.is_settled);
    }

    fn send(&mut self, order: &WireOrder) {
        let now_ns = self.now_ns();
        self.session.new_order(now_ns, order).unwrap();
    }

    /// What the venue says next, which is about this order.
    fn next(&mut self, id: u64) -> VenueEvent {
        self.wait("an answer", |trader| !trader.said.is_empty());
        let (of, event) = self.said.remove(0);
        assert_eq!(of, id, "{event:?}");
        event
    }

    /// The venue's name of an order that it accepts.
    fn accepted(&mut self, id: u64) -> u64 {
        match self.next(id) {
            VenueEvent::Accepted { venue_id } => venue_id,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn order_by_ilink_3_trades_rests_is_replaced_and_canceled() {
    let exchange = start(26_660, &[]);
    let mut trader = Trader::new(client(b"SECRET"), exchange.address);
    trader.wait_until_open();
    let first = trader.session.next_id();
    trader.send(&exchange.order(first, 100));
    trader.accepted(first);
    let VenueEvent::Filled { qty, .. } = trader.next(first) else { panic!("the house offers 100 shares") };
    assert_eq!(qty, 100);
    let second = trader.session.next_id();
    trader.send(&exchange.order(second, -2_000));
    let venue_id = trader.accepted(second);
    let (third, now_ns) = (trader.session.next_id(), trader.now_ns());
    let replace = exchange.order(third, -2_100);
    trader.session.replace_order(now_ns, &exchange.target(second, venue_id), &replace).unwrap();
    trader.wait("the replace", |trader| !trader.said.is_empty());
    let VenueEvent::Replaced { id, venue_id } = trader.said.remove(0).1 else { panic!("it is replaced") };
    assert_eq!(id, third);
    let now_ns = trader.now_ns();
    trader.session.cancel_order(now_ns, &exchange.target(third, venue_id)).unwrap();
    assert!(matches!(trader.next(third), VenueEvent::Canceled { .. }));
    let last = trader.session.next_id();
    trader.send(&exchange.order(last, -2_000));
    trader.accepted(last);
    let now_ns = trader.now_ns();
    assert_eq!(trader.session.cancel_all(now_ns), Ok(true));
    assert!(matches!(trader.next(last), VenueEvent::Canceled { .. }));
    let served = exchange.stop();
    assert_eq!((served.violations, served.trades[0].bought), (0, 100), "{:?}", served.violation);
}

#[test]
fn ilink_3_sends_again_what_a_broken_line_lost_and_to_the_next_process_too() {
    let exchange = start(26_662, &["lost-ack@2"]);
    let mut trader = Trader::new(client(b"SECRET"), exchange.address);
    trader.wait_until_open();
    let (first, second) = (trader.session.next_id(), trader.session.next_id() + 1);
    trader.send(&exchange.order(first, -2_000));
    trader.accepted(first);
    trader.send(&exchange.order(second, -2_000));
    trader.wait("the end of the line", |trader| trader.end.is_some());
    trader.reconnect(exchange.address);
    trader.wait_until_open();
    let venue_id = trader.accepted(second);
    let mark: SessionMark = trader.session.mark();
    drop(trader);
    let mut trader = loop {
        let mut session = client(b"SECRET");
        session.resume(&mark);
        let mut trader = Trader::new(session, exchange.address);
        trader.wait("an answer", |trader| trader.is_settled || trader.end.is_some());
        if trader.is_settled {
            break trader;
        }
        // The venue has not seen the end of the first line yet.
        assert!(trader.end.as_ref().unwrap().contains("in use"), "{:?}", trader.end);
    };
    trader.said.clear();
    let now_ns = trader.now_ns();
    trader.session.cancel_order(now_ns, &exchange.target(second, venue_id)).unwrap();
    assert!(matches!(trader.next(second), VenueEvent::Canceled { .. }));
    let served = exchange.stop();
    assert_eq!((served.violations, served.counts.lost_acks), (0, 1), "{:?}", served.violation);
}

#[test]
fn ilink_3_login_with_another_key_is_refused() {
    let exchange = start(26_664, &[]);
    let mut stranger = Trader::new(client(b"WRONG"), exchange.address);
    stranger.wait("the end of the line", |trader| trader.end.is_some());
    let why = stranger.end.unwrap();
    assert!(why.contains("not authorized") || why.contains("refused"), "{why}");
    exchange.stop();
}

#[test]
fn ilink_3_session_that_the_venue_has_lost_or_whose_numbers_go_back_ends_by_its_rule() {
    let exchange = start(26666, &["new-session@1", "sequence-surprise@2"]);
    let mut trader = Trader::new(client(b"SECRET"), exchange.address);
    trader.wait_until_open();
    let first = trader.session.next_id();
    trader.send(&exchange.order(first, -2_000));
    trader.accepted(first);
    let now_ns = trader.now_ns();
    trader.session.log_out(now_ns);
    for rule in ["no session of this UUID", "the venue's last message is 0, and 1 was received"] {
        trader.wait("the end of the line", |trader| trader.end.is_some());
        trader.reconnect(exchange.address);
        trader.wait("the rule", |trader| trader.end.is_some());
        let end = trader.end.as_ref().unwrap();
        assert!(end.contains(rule), "{end}");
    }
    trader.reconnect(exchange.address);
    trader.wait_until_open();
    exchange.stop();
}

#[test]
fn ilink_3_peer_whose_numbers_go_back_gets_a_termination() {
    let exchange = start(26668, &[]);
    let mut trader = Trader::new(client(b"SECRET"), exchange.address);
    trader.wait_until_open();
    let first = trader.session.next_id();
    trader.send(&exchange.order(first, -2_000));
    let again = trader.session.to_send().to_vec();
    trader.accepted(first);
    trader.stream.write_all(&again).unwrap();
    trader.wait("the end of the line", |trader| trader.end.is_some());
    assert_eq!(trader.end.as_deref(), Some("the venue has ended the session: invalid MsgSeqNum"));
    let served = exchange.stop();
    assert_eq!(served.violation.as_deref(), Some("numbers go up: 2 should come, not 1"));
}
