//! What the quotes in the ring are marked with: events one by one, as a channel passes them.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use feed_handler::SinkContext;
use feed_handler::args::{Cli, Command};
use market::event::{
    Add, BookReset, Depth, DepthAction, EndOfEvent, Event, GroupStatus, Instrument, Liquidity, Numbered, Snapshot,
    SnapshotEnd, Status,
};
use market::{Books, Capacity, DepthBooks, EventSink, Gap, Locate, OrderBooks, OrderRef, Price, Price9, Side, Symbol};
use market_gateway::{GatewayCounts, RingSink};
use market_ring::{Flags, Quote, RingConfig, RingReader};
use tempfile::{TempDir, tempdir};
use wirepath::counters::Block;

const SYMBOL: Symbol = Symbol(*b"AAPL    ");
const END: Event = Event::EndOfEvent(EndOfEvent { at_ns: 0 });

/// A channel's books, whose events go to a ring with a reader.
struct Channel<B> {
    books: B,
    sink: RingSink,
    reader: RingReader,
    _folder: TempDir,
}

fn sink(path: &Path) -> RingSink {
    let arguments = ["feed-handler", "replay", "none.pcap", "--cpu", "any", "--format", "mold-itch50"];
    let Command::Replay(args) = Cli::parse_from(arguments).command else { panic!("a replay was asked for") };
    let (plan, scope) = (args.plan().unwrap().feed, Block::heap().scope("worker0"));
    let context = SinkContext { queue: 0, plan, first_channels: vec![0], unix_offset_ns: 0, scope };
    let config = RingConfig { records: 64, quotes: 8, ..RingConfig::default() };
    RingSink::create(path, &config, &context, Arc::new(GatewayCounts::default())).unwrap()
}

impl<B: Books> Channel<B> {
    fn new(books: B) -> Self {
        let folder = tempdir().unwrap();
        let path = folder.path().join("quotes.ring");
        let mut sink = sink(&path);
        sink.opened(0, 1);
        Self { books, sink, reader: RingReader::open(&path).unwrap(), _folder: folder }
    }

    fn apply(&mut self, events: &[Event]) -> &mut Self {
        for event in events {
            let change = self.books.apply(event);
            self.sink.event(1, event, change, &self.books);
        }
        self
    }

    /// The quote of the only instrument.
    fn quote(&mut self) -> Quote {
        let mut found = None;
        self.reader.read_quotes(|_, conflated| found = Some(conflated.quote));
        found.expect("the quote has changed")
    }
}

fn add(order: u64, price: i64) -> Event {
    Event::Add(Add {
        locate: Locate(1),
        side: Side::Buy,
        qty: 100,
        at_ns: 0,
        order: OrderRef(order),
        symbol: SYMBOL,
        price: Price(price),
    })
}

fn bid(rpt_seq: u32) -> Event {
    Event::Depth(Depth {
        side: Side::Buy,
        liquidity: Liquidity::Direct,
        action: DepthAction::New,
        level: 1,
        orders: 1,
        at_ns: 0,
        price: Price9(5),
        symbol: SYMBOL,
        qty: 7,
        rpt_seq,
    })
}

fn statistic(rpt_seq: u32) -> Event {
    Event::Numbered(Numbered { kind: 49, rpt_seq, at_ns: 0, symbol: SYMBOL })
}

#[test]
fn symbol_clear_empties_the_quote_in_the_ring() {
    let mut channel = Channel::new(OrderBooks::new(Capacity { books: 1, orders: 4, levels: 4 }));
    assert_eq!(channel.apply(&[add(1, 100)]).quote().bid_qty, 100);
    let clear = Event::BookReset(BookReset { rpt_seq: 0, at_ns: 0, symbol: SYMBOL });
    let quote = channel.apply(&[clear]).quote();
    assert_eq!((quote.bid_qty, quote.flags), (0, Flags::END_OF_EVENT));
}

#[test]
fn quote_of_a_book_that_lacks_an_order_is_stale() {
    let mut channel = Channel::new(OrderBooks::new(Capacity { books: 1, orders: 1, levels: 4 }));
    let quote = channel.apply(&[add(1, 100), add(2, 101)]).quote();
    assert_eq!((quote.bid_px, quote.flags), (Price(100), Flags::END_OF_EVENT.and(Flags::STALE)));
}

#[test]
fn quote_of_a_book_that_a_statistic_showed_to_be_hurt_is_stale() {
    let mut channel = Channel::new(DepthBooks::new(1));
    assert_eq!(channel.apply(&[bid(1), END]).quote().flags, Flags::END_OF_EVENT);
    let quote = channel.apply(&[statistic(3), END]).quote();
    assert_eq!((quote.bid_qty, quote.flags), (7, Flags::END_OF_EVENT.and(Flags::STALE)));
}

#[test]
fn quote_is_unconfirmed_behind_a_gap_until_its_next_update() {
    let mut channel = Channel::new(DepthBooks::new(1));
    assert_eq!(channel.apply(&[bid(1), END]).quote().flags, Flags::END_OF_EVENT);
    channel.books.mark_stale();
    channel.sink.gap(Gap { from: 2, to: 2 }, &channel.books);
    channel.sink.turn(&channel.books, 0);
    assert_eq!(channel.quote().flags, Flags::END_OF_EVENT.and(Flags::UNCONFIRMED));
    assert_eq!(channel.apply(&[statistic(2), END]).quote().flags, Flags::END_OF_EVENT, "nothing of it was lost");
}

#[test]
fn quote_of_an_instrument_whose_group_is_halted_says_so_until_that_trades() {
    let (group, symbol) = (Symbol(*b"ES      "), Symbol::NONE);
    let of_group =
        |is_halted| Event::GroupStatus(GroupStatus { state: 2, is_halted: Some(is_halted), at_ns: 0, group, symbol });
    let mut channel = Channel::new(OrderBooks::new(Capacity { books: 1, orders: 4, levels: 4 }));
    let turned = |channel: &mut Channel<OrderBooks>| {
        channel.sink.turn(&channel.books, 0);
        channel.quote().flags.contains(Flags::HALTED)
    };
    channel.apply(&[of_group(true), add(1, 100)]);
    assert!(!turned(&mut channel), "nobody has said that it is of the group");
    let definition = Instrument {
        depth: 0,
        implied_depth: 0,
        action: b'A',
        total: 1,
        at_ns: 0,
        symbol: SYMBOL,
        tick: Price9(1),
        name: SYMBOL,
        group,
    };
    channel.apply(&[Event::Instrument(definition)]);
    assert!(turned(&mut channel), "the group was halted before it was defined");
    channel.apply(&[of_group(false)]);
    assert!(!turned(&mut channel));
    channel.apply(&[of_group(true)]);
    assert!(turned(&mut channel));
}

#[test]
fn halt_of_a_snapshot_is_the_quotes_once_a_definition_names_the_group() {
    let (group, symbol, at_ns) = (Symbol(*b"ES      "), SYMBOL, 0);
    let status = |is_halted| {
        let (locate, state) = (Locate::default(), 2);
        let (is_halted, operational, follows_group) = (Some(is_halted), false, None);
        Event::Status(Status { locate, state, is_halted, operational, follows_group, at_ns, symbol })
    };
    let begin = Snapshot { rpt_seq: 0, at_ns, symbol, last_seq: 0, total: 1, part: 1, parts: 1 };
    let snapshot =
        |is_halted| [Event::Snapshot(begin), status(is_halted), Event::SnapshotEnd(SnapshotEnd { at_ns, symbol })];
    let mut channel = Channel::new(OrderBooks::new(Capacity { books: 1, orders: 4, levels: 4 }));
    let turned = |channel: &mut Channel<OrderBooks>| {
        channel.sink.turn(&channel.books, 0);
        channel.quote().flags.contains(Flags::HALTED)
    };
    channel.apply(&[add(1, 100)]).apply(&snapshot(true)).apply(&[add(2, 101)]);
    assert!(!turned(&mut channel), "nothing might end it");
    let definition = Instrument {
        depth: 0,
        implied_depth: 0,
        action: b'A',
        total: 1,
        at_ns,
        symbol,
        tick: Price9(1),
        name: symbol,
        group,
    };
    channel.apply(&[Event::Instrument(definition)]);
    assert!(turned(&mut channel));
    let trades = GroupStatus { state: 17, is_halted: Some(false), at_ns, group, symbol: Symbol::NONE };
    channel.apply(&[Event::GroupStatus(trades)]);
    assert!(!turned(&mut channel));
    channel.apply(&snapshot(true));
    assert!(turned(&mut channel));
    channel.apply(&snapshot(false)).apply(&[status(true)]);
    assert!(turned(&mut channel), "a status behind the snapshot is the instrument's own");
}

#[test]
fn quote_of_a_halted_instrument_says_so_until_it_trades() {
    let status = |symbol, is_halted, operational| {
        let (locate, state, at_ns) = (Locate(1), b'?', 0);
        Status { locate, state, is_halted: Some(is_halted), operational, follows_group: None, at_ns, symbol }
    };
    let mut channel = Channel::new(OrderBooks::new(Capacity { books: 1, orders: 4, levels: 4 }));
    let is_halted = |channel: &mut Channel<OrderBooks>| channel.quote().flags.contains(Flags::HALTED);
    channel.apply(&[Event::Status(status(SYMBOL, true, false)), add(1, 100)]);
    assert!(is_halted(&mut channel), "it was halted before its first order");
    channel.apply(&[add(2, 101)]);
    assert!(is_halted(&mut channel), "an order for its reopening");
    channel.apply(&[Event::Status(status(SYMBOL, false, false))]);
    assert!(!is_halted(&mut channel));
    // All of the channel, turn by turn.
    for is_halted_now in [true, false] {
        channel.apply(&[Event::Status(status(Symbol::NONE, is_halted_now, true))]);
        channel.sink.turn(&channel.books, 0);
        assert_eq!(is_halted(&mut channel), is_halted_now);
    }
    // An image, and what came behind it.
    channel.sink.image_statuses(&[status(SYMBOL, true, false)], true);
    channel.sink.rebuilt(&channel.books);
    channel.sink.turn(&channel.books, 0);
    assert!(is_halted(&mut channel));
    channel.sink.image_statuses(&[status(Symbol(*b"MSFT    "), false, false)], true);
    channel.sink.rebuilt(&channel.books);
    channel.sink.turn(&channel.books, 0);
    assert!(is_halted(&mut channel), "an image of Nasdaq has the state of each stock that trades");
    channel.sink.image_statuses(&[status(SYMBOL, true, false)], true);
    channel.sink.status_again(&status(SYMBOL, false, false), &channel.books);
    channel.sink.rebuilt(&channel.books);
    channel.sink.turn(&channel.books, 0);
    assert!(!is_halted(&mut channel));
    channel.apply(&[Event::Status(status(SYMBOL, true, true))]);
    assert!(is_halted(&mut channel));
    channel.sink.restart();
    assert!(!is_halted(&mut channel), "a new session");
}
