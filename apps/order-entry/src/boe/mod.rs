//! Cboe's Binary Order Entry, versions [2](v2) and [3](v3): both ends of the session as machines,
//! and the messages.
//!
//! ```text
//!              version 2                     version 3, little endian
//!   start      BA BA                         B0 E3
//!   length     2 bytes, itself included      2 bytes, itself included
//!   type       1 byte                        2 bytes
//!   unit       1 byte, matching unit         1 byte, and 1 reserved
//!   sequence   4 bytes                       4 bytes
//! ```
//!
//! The venue numbers its application messages for each matching unit, but not its rejects. A client
//! logs in with the last number that it received from each unit; the venue replays what is newer,
//! and ends that with Replay Complete. Until then orders are refused (reason `y`), so that
//! [`Client`] does not send any.
//!
//! The client numbers its messages too: the numbers may jump, but never repeat or fall. At login
//! the venue tells the last one that it read. What has no answer after Replay Complete **never
//! existed**, because rejects are not replayed and all else is: [`Client`] says so as
//! [`Recovery`](crate::session::Recovery).
//!
//! Limits of the venue that are not in the session, because they are the gateway's: it stops
//! reading at 1,024 unacknowledged messages a port, takes 32 in flight for a unit, and 5,000 a
//! second a port; beyond, new orders are rejected, modifies become cancels, and cancels pass.
//!
//! Not in: quotes, options on futures and complex instruments of version 3, whose messages are
//! passed on by type; the parameters of version 2 for options and other markets than US equities.

mod client;
mod client_event;
mod codes;
mod error;
mod login;
mod orders;
mod server;
pub mod v2;
pub mod v3;
mod version;

pub use client::Client;
pub use client_event::{ClientConfig, ClientEvent};
pub use codes::{
    Capacity, LoginStatus, LogoutReason, OrderType, ReasonCode, RestatementReason, RiskResetResult, Side, TimeInForce,
};
pub use error::BoeError;
pub use login::{Credentials, LoginAnswer, LoginRequest, UnitSequence, UnitSequences, UnspecifiedUnits};
pub use orders::{Boe2Client, Boe3Client, BoeClientError, BoeFirm, BoeOrderClient, OrderWords, SelfMatchRule};
pub use server::{Server, ServerConfig, ServerEvent};
pub use version::{Message, SessionKinds, V2, V3, Version};

/// Bytes of the largest message that the length field allows, with the start in front of it.
pub const MESSAGE_LEN_MAX: usize = 2 + u16::MAX as usize;
