//! A tap that is always present and costs one load per burst without a listener: `wirepath capture`
//! attaches to it while the worker runs, and gets the frames that the queue actually receives and
//! sends.
//!
//! Stack it on a live port, outermost, under the name that the process also uses for its counters:
//!
//! ```no_run
//! # use wirepath::device::memory::{MemoryConfig, pair};
//! # use wirepath::device::tap::{TapConfig, TapDevice};
//! # use wirepath::device::{Device, DeviceError};
//! # let (port, _) = pair("wire", MemoryConfig::default());
//! let mut port = TapDevice::new(port, TapConfig::new("feed-handler"));
//! let queue = port.take_queue(0)?; // to the worker, as any other queue
//! port.problems().for_each(|problem| eprintln!("{problem}"));
//! # Ok::<(), DeviceError>(())
//! ```
//!
//! Each queue has a ring in shared memory, a file beside the process's counters that root and the
//! user of the process may open. A listener signals its presence by writing the time into a word of
//! it, twice a second. While that word is zero the tap reads it once per burst and does nothing
//! else. While the time in it is current, frames are copied into the ring. The worker never waits:
//! it overruns a slow reader, which knows exactly how many frames it missed. A killed listener
//! stops writing the time, and the tap becomes idle by itself.
//!
//! ```text
//!   worker                         /dev/shm/wirepath/feed-handler.4711.tap             wirepath capture
//!   TapRx, TapTx ──frames──▶ | id | beat  | claimed written rx tx | marks | ring | ──▶ Listener
//!        ▲──────── is a listener there, and the time ─────┘◀───────── beat ─────────────┘
//! ```
//!
//! Measured on a wire in memory (callgrind, release build without target flags): without a listener
//! 11 instructions per poll and 9 per posted frame. With one, the copy of a frame of 64 bytes costs
//! about 11 ns and one of 1500 some 40 (two shared cores under load).
//!
//! [`TapDevice`] is the worker's side, [`Tapped`] and [`Listener`] are the other. For a capture
//! without loss that may slow the worker, see [`capture`](super::capture).

mod device;
mod layout;
mod listener;
mod recorder;
mod ring;
mod rx;
mod tapped;
mod tx;

pub(crate) use device::TapQueue;
pub use device::{TapConfig, TapDevice, TapProblem};
pub use listener::{Frame, Listener, ListenerState};
pub use ring::{Direction, FrameCounts};
pub(crate) use rx::TapRx;
pub use tapped::{TapError, Tapped, Taps};
pub(crate) use tx::TapTx;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
