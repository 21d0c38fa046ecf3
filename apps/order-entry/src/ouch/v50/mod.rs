//! OUCH 5.0 (revision 1.05): messages with a fixed part and an appendage of options.
//!
//! ```text
//!   1 byte   type
//!   n bytes  the message's own fields, big endian
//!   2 bytes  length of the appendage   ┐ must be there on some messages,
//!   elements: 1 byte length of tag and value, 1 byte tag, value ┘ may be there on all
//! ```
//!
//! [`Inbound`] are the messages to the venue, [`Outbound`] those of the venue: the same type byte
//! means another message in the other direction. Each is a structure over its bytes:
//!
//! ```
//! use order_entry::Text;
//! use order_entry::ouch::v50::{EnterOrder, Field, Inbound};
//! use order_entry::ouch::{Capacity, CrossType, Display, Side, TimeInForce, YesNo};
//!
//! let order = EnterOrder {
//!     user_ref: 1.into(),
//!     side: Side::BUY,
//!     quantity: 100.into(),
//!     symbol: market::Symbol::new("AAPL").unwrap(),
//!     price: 1_503_400.into(),
//!     time_in_force: TimeInForce::DAY,
//!     display: Display::VISIBLE,
//!     capacity: Capacity::AGENCY,
//!     intermarket_sweep: YesNo::NO,
//!     cross_type: CrossType::CONTINUOUS,
//!     cl_ord_id: Text::new("CLORD1").unwrap(),
//! };
//! let mut buffer = [0; 64];
//! let len = order.emit(&[Field::MinQuantity(50.into())], &mut buffer).unwrap();
//! assert_eq!(len, 47 + 6);
//!
//! let (message, appendage) = Inbound::parse(&buffer[..len]).unwrap();
//! assert_eq!(message, Inbound::EnterOrder(&order));
//! assert_eq!(appendage.fields().next(), Some(Field::MinQuantity(50.into())));
//! ```
//!
//! Lengths in the specification are floors: on each message a well-formed appendage is accepted,
//! and tags that a later revision adds are passed on by number.
//!
//! The key of an order is its UserRefNum, with option UserRefIdx that index and the number.
//!
//! Not in: trade correction (`F`) and tags 19 and 20, which the venue no longer has since May 2023.

mod appendage;
mod inbound;
mod outbound;
mod set;
#[cfg(test)]
mod tests;

pub use appendage::{Appendage, Field, Fields};
pub use inbound::{
    AccountQuery, CancelOrder, DisableOrderEntry, EnableOrderEntry, EnterOrder, Inbound, MassCancel, ModifyOrder,
    ReplaceOrder,
};
pub use outbound::{
    AccountQueryResponse, AiqCanceled, BrokenTrade, CancelPending, CancelReject, DisableOrderEntryResponse,
    EnableOrderEntryResponse, MassCancelResponse, OrderAccepted, OrderCanceled, OrderExecuted, OrderModified,
    OrderPriorityUpdate, OrderRejected, OrderReplaced, OrderRestated, Outbound, SystemEvent,
};
