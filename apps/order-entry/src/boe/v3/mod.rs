//! Messages of version 3 (the futures exchange, revision 1.1.31): all fields fixed, little endian.
//!
//! Types are those of that revision: a message whose layout changes gets another type. The venue's
//! messages may be longer than here, because later revisions append fields.
//!
//! Not in, and passed on by type as [`BoeError::Unknown`](super::BoeError::Unknown): options on
//! futures (1009, 1010, 1011, 1523 to 1527), quotes (1006, 1515 to 1520).

mod inbound;
mod outbound;
mod set;
#[cfg(test)]
mod tests;

pub use inbound::{
    CancelOrder, Inbound, MassCancelInst, MassCancelOrder, ModifyOrder, NewOrder, PreventMatch, PurgeOrders, ResetRisk,
};
pub use outbound::{
    CancelRejected, MassCancelAcknowledgment, MassCancelRejected, ModifyRejected, OrderAcknowledgment, OrderCancelled,
    OrderExecution, OrderModified, OrderRejected, Outbound, PurgeAcknowledgment, PurgeRejected,
    ResetRiskAcknowledgment, TasRestatement, TradeCancelOrCorrect,
};
