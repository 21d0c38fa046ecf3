//! A day of the example's trader over a wire of plain memory, tick by tick.

pub(crate) mod venue;

#[path = "../../examples/trader.rs"]
#[allow(dead_code)] // its `main`
pub(crate) mod trader;

use std::time::Instant as Clock;

use market::Capacity;
use trader::Trader;
use venue::{LINE_A, VENUE, Venue};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::pipeline::HostStack;
use wirepath::prelude::*;
use wirepath::proto::Group;
use wirepath::worker::Worker;

type End<A> = Worker<MemoryRx, MemoryTx, HostStack, A>;

/// The trader, with the time at which it got a tick and was done with it.
pub(crate) struct Watched {
    pub(crate) trader: Trader,
    entered: Option<Clock>,
    left: Option<Clock>,
}

impl App for Watched {
    fn on_datagram(&mut self, packet: &Datagram<'_>, cx: &mut Cx<'_>) {
        self.entered = Some(Clock::now());
        self.trader.on_datagram(packet, cx);
        self.left = Some(Clock::now());
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        self.trader.on_tcp_event(connection, event, cx);
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        self.trader.on_tcp_data(data, cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.trader.tick(cx);
    }
}

/// Nanoseconds of one tick.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// From the begin of the turn to the app: poll, Ethernet, IPv4, UDP.
    pub(crate) to_app: f64,
    /// In the app: feed, book, decision, checks, journal, order posted.
    pub(crate) in_app: f64,
}

/// Both ends.
pub(crate) struct Day {
    trader: End<Watched>,
    venue: End<Venue>,
    now: Instant,
}

impl Day {
    /// The session is open, the books are full.
    pub(crate) fn open(journal_len: usize) -> Self {
        let (near, far) = pair("wire", MemoryConfig::default());
        let capacity = Capacity { books: 512, orders: 1 << 16, levels: 1 << 14 };
        // Not zeros, so that the memory is touched before the measurement does.
        let trader = Trader::new(VENUE, capacity, vec![1; journal_len]);
        let watched = Watched { trader, entered: None, left: None };
        let now = Instant::from_nanos(1_000_000_000);
        let mut day =
            Self { trader: end(near, "192.0.2.1/24", watched), venue: end(far, "192.0.2.2/24", Venue::new()), now };
        day.venue.with_app(now, |_, cx| cx.tcp().listen(VENUE, &ListenOptions::default())).unwrap();
        let group = Group::new(*LINE_A.ip(), LINE_A.port());
        day.trader.with_app(now, |_, cx| cx.sockets.join(ConsumerId(0), group)).unwrap();
        day.settle();
        let mut from = 0;
        while !day.venue.with_app(day.now, |venue, cx| venue.fill(from, 32, cx)) {
            from += 32;
            day.settle();
        }
        day.settle();
        assert!(day.trader.app().trader.ouch.session.is_open());
        day
    }

    /// Whatever is on its way arrives. Longer than an order's rate.
    pub(crate) fn settle(&mut self) {
        self.now += Duration::from_millis(20);
        self.venue.with_app(self.now, |venue, cx| venue.beat(cx));
        for _ in 0..4 {
            self.now += Duration::from_micros(10);
            self.trader.poll_once(self.now);
            self.venue.poll_once(self.now);
        }
    }

    /// An offer that is worth buying is on the wire.
    pub(crate) fn offer(&mut self) -> u64 {
        self.venue.with_app(self.now, |venue, cx| venue.offer(cx))
    }

    /// A message of another book is on the wire, and its end behind it.
    pub(crate) fn other(&mut self) {
        self.venue.with_app(self.now, |venue, cx| venue.others(cx));
    }

    /// Some messages of other books come, each in a turn.
    pub(crate) fn others(&mut self, count: usize) {
        for _ in 0..count {
            self.venue.with_app(self.now, |venue, cx| venue.others(cx));
            self.trader.poll_once(self.now);
        }
    }

    /// A turn of the trader.
    pub(crate) fn turn(&mut self) {
        self.now += Duration::from_micros(1);
        self.trader.poll_once(self.now);
    }

    /// The same, and its times, less twice that of the clock.
    pub(crate) fn timed_turn(&mut self, clock_ns: f64) -> Times {
        self.now += Duration::from_micros(1);
        let now = self.now;
        let start = Clock::now();
        self.trader.poll_once(now);
        let (Some(entered), Some(left)) = (self.trader.app().entered, self.trader.app().left) else {
            return Times::default();
        };
        let ns = |from: Clock, to: Clock| ((to - from).as_nanos() as f64 - clock_ns).max(0.0);
        Times { to_app: ns(start, entered), in_app: ns(entered, left) }
    }

    /// The exchange answers the order, and the offer is gone. Returns the orders so far.
    pub(crate) fn finish(&mut self, offer: u64) -> u64 {
        self.venue.poll_once(self.now);
        self.venue.with_app(self.now, |venue, cx| {
            venue.answer(cx);
            if offer > 0 {
                venue.withdraw(offer, cx);
            }
        });
        self.settle();
        self.venue.app().orders
    }
}

fn end<A: App>(mut port: MemoryDevice, address: &str, app: A) -> End<A> {
    let builder = Worker::builder(&mut port).unwrap().address(address.parse().unwrap()).tcp(TcpConfig::default());
    builder.build(app, &Block::heap().scope("end")).unwrap()
}
