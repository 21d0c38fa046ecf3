//! The common part of all sessions: the caller's output buffer, frames out of a stream of bytes,
//! heartbeats and silence, the question which messages were processed before the line broke, and
//! one interface over the sessions of all venues.
//!
//! ```text
//!  bytes of TCP ─ Reassembly ─ frame ─ session machine ─ event
//!  bytes of TCP ◀─ Output ◀─ session machine ◀─ call of the application, tick
//! ```
//!
//! A session is a machine without I/O and clock. Its caller offers received bytes and takes one
//! event a call until there is none, calls `tick` at the session's deadline, and sends what was
//! written into an [`Output`]. After an error the session is over, and the caller closes the
//! connection.

mod escaped;
mod keep_alive;
mod outbox;
mod output;
mod reassembly;
mod recovery;
mod unread;
mod venue;

pub use escaped::Escaped;
pub use keep_alive::KeepAlive;
pub(crate) use outbox::Outbox;
pub use output::{Output, OutputFull};
pub use reassembly::Reassembly;
pub use recovery::{Fate, Recovery, Resend};
pub use unread::READ_ATTEMPTS;
pub(crate) use unread::Unread;
pub use venue::{OrderTerms, SendError, SessionError, SessionEvent, VenueSession, WireOrder, WireTarget};

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;
