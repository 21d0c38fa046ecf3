//! Cboe Multicast PITCH: views of its messages, parse and emit, and the decoder to events.
//!
//! The same event exists in a long, a short and an expanded form; all become the same
//! [`crate::event::Event`].

mod decode;
mod messages;
pub mod servers;

pub use decode::Pitch;
pub use messages::*;
