//! The exchange over real sockets of this host, its orders entered by FIX: a session of ours as the
//! client, and the drop copy beside it.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

#[path = "common/exchange.rs"]
mod exchange;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use exchange_sim::Served;
use market::{Price, Symbol};
use order_entry::fix::codec::{Decimal, Writer};
use order_entry::fix::orders::{
    CancelRequest, MassCancel, NewOrderSingle, OrdType, ReplaceRequest, Side, StatusRequest, TimeInForce, Utc,
};
use order_entry::fix::session::{Event, MemoryStore, Now, Session, SessionConfig, Version};
use wirepath::worker::StopFlag;

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    fix: SocketAddr,
    listed: (Symbol, Price),
    stop: StopFlag,
    thread: JoinHandle<Served>,
}

fn start(port: u16, faults: &[&str]) -> Running {
    let mut exchange = exchange::open(port, faults);
    let (fix, listed, stop) = (exchange.open_fix(exchange::ANY).unwrap(), exchange.listing()[0], StopFlag::new());
    let flag = stop.clone();
    Running { fix, listed, stop, thread: thread::spawn(move || exchange.run(&flag).unwrap()) }
}

struct Client {
    session: Session<MemoryStore>,
    stream: TcpStream,
    /// Messages of the venue, with `|` for SOH.
    received: Vec<String>,
    /// The rule by which the last session ended.
    end: Option<String>,
    is_down: bool,
}

fn now() -> Now {
    let utc_ns = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    Now { steady_ns: utc_ns, utc_ns }
}

impl Client {
    fn new(address: SocketAddr, version: Version, password: &str) -> Self {
        let config = SessionConfig {
            version,
            sender: "ALICE".into(),
            target: "EXCHANGE".into(),
            password: Some(password.into()),
            ..SessionConfig::default()
        };
        let session = Session::new(config, MemoryStore::new(1_000, 1 << 20));
        let (stream, received) = (TcpStream::connect(address).unwrap(), Vec::new());
        let mut client = Self { session, stream, received, end: None, is_down: false };
        client.connect(address);
        client
    }

    fn connect(&mut self, address: SocketAddr) {
        self.stream = TcpStream::connect(address).unwrap();
        self.stream.set_nonblocking(true).unwrap();
        (self.is_down, self.end) = (false, None);
        self.session.connected(now());
    }

    fn turn(&mut self) {
        let len = self.stream.write(self.session.output()).unwrap_or(0);
        self.session.consume(len);
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
        loop {
            let taken = self.session.receive(now(), rest);
            rest = &rest[taken..];
            while let Some(event) = self.session.poll(now()) {
                match event {
                    Event::Message { message, .. } => {
                        self.received.push(String::from_utf8_lossy(message.as_bytes()).replace('\x01', "|"));
                    }
                    Event::Disconnect(end) => self.end = Some(end.to_string()),
                    _ => (),
                }
            }
            if rest.is_empty() {
                break;
            }
        }
    }

    fn wait(&mut self, what: &str, mut is_done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_done(self) {
            assert!(Instant::now() < end, "{what} did not come: {:?}", self.received);
            self.turn();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the next message of the venue, which has these parts.
    fn expect(&mut self, parts: &[&str]) {
        self.wait(&format!("{parts:?}"), |client| !client.received.is_empty());
        let message = self.received.remove(0);
        assert!(parts.iter().all(|part| message.contains(&format!("|{part}|"))), "{message} has not {parts:?}");
    }

    fn send(&mut self, msg_type: &str, body: impl FnOnce(&mut Writer<'_>)) {
        self.session.send(now(), msg_type, body).unwrap();
    }

    fn order(&mut self, cl_ord_id: &str, qty: i64, (symbol, price): (Symbol, Price)) {
        let order = NewOrderSingle {
            account: None,
            cl_ord_id: cl_ord_id.as_bytes(),
            exec_inst: None,
            handl_inst: None,
            order_qty: Some(Decimal::whole(qty)),
            ord_type: OrdType::Limit,
            price: Some(Decimal::from_price(price)),
            side: Side::Buy,
            symbol: symbol.0.trim_ascii_end(),
            time_in_force: Some(TimeInForce::Day),
            transact_time: Utc(now().utc_ns),
            stop_px: None,
            min_qty: None,
            max_floor: None,
            expire_time: None,
            peg_offset: None,
        };
        self.send("D", |out| order.write(out));
    }

    fn replace(&mut self, [orig, cl_ord_id]: [&str; 2], qty: i64, (symbol, price): (Symbol, Price)) {
        let request = ReplaceRequest {
            exec_inst: None,
            stop_px: None,
            min_qty: None,
            max_floor: None,
            expire_time: None,
            peg_offset: None,
            account: None,
            cl_ord_id: cl_ord_id.as_bytes(),
            handl_inst: None,
            order_id: None,
            order_qty: Some(Decimal::whole(qty)),
            ord_type: OrdType::Limit,
            orig_cl_ord_id: orig.as_bytes(),
            price: Some(Decimal::from_price(price)),
            side: Side::Buy,
            symbol: symbol.0.trim_ascii_end(),
            time_in_force: None,
            transact_time: Utc(now().utc_ns),
        };
        self.send("G", |out| request.write(out));
    }

    /// A logon, an order and its report.
    fn order_when_logged_on(&mut self, cl_ord_id: &str, stock: (Symbol, Price)) {
        self.wait("the logon", |client| client.session.is_logged_on());
        self.order(cl_ord_id, 100, stock);
        self.expect(&["35=8", &format!("11={cl_ord_id}"), "150=0"]);
    }

    fn cancel(&mut self, [orig, cl_ord_id]: [&str; 2], symbol: Symbol) {
        let request = CancelRequest {
            account: None,
            cl_ord_id: cl_ord_id.as_bytes(),
            order_id: None,
            order_qty: None,
            orig_cl_ord_id: orig.as_bytes(),
            side: Side::Buy,
            symbol: symbol.0.trim_ascii_end(),
            transact_time: Utc(now().utc_ns),
        };
        self.send("F", |out| request.write(out));
    }
}

impl Client {
    fn ask(&mut self, cl_ord_id: &str, symbol: Symbol) {
        let (cl_ord_id, symbol) = (cl_ord_id.as_bytes(), symbol.0.trim_ascii_end());
        let request = StatusRequest { cl_ord_id, order_id: None, side: Side::Buy, symbol };
        self.send("H", |out| request.write(out));
    }

    fn mass_cancel(&mut self, cl_ord_id: &str) {
        let request = MassCancel {
            cl_ord_id: cl_ord_id.as_bytes(),
            side: None,
            symbol: None,
            transact_time: Utc(now().utc_ns),
            request_type: 7,
        };
        self.send("q", |out| request.write(out));
    }
}

/// A price at which the house offers, and one that only rests.
fn prices((_, reference): (Symbol, Price)) -> [Price; 2] {
    [Price(reference.0 + 100), Price(reference.0 - 2_000)]
}

fn trades_rests_is_replaced_and_canceled(version: Version, port: u16, fill: &str) {
    let exchange = start(port, &[]);
    let (symbol, [offered, low]) = (exchange.listed.0, prices(exchange.listed));
    let mut client = Client::new(exchange.fix, version, "SECRET");
    client.wait("the logon", |client| client.session.is_logged_on());
    client.order("one", 100, (symbol, offered));
    client.expect(&["35=8", "11=one", "150=0", "39=0", "151=100"]);
    client.expect(&["35=8", "11=one", fill, "39=2", "32=100", "14=100", "151=0"]);
    client.order("two", 100, (symbol, low));
    client.expect(&["35=8", "11=two", "150=0", "39=0"]);
    let is_state = if version == Version::Fix42 { "20=3" } else { "150=I" };
    for (cl_ord_id, status, leaves) in [("two", "39=0", "151=100"), ("one", "39=2", "151=0"), ("none", "39=8", "151=0")]
    {
        client.ask(cl_ord_id, symbol);
        client.expect(&["35=8", &format!("11={cl_ord_id}"), is_state, status, leaves]);
    }
    client.replace(["two", "three"], 200, (symbol, low));
    client.expect(&["35=8", "11=three", "41=two", "150=5", "151=200"]);
    client.replace(["three", "four"], 0, (symbol, low));
    client.expect(&["35=9", "11=four", "41=three", "39=0", "434=2", "58=quantity"]);
    client.cancel(["three", "five"], symbol);
    client.expect(&["35=8", "11=five", "41=three", "150=4", "39=4", "151=0"]);
    client.cancel(["three", "six"], symbol);
    client.expect(&["35=9", "11=six", "102=0", "434=1"]);
    client.order("one", 100, (symbol, low));
    client.expect(&["35=8", "11=one", "150=8", "39=8", "103=6"]);
    // FIX 4.2 has no cancel of many.
    let messages = if version == Version::Fix42 { 10 } else { 12 };
    if version != Version::Fix42 {
        client.order("seven", 100, (symbol, low));
        client.expect(&["35=8", "11=seven", "150=0"]);
        client.mass_cancel("eight");
        client.expect(&["35=8", "11=seven", "150=4"]);
        client.expect(&["35=r", "11=eight", "530=7", "531=7", "533=1"]);
    }
    exchange.stop.stop();
    let served = exchange.thread.join().unwrap();
    assert_eq!((served.counts.messages, served.violations, served.trades[0].bought), (messages, 0, 100));
}

#[test]
fn order_by_fix_44_trades_rests_is_replaced_and_canceled() {
    trades_rests_is_replaced_and_canceled(Version::Fix44, 26630, "150=F");
}

#[test]
fn order_by_fix_42_trades_rests_is_replaced_and_canceled() {
    trades_rests_is_replaced_and_canceled(Version::Fix42, 26632, "150=2");
}

#[test]
fn order_by_fixt_trades_rests_is_replaced_and_canceled() {
    trades_rests_is_replaced_and_canceled(Version::Fix50Sp2, 26634, "150=F");
}

#[test]
fn lost_report_is_sent_again_after_the_next_logon() {
    let exchange = start(26636, &["lost-ack@1"]);
    let mut client = Client::new(exchange.fix, Version::Fix44, "SECRET");
    client.wait("the logon", |client| client.session.is_logged_on());
    client.order("one", 100, (exchange.listed.0, prices(exchange.listed)[1]));
    client.wait("the end", |client| client.is_down);
    assert!(client.received.is_empty());
    client.connect(exchange.fix);
    client.expect(&["35=8", "43=Y", "11=one", "150=0"]);
    exchange.stop.stop();
    assert_eq!(exchange.thread.join().unwrap().counts.lost_acks, 1);
}

#[test]
fn wrong_password_is_refused() {
    let exchange = start(26638, &[]);
    let mut client = Client::new(exchange.fix, Version::Fix44, "WRONG");
    client.wait("the end", |client| client.is_down);
    exchange.stop.stop();
    assert_eq!(exchange.thread.join().unwrap().violations, 1);
}

/// The numbers of a Logon that begins anew, or goes back, were used before.
#[test]
fn venue_whose_fix_session_is_another_ends_the_clients_by_the_rule_of_numbers() {
    let exchange = start(26640, &["new-session@1"]);
    let mut client = Client::new(exchange.fix, Version::Fix44, "SECRET");
    client.order_when_logged_on("one", (exchange.listed.0, prices(exchange.listed)[1]));
    client.session.logout(now(), "");
    client.wait("the end", |client| client.is_down);
    client.connect(exchange.fix);
    client.wait("the rule", |client| client.end.is_some());
    assert_eq!(client.end.as_deref(), Some("MsgSeqNum (34) must not be lower than expected without PossDupFlag (43)"));
    client.wait("the end", |client| client.is_down);
    client.connect(exchange.fix);
    client.order_when_logged_on("two", (exchange.listed.0, prices(exchange.listed)[1]));
    exchange.stop.stop();
    assert_eq!(exchange.thread.join().unwrap().counts.messages, 2);
}

#[test]
fn surprise_of_numbers_by_fix_ends_the_session_or_is_filled_as_a_gap() {
    let exchange = start(26642, &["sequence-surprise=100%"]);
    let mut client = Client::new(exchange.fix, Version::Fix44, "SECRET");
    let mut ends = 0;
    for (idx, name) in ["one", "two", "three", "four", "five", "six"].iter().enumerate() {
        let low = "MsgSeqNum (34) must not be lower than expected without PossDupFlag (43)";
        client.wait("a logon or its end", |client| client.session.is_logged_on() || client.end.is_some());
        if client.end.is_none() {
            client.order_when_logged_on(name, (exchange.listed.0, prices(exchange.listed)[1]));
            client.session.logout(now(), "");
        } else {
            assert_eq!((client.end.as_deref(), idx > 0), (Some(low), true), "the first is above");
            ends += 1;
        }
        client.wait("the end", |client| client.is_down);
        client.connect(exchange.fix);
    }
    assert!((1..6).contains(&ends), "some of six are below, {ends}");
    exchange.stop.stop();
    exchange.thread.join().unwrap();
}
