//! Order states: what the venue's answers make of what was asked, with every race between them.
//!
//! ```text
//!  open, request_cancel, request_replace ──> OrderTable <── apply(key, VenueEvent) ── session
//!                                                │
//!               Outcome: traded, replaced, ended, alarm ──> risk, journal, strategy
//! ```
//!
//! Quantities are intended totals with executions, as OUCH and FIX 38 count: `qty = cum + leaves`
//! while an order lives. An order is found by the venue's id and by each client id of its chain of
//! replaces. Executions count once, by their ids. The table assumes no order dead because an answer
//! is missing: it asks for a status query, and the order stays what it was.
//!
//! All memory is allocated at construction. An ended order stays for late fills and busts until
//! its slot is needed, the longest ended first.

mod doubt;
mod event;
mod executions;
mod id_map;
mod instructions;
mod machine;
mod message;
mod order;
mod restore;
mod table;
mod totals;
mod venue_state;

pub use doubt::Query;
pub use event::{Alarm, Effect, OrderEvent, Outcome, VenueEvent, VenueStatus};
pub(crate) use instructions::Vocabulary;
pub use instructions::{Display, Instructions, OrderField, OrderType, TimeInForce};
pub use message::{StatedTerms, VenueMessage};
pub use order::{End, Order, PendingReplace, State};
pub use table::{OrderCapacity, OrderKey, OrderRules, OrderTable, RequestError};
pub use totals::TradeTotals;

pub use id_map::ExecId;

#[cfg(test)]
mod tests;
