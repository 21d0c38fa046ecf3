//! Books of single orders whose updates are numbered: for each instrument, as those of B3's UMDF,
//! or for all instruments of the channel together, as those of T7's EOBI ([`Numbers`]).
//!
//! They are [`OrderBooks`] that are judged one by one: a lost packet hurts only the books that it
//! was about ([`Trust`]), and a snapshot of its own makes a hurt book whole. What a book publishes
//! changes at the end of the venue's event, because an event may take several messages.
//!
//! *Numbers.* An order is named by its reference alone. So the number of an update, with its
//! instrument, comes as an event in front of what the update changes: [`Event::Numbered`]. Updates
//! of an old number are left out. An order that the book does not have, or that is another
//! instrument's, shows that something is missing, and the book is stale. So it is where an update
//! has no number, which is 0: nothing says whether the book has it already.
//!
//! *Numbers of the channel* say nothing of which book a lost message was about, and each update of
//! a book has a higher number than the one before. So after a loss all books are
//! [`Trust::Unconfirmed`], and stay so, each until its snapshot makes it anew or the venue empties
//! it; one that is mentioned first behind a loss is stale. So they are where the feed restarts.
//!
//! *Snapshots* come at once, from head to end. Whatever is live ends one that has no end: its book
//! is stale where it was to be made anew, and no other one is concerned.
//!
//! *Resets without a number.* B3's `EmptyBook` has none. So after a loss in the channel no number
//! shows that a book lacks nothing: it is [`Trust::Unconfirmed`], and stays so, until a snapshot
//! has its number and as many orders as it has, or makes it anew.

use core::marker::PhantomData;

use super::lazy_table::LazyTable;
use super::numbering::{ChannelState, Numbering, Place, Trust};
use super::order_books::{Capacity, OrderBooks};
use super::touched::Touched;
use super::{BookCounts, BookIdx, Books, Change, DepthLevel, HealingBooks, TopOfBook};
use crate::event::{Add, Depth, DepthAction, Event, Snapshot};
use crate::units::{OrderRef, Price, Side, Symbol};

/// The counts that only numbered books have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumberedCounts {
    /// Updates that were applied before, or that a snapshot holds.
    pub old_updates: u64,
    /// Updates that are missing, by the numbers of their instruments.
    pub lost_updates: u64,
    /// Times that a book became stale.
    pub hurt: u64,
    /// Times that a stale book was whole again by a snapshot.
    pub healed_by_snapshot: u64,
    /// Snapshots of books that needed none.
    pub snapshots_unneeded: u64,
    /// Snapshots that claim updates of a book far beyond its last one: they are damaged or forged.
    pub snapshots_doubtful: u64,
    /// Snapshots that something live came into: their end is missing.
    pub snapshots_without_end: u64,
    /// Updates of books without a number, of which nothing says whether they are the next.
    pub unnumbered: u64,
    /// Updates of an order that the book does not have: messages are missing.
    pub out_of_place: u64,
    /// Snapshots with an order that no event can say: their books stay stale.
    pub snapshots_unfit: u64,
}

#[derive(Clone, Copy, Debug)]
struct Book {
    numbering: Numbering,
    published: TopOfBook,
    is_touched: bool,
    /// It is among the stale ones that are counted.
    is_hurt: bool,
    /// Its last snapshot has an order that no event can say: no other one is waited for.
    is_unfit: bool,
    /// Its last number when a whole loop did not have it.
    absent_at: Option<u32>,
}

const NO_TOP: TopOfBook = TopOfBook { bid_px: Price(0), bid_qty: 0, ask_px: Price(0), ask_qty: 0 };

/// A snapshot that has begun.
#[derive(Clone, Copy, Debug)]
struct OpenSnapshot {
    book: BookIdx,
    worth: Worth,
    /// The event that empties its book came: another one is live.
    has_reset: bool,
    /// It is to heal its book.
    heals: bool,
}

/// What a snapshot is to its book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    /// It makes the book anew.
    Taken,
    /// It is the book, and confirms it.
    Unneeded,
    /// It is damaged or forged.
    Doubtful,
}

const EMPTY: Book = Book {
    numbering: Numbering::NEW,
    published: NO_TOP,
    is_touched: false,
    is_hurt: false,
    is_unfit: false,
    absent_at: None,
};

/// What a venue numbers.
pub trait Numbers: Send + 'static {
    /// The messages of all instruments together; otherwise the updates of each by themselves.
    const OF_CHANNEL: bool;
}

/// The updates of each instrument have numbers of their own.
#[derive(Clone, Copy, Debug)]
pub enum OfInstrument {}

/// The messages of all instruments are numbered together.
#[derive(Clone, Copy, Debug)]
pub enum OfChannel {}

impl Numbers for OfInstrument {
    const OF_CHANNEL: bool = false;
}

impl Numbers for OfChannel {
    const OF_CHANNEL: bool = true;
}

/// All books of one channel.
#[derive(Clone, Debug)]
pub struct NumberedBooks<N = OfInstrument> {
    orders: OrderBooks,
    books: LazyTable<Book>,
    channel: ChannelState,
    /// The book that the present update changes; `None` where it is to be left out.
    current: Option<BookIdx>,
    /// Orders of the snapshot that follows.
    announced: u32,
    snapshot: Option<OpenSnapshot>,
    /// The book that the last snapshot made anew.
    adopted: Option<BookIdx>,
    touched: Touched,
    stale: usize,
    counts: NumberedCounts,
    numbers: PhantomData<N>,
}

impl<N: Numbers> Books for NumberedBooks<N> {
    const BY_EVENT: bool = true;

    #[inline]
    fn apply(&mut self, event: &Event) -> Option<Change> {
        match event {
            Event::Numbered(numbered) => {
                self.current = self.number(numbered.symbol, numbered.rpt_seq);
                None
            }
            Event::Add(add) => self.add(add.symbol, event),
            Event::Delete(delete) => self.change(delete.order, event),
            Event::Modify(modify) => self.change(modify.order, event),
            Event::Execute(execute) => self.change(execute.order, event),
            Event::EndOfEvent(_) => {
                self.go_live();
                self.publish();
                None
            }
            other => self.apply_other(other),
        }
    }

    fn ends_event(event: &Event) -> bool {
        matches!(event, Event::EndOfEvent(_) | Event::Clear(_) | Event::SnapshotEnd(_) | Event::System(_))
    }

    fn prefetches(&self) -> bool {
        self.orders.prefetches()
    }

    #[inline]
    fn prefetch_order(&self, event: &Event) {
        self.orders.prefetch_order(event);
    }

    #[inline]
    fn prefetch_level(&self, event: &Event) {
        self.orders.prefetch_level(event);
    }

    /// The top as of the last event's end.
    fn top(&self, book: BookIdx) -> TopOfBook {
        self.books.get(book.0 as usize).published
    }

    fn levels(&self, book: BookIdx, side: Side, levels: &mut [DepthLevel]) -> usize {
        self.orders.levels(book, side, levels)
    }

    fn published(&self) -> &[BookIdx] {
        self.touched.of_last_event()
    }

    /// Whether updates of this book are known to be missing, or orders found no place. After a loss
    /// in the channel the others are [`Trust::Unconfirmed`] and not stale.
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

    /// These books are healed one by one, by their own snapshots: nothing changes.
    fn mark_whole(&mut self) {}

    fn clear(&mut self) {
        self.orders.clear();
        self.books.clear();
        self.touched.clear();
        (self.current, self.snapshot, self.adopted) = (None, None, None);
        self.stale = 0;
        // Where the messages of all are numbered, their service may have restarted, and the venue's
        // books may be as they were.
        self.channel = ChannelState { losses: u32::from(N::OF_CHANNEL), is_anchored: true };
    }

    fn find(&self, symbol: Symbol) -> Option<BookIdx> {
        self.orders.find(symbol)
    }

    fn symbol(&self, book: BookIdx) -> Symbol {
        self.orders.symbol(book)
    }

    fn len(&self) -> usize {
        self.orders.len()
    }

    fn counts(&self) -> &BookCounts {
        self.orders.counts()
    }

    fn own_counts(&self, mut each: impl FnMut(&'static str, u64)) {
        let counts = &self.counts;
        let all = [
            ("old_updates", counts.old_updates),
            ("lost_updates", counts.lost_updates),
            ("hurt", counts.hurt),
            ("healed_by_snapshot", counts.healed_by_snapshot),
            ("snapshots_unneeded", counts.snapshots_unneeded),
            ("snapshots_doubtful", counts.snapshots_doubtful),
            ("snapshots_without_end", counts.snapshots_without_end),
            ("unnumbered", counts.unnumbered),
            ("out_of_place", counts.out_of_place),
            ("snapshots_unfit", counts.snapshots_unfit),
        ];
        all.into_iter().for_each(|(name, count)| each(name, count));
    }

    fn order_parts(&self) -> usize {
        self.orders.order_parts()
    }

    fn orders_of(&self, part: usize, each: impl FnMut(Add)) {
        self.orders.orders_of(part, each);
    }

    fn order(&self, order: OrderRef) -> Option<Add> {
        self.orders.order(order)
    }
}

impl<N: Numbers> HealingBooks for NumberedBooks<N> {
    const BY_ORDER: bool = true;

    fn stale_count(&self) -> usize {
        self.stale
    }

    fn are_sure(&self) -> bool {
        let is_done = |book| self.books.get(book as usize).is_unfit || self.trust(BookIdx(book)) == Trust::Sure;
        (0..self.orders.len() as u32).all(is_done)
    }

    fn confirm_inactive(&mut self, is_seen: impl Fn(BookIdx) -> bool) {
        for book in (0..self.orders.len() as u32).map(BookIdx) {
            if !is_seen(book) {
                self.confirm_absent(book);
            }
        }
    }

    fn adopted(&self) -> Option<BookIdx> {
        self.adopted
    }

    fn publish_book(&mut self, book: BookIdx) {
        self.books.get_mut(book.0 as usize).published = self.orders.top(book);
    }

    fn announce(&mut self, orders: u32) {
        self.announced = orders;
    }

    fn tells_snapshot(&self) -> bool {
        self.snapshot.is_none_or(|snapshot| snapshot.worth == Worth::Taken)
    }
}

impl<N: Numbers> NumberedBooks<N> {
    /// Empty books; allocates all memory.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            orders: OrderBooks::new(capacity),
            books: LazyTable::new(capacity.books, EMPTY),
            channel: ChannelState::default(),
            current: None,
            announced: 0,
            snapshot: None,
            adopted: None,
            touched: Touched::new(capacity.books),
            stale: 0,
            counts: NumberedCounts::default(),
            numbers: PhantomData,
        }
    }

    /// Bytes that [`NumberedBooks::new`] allocates.
    pub const fn memory(capacity: Capacity) -> u128 {
        OrderBooks::memory(capacity)
            + LazyTable::<Book>::memory(capacity.books as u128)
            + Touched::memory(capacity.books)
    }

    /// How far a book can be trusted.
    pub fn trust(&self, book: BookIdx) -> Trust {
        if self.orders.lacks(book) {
            return Trust::Stale;
        }
        self.books.get(book.0 as usize).numbering.trust(self.channel)
    }

    /// The books of orders, as they are within an event too.
    pub const fn orders(&self) -> &OrderBooks {
        &self.orders
    }

    /// What only numbered books count.
    pub const fn numbered_counts(&self) -> &NumberedCounts {
        &self.counts
    }

    /// Checks an update's number. `None` where the update is to be left out. A number may show that
    /// others are missing, or that none is: then the book is published anew, with what it is worth.
    #[inline]
    fn number(&mut self, symbol: Symbol, number: u32) -> Option<BookIdx> {
        self.go_live();
        let book = self.orders.open(symbol)?;
        if number == 0 {
            return Some(self.change_unnumbered(book));
        }
        let channel = self.channel;
        let numbering = &mut self.books.get_mut(book.0 as usize).numbering;
        let before = numbering.trust(channel);
        let place = if N::OF_CHANNEL {
            numbering.take_of_channel(number, channel)
        } else {
            numbering.take_one_of_some(number, channel)
        };
        if numbering.trust(channel) != before {
            self.touch(book);
        }
        match place {
            Place::Next => Some(book),
            Place::Old => {
                self.counts.old_updates += 1;
                None
            }
            Place::Behind(missing) => {
                self.counts.lost_updates += u64::from(missing);
                self.hurt(book);
                Some(book)
            }
        }
    }

    #[cold]
    fn change_unnumbered(&mut self, book: BookIdx) -> BookIdx {
        self.counts.unnumbered += 1;
        self.hurt(book);
        book
    }

    /// Something live comes, which is within no snapshot.
    #[inline]
    fn go_live(&mut self) {
        if self.snapshot.is_some() {
            self.give_up_snapshot();
        }
    }

    #[cold]
    fn give_up_snapshot(&mut self) {
        let Some(OpenSnapshot { book, worth, .. }) = self.snapshot.take() else { return };
        self.counts.snapshots_without_end += 1;
        if worth == Worth::Taken {
            self.hurt(book);
        }
    }

    /// The book that an event without an instrument is about.
    #[inline]
    fn changing(&self) -> Option<BookIdx> {
        match self.snapshot {
            Some(snapshot) => (snapshot.worth == Worth::Taken).then_some(snapshot.book),
            None => self.current,
        }
    }

    #[inline]
    fn add(&mut self, symbol: Symbol, add: &Event) -> Option<Change> {
        let book = self.changing().filter(|&book| self.orders.symbol(book) == symbol)?;
        let change = self.orders.apply(add);
        self.touch(book);
        if self.orders.lacks(book) {
            self.hurt(book);
        }
        change
    }

    #[inline]
    fn change(&mut self, order: OrderRef, event: &Event) -> Option<Change> {
        let book = self.changing()?;
        self.touch(book);
        if self.orders.book_of(order) != Some(book) {
            self.misplace(book);
            return None;
        }
        self.orders.apply(event)
    }

    #[cold]
    fn misplace(&mut self, book: BookIdx) {
        // A stale book lacks orders.
        if self.trust(book) != Trust::Stale {
            if self.snapshot.is_some() {
                return self.mark_unfit(book);
            }
            self.counts.out_of_place += 1;
            self.hurt(book);
        }
    }

    /// The snapshot of a book has an order that no event can say: the book is stale, and the next
    /// loop does not help it.
    fn mark_unfit(&mut self, book: BookIdx) {
        self.counts.snapshots_unfit += 1;
        let entry = self.books.get_mut(book.0 as usize);
        entry.numbering.set_stale(true);
        entry.is_unfit = true;
        self.touch(book);
    }

    #[cold]
    fn apply_other(&mut self, event: &Event) -> Option<Change> {
        match event {
            // A trade is in no book: one without a number says nothing of it.
            Event::TradeSummary(trade) if trade.rpt_seq == 0 => self.go_live(),
            Event::TradeSummary(trade) => _ = self.number(trade.symbol, trade.rpt_seq),
            Event::Depth(depth) => return self.empty_side(depth),
            Event::BookReset(reset) => {
                let book = match reset.rpt_seq {
                    0 => self.resetting(reset.symbol)?,
                    number => self.number(reset.symbol, number)?,
                };
                self.reset(book);
                return Some(Change { book, is_top: true });
            }
            Event::OrderSnapshot(snapshot) => self.begin_snapshot(snapshot),
            Event::SnapshotEnd(_) => self.end_snapshot(),
            Event::Clear(_) => self.clear(),
            _ => {}
        }
        None
    }

    /// The book that a reset empties: the first one within a snapshot is of the snapshot.
    fn resetting(&mut self, symbol: Symbol) -> Option<BookIdx> {
        match &mut self.snapshot {
            Some(snapshot) if !snapshot.has_reset && self.orders.symbol(snapshot.book) == symbol => {
                snapshot.has_reset = true;
                self.changing()
            }
            _ => {
                self.go_live();
                self.orders.open(symbol)
            }
        }
    }

    /// The levels of a side are gone, from the best one on.
    fn empty_side(&mut self, depth: &Depth) -> Option<Change> {
        if (depth.action, depth.level) != (DepthAction::DeleteFrom, 1) {
            return None;
        }
        let book = self.changing()?;
        self.orders.empty(book, &[depth.side]);
        self.touch(book);
        Some(Change { book, is_top: true })
    }

    /// All orders of the book are gone at the venue: it is whole.
    fn reset(&mut self, book: BookIdx) {
        let (symbol, channel) = (self.orders.symbol(book), self.channel);
        self.orders.reset(symbol);
        let entry = self.books.get_mut(book.0 as usize);
        if N::OF_CHANNEL {
            // Of what is behind it nothing is missing.
            entry.numbering.confirm(channel);
        }
        if entry.numbering.is_stale() {
            entry.numbering.set_stale(false);
        }
        entry.is_unfit = false;
        if core::mem::take(&mut entry.is_hurt) {
            self.stale -= 1;
        }
        self.touch(book);
    }

    /// A book is stale from here on. Its orders stay, because they may be of use.
    #[cold]
    fn hurt(&mut self, book: BookIdx) {
        let entry = self.books.get_mut(book.0 as usize);
        entry.numbering.set_stale(true);
        if !entry.is_unfit && !core::mem::replace(&mut entry.is_hurt, true) {
            self.stale += 1;
            self.counts.hurt += 1;
        }
        self.touch(book);
    }

    fn begin_snapshot(&mut self, &Snapshot { symbol, rpt_seq: number, .. }: &Snapshot) {
        self.go_live();
        self.adopted = None;
        let Some(book) = self.orders.open(symbol) else { return };
        let (before, channel) = (self.trust(book), self.channel);
        let resting: u32 = [Side::Buy, Side::Sell].map(|side| self.orders.orders_of_side(book, side)).iter().sum();
        let is_same = |last: u32| (last, resting) == (number, self.announced);
        let numbering = &mut self.books.get_mut(book.0 as usize).numbering;
        // A book's last number may be any of the channel's.
        let is_plausible = N::OF_CHANNEL || numbering.is_plausible(number);
        let is_taken = is_plausible
            && match before {
                Trust::Sure => false,
                // An older one is of use too: what is behind it follows.
                Trust::Unconfirmed => N::OF_CHANNEL || numbering.is_new() || !is_same(numbering.last()),
                Trust::Stale => true,
            };
        let worth = match (is_plausible, is_taken) {
            (false, _) => Worth::Doubtful,
            (true, false) => Worth::Unneeded,
            (true, true) => Worth::Taken,
        };
        self.snapshot = Some(OpenSnapshot { book, worth, has_reset: false, heals: before == Trust::Stale });
        if is_taken {
            self.reset(book);
            self.books.get_mut(book.0 as usize).numbering.adopt(number, channel);
            return;
        }
        self.counts.snapshots_unneeded += u64::from(is_plausible);
        self.counts.snapshots_doubtful += u64::from(!is_plausible);
    }

    fn end_snapshot(&mut self) {
        self.adopted = None;
        match self.snapshot.take() {
            Some(OpenSnapshot { book, worth: Worth::Taken, heals, .. }) => {
                self.counts.healed_by_snapshot += u64::from(heals && self.trust(book) != Trust::Stale);
                self.adopted = Some(book);
            }
            Some(OpenSnapshot { book, worth: Worth::Unneeded, .. }) => {
                let (before, channel) = (self.trust(book), self.channel);
                self.books.get_mut(book.0 as usize).numbering.confirm(channel);
                if self.trust(book) != before {
                    // It confirms the book, which is to be published so.
                    self.touch(book);
                }
            }
            _ => {}
        }
    }

    /// A whole loop did not have the book.
    fn confirm_absent(&mut self, book: BookIdx) {
        let (trust, channel) = (self.trust(book), self.channel);
        let entry = self.books.get_mut(book.0 as usize);
        let last = Some(entry.numbering.last());
        if !entry.numbering.is_new() {
            let is_gone = core::mem::replace(&mut entry.absent_at, last) == last;
            if trust == Trust::Sure || !is_gone {
                return;
            }
            self.reset(book);
        }
        self.books.get_mut(book.0 as usize).numbering.confirm(channel);
        self.touch(book);
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
            (entry.published, entry.is_touched) = (self.orders.top(book), false);
        }
    }
}

#[cfg(test)]
mod tests;
