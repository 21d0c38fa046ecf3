//! Messages of version 2 (US equities, revision 2.4): fixed fields, then optional ones that
//! bitfields announce.
//!
//! ```text
//!   fixed fields, little endian
//!   1 byte   number of bitfields
//!   n bytes  bitfields: bit b of bitfield i stands for a field of the message's table
//!   values   of the fields whose bits are set, in the order of the bits
//! ```
//!
//! A client chooses at login which fields the venue's messages return ([`ReturnFields`]).
//!
//! ```
//! use order_entry::Text;
//! use order_entry::boe::{Capacity, Side};
//! use order_entry::boe::v2::{Field, Inbound, NewOrder};
//!
//! let order = NewOrder {
//!     cl_ord_id: Text::zero_padded("ABC123").unwrap(),
//!     side: Side::BUY,
//!     quantity: 100.into(),
//! };
//! let fields = [
//!     Field::Symbol(Text::zero_padded("MSFT").unwrap()),
//!     Field::Price(1_234_500.into()),
//!     Field::Capacity(Capacity::PRINCIPAL),
//! ];
//! let mut body = [0; 64];
//! let len = order.emit(&fields, &mut body).unwrap();
//! let (message, optional) = Inbound::parse(NewOrder::KIND, &body[..len]).unwrap();
//! assert_eq!(message, Inbound::NewOrder(&order));
//! // In the order of the bits.
//! assert_eq!(optional.fields().next(), Some(Field::Price(1_234_500.into())));
//! ```

mod fields;
mod messages;
mod returns;
mod tables;
#[cfg(test)]
mod tests;

pub use fields::{Field, FieldId, Fields, Optional};
pub use messages::{
    CancelOrder, CancelRejected, Inbound, MassCancelAcknowledgment, ModifyOrder, NewOrder, OrderAcknowledgment,
    OrderCancelled, OrderExecution, OrderModified, OrderRejected, OrderRestated, Outbound, PurgeOrders, PurgeRejected,
    TradeCancelOrCorrect, UserModifyRejected,
};
pub use returns::ReturnFields;
pub use tables::Table;
