//! The program on a veth: the books of a listener on another machine are those of the exchange,
//! although the network loses packets. Needs root and iproute2.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use exchange_sim::{Feed, Settings, Truth};
use market::framing::mold_udp64::MoldUdp64;
use market::framing::{Framing, PacketKind};
use market::itch50::Itch50;
use market::truth::PriceLevel;
use market::{BookIdx, Books, Capacity, Codec, MessageCounts, OrderBooks, Price};
use market_gateway_multicast::{ListenerConfig, ListenerHandler, Receiver, ReceiverConfig};
use market_ring::{Read, Record, RingConfig, RingWriter, WholeChannels};
use wirepath_tests::netns::Namespace;

/// A bound on waiting, for a machine that is busy; what is tested does not depend on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program, which is ended with this value.
struct Publisher(Child);

impl Publisher {
    /// Starts it, and waits until it sends.
    fn start(ring: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_market-gateway-multicast"));
        command.arg("publish").arg(ring).args(["--group", "239.1.1.7:30007", "--from", "10.78.0.1/24"]);
        command.args(["--rerequest", "30008"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut publisher = Self(command.spawn().unwrap());
        let mut said = BufReader::new(publisher.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.contains("sending to")) {
            lines.push(said.next().unwrap_or_else(|| panic!("it has ended: {lines:?}")));
        }
        // What it says later is read, so that it never waits for a pipe.
        thread::spawn(move || said.for_each(drop));
        publisher
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a day to a ring, as a gateway does.
fn write_day(mut writer: RingWriter) -> Truth {
    let mut settings = Settings { messages: 20_000, symbols: 20, ..Settings::default() };
    settings.lines.iter_mut().for_each(|line| line.loss = "0%".parse().unwrap());
    let mut feed = Feed::new(&settings).unwrap();
    let (mut codec, mut counts) = (Itch50, MessageCounts::new());
    let mut next = 1;
    for departure in feed.by_ref() {
        let packet = MoldUdp64::parse(&departure.packet.payload).unwrap();
        // Both lines have each packet.
        if packet.header.kind != PacketKind::Data || packet.header.seq != next {
            continue;
        }
        next = packet.header.end();
        for (seq, message) in packet.numbered(0) {
            let event = codec.decode_counted(message, &mut counts).unwrap();
            writer.publish(&Record::new(seq, event));
        }
        // A pause now and then, so that sockets take what is sent to them.
        if next % 256 < 8 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    feed.finish()
}

/// What a consumer builds.
struct Consumer {
    books: OrderBooks,
    whole: WholeChannels,
    has_ended: bool,
}

impl ListenerHandler for Consumer {
    fn on_read(&mut self, read: &Read) {
        self.whole.take(read);
        match read {
            Read::Record { record, .. } => _ = self.books.apply(&record.event),
            other => self.has_ended |= *other == Read::Closed,
        }
    }
}

fn side(qty: u64, price: Price) -> Option<String> {
    (qty > 0).then(|| format!("{qty} at {price}"))
}

#[test]
fn books_on_another_machine_are_those_of_the_exchange_although_packets_are_lost() {
    let (near, far) = match Namespace::new() {
        Ok(near) => (near, Namespace::new().unwrap()),
        Err(why) => {
            let name = "books_on_another_machine_are_those_of_the_exchange_although_packets_are_lost";
            return println!("SKIPPED {name}: {why}; run as root");
        }
    };
    near.veth("veth0", &far, "veth1").unwrap();
    near.ip(&["address", "add", "10.78.0.1/24", "dev", "veth0"]).unwrap();
    far.ip(&["address", "add", "10.78.0.2/24", "dev", "veth1"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ring = folder.path().join("day.ring");
    let writer = RingWriter::create(&ring, &RingConfig::default()).unwrap();
    let config = ReceiverConfig {
        group: "239.1.1.7:30007".parse().unwrap(),
        interface: "10.78.0.2".parse().unwrap(),
        server: Some("10.78.0.1:30008".parse().unwrap()),
        listener: ListenerConfig { from_start: true, ..ListenerConfig::default() },
    };
    let mut receiver = far.run(|| Receiver::open(&config).unwrap());
    let mut publisher = near.run(|| Publisher::start(&ring));
    let day = thread::spawn(move || write_day(writer));

    let books = OrderBooks::new(Capacity { books: 64, orders: 65_536, levels: 65_536 });
    let mut consumer = Consumer { books, whole: WholeChannels::default(), has_ended: false };
    let (started, mut packets, mut lost) = (Instant::now(), 0_u64, 0_u64);
    while !consumer.has_ended {
        assert!(
            started.elapsed() < PATIENCE,
            "{:?} {:?}",
            receiver.listener().counts(),
            receiver.listener().requests()
        );
        let has_come = receiver.turn_without(started.elapsed().as_nanos() as u64, &mut consumer, |packet| {
            // Every seventh packet of messages, and ten in a row now and then.
            let has_messages = MoldUdp64::parse(packet).unwrap().header.count > 0;
            packets += u64::from(has_messages);
            let is_lost = has_messages && (packets % 7 == 3 || packets % 200 >= 190);
            lost += u64::from(is_lost);
            is_lost
        });
        if !has_come {
            thread::sleep(Duration::from_micros(50));
        }
    }
    let truth = day.join().unwrap();
    let (requests, answers) = receiver.listener().requests();
    println!("{lost} of {packets} packets lost; {requests:?} {answers:?} {:?}", receiver.listener().refused());
    assert!(lost > 100 && answers.delivered > 1_000);
    assert_eq!((receiver.listener().counts().records, receiver.listener().counts().missed), (truth.last_sequence, 0));
    assert!(consumer.whole.is_whole(0));
    assert_eq!(tops_of(&consumer.books), tops(&truth));
    assert!(publisher.0.wait().unwrap().success());
}

/// Best bid and offer by symbol.
fn tops_of(books: &OrderBooks) -> BTreeMap<String, [Option<String>; 2]> {
    let found = (0..books.len() as u32).map(BookIdx).map(|book| {
        let top = books.top(book);
        (books.symbol(book).to_string(), [side(top.bid_qty, top.bid_px), side(top.ask_qty, top.ask_px)])
    });
    found.collect()
}

/// The same, as the exchange has them.
fn tops(truth: &Truth) -> BTreeMap<String, [Option<String>; 2]> {
    let level = |level: Option<PriceLevel>| level.and_then(|level| side(level.shares, Price(level.price.into())));
    truth.book_tops.iter().map(|top| (top.symbol.clone(), [level(top.bid), level(top.ask)])).collect()
}
