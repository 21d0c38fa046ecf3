//! An exchange that answers, and publishes its book as MDP 3.0 beside ITCH: whoever listens to the
//! incremental feed, and whoever comes late and listens to the snapshots, has the book of ITCH.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use exchange_sim::{AccountSettings, Exchange, FaultPlan, LineSettings, Mdp3Groups, SendSockets, Serving, Settings};
use market::event::Liquidity;
use market::framing::Framing;
use market::framing::mdp3::Mdp3Packet;
use market::framing::mold_udp64::MoldUdp64;
use market::itch50::Itch50;
use market::mdp3::Mdp3;
use market::truth::Group;
use market::{Books, Capacity, Codec, Decoder, DepthBooks, MessageCounts, OrderBooks, Price, Side, Symbol};
use order_entry::Text;
use order_entry::orders::Instructions;
use order_entry::ouch::{Capacity as OrderCapacity, OuchClient};
use order_entry::risk::InstrumentIdx;
use order_entry::session::{VenueSession, WireOrder};
use order_entry::soupbin::{ClientConfig, Credentials};
use wirepath::worker::StopFlag;

const PORT: u16 = 26_671;
const SYMBOLS: usize = 3;
/// A busy machine has so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One group, joined on the loopback interface.
fn join(group: Group, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((group.address(), port)).unwrap();
    socket.join_multicast_v4(&group.address(), &Ipv4Addr::LOCALHOST).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Datagrams that wait.
fn drain(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())).collect()
}

/// Levels of both sides: price with nine decimals, shares, orders.
type Levels = [Vec<(i64, u64, u32)>; 2];

/// What a receiver has heard of each feed.
struct Receiver {
    itch: UdpSocket,
    incremental: [UdpSocket; 2],
    definitions: [UdpSocket; 2],
    snapshots: [UdpSocket; 2],
    by_itch: OrderBooks,
    /// Packets of the incremental feed that wait for those before them.
    waiting: BTreeMap<u32, Vec<u8>>,
    next: u32,
    by_updates: DepthBooks,
    by_snapshots: DepthBooks,
}

impl Receiver {
    fn new(settings: &Settings) -> Self {
        let groups = settings.mdp3.as_ref().unwrap();
        let pair = |pair: [Group; 2]| pair.map(|group| join(group, groups.port));
        Self {
            itch: join(settings.lines[0].group, settings.port),
            incremental: pair(groups.incremental),
            definitions: pair(groups.definitions),
            snapshots: pair(groups.snapshots),
            by_itch: OrderBooks::new(Capacity { books: SYMBOLS, orders: 1_024, levels: 1_024 }),
            waiting: BTreeMap::new(),
            next: 1,
            by_updates: DepthBooks::new(SYMBOLS),
            by_snapshots: DepthBooks::new(SYMBOLS),
        }
    }

    fn hear(&mut self) {
        for packet in drain(&self.itch) {
            for message in MoldUdp64::parse(&packet).unwrap().messages() {
                if let Ok(event) = Itch50.decode(message) {
                    self.by_itch.apply(&event);
                }
            }
        }
        for packet in self.definitions.iter().flat_map(drain) {
            apply(&packet, &mut self.by_updates);
            apply(&packet, &mut self.by_snapshots);
        }
        for packet in self.incremental.iter().flat_map(drain) {
            self.waiting.insert(Mdp3Packet::parse(&packet).unwrap().raw.seq, packet);
        }
        while let Some(packet) = self.waiting.remove(&self.next) {
            self.next += 1;
            apply(&packet, &mut self.by_updates);
        }
        for packet in self.snapshots.iter().flat_map(drain) {
            // A late joiner that takes each snapshot for the first.
            self.by_snapshots.mark_stale();
            apply(&packet, &mut self.by_snapshots);
        }
    }

    /// The book of the instrument by ITCH, by the updates and by the snapshots.
    fn books(&self, (locate, symbol): (u64, Symbol)) -> [Levels; 3] {
        let by_itch = [Side::Buy, Side::Sell].map(|side| {
            let Some(book) = self.by_itch.find(symbol) else { return Vec::new() };
            let levels = self.by_itch.depth(book, side).take(10);
            levels.map(|(price, qty, orders)| (price.0 * 100_000, qty, orders)).collect()
        });
        [by_itch, levels(&self.by_updates, locate), levels(&self.by_snapshots, locate)]
    }
}

fn levels(books: &DepthBooks, locate: u64) -> Levels {
    [Side::Buy, Side::Sell].map(|side| {
        let Some(book) = books.find(Symbol::from_number(locate)) else { return Vec::new() };
        let levels = books.depth(book, Liquidity::Direct, side);
        levels.iter().map(|level| (level.price.0, level.qty, level.orders)).collect()
    })
}

fn apply(packet: &[u8], books: &mut DepthBooks) {
    let mut counts = MessageCounts::new();
    for message in Mdp3Packet::parse(packet).unwrap().messages() {
        Mdp3.decode_all(message, &mut counts, &mut |event| _ = books.apply(event));
    }
    assert_eq!(counts.total(), counts.decoded());
}

/// A trader by OUCH.
struct Trader {
    stream: TcpStream,
    client: OuchClient,
    begun: Instant,
}

impl Trader {
    fn connect(address: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        let config = ClientConfig::new(Credentials::new("ALICE", "SECRET").unwrap());
        let client = OuchClient::new(config).of_firm(Text::new("FIRM").unwrap(), OrderCapacity::AGENCY);
        let mut trader = Self { stream, client, begun: Instant::now() };
        trader.client.connected(trader.now_ns()).unwrap();
        while !trader.client.is_open() {
            assert!(trader.begun.elapsed() < PATIENCE, "the session does not open");
            trader.turn();
        }
        trader
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn turn(&mut self) {
        let now_ns = self.now_ns();
        let mut buffer = [0; 4_096];
        match self.stream.read(&mut buffer) {
            Ok(len) => {
                assert!(len > 0, "the exchange has closed the connection");
                let mut input = &buffer[..len];
                while self.client.receive(now_ns, &mut input).unwrap().is_some() {}
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        self.client.tick(now_ns).unwrap();
        let len = self.stream.write(self.client.to_send()).unwrap();
        self.client.sent(len);
    }

    fn order(&mut self, symbol: Symbol, (side, qty, price): (Side, u32, Price)) {
        let (id, instrument) = (VenueSession::next_id(&self.client), InstrumentIdx(0));
        let order =
            WireOrder { id, instrument, symbol, side, is_short: false, qty, price, instructions: Instructions::PLAIN };
        let now_ns = self.now_ns();
        VenueSession::new_order(&mut self.client, now_ns, &order).unwrap();
        self.turn();
    }
}

#[test]
fn book_of_an_exchange_that_answers_is_that_of_itch_by_updates_and_by_snapshots() {
    let mdp3 = Mdp3Groups { port: PORT + 1, ..Mdp3Groups::default() };
    let mut settings = Settings { symbols: SYMBOLS as u16, port: PORT, mdp3: Some(mdp3), ..Settings::default() };
    // Line B of each feed is whole.
    settings.lines[0] = LineSettings { reorder: "10%".parse().unwrap(), ..settings.lines[0].clone() };
    let serving = Serving {
        send_sockets: SendSockets { interface: "lo".parse().unwrap(), loopback: true },
        orders: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        drop_copy: None,
        rerequest: None,
        start_after: Duration::ZERO,
        accounts: vec![AccountSettings::new("ALICE", "SECRET").unwrap()],
        rate_max: None,
        house_shares: 300,
        faults: FaultPlan::default(),
    };
    let mut receiver = Receiver::new(&settings);
    let exchange = Exchange::open(&settings, &serving).unwrap();
    let (listing, address, stop) = (exchange.listing().to_vec(), exchange.addresses()[0], StopFlag::new());
    let flag = stop.clone();
    let running = thread::spawn(move || exchange.run(&flag).unwrap());
    let mut trader = Trader::connect(address);
    for &(symbol, price) in &listing {
        // A bid that rests, one that takes the first offer and a part of the second, and an offer
        // beyond the house's.
        trader.order(symbol, (Side::Buy, 40, Price(price.0 - 500)));
        trader.order(symbol, (Side::Buy, 450, Price(price.0 + 200)));
        trader.order(symbol, (Side::Sell, 70, Price(price.0 + 900)));
    }
    let begun = Instant::now();
    for (locate, &(symbol, _)) in (1..).zip(&listing) {
        loop {
            trader.turn();
            receiver.hear();
            let [by_itch, by_updates, by_snapshots] = receiver.books((locate, symbol));
            let is_traded = by_itch.iter().map(Vec::len).sum::<usize>() == 7;
            if is_traded && by_updates == by_itch && by_snapshots == by_itch {
                break;
            }
            let late = begun.elapsed() > PATIENCE;
            assert!(!late, "{symbol}: {by_itch:?} by ITCH, {by_updates:?} by updates, {by_snapshots:?} by snapshots");
            thread::sleep(Duration::from_millis(1));
        }
    }
    stop.stop();
    running.join().unwrap();
}
