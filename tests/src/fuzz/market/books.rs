//! Books compared with slow and simple models: maps that are searched from end to end. Both get the
//! same events and must agree on every level, at small capacities, so that full tables are tested
//! too.

use std::collections::BTreeMap;

use market::event::{self, Event};
use market::{Books, Capacity, LevelBooks, Locate, OrderBooks, OrderRef, Price, Quotes, Side, Symbol};

use crate::fuzz::Input;

const BOOKS_MAX: usize = 3;
const ORDERS_MAX: usize = 12;
const LEVELS_MAX: usize = 6;

/// Events of small numbers: orders, prices and symbols meet again and again.
pub(in crate::fuzz) fn order_books(data: &[u8]) {
    let mut input = Input::new(data);
    let mut books = CheckedOrders::new();
    while !input.is_empty() {
        books.apply(&order_event(&mut input));
    }
}

/// The same for totals at a price.
pub(in crate::fuzz) fn level_books(data: &[u8]) {
    let mut input = Input::new(data);
    let mut books = CheckedLevels::new();
    while !input.is_empty() {
        let kind = input.u8();
        let side = if kind & 1 == 0 { Side::Buy } else { Side::Sell };
        let (symbol, qty, price) = (symbol(&mut input), input.below(4).into(), price(&mut input));
        let complete = kind & 2 != 0;
        books.apply(&Event::PriceLevel(event::PriceLevel { at_ns: 0, symbol, side, qty, price, complete }));
    }
}

fn symbol(input: &mut Input<'_>) -> Symbol {
    let mut name = [b' '; 8];
    name[0] = b'A' + input.below(BOOKS_MAX as u8 + 1);
    Symbol(name)
}

fn price(input: &mut Input<'_>) -> Price {
    Price(i64::from(input.below(10)) - 1)
}

fn order_event(input: &mut Input<'_>) -> Event {
    let (kind, locate, at_ns) = (input.below(10), Locate(input.below(3).into()), 0);
    let order = OrderRef(u64::from(input.below(16)) << 60);
    let qty = input.below(6).into();
    match kind {
        0..=3 => {
            let side = if input.u8() & 1 == 0 { Side::Buy } else { Side::Sell };
            let (symbol, price) = (symbol(input), price(input));
            Event::Add(event::Add { at_ns, locate, order, side, qty, symbol, price })
        }
        4 => {
            let remaining = (input.u8() & 1 == 0).then(|| input.below(6).into());
            let (printable, price, trade) = (true, None, 0);
            Event::Execute(event::Execute { at_ns, locate, printable, order, qty, remaining, price, trade })
        }
        5 => Event::Cancel(event::Cancel { at_ns, locate, order, qty }),
        6 => Event::Delete(event::Delete { at_ns, locate, order }),
        7 => {
            let new = OrderRef(u64::from(input.below(16)) << 60);
            Event::Replace(event::Replace { at_ns, locate, old: order, new, qty, price: price(input) })
        }
        8 => Event::Modify(event::Modify { at_ns, order, qty, price: price(input) }),
        _ if input.u8() < 8 => Event::Clear(event::Clear { at_ns }),
        _ => Event::Directory(event::Directory { at_ns, locate, symbol: symbol(input), round_lot: 100 }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Resting {
    symbol: Symbol,
    side: Side,
    price: Price,
    qty: u32,
}

/// Order books and their model.
pub(in crate::fuzz) struct CheckedOrders {
    books: OrderBooks,
    symbols: Vec<Symbol>,
    orders: BTreeMap<OrderRef, Resting>,
}

impl CheckedOrders {
    pub(in crate::fuzz) fn new() -> Self {
        let capacity = Capacity { books: BOOKS_MAX, orders: ORDERS_MAX, levels: LEVELS_MAX };
        Self { books: OrderBooks::new(capacity), symbols: Vec::new(), orders: BTreeMap::new() }
    }

    pub(in crate::fuzz) fn apply(&mut self, event: &Event) {
        let tops_before = self.tops();
        let change = self.books.apply(event);
        self.apply_to_model(event);
        self.compare();
        let tops = self.tops();
        for (idx, (before, after)) in tops_before.iter().zip(&tops).enumerate() {
            let told = change.is_some_and(|change| change.is_top && change.book.0 as usize == idx);
            let cleared = matches!(event, Event::Clear(_));
            assert!(before == after || told || cleared, "book {idx} has another top and nobody was told: {event:?}");
        }
    }

    fn tops(&self) -> Vec<market::TopOfBook> {
        let find = |symbol| self.books.find(symbol).expect("the book is there");
        self.symbols.iter().map(|&symbol| self.books.top(find(symbol))).collect()
    }

    fn apply_to_model(&mut self, event: &Event) {
        match *event {
            Event::Add(add) => self.add(add),
            Event::Directory(event::Directory { symbol, .. }) => {
                self.knows(symbol);
            }
            Event::Execute(event::Execute { order, remaining: Some(remaining), .. }) => {
                if let Some(&Resting { qty, .. }) = self.orders.get(&order)
                    && remaining <= qty
                {
                    self.shrink(order, qty - remaining);
                }
            }
            Event::Execute(event::Execute { order, qty, .. }) | Event::Cancel(event::Cancel { order, qty, .. }) => {
                self.shrink(order, qty);
            }
            Event::Delete(event::Delete { order, .. }) => {
                self.orders.remove(&order);
            }
            Event::Replace(event::Replace { old, new, qty, price, .. }) => {
                if let Some(gone) = self.orders.remove(&old)
                    && !self.orders.contains_key(&new)
                {
                    self.rest(new, Resting { qty, price, ..gone });
                }
            }
            Event::Modify(event::Modify { order, qty, price, .. }) => {
                if let Some(gone) = self.orders.remove(&order) {
                    self.rest(order, Resting { qty, price, ..gone });
                }
            }
            Event::Clear(_) => self.orders.clear(),
            _ => {}
        }
    }

    fn add(&mut self, event::Add { symbol, order, side, price, qty, .. }: event::Add) {
        if self.knows(symbol) && !self.orders.contains_key(&order) {
            self.rest(order, Resting { symbol, side, price, qty });
        }
    }

    /// Whether the instrument has a book, now or already.
    fn knows(&mut self, symbol: Symbol) -> bool {
        let known = self.symbols.contains(&symbol);
        if !known && self.symbols.len() < BOOKS_MAX {
            self.symbols.push(symbol);
            return true;
        }
        known
    }

    fn shrink(&mut self, order: OrderRef, by: u32) {
        let Some(resting) = self.orders.get_mut(&order) else { return };
        if by < resting.qty {
            resting.qty -= by;
        } else {
            self.orders.remove(&order);
        }
    }

    fn rest(&mut self, order: OrderRef, resting: Resting) {
        let Resting { symbol, side, price, qty } = resting;
        let has_level = self.orders.values().any(|o| (o.symbol, o.side, o.price) == (symbol, side, price));
        let is_full = self.orders.len() == ORDERS_MAX || (!has_level && self.levels() == LEVELS_MAX);
        if qty > 0 && !is_full {
            self.orders.insert(order, resting);
        }
    }

    fn levels(&self) -> usize {
        let sides = self.symbols.iter().flat_map(|&symbol| [(symbol, Side::Buy), (symbol, Side::Sell)]);
        sides.map(|(symbol, side)| self.depth(symbol, side).len()).sum()
    }

    /// Price, shares and orders of the levels, the best first.
    fn depth(&self, symbol: Symbol, side: Side) -> Vec<(Price, u64, u32)> {
        let mut levels = BTreeMap::new();
        for order in self.orders.values().filter(|order| (order.symbol, order.side) == (symbol, side)) {
            let (qty, orders) = levels.entry(order.price).or_insert((0, 0));
            *qty += u64::from(order.qty);
            *orders += 1;
        }
        best_first(side, levels.into_iter().map(|(price, (qty, orders))| (price, qty, orders)).collect())
    }

    fn compare(&self) {
        assert_eq!(self.books.len(), self.symbols.len());
        assert_eq!(self.books.orders_count(), self.orders.len());
        assert_eq!(self.books.levels_count(), self.levels());
        for &symbol in &self.symbols {
            let book = self.books.find(symbol).expect("the book is there");
            assert_eq!(self.books.symbol(book), symbol);
            let sides = [Side::Buy, Side::Sell].map(|side| self.depth(symbol, side));
            assert_eq!(self.books.depth(book, Side::Buy).collect::<Vec<_>>(), sides[0]);
            assert_eq!(self.books.depth(book, Side::Sell).collect::<Vec<_>>(), sides[1]);
            let top = self.books.top(book);
            let [bid, ask] = sides.map(|levels| levels.first().map_or((Price(0), 0), |&(price, qty, _)| (price, qty)));
            assert_eq!([(top.bid_px, top.bid_qty), (top.ask_px, top.ask_qty)], [bid, ask]);
        }
    }
}

fn best_first<T>(side: Side, mut levels: Vec<T>) -> Vec<T> {
    if side == Side::Buy {
        levels.reverse();
    }
    levels
}

/// Books of levels and their model.
pub(in crate::fuzz) struct CheckedLevels {
    books: LevelBooks,
    symbols: Vec<Symbol>,
    levels: BTreeMap<(Symbol, bool, Price), u64>,
}

impl CheckedLevels {
    pub(in crate::fuzz) fn new() -> Self {
        Self { books: LevelBooks::new(BOOKS_MAX, LEVELS_MAX), symbols: Vec::new(), levels: BTreeMap::new() }
    }

    pub(in crate::fuzz) fn apply(&mut self, event: &Event) {
        self.books.apply(event);
        let symbol = match *event {
            Event::PriceLevel(event::PriceLevel { symbol, .. }) | Event::Directory(event::Directory { symbol, .. }) => {
                symbol
            }
            _ => return,
        };
        if !self.symbols.contains(&symbol) && self.symbols.len() < BOOKS_MAX {
            self.symbols.push(symbol);
        }
        if let Event::PriceLevel(level) = event
            && self.symbols.contains(&symbol)
        {
            self.set((symbol, level.side == Side::Sell, level.price), level.qty.into());
            self.compare(symbol, level.complete);
        }
        assert_eq!(self.books.len(), self.symbols.len());
        assert_eq!(self.books.levels_count(), self.levels.len());
    }

    fn set(&mut self, level: (Symbol, bool, Price), qty: u64) {
        if qty == 0 {
            self.levels.remove(&level);
        } else if self.levels.contains_key(&level) || self.levels.len() < LEVELS_MAX {
            self.levels.insert(level, qty);
        }
    }

    fn compare(&self, symbol: Symbol, complete: bool) {
        let book = self.books.find(symbol).expect("the book is there");
        let sides = [Side::Buy, Side::Sell].map(|side| {
            let own = self.levels.iter().filter(|((name, sell, _), _)| (*name, *sell) == (symbol, side == Side::Sell));
            best_first(side, own.map(|(&(_, _, price), &qty)| (price, qty)).collect::<Vec<_>>())
        });
        assert_eq!(self.books.depth(book, Side::Buy).collect::<Vec<_>>(), sides[0]);
        assert_eq!(self.books.depth(book, Side::Sell).collect::<Vec<_>>(), sides[1]);
        if complete {
            let top = self.books.top(book);
            let [bid, ask] = sides.map(|levels| levels.first().copied().unwrap_or((Price(0), 0)));
            assert_eq!([(top.bid_px, top.bid_qty), (top.ask_px, top.ask_qty)], [bid, ask]);
        }
    }
}

/// Quotes and their model.
pub(in crate::fuzz) struct CheckedQuotes {
    quotes: Quotes,
    model: Vec<(Symbol, Option<event::Quote>)>,
}

impl CheckedQuotes {
    pub(in crate::fuzz) fn new() -> Self {
        Self { quotes: Quotes::new(BOOKS_MAX), model: Vec::new() }
    }

    pub(in crate::fuzz) fn apply(&mut self, event: &Event) {
        self.quotes.apply(event);
        let (symbol, quote) = match *event {
            Event::Quote(quote) => (quote.symbol, Some(quote)),
            Event::Directory(event::Directory { symbol, .. }) => (symbol, None),
            _ => return,
        };
        if !self.model.iter().any(|(name, _)| *name == symbol) && self.model.len() < BOOKS_MAX {
            self.model.push((symbol, None));
        }
        let Some((_, known)) = self.model.iter_mut().find(|(name, _)| *name == symbol) else { return };
        *known = quote.or(*known);
        let book = self.quotes.find(symbol).expect("the book is there");
        if let Some(quote) = known {
            let top = self.quotes.top(book);
            assert_eq!((top.bid_px, top.ask_px), (quote.bid_px, quote.ask_px));
            assert_eq!((top.bid_qty, top.ask_qty), (quote.bid_qty.into(), quote.ask_qty.into()));
            assert_eq!(self.quotes.is_available(book), quote.available);
        }
        assert_eq!(self.quotes.len(), self.model.len());
    }
}
