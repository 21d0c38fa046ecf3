//! The example of a trader, whole, against an exchange that matches, over a wire of plain memory in
//! virtual time.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::net::{Ipv4Addr, SocketAddrV4};

use market::{Capacity, Price, Symbol};
use order_entry::journal::{Entry, Intent, Records};
use order_entry::ouch::Side;
use order_entry::risk::InstrumentIdx;
use trader::Trader;
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::pipeline::HostStack;
use wirepath::prelude::*;
use wirepath::proto::Group;
use wirepath::worker::Worker;
use wirepath_tests::exchange::{Exchange, LINES};

#[path = "../../../apps/order-entry/examples/trader.rs"]
#[allow(dead_code)] // its `main`
mod trader;

const VENUE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 9_100);
const WIRE: Symbol = Symbol(*b"WIRE    ");
const STOCK: InstrumentIdx = InstrumentIdx(0);

type End<A> = Worker<MemoryRx, MemoryTx, HostStack, A>;

/// Both ends, a microsecond a turn.
struct Day {
    trader: End<Trader>,
    exchange: End<Exchange>,
    now: Instant,
}

impl Day {
    /// The session is open, and the book is empty.
    fn open() -> Self {
        let (near, far) = pair("wire", MemoryConfig::default());
        let capacity = Capacity { books: 16, orders: 1_024, levels: 256 };
        let trader = Trader::new(VENUE, capacity, vec![0; 1 << 16]);
        let exchange = Exchange::new(*VENUE.ip(), WIRE, Price::from_cents(1_050));
        let now = Instant::from_nanos(1_000_000_000);
        let mut day =
            Self { trader: end(near, "192.0.2.1/24", trader), exchange: end(far, "192.0.2.2/24", exchange), now };
        day.exchange.with_app(now, |_, cx| cx.tcp().listen(VENUE, &ListenOptions::default())).unwrap();
        for (line, group) in (0..).zip(LINES) {
            let group = Group::new(*group.ip(), group.port());
            day.trader.with_app(now, |_, cx| cx.sockets.join(ConsumerId(line), group)).unwrap();
        }
        day.exchange.with_app(now, |exchange, cx| exchange.publish(cx));
        day.turns(50);
        assert!(day.trader.app().ouch.session.is_open());
        day
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.now += Duration::from_micros(1);
            self.trader.poll_once(self.now);
            self.exchange.poll_once(self.now);
        }
    }

    /// The other account offers shares.
    fn offer(&mut self, qty: u32, price: Price) {
        self.now += Duration::from_millis(100);
        self.exchange.with_app(self.now, |exchange, cx| exchange.trade(Side::SELL, WIRE, qty, price, cx));
    }

    fn position(&self) -> i64 {
        self.trader.app().ouch.orders.risk().position(STOCK).unwrap()
    }

    /// The orders of the journal.
    fn intents(&self) -> Vec<Intent> {
        let records = Records::new(self.trader.app().ouch.orders.journal().memory()).unwrap();
        let entries = records.filter_map(|record| Entry::decode(record.kind, record.payload));
        entries.filter_map(|entry| if let Entry::Intent(intent) = entry { Some(intent) } else { None }).collect()
    }

    /// Both ends' sums agree to the share and the cent.
    fn assert_balanced(&self) {
        let ours = self.trader.app().ouch.orders.trades();
        assert_eq!(ours, *self.exchange.app().venue.accounts()[0].trades());
    }
}

fn end<A: App>(mut port: MemoryDevice, address: &str, app: A) -> End<A> {
    let builder = Worker::builder(&mut port).unwrap().address(address.parse().unwrap()).tcp(TcpConfig::default());
    builder.build(app, &Block::heap().scope("end")).unwrap()
}

#[test]
fn offer_below_the_price_is_bought_by_an_order_of_the_same_turn() {
    let mut day = Day::open();
    day.offer(300, Price::from_cents(999));
    day.trader.poll_once(day.now);
    assert_eq!(day.trader.app().ouch.orders.orders().live_count(), 1, "sent in the turn of the tick");
    day.exchange.poll_once(day.now);
    assert_eq!(day.exchange.app().venue.accounts()[0].trades().bought, 100, "the order has arrived");
    day.turns(50);
    assert_eq!(day.position(), 100);
    day.assert_balanced();
}

#[test]
fn offer_at_the_price_is_left() {
    let mut day = Day::open();
    day.offer(300, Price::from_cents(1_000));
    day.turns(50);
    assert_eq!((day.position(), day.intents()), (0, vec![]));
}

#[test]
fn position_stops_at_its_limit() {
    let mut day = Day::open();
    day.offer(5_000, Price::from_cents(950));
    day.turns(2_000);
    for _ in 0..20 {
        day.offer(1, Price::from_cents(950));
        day.turns(50);
    }
    assert_eq!((day.position(), day.intents().len()), (1_000, 10));
    day.assert_balanced();
}

#[test]
fn connection_that_is_cut_is_made_again_and_orders_go_on() {
    let mut day = Day::open();
    day.offer(100, Price::from_cents(999));
    day.turns(50);
    day.exchange.with_app(day.now, |exchange, cx| exchange.hang_up(cx));
    day.turns(10);
    day.offer(100, Price::from_cents(998));
    day.turns(10);
    assert_eq!(day.position(), 100, "no order without a session");
    // The caller's pause of a second, in turns of a millisecond.
    for _ in 0..1_200 {
        day.now += Duration::from_millis(1);
        day.turns(1);
    }
    assert!(day.trader.app().ouch.session.is_open());
    day.offer(100, Price::from_cents(997));
    day.turns(100);
    assert_eq!(day.position(), 300);
    day.assert_balanced();
}

#[test]
fn same_day_leaves_the_same_journal() {
    let journal = || {
        let mut day = Day::open();
        for cents in [999, 1_001, 950] {
            day.offer(150, Price::from_cents(cents));
            day.turns(100);
        }
        day.trader.app().ouch.orders.journal().memory().clone()
    };
    let first = journal();
    assert!(first == journal(), "two runs of one day differ");
    assert!(Records::new(&first).unwrap().count() > 5);
}

#[test]
fn trader_has_a_hundred_lines() {
    let text = include_str!("../../../apps/order-entry/examples/trader.rs");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("//!")).count();
    assert!(lines <= 100, "{lines} lines");
}
