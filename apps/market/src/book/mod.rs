//! Books: events in, best bid and offer of each instrument out.
//!
//! ```text
//!   Add Execute Cancel Delete Replace Modify ──> OrderBooks   orders ─> price levels ─> top      ITCH, PITCH
//!   the same, and Numbered ──> NumberedBooks   one by one: top at an event's end             UMDF, EOBI
//!   PriceLevel ────────────────────────────────> LevelBooks   price levels ─> top when complete  DEEP
//!   Depth ─────────────────────────────────────> DepthBooks   positions ─> top at an event's end MDP 3.0
//!   Quote ─────────────────────────────────────> Quotes       top                                TOPS
//! ```
//!
//! One value holds all instruments of one channel, because a gap or a clear affects a whole
//! channel. Memory is allocated at construction; a full table refuses a new entry, counts it, and
//! the book that lacks it is stale. No
//! message of a feed causes a panic: unknown references, repeated references and executions beyond
//! an order's size are counted and the book stays consistent.
//!
//! *Cost of an update.* Finding an order is one probe into a table at most half full; its level is
//! an index away, so shrinking, executing or deleting an order touches a fixed number of entries,
//! however deep the book is. A new price, or the last order at a price, changes an array by price
//! where it is within some 30 cents of the best one; a price behind that needs a search in a
//! balanced tree: some ten steps for a thousand prices. The next best price is a link away. So an
//! update costs a few cache misses, whatever the book's size.

pub(crate) mod book_set;
mod depth_books;
mod halts;
mod lazy_table;
mod level_books;
pub mod levels;
mod numbered_books;
mod numbering;
mod order_books;
mod orders;
mod prefetch;
mod quotes;
mod snapshot;
mod symbols;
mod touched;

pub use depth_books::{DEPTH_MAX, DepthBooks, DepthCounts, DepthLevel, DepthTop};
pub use halts::Halts;
pub use level_books::LevelBooks;
pub use numbered_books::{NumberedBooks, NumberedCounts, Numbers, OfChannel, OfInstrument};
pub use numbering::Trust;
pub use order_books::{Capacity, OrderBooks};
pub use prefetch::prefetch;
pub use quotes::Quotes;
pub use snapshot::{BookSnapshot, LastEvent, SNAPSHOT_LEVELS, SnapshotError};

use crate::event::{Add, Event};
use crate::units::{OrderRef, Price, Side, Symbol};

/// All books of one channel, built from orders or from levels: the interface for a feed handler.
pub trait Books {
    /// Whether an [`Event::EndOfEvent`] makes public what events before it changed; otherwise each
    /// event does.
    const BY_EVENT: bool = false;

    /// Applies an event. An event of another kind of book changes nothing and returns `None`.
    fn apply(&mut self, event: &Event) -> Option<Change>;

    /// Whether the memory is so large that it pays to decode several events before the first is
    /// applied, and to pass each to [`Books::prefetch_order`], then to [`Books::prefetch_level`].
    fn prefetches(&self) -> bool {
        false
    }

    /// Fetches into the cache what an event that comes soon begins with.
    fn prefetch_order(&self, event: &Event) {
        let _ = event;
    }

    /// Fetches what can only be found once the first is in the cache.
    fn prefetch_level(&self, event: &Event) {
        let _ = event;
    }

    /// The book of `symbol`, if the feed has mentioned it.
    fn find(&self, symbol: Symbol) -> Option<BookIdx>;

    /// The instrument of a book.
    fn symbol(&self, book: BookIdx) -> Symbol;

    /// Best bid and offer.
    fn top(&self, book: BookIdx) -> TopOfBook;

    /// Puts the best levels of a side into `levels`, the best first, as many as there are and have
    /// room, and returns how many. Within an event of the venue they may be between two states.
    /// Where orders at a price are not counted, there are 0. Books of quotes have one level; of
    /// books by position it is the direct levels.
    fn levels(&self, book: BookIdx, side: Side, levels: &mut [DepthLevel]) -> usize {
        let TopOfBook { bid_px, bid_qty, ask_px, ask_qty } = self.top(book);
        let (price, qty) = if side == Side::Buy { (bid_px, bid_qty) } else { (ask_px, ask_qty) };
        let best = (qty > 0).then_some(DepthLevel { price: price.into(), qty, orders: 0 });
        fill(levels, best.into_iter())
    }

    /// Whether books may be acted on behind this event. Feeds by position say so by an event of its
    /// own, IEX by a flag; in the others each message is whole.
    fn ends_event(event: &Event) -> bool {
        match event {
            Event::PriceLevel(level) => level.complete,
            Event::BookReset(_) => !Self::BY_EVENT,
            Event::Depth(_)
            | Event::Order(_)
            | Event::TradeSummary(_)
            | Event::Numbered(_)
            | Event::Snapshot(_)
            | Event::OrderSnapshot(_) => false,
            _ => true,
        }
    }

    /// The book may be wrong, because messages of its channel are missing, or because an order or a
    /// level of it found no place.
    fn is_stale(&self, book: BookIdx) -> bool;

    /// No message of the channel is missing, of books that are stale together.
    fn are_whole(&self) -> bool {
        !self.is_empty() && !self.is_stale(BookIdx(0))
    }

    /// The book is not known to be wrong, but may be: see [`Trust::Unconfirmed`]. Only books that
    /// are judged one by one are ever so.
    fn is_unconfirmed(&self, book: BookIdx) -> bool {
        let _ = book;
        false
    }

    /// Messages of the channel are missing: all books are stale until they are rebuilt, each until
    /// the venue has emptied it.
    fn mark_stale(&mut self);

    /// The books are as the feed makes them again: they were rebuilt from an image, and all
    /// messages behind it were applied. No book is stale until [`Books::mark_stale`].
    fn mark_whole(&mut self);

    /// The feed restarts: empties all books, keeps the instruments. Costs the same however large
    /// they are; used memory is wiped when it is next written, a page or two at a time.
    fn clear(&mut self);

    /// After an [`Event::EndOfEvent`]: the books whose best prices it made public. Empty for books
    /// that change with each event, which tell it by [`Change`].
    fn published(&self) -> &[BookIdx] {
        &[]
    }

    /// Books in use; their indices are all below this.
    fn len(&self) -> usize;

    /// No instrument has been mentioned.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counts of events.
    fn counts(&self) -> &BookCounts;

    /// Gives `each` the counts that books of this kind alone have, with their names. None by
    /// default.
    fn own_counts(&self, each: impl FnMut(&'static str, u64)) {
        let _ = each;
    }

    /// Parts that a walk over the resting orders takes one by one, while the books go on changing:
    /// an order stays in its part for as long as it rests. 0 for books that keep no orders.
    fn order_parts(&self) -> usize {
        0
    }

    /// Shows the orders of a part below [`Books::order_parts`], as they rest now; most parts have
    /// one or none. Their time is 0.
    fn orders_of(&self, part: usize, each: impl FnMut(Add)) {
        let _ = (part, each);
    }

    /// An order as it rests now. Its time is 0.
    fn order(&self, order: OrderRef) -> Option<Add> {
        let _ = order;
        None
    }
}

/// Books that heal one by one, each by a snapshot of its own, while the others stay in use.
pub trait HealingBooks: Books {
    /// Whether they are built from [`Event::OrderSnapshot`]; otherwise from [`Event::Snapshot`].
    const BY_ORDER: bool;

    /// Books that are known to be stale.
    fn stale_count(&self) -> usize;

    /// Whether nothing is missing of any book. Costs a look at each.
    fn are_sure(&self) -> bool;

    /// A whole loop of snapshots was applied, with one of each book that `is_seen`. One that had
    /// neither a snapshot nor an update is empty, as it should be. One that two such loops do not
    /// have, without an update meanwhile, is that of an instrument which is gone: it is emptied,
    /// because nothing else would say what is missing of it. Costs a look at each.
    fn confirm_inactive(&mut self, is_seen: impl Fn(BookIdx) -> bool);

    /// After the end of a snapshot: the book that it made anew; `None` where the book needed none,
    /// or where parts of the snapshot are still to come.
    fn adopted(&self) -> Option<BookIdx>;

    /// Publishes the best prices of one book, as at the end of an event that was about it alone.
    fn publish_book(&mut self, book: BookIdx);

    /// The snapshot that follows has so many orders, or 0 where the venue does not say.
    fn announce(&mut self, orders: u32) {
        let _ = orders;
    }

    /// Whether the events of the present snapshot are for others too. Books by position judge each
    /// event by its number, wherever they are; orders have none, so that those of a snapshot which
    /// the books need not would spoil books that are built elsewhere.
    fn tells_snapshot(&self) -> bool {
        true
    }
}

/// Puts levels where they are wanted, as many as have room.
#[inline]
fn fill(to: &mut [DepthLevel], levels: impl Iterator<Item = DepthLevel>) -> usize {
    to.iter_mut().zip(levels).map(|(to, level)| *to = level).count()
}

/// In an implementation of [`Books`]: the methods that its fields `symbols` and `counts` answer.
macro_rules! by_symbols {
    () => {
        fn find(&self, symbol: $crate::units::Symbol) -> Option<$crate::book::BookIdx> {
            self.symbols.find(symbol)
        }

        fn symbol(&self, book: $crate::book::BookIdx) -> $crate::units::Symbol {
            self.symbols.name(book)
        }

        fn len(&self) -> usize {
            self.symbols.len()
        }

        fn counts(&self) -> &$crate::book::BookCounts {
            &self.counts
        }
    };
}
use by_symbols;

/// A book's index within its [`Books`], stable until they are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookIdx(pub u32);

/// The effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The book.
    pub book: BookIdx,
    /// Its best price or the quantity there may have changed. False is certain, true may repeat the
    /// same top.
    pub is_top: bool,
}

/// Best bid and offer. A quantity of 0 means that the side is empty, and its price has no meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopOfBook {
    /// Highest bid.
    pub bid_px: Price,
    /// Shares bid there.
    pub bid_qty: u64,
    /// Lowest offer.
    pub ask_px: Price,
    /// Shares offered there.
    pub ask_qty: u64,
}

/// The counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookCounts {
    /// Events that changed a book, or made it stale.
    pub applied: u64,
    /// Events about an order that is not known: a late join, a gap, or an order that was refused.
    pub unknown_orders: u64,
    /// Orders added under a reference that rests already. The new one is refused, and its book is
    /// stale, unless the one that rests is the same in all.
    pub repeated_orders: u64,
    /// Orders added without shares. They never rest.
    pub empty_orders: u64,
    /// Executions and cancels of more shares than the order had: the order is removed. Also
    /// executions that would leave more shares than the order had: it stays unchanged.
    pub beyond_size: u64,
    /// Orders refused as the order table is full. Their books are stale.
    pub orders_full: u64,
    /// Orders or price levels refused as all levels are taken. Their books are stale.
    pub levels_full: u64,
    /// Events refused as all books are taken. No other book lacks them.
    pub books_full: u64,
}

impl BookCounts {
    /// Orders, levels and books that found no place, because a table is full.
    #[inline]
    pub const fn without_place(&self) -> u64 {
        self.orders_full + self.levels_full + self.books_full
    }
}
