//! A trader in one file: the book of lines A and B, a strategy, risk checks, a journal, and orders
//! by OUCH 5.0 that leave within the call that brought the tick. As root: `cargo run --release -p
//! wirepath-order-entry --example trader -- eth1 10.0.0.1:9100`.
//!
//! The strategy buys 100 WIRE whenever they are offered below 10.00, one order at a time, until it
//! has 1,000; its limits would stop it there too. The journal is plain memory: a mapped file takes
//! the same place.

use std::net::{Ipv4Addr, SocketAddrV4};

use market::{AbChannel, AbConfig, BookBuilder, Books, Capacity, Line, OrderBooks, Price, Side, Symbol};
use market::{framing::mold_udp64::MoldUdp64, itch50::Itch50};
use order_entry::ouch::{self, OrderTemplate, OuchClientError, OuchOrders, Side as OuchSide, TimeInForce};
use order_entry::risk::{InstrumentIdx, Market, NewOrder, SingleLimits};
use order_entry::{ManagerConfig, journal::Journal, soupbin::ClientConfig, soupbin::Credentials};
use wirepath::prelude::*;

pub(crate) const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 40_000);
const WIRE: (Symbol, InstrumentIdx) = (Symbol(*b"WIRE    "), InstrumentIdx(0));
const QTY: u32 = 100;

pub(crate) struct Trader {
    caller: Caller,
    feed: AbChannel<MoldUdp64>,
    books: BookBuilder<Itch50, OrderBooks>,
    pub(crate) ouch: OuchOrders<Vec<u8>>,
    pub(crate) order: Option<PreparedOrder>, // on this connection
}

impl Trader {
    pub(crate) fn new(venue: SocketAddrV4, capacity: Capacity, journal: Vec<u8>) -> Self {
        let (collar_bps, credit_max) = (500, Price::from_cents(1_000_000));
        let limits = SingleLimits { qty_max: QTY, long_max: 1_000, collar_bps, credit_max, per_second: 100 };
        let client = ClientConfig::new(Credentials::new("TRADER", "SECRET").expect("6 and 10 letters at most"));
        let journal = Journal::create(journal, 1, 0, 4_096).expect("a journal has a header");
        Self {
            caller: Caller::new(LOCAL, venue, ConsumerId(2)),
            feed: AbChannel::new(AbConfig::default()),
            books: BookBuilder::new(Itch50, OrderBooks::new(capacity)),
            ouch: OuchOrders::new(client, ManagerConfig { recent: 64, ..ManagerConfig::new(limits) }, journal).armed(),
            order: None,
        }
    }

    fn buy(&mut self, price: Price, market: &Market, cx: &mut Cx<'_>) {
        let (Some(packet), now_ns) = (&mut self.order, cx.now.as_nanos()) else { return };
        let order = NewOrder::limit(WIRE.1, Side::Buy, QTY, price);
        // Why it is not sent, where it is not, is in the journal.
        let _ = self.ouch.send_order(WIRE.0, &order, market, now_ns, |id| {
            packet.patch(OrderTemplate::USER_REF_AT, &id.to_be_bytes()).is_ok()
                && packet.patch(OrderTemplate::PRICE_AT, &price.0.to_be_bytes()).is_ok()
                && cx.tcp().try_fire(packet) == Ok(true)
        });
    }

    /// Sends what the session has written. A venue that breaks a rule is left.
    fn send(&mut self, said: Result<(), OuchClientError>, cx: &mut Cx<'_>) {
        self.ouch.sent(self.caller.send(self.ouch.to_send(), cx));
        if let Err(error) = said {
            println!("{error}");
            self.caller.abort(cx);
        }
    }
}

impl App for Trader {
    fn on_datagram(&mut self, packet: &Datagram<'_>, cx: &mut Cx<'_>) {
        let (line, heard_ns) = (Line(packet.consumer.0 as usize), cx.now.as_nanos());
        self.ouch.cool(); // the tick's code displaces an order's from the cache
        let is_heard = self.feed.on_packet(line, packet.payload, heard_ns, &mut self.books);
        let (books, orders) = (&self.books.books, &self.ouch.orders);
        let Some((is_stale, top)) = books.find(WIRE.0).map(|of| (books.is_stale(of), books.top(of))) else { return };
        let is_free = is_heard && orders.orders().live_count() == 0 && orders.risk().position(WIRE.1) < Some(1_000);
        if is_free && top.ask_qty > 0 && top.ask_px < Price::from_cents(1_000) {
            let market = Market { reference: Some(top.ask_px), is_stale, heard_ns, ..Market::default() };
            self.buy(top.ask_px, &market, cx);
        }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match self.caller.take(connection, event, cx) {
            CallerEvent::Up => {
                let packet = OrderTemplate::limit(OuchSide::BUY, WIRE.0, QTY, TimeInForce::IMMEDIATE_OR_CANCEL)
                    .in_capacity(ouch::Capacity::PRINCIPAL);
                self.order = cx.tcp().prepare(connection, packet.bytes()).ok();
                let said = self.ouch.connected(cx.now.as_nanos());
                self.send(said, cx);
            }
            CallerEvent::Down(reason) => {
                println!("the session has ended: {reason}");
                self.order = None;
                self.ouch.disconnected();
            }
            _ => (),
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let said = self.ouch.received(data.payload, cx.now.as_nanos());
        self.send(said, cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.caller.tick(cx).unwrap_or_else(|error| println!("no call: {error}"));
        self.feed.tick(cx.now.as_nanos(), &mut self.books);
        let (is_cold, said) = (self.ouch.is_cold(), self.ouch.tick(cx.now.as_nanos()));
        self.send(said, cx);
        let _ = self.order.as_mut().filter(|_| is_cold).map(|order| cx.tcp().warm(order)); // the line's code too
    }
}

pub(crate) fn main() -> wirepath::Result<()> {
    let argument = |nth| std::env::args().nth(nth).unwrap_or_default();
    let venue: SocketAddrV4 = argument(2).parse().expect("a venue, like 10.0.0.1:9100");
    let line = |last, consumer| multicast([233, 252, 0, last], 26_477).consumer(consumer);
    let answers = tcp_from(*venue.ip(), venue.port()).local_port(LOCAL.port()).consumer(2);
    let port = Port::open(&argument(1))?.tcp().subscribe(line(1, 0)).subscribe(line(2, 1)).subscribe(answers);
    port.run(move |_worker| Trader::new(venue, Capacity::default(), vec![0; 64 << 20]))
}
