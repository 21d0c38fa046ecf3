//! The exchange over real sockets of this host: a client that knows SoupBinTCP and OUCH, and a
//! receiver of the feed.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use exchange_sim::{
    AccountSettings, Command, Exchange, FaultPlan, Operator, Script, SendSockets, Served, Serving, Settings,
};
use market::framing::Framing;
use market::framing::mold_udp64::MoldUdp64;
use order_entry::Text;
use order_entry::ouch::v42;
use order_entry::ouch::v50::{EnterOrder, Outbound};
use order_entry::ouch::{Capacity, CrossType, CustomerType, Display, Side, TimeInForce, YesNo};
use order_entry::session::Output;
use order_entry::soupbin::{
    self, ClientConfig, ClientEvent, Credentials, LoginRejectReason, Packet, PacketType, SessionId, emit,
};
use wirepath::worker::StopFlag;
use zerocopy::IntoBytes;

/// An exchange that runs in a thread until it is stopped.
struct Running {
    addresses: Vec<SocketAddr>,
    stop: StopFlag,
    thread: JoinHandle<Served>,
}

impl Running {
    fn start(port: u16, faults: &[&str]) -> Self {
        Self::start_with(port, faults, |_| {})
    }

    fn start_with(port: u16, faults: &[&str], set: impl FnOnce(&mut Exchange)) -> Self {
        let settings = Settings { symbols: 2, port, ..Settings::default() };
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let serving = Serving {
            send_sockets: SendSockets { interface: "lo".parse().unwrap(), loopback: true },
            orders: any,
            drop_copy: Some(any),
            rerequest: None,
            start_after: Duration::ZERO,
            accounts: ["ALICE", "BOB"].map(|user| AccountSettings::new(user, "SECRET").unwrap()).to_vec(),
            rate_max: None,
            house_shares: 300,
            faults: FaultPlan { seed: 1, rules: faults.iter().map(|rule| rule.parse().unwrap()).collect() },
        };
        let mut exchange = Exchange::open(&settings, &serving).unwrap();
        exchange.open_ouch42(any).unwrap();
        set(&mut exchange);
        let (addresses, stop) = (exchange.addresses(), StopFlag::new());
        let flag = stop.clone();
        let thread = thread::spawn(move || exchange.run(&flag).unwrap());
        Self { addresses, stop, thread }
    }

    fn stop(self) -> Served {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

/// A client of one port.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    /// Connects and sends the login for messages from `number` on.
    fn login(address: SocketAddr, user: &str, number: u64) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Self { stream, received: Vec::new() };
        let login = Credentials::new(user, "secret").unwrap().login(SessionId::BLANK, number);
        client.send(PacketType::LoginRequest, login.as_bytes());
        client
    }

    fn send(&mut self, kind: PacketType, payload: &[u8]) {
        let mut bytes = [0; 128];
        let mut output = Output::new(&mut bytes);
        emit(kind, payload, &mut output).unwrap();
        self.stream.write_all(output.written()).unwrap();
    }

    fn enter(&mut self, number: u32, side: Side, quantity: u32, stock: (market::Symbol, u32)) {
        let order = Self::order(number, side, quantity, stock);
        self.send(PacketType::Unsequenced, &order);
    }

    fn order(number: u32, side: Side, quantity: u32, (symbol, price): (market::Symbol, u32)) -> Vec<u8> {
        let order = EnterOrder {
            user_ref: number.into(),
            side,
            quantity: quantity.into(),
            symbol,
            price: u64::from(price).into(),
            time_in_force: TimeInForce::DAY,
            display: Display::VISIBLE,
            capacity: Capacity::PRINCIPAL,
            intermarket_sweep: YesNo::NO,
            cross_type: CrossType::CONTINUOUS,
            cl_ord_id: Text::BLANK,
        };
        let mut bytes = [0; 64];
        let len = order.emit(&[], &mut bytes).unwrap();
        bytes[..len].to_vec()
    }

    /// The next packet but heartbeats; none where the connection is closed.
    fn next(&mut self) -> Option<(PacketType, Vec<u8>)> {
        loop {
            if let Some(len) = Packet::len(&self.received).unwrap()
                && len <= self.received.len()
            {
                let bytes: Vec<u8> = self.received.drain(..len).collect();
                let packet = Packet::parse(&bytes).unwrap();
                if packet.kind != PacketType::ServerHeartbeat {
                    return Some((packet.kind, packet.payload.to_vec()));
                }
                continue;
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(len) if len > 0 => self.received.extend_from_slice(&buffer[..len]),
                _ => return None,
            }
        }
    }

    /// The number in the server's answer to the login.
    fn accepted(&mut self) -> u64 {
        let (kind, payload) = self.next().unwrap();
        assert_eq!(kind, PacketType::LoginAccepted);
        std::str::from_utf8(&payload[10..]).unwrap().trim().parse().unwrap()
    }

    /// The type of the next message.
    fn message(&mut self) -> u8 {
        let (kind, payload) = self.next().unwrap();
        assert_eq!(kind, PacketType::Sequenced);
        Outbound::parse(&payload).unwrap();
        payload[0]
    }
}

/// A receiver of line A, from before the day.
fn receiver(port: u16) -> UdpSocket {
    let group = Settings::default().lines[0].group.address();
    let socket = UdpSocket::bind((group, port)).unwrap();
    socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// The messages of the feed until `done` says so of one.
fn hear(socket: &UdpSocket, mut done: impl FnMut(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let (mut messages, mut buffer) = (Vec::new(), [0; 2048]);
    loop {
        let len = socket.recv(&mut buffer).unwrap();
        for message in MoldUdp64::parse(&buffer[..len]).unwrap().messages() {
            messages.push(message.to_vec());
            if done(message) {
                return messages;
            }
        }
    }
}

/// An instrument of the feed, and a price at which the house offers it.
fn offered(messages: &[Vec<u8>]) -> (market::Symbol, u32) {
    let offer = messages.iter().find(|message| message[0] == b'A' && message[19] == b'S').unwrap();
    (market::Symbol(offer[24..32].try_into().unwrap()), u32::from_be_bytes(offer[32..36].try_into().unwrap()))
}

#[test]
fn order_over_tcp_trades_and_its_print_is_on_the_feed_and_the_drop_copy() {
    let socket = receiver(26610);
    let exchange = Running::start(26610, &[]);
    let instrument = offered(&hear(&socket, |message| message[0] == b'A' && message[19] == b'S'));
    let mut copy = Client::login(exchange.addresses[1], "ALICE", 1);
    assert_eq!(copy.accepted(), 1);
    let mut client = Client::login(exchange.addresses[0], "ALICE", 1);
    assert_eq!(client.accepted(), 1);
    client.enter(1, Side::BUY, 100, instrument);
    assert_eq!([client.message(), client.message()], *b"AE");
    assert_eq!(copy.message(), b'E');
    let printed = hear(&socket, |message| message[0] == b'E');
    assert_eq!(u32::from_be_bytes(printed.last().unwrap()[19..23].try_into().unwrap()), 100);
    let served = exchange.stop();
    assert_eq!((served.counts.messages, served.violations), (1, 0));
    assert_eq!(client.next().map(|(kind, _)| kind), Some(PacketType::EndOfSession));
}

#[test]
fn operator_opens_by_a_cross_and_breaks_it_and_all_are_told() {
    let socket = receiver(26622);
    let (operator, commands) = channel();
    let (tell, told) = channel();
    let exchange = Running::start_with(26622, &[], |exchange| {
        // Until the operator opens it.
        exchange.quote_for(Duration::from_secs(3600));
        let tell = move |command: Command, outcome: Result<(), String>| tell.send((command, outcome)).unwrap();
        exchange.set_operator(Operator::new(Script::default(), commands, tell));
    });
    let directory = hear(&socket, |message| message[0] == b'R').pop().unwrap();
    let symbol = market::Symbol(directory[11..19].try_into().unwrap());
    let obey = |text: &str| {
        operator.send(text.parse().unwrap()).unwrap();
        let (command, outcome) = told.recv().unwrap();
        assert_eq!((command.to_string().as_str(), outcome), (text, Ok(())));
    };
    let mut copy = Client::login(exchange.addresses[1], "BOB", 1);
    let mut clients = ["ALICE", "BOB"].map(|user| Client::login(exchange.addresses[0], user, 1));
    assert_eq!([copy.accepted(), clients[0].accepted(), clients[1].accepted()], [1; 3]);
    // Whatever the listing's price is: the lowest and the highest there is.
    clients[0].enter(1, Side::SELL, 100, (symbol, 100));
    clients[1].enter(1, Side::BUY, 100, (symbol, 1_990_000_000));
    assert_eq!(clients.each_mut().map(Client::message), *b"AA", "and nothing trades");
    obey("imbalance all");
    obey("cross all");
    assert_eq!(clients.each_mut().map(Client::message), *b"EE");
    obey("break 1");
    assert_eq!(clients.each_mut().map(Client::message), *b"BB");
    assert_eq!([copy.message(), copy.message()], *b"EB");
    let heard = hear(&socket, |message| message[0] == b'B');
    assert!(heard.iter().any(|message| message[0] == b'I' && message[18] == 100));
    assert!(heard.iter().any(|message| message[0] == b'Q' && message[18] == 100));
    exchange.stop();
}

#[test]
fn lost_answer_is_there_at_the_next_login_and_the_orders_were_canceled() {
    let socket = receiver(26612);
    let exchange = Running::start(26612, &["lost-ack@1"]);
    let (symbol, price) = offered(&hear(&socket, |message| message[0] == b'A' && message[19] == b'S'));
    let mut client = Client::login(exchange.addresses[0], "ALICE", 1);
    client.accepted();
    // Below the house's bids: it rests.
    client.enter(1, Side::BUY, 100, (symbol, price - 2_000));
    assert!(client.next().is_none(), "the connection breaks, and no answer has come");
    let mut client = Client::login(exchange.addresses[0], "ALICE", 1);
    assert_eq!(client.accepted(), 1);
    assert_eq!([client.message(), client.message()], *b"AC");
    assert_eq!(exchange.stop().counts.lost_acks, 1);
}

#[test]
fn half_open_connection_is_silent_and_another_login_takes_over() {
    let socket = receiver(26614);
    let exchange = Running::start(26614, &["half-open@1", "sequence-surprise@2"]);
    let (symbol, price) = offered(&hear(&socket, |message| message[0] == b'A' && message[19] == b'S'));
    let mut first = Client::login(exchange.addresses[0], "ALICE", 1);
    first.accepted();
    // One connection an account.
    let mut second = Client::login(exchange.addresses[0], "ALICE", 1);
    assert_eq!(second.next(), Some((PacketType::LoginRejected, b"S".to_vec())));
    first.enter(1, Side::BUY, 100, (symbol, price - 2_000));
    // Silent: nothing comes, not even the end. A login is tried until the venue has read the order.
    let told = loop {
        let mut client = Client::login(exchange.addresses[0], "ALICE", 1);
        match client.next().unwrap() {
            (PacketType::LoginAccepted, payload) => break payload,
            (kind, _) => assert_eq!(kind, PacketType::LoginRejected),
        }
    };
    assert_ne!(&told[10..], b"                   1", "the number is a surprise");
    assert_eq!(exchange.stop().counts.half_opens, 1);
}

#[test]
fn login_that_finds_another_session_ends_by_its_rule() {
    let exchange = Running::start(26624, &["new-session@1"]);
    let address = exchange.addresses[0];
    let mut session = soupbin::Client::new(ClientConfig::new(Credentials::new("ALICE", "secret").unwrap()));
    let mut log_in = || {
        let (mut stream, mut bytes, mut received) = (TcpStream::connect(address).unwrap(), [0; 256], [0; 256]);
        let mut output = Output::new(&mut bytes);
        session.reconnect(1, &mut output).unwrap();
        stream.write_all(output.written()).unwrap();
        loop {
            let len = stream.read(&mut received).unwrap();
            assert!(len > 0, "the venue has closed");
            match session.receive(1, &mut &received[..len]) {
                Ok(Some(ClientEvent::LoggedIn { .. })) => break Ok(()),
                // The venue has not seen the end of the connection before.
                Ok(Some(ClientEvent::LoginRejected(LoginRejectReason::SessionNotAvailable))) => break Err(None),
                Ok(_) => (),
                Err(error) => break Err(Some(error.to_string())),
            }
        }
    };
    assert_eq!(log_in(), Ok(()));
    let end = loop {
        match log_in() {
            Err(None) => (),
            other => break other,
        }
    };
    let Err(Some(end)) = end else { panic!("{end:?}") };
    assert!(end.starts_with("a login is accepted for the session asked for"), "{end}");
    while log_in() == Err(None) {}
    exchange.stop();
}

#[test]
fn order_that_comes_with_a_login_outlives_the_connection_that_was_silenced() {
    let socket = receiver(26620);
    let exchange = Running::start(26620, &["half-open@1"]);
    let (symbol, price) = offered(&hear(&socket, |message| message[0] == b'A' && message[19] == b'S'));
    let stock = (symbol, price - 2_000);
    let mut first = Client::login(exchange.addresses[0], "ALICE", 1);
    first.accepted();
    first.enter(1, Side::BUY, 100, stock);
    let login = Credentials::new("ALICE", "secret").unwrap().login(SessionId::BLANK, 0);
    let order = Client::order(2, Side::BUY, 100, stock);
    // A login is tried until the venue has read the first order.
    let mut second = loop {
        let stream = TcpStream::connect(exchange.addresses[0]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Client { stream, received: Vec::new() };
        let mut bytes = [0; 256];
        let mut output = Output::new(&mut bytes);
        emit(PacketType::LoginRequest, login.as_bytes(), &mut output).unwrap();
        emit(PacketType::Unsequenced, &order, &mut output).unwrap();
        client.stream.write_all(output.written()).unwrap();
        if client.next().unwrap().0 == PacketType::LoginAccepted {
            break client;
        }
    };
    while second.message() != b'A' {}
    second.send(PacketType::Unsequenced, b"Q");
    assert_eq!(second.message(), b'Q', "the order was canceled");
    exchange.stop();
}

#[test]
fn peer_that_breaks_a_rule_is_disconnected_and_the_rule_is_told() {
    let socket = receiver(26616);
    let exchange = Running::start(26616, &[]);
    hear(&socket, |message| message[0] == b'A');
    let mut client = Client::login(exchange.addresses[0], "BOB", 0);
    client.accepted();
    client.send(PacketType::Unsequenced, b"\x1b[2Jno message");
    assert!(client.next().is_none());
    let mut stranger = Client::login(exchange.addresses[0], "MALLET", 1);
    assert_eq!(stranger.next(), Some((PacketType::LoginRejected, b"A".to_vec())));
    let served = exchange.stop();
    assert_eq!(served.violations, 1);
    let words = served.to_string();
    assert!(words.contains("the first: ") && !words.contains('\x1b'), "{words}");
}

#[test]
fn order_by_ouch_42_trades_and_a_login_gets_its_answers_again() {
    let socket = receiver(26618);
    let exchange = Running::start(26618, &[]);
    let (stock, price) = offered(&hear(&socket, |message| message[0] == b'A' && message[19] == b'S'));
    let mut client = Client::login(exchange.addresses[2], "ALICE", 1);
    assert_eq!(client.accepted(), 1);
    let order = v42::EnterOrder {
        token: Text::new("ONE").unwrap(),
        side: Side::BUY,
        shares: 100.into(),
        stock,
        price: price.into(),
        time_in_force: v42::MARKET_HOURS.into(),
        firm: Text::BLANK,
        display: Display::VISIBLE,
        capacity: Capacity::PRINCIPAL,
        intermarket_sweep: YesNo::NO,
        min_quantity: 0.into(),
        cross_type: CrossType::CONTINUOUS,
        customer_type: CustomerType::DEFAULT,
    };
    let mut bytes = [0; 64];
    let len = order.emit(&mut bytes).unwrap();
    client.send(PacketType::Unsequenced, &bytes[..len]);
    let is_of_42 = |client: &mut Client| {
        let (_, payload) = client.next().unwrap();
        v42::Outbound::parse(&payload).unwrap();
        payload[0]
    };
    assert_eq!([is_of_42(&mut client), is_of_42(&mut client)], *b"AE");
    client.send(PacketType::LogoutRequest, &[]);
    assert!(client.next().is_none());
    let mut client = Client::login(exchange.addresses[2], "ALICE", 2);
    assert_eq!((client.accepted(), is_of_42(&mut client)), (2, b'E'));
    assert_eq!(exchange.stop().violations, 0);
}
