//! An exchange as the app of a worker: OUCH 5.0 of one account over TCP in, its messages and both
//! lines of the book out. The matching is exchange-sim's, without its sockets and clock.

use core::net::{Ipv4Addr, SocketAddrV4};

use exchange_sim::{AccountSettings, Venue, VenueSettings};
use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::{Price, Symbol};
use order_entry::ouch::v50::EnterOrder;
use order_entry::ouch::{Side, TimeInForce};
use order_entry::session::Output;
use order_entry::soupbin::{Server, ServerConfig, ServerEvent, SessionId, judge_login};
use wirepath::pipeline::{App, Cx, UdpOptions, send_to};
use wirepath::prelude::*;

/// The groups of lines A and B.
pub const LINES: [SocketAddrV4; 2] = [
    SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 1), 26_477),
    SocketAddrV4::new(Ipv4Addr::new(233, 252, 0, 2), 26_477),
];
/// Account 0 connects; account 1 trades by [`Exchange::trade`].
const TRADER: usize = 0;
const OTHER: usize = 1;
const SESSION: &str = "S1";

/// The app.
pub struct Exchange {
    /// The matching engine with its accounts.
    pub venue: Venue,
    address: Ipv4Addr,
    soup: Server,
    connection: Option<ConnectionId>,
    /// Messages of the account that are sent.
    position: usize,
    /// The number of the next message of the feed.
    seq: u64,
    /// The number of the other account's last order.
    user_ref: u32,
}

impl Exchange {
    /// One that sends from `address`, for the user TRADER with the password SECRET, and lists
    /// `symbol` at `opening`.
    pub fn new(address: Ipv4Addr, symbol: Symbol, opening: Price) -> Self {
        let account = |user| AccountSettings::new(user, "SECRET").expect("6 and 10 letters at most");
        let accounts = vec![account("TRADER"), account("OTHER")];
        let mut venue = Venue::new(VenueSettings::new(vec![(symbol, opening)], accounts));
        venue.open(0);
        let soup = Server::new(ServerConfig::default());
        Self { venue, address, soup, connection: None, position: 0, seq: 1, user_ref: 0 }
    }

    /// Enters an order of the other account.
    pub fn trade(&mut self, side: Side, symbol: Symbol, qty: u32, price: Price, cx: &mut Cx<'_>) {
        self.user_ref += 1;
        let order = EnterOrder::new(side, symbol, TimeInForce::DAY);
        let (user_ref, quantity) = (self.user_ref.into(), qty.into());
        let order = EnterOrder { user_ref, quantity, price: (price.0 as u64).into(), ..order };
        let mut message = [0; 64];
        let len = order.emit(&[], &mut message).expect("an order has 47 bytes");
        self.venue.receive(OTHER, &message[..len], cx.now.as_nanos()).expect("it is an order");
        self.publish(cx);
    }

    /// Sends what is new of the book, on both lines.
    pub fn publish(&mut self, cx: &mut Cx<'_>) {
        for (_, message) in self.venue.take_public() {
            let mut bytes = [0; 128];
            let header = MoldHeader::new(*b"0000000001", self.seq);
            let mut packet = PacketWriter::<MoldUdp64>::new(header, &mut bytes).expect("a header fits");
            packet.push(&message).expect("a message has 50 bytes at most");
            self.seq += 1;
            let packet = packet.finish();
            for line in LINES {
                let from = SocketAddrV4::new(self.address, 5_000);
                send_to(from, line, &UdpOptions::default(), packet, cx).expect("the wire has room");
            }
        }
    }

    /// Breaks the connection, as a line that is cut.
    pub fn hang_up(&mut self, cx: &mut Cx<'_>) {
        if let Some(connection) = self.connection.take() {
            cx.tcp().abort(connection).expect("it is open");
            self.leave(cx);
        }
    }

    fn leave(&mut self, cx: &mut Cx<'_>) {
        self.soup.disconnected();
        self.venue.disconnected(TRADER, cx.now.as_nanos());
        self.publish(cx);
    }

    fn take(&mut self, bytes: &[u8], output: &mut Output<'_>, now_ns: u64) {
        let mut input = bytes;
        while let Some(event) = self.soup.receive(now_ns, &mut input).expect("the client keeps the rules") {
            match event {
                ServerEvent::Login(login) => {
                    let (session, recorded) = (SessionId::new(SESSION), self.venue.accounts()[TRADER].messages().len());
                    let session = session.expect("ten letters at most");
                    let credentials = self.venue.accounts()[TRADER].settings().credentials;
                    let start = judge_login(&login, &credentials, session, recorded as u64 + 1);
                    let next = start.expect("the client knows its password and its session");
                    self.position = next as usize - 1;
                    self.soup.accept(now_ns, session, next, output).expect("there is room");
                }
                ServerEvent::Unsequenced(message) => {
                    self.venue.receive(TRADER, message, now_ns).expect("it is a message");
                }
                _ => (),
            }
        }
        let messages = self.venue.accounts()[TRADER].messages();
        while self.soup.is_logged_in()
            && let Some(message) = messages.get(self.position).expect("the file can be read")
        {
            self.soup.send(now_ns, &message, output).expect("there is room");
            self.position += 1;
        }
    }
}

impl App for Exchange {
    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        match event {
            TcpEvent::Connected { .. } => {
                self.connection = Some(connection);
                self.soup.connected(cx.now.as_nanos());
            }
            TcpEvent::PeerClosed => _ = cx.tcp().close(connection),
            TcpEvent::Closed(_) if self.connection == Some(connection) => {
                self.connection = None;
                self.leave(cx);
            }
            _ => (),
        }
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let mut buffer = [0; 4_096];
        let mut output = Output::new(&mut buffer);
        self.take(data.payload, &mut output, cx.now.as_nanos());
        cx.tcp().send(data.connection, output.written()).expect("the connection is open");
        self.publish(cx);
    }
}
