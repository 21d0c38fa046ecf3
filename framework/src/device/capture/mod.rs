//! A capture around any device: each frame that the worker receives or sends is also written to a
//! file, unchanged.
//!
//! Around a wrapper of `device::fault` it records what the worker sees; inside one, what the wire
//! carries. Each frame costs a copy into a buffer, and each 256 KiB of frames a write(2) in
//! `receive` or `post`, so it is for debugging, not for the fastest path. A full disk does not stop
//! the worker: unrecorded frames are counted as `capture/lost`, and [`CaptureDevice::recorded`]
//! returns the error.

mod device;
mod rx;
mod tap;
mod tx;

pub use device::{CaptureConfig, CaptureDevice, Directions};

#[cfg(test)]
mod tests;
