use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::event::{BookReset, Cancel, Clear, Delete};

const SMALL: Capacity = Capacity { books: 2, orders: 4, levels: 3 };
const BOOK: BookIdx = BookIdx(0);

fn named(name: &str) -> Symbol {
    Symbol::new(name).unwrap()
}

fn add(order: u64, side: Side, qty: u32, price: i64) -> Event {
    let (locate, symbol) = (Locate(1), named("AAPL"));
    Event::Add(Add { at_ns: 0, locate, order: OrderRef(order), side, qty, symbol, price: Price(price) })
}

fn buy(order: u64, qty: u32, price: i64) -> Event {
    add(order, Side::Buy, qty, price)
}

fn execute(order: u64, qty: u32, remaining: Option<u32>) -> Event {
    Event::Execute(Execute {
        at_ns: 0,
        locate: Locate(1),
        printable: true,
        order: OrderRef(order),
        qty,
        remaining,
        price: None,
        trade: 0,
    })
}

fn cancel(order: u64, qty: u32) -> Event {
    Event::Cancel(Cancel { at_ns: 0, locate: Locate(1), order: OrderRef(order), qty })
}

fn delete(order: u64) -> Event {
    Event::Delete(Delete { at_ns: 0, locate: Locate(1), order: OrderRef(order) })
}

fn replace(old: u64, new: u64, qty: u32, price: i64) -> Event {
    let (old, new) = (OrderRef(old), OrderRef(new));
    Event::Replace(Replace { at_ns: 0, locate: Locate(1), old, new, qty, price: Price(price) })
}

fn modify(order: u64, qty: u32, price: i64) -> Event {
    Event::Modify(Modify { at_ns: 0, order: OrderRef(order), qty, price: Price(price) })
}

fn apply(events: &[Event]) -> OrderBooks {
    let mut books = OrderBooks::new(SMALL);
    for event in events {
        books.apply(event);
    }
    books
}

/// Applies the events and compares the bids, `(price, shares, orders)` from the best on.
#[track_caller]
fn check(events: &[Event], bids: &[(i64, u64, u32)]) -> BookCounts {
    let books = apply(events);
    let depth: Vec<_> = books.depth(BOOK, Side::Buy).map(|(price, qty, orders)| (price.0, qty, orders)).collect();
    assert_eq!(depth, bids);
    assert_eq!(books.levels_count(), bids.len());
    *books.counts()
}

#[test]
fn unknown_orders_are_counted_and_change_nothing() {
    let unknown = [execute(9, 1, None), cancel(9, 1), delete(9), replace(9, 10, 1, 1), modify(9, 1, 1)];
    let counts = check(&[&[buy(1, 5, 100)], &unknown[..]].concat(), &[(100, 5, 1)]);
    assert_eq!((counts.unknown_orders, counts.applied), (5, 1));
}

#[test]
fn repeated_reference_is_refused() {
    let counts = check(&[buy(1, 5, 100), buy(1, 7, 200)], &[(100, 5, 1)]);
    assert_eq!(counts.repeated_orders, 1);
    let counts = check(&[buy(1, 5, 100), buy(2, 5, 100), replace(1, 2, 9, 90)], &[(100, 5, 1)]);
    assert_eq!(counts.repeated_orders, 1);
}

#[test]
fn repeated_order_makes_its_book_stale_unless_it_rests_just_so() {
    let is_stale = |again| apply(&[buy(1, 5, 100), again]).is_stale(BOOK);
    assert_eq!([buy(1, 5, 100), buy(1, 4, 100), buy(1, 5, 99)].map(is_stale), [false, true, true]);
}

#[test]
fn order_without_shares_never_rests() {
    assert_eq!(check(&[buy(1, 0, 100)], &[]).empty_orders, 1);
}

#[test]
fn order_is_gone_at_zero_shares() {
    let counts = check(&[buy(1, 5, 100), execute(1, 3, None), cancel(1, 2), delete(1)], &[]);
    assert_eq!((counts.unknown_orders, counts.beyond_size), (1, 0));
}

#[test]
fn execution_beyond_the_size_takes_the_order_and_no_more() {
    let counts = check(&[buy(1, 5, 100), buy(2, 4, 100), execute(1, 9, None)], &[(100, 4, 1)]);
    assert_eq!(counts.beyond_size, 1);
}

#[test]
fn execution_that_says_what_is_left_is_believed_unless_it_is_more() {
    check(&[buy(1, 9, 100), execute(1, 2, Some(3))], &[(100, 3, 1)]);
    check(&[buy(1, 9, 100), execute(1, 2, Some(0))], &[]);
    assert_eq!(check(&[buy(1, 9, 100), execute(1, 2, Some(10))], &[(100, 9, 1)]).beyond_size, 1);
}

#[test]
fn replacement_inherits_side_and_stock() {
    check(&[buy(1, 5, 100), replace(1, 2, 7, 101), execute(2, 3, None)], &[(101, 4, 1)]);
    check(&[buy(1, 5, 100), replace(1, 1, 7, 101)], &[(101, 7, 1)]);
}

#[test]
fn modified_order_keeps_its_reference() {
    check(&[buy(1, 5, 100), modify(1, 7, 90), cancel(1, 2)], &[(90, 5, 1)]);
    check(&[buy(1, 5, 100), modify(1, 0, 90)], &[]);
}

#[test]
fn best_price_is_first_on_both_sides() {
    let books = apply(&[buy(1, 1, 99), buy(2, 2, 100), add(3, Side::Sell, 3, 102), add(4, Side::Sell, 4, 101)]);
    // The fourth price found no room.
    assert_eq!(books.counts().levels_full, 1);
    let top = TopOfBook { bid_px: Price(100), bid_qty: 2, ask_px: Price(102), ask_qty: 3 };
    assert_eq!((books.top(BOOK), books.is_stale(BOOK)), (top, true));
}

#[test]
fn full_order_table_refuses_and_counts() {
    let adds: Vec<_> = (1..=6).map(|order| buy(order, 1, 100)).collect();
    let books = apply(&adds);
    assert_eq!((books.counts().orders_full, books.orders_count(), books.top(BOOK).bid_qty), (2, 4, 4));
}

#[test]
fn only_the_book_that_lacks_an_order_is_stale_until_it_is_empty() {
    let other = BookIdx(1);
    let in_other = |order| match buy(order, 1, 100) {
        Event::Add(add) => Event::Add(Add { symbol: named("B"), locate: Locate(2), ..add }),
        event => event,
    };
    let mut books = apply(&[buy(1, 1, 100), in_other(2), in_other(3), in_other(4)]);
    let change = books.apply(&buy(5, 1, 101));
    assert_eq!(change, Some(Change { book: BOOK, is_top: true }), "whoever shows its best price is to know");
    assert_eq!([BOOK, other].map(|book| books.is_stale(book)), [true, false]);
    books.apply(&replace(2, 3, 1, 99));
    assert_eq!([BOOK, other].map(|book| books.is_stale(book)), [true, true], "the new order has the name of another");
    let symbol = books.symbol(BOOK);
    let change = books.apply(&Event::BookReset(BookReset { rpt_seq: 0, at_ns: 0, symbol }));
    assert_eq!(change, Some(Change { book: BOOK, is_top: true }));
    assert_eq!([BOOK, other].map(|book| books.is_stale(book)), [false, true]);
    books.clear();
    assert!(!books.is_stale(other));
}

#[test]
fn instrument_without_a_book_left_is_counted() {
    let mut books = OrderBooks::new(SMALL);
    for (order, name) in [(1, "A"), (2, "B"), (3, "C")] {
        let Event::Add(event) = buy(order, 1, 1) else { panic!() };
        books.apply(&Event::Add(Add { symbol: named(name), locate: Locate(order as u16), ..event }));
    }
    assert_eq!((books.counts().books_full, books.len(), books.find(named("C"))), (1, 2, None));
}

#[test]
fn locate_that_two_stocks_share_does_not_mix_their_books() {
    let mut books = OrderBooks::new(SMALL);
    for (order, name) in [(1, "A"), (2, "B"), (3, "A")] {
        let Event::Add(event) = buy(order, 1, 1) else { panic!() };
        books.apply(&Event::Add(Add { symbol: named(name), locate: Locate(7), ..event }));
    }
    assert_eq!([0, 1].map(|idx| books.top(BookIdx(idx)).bid_qty), [2, 1]);
}

#[test]
fn change_says_whether_the_top_may_have_moved() {
    let mut books = apply(&[buy(1, 5, 100)]);
    let mut is_top = |event| books.apply(&event).unwrap().is_top;
    assert!(!is_top(buy(2, 5, 99)));
    assert!(is_top(buy(3, 5, 101)));
    assert!(!is_top(cancel(1, 1)));
    assert!(is_top(delete(3)));
    assert!(is_top(replace(2, 4, 5, 101)));
}

#[test]
fn book_reset_takes_the_orders_of_one_instrument_alone() {
    let other = |order, price| {
        let Event::Add(add) = buy(order, 1, price) else { unreachable!() };
        Event::Add(Add { symbol: named("MSFT"), locate: Locate(2), ..add })
    };
    let mut books = OrderBooks::new(Capacity { books: 2, orders: 64, levels: 64 });
    for order in 1..=20 {
        books.apply(&buy(order, 5, 100 + order as i64 % 3));
        books.apply(&other(100 + order, 200));
    }
    let change = books.apply(&Event::BookReset(BookReset { rpt_seq: 0, at_ns: 0, symbol: named("AAPL") }));
    assert_eq!(change, Some(Change { book: BOOK, is_top: true }));
    assert_eq!((books.orders_count(), books.levels_count(), books.top(BOOK).bid_qty), (20, 1, 0));
    let change = books.apply(&Event::BookReset(BookReset { rpt_seq: 0, at_ns: 0, symbol: named("AAPL") }));
    assert_eq!(change, Some(Change { book: BOOK, is_top: false }), "an empty book stays empty");
    for order in 1..=20 {
        assert!(books.apply(&delete(100 + order)).is_some(), "order {order} of the other book is there");
    }
}

#[test]
fn book_that_is_reset_behind_a_gap_is_whole_until_the_next_gap() {
    let mut books = apply(&[buy(1, 100, 10)]);
    books.mark_stale();
    let reset = Event::BookReset(BookReset { rpt_seq: 0, at_ns: 0, symbol: named("AAPL") });
    let change = books.apply(&reset);
    assert!(change.is_some_and(|change| change.is_top));
    assert!(!books.is_stale(BookIdx(0)) && books.is_stale(BookIdx(1)) && !books.are_whole());
    books.mark_stale();
    assert!(books.is_stale(BookIdx(0)));
    // It is empty already, and its quote says that it is stale.
    assert!(books.apply(&reset).is_some_and(|change| change.is_top));
    books.mark_whole();
    assert!(books.are_whole() && !books.is_stale(BookIdx(1)));
}

#[test]
fn clear_empties_the_books_and_makes_them_fresh() {
    let mut books = apply(&[buy(1, 5, 100), buy(2, 5, 101)]);
    books.mark_stale();
    assert!(books.is_stale(BOOK));
    books.apply(&Event::Clear(Clear { at_ns: 0 }));
    assert_eq!((books.orders_count(), books.levels_count(), books.is_stale(BOOK)), (0, 0, false));
    assert_eq!((books.top(BOOK), books.find(named("AAPL"))), (TopOfBook::default(), Some(BOOK)));
    books.apply(&buy(1, 5, 100));
    assert_eq!(books.top(BOOK).bid_qty, 5);
}

#[test]
fn books_have_room_for_as_much_after_each_clear() {
    let mut books = OrderBooks::new(Capacity { books: 1, orders: 2, levels: 2 });
    for _ in 0..3 {
        books.apply(&buy(1, 5, 100));
        books.apply(&buy(2, 5, 101));
        assert_eq!((books.orders_count(), books.levels_count()), (2, 2));
        books.clear();
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    let (order, qty, price) = (0_u64..12, 0_u32..6, 95_i64..105);
    (0_u8..8, order, 0_u64..12, qty, price, any::<bool>()).prop_map(|(kind, order, new, qty, price, is_buy)| match kind
    {
        0..3 => add(order, if is_buy { Side::Buy } else { Side::Sell }, qty, price),
        3 => execute(order, qty, None),
        4 => cancel(order, qty),
        5 => delete(order),
        6 => replace(order, new, qty, price),
        _ => modify(order, qty, price),
    })
}

/// The same rules without levels, tables or limits.
#[derive(Default)]
struct Model {
    orders: HashMap<OrderRef, (Side, i64, u32)>,
}

impl Model {
    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Add(add) => self.rest(add.order, (add.side, add.price.0, add.qty)),
            Event::Execute(Execute { order, qty, .. }) | Event::Cancel(Cancel { order, qty, .. }) => {
                if let Some((side, price, resting)) = self.orders.remove(&order) {
                    self.rest(order, (side, price, resting.saturating_sub(qty)));
                }
            }
            Event::Delete(Delete { order, .. }) => {
                self.orders.remove(&order);
            }
            Event::Replace(Replace { old, new, qty, price, .. }) => {
                if let Some((side, ..)) = self.orders.remove(&old) {
                    self.rest(new, (side, price.0, qty));
                }
            }
            Event::Modify(Modify { order, qty, price, .. }) => {
                if let Some((side, ..)) = self.orders.remove(&order) {
                    self.rest(order, (side, price.0, qty));
                }
            }
            _ => unreachable!("the strategy makes no other events"),
        }
    }

    fn rest(&mut self, order: OrderRef, resting: (Side, i64, u32)) {
        if resting.2 > 0 {
            self.orders.entry(order).or_insert(resting);
        }
    }

    fn best(&self, side: Side) -> Option<(i64, u64)> {
        let prices = self.orders.values().filter(|order| order.0 == side).map(|order| order.1);
        let best = if side == Side::Buy { prices.max() } else { prices.min() }?;
        let there = self.orders.values().filter(|order| (order.0, order.1) == (side, best));
        Some((best, there.map(|order| u64::from(order.2)).sum()))
    }
}

proptest! {
    #[test]
    fn top_agrees_with_a_plain_model(events in proptest::collection::vec(any_event(), 1..200)) {
        let mut books = OrderBooks::new(Capacity { books: 1, orders: 16, levels: 32 });
        books.book(Locate(1), named("AAPL"));
        let mut model = Model::default();
        for event in &events {
            let before = books.top(BOOK);
            let change = books.apply(event);
            model.apply(event);

            let top = books.top(BOOK);
            let side = |px: Price, qty: u64| (qty > 0).then_some((px.0, qty));
            prop_assert_eq!(side(top.bid_px, top.bid_qty), model.best(Side::Buy));
            prop_assert_eq!(side(top.ask_px, top.ask_qty), model.best(Side::Sell));
            prop_assert_eq!(books.orders_count(), model.orders.len());
            prop_assert!(top == before || change.is_some_and(|change| change.is_top), "an unannounced change");
        }
    }
}
