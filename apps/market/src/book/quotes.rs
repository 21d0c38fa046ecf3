//! The exchange's own best bid and offer: TOPS. A quote replaces the one before, so the next quote
//! repairs a gap.

use super::lazy_table::LazyTable;
use super::symbols::Symbols;
use super::{BookCounts, BookIdx, Books, Change, TopOfBook, by_symbols};
use crate::event::{Event, Quote};
use crate::units::Symbol;

/// The last quote of each instrument of one channel.
#[derive(Clone, Debug)]
pub struct Quotes {
    symbols: Symbols,
    quotes: LazyTable<QuoteEntry>,
    /// Quotes of an earlier era are stale: it increments with each gap.
    era: u32,
    counts: BookCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct QuoteEntry {
    top: TopOfBook,
    era: u32,
    is_available: bool,
}

impl Books for Quotes {
    #[inline]
    fn apply(&mut self, event: &Event) -> Option<Change> {
        match event {
            Event::Quote(quote) => self.update(quote),
            Event::Directory(directory) => {
                self.book(directory.symbol);
                None
            }
            _ => None,
        }
    }

    fn top(&self, book: BookIdx) -> TopOfBook {
        self.quotes.get(book.0 as usize).top
    }

    /// A gap made it stale and no quote has come since.
    fn is_stale(&self, book: BookIdx) -> bool {
        self.quotes.get(book.0 as usize).era != self.era
    }

    fn mark_stale(&mut self) {
        self.era = self.era.wrapping_add(1);
    }

    /// Each quote replaces the one before it, so there are no images of quotes: nothing changes.
    fn mark_whole(&mut self) {}

    fn clear(&mut self) {
        self.quotes.clear();
        self.era = 0;
    }

    by_symbols!();
}

impl Quotes {
    /// No quotes, for at most `books_max` instruments; allocates all memory.
    pub fn new(books_max: usize) -> Self {
        Self {
            symbols: Symbols::new(books_max),
            quotes: LazyTable::new(books_max, QuoteEntry::default()),
            era: 0,
            counts: BookCounts::default(),
        }
    }

    /// Bytes that [`Quotes::new`] allocates.
    pub const fn memory(books_max: usize) -> u128 {
        Symbols::memory(books_max as u128) + LazyTable::<QuoteEntry>::memory(books_max as u128)
    }

    /// The instrument can be traded at its quote now.
    pub fn is_available(&self, book: BookIdx) -> bool {
        self.quotes.get(book.0 as usize).is_available
    }

    fn update(&mut self, quote: &Quote) -> Option<Change> {
        let book = self.book(quote.symbol)?;
        let top = TopOfBook {
            bid_px: quote.bid_px,
            bid_qty: quote.bid_qty.into(),
            ask_px: quote.ask_px,
            ask_qty: quote.ask_qty.into(),
        };
        let entry = self.quotes.get_mut(book.0 as usize);
        // One that was stale is published again, because it is fresh now.
        let is_top = entry.top != top || entry.era != self.era;
        *entry = QuoteEntry { top, era: self.era, is_available: quote.available };
        self.counts.applied += 1;
        Some(Change { book, is_top })
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
    use crate::units::Price;

    fn quote(name: &str, bid_px: i64) -> Event {
        Event::Quote(Quote {
            at_ns: 0,
            symbol: Symbol::new(name).unwrap(),
            bid_px: Price(bid_px),
            bid_qty: 1,
            ask_qty: 0,
            ask_px: Price(0),
            available: true,
        })
    }

    #[test]
    fn gap_makes_quotes_stale_until_their_next_one() {
        let mut quotes = Quotes::new(2);
        quotes.apply(&quote("A", 1));
        quotes.apply(&quote("B", 1));
        quotes.mark_stale();
        quotes.apply(&quote("A", 1));
        assert_eq!([0, 1].map(|idx| quotes.is_stale(BookIdx(idx))), [false, true]);
    }

    #[test]
    fn same_quote_after_a_gap_is_published_again() {
        let mut quotes = Quotes::new(1);
        quotes.apply(&quote("A", 1));
        quotes.mark_stale();
        assert!(quotes.apply(&quote("A", 1)).unwrap().is_top);
    }

    #[test]
    fn quote_for_one_instrument_too_many_is_counted() {
        let mut quotes = Quotes::new(1);
        quotes.apply(&quote("A", 1));
        assert_eq!(quotes.apply(&quote("B", 2)), None);
        assert_eq!((quotes.counts().books_full, quotes.top(BookIdx(0)).bid_px), (1, Price(1)));
    }

    #[test]
    fn same_quote_again_is_no_change_of_the_top() {
        let mut quotes = Quotes::new(1);
        assert!(quotes.apply(&quote("A", 1)).unwrap().is_top);
        assert!(!quotes.apply(&quote("A", 1)).unwrap().is_top);
    }
}
