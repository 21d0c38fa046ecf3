use super::*;
use crate::event::{BookReset, Delete, EndOfEvent, Modify, Numbered, SnapshotEnd};
use crate::units::Locate;

fn symbol(number: u64) -> Symbol {
    Symbol::from_number(number)
}

fn books() -> NumberedBooks {
    NumberedBooks::new(Capacity { books: 4, orders: 8, levels: 8 })
}

fn numbered(instrument: u64, rpt_seq: u32) -> Event {
    Event::Numbered(Numbered { kind: 50, rpt_seq, at_ns: 0, symbol: symbol(instrument) })
}

fn add(instrument: u64, order: u64, price: i64) -> Event {
    let (locate, side, at_ns) = (Locate::default(), Side::Buy, 0);
    Event::Add(Add {
        locate,
        side,
        qty: 1,
        at_ns,
        order: OrderRef(order),
        price: Price(price),
        symbol: symbol(instrument),
    })
}

fn delete(order: u64) -> Event {
    Event::Delete(Delete { locate: Locate::default(), at_ns: 0, order: OrderRef(order) })
}

const END: Event = Event::EndOfEvent(EndOfEvent { at_ns: 0 });

/// Books of instruments 1 and 2, with the orders 10 and 20.
fn begun() -> NumberedBooks {
    let mut books = books();
    for event in [numbered(1, 1), add(1, 10, 100), numbered(2, 1), add(2, 20, 200), END] {
        books.apply(&event);
    }
    books
}

fn bid(books: &NumberedBooks, instrument: u64) -> i64 {
    books.top(books.find(symbol(instrument)).unwrap()).bid_px.0
}

fn trust(books: &NumberedBooks, instrument: u64) -> Trust {
    books.trust(books.find(symbol(instrument)).unwrap())
}

#[test]
fn best_price_is_published_at_the_end_of_its_event() {
    let mut books = begun();
    for event in [numbered(1, 2), add(1, 11, 101)] {
        books.apply(&event);
    }
    assert_eq!((bid(&books, 1), books.published().len()), (100, 0));
    books.apply(&END);
    assert_eq!((bid(&books, 1), books.published()), (101, &[BookIdx(0)][..]));
}

#[test]
fn update_that_was_applied_is_left_out_with_all_that_it_changes() {
    let mut books = begun();
    for event in [numbered(1, 1), delete(10), END] {
        books.apply(&event);
    }
    assert_eq!((bid(&books, 1), trust(&books, 1), books.numbered_counts().old_updates), (100, Trust::Sure, 1));
}

#[test]
fn number_that_is_skipped_hurts_its_book_alone_and_its_updates_are_applied_all_the_same() {
    let mut books = begun();
    for event in [numbered(1, 4), add(1, 11, 101), END] {
        books.apply(&event);
    }
    assert_eq!([trust(&books, 1), trust(&books, 2)], [Trust::Stale, Trust::Sure]);
    assert_eq!((books.stale_count(), books.numbered_counts().lost_updates, bid(&books, 1)), (1, 2, 101));
}

#[test]
fn order_of_another_instrument_is_left_alone_and_the_book_that_should_have_it_is_stale() {
    for event in
        [delete(20), Event::Modify(Modify { qty: 5, at_ns: 0, order: OrderRef(20), price: Price(1) }), delete(9)]
    {
        let mut books = begun();
        books.apply(&numbered(1, 2));
        assert_eq!(books.apply(&event), None);
        books.apply(&END);
        assert_eq!([trust(&books, 1), trust(&books, 2)], [Trust::Stale, Trust::Sure]);
        assert_eq!((bid(&books, 2), books.numbered_counts().out_of_place), (200, 1));
    }
}

#[test]
fn order_under_a_reference_that_rests_elsewhere_leaves_its_book_stale() {
    let mut books = begun();
    for event in [numbered(1, 2), add(1, 20, 100), END] {
        books.apply(&event);
    }
    assert_eq!([trust(&books, 1), trust(&books, 2)], [Trust::Stale, Trust::Sure]);
    assert_eq!(books.stale_count(), 1);
}

fn snapshot(instrument: u64, rpt_seq: u32) -> [Event; 2] {
    let (symbol, at_ns) = (symbol(instrument), 0);
    let head = Snapshot { rpt_seq, at_ns, symbol, last_seq: 0, total: 1, part: 1, parts: 1 };
    [Event::OrderSnapshot(head), Event::BookReset(BookReset { rpt_seq: 0, at_ns, symbol })]
}

fn snapshot_end(instrument: u64) -> Event {
    Event::SnapshotEnd(SnapshotEnd { at_ns: 0, symbol: symbol(instrument) })
}

#[test]
fn snapshot_makes_a_stale_book_anew_and_its_numbers_go_on_behind_it() {
    let mut books = begun();
    books.apply(&numbered(1, 9));
    snapshot(1, 12).iter().for_each(|event| _ = books.apply(event));
    assert!(books.tells_snapshot());
    for event in [add(1, 11, 99), snapshot_end(1)] {
        books.apply(&event);
    }
    assert_eq!((books.adopted(), trust(&books, 1), books.stale_count()), (Some(BookIdx(0)), Trust::Sure, 0));
    for event in [numbered(1, 12), delete(11), numbered(1, 13), add(1, 12, 98), END] {
        books.apply(&event);
    }
    assert_eq!((bid(&books, 1), trust(&books, 1), books.orders().orders_count()), (99, Trust::Sure, 3));
}

#[test]
fn snapshot_of_a_book_that_needs_none_changes_nothing_and_is_told_to_nobody() {
    let mut books = begun();
    snapshot(1, 1).iter().for_each(|event| assert_eq!(books.apply(event), None));
    assert!(!books.tells_snapshot());
    for event in [add(1, 11, 99), snapshot_end(1), END] {
        assert_eq!(books.apply(&event), None);
    }
    assert_eq!((books.adopted(), bid(&books, 1), books.orders().orders_count()), (None, 100, 2));
}

#[test]
fn book_after_a_loss_is_unconfirmed_until_a_snapshot_has_its_number_and_its_orders() {
    for (rpt_seq, orders, is_taken) in [(1, 1, false), (1, 2, true), (2, 1, true), (0, 1, true)] {
        let mut books = begun();
        books.mark_stale();
        books.announce(orders);
        assert_eq!([trust(&books, 1), trust(&books, 2)], [Trust::Unconfirmed; 2]);
        books.apply(&snapshot(1, rpt_seq)[0]);
        assert_eq!(books.tells_snapshot(), is_taken, "{rpt_seq} {orders}");
        books.apply(&snapshot_end(1));
        assert_eq!([trust(&books, 1), trust(&books, 2)], [Trust::Sure, Trust::Unconfirmed]);
    }
}

#[test]
fn next_number_does_not_show_that_no_update_without_one_was_lost() {
    let mut books = begun();
    books.mark_stale();
    for event in [numbered(1, 2), add(1, 11, 101), END] {
        books.apply(&event);
    }
    assert_eq!(trust(&books, 1), Trust::Unconfirmed);
}

#[test]
fn snapshot_without_an_end_ends_at_the_next_live_update_and_only_its_own_book_is_stale() {
    // Of a book that needs one, and of one that does not.
    for (is_hurt, of_the_snapshot) in [(true, Trust::Stale), (false, Trust::Sure)] {
        let mut books = begun();
        if is_hurt {
            books.apply(&numbered(1, 9));
        }
        snapshot(1, 12).iter().for_each(|event| _ = books.apply(event));
        for event in [numbered(2, 2), add(2, 21, 201), numbered(2, 3), delete(20), END] {
            books.apply(&event);
        }
        assert_eq!([trust(&books, 1), trust(&books, 2)], [of_the_snapshot, Trust::Sure]);
        assert_eq!((bid(&books, 2), books.orders().order(OrderRef(20))), (201, None));
        assert_eq!(books.numbered_counts().snapshots_without_end, 1);
        // Its end, when it comes, is of no snapshot.
        books.apply(&snapshot_end(1));
        assert_eq!((books.adopted(), trust(&books, 1)), (None, of_the_snapshot));
    }
}

#[test]
fn snapshot_without_an_end_does_not_confirm_its_book() {
    let mut books = begun();
    books.mark_stale();
    books.announce(1);
    books.apply(&snapshot(1, 1)[0]);
    books.apply(&END);
    assert_eq!(trust(&books, 1), Trust::Unconfirmed);
}

#[test]
fn live_book_that_is_emptied_within_a_snapshot_is_empty() {
    for instrument in [1, 2] {
        let mut books = begun();
        snapshot(1, 1).iter().for_each(|event| _ = books.apply(event));
        let reset = BookReset { rpt_seq: 0, at_ns: 0, symbol: symbol(instrument) };
        for event in [Event::BookReset(reset), END] {
            books.apply(&event);
        }
        assert_eq!((bid(&books, instrument), books.orders().orders_count()), (0, 1));
    }
}

#[test]
fn order_of_another_instrument_than_its_update_or_its_snapshot_is_left_out() {
    let mut books = begun();
    books.apply(&numbered(1, 2));
    assert_eq!(books.apply(&add(2, 21, 201)), None);
    books.apply(&numbered(1, 9));
    snapshot(1, 12).iter().for_each(|event| _ = books.apply(event));
    assert_eq!(books.apply(&add(2, 21, 201)), None);
    books.apply(&snapshot_end(1));
    assert_eq!((books.orders().order(OrderRef(21)), trust(&books, 2)), (None, Trust::Sure));
}

#[test]
fn update_without_a_number_leaves_its_book_stale_and_is_counted() {
    let mut late = books();
    for mut books in [begun(), books()] {
        for event in [numbered(1, 0), add(1, 11, 101), END] {
            books.apply(&event);
        }
        assert_eq!((trust(&books, 1), books.numbered_counts().unnumbered), (Trust::Stale, 1));
        assert_eq!((bid(&books, 1), books.numbered_counts().old_updates), (101, 0));
    }
    late.mark_stale();
    late.apply(&numbered(1, 0));
    assert_eq!(trust(&late, 1), Trust::Stale);
}

#[test]
fn snapshot_with_a_number_far_beyond_the_books_is_doubted() {
    let mut books = begun();
    books.apply(&numbered(1, 9));
    snapshot(1, u32::MAX).iter().for_each(|event| _ = books.apply(event));
    books.apply(&snapshot_end(1));
    assert_eq!((trust(&books, 1), books.numbered_counts().snapshots_doubtful), (Trust::Stale, 1));
}

#[test]
fn book_that_found_no_room_for_an_order_is_stale_until_it_is_empty() {
    let mut books = <NumberedBooks>::new(Capacity { books: 1, orders: 1, levels: 1 });
    for event in [numbered(1, 1), add(1, 10, 100), numbered(1, 2), add(1, 11, 101)] {
        books.apply(&event);
    }
    assert_eq!((trust(&books, 1), books.stale_count()), (Trust::Stale, 1));
    books.apply(&snapshot(1, 0)[1]);
    assert_eq!((trust(&books, 1), books.stale_count()), (Trust::Sure, 0));
}

#[test]
fn book_whose_snapshot_has_an_order_that_no_event_can_say_stays_stale_and_keeps_no_recovery_waiting() {
    let mut books = begun();
    for event in [numbered(1, 2), delete(0), END] {
        books.apply(&event);
    }
    assert_eq!((trust(&books, 1), books.stale_count(), books.are_sure()), (Trust::Stale, 1, false));
    for _ in 0..2 {
        apply_snapshot(&mut books, 1, 2, &[delete(0), add(1, 12, 100), delete(0)]);
        assert_eq!((trust(&books, 1), books.stale_count(), books.are_sure()), (Trust::Stale, 0, true));
    }
    for event in [numbered(1, 3), delete(0), END] {
        books.apply(&event);
    }
    assert_eq!((books.stale_count(), books.are_sure()), (0, true), "the loop does not help it");
    let counts = books.numbered_counts();
    assert_eq!((counts.hurt, counts.healed_by_snapshot, counts.snapshots_unfit), (1, 0, 2));
    apply_snapshot(&mut books, 1, 3, &[add(1, 12, 100)]);
    assert_eq!((trust(&books, 1), books.numbered_counts().healed_by_snapshot), (Trust::Sure, 1));
}

fn apply_snapshot(books: &mut NumberedBooks, instrument: u64, rpt_seq: u32, orders: &[Event]) {
    books.announce(orders.len() as u32);
    let ends = [snapshot_end(instrument), END];
    snapshot(instrument, rpt_seq).iter().chain(orders).chain(&ends).for_each(|event| _ = books.apply(event));
}
