//! Books built from single orders: ITCH and PITCH.
//!
//! Executions and cancels lower the resting size, and an order without shares is removed without a
//! delete. A replacing order inherits side and instrument. Trades against hidden orders change
//! nothing here. A clear empties all books of the value, so each Cboe unit needs its own.

use super::book_set::BookSet;
use super::lazy_table::LazyTable;
use super::levels::{Ladder, Levels, NONE, Total};
use super::orders::{Order, Orders, Position, Vacant};
use super::symbols::Symbols;
use super::{BookCounts, BookIdx, Books, Change, DepthLevel, TopOfBook, by_symbols, fill};
use crate::event::{Add, Event, Execute, Modify, Replace};
use crate::units::{Locate, OrderRef, Price, Side, Symbol};

/// The memory of the books, all of it allocated at construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Instruments. Nasdaq lists some 9,000. About 620 bytes each, for the array of the prices near
    /// the best. By default 16,384.
    pub books: usize,
    /// Orders that rest at one time. Nasdaq's peak is a few millions. 32 to 64 bytes each. By
    /// default 4,194,304.
    pub orders: usize,
    /// Prices with orders at one time, over all books. 64 bytes each. By default 1,048,576.
    pub levels: usize,
}

impl Default for Capacity {
    /// A whole Nasdaq day: 16,384 books, 4 million orders, 1 million levels; some 210 MB.
    fn default() -> Self {
        Self { books: 16_384, orders: 1 << 22, levels: 1 << 20 }
    }
}

/// All books of one channel.
#[derive(Clone, Debug)]
pub struct OrderBooks {
    symbols: Symbols,
    /// Book by locate, so that Nasdaq's messages need no lookup by symbol.
    by_locate: Vec<u32>,
    /// And the other way, for orders that are shown to others.
    locates: Vec<Locate>,
    books: LazyTable<[Ladder; 2]>,
    orders: Orders,
    levels: Levels<Total>,
    is_large: bool,
    /// Messages are missing: what they were about is not known.
    is_stale: bool,
    /// Books that the venue has emptied since: nothing of before counts for them.
    emptied: BookSet,
    /// Books that lack an order that was refused.
    lacking: BookSet,
    counts: BookCounts,
}

/// Books of more memory than a core's own caches have.
const LARGE: u128 = 4 << 20;

impl Books for OrderBooks {
    #[inline]
    fn apply(&mut self, event: &Event) -> Option<Change> {
        let change = match event {
            Event::Add(add) => self.add(add),
            Event::Execute(execute) => self.execute(execute),
            Event::Cancel(cancel) => self.shrink(cancel.order, cancel.qty),
            Event::Delete(delete) => self.delete(delete.order),
            Event::Replace(replace) => self.replace(replace),
            Event::Modify(modify) => self.modify(modify),
            Event::BookReset(reset) => self.reset(reset.symbol),
            Event::Directory(directory) => {
                self.book(directory.locate, directory.symbol);
                return None;
            }
            Event::Clear(_) => {
                self.clear();
                return None;
            }
            _ => return None,
        };
        self.counts.applied += u64::from(change.is_some());
        change
    }

    fn prefetches(&self) -> bool {
        self.is_large
    }

    #[inline]
    fn prefetch_order(&self, event: &Event) {
        if let Event::Add(add) = event
            && let Some(ladder) = self.ladder(add)
        {
            ladder.prefetch(add.side, add.price);
        }
        if let Some(order) = order_of(event) {
            self.orders.prefetch(order);
        }
    }

    #[inline]
    fn prefetch_level(&self, event: &Event) {
        if let Event::Add(add) = event {
            if let Some(ladder) = self.ladder(add) {
                self.levels.prefetch_at(ladder, add.side, add.price);
            }
        } else if let Some(order) = order_of(event)
            && let Some(level) = self.orders.level_at_home(order)
        {
            self.levels.prefetch(level);
        }
    }

    #[inline]
    fn top(&self, book: BookIdx) -> TopOfBook {
        self.levels.top(self.books.get(book.0 as usize))
    }

    #[inline]
    fn levels(&self, book: BookIdx, side: Side, levels: &mut [DepthLevel]) -> usize {
        let depth = self.depth(book, side);
        fill(levels, depth.map(|(price, qty, orders)| DepthLevel { price: price.into(), qty, orders }))
    }

    fn is_stale(&self, book: BookIdx) -> bool {
        self.is_stale && !self.emptied.contains(book) || self.lacking.contains(book)
    }

    fn are_whole(&self) -> bool {
        !self.is_empty() && !self.is_stale
    }

    fn mark_stale(&mut self) {
        self.is_stale = true;
        self.emptied.clear();
    }

    fn mark_whole(&mut self) {
        self.is_stale = false;
        self.emptied.clear();
    }

    fn clear(&mut self) {
        self.orders.clear();
        self.levels.clear();
        self.books.clear();
        self.lacking.clear();
        self.mark_whole();
    }

    fn order_parts(&self) -> usize {
        self.orders.slots()
    }

    fn orders_of(&self, part: usize, mut each: impl FnMut(Add)) {
        self.orders.homed(part).for_each(|order| each(self.shown(order)));
    }

    fn order(&self, order: OrderRef) -> Option<Add> {
        self.orders.find(order).map(|at| self.shown(*self.orders.at(at)))
    }

    by_symbols!();
}

impl OrderBooks {
    /// Empty books; allocates all memory.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            symbols: Symbols::new(capacity.books),
            by_locate: vec![NONE; usize::from(u16::MAX) + 1],
            locates: vec![Locate::default(); capacity.books],
            books: LazyTable::new(capacity.books, [Ladder::EMPTY; 2]),
            orders: Orders::new(capacity.orders),
            levels: Levels::new(capacity.levels),
            is_large: Self::memory(capacity) >= LARGE,
            is_stale: false,
            emptied: BookSet::new(capacity.books),
            lacking: BookSet::new(capacity.books),
            counts: BookCounts::default(),
        }
    }

    /// Bytes that [`OrderBooks::new`] allocates.
    pub const fn memory(capacity: Capacity) -> u128 {
        let Capacity { books, orders, levels } = capacity;
        let by_locate = (u16::MAX as u128 + 1) * size_of::<u32>() as u128;
        Symbols::memory(books as u128)
            + by_locate
            + (books * size_of::<Locate>()) as u128
            + LazyTable::<[Ladder; 2]>::memory(books as u128)
            + 2 * BookSet::memory(books as u128)
            + Orders::memory(orders as u128)
            + Levels::<Total>::memory(levels as u128)
    }

    /// Orders that rest now.
    pub fn orders_count(&self) -> usize {
        self.orders.len()
    }

    /// Prices with orders now.
    pub fn levels_count(&self) -> usize {
        self.levels.len()
    }

    /// Price, shares and orders of each level of a side, the best first.
    pub fn depth(&self, book: BookIdx, side: Side) -> impl Iterator<Item = (Price, u64, u32)> {
        let ladder = &self.books.get(book.0 as usize)[side as usize];
        self.levels.iter(ladder).map(|level| (level.price(), level.qty, level.orders))
    }

    /// The ladder of an order that is added, where its instrument's locate is known.
    #[inline]
    fn ladder(&self, add: &Add) -> Option<&Ladder> {
        match self.by_locate[usize::from(add.locate.0)] {
            NONE => None,
            book => Some(&self.books.get(book as usize)[add.side as usize]),
        }
    }

    fn add(&mut self, add: &Add) -> Option<Change> {
        let book = self.book(add.locate, add.symbol)?;
        let vacant = match self.orders.place(add.order) {
            Ok(at) => return self.repeat(book, add, at),
            Err(vacant) => vacant,
        };
        self.rest(vacant, add.order, add.qty, LevelKey { book, side: add.side, price: add.price })
    }

    /// An order is added that rests already. If it rests just so, the book lacks nothing: behind an
    /// image a reader is told of orders that it has.
    #[cold]
    fn repeat(&mut self, book: BookIdx, add: &Add, at: Position) -> Option<Change> {
        self.counts.repeated_orders += 1;
        let Order { qty, level, .. } = *self.orders.at(at);
        let level = self.levels.get(level);
        let is_same = (level.book, level.side(), level.price(), qty) == (book.0, add.side, add.price, add.qty);
        (!is_same).then(|| self.lack(book))
    }

    fn execute(&mut self, execute: &Execute) -> Option<Change> {
        let Some(remaining) = execute.remaining else { return self.shrink(execute.order, execute.qty) };
        let at = self.find_order(execute.order)?;
        let qty = self.orders.get(at).qty;
        if remaining > qty {
            self.counts.beyond_size += 1;
            return None;
        }
        Some(self.lower(at, qty - remaining))
    }

    fn shrink(&mut self, order: OrderRef, by: u32) -> Option<Change> {
        let at = self.find_order(order)?;
        Some(self.lower(at, by))
    }

    fn delete(&mut self, order: OrderRef) -> Option<Change> {
        let at = self.find_order(order)?;
        Some(self.remove(at).1)
    }

    fn replace(&mut self, replace: &Replace) -> Option<Change> {
        let at = self.find_order(replace.old)?;
        let (place, gone) = self.remove(at);
        let Err(vacant) = self.orders.place(replace.new) else {
            self.counts.repeated_orders += 1;
            return Some(self.lack(gone.book));
        };
        let came = self.rest(vacant, replace.new, replace.qty, LevelKey { price: replace.price, ..place });
        Some(Change { is_top: gone.is_top || came.is_some_and(|change| change.is_top), ..gone })
    }

    fn modify(&mut self, modify: &Modify) -> Option<Change> {
        let at = self.find_order(modify.order)?;
        let (place, gone) = self.remove(at);
        if modify.qty == 0 {
            return Some(gone);
        }
        let Err(vacant) = self.orders.place(modify.order) else { return Some(gone) };
        let came = self.rest(vacant, modify.order, modify.qty, LevelKey { price: modify.price, ..place });
        Some(Change { is_top: gone.is_top || came.is_some_and(|change| change.is_top), ..gone })
    }

    /// All orders of one instrument are gone, and those that were missed too.
    #[cold]
    pub(super) fn reset(&mut self, symbol: Symbol) -> Option<Change> {
        let book = self.symbols.find(symbol)?;
        let was_stale = self.is_stale(book);
        self.lacking.remove(book);
        if self.is_stale {
            self.emptied.insert(book);
        }
        let had_orders = self.empty(book, &[Side::Buy, Side::Sell]);
        Some(Change { book, is_top: had_orders || was_stale })
    }

    /// Removes all orders of these sides. Looks at each slot of the order table until the last of
    /// them is found, some milliseconds in a large one, and at none where there are no orders:
    /// venues do it after a failure, and snapshots that heal a book, not while all is well. Returns
    /// whether there were some.
    #[cold]
    pub(super) fn empty(&mut self, book: BookIdx, sides: &[Side]) -> bool {
        let count = sides.iter().map(|&side| self.orders_of_side(book, side)).sum::<u32>();
        let (mut slot, mut left) = (0, count);
        while left > 0 && slot < self.orders.slots() {
            match self.orders.in_slot(slot) {
                // The removal may move the next order into this slot.
                Some(at) if self.is_of(at, book, sides) => {
                    self.remove(at);
                    left -= 1;
                }
                _ => slot += 1,
            }
        }
        count > 0
    }

    /// Orders of a side. Looks at each of its levels.
    pub(super) fn orders_of_side(&self, book: BookIdx, side: Side) -> u32 {
        self.depth(book, side).map(|(_, _, orders)| orders).sum()
    }

    fn is_of(&self, at: Position, book: BookIdx, sides: &[Side]) -> bool {
        let (of, side) = self.place_of(at);
        of == book && sides.contains(&side)
    }

    fn place_of(&self, at: Position) -> (BookIdx, Side) {
        let level = self.levels.get(self.orders.at(at).level);
        (BookIdx(level.book), level.side())
    }

    /// The book in which an order rests.
    #[inline]
    pub(super) fn book_of(&self, order: OrderRef) -> Option<BookIdx> {
        self.orders.find(order).map(|at| self.place_of(at).0)
    }

    /// The instrument's book, a new one where it has none.
    #[inline]
    pub(super) fn open(&mut self, symbol: Symbol) -> Option<BookIdx> {
        self.book(Locate::default(), symbol)
    }

    /// Whether an order of the book found no place.
    #[inline]
    pub(super) fn lacks(&self, book: BookIdx) -> bool {
        self.lacking.contains(book)
    }

    fn shown(&self, Order { reference: order, qty, level }: Order) -> Add {
        let level = self.levels.get(level);
        let (locate, symbol) = (self.locates[level.book as usize], self.symbols.name(BookIdx(level.book)));
        Add { locate, side: level.side(), qty, at_ns: 0, order, price: level.price(), symbol }
    }

    fn find_order(&mut self, order: OrderRef) -> Option<Position> {
        let at = self.orders.find(order);
        self.counts.unknown_orders += u64::from(at.is_none());
        at
    }

    /// Reduces a resting order; one without shares is removed.
    fn lower(&mut self, at: Position, by: u32) -> Change {
        let order = self.orders.get(at);
        if by >= order.qty {
            self.counts.beyond_size += u64::from(by > order.qty);
            return self.remove(at).1;
        }
        order.qty -= by;
        let idx = order.level;
        let level = self.levels.get_mut(idx);
        level.qty -= u64::from(by);
        Change { book: BookIdx(level.book), is_top: level.is_best() }
    }

    /// Removes an order from its level, and the level from the book where it was the last one.
    fn remove(&mut self, at: Position) -> (LevelKey, Change) {
        let Order { qty, level: idx, .. } = *self.orders.get(at);
        self.orders.remove(at);
        let level = self.levels.get_mut(idx);
        level.qty -= u64::from(qty);
        level.orders -= 1;
        let (is_last, is_top) = (level.orders == 0, level.is_best());
        let place = LevelKey { book: BookIdx(level.book), side: level.side(), price: level.price() };
        if is_last {
            let ladder = &mut self.books.get_mut(place.book.0 as usize)[place.side as usize];
            self.levels.remove(ladder, idx);
        }
        (place, Change { book: place.book, is_top })
    }

    /// Adds an order that is not known to its level.
    fn rest(&mut self, vacant: Vacant, order: OrderRef, qty: u32, place: LevelKey) -> Option<Change> {
        if qty == 0 {
            self.counts.empty_orders += 1;
            return None;
        }
        if self.orders.is_full() {
            self.counts.orders_full += 1;
            return Some(self.lack(place.book));
        }
        let LevelKey { book, side, price } = place;
        let ladder = &mut self.books.get_mut(book.0 as usize)[side as usize];
        let found = self.levels.find(ladder, side, price);
        let Some(idx) = found.or_else(|| self.levels.insert(ladder, side, price, Total::none(book.0))) else {
            self.counts.levels_full += 1;
            return Some(self.lack(book));
        };
        let level = self.levels.get_mut(idx);
        level.qty += u64::from(qty);
        level.orders += 1;
        let is_best = level.is_best();
        self.orders.insert(vacant, Order { reference: order, qty, level: idx });
        Some(Change { book, is_top: is_best })
    }

    /// A book lacks an order from here on, until it is empty: its best price may be another.
    #[cold]
    fn lack(&mut self, book: BookIdx) -> Change {
        self.lacking.insert(book);
        Change { book, is_top: true }
    }

    /// The instrument's book. The locate is a shortcut, used only where the symbol agrees.
    fn book(&mut self, locate: Locate, symbol: Symbol) -> Option<BookIdx> {
        let known = self.by_locate[usize::from(locate.0)];
        if known != NONE && self.symbols.name(BookIdx(known)) == symbol {
            return Some(BookIdx(known));
        }
        let Some(book) = self.symbols.find_or_insert(symbol) else {
            self.counts.books_full += 1;
            return None;
        };
        if locate != Locate::default() {
            self.by_locate[usize::from(locate.0)] = book.0;
            self.locates[book.0 as usize] = locate;
        }
        Some(book)
    }
}

/// The order that an event is about, by which the table is searched first.
#[inline]
fn order_of(event: &Event) -> Option<OrderRef> {
    match event {
        Event::Add(add) => Some(add.order),
        Event::Execute(execute) => Some(execute.order),
        Event::Cancel(cancel) => Some(cancel.order),
        Event::Delete(delete) => Some(delete.order),
        Event::Replace(replace) => Some(replace.old),
        Event::Modify(modify) => Some(modify.order),
        _ => None,
    }
}

/// Where an order rests.
#[derive(Clone, Copy, Debug)]
struct LevelKey {
    book: BookIdx,
    side: Side,
    price: Price,
}

#[cfg(test)]
mod tests;
