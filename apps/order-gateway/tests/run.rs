//! A run on a machine whose clock stands still, without a venue.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "run/alarms.rs"]
mod alarms;
#[path = "run/burst.rs"]
mod burst;
#[path = "run/commands.rs"]
mod commands;
mod common;
#[path = "run/end.rs"]
mod end;
#[path = "run/kill.rs"]
mod kill;
#[path = "run/stamps.rs"]
mod stamps;
#[path = "run/wall_clock.rs"]
mod wall_clock;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use common::line::Line;
use common::{Buyer, RESERVE, SECOND, SYMBOL, book, config};
use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::itch50::{AddOrder, Head, Message};
use market::{Capacity, Locate, Price, Side};
use market_ring::{Quote, RingConfig, RingWriter};
use order_entry::Refusal;
use order_entry::journal::Journal;
use order_entry::risk::{KillSwitch, Limit};
use order_gateway::control::Command;
use order_gateway::host::{Host, Listener, Stream, Waits};
use order_gateway::kernel::Kernel;
use order_gateway::standby::StandbyLink;
use order_gateway::{
    BookEvent, Core, Feed, FeedConfig, FeedSocket, Gateway, Helper, JournalSync, LineConfig, OrderRequest, Orders,
    Quotes, Run, Strategy, SyncPolicy,
};

/// Its time is what a test says.
#[derive(Debug)]
struct Machine(Rc<Cell<u64>>);

impl Host for Machine {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        Err(ErrorKind::ConnectionRefused.into())
    }
}

type TestRun<T> = Run<T, Line, Vec<u8>>;

/// A run whose session takes orders, and its clock.
fn run<T: Strategy>(kill: &KillSwitch, strategy: T) -> (TestRun<T>, Rc<Cell<u64>>) {
    run_of(vec![0; 1 << 16], kill, strategy)
}

fn run_of<T: Strategy>(memory: Vec<u8>, kill: &KillSwitch, strategy: T) -> (TestRun<T>, Rc<Cell<u64>>) {
    let journal = Journal::create(memory, 7, 0, RESERVE).unwrap();
    let gateway = Gateway::new(strategy, Core::new(config(kill), Line::new(), journal));
    let clock = Rc::new(Cell::new(SECOND));
    let nowhere = LineConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
    (Run::new(gateway, nowhere, Box::new(Machine(clock.clone()))), clock)
}

/// One turn, and what it reports but for the connection.
fn turn<T: Strategy>(run: &mut TestRun<T>) -> Vec<String> {
    let mut reports = Vec::new();
    run.turn(&mut |sentence: &str| reports.push(sentence.to_owned()));
    reports.retain(|sentence| !sentence.starts_with("no connection"));
    reports
}

#[test]
fn arm_that_waits_does_not_lift_a_switch_that_was_thrown_behind_it() {
    let kill = KillSwitch::new();
    let ((mut run, _), (sender, receiver)) = (run(&kill, Buyer::default()), channel());
    run.commands = Some(receiver);
    sender.send(Command::Arm(kill.throws())).unwrap();
    kill.throw();
    assert!(turn(&mut run)[0].contains("thrown after `arm`"));
    let core = run.gateway.core();
    assert!(core.killed().is_some() && !core.risk().is_armed());
    sender.send(Command::Arm(kill.throws())).unwrap();
    turn(&mut run);
    let core = run.gateway.core();
    assert!(core.killed().is_none() && core.risk().is_armed());
}

/// It writes zeros where the next record goes, and changes nothing else.
#[test]
fn turn_without_work_behind_one_with_work_has_the_next_order_in_the_cache() {
    let ((mut run, _), (sender, receiver)) =
        (run_of(vec![0xff; 1 << 16], &KillSwitch::new(), Buyer::default()), channel());
    run.commands = Some(receiver);
    turn(&mut run);
    sender.send(Command::Disarm).unwrap();
    let next = |run: &TestRun<Buyer>| {
        let journal = run.gateway.core().journal();
        (journal.memory()[journal.end()], journal.next_seq())
    };
    turn(&mut run);
    assert_eq!(next(&run), (0xff, 2), "the turn has work");
    turn(&mut run);
    assert_eq!(next(&run), (0, 2));
}

/// A sync of what is no file on a disk fails.
#[test]
fn disk_that_fails_behind_orders_stops_them_and_no_person_arms_again() {
    let ((mut run, _), (sender, receiver)) = (run(&KillSwitch::new(), Buyer::default()), channel());
    let sync = JournalSync::start(File::open("/dev/null").unwrap(), SyncPolicy::Timed).unwrap();
    while !sync.has_failed() {
        thread::yield_now();
    }
    (run.sync, run.commands) = (Some(sync), Some(receiver));
    for _ in 0..2 {
        sender.send(Command::Arm(0)).unwrap();
        assert!(turn(&mut run)[0].contains("disk failed"));
        run.gateway.on_book(&book(10, SECOND));
    }
    let is_disarmed = |refusal: &Refusal| matches!(refusal, Refusal::Risk(it) if it.limit == Limit::Disarmed);
    assert!(run.gateway.strategy().refusals.len() == 2 && run.gateway.strategy().refusals.iter().all(is_disarmed));
}

/// A sync of its disk ends when the test lets it.
#[test]
fn disk_that_hangs_is_told_after_a_second_and_stops_orders_after_five_until_it_answers() {
    let ((mut run, clock), (sender, receiver)) = (run(&KillSwitch::new(), Buyer::default()), channel());
    let (go_on, ends) = channel::<()>();
    let (begins, begun) = channel();
    let sync = move || {
        begins.send(()).map_err(io::Error::other)?;
        ends.recv().map_err(io::Error::other)
    };
    run.sync = Some(JournalSync::start_with(sync, SyncPolicy::Off).unwrap());
    run.commands = Some(receiver);
    run.gateway.core_mut().arm(SECOND);
    run.sync.as_ref().unwrap().request();
    begun.recv().unwrap();
    let mut at = |ms: u64| {
        clock.set(10 * SECOND + ms * 1_000_000);
        (turn(&mut run).join("; "), run.gateway.core().risk().is_armed())
    };
    assert_eq!(at(0), (String::new(), true));
    assert_eq!(at(999), (String::new(), true));
    let (said, is_armed) = at(1_000);
    assert!(said.contains("has not answered for a second") && is_armed, "{said}");
    assert_eq!(at(4_999), (String::new(), true), "said once");
    let (said, is_armed) = at(5_000);
    assert!(said.contains("no order passes until it does") && !is_armed, "{said}");
    let (answers, answer) = channel();
    sender.send(Command::Status(answers)).unwrap();
    at(6_000);
    assert!(answer.recv().unwrap().contains("; the journal's disk has not answered for 6000 ms"));
    sender.send(Command::Arm(0)).unwrap();
    let (said, is_armed) = at(7_000);
    // The command is heard before the disk is looked at.
    assert!(said.contains("no order passes until it does") && !is_armed, "{said}");
    go_on.send(()).unwrap();
    let (mut said, mut ms) = (String::new(), 8_000);
    while said.is_empty() {
        ms += 1_000;
        said = at(ms).0;
    }
    assert!(said.contains("the journal's disk answers again") && ms >= 17_000, "{said} after {ms} ms");
    sender.send(Command::Arm(0)).unwrap();
    assert_eq!(at(ms + 1_000), (String::new(), true));
}

#[test]
fn thread_that_ends_is_told_once_and_is_in_the_status() {
    let ((mut run, clock), (sender, receiver)) = (run(&KillSwitch::new(), Buyer::default()), channel());
    let (go_on, goes_on) = channel::<()>();
    let lives = Helper::start("lives", move || _ = goes_on.recv()).unwrap();
    let ends = Helper::start("ends", || ()).unwrap();
    while !ends.has_ended() {
        thread::yield_now();
    }
    (run.helpers, run.commands) = (vec![lives, ends], Some(receiver));
    let said = turn(&mut run).concat();
    assert!(said.contains("the thread `ends` has ended") && !said.contains("lives"), "{said}");
    clock.set(9 * SECOND);
    let (answers, answer) = channel();
    sender.send(Command::Status(answers)).unwrap();
    assert_eq!(turn(&mut run).concat(), "");
    assert!(answer.recv().unwrap().contains("; the thread `ends` has ended"));
    drop(go_on);
}

/// Buys a second after a book, and keeps the answer.
#[derive(Debug, Default)]
struct Late {
    price: Price,
    answers: Vec<Result<u64, Refusal>>,
}

impl Strategy for Late {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        self.price = book.bid.map_or(Price(0), |(price, _)| price);
        orders.set_timer(Some(book.at_ns + SECOND));
    }

    fn on_timer(&mut self, orders: &mut Orders<'_>) {
        let request = OrderRequest::limit(common::STOCK, Side::Buy, 10, self.price);
        self.answers.push(orders.send(&request));
    }
}

/// Keeps the last book, and its levels of offers.
#[derive(Debug, Default)]
struct Watcher(BookEvent, Vec<Price>);

impl Strategy for Watcher {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        self.0 = *book;
        self.1 = orders.depth().unwrap().levels(Side::Sell).map(|(price, ..)| price).collect();
    }
}

/// The first packet of a session: a bid and an offer.
fn packet(session: [u8; 10]) -> Vec<u8> {
    packet_of(session, 1, &[(b'B', 1_000_000), (b'S', 1_000_100)])
}

/// A packet whose orders have the numbers of their messages.
fn packet_of(session: [u8; 10], next: u64, orders: &[(u8, u32)]) -> Vec<u8> {
    let mut bytes = [0; 512];
    let mut packet = PacketWriter::<MoldUdp64>::new(MoldHeader::new(session, next), &mut bytes).unwrap();
    for (order, &(side, price)) in (next..).zip(orders) {
        let head = Head::new(AddOrder::KIND, Locate(1), 0);
        let (shares, price) = (100.into(), price.into());
        let add = AddOrder { head, order: order.into(), side, shares, stock: SYMBOL, price };
        packet.push(Message::from(&add).as_bytes()).unwrap();
    }
    packet.finish().to_vec()
}

fn heartbeat(session: [u8; 10], next: u64) -> Vec<u8> {
    let mut bytes = [0; 32];
    PacketWriter::<MoldUdp64>::new(MoldHeader::new(session, next), &mut bytes).unwrap().finish().to_vec()
}

/// The answer to an order when `datagram` is all that the port has brought for a second.
fn answer_behind(datagram: &[u8]) -> Result<u64, Refusal> {
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let (receiver, sender) = (UdpSocket::bind(any).unwrap(), UdpSocket::bind(any).unwrap());
    receiver.set_nonblocking(true).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let arrives = receiver.try_clone().unwrap();
    let (mut run, clock) = run(&KillSwitch::new(), Late::default());
    let books = Capacity { books: 4, orders: 64, levels: 16 };
    run.feed = Some((Feed::new(&[SYMBOL], &FeedConfig { books, ..FeedConfig::default() }), vec![receiver.into()]));
    run.gateway.core_mut().arm(SECOND);
    for (now_ns, bytes) in [(SECOND, &packet(*b"DAY       ")[..]), (2 * SECOND, datagram)] {
        clock.set(now_ns);
        sender.send(bytes).unwrap();
        while arrives.peek(&mut [0; 1]).is_err() {
            thread::yield_now();
        }
        turn(&mut run);
    }
    run.gateway.strategy().answers[0]
}

#[test]
fn datagrams_that_are_not_the_feeds_do_not_keep_a_dead_feed_alive() {
    let (ours, others) = (*b"DAY       ", *b"NIGHT     ");
    for datagram in [&b"garbage"[..], &[0; 20], &packet(others), &heartbeat(others, 1)] {
        let Err(Refusal::Risk(reject)) = answer_behind(datagram) else { panic!("{}", datagram.escape_ascii()) };
        assert_eq!(reject.limit, Limit::SilentFeed, "{}", datagram.escape_ascii());
    }
    // A copy of another line's packet has nothing new, and shows that the feed lives.
    for datagram in [packet(ours), heartbeat(ours, 3)] {
        assert!(answer_behind(&datagram).is_ok(), "{}", datagram.escape_ascii());
    }
}

/// The forged packet has the number that the feed's next one would have.
#[test]
fn packet_of_a_sender_that_is_no_source_changes_no_book_and_is_counted() {
    for (sources, offer, is_refused) in
        [(vec![Ipv4Addr::LOCALHOST], Price(1_000_100), true), (Vec::new(), Price(1_000_050), false)]
    {
        let bind = |host| UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0)).unwrap();
        let (receiver, ours, other) = (bind(1), bind(1), bind(2));
        receiver.set_nonblocking(true).unwrap();
        let (arrives, to) = (receiver.try_clone().unwrap(), receiver.local_addr().unwrap());
        let ((mut run, _), (commands, heard)) = (run(&KillSwitch::new(), Watcher::default()), channel());
        let books = Capacity { books: 4, orders: 64, levels: 16 };
        let feed = Feed::new(&[SYMBOL], &FeedConfig { books, ..FeedConfig::default() });
        (run.feed, run.commands) = (Some((feed, vec![FeedSocket::new(receiver, sources)])), Some(heard));
        for (sender, packet) in
            [(&ours, packet(*b"DAY       ")), (&other, packet_of(*b"DAY       ", 3, &[(b'S', 1_000_050)]))]
        {
            sender.send_to(&packet, to).unwrap();
            while arrives.peek(&mut [0; 1]).is_err() {
                thread::yield_now();
            }
            turn(&mut run);
        }
        let Watcher(book, offers) = run.gateway.strategy();
        assert_eq!((book.offer.map(|(price, _)| price), offers.first()), (Some(offer), Some(&offer)));
        assert_eq!(offers.len(), if is_refused { 1 } else { 2 });
        let (answers, answer) = channel();
        commands.send(Command::Status(answers)).unwrap();
        turn(&mut run);
        assert_eq!(answer.recv().unwrap().contains("the feed refused 1 packets of other senders"), is_refused);
    }
}

#[test]
fn quotes_of_a_market_gateway_let_orders_pass_while_their_channel_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let config = RingConfig { records: 64, quotes: 64, ..RingConfig::default() };
    let mut ring = RingWriter::create(&path, &config).unwrap();
    let (mut run, clock) = run(&KillSwitch::new(), Late::default());
    run.quotes = Some(Quotes::new(&path, &[SYMBOL]));
    run.gateway.core_mut().arm(SECOND);
    assert!(turn(&mut run)[0].starts_with("quotes come from"));
    let quote = Quote { symbol: SYMBOL, channel: 2, bid_qty: 100, ask_qty: 100, ..Quote::default() };
    let (bid_px, ask_px) = (Price(100_000), Price(100_100));
    let quote = Quote { bid_px, ask_px, ..quote };
    let answer = |run: &mut TestRun<Late>, at_ns| {
        clock.set(at_ns);
        turn(run);
        let last = run.gateway.strategy().answers.last().copied()?;
        Some(last.map(drop).map_err(|refusal| match refusal {
            Refusal::Risk(reject) => reject.limit,
            other => panic!("{other}"),
        }))
    };
    ring.update(0, &quote);
    assert_eq!(answer(&mut run, SECOND), None, "the strategy waits a second");
    assert_eq!(answer(&mut run, 2 * SECOND), Some(Err(Limit::StaleBook)), "the quote may be of yesterday");
    ring.alive(2);
    assert_eq!(answer(&mut run, 2 * SECOND), Some(Err(Limit::StaleBook)), "and waits again");
    ring.alive(2);
    assert_eq!(answer(&mut run, 3 * SECOND), Some(Ok(())));
    ring.update(0, &quote);
    assert_eq!(answer(&mut run, 3 * SECOND), Some(Ok(())));
    assert_eq!(answer(&mut run, 4 * SECOND), Some(Err(Limit::SilentFeed)));
}

/// A connection that notes how it ends, and breaks when it is told to.
#[derive(Debug)]
struct Noted(Ends);

/// The resets of a machine's connections, what was written before them, and whether they are
/// broken.
#[derive(Clone, Debug, Default)]
struct Ends {
    resets: Rc<Cell<u32>>,
    written: Rc<RefCell<Vec<u8>>>,
    is_broken: Rc<Cell<bool>>,
}

impl Read for Noted {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(if self.0.is_broken.get() { ErrorKind::BrokenPipe } else { ErrorKind::WouldBlock }.into())
    }
}

impl Write for Noted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert_eq!(self.0.resets.get(), 0, "nothing is written behind a reset");
        self.0.written.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Noted {
    fn reset(self: Box<Self>) -> io::Result<()> {
        self.0.resets.set(self.0.resets.get() + 1);
        Ok(())
    }
}

/// A machine with a venue, whose connections count their resets.
#[derive(Debug)]
struct Resets(Ends);

impl Host for Resets {
    fn now_ns(&self) -> u64 {
        SECOND
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(Noted(self.0.clone())))
    }
}

/// A machine whose venue does not answer.
#[derive(Debug)]
struct Silent(Rc<Cell<u64>>);

/// A connection that never stands.
#[derive(Debug)]
struct Begun(Noted);

impl Read for Begun {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Begun {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("nothing is written to a connection that does not stand")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Begun {
    fn is_open(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn reset(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

impl Host for Silent {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(Begun(Noted(Ends::default()))))
    }
}

/// A turn that waited for a venue would miss the time to ask the standby for its grant.
#[test]
fn turns_go_on_while_the_venue_does_not_answer_and_the_attempt_ends_at_its_time() {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(config(&KillSwitch::new()), Line::new(), journal);
    let clock = Rc::new(Cell::new(SECOND));
    let line = LineConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
    let timeout_ns = u64::try_from(line.connect_timeout.as_nanos()).unwrap();
    let mut run = Run::new(Gateway::new(Buyer::default(), core), line, Box::new(Silent(clock.clone())));
    let mut said_after = |passed_ns: u64| {
        let mut said = Vec::new();
        clock.set(SECOND + passed_ns);
        run.turn(&mut |sentence: &str| said.push(sentence.to_owned()));
        said
    };
    for passed_ns in [0, timeout_ns / 2, timeout_ns - 1] {
        assert_eq!(said_after(passed_ns), [""; 0]);
    }
    assert_eq!(said_after(timeout_ns), ["no connection to 127.0.0.1:1: timed out"]);
}

#[test]
fn connection_of_the_kernel_is_begun_and_not_waited_for() {
    let none = Waits { connect: Duration::from_secs(60), read: Duration::ZERO };
    let connect = |address: SocketAddr| {
        let SocketAddr::V4(address) = address else { panic!("an address of IPv4") };
        Kernel::start().connect(address, none).unwrap()
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    assert!(connect(address).is_open().unwrap());
    drop(listener);
    assert_eq!(connect(address).is_open().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // A listener whose queue is full answers nothing.
    let full = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&full, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let full = TcpListener::from(full);
    let waiting: Vec<_> = (0..4).map(|_| connect(full.local_addr().unwrap())).collect();
    assert!(!waiting[3].is_open().unwrap());
}

/// No standby connects.
#[derive(Debug)]
struct Nobody;

impl Listener for Nobody {
    fn accept(&self) -> Option<Box<dyn Stream>> {
        None
    }
}

/// A run with a connection to its venue, and how that ends.
fn connected() -> (TestRun<Buyer>, Ends) {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(config(&KillSwitch::new()), Line::new(), journal);
    let ends = Ends::default();
    let line = LineConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
    let mut run = Run::new(Gateway::new(Buyer::default(), core), line, Box::new(Resets(ends.clone())));
    assert!(turn(&mut run)[0].contains("connected"));
    (run, ends)
}

#[test]
fn gateway_without_grants_resets_its_connection_to_the_venue() {
    let (mut run, ends) = connected();
    run.standby = Some(StandbyLink::new(Box::new(Nobody), Duration::from_secs(1), 7));
    assert!(turn(&mut run)[0].contains("the standby grants nothing"));
    assert_eq!(ends.resets.get(), 1);
}

/// What the kernel still holds would reach the venue minutes later, behind the next login.
#[test]
fn connection_that_ends_with_an_error_is_reset() {
    let (mut run, ends) = connected();
    ends.is_broken.set(true);
    assert!(turn(&mut run)[0].contains("the connection is broken"));
    assert_eq!(ends.resets.get(), 1);
}

#[test]
fn session_that_ends_by_a_rule_says_which_before_its_connection_is_reset() {
    let (mut run, ends) = connected();
    run.gateway.core_mut().session_mut().is_broken = true;
    assert!(turn(&mut run)[0].contains("a rule"));
    assert_eq!(*ends.written.borrow(), b"which rule");
    assert_eq!(ends.resets.get(), 1);
}

#[test]
fn order_that_waits_when_its_session_ends_does_not_leave_with_the_last_words() {
    let (mut run, ends) = connected();
    let core = run.gateway.core_mut();
    core.arm(SECOND);
    core.session_mut().order = b"an order";
    run.gateway.on_book(&book(10, SECOND));
    assert_eq!(run.gateway.core().to_send(), b"an order");
    run.gateway.core_mut().session_mut().is_broken = true;
    assert!(turn(&mut run)[0].contains("a rule"));
    assert_eq!((&ends.written.borrow()[..], ends.resets.get()), (&b""[..], 1));
}

/// A machine on which one address of the venue answers.
#[derive(Debug)]
struct Answers {
    clock: Rc<Cell<u64>>,
    /// The address that answers.
    at: Rc<Cell<SocketAddrV4>>,
    ends: Ends,
}

impl Host for Answers {
    fn now_ns(&self) -> u64 {
        self.clock.get()
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        if to == self.at.get() {
            Ok(Box::new(Noted(self.ends.clone())))
        } else {
            Err(ErrorKind::ConnectionRefused.into())
        }
    }
}

#[test]
fn secondary_address_is_taken_where_the_primary_does_not_answer_and_the_primary_behind_a_break() {
    let [primary, secondary] = [1, 2].map(|host| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), 7_000));
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let core = Core::new(config(&KillSwitch::new()), Line::new(), journal);
    let (clock, at, ends) = (Rc::new(Cell::new(SECOND)), Rc::new(Cell::new(secondary)), Ends::default());
    let host = Answers { clock: clock.clone(), at: at.clone(), ends: ends.clone() };
    let line = LineConfig { secondary: Some(secondary), ..LineConfig::new(primary) };
    let mut run = Run::new(Gateway::new(Buyer::default(), core), line, Box::new(host));
    let mut said_at = |seconds: u64| {
        let mut said = Vec::new();
        clock.set(seconds * SECOND);
        run.turn(&mut |sentence: &str| said.push(sentence.to_owned()));
        said
    };
    assert_eq!(said_at(1), ["no connection to 192.0.2.1:7000: connection refused"]);
    assert_eq!(said_at(2), ["connected to 192.0.2.2:7000"]);
    ends.is_broken.set(true);
    assert!(said_at(3)[0].contains("broken"));
    ends.is_broken.set(false);
    at.set(primary);
    assert_eq!(said_at(4), ["connected to 192.0.2.1:7000"]);
    // From there on by turns: each attempt that fails is followed by one to the other address.
    ends.is_broken.set(true);
    assert!(said_at(5)[0].contains("broken"));
    assert_eq!(said_at(6), ["no connection to 192.0.2.2:7000: connection refused"]);
    ends.is_broken.set(false);
    assert_eq!(said_at(7), ["connected to 192.0.2.1:7000"]);
}

#[test]
fn bytes_that_the_kernel_has_not_sent_never_leave_behind_a_reset() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("an address of IPv4") };
    let waits = Waits { connect: Duration::from_secs(60), read: Duration::ZERO };
    let mut stream = Kernel::start().connect(address, waits).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    // The peer reads nothing, so that at the end its buffer and ours are full.
    let mut written = 0;
    let full = loop {
        match stream.write(&[7; 1 << 16]) {
            Ok(len) => written += len,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(full, ErrorKind::WouldBlock);
    stream.reset().unwrap();
    let mut received = Vec::new();
    let end = peer.read_to_end(&mut received).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert!(received.len() < written, "{} of {written} bytes", received.len());
}
