//! Nasdaq TotalView-ITCH 5.0: views of all 23 messages, parse and emit, and the decoder to events.

mod decode;
pub mod glimpse;
mod messages;

pub use decode::Itch50;
pub use messages::*;
