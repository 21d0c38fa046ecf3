//! Market data as pure functions and machines: bytes in, normalised events and books out.
//!
//! ```text
//!  datagram ─ framing ─ arbitration / sequence ─ codec (itch50 tops16 deep10 pitch) ─ event ─ book
//! ```
//!
//! Nothing here reads a clock, opens a file or knows the framework: time is an argument in nanoseconds, memory is
//! taken when a machine is constructed, and whatever arrives from the network is counted, never a panic.
#![forbid(unsafe_code)]

pub mod units;

pub mod framing;

pub mod codec;
pub mod event;
pub mod itch50;

pub use codec::{Codec, MessageCounts, MessageError};
pub use event::Event;
pub use framing::{Framing, FramingError, Header, PacketKind, PacketWriter};
pub use units::{Locate, OrderRef, Price, Side, Symbol};
