//! Days of exchange-sim through the gateway: readers of its ring have the feed's books, and no
//! reader changes what the feed does.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::sync::{Arc, mpsc};

use clap::Parser;
use exchange_sim::Settings;
use feed_handler::args::{Cli, Command};
use feed_handler::report::Summary;
use feed_handler::{Event, SinkContext, replay_with};
use market::event::Other;
use market::truth::Probability;
use market::{BookIdx, Books, Capacity, OrderBooks, Price};
use market_gateway::{GatewayCounts, RingSink};
use market_ring::{Flags, Read, RingConfig, RingReader};
use tempfile::tempdir;
use wirepath::worker::StopFlag;

fn day(messages: u64, loss: f64, file: &Path) {
    let mut settings = Settings { messages, symbols: 20, ..Settings::default() };
    settings.lines.iter_mut().for_each(|line| line.loss = Probability::try_from(loss).unwrap());
    exchange_sim::generate(&settings, file).unwrap();
}

/// Replays `file` into a ring in `folder`; `started` is called when the ring is there and has no
/// record yet.
fn hand_on(
    folder: &Path,
    file: &Path,
    records: usize,
    started: impl Fn(&Path) + Send + Sync + 'static,
) -> (Summary, Arc<GatewayCounts>) {
    let arguments = ["feed-handler", "replay", file.to_str().unwrap(), "--cpu", "any", "--format", "mold-itch50"];
    let Command::Replay(args) = Cli::parse_from(arguments.into_iter().chain(["--top-of-book", "all"])).command else {
        panic!("a replay was asked for")
    };
    let (counts, path) = (Arc::new(GatewayCounts::default()), folder.join("day.ring"));
    let shared = Arc::clone(&counts);
    let sinks = move |context: &SinkContext| {
        let config = RingConfig { records, quotes: 64, ..RingConfig::default() };
        let sink = RingSink::create(&path, &config, context, Arc::clone(&shared))?;
        started(&path);
        Ok(sink)
    };
    let summary = replay_with(&args.plan().unwrap(), &StopFlag::new(), |_: Event| (), sinks).unwrap();
    (summary, counts)
}

/// With a reader that reads when the day is over.
fn hand_on_to_reader(messages: u64, loss: f64, records: usize) -> (Summary, Arc<GatewayCounts>, RingReader) {
    let folder = tempdir().unwrap();
    let file = folder.path().join("day.pcap");
    day(messages, loss, &file);
    let (readers, opened) = mpsc::channel();
    let (summary, counts) = hand_on(folder.path(), &file, records, move |path| {
        readers.send(RingReader::open(path).unwrap()).unwrap();
    });
    (summary, counts, opened.recv().unwrap())
}

/// Bid and offer by symbol, as the summary writes them.
fn tops(summary: &Summary) -> BTreeMap<String, [Option<String>; 2]> {
    let tops = &summary.channels[0].books.tops;
    let side = |price: &Option<String>, shares| price.as_ref().map(|price| format!("{shares} at {price}"));
    let line = |top: &feed_handler::report::TopSummary| {
        (top.symbol.clone(), [side(&top.bid, top.bid_shares), side(&top.ask, top.ask_shares)])
    };
    tops.iter().map(line).collect()
}

fn side(qty: u64, price: Price) -> Option<String> {
    (qty > 0).then(|| format!("{qty} at {price}"))
}

#[test]
fn books_in_a_reader_are_the_feeds() {
    let (summary, counts, mut reader) = hand_on_to_reader(20_000, 0.05, 1 << 16);
    let mut books = OrderBooks::new(Capacity { books: 64, orders: 32_768, levels: 32_768 });
    let (mut next, mut gaps, mut last_venue_seq) = (0, 0, 0);
    while let Read::Record { seq, record } = reader.read() {
        assert_eq!(seq, next);
        // A gap is a record of its own, with the number of the last missing message.
        let has_gap = record.flags.contains(Flags::GAP_BEFORE);
        assert_eq!(has_gap, matches!(record.event, market::event::Event::Other(Other { kind: 0, .. })));
        assert!(has_gap || record.venue_seq == last_venue_seq + 1, "at {}", record.venue_seq);
        assert_eq!(record.flags.contains(Flags::STALE), gaps > 0 || has_gap);
        assert!(record.receive_ns > 0 && record.flags.contains(Flags::END_OF_EVENT));
        books.apply(&record.event);
        (next, gaps, last_venue_seq) = (next + 1, gaps + u64::from(has_gap), record.venue_seq);
    }
    assert_eq!(reader.read(), Read::Closed);
    assert_eq!((next, gaps), (summary.messages + gaps, summary.gaps));
    assert_eq!((next, gaps), (counts.records(), counts.gaps()));
    assert!(gaps > 3, "{gaps} gaps: the day was too quiet to tell");
    let found = (0..books.len() as u32).map(BookIdx).map(|book| {
        let top = books.top(book);
        (books.symbol(book).to_string(), [side(top.bid_qty, top.bid_px), side(top.ask_qty, top.ask_px)])
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), tops(&summary));
}

#[test]
fn quotes_are_the_feeds_and_stale_behind_a_gap() {
    for loss in [0.0, 0.05] {
        let (summary, counts, mut reader) = hand_on_to_reader(10_000, loss, 64);
        let mut found = BTreeMap::new();
        let mut updates = 0;
        reader.read_quotes(|_, conflated| {
            let quote = conflated.quote;
            updates += 1 + conflated.merged;
            let sides = [side(quote.bid_qty, quote.bid_px), side(quote.ask_qty, quote.ask_px)];
            assert_eq!(quote.flags.contains(Flags::STALE), summary.gaps > 0, "{}", quote.symbol);
            found.insert(quote.symbol.to_string(), sides);
        });
        assert_eq!(found, tops(&summary));
        assert!(updates >= counts.quotes() && counts.quotes() > 100, "{updates} updates");
        assert_eq!(counts.quotes_refused(), 0);
    }
}

#[test]
fn reader_that_does_not_read_is_told_what_it_missed_and_changes_nothing() {
    let (summary, _, mut reader) = hand_on_to_reader(10_000, 0.0, 64);
    assert_eq!((summary.messages, summary.gaps), (10_000, 0));
    assert_eq!(reader.read(), Read::Overrun { first: 0, last: 10_000 - 32 - 1 });
    let records = std::iter::from_fn(|| matches!(reader.read(), Read::Record { .. }).then_some(()));
    assert_eq!(records.count(), 32);
    assert_eq!(reader.read(), Read::Closed);
}

#[test]
fn program_in_c_prints_the_feeds_quotes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempdir().unwrap();
    let (program, file) = (folder.path().join("reader"), folder.path().join("day.pcap"));
    let mut compiler = Process::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(root.join("../market-ring/include"));
    match compiler.arg(root.join("examples/reader.c")).arg("-o").arg(&program).output() {
        Err(error) => return println!("SKIPPED program_in_c_prints_the_feeds_quotes: cc: {error}"),
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
    day(5_000, 0.0, &file);
    let (children, started) = mpsc::channel::<(Child, BufReader<_>)>();
    let (summary, _) = hand_on(folder.path(), &file, 8_192, move |path| {
        let mut child = Process::new(&program).arg(path).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "reading\n");
        children.send((child, output)).unwrap();
    });
    let (mut child, mut output) = started.recv().unwrap();
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let (quotes, last) = text.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(last, "5000 events, 0 missed");
    let sides = |line: &str| {
        let (bid, ask) = line.split_at(8).1.trim().split_once(", ").unwrap();
        let side = |text: &str| {
            let (qty, price) = text.split_once(" at ").unwrap();
            side(qty.parse().unwrap(), Price(price.parse().unwrap()))
        };
        (line.split_at(8).0.trim_end().to_owned(), [side(bid), side(ask)])
    };
    assert_eq!(quotes.lines().map(sides).collect::<BTreeMap<_, _>>(), tops(&summary));
}
