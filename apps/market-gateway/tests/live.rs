//! `market-gateway run` on a veth: the books that another process builds from its ring are those of
//! the exchange, although one line of the feed loses packets. Needs root and iproute2.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use exchange_sim::{Feed, Settings, Truth};
use market::truth::PriceLevel;
use market::{BookIdx, Books, Capacity, OrderBooks, Price};
use market_ring::{Flags, Read, RingReader};
use wirepath_tests::netns::Namespace;

/// A bound on waiting, for a machine that is busy; what is tested does not depend on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Line A loses packets, line B none: what arrives is the whole day.
fn settings() -> Settings {
    let mut settings = Settings { messages: 5_000, symbols: 20, ..Settings::default() };
    settings.lines[0].loss = "5%".parse().unwrap();
    settings.lines.iter_mut().for_each(|line| {
        line.reorder = "1%".parse().unwrap();
        line.duplicate = "1%".parse().unwrap();
    });
    settings
}

/// The gateway, which is ended with this value.
struct Gateway(Child);

impl Gateway {
    /// Starts it, and waits until it receives.
    fn start(folder: &Path, ring: &Path) -> Self {
        let (settings, config) = (settings(), folder.join("feed.toml"));
        let line = |idx: usize| format!("{{ group = \"{}\", port = {} }}", settings.lines[idx].group, settings.port);
        let text = format!(
            "[arbitration]\nwindow_us = 2000000\n[books]\norders = 65536\nlevels = 65536\ninstruments = 64\n\
             [port]\ninterface = \"veth0\"\nrx_ring = 8192\nowner = \"dedicated\"\n\
             [host]\naddresses = [\"10.77.0.2/24\"]\n\
             [[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\nlines = [{}, {}]\n",
            line(0),
            line(1)
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_market-gateway"));
        command.arg("run").arg(config).args(["--cpu", "any", "--quotes", "64", "--ring"]).arg(ring);
        let mut gateway = Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(gateway.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.contains("receiving on")) {
            lines.push(said.next().unwrap_or_else(|| panic!("it has ended: {lines:?}")));
        }
        // What it says later is read, so that it never waits for a pipe.
        thread::spawn(move || said.for_each(drop));
        gateway
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a day through ordinary sockets.
fn publish() -> Truth {
    let settings = settings();
    let sockets = settings.lines.each_ref().map(|line| {
        let socket = UdpSocket::bind(("10.77.0.1", 0)).unwrap();
        socket.connect((line.group.address(), settings.port)).unwrap();
        socket
    });
    let mut feed = Feed::new(&settings).unwrap();
    for (idx, departure) in feed.by_ref().enumerate() {
        sockets[departure.line_idx].send(&departure.packet.payload).unwrap();
        // Pauses now and then, so that the veth delivers the frames that it queues.
        if idx % 64 == 63 {
            thread::sleep(Duration::from_millis(2));
        }
    }
    feed.finish()
}

/// The books of the records up to the day's last.
fn read_books(reader: &mut RingReader, last_sequence: u64) -> OrderBooks {
    let mut books = OrderBooks::new(Capacity { books: 64, orders: 32_768, levels: 32_768 });
    let (mut venue_seq, until) = (0, Instant::now() + PATIENCE);
    while venue_seq < last_sequence {
        assert!(Instant::now() < until, "{venue_seq} of {last_sequence} have come");
        match reader.read() {
            Read::Record { record, .. } => {
                assert!(!record.flags.contains(Flags::GAP_BEFORE), "a gap before {}", record.venue_seq);
                assert_eq!(record.venue_seq, venue_seq + 1);
                books.apply(&record.event);
                venue_seq = record.venue_seq;
            }
            Read::Empty => thread::sleep(Duration::from_micros(100)),
            other => panic!("{other:?} behind {venue_seq}"),
        }
    }
    books
}

fn side(qty: u64, price: Price) -> Option<String> {
    (qty > 0).then(|| format!("{qty} at {price}"))
}

#[test]
fn books_of_another_process_are_those_of_the_exchange() {
    let (near, far) = match Namespace::new() {
        Ok(near) => (near, Namespace::new().unwrap()),
        Err(why) => return println!("SKIPPED books_of_another_process_are_those_of_the_exchange: {why}; run as root"),
    };
    near.veth("veth0", &far, "veth1").unwrap();
    far.ip(&["address", "add", "10.77.0.1/24", "dev", "veth1"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ring = folder.path().join("feed.ring");
    let _gateway = near.run(|| Gateway::start(folder.path(), &ring));
    let mut reader = RingReader::open(&ring).unwrap();
    let truth = far.run(publish);
    assert!(truth.lines[0].lost.data > 10, "line A has lost something");
    let books = read_books(&mut reader, truth.last_sequence);
    let found = (0..books.len() as u32).map(BookIdx).map(|book| {
        let top = books.top(book);
        (books.symbol(book).to_string(), [side(top.bid_qty, top.bid_px), side(top.ask_qty, top.ask_px)])
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), tops(&truth));
}

/// Best bid and offer by symbol, as the exchange has them.
fn tops(truth: &Truth) -> BTreeMap<String, [Option<String>; 2]> {
    let level = |level: Option<PriceLevel>| level.and_then(|level| side(level.shares, Price(level.price.into())));
    truth.book_tops.iter().map(|top| (top.symbol.clone(), [level(top.bid), level(top.ask)])).collect()
}
