//! A FIX session as a machine without I/O and clock, on either side.
//!
//! ```text
//!   bytes received ─ receive ─> Session ─ poll ─> events: messages in order, logons, ends
//!   bytes to write <─ output ──┘   ^ └ store: numbers and sent messages
//!                                  └ send, send_made, logout, reject
//! ```
//!
//! A turn of the caller's loop: [`Session::receive`] what came, [`Session::poll`] until nothing
//! happens, write [`Session::output`], [`Session::consume`] what was written. The caller waits no
//! longer than until [`Session::deadline_ns`].
//!
//! What the peer has not received it asks for, and gets again from the store; orders among it are
//! filled as a gap instead (see [`SessionConfig::stale_types`]), and the caller is told which.

mod config;
mod event;
mod inbound;
mod logon;
mod machine;
mod receiver;
mod recovery;
mod resend;
mod rules;
mod schedule;
mod sender;
mod store;
mod timers;

pub use config::{Role, SessionConfig, Version};
pub use event::{End, Event, Now, SendError, SessionCounts};
pub use machine::Session;
pub use schedule::Schedule;
pub use store::{MemoryStore, MessageStore, StoreFull};
