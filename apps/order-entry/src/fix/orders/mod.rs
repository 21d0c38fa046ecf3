//! The messages of orders, with their fields by name: what a trader sends as templates, and each
//! message as a view that either side reads or writes.

mod defect;
mod enums;
mod messages;
mod reject;
mod templates;
mod value;

pub use defect::{BusinessReason, Defect, Reason};
pub use enums::{CxlRejResponseTo, ExecTransType, ExecType, HandlInst, OrdStatus, OrdType, OrderCapacity};
pub use enums::{Side, TimeInForce};
pub use messages::{CancelReject, CancelRequest, ExecutionReport, MassCancel, MassCancelReport, NewOrderSingle};
pub use messages::{OrderOutcome, ReplaceRequest, StatusRequest};
pub(crate) use reject::reason_name;
pub use reject::{CxlRejReason, ExecRestatementReason, MassCancelRejectReason, OrdRejReason};
pub(in crate::fix) use reject::{RefusedBy, stated};
pub use templates::{CancelOrder, NewOrder, OrderSpec, OrderTemplates, ReplaceOrder};
pub use value::Utc;
