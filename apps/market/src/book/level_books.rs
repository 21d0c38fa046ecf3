//! Books built from totals at a price: DEEP.
//!
//! While an event of the exchange spans several messages, the top is in transition; the published
//! top changes only with the message that completes it.

use super::lazy_table::LazyTable;
use super::levels::{Ladder, Levels, Total};
use super::symbols::Symbols;
use super::{BookCounts, BookIdx, Books, Change, DepthLevel, TopOfBook, by_symbols, fill};
use crate::event::{Event, PriceLevel};
use crate::units::{Price, Side, Symbol};

/// All books of one channel.
#[derive(Clone, Debug)]
pub struct LevelBooks {
    symbols: Symbols,
    books: LazyTable<Book>,
    levels: Levels<Total>,
    is_stale: bool,
    counts: BookCounts,
}

#[derive(Clone, Copy, Debug)]
struct Book {
    sides: [Ladder; 2],
    published: TopOfBook,
    /// A level of it found no place.
    is_lacking: bool,
}

const EMPTY: Book = Book {
    sides: [Ladder::EMPTY; 2],
    published: TopOfBook { bid_px: Price(0), bid_qty: 0, ask_px: Price(0), ask_qty: 0 },
    is_lacking: false,
};

impl Books for LevelBooks {
    #[inline]
    fn apply(&mut self, event: &Event) -> Option<Change> {
        match event {
            Event::PriceLevel(level) => self.update(level),
            Event::Directory(directory) => {
                self.book(directory.symbol);
                None
            }
            _ => None,
        }
    }

    /// The top as of the last completed event.
    fn top(&self, book: BookIdx) -> TopOfBook {
        self.books.get(book.0 as usize).published
    }

    #[inline]
    fn levels(&self, book: BookIdx, side: Side, levels: &mut [DepthLevel]) -> usize {
        let depth = self.depth(book, side);
        fill(levels, depth.map(|(price, qty)| DepthLevel { price: price.into(), qty, orders: 0 }))
    }

    fn is_stale(&self, book: BookIdx) -> bool {
        self.is_stale || self.books.get(book.0 as usize).is_lacking
    }

    fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    fn mark_whole(&mut self) {
        self.is_stale = false;
    }

    fn clear(&mut self) {
        self.levels.clear();
        self.books.clear();
        self.is_stale = false;
    }

    by_symbols!();
}

impl LevelBooks {
    /// Empty books for at most `books_max` instruments and `levels_max` prices over all of them;
    /// allocates all memory.
    pub fn new(books_max: usize, levels_max: usize) -> Self {
        Self {
            symbols: Symbols::new(books_max),
            books: LazyTable::new(books_max, EMPTY),
            levels: Levels::new(levels_max),
            is_stale: false,
            counts: BookCounts::default(),
        }
    }

    /// Bytes that [`LevelBooks::new`] allocates.
    pub const fn memory(books_max: usize, levels_max: usize) -> u128 {
        Symbols::memory(books_max as u128)
            + LazyTable::<Book>::memory(books_max as u128)
            + Levels::<Total>::memory(levels_max as u128)
    }

    /// Prices with shares now.
    pub fn levels_count(&self) -> usize {
        self.levels.len()
    }

    /// Price and shares of each level of a side, the best first, even if the event is not complete.
    pub fn depth(&self, book: BookIdx, side: Side) -> impl Iterator<Item = (Price, u64)> {
        let ladder = &self.books.get(book.0 as usize).sides[side as usize];
        self.levels.iter(ladder).map(|level| (level.price(), level.qty))
    }

    fn update(&mut self, update: &PriceLevel) -> Option<Change> {
        let book = self.book(update.symbol)?;
        let entry = self.books.get_mut(book.0 as usize);
        let ladder = &mut entry.sides[update.side as usize];
        let found = self.levels.find(ladder, update.side, update.price);
        match (found, update.qty) {
            (Some(idx), 0) => self.levels.remove(ladder, idx),
            (Some(idx), qty) => self.levels.get_mut(idx).qty = qty.into(),
            (None, 0) => {}
            (None, qty) => match self.levels.insert(ladder, update.side, update.price, Total::none(book.0)) {
                Some(idx) => self.levels.get_mut(idx).qty = qty.into(),
                None => {
                    self.counts.levels_full += 1;
                    entry.is_lacking = true;
                }
            },
        }
        self.counts.applied += 1;
        let published = entry.published;
        if update.complete {
            entry.published = self.levels.top(&entry.sides);
        }
        Some(Change { book, is_top: entry.published != published || entry.is_lacking })
    }

    fn book(&mut self, symbol: Symbol) -> Option<BookIdx> {
        let book = self.symbols.find_or_insert(symbol);
        self.counts.books_full += u64::from(book.is_none());
        book
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(side: Side, price: i64, qty: u32, complete: bool) -> Event {
        let symbol = Symbol::new("ZIEXT").unwrap();
        Event::PriceLevel(PriceLevel { at_ns: 0, symbol, side, qty, price: Price(price), complete })
    }

    fn top_after(events: &[Event]) -> (i64, u64, i64, u64) {
        let mut books = LevelBooks::new(1, 4);
        for event in events {
            books.apply(event);
        }
        let TopOfBook { bid_px, bid_qty, ask_px, ask_qty } = books.top(BookIdx(0));
        (bid_px.0, bid_qty, ask_px.0, ask_qty)
    }

    #[test]
    fn top_in_transition_is_not_published() {
        let before = [level(Side::Buy, 100, 5, true), level(Side::Sell, 101, 5, true)];
        let moving = [level(Side::Sell, 101, 0, false), level(Side::Buy, 101, 3, false)];
        assert_eq!(top_after(&[&before[..], &moving].concat()), (100, 5, 101, 5));
        let done = [level(Side::Sell, 102, 7, true)];
        assert_eq!(top_after(&[&before[..], &moving, &done].concat()), (101, 3, 102, 7));
    }

    #[test]
    fn level_without_shares_is_gone_and_may_go_twice() {
        let events = [level(Side::Buy, 100, 5, true), level(Side::Buy, 100, 0, true), level(Side::Buy, 100, 0, true)];
        assert_eq!(top_after(&events), (0, 0, 0, 0));
    }

    #[test]
    fn clear_empties_the_books_and_gives_their_levels_back() {
        let mut books = LevelBooks::new(1, 1);
        for price in 100..103 {
            books.apply(&level(Side::Buy, price, 5, true));
            assert_eq!((books.counts().levels_full, books.top(BookIdx(0)).bid_px), (0, Price(price)));
            books.clear();
            assert_eq!(books.top(BookIdx(0)), TopOfBook::default());
        }
    }

    #[test]
    fn pool_without_a_level_left_counts_and_keeps_the_rest() {
        let mut books = LevelBooks::new(1, 1);
        books.apply(&level(Side::Buy, 100, 5, true));
        books.apply(&level(Side::Buy, 101, 5, true));
        assert_eq!((books.counts().levels_full, books.top(BookIdx(0)).bid_px), (1, Price(100)));
        assert!(books.is_stale(BookIdx(0)), "it lacks a level");
        books.clear();
        assert!(!books.is_stale(BookIdx(0)));
    }
}
