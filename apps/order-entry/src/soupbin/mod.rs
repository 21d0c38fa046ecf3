//! SoupBinTCP 3.00, Nasdaq's session under OUCH, and under GLIMPSE: both ends as machines.
//!
//! ```text
//!   2 bytes  length of type and payload, big endian
//!   1 byte   type
//!   n bytes  payload
//! ```
//!
//! The server's messages (`S`) are numbered, but the number is not on the wire: both ends count
//! from the number in the server's answer to the login. Who lost the connection logs in again and
//! asks for the next number. The client's messages (`U`) have no number and may be lost; OUCH is
//! made so that they may be sent again.
//!
//! [`Client`] and [`Server`] are used alike: received bytes go to `receive` until there is no
//! event, `tick` is called at `deadline_ns`, and what they write into an
//! [`Output`](crate::session::Output) is sent. A packet that breaks a rule of the protocol ends the
//! session with a [`SoupError`].
//!
//! Not in: SoupBinTCP 4, whose login has a heartbeat interval; the older SoupTCP of text lines.

mod client;
mod client_event;
mod error;
mod login;
mod packet;
mod server;

pub use client::Client;
pub use client_event::{ClientConfig, ClientEvent, StartNumber};
pub use error::SoupError;
pub use login::{Credentials, LoginAccepted, LoginRejectReason, LoginRequest, NumberField, SessionId};
pub use packet::{Packet, PacketType, emit};
pub use server::{Server, ServerConfig, ServerEvent, judge_login};

/// Bytes of length and type.
pub const HEADER_LEN: usize = 3;

/// Bytes of the largest packet that the length field allows, its two bytes included.
pub const PACKET_LEN_MAX: usize = 2 + u16::MAX as usize;
