//! Rings that carry decoded events from one worker to another.
//!
//! Packets never cross: an mbuf stays with its worker's pool, and only the decoded event travels.
//! There are two rings for two kinds of reader:
//!
//! - [`lossless`]: one producer, one consumer, nothing lost. A slow consumer fills the ring, and
//!   `push` fails. Between workers that must agree (orders, fills, control).
//! - [`lossy`]: one writer that never waits, any number of readers. A slow reader loses the oldest
//!   events and learns exactly how many. For observers (a second strategy, a recorder, a screen).
//!
//! Memory is allocated and touched when a ring is made; neither end allocates, locks or makes
//! system calls afterwards.

mod capacity;
#[allow(unsafe_code)]
pub mod lossless;
pub mod lossy;
mod sync;

pub(crate) use capacity::CAPACITY_MIN;
pub use capacity::CapacityError;

#[cfg(test)]
#[cfg(loom)]
mod tests;
