//! A bad network around any device: frames are lost, duplicated, reordered, corrupted and delayed,
//! and rings run full, with probabilities and a seed. Each fault is counted under its own name, in
//! the scope `fault` of the queue.
//!
//! The faults of a frame depend only on the seed, the queue, the direction and the frame's number:
//! the same seed and frames give the same faults for any bursts and any clock. No mbuf is leaked.
//!
//! ```text
//!  inner device ──▶ ring full? lost? ──▶ duplicated? ──▶ corrupted? ──▶ held back? ──▶ worker
//!  inner device ◀── held back? ◀── corrupted? ◀── duplicated? ◀── lost? ring full? ◀── worker
//! ```
//!
//! The wrapper draws random numbers for each frame, so it is for tests and simulation, not for
//! trading. It allocates at start only.

mod config;
mod damage;
mod delay_queue;
mod device;
mod frame_faults;
mod rx;
mod stamps;
mod tally;
mod tx;

pub use config::{FaultConfig, Faults};
pub use device::FaultDevice;

#[cfg(test)]
mod tests;
