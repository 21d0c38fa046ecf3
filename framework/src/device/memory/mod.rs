//! A device of plain memory: two ports connected by a wire that is two rings of frame slots. Each
//! end receives the other's frames by a copy, as a NIC does by DMA. It is for tests, benches,
//! simulation and demos. It makes no system call, and its two ends may be on different threads with
//! different pools.
//!
//! Frames remain in the ring while the receiver has no buffer for them; a full ring returns the
//! mbuf to the sender. Without steering rules everything is delivered; with rules, frames that
//! match none are counted and dropped.
//!
//! If enabled ([`MemoryConfig::segments`]) it segments TCP packets that are longer than a frame and
//! fills in checksums, in software but behind `post`, like a NIC. So TCP's use of such a NIC can be
//! tested and measured without one. Likewise it can verify the checksums of received frames
//! ([`MemoryConfig::verifies_checksums`]).

mod device;
#[allow(unsafe_code)]
mod ring;
mod rx;
mod segmentation;
mod tx;
mod verification;

pub use device::{MemoryConfig, MemoryDevice, pair};
pub use rx::MemoryRx;
pub use tx::MemoryTx;

#[cfg(test)]
mod tests;
