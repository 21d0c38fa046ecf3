//! The engine: its memory, its verbs in files of their own, and what all of them share.

mod admit;
mod arrive;
mod auction;
mod breaking;
mod change;
mod cross;
mod dry_run;
mod pegs;
mod queues;
mod states;
mod stops;
mod take;
mod view;

pub use auction::CrossTerms;
pub use breaking::BreakError;
pub use change::ReplaceError;
pub use states::NoSymbol;
pub use view::OrderView;

use market::levels::Levels;
use market::{Locate, OrderRef};

use crate::arena::{Arena, Slot};
use crate::book::Book;
use crate::event::{Body, Event, OrderState, Sink};
use crate::expiries::Expiries;
use crate::links::Links;
use crate::order::OrderId;
use crate::queue::Queue;
use crate::trades::Trades;

/// How much an engine has room for. All of its memory is taken when it is constructed; pages that
/// no order ever reached stay untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Instruments, 3 KB each: their locates are 1 to this. By default 16.
    pub symbols: u16,
    /// Live orders, over all instruments: some 250 bytes each. By default 65,536.
    pub orders: usize,
    /// Owners. By default 256.
    pub owners: usize,
    /// Trades that can still be broken: 72 bytes each. By default 65,536.
    pub trades: usize,
    /// Most shares of an order. By default 999,999, as in OUCH.
    pub qty_max: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { symbols: 16, orders: 1 << 16, owners: 256, trades: 1 << 16, qty_max: 999_999 }
    }
}

/// A matching engine for some instruments. See the [library](crate) for its rules.
#[derive(Debug)]
pub struct Engine {
    books: Vec<Book>,
    orders: Arena,
    levels: Levels<Queue>,
    owners: usize,
    peg_links: Links,
    expiries: Expiries,
    trades: Trades,
    references: u64,
    match_numbers: u64,
    qty_max: u32,
    auction: auction::Scratch,
}

/// The order is not live: it ended, or never existed. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLive;

/// The time of a call and where its events go.
struct Cx<'a, S> {
    now_ns: u64,
    sink: &'a mut S,
}

impl<S: Sink> Cx<'_, S> {
    #[inline]
    fn emit(&mut self, symbol: u16, body: Body) {
        self.sink.take(&Event { at_ns: self.now_ns, symbol: locate(symbol), body });
    }
}

/// Locates begin at 1, because 0 means "no particular stock".
const fn locate(symbol: u16) -> Locate {
    Locate(symbol + 1)
}

impl Engine {
    /// An engine whose instruments are all closed: [`Engine::quote`] opens them for orders.
    pub fn new(capacity: Capacity) -> Self {
        let Capacity { symbols, orders, owners, trades, qty_max } = capacity;
        Self {
            books: vec![Book::EMPTY; symbols.into()],
            orders: Arena::new(orders),
            // Each order needs one level at most, so this pool is never the one that is empty.
            levels: Levels::new(orders),
            owners,
            peg_links: Links::new(orders),
            expiries: Expiries::new(orders),
            trades: Trades::new(trades),
            references: 0,
            match_numbers: 0,
            qty_max,
            auction: auction::Scratch::default(),
        }
    }

    /// The index of an instrument's book.
    fn symbol(&self, locate: Locate) -> Option<u16> {
        let symbol = locate.0.checked_sub(1)?;
        (usize::from(symbol) < self.books.len()).then_some(symbol)
    }

    #[inline]
    fn book(&self, symbol: u16) -> &Book {
        &self.books[usize::from(symbol)]
    }

    #[inline]
    fn book_mut(&mut self, symbol: u16) -> &mut Book {
        &mut self.books[usize::from(symbol)]
    }

    fn new_reference(&mut self) -> u64 {
        self.references += 1;
        self.references
    }

    fn new_match_number(&mut self) -> u64 {
        self.match_numbers += 1;
        self.match_numbers
    }

    /// The order as an event shows it.
    #[inline]
    fn state(&self, slot: Slot) -> OrderState {
        let order = self.orders.get(slot);
        OrderState {
            id: self.orders.id(slot),
            owner: crate::order::Owner(order.owner),
            token: order.token,
            reference: OrderRef(order.reference),
            side: order.side,
            leaves: order.leaves,
            executed: order.executed,
        }
    }

    /// The place of a live order. What its removal changes is fetched into the cache all at once,
    /// because each alone would be waited for.
    #[inline]
    fn find(&self, id: OrderId) -> Result<Slot, NotLive> {
        let slot = self.orders.find(id).ok_or(NotLive)?;
        let order = self.orders.get(slot);
        self.levels.prefetch(order.level);
        self.orders.prefetch(order.prev);
        self.orders.prefetch(order.next);
        Ok(slot)
    }
}
