//! The other end of the wire: a feed of many books on line A, and an exchange that accepts a
//! session and ends each order.

use core::net::{Ipv4Addr, SocketAddrV4};

use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::itch50::{AddOrder, Head, OrderDelete};
use market::{Locate, Price, Symbol};
use order_entry::Text;
use order_entry::ouch::v50::{AccountQueryResponse, Field, Inbound, OrderAccepted};
use order_entry::ouch::{Capacity, CrossType, Display, OrderState, Side, TimeInForce, YesNo};
use order_entry::session::Output;
use order_entry::soupbin::{Server, ServerConfig, ServerEvent, SessionId};
use wirepath::pipeline::{UdpOptions, send_to};
use wirepath::prelude::*;
use zerocopy::IntoBytes;

pub(crate) const VENUE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 9_100);
pub(crate) const LINE_A: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 1), 26_477);
/// Books beside that of WIRE, each with so many orders.
const BOOKS: u16 = 200;
const RESTING: u64 = 50;
/// Where WIRE's offers stand that are not worth buying.
const DEAR: Price = Price::from_cents(1_050);

/// The app of that end.
pub(crate) struct Venue {
    soup: Server,
    connection: Option<ConnectionId>,
    /// The order that is to be answered.
    open: Option<u32>,
    seq: u64,
    reference: u64,
    /// The offer of WIRE that stands.
    offered: Option<u64>,
    random: u64,
}

impl Venue {
    pub(crate) fn new() -> Self {
        let soup = Server::new(ServerConfig::default());
        Self { soup, connection: None, open: None, seq: 1, reference: 1_000_000, offered: None, random: 1 }
    }

    /// Orders that rest in other books than that of WIRE.
    pub(crate) const RESTING_ORDERS: u64 = BOOKS as u64 * RESTING;

    /// Fills the books: packets of one message, as many as `send` takes in a turn.
    pub(crate) fn fill(&mut self, from: u64, count: u64, cx: &mut Cx<'_>) {
        for order in from..(from + count).min(Self::RESTING_ORDERS) {
            let (book, level) = (order % u64::from(BOOKS), order / u64::from(BOOKS));
            let is_buy = level.is_multiple_of(2);
            let price = Price(if is_buy { 100_000 - 100 * level as i64 } else { 110_000 + 100 * level as i64 });
            self.add(book as u16 + 2, order + 1, is_buy, price, cx);
        }
        if from + count >= Self::RESTING_ORDERS {
            self.add(1, 900_000, false, DEAR, cx);
        }
    }

    /// An offer of WIRE that is worth buying.
    pub(crate) fn offer(&mut self, cx: &mut Cx<'_>) {
        self.reference += 1;
        self.offered = Some(self.reference);
        let price = Price::from_cents(950 + (self.reference % 40) as i64);
        self.add(1, self.reference, false, price, cx);
    }

    /// The offer is gone, if there was one.
    pub(crate) fn withdraw(&mut self, cx: &mut Cx<'_>) {
        let Some(reference) = self.offered.take() else { return };
        let delete = OrderDelete { head: Head::new(OrderDelete::KIND, Locate(1), 0), order: reference.into() };
        self.publish(delete.as_bytes(), cx);
    }

    /// An order of another book comes and goes.
    pub(crate) fn others(&mut self, cx: &mut Cx<'_>) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.reference += 1;
        let (book, is_buy) = ((self.random >> 33) % u64::from(BOOKS), self.random >> 60 & 1 == 0);
        let level = (self.random >> 45) as i64 % RESTING as i64;
        let price = Price(if is_buy { 100_000 - 100 * level } else { 110_000 + 100 * level });
        self.add(book as u16 + 2, self.reference, is_buy, price, cx);
        let delete = OrderDelete {
            head: Head::new(OrderDelete::KIND, Locate(book as u16 + 2), 0),
            order: self.reference.into(),
        };
        self.publish(delete.as_bytes(), cx);
    }

    /// Answers the order that has come: accepted, and dead at once.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>) {
        let (Some(id), Some(connection)) = (self.open.take(), self.connection) else { return };
        let accepted = OrderAccepted {
            at_ns: 0.into(),
            user_ref: id.into(),
            side: Side::BUY,
            quantity: 100.into(),
            symbol: Symbol(*b"WIRE    "),
            price: 99_900.into(),
            time_in_force: TimeInForce::IMMEDIATE_OR_CANCEL,
            display: Display::VISIBLE,
            order_ref: u64::from(id).into(),
            capacity: Capacity::AGENCY,
            intermarket_sweep: YesNo::NO,
            cross_type: CrossType::CONTINUOUS,
            state: OrderState::DEAD,
            cl_ord_id: Text::BLANK,
        };
        let (mut message, mut buffer) = ([0; 96], [0; 128]);
        let len = accepted.emit(&[], &mut message).unwrap();
        let mut output = Output::new(&mut buffer);
        self.soup.send(cx.now.as_nanos(), &message[..len], &mut output).unwrap();
        cx.tcp().send(connection, output.written()).unwrap();
    }

    /// A heartbeat of the session, where one is due.
    pub(crate) fn beat(&mut self, cx: &mut Cx<'_>) {
        let mut buffer = [0; 16];
        let mut output = Output::new(&mut buffer);
        self.soup.tick(cx.now.as_nanos(), &mut output).unwrap();
        if let Some(connection) = self.connection.filter(|_| !output.is_empty()) {
            cx.tcp().send(connection, output.written()).unwrap();
        }
    }

    fn add(&mut self, locate: u16, reference: u64, is_buy: bool, price: Price, cx: &mut Cx<'_>) {
        let mut name = *b"AAAA    ";
        (name[1], name[2]) = (b'A' + (locate / 26) as u8, b'A' + (locate % 26) as u8);
        let add = AddOrder {
            head: Head::new(AddOrder::KIND, Locate(locate), 0),
            order: reference.into(),
            side: if is_buy { b'B' } else { b'S' },
            shares: 100.into(),
            stock: if locate == 1 { Symbol(*b"WIRE    ") } else { Symbol(name) },
            price: (price.0 as u32).into(),
        };
        self.publish(add.as_bytes(), cx);
    }

    fn publish(&mut self, message: &[u8], cx: &mut Cx<'_>) {
        let mut bytes = [0; 128];
        let header = MoldHeader::new(*b"0000000001", self.seq);
        let mut packet = PacketWriter::<MoldUdp64>::new(header, &mut bytes).unwrap();
        packet.push(message).unwrap();
        self.seq += 1;
        let from = SocketAddrV4::new(*VENUE.ip(), 5_000);
        send_to(from, LINE_A, &UdpOptions::default(), packet.finish(), cx).unwrap();
    }
}

impl App for Venue {
    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if let TcpEvent::Connected { .. } = event {
            self.connection = Some(connection);
            self.soup.connected(cx.now.as_nanos());
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let (mut input, now_ns, mut buffer) = (data.payload, cx.now.as_nanos(), [0; 256]);
        let mut output = Output::new(&mut buffer);
        while let Some(event) = self.soup.receive(now_ns, &mut input).unwrap() {
            match event {
                ServerEvent::Login(_) => {
                    self.soup.accept(now_ns, SessionId::new("S1").unwrap(), 1, &mut output).unwrap();
                }
                ServerEvent::Unsequenced(message) => match Inbound::parse(message).unwrap() {
                    (Inbound::EnterOrder(order), _) => self.open = Some(order.user_ref.get()),
                    (_, options) => {
                        let answer = AccountQueryResponse { at_ns: 0.into(), next_user_ref: 1.into() };
                        let mut message = [0; 32];
                        let idx = Field::UserRefIdx(options.user_ref_idx());
                        let len = answer.emit(&[idx], &mut message).unwrap();
                        self.soup.send(now_ns, &message[..len], &mut output).unwrap();
                    }
                },
                _ => (),
            }
        }
        if !output.is_empty() {
            cx.tcp().send(data.connection, output.written()).unwrap();
        }
    }
}
