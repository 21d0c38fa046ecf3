//! A day of the example's trader over a wire of plain memory, tick by tick.

#[allow(dead_code)] // what the bench over a veth asks, which has this file too
pub(crate) mod exchange;
mod observed;
mod peer;
pub(crate) mod stamps;
pub(crate) mod venue;

#[path = "../../examples/trader.rs"]
#[allow(dead_code)] // its `main`
pub(crate) mod trader;

use std::net::Ipv4Addr;
use std::time::Instant as Clock;

use market::Capacity;
use order_entry::ouch::OrderTemplate;
use wirepath::counters::Block;
use wirepath::device::Queue;
use wirepath::device::memory::{MemoryConfig, MemoryDevice, MemoryRx, MemoryTx, pair};
use wirepath::pipeline::HostStack;
use wirepath::prelude::*;
use wirepath::proto::{Group, HashSeed, Ipv4Prefix};
use wirepath::wire::MacAddr;
use wirepath::worker::{Worker, WorkerBuilder};

use exchange::{Exchange, LINE_A};
use observed::{Observed, ObservedTx};
use peer::{Peer, Replay};
use stamps::{Notes, PostStamp};
use trader::Trader;
use venue::{VENUE, Venue};

pub(crate) use peer::{Tape, TapeWriter};

type Trading = Worker<MemoryRx, ObservedTx<MemoryTx, PostStamp>, HostStack, Watched>;

/// The trader, which notes when it got a tick.
pub(crate) struct Watched {
    trader: Trader,
    /// The tick fires the prepared order, and there is no feed, no book, no check: what the
    /// framework alone takes.
    fires_bare: bool,
}

impl App for Watched {
    fn on_datagram(&mut self, packet: &Datagram<'_>, cx: &mut Cx<'_>) {
        stamps::entered();
        if self.fires_bare {
            let Some(order) = &mut self.trader.order else { return };
            let is_patched = order.patch(OrderTemplate::PRICE_AT, &packet.payload[..8]).is_ok();
            assert!(is_patched && cx.tcp().try_fire(order) == Ok(true), "the order did not leave");
            return;
        }
        self.trader.on_datagram(packet, cx);
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

/// Nanoseconds of one turn from its begin on.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// To the app, where noted: poll, Ethernet, IPv4, UDP.
    pub(crate) to_app: f64,
    /// To the order's post, if there was one.
    pub(crate) to_post: f64,
    /// To the end of the turn.
    pub(crate) turn: f64,
}

/// Both ends.
pub(crate) struct Day {
    trader: Trading,
    peer: Peer,
    now: Instant,
}

impl Day {
    /// A day with a live venue. The session is open, the books are full.
    pub(crate) fn live(journal_len: usize, tape: &TapeWriter) -> Self {
        let (near, mut far) = pair("wire", MemoryConfig::default());
        let builder = Worker::builder(&mut far).unwrap();
        let builder = builder.wrap_queue(|queue| Observed { queue, observer: tape.clone() });
        let mut venue = host(builder, 2, Venue::new());
        venue.with_app(start(), |_, cx| cx.tcp().listen(VENUE, &ListenOptions::default())).unwrap();
        Self::open(near, Peer::Live(Box::new(venue), tape.clone()), journal_len)
    }

    /// The day of which `tape` has the venue's frames.
    pub(crate) fn replayed(journal_len: usize, tape: Tape) -> Self {
        let (near, far) = pair("wire", MemoryConfig::default());
        Self::open(near, Peer::Replay(Box::new(Replay::new(far, tape))), journal_len)
    }

    fn open(mut near: MemoryDevice, peer: Peer, journal_len: usize) -> Self {
        let capacity = Capacity { books: 512, orders: 1 << 16, levels: 1 << 14 };
        // Not zeros, so that the memory is touched before the measurement does.
        let trader = Trader::new(VENUE, capacity, vec![1; journal_len]);
        let builder = Worker::builder(&mut near).unwrap();
        let builder = builder.wrap_queue(|queue| Observed { queue, observer: PostStamp });
        let trader = host(builder, 1, Watched { trader, fires_bare: false });
        let mut day = Self { trader, peer, now: start() };
        let group = Group::new(*LINE_A.ip(), LINE_A.port());
        day.trader.with_app(day.now, |_, cx| cx.sockets.join(ConsumerId(0), group)).unwrap();
        day.settle();
        for from in (0..=Exchange::RESTING_ORDERS).step_by(32) {
            day.peer.act(day.now, |venue, cx| venue.fill(from, 32, cx));
            day.settle();
        }
        day.settle();
        assert!(day.trader.app().trader.ouch.session.is_open());
        day
    }

    /// Whether the app fires at a tick and does nothing else.
    pub(crate) fn fires_bare(&mut self, is_bare: bool) {
        self.trader.app_mut().fires_bare = is_bare;
    }

    /// Whatever is on its way arrives. Longer than an order's rate.
    pub(crate) fn settle(&mut self) {
        self.now += Duration::from_millis(20);
        self.peer.act(self.now, Venue::beat);
        for _ in 0..4 {
            self.now += Duration::from_micros(10);
            self.trader.poll_once(self.now);
            self.peer.poll(self.now);
        }
    }

    /// An offer that is worth buying is on the wire.
    pub(crate) fn offer(&mut self) {
        self.peer.act(self.now, Venue::offer);
    }

    /// A message of another book is on the wire, and its end behind it.
    pub(crate) fn other(&mut self) {
        self.peer.act(self.now, Venue::others);
    }

    /// Some messages of other books come, each in a turn.
    pub(crate) fn others(&mut self, count: usize) {
        for _ in 0..count {
            self.other();
            self.trader.poll_once(self.now);
        }
    }

    /// A turn of the trader.
    pub(crate) fn turn(&mut self) {
        self.now += Duration::from_micros(1);
        self.trader.poll_once(self.now);
    }

    /// A turn of the trader, measured. The time of each is without that of the clock.
    pub(crate) fn timed_turn(&mut self, clock_ns: f64, notes: Notes) -> Times {
        self.now += Duration::from_micros(1);
        let now = self.now;
        stamps::begin(notes);
        let start = Clock::now();
        self.trader.poll_once(now);
        let end = Clock::now();
        let [entered, posted] = stamps::end();
        // Each reading in between adds its time to what follows it.
        let mut readings = 1.0;
        let mut ns = |moment: Option<Clock>| {
            let Some(moment) = moment else { return 0.0 };
            let ns = (moment - start).as_nanos() as f64 - readings * clock_ns;
            readings += 1.0;
            ns.max(0.0)
        };
        let (to_app, to_post) = (ns(entered), ns(posted));
        Times { to_app, to_post, turn: ns(Some(end)) }
    }

    /// The exchange answers the order, and the offer is gone.
    pub(crate) fn finish(&mut self) {
        self.peer.poll(self.now);
        self.peer.act(self.now, |venue, cx| {
            venue.answer(cx);
            venue.withdraw(cx);
        });
        self.settle();
    }
}

fn start() -> Instant {
    Instant::from_nanos(1_000_000_000)
}

/// A host of that number. With constant seeds two days have the same numbers.
fn host<Q: Queue, A: App>(builder: WorkerBuilder<Q>, number: u8, app: A) -> Worker<Q::Rx, Q::Tx, HostStack, A> {
    let address = Ipv4Prefix::new(Ipv4Addr::new(192, 0, 2, number), 24).unwrap();
    let builder = builder.address(address).mac(MacAddr([2, 0, 0, 0, 0, number])).seed(HashSeed::new(1, 2));
    builder.tcp(TcpConfig::default()).build(app, &Block::heap().scope("end")).unwrap()
}
