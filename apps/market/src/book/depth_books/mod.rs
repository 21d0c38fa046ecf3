//! Market-by-price books whose levels have positions: CME's MDP 3.0, and other venues that send
//! "the third bid changed".
//!
//! Direct and implied levels are kept apart, because an implied order fills against other
//! instruments' orders. Updates are numbered for each instrument, so a lost packet hurts only the
//! books that it was about: see [`Trust`]. A hurt book is whole again when each of its levels was
//! set anew (natural refresh) or a snapshot of it came. What a book publishes changes at the end of
//! the venue's event, because an event may take several messages.
//!
//! *Depth.* A venue publishes so many levels of an instrument, and does not say that a level is
//! gone because a better one pushed it beyond the last. So the books follow the instrument's
//! definition ([`Event::Instrument`]), which makes no book itself: the first message about the
//! instrument does. Until it comes, a book in which a new level has pushed
//! another beyond each position that a message was about is [`Trust::Unconfirmed`]: that other one
//! may be gone.

mod definitions;
mod healing;
mod side;

pub use side::{DEPTH_MAX, DepthLevel};

use super::lazy_table::LazyTable;
use super::numbering::{ChannelState, Numbering, Place, Trust};
use super::symbols::Symbols;
use super::touched::Touched;
use super::{BookCounts, BookIdx, Books, Change, HealingBooks, TopOfBook, by_symbols, fill};
use crate::event::{Depth, DepthAction, Event, Liquidity};
use crate::units::{Side, Symbol};
use definitions::Definitions;
use side::SideState;

/// The best direct bid and offer of a book, exact to nine decimals. A side without levels has a
/// quantity of 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepthTop {
    /// The best bid.
    pub bid: DepthLevel,
    /// The best offer.
    pub ask: DepthLevel,
}

/// The counts that only books by position have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepthCounts {
    /// Updates that were applied before, or that a snapshot holds.
    pub old_updates: u64,
    /// Updates that are missing, by the numbers of their instruments.
    pub lost_updates: u64,
    /// Times that a book became stale.
    pub hurt: u64,
    /// Times that a stale book was whole again because each level was set anew.
    pub healed_by_refresh: u64,
    /// Times that a stale book was whole again by a snapshot.
    pub healed_by_snapshot: u64,
    /// Snapshots of books that needed none.
    pub snapshots_unneeded: u64,
    /// Snapshots that claim updates of a book far beyond its last one: they are damaged or forged.
    pub snapshots_doubtful: u64,
    /// Updates beyond the levels that the venue publishes of the instrument, or beyond
    /// [`DEPTH_MAX`], which are left out.
    pub beyond_depth: u64,
    /// Updates of a level that the book does not have: messages are missing.
    pub out_of_place: u64,
    /// Definitions that were not kept, because there are more than eight for each book that there
    /// may be: how many levels the venue publishes of their instruments is not known.
    pub definitions_full: u64,
}

#[derive(Clone, Copy, Debug)]
struct Book {
    numbering: Numbering,
    /// By [`Liquidity`], then by side.
    sides: [[SideState; 2]; 2],
    published: DepthTop,
    /// The most levels of it, by [`Liquidity`]; 0 until its first update.
    depth: [u8; 2],
    is_touched: bool,
    /// It is among the stale ones that are counted.
    is_hurt: bool,
    /// Its implied levels are not all known, though its direct ones may be.
    is_implied_stale: bool,
    /// Its last number when a whole loop did not have it.
    absent_at: Option<u32>,
}

const EMPTY: Book = Book {
    numbering: Numbering::NEW,
    sides: [[SideState::EMPTY; 2]; 2],
    published: DepthTop {
        bid: DepthLevel { price: crate::units::Price9(0), qty: 0, orders: 0 },
        ask: DepthLevel { price: crate::units::Price9(0), qty: 0, orders: 0 },
    },
    depth: [0; 2],
    is_touched: false,
    is_hurt: false,
    is_implied_stale: false,
    absent_at: None,
};

/// A book's levels, by liquidity and side.
type Ladders = [[[DepthLevel; DEPTH_MAX]; 2]; 2];

impl Book {
    /// Its best direct bid and offer now.
    #[inline]
    fn top(&self, ladders: &Ladders) -> DepthTop {
        let best = |side: Side| {
            let is_empty = self.sides[Liquidity::Direct as usize][side as usize].len() == 0;
            if is_empty { DepthLevel::default() } else { ladders[Liquidity::Direct as usize][side as usize][0] }
        };
        DepthTop { bid: best(Side::Buy), ask: best(Side::Sell) }
    }
}

/// All books of one channel.
#[derive(Clone, Debug)]
pub struct DepthBooks {
    symbols: Symbols,
    books: LazyTable<Book>,
    ladders: Vec<Ladders>,
    /// Levels that the venue publishes of each book, by [`Liquidity`]; 0 until it was defined.
    depths: Vec<[u8; 2]>,
    definitions: Definitions,
    channel: ChannelState,
    touched: Touched,
    /// The book that a snapshot is taken of, and whether it is taken.
    snapshot: Option<(BookIdx, bool)>,
    /// The book that the last snapshot made anew.
    adopted: Option<BookIdx>,
    stale: usize,
    counts: BookCounts,
    depth_counts: DepthCounts,
}

impl Books for DepthBooks {
    const BY_EVENT: bool = true;

    #[inline]
    fn apply(&mut self, event: &Event) -> Option<Change> {
        match event {
            Event::Depth(depth) => self.update(depth),
            Event::EndOfEvent(_) => {
                self.publish();
                None
            }
            other => self.apply_other(other),
        }
    }

    /// The top as of the last event's end, in whole units of [`crate::Price`]: where the exact
    /// price has more decimals, a bid is rounded down and an offer up, so that no price looks
    /// better than it is. [`DepthBooks::exact_top`] is exact.
    fn top(&self, book: BookIdx) -> TopOfBook {
        let DepthTop { bid, ask } = self.exact_top(book);
        TopOfBook {
            bid_px: bid.price.rounded(Side::Buy),
            bid_qty: bid.qty,
            ask_px: ask.price.rounded(Side::Sell),
            ask_qty: ask.qty,
        }
    }

    #[inline]
    fn levels(&self, book: BookIdx, side: Side, levels: &mut [DepthLevel]) -> usize {
        fill(levels, self.depth(book, Liquidity::Direct, side).iter().copied())
    }

    fn published(&self) -> &[BookIdx] {
        self.touched()
    }

    /// Whether updates of this book are known to be missing. After a loss in the channel the others
    /// are [`Trust::Unconfirmed`] and not stale.
    fn is_stale(&self, book: BookIdx) -> bool {
        self.trust(book) == Trust::Stale
    }

    fn is_unconfirmed(&self, book: BookIdx) -> bool {
        self.trust(book) == Trust::Unconfirmed
    }

    fn mark_stale(&mut self) {
        self.channel.losses = self.channel.losses.wrapping_add(1);
        self.channel.is_anchored = false;
    }

    /// Books by position are healed one by one, by their own snapshots: nothing changes.
    fn mark_whole(&mut self) {}

    fn clear(&mut self) {
        self.books.clear();
        self.touched.clear();
        (self.snapshot, self.adopted) = (None, None);
        self.stale = 0;
        self.channel = ChannelState { losses: 0, is_anchored: true };
    }

    fn own_counts(&self, mut each: impl FnMut(&'static str, u64)) {
        let counts = &self.depth_counts;
        let all = [
            ("old_updates", counts.old_updates),
            ("lost_updates", counts.lost_updates),
            ("hurt", counts.hurt),
            ("healed_by_refresh", counts.healed_by_refresh),
            ("healed_by_snapshot", counts.healed_by_snapshot),
            ("snapshots_unneeded", counts.snapshots_unneeded),
            ("snapshots_doubtful", counts.snapshots_doubtful),
            ("beyond_depth", counts.beyond_depth),
            ("out_of_place", counts.out_of_place),
            ("definitions_full", counts.definitions_full),
        ];
        all.into_iter().for_each(|(name, count)| each(name, count));
    }

    by_symbols!();
}

impl HealingBooks for DepthBooks {
    const BY_ORDER: bool = false;

    fn stale_count(&self) -> usize {
        self.stale
    }

    fn are_sure(&self) -> bool {
        let is_sure = |book: &Book| book.numbering.trust(self.channel) == Trust::Sure && !book.is_implied_stale;
        (0..self.symbols.len()).all(|book| is_sure(self.books.get(book)))
    }

    fn confirm_inactive(&mut self, is_seen: impl Fn(BookIdx) -> bool) {
        for book in (0..self.symbols.len() as u32).map(BookIdx) {
            if !is_seen(book) {
                self.confirm_absent(book);
            }
        }
    }

    fn adopted(&self) -> Option<BookIdx> {
        self.adopted
    }

    fn publish_book(&mut self, book: BookIdx) {
        let entry = self.books.get_mut(book.0 as usize);
        entry.published = entry.top(&self.ladders[book.0 as usize]);
    }
}

impl DepthBooks {
    /// Empty books for at most `books_max` instruments of which messages come, and room for the
    /// definitions of eight times as many; allocates all memory, some 1.3 KB for each book.
    pub fn new(books_max: usize) -> Self {
        Self {
            symbols: Symbols::new(books_max),
            books: LazyTable::new(books_max, EMPTY),
            ladders: vec![Ladders::default(); books_max],
            depths: vec![[0; 2]; books_max],
            definitions: Definitions::new(books_max),
            channel: ChannelState::default(),
            touched: Touched::new(books_max),
            snapshot: None,
            adopted: None,
            stale: 0,
            counts: BookCounts::default(),
            depth_counts: DepthCounts::default(),
        }
    }

    /// Bytes that [`DepthBooks::new`] allocates.
    pub const fn memory(books_max: usize) -> u128 {
        Symbols::memory(books_max as u128)
            + LazyTable::<Book>::memory(books_max as u128)
            + Definitions::memory(books_max as u128)
            + (size_of::<Ladders>() + size_of::<[u8; 2]>()) as u128 * books_max as u128
            + Touched::memory(books_max)
    }

    /// The best direct bid and offer as of the last event's end, exact.
    pub fn exact_top(&self, book: BookIdx) -> DepthTop {
        self.books.get(book.0 as usize).published
    }

    /// The levels of a side, the best first, even within an event.
    pub fn depth(&self, book: BookIdx, liquidity: Liquidity, side: Side) -> &[DepthLevel] {
        let len = self.books.get(book.0 as usize).sides[liquidity as usize][side as usize].len();
        self.ladders.get(book.0 as usize).map_or(&[], |book| &book[liquidity as usize][side as usize][..len])
    }

    /// How far a book's direct levels, which are all of its best prices, can be trusted.
    pub fn trust(&self, book: BookIdx) -> Trust {
        self.trust_in(book, Liquidity::Direct)
    }

    /// How far a book's implied levels can be trusted. A refresh may make the direct ones whole
    /// before them.
    pub fn implied_trust(&self, book: BookIdx) -> Trust {
        let is_stale = self.books.get(book.0 as usize).is_implied_stale;
        if is_stale { Trust::Stale } else { self.trust_in(book, Liquidity::Implied) }
    }

    fn trust_in(&self, book: BookIdx, liquidity: Liquidity) -> Trust {
        let trust = self.books.get(book.0 as usize).numbering.trust(self.channel);
        let is_guess = trust == Trust::Sure && self.is_guess(book, liquidity);
        if is_guess { Trust::Unconfirmed } else { trust }
    }

    /// How many levels the venue publishes is not known, and the book has had more than it has
    /// spoken of.
    fn is_guess(&self, book: BookIdx, liquidity: Liquidity) -> bool {
        let sides = &self.books.get(book.0 as usize).sides[liquidity as usize];
        let most = |of: fn(SideState) -> u8| sides.iter().map(|&side| of(side)).max();
        let is_defined = self.depths.get(book.0 as usize).is_none_or(|depths| depths[liquidity as usize] > 0);
        !is_defined && most(SideState::reach) > most(SideState::named)
    }

    /// After an [`Event::EndOfEvent`]: the books that the event changed, until the next update.
    pub fn touched(&self) -> &[BookIdx] {
        self.touched.of_last_event()
    }

    /// What only books by position count.
    pub fn depth_counts(&self) -> &DepthCounts {
        &self.depth_counts
    }

    #[inline]
    fn update(&mut self, update: &Depth) -> Option<Change> {
        let book = self.book(update.symbol)?;
        match self.snapshot {
            Some((of, is_taken)) if of == book && update.action == DepthAction::Snapshot => {
                if !is_taken {
                    return None;
                }
            }
            _ if update.action == DepthAction::Snapshot => return None,
            _ => self.number(book, update.rpt_seq)?,
        }
        self.touch(book);
        let (liquidity, side) = (update.liquidity as usize, update.side as usize);
        let depth = self.depth_max(book, liquidity);
        let idx = usize::from(update.level).wrapping_sub(1);
        if idx >= usize::from(depth) {
            self.depth_counts.beyond_depth += 1;
            return None;
        }
        let level = DepthLevel { price: update.price, qty: update.qty, orders: update.orders };
        let levels = &mut self.ladders[book.0 as usize][liquidity][side];
        let entry = self.books.written_mut(book.0 as usize);
        let state = &mut entry.sides[liquidity][side];
        let done = match update.action {
            DepthAction::New => state.insert(levels, idx, level, depth),
            DepthAction::Change => state.set(levels, idx, level),
            DepthAction::Delete => state.delete(levels, idx),
            DepthAction::DeleteThru => state.delete_thru(levels, idx),
            DepthAction::DeleteFrom => state.delete_from(idx),
            DepthAction::Overlay | DepthAction::Snapshot => state.overlay(levels, idx, level),
        };
        if entry.is_hurt || done.is_err() {
            self.settle(book, update.liquidity, done);
        }
        self.counts.applied += 1;
        let is_top = update.liquidity == Liquidity::Direct && (idx == 0 || update.action == DepthAction::DeleteThru);
        Some(Change { book, is_top })
    }

    /// The most levels that a book may have.
    #[inline]
    fn depth_max(&mut self, book: BookIdx, liquidity: usize) -> u8 {
        match self.books.written_mut(book.0 as usize).depth[liquidity] {
            0 => self.look_up_depth(book, liquidity),
            depth => depth,
        }
    }

    /// The same before the first update of a book since all were emptied.
    #[cold]
    fn look_up_depth(&mut self, book: BookIdx, liquidity: usize) -> u8 {
        let depth = match self.depths[book.0 as usize][liquidity] {
            0 => DEPTH_MAX as u8,
            depth => depth,
        };
        self.books.get_mut(book.0 as usize).depth[liquidity] = depth;
        depth
    }

    /// The number of an update that changes no level. It may show that others are missing, or that
    /// none is: then the book is published anew, with what it is worth.
    fn number_other(&mut self, symbol: Symbol, number: u32) {
        let Some(book) = self.book(symbol) else { return };
        let before = self.trust(book);
        let _ = self.number(book, number);
        if self.trust(book) != before {
            self.touch(book);
        }
    }

    /// Checks an update's number. `None` where the update is to be left out.
    #[inline]
    fn number(&mut self, book: BookIdx, number: u32) -> Option<()> {
        let entry = self.books.get_mut(book.0 as usize);
        match entry.numbering.take(number, self.channel) {
            Place::Next => Some(()),
            Place::Old => {
                self.depth_counts.old_updates += 1;
                None
            }
            Place::Behind(missing) => {
                self.lose(book, missing);
                Some(())
            }
        }
    }

    #[inline]
    fn touch(&mut self, book: BookIdx) {
        self.touched.insert(book, &mut self.books.get_mut(book.0 as usize).is_touched);
    }

    /// The event is over: what it changed is published.
    #[inline]
    fn publish(&mut self) {
        for &book in self.touched.end_event() {
            let entry = self.books.get_mut(book.0 as usize);
            entry.published = entry.top(&self.ladders[book.0 as usize]);
            entry.is_touched = false;
        }
    }

    #[cold]
    fn apply_other(&mut self, event: &Event) -> Option<Change> {
        match event {
            Event::Numbered(numbered) => self.number_other(numbered.symbol, numbered.rpt_seq),
            Event::TradeSummary(trade) => self.number_other(trade.symbol, trade.rpt_seq),
            Event::BookReset(reset) => {
                let book = self.book(reset.symbol)?;
                self.number(book, reset.rpt_seq)?;
                self.reset(book);
                return Some(Change { book, is_top: true });
            }
            Event::Snapshot(snapshot) => {
                let book = self.book(snapshot.symbol)?;
                self.begin_snapshot(book, snapshot.rpt_seq);
            }
            Event::SnapshotEnd(_) => {
                self.adopted = self.snapshot.take().and_then(|(book, is_taken)| is_taken.then_some(book));
            }
            Event::Instrument(instrument) => {
                let depths = [instrument.depth, instrument.implied_depth];
                self.depth_counts.definitions_full += u64::from(!self.definitions.keep(instrument.symbol, depths));
                let book = self.symbols.find(instrument.symbol)?;
                self.define(book, depths);
            }
            Event::Clear(_) => self.clear(),
            _ => {}
        }
        None
    }

    #[inline]
    fn book(&mut self, symbol: Symbol) -> Option<BookIdx> {
        self.symbols.find(symbol).or_else(|| self.open(symbol))
    }

    /// The first message about an instrument makes its book, of the depth that was defined.
    #[cold]
    fn open(&mut self, symbol: Symbol) -> Option<BookIdx> {
        let Some(book) = self.symbols.find_or_insert(symbol) else {
            self.counts.books_full += 1;
            return None;
        };
        self.define(book, self.definitions.depths(symbol));
        Some(book)
    }
}

#[cfg(test)]
mod tests;
