//! B3's binary UMDF, market by order, in SBE: the layouts of its messages, generated from
//! `schemas/b3-umdf.xml`, the decoder to events, and what its loops bring.
//!
//! Packets are [`crate::framing::b3_umdf`]. The facts are those of the schema of version 2.2.0 that
//! B3 publishes. Instruments are numbers here ([`crate::Symbol::from_number`]); their names come
//! with their definitions. Prices have four decimals. A quantity has 32 bits in an event: one
//! beyond 4,294,967,295 is shown as that.
//!
//! *Not read:* UMDF of before, in FAST; states in the loop of snapshots; the legs, underlyings and
//! texts of definitions; what statistics say (opening, closing and settlement prices, bands,
//! imbalances, volumes), which only count in the numbers of their instrument; the firms of orders
//! and trades; names of more than eight bytes, as many options have: their instruments are by
//! number alone. Orders without a price (market orders of an auction) are in no book.

mod decode;
pub mod emit;
#[rustfmt::skip]
pub mod layout;
mod loops;

pub use decode::{B3Umdf, name, order_ref};

#[cfg(test)]
mod tests;
