use market::event::{Add, Delete, EndOfEvent, PriceLevel};
use market::{Capacity, LevelBooks, Locate, OrderBooks, OrderRef, Price, Side, Symbol};
use rdma::roce::Buffer;
use rdma::snapshot::{SlotError, parse, slot_len};

use super::*;

const SLOT_LEN: usize = slot_len(BookSnapshot::LEN);
const GAP: Gap = Gap { from: 3, to: 4 };

/// A sink with its slots, whose memory a reader has too.
struct Rig {
    sink: ExposeSink,
    memory: Buffer,
    now_ns: u64,
}

impl Rig {
    fn new(slots: usize) -> Self {
        let publisher = Publisher::new(slots, BookSnapshot::LEN);
        let memory = publisher.memory().clone();
        let mut sink = ExposeSink::new(publisher, Channels::default(), 1_000);
        sink.opened(0, 0);
        Self { sink, memory, now_ns: 0 }
    }

    fn event(&mut self, books: &mut impl Books, seq: u64, event: Event) {
        self.sink.packet(7);
        let change = books.apply(&event);
        self.sink.event(seq, &event, change, books);
    }

    fn turn(&mut self, books: &impl Books) {
        self.now_ns += 1;
        self.sink.turn(books, self.now_ns);
    }

    /// What a READ of the slot finds.
    fn read(&self, idx: usize) -> Result<BookSnapshot, SlotError> {
        let mut slot = vec![0; SLOT_LEN];
        self.memory.read(idx * SLOT_LEN, &mut slot);
        parse(&slot, BookSnapshot::LEN).map(|(_, value)| BookSnapshot::parse(value).unwrap())
    }

    fn bids(&self, idx: usize) -> Vec<(i64, u64)> {
        let scale = 100_000;
        self.read(idx).unwrap().levels(Side::Buy).map(|(price, qty)| (price.0 / scale, qty)).collect()
    }
}

fn books() -> OrderBooks {
    OrderBooks::new(Capacity { books: 256, orders: 1024, levels: 1024 })
}

fn add(order: u64, book: u16, price: i64) -> Event {
    Event::Add(Add {
        at_ns: 5,
        locate: Locate(book),
        symbol: Symbol::new(&format!("S{book}")).unwrap(),
        order: OrderRef(order),
        side: Side::Buy,
        qty: 100,
        price: Price(price),
    })
}

#[test]
fn book_is_published_in_the_turn_after_its_event_with_what_the_event_was() {
    let (mut rig, mut books) = (Rig::new(4), books());
    rig.event(&mut books, 9, add(1, 1, 10));
    assert_eq!(rig.read(0), Err(SlotError::Empty), "the event itself costs a mark and no more");
    rig.turn(&books);
    let book = rig.read(0).unwrap();
    assert_eq!(book.last(), LastEvent { seq: 9, exchange_ns: 5, receive_ns: 1_007 });
    assert_eq!((book.symbol(), book.is_stale()), (Symbol::new("S1").unwrap(), false));
    assert_eq!(rig.bids(0), [(10, 100)]);
    rig.event(&mut books, 10, Event::Delete(Delete { at_ns: 6, locate: Locate(1), order: OrderRef(1) }));
    rig.turn(&books);
    assert_eq!((rig.bids(0), rig.read(0).unwrap().last().seq), (vec![], 10));
}

#[test]
fn turn_publishes_a_bounded_number_of_books_and_forgets_none() {
    let (mut rig, mut books) = (Rig::new(64), books());
    for book in 0..20 {
        rig.event(&mut books, 1, add(book.into(), book, 10));
        rig.event(&mut books, 2, add(100 + u64::from(book), book, 20));
    }
    let published = |rig: &Rig| (0..64).filter(|&idx| rig.read(idx).is_ok()).count();
    let counts: Vec<_> = (0..4).map(|_| (rig.turn(&books), published(&rig)).1).collect();
    assert_eq!(counts, [8, 16, 20, 20], "a book with two events is published once");
}

#[test]
fn book_between_two_states_is_not_published() {
    let (mut rig, mut books) = (Rig::new(4), LevelBooks::new(4, 16));
    let level = |price, complete| {
        let symbol = Symbol::new("ZIEXT").unwrap();
        Event::PriceLevel(PriceLevel { at_ns: 1, symbol, side: Side::Buy, price: Price(price), qty: 5, complete })
    };
    rig.event(&mut books, 1, level(10, true));
    rig.turn(&books);
    rig.event(&mut books, 2, level(11, false));
    rig.turn(&books);
    assert_eq!(rig.bids(0), [(10, 5)]);
    rig.event(&mut books, 3, level(12, true));
    rig.turn(&books);
    assert_eq!(rig.bids(0), [(12, 5), (11, 5), (10, 5)]);
}

#[test]
fn gap_marks_every_book_stale_and_one_that_is_whole_again_says_so() {
    let (mut rig, mut books) = (Rig::new(256), books());
    for book in 0..200 {
        rig.event(&mut books, 1, add(book.into(), book, 10));
    }
    (0..40).for_each(|_| rig.turn(&books));
    let stale = |rig: &Rig| (0..200).filter(|&idx| rig.read(idx).unwrap().is_stale()).count();
    assert_eq!(stale(&rig), 0);
    books.mark_stale();
    rig.sink.gap(GAP, &books);
    (0..40).for_each(|_| rig.turn(&books));
    assert_eq!(stale(&rig), 200);
    // Without any event: nothing but a look shows it.
    books.mark_whole();
    (0..200).for_each(|_| rig.turn(&books));
    assert_eq!(stale(&rig), 0);
}

#[test]
fn books_that_were_rebuilt_are_at_their_new_places_and_an_old_place_is_of_none() {
    let (mut rig, mut before, mut after) = (Rig::new(4), books(), books());
    for book in 1..=2 {
        rig.event(&mut before, 1, add(book.into(), book, 10));
    }
    rig.turn(&before);
    after.apply(&add(7, 2, 30));
    rig.sink.rebuilt(&after);
    rig.turn(&after);
    assert_eq!((rig.read(0).unwrap().symbol(), rig.bids(0)), (Symbol::new("S2").unwrap(), vec![(30, 100)]));
    assert_eq!(rig.read(0).unwrap().last(), LastEvent::default(), "that of its place before is another instrument's");
    let gone = rig.read(1).unwrap();
    assert_eq!((gone.symbol(), gone.is_stale(), rig.bids(1)), (Symbol::NONE, true, vec![]));
}

#[test]
fn book_beyond_the_slots_is_left_out_and_harms_none() {
    let (mut rig, mut books) = (Rig::new(1), books());
    for book in 1..=3 {
        rig.event(&mut books, 1, add(book.into(), book, 10));
    }
    rig.event(&mut books, 2, Event::EndOfEvent(EndOfEvent { at_ns: 1 }));
    rig.turn(&books);
    assert_eq!(rig.bids(0), [(10, 100)]);
}
