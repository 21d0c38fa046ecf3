//! The exchange of these measurements, without I/O: a feed of many books on line A, and a session
//! that ends each order at once.

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
use zerocopy::IntoBytes;

/// Where the feed's packets go.
pub(crate) const LINE_A: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 1), 26_477);
/// Books beside that of WIRE, each with so many orders.
const BOOKS: u16 = 200;
const RESTING: u64 = 50;
/// Where WIRE's offers stand that are not worth buying.
const DEAR: Price = Price::from_cents(1_050);

/// A packet of the feed.
pub(crate) struct Packet {
    bytes: [u8; 128],
    len: usize,
}

impl Packet {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The exchange.
pub(crate) struct Exchange {
    soup: Server,
    /// The order that is to be answered.
    open: Option<u32>,
    seq: u64,
    reference: u64,
    /// The offer of WIRE that stands.
    offered: Option<u64>,
    random: u64,
}

impl Exchange {
    /// Orders that rest in other books than that of WIRE, and behind them the first one of WIRE.
    pub(crate) const RESTING_ORDERS: u64 = BOOKS as u64 * RESTING;

    /// One without orders or a session.
    pub(crate) fn new() -> Self {
        let soup = Server::new(ServerConfig::default());
        Self { soup, open: None, seq: 1, reference: 1_000_000, offered: None, random: 1 }
    }

    /// Fills the books: the packet of that order, up to and with [`Self::RESTING_ORDERS`].
    pub(crate) fn fill(&mut self, order: u64) -> Packet {
        if order >= Self::RESTING_ORDERS {
            return self.add(1, 900_000, false, DEAR);
        }
        let (book, level) = (order % u64::from(BOOKS), order / u64::from(BOOKS));
        let is_buy = level.is_multiple_of(2);
        let price = Price(if is_buy { 100_000 - 100 * level as i64 } else { 110_000 + 100 * level as i64 });
        self.add(book as u16 + 2, order + 1, is_buy, price)
    }

    /// An offer of WIRE that is worth buying.
    pub(crate) fn offer(&mut self) -> Packet {
        self.reference += 1;
        self.offered = Some(self.reference);
        let price = Price::from_cents(950 + (self.reference % 40) as i64);
        self.add(1, self.reference, false, price)
    }

    /// The offer is gone, if there was one.
    pub(crate) fn withdraw(&mut self) -> Option<Packet> {
        let reference = self.offered.take()?;
        Some(self.delete(1, reference))
    }

    /// An order of another book comes and goes.
    pub(crate) fn other(&mut self) -> [Packet; 2] {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.reference += 1;
        let (book, is_buy) = ((self.random >> 33) % u64::from(BOOKS), self.random >> 60 & 1 == 0);
        let level = (self.random >> 45) as i64 % RESTING as i64;
        let price = Price(if is_buy { 100_000 - 100 * level } else { 110_000 + 100 * level });
        let locate = book as u16 + 2;
        [self.add(locate, self.reference, is_buy, price), self.delete(locate, self.reference)]
    }

    /// The trader's connection stands.
    pub(crate) fn connected(&mut self, now_ns: u64) {
        self.soup.connected(now_ns);
    }

    /// Bytes of the connection; what is to be sent goes into `output`.
    pub(crate) fn receive(&mut self, bytes: &[u8], now_ns: u64, output: &mut Output<'_>) {
        let mut input = bytes;
        while let Some(event) = self.soup.receive(now_ns, &mut input).unwrap() {
            match event {
                ServerEvent::Login(_) => {
                    self.soup.accept(now_ns, SessionId::new("S1").unwrap(), 1, output).unwrap();
                }
                ServerEvent::Unsequenced(message) => match Inbound::parse(message).unwrap() {
                    (Inbound::EnterOrder(order), _) => self.open = Some(order.user_ref.get()),
                    (_, options) => {
                        let answer = AccountQueryResponse { at_ns: 0.into(), next_user_ref: 1.into() };
                        let mut message = [0; 32];
                        let idx = Field::UserRefIdx(options.user_ref_idx());
                        let len = answer.emit(&[idx], &mut message).unwrap();
                        self.soup.send(now_ns, &message[..len], output).unwrap();
                    }
                },
                _ => (),
            }
        }
    }

    /// Whether an order is to be answered.
    pub(crate) fn has_order(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the trader is logged in.
    pub(crate) fn is_open(&self) -> bool {
        self.soup.is_logged_in()
    }

    /// Answers the order that has come: accepted, and dead at once.
    pub(crate) fn answer(&mut self, now_ns: u64, output: &mut Output<'_>) {
        let Some(id) = self.open.take() else { return };
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
        let mut message = [0; 96];
        let len = accepted.emit(&[], &mut message).unwrap();
        self.soup.send(now_ns, &message[..len], output).unwrap();
    }

    /// A heartbeat of the session, where one is due.
    pub(crate) fn beat(&mut self, now_ns: u64, output: &mut Output<'_>) {
        self.soup.tick(now_ns, output).unwrap();
    }

    fn add(&mut self, locate: u16, reference: u64, is_buy: bool, price: Price) -> Packet {
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
        self.packet(add.as_bytes())
    }

    fn delete(&mut self, locate: u16, reference: u64) -> Packet {
        let head = Head::new(OrderDelete::KIND, Locate(locate), 0);
        self.packet(OrderDelete { head, order: reference.into() }.as_bytes())
    }

    fn packet(&mut self, message: &[u8]) -> Packet {
        let mut bytes = [0; 128];
        let header = MoldHeader::new(*b"0000000001", self.seq);
        let mut packet = PacketWriter::<MoldUdp64>::new(header, &mut bytes).unwrap();
        packet.push(message).unwrap();
        self.seq += 1;
        let len = packet.finish().len();
        Packet { bytes, len }
    }
}
