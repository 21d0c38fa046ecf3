//! MEMX's MEMOIR Depth feed for equities, in SBE big endian: the layouts of its messages, generated
//! from `schemas/memx-memoir-depth.xml`, the decoder to events, and what a server of [`replay`]s
//! speaks.
//!
//! Packets are [`crate::framing::memx_udp`]. The facts are those of the schema of version 1.3 that
//! MEMX publishes, and of descriptions of MEMX-UDP 1.1. An order is reduced by the quantity of its
//! message, not to it. Prices have six decimals, and limits no more than four (rule 612 of
//! Regulation NMS); of a trade that has more, the rest is cut off. An instrument has one state,
//! whoever gave it: halted (H), paused (P), quoted (Q) or trading (T).

mod decode;
#[rustfmt::skip]
pub mod layout;
pub mod replay;

pub use decode::{MemoirDepth, name};

#[cfg(test)]
mod tests;
