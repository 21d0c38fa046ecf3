//! NYSE Pillar's Integrated Feed: its messages as structures over their bytes, and the decoder to
//! events.
//!
//! NYSE, NYSE American, NYSE Arca, NYSE National and NYSE Chicago send the same messages. An order
//! names its instrument by an index, whose definition (symbol, decimals of its prices, matching
//! engine) is a message of its own that each channel sends before the market opens.

mod decode;
mod messages;

pub use decode::Pillar;
pub use messages::*;
