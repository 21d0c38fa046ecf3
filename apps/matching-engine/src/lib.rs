//! A matching engine as a pure machine: orders in, events out, the same events for the same inputs.
//!
//! ```text
//!   submit cancel reduce replace ─┐                          ┌─ itch: the public feed, displayed shares alone
//!   quote halt cross close        ├─> Engine ─ Event ─> Sink ┤
//!   break_trade expire            ┘                          └─ report: what each owner learns
//! ```
//!
//! Nothing here reads a clock, opens a file or knows the framework: time is an argument in
//! nanoseconds. All memory is taken at construction, and no order makes the engine allocate (an
//! auction may). No input causes a panic: what makes no sense is refused, with a reason.
//!
//! # The rules
//!
//! - *Priority* is price, then displayed before hidden, then time. A reduced order keeps its time,
//!   a replaced one begins anew.
//! - *Reserve*: when the displayed part has traded, the next part is displayed under a new
//!   reference, last at its price. It comes before hidden orders.
//! - *Minimum quantity* is met in sum when the order arrives, else it rests without trading; while
//!   it rests, each contra order must have so many shares. Such an order is passed over by smaller
//!   ones, even at a worse price. It takes no part in a cross, and arrives anew behind it.
//! - *Pegged* orders are hidden and are priced anew, with a new time, after each call that changed
//!   the displayed best prices. Without such a price they wait outside of the book.
//! - *Stops* wake after the call whose trades reached their trigger, one at a time, the nearest
//!   trigger first.
//! - *Crosses*: see [`Engine::cross`] for who takes part and [`CrossTerms`] for the price.
//! - *Self-trade prevention* follows the arriving order's rule. It does not count in a cross.
//!
//! # Cost
//!
//! An order that trades, ends or shrinks touches its own cache line, those of its neighbors in the
//! queue, and its level's. A new price near the best one changes an array; one far from it costs a
//! search in a balanced tree. Whatever walks over more
//! (a fill-or-kill order that counts first, a cancel of all orders, an auction, pegged orders that
//! move) says so.
//!
//! ```
//! use market::{Locate, Price, Side};
//! use matching_engine::{Body, Capacity, CrossKind, CrossTerms, Engine, NewOrder, Owner};
//!
//! let mut engine = Engine::new(Capacity::default()); let (stock, ten) = (Locate(1),
//! Price::from_cents(10_00)); let mut events = Vec::new(); engine.quote(stock, 0, &mut
//! events).unwrap(); engine.cross(stock, CrossKind::Opening, &CrossTerms { reference: ten, collar:
//! None }, 1, &mut events).unwrap();
//!
//! let sell = NewOrder::limit(Owner(1), 77, stock, Side::Sell, 100, ten);
//! let buy = NewOrder::limit(Owner(2), 88, stock, Side::Buy, 60, ten);
//! let rests = engine.submit(&sell, 2, &mut events).unwrap();
//! engine.submit(&buy, 3, &mut events).unwrap();
//!
//! let Body::Executed(trade) = events.last().unwrap().body else { panic!() };
//! assert_eq!((trade.qty, trade.maker.order.token, trade.taker.order.token), (60, 77, 88));
//! assert_eq!(engine.order(rests).unwrap().state.leaves, 40);
//! ```
#![forbid(unsafe_code)]

mod event;
mod order;
mod reason;
mod ticks;

mod arena;
mod book;
mod expiries;
mod links;
mod queue;
mod trades;

mod engine;

mod itch;
mod report;

pub use engine::{BreakError, Capacity, CrossTerms, Engine, NoSymbol, NotLive, OrderView, ReplaceError};
pub use event::{
    Accepted, Body, Broken, Canceled, Crossed, Displayed, Event, Executed, Imbalance, OrderState, Party, Rejected,
    Removed, Replaced, Sink, TradingState,
};
pub use itch::ItchView;
pub use order::{
    CrossKind, Display, Life, NewOrder, OnHalt, OrderId, Owner, Peg, PegTo, PostOnly, Pricing, SelfTrade,
    SelfTradeRule, Terms,
};
pub use reason::{CancelReason, RejectReason};
pub use report::{Liquidity, Report, reports};
pub use ticks::PRICE_MAX;
