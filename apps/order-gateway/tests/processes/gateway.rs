//! A gateway as a process of its own: this test program again, with one test alone.

use std::env;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::itch50::{AddOrder, Head, Message};
use market::{Capacity, Locate, Price, Symbol};
use order_entry::ManagerConfig;
use order_entry::Text;
use order_entry::boe::{self, Boe2Client, Boe3Client, BoeFirm};
use order_entry::fix::session::{SessionConfig, Version};
use order_entry::fix::{CopiedSession, FixClient, FixClientConfig};
use order_entry::ilink3::{self, Ilink3Client, IlinkFirm};
use order_entry::journal::Journal;
use order_entry::ouch::{Capacity as OrderCapacity, Ouch42Client, OuchClient};
use order_entry::risk::Route;
use order_entry::session::VenueSession;
use order_entry::soupbin::{ClientConfig, Credentials};
use order_gateway::drop_copy::{DropCopyConfig, DropCopyLine, DropCopyProtocol};
use order_gateway::host::Host;
use order_gateway::kernel::{Kernel, dial, listen};
use order_gateway::standby::{Followed, MirrorPolicy, StandbyLink, follow, hold};
use order_gateway::{
    Core, CoreConfig, Feed, FeedConfig, FeedSocket, Gateway, Instrument, KillLine, LineConfig, MappedFile,
    MirrorConfig, RdmaPort, Run, SyncPolicy,
};
use wirepath_tests::live::{FAR, NEAR, THEIRS};
use wirepath_tests::netns::Namespace;

use crate::exchange::{PASSWORD, Running, USER};
use crate::trader::{Trader, capacity, limits, risk};

const JOURNAL_LEN: usize = 8 << 20;
const RESERVE: usize = 1 << 20;

/// Longer than a busy machine keeps a process from its cores: a primary whose lease has run out
/// never sends again.
const LEASE: Duration = Duration::from_secs(3);

/// What a process is told by its environment.
const ORDER: &str = "GATEWAY_OF_A_TEST";

/// How a gateway runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It trades until it is killed.
    Trade,
    /// It does so, and each request is on the disk before it is sent.
    Synced,
    /// It trades, and a standby may follow it.
    Primary,
    /// It follows the primary, and trades in its place after it.
    Standby,
    /// It trades, and writes its journal into a mirror by this policy.
    Mirrored(MirrorPolicy),
    /// It holds that mirror in the other namespace of a wire, and ends instead of taking over.
    Mirror,
    /// It logs in, hears what happened, and ends without an order of its own.
    Listen,
}

/// Where the primary listens.
const LINK: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 26_639);

/// Where the mirror listens.
const MIRROR: SocketAddrV4 = SocketAddrV4::new(THEIRS, 9_301);

const fn words_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Trade => "trade",
        Mode::Synced => "trade synced",
        Mode::Primary => "primary",
        Mode::Standby => "standby",
        Mode::Mirrored(MirrorPolicy::BeforeSend) => "mirrored before send",
        Mode::Mirrored(MirrorPolicy::Stop) => "mirrored or stopped",
        Mode::Mirrored(MirrorPolicy::GoOn) => "mirrored or not",
        Mode::Mirror => "mirror",
        Mode::Listen => "listen",
    }
}

/// What it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Ouch,
    Ouch42,
    Fix,
    Boe2,
    Boe3,
    Ilink3,
}

/// Starts a gateway of OUCH over the journal at `path`.
pub fn start(exchange: &Running, path: &Path, mode: Mode, seed: u64) -> Child {
    start_by(Protocol::Ouch, exchange, path, mode, seed)
}

pub fn start_by(protocol: Protocol, exchange: &Running, path: &Path, mode: Mode, seed: u64) -> Child {
    let (symbol, price) = exchange.instrument;
    let address = match protocol {
        Protocol::Ouch => exchange.orders,
        Protocol::Ouch42 => exchange.ouch42,
        Protocol::Fix => exchange.fix,
        Protocol::Boe2 => exchange.boe2,
        Protocol::Boe3 => exchange.boe3,
        Protocol::Ilink3 => exchange.ilink3,
    };
    let order = format!(
        "{}\n{address}\n{}\n{}\n{}\n{seed}\n{}\n{protocol:?}",
        path.display(),
        symbol.as_str(),
        price.0,
        words_of(mode),
        copies_of(protocol, exchange)
    );
    command(Command::new(env::current_exe().unwrap()), order)
}

/// Where the copies of the protocol's trades are.
fn copies_of(protocol: Protocol, exchange: &Running) -> SocketAddr {
    let [ouch42, fix, boe2, boe3, ilink3] = exchange.copies;
    match protocol {
        Protocol::Ouch => exchange.drop_copy,
        Protocol::Ouch42 => ouch42,
        Protocol::Fix => fix,
        Protocol::Boe2 => boe2,
        Protocol::Boe3 => boe3,
        Protocol::Ilink3 => ilink3,
    }
}

fn copies_by(protocol: &str) -> DropCopyProtocol {
    let of = match protocol {
        "Ouch" => return DropCopyProtocol::Ouch(Credentials::new(USER, PASSWORD).unwrap()),
        "Ouch42" => CopiedSession::Ouch42,
        "Boe2" | "Boe3" => CopiedSession::Boe,
        "Ilink3" => CopiedSession::Ilink3,
        _ => CopiedSession::Fix,
    };
    // As the drop copies of Cboe and CME.
    DropCopyProtocol::Fix { session: SessionConfig { version: Version::Fix42, ..fix_config() }, of }
}

/// Holds the mirror at `path` in a namespace.
pub fn hold_in(namespace: &Namespace, path: &Path) -> Child {
    let mut ip = Command::new("ip");
    ip.args(["netns", "exec", namespace.name()]).arg(env::current_exe().unwrap());
    command(ip, format!("{}\n-\n-\n-\n{}\n-\n-\n-", path.display(), words_of(Mode::Mirror)))
}

fn command(mut program: Command, order: String) -> Child {
    program
        .args(["gateway::process", "--exact", "--nocapture"])
        // Tests of other programs read all counters of this machine.
        .env("WIREPATH_SHM", env!("CARGO_TARGET_TMPDIR"))
        .env(ORDER, order)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// No test of its own: it is what [`start`] starts.
#[test]
fn process() {
    let Ok(order) = env::var(ORDER) else { return };
    let words: Vec<&str> = order.lines().collect();
    if words[4] == words_of(Mode::Mirror) {
        let (memory, _) = MappedFile::open(Path::new(words[0]), JOURNAL_LEN, SyncPolicy::Off).unwrap();
        let (section, say) = (MirrorConfig::new(FAR), |why: &str| eprintln!("mirror: {why}"));
        assert_eq!(hold(MIRROR, &section, memory, || false, say).unwrap(), Followed::TakeOver);
        return;
    }
    let kernel = Kernel::start();
    match words[7] {
        "Ouch" => run(ouch(), &words, kernel),
        "Boe2" => run(Boe2Client::new(boe_port(), BoeFirm::new(boe::Capacity::AGENCY)), &words, kernel),
        "Boe3" => run(Boe3Client::new(boe_port(), BoeFirm::new(boe::Capacity::CUSTOMER)), &words, kernel),
        "Ilink3" => run(ilink3_client(kernel.epoch_offset_ns()), &words, kernel),
        "Ouch42" => run(ouch42(kernel.epoch_offset_ns()), &words, kernel),
        _ => {
            let session = fix(Symbol::new(words[2]).unwrap(), kernel.epoch_offset_ns());
            run(session, &words, kernel);
        }
    }
}

/// The user's first four letters, and the rest.
pub fn boe_port() -> boe::ClientConfig {
    let (user, sub_id) = USER.split_at(4);
    boe::ClientConfig::new(boe::Credentials::new(user, sub_id, PASSWORD).unwrap())
}

/// The user's first three letters, and the rest; the password is the key.
pub fn ilink3_port() -> ilink3::ClientConfig {
    let (session, firm) = USER.split_at(3);
    ilink3::ClientConfig::new(ilink3::Identity {
        session: Text::zero_padded(session).unwrap(),
        firm: Text::zero_padded(firm).unwrap(),
        access_key: Text([0; 20]),
        key: ilink3::Key::from_bytes(PASSWORD.as_bytes()),
        system: Text([0; 30]),
        system_version: Text([0; 10]),
        system_vendor: Text([0; 10]),
    })
}

/// The instrument that everybody trades is the first of the listing.
fn ilink3_client(epoch_offset_ns: u64) -> Ilink3Client {
    let (operator, location) = (Text([b'O'; 20]), Text(*b"US,IL"));
    let firm = IlinkFirm { operator, location, party_details: 1, securities: [1].into() };
    Ilink3Client::new(ilink3_port(), firm, epoch_offset_ns)
}

fn run<S: VenueSession>(session: S, words: &[&str], kernel: Kernel) {
    let [path, address, symbol, price, mode, seed, copies, protocol] = words[..] else { panic!("eight words") };
    let symbol = Symbol::new(symbol).unwrap();
    let SocketAddr::V4(primary) = address.parse().unwrap() else { panic!("an address of IPv4") };
    let is_active = mode != words_of(Mode::Listen);
    if mode == words_of(Mode::Standby) {
        let (memory, _) = MappedFile::open(Path::new(path), JOURNAL_LEN, SyncPolicy::Off).unwrap();
        assert_eq!(follow(LINK, memory, None, || false, |_| ()).unwrap(), Followed::TakeOver);
    }
    let sync = if mode == words_of(Mode::Synced) { SyncPolicy::BeforeSend } else { SyncPolicy::Off };
    let journal = MappedFile::open(Path::new(path), JOURNAL_LEN, sync).unwrap();
    let core = core(session, journal, symbol, &kernel);
    let feed = is_active.then(|| feed(symbol, Price(price.parse().unwrap())));
    let mut gateway = Gateway::new(Trader::new(seed.parse().unwrap(), is_active), core);
    if is_active {
        gateway.core_mut().set_standby(0, kernel.now_ns()).unwrap();
        gateway.core_mut().arm(kernel.now_ns());
    }
    let retry = Duration::from_millis(1);
    let line = LineConfig { retry, ..LineConfig::new(primary) };
    let standby = (mode == words_of(Mode::Primary)).then(|| StandbyLink::new(listen(LINK).unwrap(), LEASE, 0));
    let standby = standby.or_else(|| mirrored(mode));
    let SocketAddr::V4(copies) = copies.parse().unwrap() else { panic!("an address of IPv4") };
    let copies = DropCopyConfig { address: copies, protocol: copies_by(protocol), lag: Duration::from_secs(5) };
    let mut run = Run::new(gateway, line, Box::new(kernel.clone()));
    (run.feed, run.standby) = (feed, standby);
    if is_active {
        run.compare_with(DropCopyLine::new(copies, kernel.now_ns(), kernel.epoch_offset_ns()));
    }
    run.run(
        |gateway| !is_active && gateway.core().session().is_open() && !gateway.core().orders().live().any(is_open),
        // A difference would end the load, and the test with it.
        |sentence| assert!(!sentence.contains("drop copy"), "{sentence}"),
    );
}

/// The connection to a mirror, where the mode has one.
fn mirrored(mode: &str) -> Option<StandbyLink> {
    let policies = [MirrorPolicy::BeforeSend, MirrorPolicy::Stop, MirrorPolicy::GoOn];
    let policy = policies.into_iter().find(|policy| mode == words_of(Mode::Mirrored(*policy)))?;
    let port = RdmaPort::open(NEAR, 0).unwrap();
    Some(StandbyLink::mirrored(dial(MIRROR).unwrap().0, (port, policy), LEASE, 0).unwrap())
}

/// An answer is still to come.
fn is_open((_, order): (usize, &order_entry::orders::Order)) -> bool {
    order.is_unacknowledged() || order.is_cancel_pending() || !order.pending_replaces().is_empty()
}

fn ouch() -> OuchClient {
    let credentials = Credentials::new(USER, PASSWORD).unwrap();
    let client = OuchClient::new(ClientConfig::new(credentials));
    client.of_firm(Text::new("FIRM").unwrap(), OrderCapacity::AGENCY)
}

fn ouch42(epoch_offset_ns: u64) -> Ouch42Client {
    let config = ClientConfig::new(Credentials::new(USER, PASSWORD).unwrap());
    Ouch42Client::new(config, Text::new("FIRM").unwrap(), OrderCapacity::AGENCY, epoch_offset_ns)
}

/// What the exchange wants in a Logon.
pub fn fix_config() -> SessionConfig {
    SessionConfig {
        sender: USER.to_owned(),
        target: "EXCHANGE".to_owned(),
        password: Some(PASSWORD.to_owned()),
        ..SessionConfig::default()
    }
}

fn fix(symbol: Symbol, epoch_offset_ns: u64) -> FixClient {
    let config = FixClientConfig::new(fix_config());
    FixClient::new(FixClientConfig { instruments: vec![symbol], epoch_offset_ns, ..config })
}

fn core<S: VenueSession>(
    session: S,
    (memory, existed): (MappedFile, bool),
    symbol: Symbol,
    kernel: &Kernel,
) -> Core<S, MappedFile> {
    let config = CoreConfig {
        instruments: [Instrument { symbol, route: Route::default() }].into(),
        manager: ManagerConfig {
            orders: capacity(),
            recent: risk().recent,
            epoch_offset_ns: kernel.epoch_offset_ns(),
            ..ManagerConfig::new(*limits())
        },
        answer_timeout_ns: CoreConfig::ANSWER_TIMEOUT_NS,
        kill_line: KillLine::default(),
    };
    if existed {
        return Core::recover(config, session, memory, RESERVE).unwrap().0;
    }
    let journal = Journal::create(memory, 7, kernel.epoch_offset_ns(), RESERVE).unwrap();
    Core::new(config, session, journal)
}

/// A feed with a bid and an offer around `price`, whose packets a thread sends again and again.
fn feed(symbol: Symbol, price: Price) -> (Feed, Vec<FeedSocket>) {
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let (receiver, sender) = (UdpSocket::bind(any).unwrap(), UdpSocket::bind(any).unwrap());
    receiver.set_nonblocking(true).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let packet = packet(symbol, price);
    thread::spawn(move || {
        // The first packet again is ignored, and says that the feed is alive.
        while sender.send(&packet).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let books = Capacity { books: 4, orders: 64, levels: 16 };
    (Feed::new(&[symbol], &FeedConfig { books, ..FeedConfig::default() }), vec![receiver.into()])
}

fn packet(symbol: Symbol, price: Price) -> Vec<u8> {
    let mut bytes = [0; 512];
    let mut packet = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"DAY       ", 1), &mut bytes).unwrap();
    for (order, side, away) in [(1, b'B', -100), (2, b'S', 100)] {
        let add = AddOrder {
            head: Head::new(AddOrder::KIND, Locate(1), 0),
            order: order.into(),
            side,
            shares: 100.into(),
            stock: symbol,
            price: ((price.0 + away) as u32).into(),
        };
        packet.push(Message::from(&add).as_bytes()).unwrap();
    }
    packet.finish().to_vec()
}
