//! Values that peers READ whenever they like, without the CPU of who publishes them.
//!
//! ```text
//!  Publisher -> slot: version, value, sum and version      <- READ - a peer -> parse
//! ```
//!
//! A READ takes place while the value is being written, or between two packets of a READ: so each
//! slot has a version before the value and behind it, and a sum over both. A version is odd while
//! the value is being written. A peer that finds two versions, an odd one or another sum has a torn
//! value, and reads again. An [`Offer`] in the private data of the connection says where the slots
//! are.

mod offer;
mod slot;

pub use offer::{OFFER_PORT, Offer, OfferError, TABLES_MAX, Table};
pub use slot::{Publisher, SlotError, parse, slot_len};

#[cfg(test)]
mod tests;
