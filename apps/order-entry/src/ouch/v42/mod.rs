//! OUCH 4.2: messages of fixed length, big endian, keyed by a token of 14 letters and digits.
//!
//! A token that was used today is ignored in silence, so that each message may be sent again after
//! a break; there is no query for the last one. What was answered is known from the numbered
//! messages of the session, and the rest is sent again under its old token.
//!
//! The quantity of [`CancelOrder`] and [`ModifyOrder`] is the new intended total of the order, with
//! the shares executed before. Times are nanoseconds since midnight New York, prices have four
//! decimals.

mod inbound;
mod outbound;
mod set;
#[cfg(test)]
mod tests;

pub use inbound::{CancelOrder, EnterOrder, Inbound, ModifyOrder, ReplaceOrder, TradeNow};
pub use outbound::{
    AiqCanceled, BrokenTrade, CancelPending, CancelReject, Executed, ExecutedWithReferencePrice, OrderAccepted,
    OrderCanceled, OrderModified, OrderRejected, OrderReplaced, Outbound, PriorityUpdate, SystemEvent, TradeCorrection,
};

/// Time in force: immediate or cancel.
pub const IMMEDIATE_OR_CANCEL: u32 = 0;

/// Time in force: market hours.
pub const MARKET_HOURS: u32 = 99_998;

/// Time in force: system hours.
pub const SYSTEM_HOURS: u32 = 99_999;
