//! A device of plain memory: two ports joined by a wire that is two rings of frame slots. What one
//! end posts, the other receives, by copying the bytes as a NIC would by DMA. For tests, benches,
//! simulation and demos; it makes no system call, and its two ends may live on different threads
//! with different pools.
//!
//! Frames stay in the ring while the receiver has no buffer for them; a full ring gives the sender
//! its mbuf back. Without steering rules everything is delivered; with rules, what none of them
//! names is counted and dropped.
//!
//! Where it is told to ([`MemoryConfig::segments`]) it cuts TCP segments that are longer than a
//! frame and fills in checksums, in software but where a NIC does: behind `post`. So what TCP does
//! with such a NIC can be tested and measured without one. Likewise it looks at the checksums of
//! what comes ([`MemoryConfig::verifies_checksums`]).

mod device;
#[allow(unsafe_code)]
mod ring;
mod rx;
mod segmentation;
mod tx;
mod verification;

pub use device::{MemoryConfig, MemoryDevice, MemoryQueue, pair};
pub use rx::MemoryRx;
pub use tx::MemoryTx;

#[cfg(test)]
mod segmentation_tests;
#[cfg(test)]
mod tests;
