//! In what order the packets of a burst are read, and the orders that they cause are written.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::itch50::{AddOrder, Head, Message};
use market::{Capacity, Locate};
use order_entry::journal::Journal;
use order_entry::risk::KillSwitch;
use order_gateway::host::{Host, Listener, Stream, Waits};
use order_gateway::standby::{Follower, StandbyLink};
use order_gateway::{Core, Feed, FeedConfig, Gateway, LineConfig, Run};

use super::common::line::Line;
use super::common::{Buyer, RESERVE, SECOND, SYMBOL, config};
use super::{TestRun, turn};

const ORDER: &[u8] = b"order";
const JOURNAL_LEN: usize = 1 << 16;

/// The socket of the feed, and what the connection to the venue saw of it.
#[derive(Debug)]
struct Seen {
    feed: UdpSocket,
    /// With each write, the sequence number of the packet that is read next.
    writes: RefCell<Vec<Option<u64>>>,
    /// The connection takes nothing.
    is_full: bool,
    /// The next write finds the connection broken.
    is_broken: Cell<bool>,
}

impl Seen {
    fn next_packet(&self) -> Option<u64> {
        let mut header = [0; 20];
        self.feed.peek(&mut header).ok()?;
        Some(u64::from_be_bytes(header[10..18].try_into().unwrap()))
    }
}

/// A machine whose venue takes every connection, and says nothing.
#[derive(Clone, Debug)]
struct Machine(Rc<Seen>);

impl Host for Machine {
    fn now_ns(&self) -> u64 {
        SECOND
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.clone()))
    }
}

impl Read for Machine {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

impl Write for Machine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.writes.borrow_mut().push(self.0.next_packet());
        if self.0.is_broken.take() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.0.is_full { Err(ErrorKind::WouldBlock.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Machine {
    fn reset(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// A packet that adds an order: its number is that of the packet.
fn packet(number: u64, side: u8, price: u32) -> Vec<u8> {
    let mut bytes = [0; 128];
    let mut packet = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"DAY       ", number), &mut bytes).unwrap();
    let head = Head::new(AddOrder::KIND, Locate(1), 0);
    let (order, shares, price) = (number.into(), 100.into(), price.into());
    packet.push(Message::from(&AddOrder { head, order, side, shares, stock: SYMBOL, price }).as_bytes()).unwrap();
    packet.finish().to_vec()
}

/// A run with a connection to its venue, and who sends the packets of its feed.
struct Bench {
    run: TestRun<Buyer>,
    seen: Rc<Seen>,
    sender: UdpSocket,
}

impl Bench {
    /// The strategy has seen a bid and an offer, and its orders pass from now on.
    fn new(is_full: bool, standby: Option<StandbyLink>) -> Self {
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let (receiver, sender) = (UdpSocket::bind(any).unwrap(), UdpSocket::bind(any).unwrap());
        receiver.set_nonblocking(true).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let seen = Rc::new(Seen {
            feed: receiver.try_clone().unwrap(),
            writes: RefCell::default(),
            is_full,
            is_broken: Cell::new(false),
        });
        let journal = Journal::create(vec![0; JOURNAL_LEN], 7, 0, RESERVE).unwrap();
        let mut session = Line::new();
        session.order = ORDER;
        let gateway = Gateway::new(Buyer::default(), Core::new(config(&KillSwitch::new()), session, journal));
        let mut run: TestRun<Buyer> = Run::new(gateway, LineConfig::new(any), Box::new(Machine(seen.clone())));
        let books = Capacity { books: 4, orders: 64, levels: 16 };
        run.feed = Some((Feed::new(&[SYMBOL], &FeedConfig { books, ..FeedConfig::default() }), vec![receiver.into()]));
        assert!(turn(&mut run)[0].starts_with("connected"));
        run.standby = standby;
        let mut bench = Self { run, seen, sender };
        bench.arrive(&[packet(1, b'S', 1_000_100), packet(2, b'B', 1_000_000)]);
        turn(&mut bench.run);
        let has_ordered = !bench.run.gateway.strategy().ids.is_empty();
        assert!(!has_ordered && bench.seen.writes.borrow().is_empty(), "orders do not pass yet");
        bench.run.gateway.core_mut().arm(SECOND);
        bench
    }

    fn arrive(&self, packets: &[Vec<u8>]) {
        packets.iter().for_each(|packet| assert_eq!(self.sender.send(packet).unwrap(), packet.len()));
        while self.seen.next_packet().is_none() {
            thread::yield_now();
        }
    }
}

/// What the connection saw in the one turn that finds `burst` behind the first bid and offer.
fn writes_of(burst: &[Vec<u8>], is_full: bool) -> Vec<Option<u64>> {
    let mut bench = Bench::new(is_full, None);
    bench.arrive(burst);
    turn(&mut bench.run);
    bench.seen.writes.take()
}

/// Packets with these numbers, each of which causes an order.
fn orders(numbers: RangeInclusive<u64>) -> Vec<Vec<u8>> {
    numbers.map(|number| packet(number, b'B', 1_000_000 + number as u32)).collect()
}

#[test]
fn order_leaves_before_the_next_packet_of_its_burst_is_read() {
    assert_eq!(writes_of(&orders(3..=6), false), [Some(4), Some(5), Some(6), None]);
}

#[test]
fn packets_that_cause_no_order_make_no_write() {
    let behind = |number| packet(number, b'B', 999_000);
    let burst = [behind(3), packet(4, b'B', 1_000_004), behind(5), behind(6)];
    assert_eq!(writes_of(&burst, false), [Some(5)]);
    // What the connection did not take is tried again at the end of the turn, and not by each
    // packet.
    assert_eq!(writes_of(&burst, true), [Some(5), None]);
}

/// A standby's connection: what is written there it takes at once.
#[derive(Debug)]
struct Standby(Follower<Vec<u8>>);

impl Read for Standby {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.0.to_send().len().min(into.len());
        if len == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        into[..len].copy_from_slice(&self.0.to_send()[..len]);
        self.0.sent(len);
        Ok(len)
    }
}

impl Write for Standby {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.receive(bytes, SECOND).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Standby {
    fn reset(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// Where one standby connects.
#[derive(Debug)]
struct OneStandby(RefCell<Option<Standby>>);

impl Listener for OneStandby {
    fn accept(&self) -> Option<Box<dyn Stream>> {
        Some(Box::new(self.0.take()?))
    }
}

fn standby() -> StandbyLink {
    let mut standby = Follower::new(77, vec![0; JOURNAL_LEN]).unwrap();
    standby.connected();
    let listener = OneStandby(RefCell::new(Some(Standby(standby))));
    StandbyLink::new(Box::new(listener), Duration::from_secs(60), 0)
}

/// Its order cannot leave in this turn, and those of the packets behind it would only grow old.
#[test]
fn packet_whose_order_waits_for_the_standby_is_the_last_of_its_turn() {
    let mut bench = Bench::new(false, Some(standby()));
    bench.arrive(&orders(3..=6));
    let mut next = || {
        turn(&mut bench.run);
        (bench.seen.next_packet(), bench.seen.writes.take().len())
    };
    // The second turn gives the standby the record of the first order, and the third has its word.
    assert_eq!([next(), next(), next()], [(Some(4), 0), (Some(5), 0), (Some(6), 1)]);
}

/// Each turn ends with the packet whose order waits, and the next one begins with the other line: a
/// line whose every packet causes an order does not keep the other one out.
#[test]
fn packet_whose_order_waits_for_the_standby_is_the_last_of_both_lines_and_the_other_line_is_next() {
    let mut bench = Bench::new(false, Some(standby()));
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let (line_b, sender_b) = (UdpSocket::bind(any).unwrap(), UdpSocket::bind(any).unwrap());
    line_b.set_nonblocking(true).unwrap();
    sender_b.connect(line_b.local_addr().unwrap()).unwrap();
    let left_on_b = line_b.try_clone().unwrap();
    bench.run.feed.as_mut().unwrap().1.push(line_b.into());
    let next_on_b = || {
        let mut header = [0; 20];
        left_on_b.peek(&mut header).ok().map(|_| u64::from_be_bytes(header[10..18].try_into().unwrap()))
    };
    orders(4..=5).iter().for_each(|packet| assert_eq!(sender_b.send(packet).unwrap(), packet.len()));
    while next_on_b().is_none() {
        thread::yield_now();
    }
    bench.arrive(&orders(3..=5));
    turn(&mut bench.run);
    assert_eq!((bench.seen.next_packet(), next_on_b()), (Some(4), Some(4)));
    turn(&mut bench.run);
    assert_eq!((bench.seen.next_packet(), next_on_b()), (Some(4), Some(5)));
}

/// What was not read stays where it is, and what was read is in the books.
#[test]
fn write_that_breaks_between_packets_closes_the_connection_and_the_feed_goes_on() {
    for has_standby in [false, true] {
        let mut bench = Bench::new(false, has_standby.then(standby));
        if has_standby {
            // The record of the first order is acknowledged, so that it may leave.
            bench.arrive(&orders(3..=3));
            (0..3).for_each(|_| drop(turn(&mut bench.run)));
        }
        let first = if has_standby { 4 } else { 3 };
        bench.seen.writes.take();
        bench.seen.is_broken.set(true);
        bench.arrive(&orders(first..=first + 2));
        let mut told = Vec::new();
        while !told.iter().any(|sentence: &String| sentence.contains("the connection is broken")) {
            told = turn(&mut bench.run);
            assert!(bench.seen.next_packet().is_some() || !told.is_empty(), "{told:?}");
        }
        assert_eq!(bench.seen.writes.borrow().len(), 1, "nothing is written behind the failure");
        for _ in 0..8 {
            turn(&mut bench.run);
        }
        assert_eq!(bench.seen.next_packet(), None, "standby: {has_standby}");
        let counts = bench.run.feed.as_ref().unwrap().0.counts();
        assert_eq!((counts.delivered, counts.missing), (first + 2, 0));
    }
}
