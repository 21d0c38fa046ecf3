use super::*;
use crate::event::{BookReset, Clear, EndOfEvent, Instrument, Numbered, Snapshot, SnapshotEnd};
use crate::units::{Price, Price9};

fn symbol(id: u64) -> Symbol {
    Symbol::from_number(id)
}

fn depth(id: u64, rpt_seq: u32, action: DepthAction, side: Side, level: u8, price: i64) -> Event {
    Event::Depth(Depth {
        side,
        liquidity: Liquidity::Direct,
        action,
        level,
        orders: 1,
        at_ns: 0,
        price: Price9(price),
        symbol: symbol(id),
        qty: 5,
        rpt_seq,
    })
}

fn new(id: u64, rpt_seq: u32, side: Side, level: u8, price: i64) -> Event {
    depth(id, rpt_seq, DepthAction::New, side, level, price)
}

const END: Event = Event::EndOfEvent(EndOfEvent { at_ns: 0 });

fn statistic(id: u64, rpt_seq: u32) -> Event {
    Event::Numbered(Numbered { kind: 49, rpt_seq, at_ns: 0, symbol: symbol(id) })
}

fn snapshot(id: u64, rpt_seq: u32, bids: &[i64]) -> Vec<Event> {
    let begin = Snapshot { rpt_seq, at_ns: 0, symbol: symbol(id), last_seq: 0, total: 1, part: 1, parts: 1 };
    let level = |(idx, &price): (usize, &i64)| depth(id, 0, DepthAction::Snapshot, Side::Buy, idx as u8 + 1, price);
    let end = [Event::SnapshotEnd(SnapshotEnd { at_ns: 0, symbol: symbol(id) }), END];
    [Event::Snapshot(begin)].into_iter().chain(bids.iter().enumerate().map(level)).chain(end).collect()
}

/// The definition of an instrument.
fn definition(id: u64, depth: u8, implied_depth: u8) -> Event {
    let (symbol, tick, name, group) = (symbol(id), Price9(1), Symbol::NONE, Symbol::NONE);
    Event::Instrument(Instrument { depth, implied_depth, action: b'A', total: 0, at_ns: 0, symbol, tick, name, group })
}

/// Books of instruments 1 and 2, of ten levels, that have seen `events`.
fn books(events: &[Event]) -> DepthBooks {
    let mut books = undefined(&[definition(1, 10, 0), definition(2, 10, 0)]);
    apply(&mut books, events);
    books
}

/// Books of instruments without a definition that have seen `events`.
fn undefined(events: &[Event]) -> DepthBooks {
    let mut books = DepthBooks::new(2);
    apply(&mut books, events);
    books
}

fn apply(books: &mut DepthBooks, events: &[Event]) {
    for event in events {
        books.apply(event);
    }
}

fn bids(books: &DepthBooks, id: u64) -> Vec<i64> {
    let book = books.find(symbol(id)).unwrap();
    books.depth(book, Liquidity::Direct, Side::Buy).iter().map(|level| level.price.0).collect()
}

fn trust(books: &DepthBooks, id: u64) -> Trust {
    books.trust(books.find(symbol(id)).unwrap())
}

#[test]
fn top_is_published_when_the_event_is_over() {
    let mut books = books(&[new(1, 1, Side::Buy, 1, 100), new(1, 2, Side::Sell, 1, 200)]);
    let book = books.find(symbol(1)).unwrap();
    assert_eq!((books.exact_top(book), books.touched()), (DepthTop::default(), &[][..]));
    books.apply(&END);
    let top = books.exact_top(book);
    assert_eq!((top.bid.price.0, top.ask.price.0, books.touched()), (100, 200, &[book][..]));
    books.apply(&depth(1, 3, DepthAction::Delete, Side::Buy, 1, 0));
    assert_eq!((books.exact_top(book), books.touched()), (top, &[][..]));
    books.apply(&END);
    assert_eq!(books.exact_top(book).bid, DepthLevel::default());
}

#[test]
fn top_in_four_decimals_never_looks_better_than_it_is() {
    let mut books = books(&[new(1, 1, Side::Buy, 1, 150_000), new(1, 2, Side::Sell, 1, 150_000), END]);
    let top = books.top(BookIdx(0));
    assert_eq!((top.bid_px, top.ask_px), (Price(1), Price(2)));
    books.apply(&END);
    assert!(books.touched().is_empty(), "an event that changed nothing has changed nothing");
}

#[test]
fn implied_levels_are_kept_apart() {
    let mut implied = new(1, 1, Side::Buy, 1, 300);
    if let Event::Depth(depth) = &mut implied {
        depth.liquidity = Liquidity::Implied;
    }
    let books = books(&[implied, new(1, 2, Side::Buy, 1, 100), END]);
    assert_eq!(bids(&books, 1), [100]);
    assert_eq!(books.depth(BookIdx(0), Liquidity::Implied, Side::Buy)[0].price.0, 300);
    assert_eq!(books.exact_top(BookIdx(0)).bid.price.0, 100);
}

#[test]
fn one_lost_packet_hurts_only_the_book_that_it_was_about() {
    let mut books = books(&[new(1, 1, Side::Buy, 1, 100), new(2, 1, Side::Buy, 1, 100), END]);
    books.mark_stale();
    assert_eq!([trust(&books, 1), trust(&books, 2)], [Trust::Unconfirmed; 2]);
    assert!(!books.is_stale(BookIdx(0)) && !books.is_stale(BookIdx(1)));
    // The lost packet had an update of 1 alone.
    books.apply(&new(1, 3, Side::Buy, 1, 102));
    books.apply(&new(2, 2, Side::Buy, 1, 101));
    assert_eq!([trust(&books, 1), trust(&books, 2)], [Trust::Stale, Trust::Sure]);
    assert_eq!((books.stale_count(), books.depth_counts().lost_updates), (1, 1));
}

#[test]
fn statistics_count_in_the_numbers_of_their_instrument() {
    let books = books(&[new(1, 1, Side::Buy, 1, 100), statistic(1, 2), new(1, 3, Side::Buy, 1, 101)]);
    assert_eq!(trust(&books, 1), Trust::Sure);
    let lost = self::books(&[new(1, 1, Side::Buy, 1, 100), statistic(1, 3)]);
    assert_eq!(trust(&lost, 1), Trust::Stale, "what was lost may have been a level");
}

/// Three bids, then a better one, of which the venue publishes three.
fn pushed_out() -> [Event; 4] {
    [
        new(1, 1, Side::Buy, 1, 103),
        new(1, 2, Side::Buy, 2, 102),
        new(1, 3, Side::Buy, 3, 101),
        new(1, 4, Side::Buy, 1, 104),
    ]
}

#[test]
fn new_level_of_a_full_book_drops_the_one_beyond_the_instruments_depth() {
    let mut books = books(&[definition(1, 3, 0)]);
    apply(&mut books, &pushed_out());
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Sure, vec![104, 103, 102]));
    let gone = |rpt_seq| depth(1, rpt_seq, DepthAction::Delete, Side::Buy, 1, 0);
    apply(&mut books, &[gone(5), new(1, 6, Side::Buy, 3, 101), gone(7), gone(8), gone(9), END]);
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Sure, vec![]));
    assert_eq!(books.exact_top(BookIdx(0)).bid, DepthLevel::default());
}

#[test]
fn depth_is_known_after_a_reset_of_the_channel_too() {
    let mut books = books(&[definition(1, 3, 0), new(1, 1, Side::Buy, 1, 100), Event::Clear(Clear { at_ns: 0 })]);
    apply(&mut books, &pushed_out());
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Sure, vec![104, 103, 102]));
}

#[test]
fn book_of_unknown_depth_is_unconfirmed_while_a_level_may_have_been_pushed_out() {
    let mut books = undefined(&pushed_out()[..3]);
    assert_eq!(trust(&books, 1), Trust::Sure, "the venue has spoken of each of its levels");
    books.apply(&pushed_out()[3]);
    assert!(books.is_unconfirmed(BookIdx(0)) && !books.is_stale(BookIdx(0)));
    books.apply(&depth(1, 5, DepthAction::Change, Side::Buy, 4, 101));
    assert_eq!(trust(&books, 1), Trust::Sure, "it publishes four");
}

#[test]
fn definition_that_comes_after_more_levels_than_it_allows_makes_the_book_stale_once() {
    let mut books = undefined(&pushed_out());
    books.apply(&definition(1, 3, 0));
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Stale, vec![104, 103, 102]));
    apply(&mut books, &snapshot(1, 4, &[104, 103, 102]));
    books.apply(&definition(1, 3, 0));
    assert_eq!((trust(&books, 1), books.stale_count()), (Trust::Sure, 0));
}

#[test]
fn snapshot_of_a_book_of_unknown_depth_says_which_levels_it_has() {
    let mut books = undefined(&pushed_out());
    apply(&mut books, &snapshot(1, 3, &[999]));
    assert_eq!(trust(&books, 1), Trust::Unconfirmed, "it is older than the book");
    apply(&mut books, &snapshot(1, 4, &[104, 103, 102]));
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Sure, vec![104, 103, 102]));
}

#[test]
fn book_that_a_statistic_showed_to_be_hurt_is_published_as_such() {
    let mut books = books(&[new(1, 1, Side::Buy, 1, 100), END, statistic(1, 2), END]);
    assert!(books.touched().is_empty(), "it changed nothing");
    apply(&mut books, &[statistic(1, 4), END]);
    assert_eq!((books.touched(), books.is_stale(BookIdx(0))), (&[BookIdx(0)][..], true));
}

#[test]
fn refresh_heals_direct_and_implied_levels_apart() {
    let implied = |rpt_seq, side| match new(1, rpt_seq, side, 1, 300) {
        Event::Depth(depth) => Event::Depth(Depth { liquidity: Liquidity::Implied, ..depth }),
        other => other,
    };
    let mut books = books(&[definition(1, 1, 1), implied(1, Side::Buy), new(1, 3, Side::Buy, 1, 100)]);
    books.apply(&new(1, 4, Side::Sell, 1, 101));
    let both = |books: &DepthBooks| (books.trust(BookIdx(0)), books.implied_trust(BookIdx(0)), books.stale_count());
    assert_eq!(both(&books), (Trust::Sure, Trust::Stale, 1));
    apply(&mut books, &[implied(5, Side::Buy), implied(6, Side::Sell)]);
    assert_eq!(both(&books), (Trust::Sure, Trust::Sure, 0));
}

#[test]
fn snapshot_far_beyond_the_books_last_update_is_refused() {
    let mut books = books(&[new(1, 1, Side::Buy, 1, 100), new(1, 4, Side::Buy, 1, 104)]);
    apply(&mut books, &snapshot(1, u32::MAX, &[999]));
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Stale, vec![104, 100]));
    assert_eq!(books.depth_counts().snapshots_doubtful, 1);
}

#[test]
fn update_far_behind_the_books_number_makes_it_stale_and_is_not_left_out() {
    let mut books = DepthBooks::new(2);
    apply(&mut books, &snapshot(1, u32::MAX, &[999]));
    apply(&mut books, &[new(1, 7, Side::Buy, 1, 1_000), new(1, 8, Side::Buy, 1, 1_001)]);
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Stale, vec![1_001, 1_000, 999]));
}

#[test]
fn hurt_book_is_whole_when_each_level_was_set_anew() {
    let mut books = books(&[definition(1, 2, 0), new(1, 5, Side::Buy, 1, 100)]);
    assert_eq!(trust(&books, 1), Trust::Stale, "it begins in the middle");
    for (rpt_seq, side, level) in [(6, Side::Buy, 2), (7, Side::Sell, 1)] {
        books.apply(&new(1, rpt_seq, side, level, 100));
        assert_eq!(trust(&books, 1), Trust::Stale);
    }
    books.apply(&new(1, 8, Side::Sell, 2, 100));
    assert_eq!((trust(&books, 1), books.stale_count()), (Trust::Sure, 0));
    assert_eq!((books.depth_counts().hurt, books.depth_counts().healed_by_refresh), (1, 1));
}

#[test]
fn snapshot_heals_a_hurt_book_and_what_it_holds_is_old() {
    let mut books = books(&[new(1, 1, Side::Buy, 1, 100), new(1, 4, Side::Buy, 1, 104)]);
    apply(&mut books, &snapshot(1, 6, &[106, 103]));
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Sure, vec![106, 103]));
    assert_eq!(books.exact_top(BookIdx(0)).bid.price.0, 106);
    books.apply(&new(1, 6, Side::Buy, 1, 999));
    books.apply(&new(1, 7, Side::Buy, 1, 107));
    assert_eq!((bids(&books, 1), books.depth_counts().old_updates), (vec![107, 106, 103], 1));
}

#[test]
fn snapshot_of_a_whole_book_changes_nothing_and_confirms_it() {
    let mut books = books(&[new(1, 1, Side::Buy, 1, 100), END]);
    apply(&mut books, &snapshot(1, 1, &[999]));
    books.mark_stale();
    assert_eq!(trust(&books, 1), Trust::Unconfirmed);
    apply(&mut books, &snapshot(1, 1, &[999]));
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Sure, vec![100]));
    books.mark_stale();
    apply(&mut books, &snapshot(1, 2, &[55]));
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Sure, vec![55]), "its last update was the lost one");
}

#[test]
fn reset_of_a_book_heals_it_empty() {
    let reset = Event::BookReset(BookReset { rpt_seq: 9, at_ns: 0, symbol: symbol(1) });
    let books = books(&[new(1, 1, Side::Buy, 1, 100), reset, END]);
    assert_eq!((trust(&books, 1), bids(&books, 1)), (Trust::Sure, vec![]));
    assert_eq!(books.top(BookIdx(0)), TopOfBook::default());
}

#[test]
fn reset_of_the_channel_empties_all_and_their_numbers_begin_anywhere() {
    let mut books = books(&[new(1, 1, Side::Buy, 1, 100), new(2, 7, Side::Buy, 1, 100), END]);
    assert_eq!(books.stale_count(), 1);
    books.apply(&Event::Clear(Clear { at_ns: 0 }));
    assert_eq!((bids(&books, 1), books.stale_count()), (vec![], 0));
    books.apply(&new(2, 70, Side::Buy, 1, 5));
    assert_eq!(trust(&books, 2), Trust::Sure);
    books.mark_stale();
    books.apply(&new(1, 70, Side::Buy, 1, 5));
    assert_eq!(trust(&books, 1), Trust::Stale, "what was lost may have been its beginning");
}

#[test]
fn position_that_the_book_does_not_have_makes_it_stale() {
    let books = books(&[new(1, 1, Side::Buy, 1, 100), depth(1, 2, DepthAction::Change, Side::Buy, 3, 100)]);
    assert_eq!((trust(&books, 1), books.depth_counts().out_of_place), (Trust::Stale, 1));
}

#[test]
fn level_beyond_the_deepest_is_counted_and_left_out() {
    let books = books(&[new(1, 1, Side::Buy, 11, 100), new(1, 2, Side::Buy, 0, 100)]);
    assert_eq!((books.depth_counts().beyond_depth, trust(&books, 1)), (2, Trust::Sure));
}

#[test]
fn instruments_that_are_defined_take_no_book_before_the_first_message_about_them() {
    let mut books = DepthBooks::new(2);
    (1..=16).for_each(|id| _ = books.apply(&definition(id, 3, 0)));
    assert_eq!((books.len(), books.counts().books_full), (0, 0));
    for event in pushed_out() {
        let Event::Depth(level) = event else { panic!("{event:?}") };
        books.apply(&Event::Depth(Depth { symbol: symbol(16), ..level }));
    }
    assert_eq!((trust(&books, 16), bids(&books, 16)), (Trust::Sure, vec![104, 103, 102]));
    apply(&mut books, &snapshot(1, 1, &[100]));
    assert_eq!((books.len(), books.counts().books_full), (2, 0));
}

#[test]
fn definition_without_a_place_is_counted_and_its_book_is_as_one_without() {
    let mut books = DepthBooks::new(2);
    (1..=17).for_each(|id| _ = books.apply(&definition(id, 3, 0)));
    assert_eq!(books.depth_counts().definitions_full, 1);
    books.apply(&Event::Depth(match new(17, 1, Side::Buy, 1, 100) {
        Event::Depth(level) => level,
        other => panic!("{other:?}"),
    }));
    assert_eq!((trust(&books, 17), bids(&books, 17)), (Trust::Sure, vec![100]));
}
