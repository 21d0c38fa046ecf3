//! A tap on any device: what the worker receives and sends is also written to a capture, frame by
//! frame, unchanged.
//!
//! Stack it outside a wrapper of `testing::fault` to see what the worker sees, inside to see what
//! the wire saw. A frame costs a copy into a buffer, and 256 KiB of frames cost a write(2) in
//! `receive` or `post`: for finding out, not for the fastest path. A full disk does not stop the
//! worker: what is not recorded is counted as `capture/lost`, and [`CaptureDevice::recorded`] tells
//! why.

mod device;
mod rx;
mod tap;
mod tx;

pub use device::{CaptureConfig, CaptureDevice, CaptureQueue, Directions};
pub use rx::CaptureRx;
pub use tx::CaptureTx;

#[cfg(test)]
mod tests;
