//! What readers of the ring have after an image has healed the books: no message was ever about
//! some of their orders.

use market::event::{Cancel, Delete, Replace};
use market::{Capacity, Locate, OrderBooks, OrderRef, Price, Side};
use market_ring::{Read, RingReader, WholeChannels};
use tempfile::TempDir;
use wirepath::counters::Block;

use super::*;

const GAP: Gap = Gap { from: 100, to: 199 };
/// A turn with so many packets that all orders that a turn publishes are due.
const TURN_NS: u64 = 20_000;

/// A feed with one channel, and a reader that builds books of its own.
struct Feed {
    books: OrderBooks,
    sink: RingSink,
    reader: RingReader,
    read: OrderBooks,
    last_flags: Flags,
    seq: u64,
    now_ns: u64,
    overrun: u64,
    folder: TempDir,
}

impl Feed {
    fn new() -> Self {
        Self::of(1 << 16)
    }

    /// With a ring of so many records.
    fn of(records: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        let config = RingConfig { records, quotes: 256, ..RingConfig::default() };
        let mut sink = RingSink::over(shared(&path, &config), 128);
        sink.opened(0, 0);
        let (books, read) = (books(), books());
        let reader = RingReader::open(&path).unwrap();
        Self { books, sink, reader, read, last_flags: Flags::default(), seq: 0, now_ns: 0, overrun: 0, folder }
    }

    /// An event that every consumer gets.
    fn live(&mut self, event: Event) {
        self.seq += 1;
        let change = self.books.apply(&event);
        self.sink.event(self.seq, &event, change, &self.books);
    }

    /// A turn of the worker, so long after the last one.
    fn turn(&mut self, after_ns: u64) {
        self.now_ns += after_ns;
        self.sink.turn(&self.books, self.now_ns);
    }

    /// The reader takes what is in the ring.
    fn read(&mut self) {
        self.read_into(&mut WholeChannels::default());
    }

    fn read_into(&mut self, whole: &mut WholeChannels) {
        loop {
            let read = self.reader.read();
            whole.take(&read);
            match read {
                Read::Record { record, .. } => {
                    self.read.apply(&record.event);
                    self.last_flags = record.flags;
                }
                Read::Joined { .. } => {}
                Read::Overrun { first, last } => self.overrun += last - first + 1,
                _ => break,
            }
        }
    }

    /// Symbols and quantities of the quotes in the ring.
    fn quotes(&mut self) -> Vec<(String, u64)> {
        let mut quotes = Vec::new();
        self.reader.read_quotes(|_, found| quotes.push((found.quote.symbol.to_string(), found.quote.bid_qty)));
        quotes
    }
}

fn shared(path: &Path, config: &RingConfig) -> Shared {
    Shared::create(path, config, Channels::default(), &Block::heap().scope("worker0")).unwrap()
}

fn books() -> OrderBooks {
    OrderBooks::new(Capacity { books: 128, orders: 4_096, levels: 4_096 })
}

fn add(number: u64) -> Event {
    let name = format!("S{}", number % 7);
    Event::Add(Add {
        locate: Locate(1 + (number % 7) as u16),
        side: if number.is_multiple_of(2) { Side::Buy } else { Side::Sell },
        qty: 100 + number as u32,
        at_ns: number,
        order: OrderRef(number),
        price: Price(10_000 + (number % 50) as i64 + if number.is_multiple_of(2) { 0 } else { 100 }),
        symbol: Symbol::new(&name).unwrap(),
    })
}

fn replace(old: u64, new: u64) -> Event {
    Event::Replace(Replace {
        locate: Locate(0),
        at_ns: 0,
        old: OrderRef(old),
        new: OrderRef(new),
        qty: 7,
        price: Price(10_020),
    })
}

fn cancel(order: u64) -> Event {
    Event::Cancel(Cancel { locate: Locate(0), at_ns: 0, order: OrderRef(order), qty: 5 })
}

fn delete(order: u64) -> Event {
    Event::Delete(Delete { locate: Locate(0), at_ns: 0, order: OrderRef(order) })
}

/// All resting orders, without their times and places.
fn orders(books: &OrderBooks) -> Vec<Add> {
    let mut orders = Vec::new();
    (0..books.order_parts()).for_each(|part| books.orders_of(part, |order| orders.push(order)));
    orders.sort_by_key(|order| order.order);
    orders
}

#[test]
fn books_in_a_reader_are_the_feeds_after_a_gap_that_an_image_healed() {
    let mut feed = Feed::new();
    (0..500).for_each(|number| feed.live(add(number)));
    feed.books.mark_stale();
    feed.sink.gap(GAP, &feed.books);
    // The image: 300 orders that nobody has heard of, and 100 known ones are gone.
    let mut rebuilt = books();
    (100..800).for_each(|number| _ = rebuilt.apply(&add(number)));
    feed.books = rebuilt;
    feed.sink.rebuilt(&feed.books);
    feed.read();
    assert!(feed.last_flags.contains(Flags::SNAPSHOT.and(Flags::STALE)));
    assert_eq!(feed.read.orders_count(), 0, "what a reader had before the image is gone");
    // While the orders are published, some turn by turn, the feed goes on.
    let mut number = 0;
    while feed.sink.image.is_some() {
        feed.turn(TURN_NS);
        let known = 100 + 3 * number;
        [add(1_000 + number), replace(known, 2_000 + number), cancel(known + 1), delete(known + 2)]
            .into_iter()
            .for_each(|event| feed.live(event));
        feed.read();
        number += 1;
    }
    assert!(number > 20, "{number} turns");
    feed.live(add(5_000));
    feed.read();
    assert!(!feed.last_flags.contains(Flags::STALE));
    let (feeds, readers) = (orders(&feed.books), orders(&feed.read));
    assert_eq!(feeds.len(), feed.books.orders_count());
    assert!(feeds == readers, "{} and {} orders", feeds.len(), readers.len());
    assert!((0..feed.read.len() as u32).all(|book| !feed.read.is_stale(BookIdx(book))));
    let tops = |books: &OrderBooks| {
        let mut tops: Vec<_> = (0..books.len() as u32)
            .map(BookIdx)
            .map(|book| (books.symbol(book).0, format!("{:?}", books.top(book))))
            .collect();
        tops.sort();
        tops
    };
    assert_eq!(tops(&feed.books), tops(&feed.read));
}

#[test]
fn second_gap_ends_the_image_and_the_next_one_begins_anew() {
    let mut feed = Feed::new();
    (0..500).for_each(|number| feed.live(add(number)));
    feed.sink.rebuilt(&feed.books);
    feed.turn(TURN_NS);
    feed.sink.gap(GAP, &feed.books);
    feed.turn(TURN_NS);
    assert_eq!(feed.sink.image, None);
    feed.sink.rebuilt(&feed.books);
    while feed.sink.image.is_some() {
        feed.turn(TURN_NS);
    }
    feed.read();
    assert!(orders(&feed.books) == orders(&feed.read));
}

#[test]
fn place_of_a_quote_whose_instrument_has_moved_names_no_instrument() {
    let mut feed = Feed::new();
    (0..7).for_each(|number| feed.live(add(number)));
    feed.quotes();
    let mut rebuilt = books();
    [4, 2].into_iter().for_each(|number| _ = rebuilt.apply(&add(number)));
    feed.books = rebuilt;
    feed.sink.rebuilt(&feed.books);
    feed.turn(TURN_NS);
    let expected = [("S4", 104), ("S2", 102), ("", 0), ("", 0), ("", 0), ("", 0), ("", 0)];
    assert_eq!(feed.quotes(), expected.map(|(symbol, qty)| (symbol.to_owned(), qty)));
}

#[test]
fn reader_that_joins_in_mid_day_knows_that_its_books_are_not_the_feeds_until_an_image() {
    let mut feed = Feed::new();
    (0..500).for_each(|number| feed.live(add(number)));
    feed.reader = RingReader::open(&feed.folder.path().join("ring")).unwrap();
    let mut whole = WholeChannels::default();
    feed.live(add(1_000));
    feed.read_into(&mut whole);
    assert!(!whole.is_whole(0) && !feed.last_flags.contains(Flags::STALE));
    feed.sink.rebuilt(&feed.books);
    while feed.sink.image.is_some() {
        feed.turn(TURN_NS);
        feed.read_into(&mut whole);
        assert!(!whole.is_whole(0), "the image is on its way");
    }
    feed.live(add(1_001));
    feed.read_into(&mut whole);
    assert!(whole.is_whole(0) && orders(&feed.books) == orders(&feed.read));
}

#[test]
fn image_overruns_no_reader_that_pauses_for_a_quarter_of_the_rings_time() {
    let mut feed = Feed::of(1_024);
    (0..4_000).for_each(|number| feed.live(add(number)));
    feed.read();
    (feed.read, feed.overrun) = (books(), 0);
    feed.sink.rebuilt(&feed.books);
    let (mut read_ns, mut number) = (0, 4_000);
    while feed.sink.image.is_some() {
        // Turns without a packet take less than a microsecond.
        feed.turn(500);
        if feed.now_ns >= read_ns {
            read_ns = feed.now_ns + FILL_NS_MIN / 4;
            // Meanwhile the feed fills half of the ring.
            for _ in 0..256 {
                feed.live(delete(number - 4_000));
                feed.live(add(number));
                number += 1;
            }
            feed.read();
        }
    }
    feed.read();
    assert_eq!(feed.overrun, 0);
    assert!(number > 8_000 && orders(&feed.books) == orders(&feed.read));
}

#[test]
fn image_comes_in_no_burst_behind_a_turn_that_took_long() {
    let mut feed = Feed::new();
    (0..4_000).for_each(|number| feed.live(add(number)));
    feed.sink.rebuilt(&feed.books);
    let counts = Arc::clone(&feed.sink.shared.counts);
    let mut turn = |after_ns| {
        let before = counts.records();
        feed.turn(after_ns);
        counts.records() - before
    };
    assert_eq!([turn(1_000_000_000), turn(500), turn(500), turn(500)], [ORDERS_PER_TURN + 1, 0, 1, 0]);
}

#[test]
fn gap_or_doubt_is_told_to_readers_of_records_although_no_event_follows() {
    let stale = Flags::END_OF_EVENT.and(Flags::STALE);
    let mut feed = Feed::new();
    feed.live(add(1));
    feed.books.mark_stale();
    feed.sink.gap(GAP, &feed.books);
    feed.read();
    assert_eq!(feed.last_flags, stale.and(Flags::GAP_BEFORE));
    feed.live(add(2));
    feed.read();
    assert_eq!((feed.last_flags, feed.read.orders_count()), (stale, 2), "the gap is told once");
    let mut feed = Feed::new();
    feed.live(add(1));
    feed.books.mark_stale();
    feed.sink.doubted(&feed.books);
    feed.read();
    assert_eq!((feed.last_flags, feed.read.orders_count()), (stale, 1));
}

#[test]
fn quote_of_an_event_behind_an_image_keeps_its_numbers() {
    let mut feed = Feed::new();
    (0..7).for_each(|number| feed.live(add(number)));
    feed.quotes();
    feed.sink.rebuilt(&feed.books);
    // A better price, before the quotes are written anew.
    let Event::Add(order) = add(0) else { panic!("an order") };
    feed.live(Event::Add(Add { order: OrderRef(100), price: Price(10_080), at_ns: 77, ..order }));
    feed.turn(TURN_NS);
    let mut numbers = Vec::new();
    feed.reader.read_quotes(|_, found| numbers.push((found.quote.venue_seq, found.quote.exchange_ns)));
    assert_eq!(numbers[0], (8, 77));
}

#[test]
fn channel_that_lives_says_so_in_the_ring() {
    let mut feed = Feed::new();
    feed.sink.alive();
    assert_eq!([0, 1].map(|channel| feed.reader.life(channel)), [1, 0]);
}

#[test]
fn channels_without_a_place_for_their_life_are_known_at_the_start() {
    assert_eq!([448, 449, 600].map(lifeless), [None, Some((448, 448)), Some((448, 599))]);
}

#[test]
fn halts_without_a_place_are_counted_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let block = Block::heap();
    let config = RingConfig { records: 1 << 10, quotes: 16, ..RingConfig::default() };
    let shared = Shared::create(&path, &config, Channels::default(), &block.scope("worker0")).unwrap();
    let mut sink = RingSink::over(shared, 1);
    sink.opened(0, 0);
    let halted = |name| Status {
        locate: Locate::default(),
        state: b'H',
        is_halted: Some(true),
        operational: false,
        follows_group: None,
        at_ns: 0,
        symbol: Symbol::new(name).unwrap(),
    };
    let books = books();
    sink.event(1, &Event::Status(halted("A")), None, &books);
    assert_eq!(sink.shared.halts_refused.get(), 0);
    sink.event(2, &Event::Status(halted("B")), None, &books);
    sink.image_statuses(&[halted("A"), halted("B")], true);
    sink.status_again(&halted("B"), &books);
    assert_eq!((sink.shared.halts_refused.get(), sink.shared.counts.halts_refused()), (3, 3));
}

/// In a replay of many books each brings the states of its group again.
#[test]
fn state_of_a_group_for_one_instrument_leaves_the_marking_of_the_others_where_it_was() {
    let mut feed = Feed::new();
    let name = |number: usize| Symbol::new(&format!("S{number}")).unwrap();
    let (locate, side, qty, at_ns, group) = (Locate(1), Side::Buy, 1, 0, Symbol::new("G").unwrap());
    for number in 0..MARKED_PER_TURN + 1 {
        let (order, price, symbol) = (OrderRef(number as u64), Price(1), name(number));
        feed.live(Event::Add(Add { locate, side, qty, at_ns, order, price, symbol }));
    }
    let of_group = |is_halted, symbol| {
        Event::GroupStatus(GroupStatus { state: 0, is_halted: Some(is_halted), at_ns, group, symbol })
    };
    feed.turn(TURN_NS);
    feed.turn(TURN_NS);
    let definition = Instrument {
        depth: 0,
        implied_depth: 0,
        action: b'A',
        total: 1,
        at_ns,
        symbol: name(0),
        tick: market::Price9(1),
        name: name(0),
        group,
    };
    feed.live(Event::Instrument(definition));
    let marked = feed.sink.marked;
    feed.live(of_group(true, name(0)));
    assert_eq!(feed.sink.marked, marked);
    feed.live(of_group(false, Symbol::NONE));
    assert_eq!(feed.sink.marked, 0, "it is about all");
}
