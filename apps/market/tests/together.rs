//! Messages of a packet that are decoded together make the same books, and tell the same to a sink,
//! as messages one by one.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use market::event::Event;
use market::itch50::{AddOrder, Head, Itch50, Message, OrderDelete, OrderExecuted, OrderReplace};
use market::{
    BookBuilder, BookIdx, Books, Capacity, Change, ChannelHandler, EventSink, Locate, OrderBooks, Side, Symbol,
    TopOfBook,
};
use proptest::prelude::*;

/// So large that events are prefetched, and so small that none are.
const LARGE: Capacity = Capacity { books: 16, orders: 1 << 16, levels: 1 << 16 };
const SMALL: Capacity = Capacity { books: 16, orders: 1 << 10, levels: 1 << 10 };

/// What a sink is told of an event, with the best prices at that time and whether they are stale.
type Told = (u64, Event, Option<(Change, TopOfBook, bool)>);

#[derive(Debug, Default)]
struct Log(Vec<Told>);

impl EventSink for Log {
    fn event(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        self.0.push((seq, *event, change.map(|change| (change, books.top(change.book), books.is_stale(change.book)))));
    }
}

/// A message about one of a few orders, of one of three instruments; now and then one of an unknown
/// type or too short.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let order = 1..40_u64;
    (0..10_u8, 1..4_u16, order.clone(), order, 1..6_u32).prop_map(|(kind, locate, order, new, value)| {
        let head = |kind| Head::new(kind, Locate(locate), 1);
        let (qty, price) = (100 * value, 100 * (1_000 + 7 * value * value));
        match kind {
            0..5 => {
                let stock = Symbol::new(["A", "B", "C"][usize::from(locate) - 1]).unwrap();
                let side = if order % 2 == 0 { Side::Buy } else { Side::Sell };
                let (order, shares, price) = (order.into(), qty.into(), price.into());
                let add = AddOrder { head: head(AddOrder::KIND), order, side: side.to_wire(), shares, stock, price };
                Message::from(&add).as_bytes().to_vec()
            }
            5 | 6 => {
                let (head, order, trade) = (head(OrderExecuted::KIND), order.into(), 7.into());
                Message::from(&OrderExecuted { head, order, shares: qty.into(), trade }).as_bytes().to_vec()
            }
            7 => Message::from(&OrderDelete { head: head(OrderDelete::KIND), order: order.into() }).as_bytes().to_vec(),
            8 => {
                let (head, old, new) = (head(OrderReplace::KIND), order.into(), new.into());
                let replace = OrderReplace { head, old, new, shares: qty.into(), price: price.into() };
                Message::from(&replace).as_bytes().to_vec()
            }
            // Of no type, and too short for its type: the books are in doubt from there on.
            _ => [b"?", b"D"][usize::from(order == 1)].to_vec(),
        }
    })
}

fn builder(capacity: Capacity) -> BookBuilder<Itch50, OrderBooks, Log> {
    BookBuilder::with_sink(Itch50, OrderBooks::new(capacity), Log::default())
}

proptest! {
    #[test]
    fn packets_taken_together_make_the_books_of_their_messages(
        packets in proptest::collection::vec(proptest::collection::vec(message(), 0..80), 1..8),
    ) {
        let (mut large, mut small) = (builder(LARGE), builder(SMALL));
        prop_assert!(large.books.prefetches() && !small.books.prefetches());
        let mut seq = 0;
        for packet in &packets {
            let count = large.on_messages((seq..).zip(packet.iter().map(Vec::as_slice)));
            prop_assert_eq!(count, packet.len() as u64);
            for message in packet {
                small.on_message(seq, message);
                seq += 1;
            }
        }
        prop_assert_eq!(&large.sink.0, &small.sink.0);
        prop_assert_eq!((large.counts.total(), large.books.counts()), (small.counts.total(), small.books.counts()));
        for book in (0..large.books.len() as u32).map(BookIdx) {
            for side in [Side::Buy, Side::Sell] {
                prop_assert!(large.books.depth(book, side).eq(small.books.depth(book, side)));
            }
        }
    }
}
