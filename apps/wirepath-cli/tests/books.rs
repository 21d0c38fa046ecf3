//! `wirepath rdma books` against a feed handler that exposes its books, over a veth of their own
//! beside the one of the feed.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use exchange_sim::{Feed, Settings};
use feed_handler::args::{Cli, Command as FeedCommand};
use feed_handler::report::Summary;
use feed_handler::{Event, RunPlan};
use serde_json::Value;
use tempfile::TempDir;
use wirepath::worker::StopFlag;
use wirepath_tests::live::{FAR, NEAR, Wire};
use wirepath_tests::netns::Namespace;

const WIREPATH: &str = env!("CARGO_BIN_EXE_wirepath");
const EXCHANGE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const EXPOSED: &str = "10.9.0.1";

fn settings() -> Settings {
    Settings { messages: 6_000, symbols: 20, ..Settings::default() }
}

/// A feed handler in `near` with the feed on `feed0`, which exposes its books over the wire; the
/// exchange and the reader are in `far`.
fn wire(test: &str) -> Option<Wire> {
    let wire = Wire::new(test)?;
    wire.near.ip(&["address", "add", &format!("{EXPOSED}/24"), "dev", NEAR]).unwrap();
    wire.near.veth("feed0", &wire.far, "feed1").unwrap();
    wire.far.ip(&["address", "add", &format!("{EXCHANGE}/24"), "dev", "feed1"]).unwrap();
    wire.far.ip(&["route", "add", "224.0.0.0/4", "dev", "feed1"]).unwrap();
    Some(wire)
}

fn plan(directory: &Path) -> RunPlan {
    let lines = settings().lines.map(|line| format!("{{ group = \"{}\", port = {} }}", line.group, settings().port));
    let text = format!(
        "[arbitration]\nwindow_us = 2000000\n[books]\norders = 65536\nlevels = 65536\ninstruments = 64\n\
         [expose]\nbooks = 100\nreaders = 1\n\
         [port]\ninterface = \"feed0\"\nrx_ring = 8192\nowner = \"dedicated\"\n[host]\naddresses = [\"10.77.0.2/24\"]\n\
         [[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\nlines = [{}]\n",
        lines.join(", ")
    );
    let config = directory.join("feed.toml");
    std::fs::write(&config, text).unwrap();
    let arguments =
        ["feed-handler", "run", config.to_str().unwrap(), "--cpu", "any", "--top-of-book", "all", "--expose", NEAR];
    match Cli::parse_from(arguments).command {
        FeedCommand::Run(args) => args.plan().unwrap(),
        FeedCommand::Replay(_) => panic!("a live run was asked for"),
    }
}

/// Runs the feed handler, and `meanwhile` once it receives; that gets the frames received up to the
/// last second.
fn run(wire: &Wire, meanwhile: impl FnOnce(&AtomicU64) + Send) -> Summary {
    let (directory, stop, received) = (TempDir::new().unwrap(), StopFlag::new(), AtomicU64::new(0));
    let (ready, is_ready) = mpsc::channel();
    thread::scope(|scope| {
        let (stop, received) = (&stop, &received);
        scope.spawn(move || {
            if is_ready.recv().is_ok() {
                meanwhile(received);
            }
            stop.stop();
        });
        let plan = plan(directory.path());
        wire.near.run(move || {
            feed_handler::run(&plan, stop, |event| match event {
                Event::Ready(_) => ready.send(()).unwrap(),
                Event::Progress(progress) => received.store(progress.packets, Ordering::Relaxed),
                _ => {}
            })
            .unwrap()
        })
    })
}

/// Sends the day, and waits until it was received.
fn publish(far: &Namespace, received: &AtomicU64) {
    let sent = far.run(|| {
        let settings = settings();
        let sockets = settings.lines.each_ref().map(|line| {
            let socket = UdpSocket::bind((EXCHANGE, 0)).unwrap();
            socket.connect((line.group.address(), settings.port)).unwrap();
            socket
        });
        let mut sent = 0;
        for departure in &mut Feed::new(&settings).unwrap() {
            sockets[departure.line_idx].send(&departure.packet.payload).unwrap();
            sent += 1;
            // Pauses now and then, so that the veth delivers the frames that it queues.
            if sent % 64 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        }
        sent
    });
    for _ in 0..600 {
        if received.load(Ordering::Relaxed) >= sent {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn read(far: &Namespace, arguments: &str) -> Output {
    reader(far, arguments).output().unwrap()
}

/// Follows the books until so many were shown, and then presses Ctrl-C.
fn follow(far: &Namespace, count: usize) -> Output {
    let mut reader = reader(far, "--follow --json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let shown = BufReader::new(reader.stdout.take().unwrap()).lines().take(count);
    let stdout = shown.map(|line| line.unwrap() + "\n").collect::<String>().into_bytes();
    Command::new("kill").args(["-INT", &reader.id().to_string()]).status().unwrap();
    Output { stdout, ..reader.wait_with_output().unwrap() }
}

/// Follows the books from before the first, until so many were shown, and then presses Ctrl-C;
/// `meanwhile` makes the books appear.
fn follow_from_before(far: &Namespace, count: usize, meanwhile: impl FnOnce()) -> Output {
    let mut reader = reader(far, "--follow --json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(reader.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().starts_with("wirepath: 0 books; waits")), "the reader follows nothing yet");
    meanwhile();
    let mut shown = BTreeMap::new();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    while shown.len() < count {
        let line = lines.next().expect("the reader goes on").unwrap();
        let book: Value = serde_json::from_str(&line).unwrap();
        shown.insert(book["symbol"].as_str().unwrap().to_owned(), line + "\n");
    }
    Command::new("kill").args(["-INT", &reader.id().to_string()]).status().unwrap();
    let stdout = shown.into_values().collect::<String>().into_bytes();
    Output { stdout, ..reader.wait_with_output().unwrap() }
}

/// Follows the books until the first is shown, and kills the reader: it says no goodbye.
fn kill_reader(far: &Namespace) {
    let mut reader = reader(far, "--follow --json").stdout(Stdio::piped()).spawn().unwrap();
    let first = BufReader::new(reader.stdout.take().unwrap()).lines().next();
    assert!(first.is_some_and(|line| line.is_ok()), "the reader shows a book");
    reader.kill().unwrap();
    reader.wait().unwrap();
}

fn reader(far: &Namespace, arguments: &str) -> Command {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", far.name(), WIREPATH, "rdma", "books", EXPOSED, "--via", FAR])
        .args(arguments.split_whitespace())
        // Tests of other subcommands read all counters of this machine.
        .env("WIREPATH_SHM", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// The best levels by symbol, as the summary has them.
fn tops(output: &Output) -> BTreeMap<String, [Option<(String, u64)>; 2]> {
    let text = String::from_utf8_lossy(&output.stdout);
    let best = |levels: &Value| {
        let best = levels.get(0)?;
        Some((best["price"].as_str()?.to_owned(), best["qty"].as_u64()?))
    };
    let book = |line: &str| {
        let book: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&book["stale"], &book["unconfirmed"]), (&false.into(), &false.into()), "{line}");
        (book["symbol"].as_str().unwrap().to_owned(), [best(&book["bids"]), best(&book["asks"])])
    };
    text.lines().map(book).collect()
}

#[test]
fn books_that_are_read_are_those_of_the_feed_handler() {
    let Some(wire) = wire("books_that_are_read_are_those_of_the_feed_handler") else { return };
    let (mut all, mut one, mut none, mut followed) = (None, None, None, None);
    let summary = run(&wire, |received| {
        publish(&wire.far, received);
        all = Some(read(&wire.far, "--json"));
        let symbol = tops(all.as_ref().unwrap()).into_keys().next().unwrap_or_default();
        one = Some((read(&wire.far, &format!("--symbol {symbol}")), symbol));
        none = Some(read(&wire.far, "--symbol NOTHING"));
        followed = Some(follow(&wire.far, 20));
    });
    let all = all.unwrap();
    assert!(all.status.success(), "{}", String::from_utf8_lossy(&all.stderr));
    let side = |price: &Option<String>, qty| price.clone().map(|price| (price, qty));
    let expected = summary.channels[0]
        .books
        .tops
        .iter()
        .map(|top| (top.symbol.clone(), [side(&top.bid, top.bid_shares), side(&top.ask, top.ask_shares)]));
    let expected: BTreeMap<_, _> = expected.collect();
    assert_eq!(expected.len(), 20);
    assert_eq!(tops(&all), expected);
    let followed = followed.unwrap();
    assert!(followed.status.success(), "{}", String::from_utf8_lossy(&followed.stderr));
    assert_eq!(tops(&followed), expected);

    let (one, symbol) = one.unwrap();
    let text = String::from_utf8_lossy(&one.stdout);
    assert!(one.status.success() && text.starts_with(&format!("{symbol}  channel 0  seq ")), "{text}");
    let none = none.unwrap();
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(none.status.code(), Some(1), "{said}");
    assert!(said.contains("no book of these instruments is exposed"), "{said}");
}

#[test]
fn peer_that_exposes_nothing_is_named_with_what_to_start() {
    let Some(wire) = wire("peer_that_exposes_nothing_is_named_with_what_to_start") else { return };
    let mut output = None;
    run(&wire, |_| output = Some(read(&wire.far, "--port 7476")));
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("start the other end there first, with feed-handler run --expose"), "{said}");
}

/// The feed handler has room for one reader, and nothing has told it that the first is gone.
#[test]
fn reader_that_was_killed_reads_again_at_once() {
    let Some(wire) = wire("reader_that_was_killed_reads_again_at_once") else { return };
    let mut again = None;
    run(&wire, |received| {
        publish(&wire.far, received);
        kill_reader(&wire.far);
        again = Some(read(&wire.far, "--json"));
    });
    let again = again.unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(tops(&again).len(), 20);
}

#[test]
fn follower_shows_books_that_appear_after_it_began() {
    let Some(wire) = wire("follower_shows_books_that_appear_after_it_began") else { return };
    let mut followed = None;
    run(&wire, |received| {
        followed = Some(follow_from_before(&wire.far, 20, || publish(&wire.far, received)));
    });
    assert!(followed.is_some_and(|followed| followed.status.success()));
}
