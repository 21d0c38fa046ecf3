//! CME's iLink 3: FIXP sessions with messages in SBE (schema 8, version 9), both ends as machines.
//!
//! ```text
//!   2 bytes  length of the message, these included    ┐ open framing header,
//!   2 bytes  0xCAFE                                   ┘ little endian as all else
//!   2 bytes  length of the block ┐
//!   2 bytes  template            │ SBE header
//!   2 bytes  schema, 8           │
//!   2 bytes  version, 9          ┘
//!   block    fixed fields
//!   groups and data
//! ```
//!
//! A session is negotiated (template 500) once a week with an identifier that rises, and each
//! connection of it established (503); both are signed by HMAC-SHA256. Each end numbers its
//! messages. What is missing of the venue's is asked for again (508), at most 2,500 messages at a
//! time, one request after the other; what the venue misses of ours it tells (513), and we send it
//! again or skip it by a Sequence (506). After a break the acknowledgment (504) tells the venue's
//! last number: where it is above ours, fills were missed.
//!
//! An end that has sent nothing for a keep-alive interval sends a Sequence. One that hears nothing
//! for an interval sends a Sequence with the lapsed flag, after two it terminates with code 20.
//!
//! Prices are numbers with nine decimals; [`NO_PRICE`] is none. A block that is longer than a
//! structure here is of a later version of the schema, and its further fields are passed over; a
//! shorter one is refused, so that versions before 9 are not in.
//!
//! Not in: quotes, crosses, spreads and their legs, party details; their templates are passed on by
//! number as [`Frame`]s. Queuing live messages behind a hole is the caller's, who is told of the
//! hole with the message behind it. [`Ilink3Client`] is such a caller: a client's session of orders
//! behind the interface of all protocols.

mod auth;
mod client;
mod client_event;
mod client_messages;
mod client_state;
mod error;
mod frame;
mod orders;
mod ranges;
mod rare_reports;
mod reject;
mod reports;
mod server;
mod server_event;
mod server_state;
mod session_messages;
#[cfg(test)]
mod tests;
mod venue_messages;

pub use auth::{Key, establish_signature, negotiate_signature};
pub use client::Client;
pub use client_event::{ClientConfig, ClientEvent, Identity, Missing};
pub use client_messages::{CancelOrder, MassAction, NewOrder, ReplaceOrder, StatusRequest};
pub use error::IlinkError;
pub use frame::{Frame, emit};
pub use orders::{Ilink3Client, IlinkClientError, IlinkFirm};
pub use rare_reports::{MassActionReport, OrderStatus, TradeAddendum};
pub(crate) use reject::reason_name;
pub use reject::{BusinessRejectReason, LoginRejectReason, MassActionRejectReason, RejectReason};
pub use reject::{RestatementReason, TerminateReason};
pub use reports::{OrderAccepted, OrderCancelled, OrderEliminated, OrderReplaced};
pub use server::Server;
pub use server_event::{ServerConfig, ServerEvent};
pub use session_messages::{
    Establish, EstablishmentAck, EstablishmentReject, Negotiate, NegotiationReject, NegotiationResponse, NotApplied,
    Retransmission, RetransmitReject, RetransmitRequest, Sequence, Terminate,
};
pub use venue_messages::{BusinessReject, CancelRejected, OrderFilled, OrderRejected, ReplaceRejected};

/// No price, of a field that may have none.
pub const NO_PRICE: i64 = i64::MAX;

/// No earlier session, of a request for messages again.
pub const NO_UUID: u64 = u64::MAX;

/// The most messages of one request for messages again.
pub const RETRANSMIT_MAX: u16 = 2_500;

/// Code of a termination after two keep-alive intervals of silence.
pub const KEEP_ALIVE_LAPSED: u16 = 20;

/// Bytes of the headers in front of a block.
pub const HEADER_LEN: usize = 12;

/// Bytes of the largest message that the length field allows.
pub const MESSAGE_LEN_MAX: usize = u16::MAX as usize;
