//! Between libibverbs and the kernel: calls on a uverbs descriptor are answered by the model, all
//! others pass.
//!
//! ```text
//!  program ── libibverbs ── libmlx5
//!                 │ ioctl, write, mmap, close                 rings, doorbells, buffers
//!                 ▼                                                      ▲
//!  entry ──▶ World, behind one mutex: sessions, NICs, cables             │
//!                 ▲                    │                                 │
//!  engine ────────┘ step, step, nap    └── HostMemory ───────────────────┘
//! ```
//!
//! A descriptor is ours if it is the character device 1:5 and was opened as `…/infiniband/uverbsN`.
//! The library creates nothing before the first call on such a descriptor: in processes that open
//! no device it costs a comparison per call.
//!
//! The engine is a separate thread, or the program itself by `softhca_step`
//! (`SOFTHCA_ENGINE=manual`). Both sides take the mutex, so the engine does not access a destroyed
//! object once its destruction has returned: libmlx5 frees ring memory at that moment.
//!
//! After `fork` the child has no devices, because the thread is not copied, and a NIC could not
//! reach memory that is no longer shared. The child may open devices itself.

mod channels;
mod clock;
mod counter_file;
mod device;
mod engine;
#[allow(unsafe_code)]
pub mod entry;
mod hw_counters;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod pages;
mod refusal;
#[allow(unsafe_code)]
mod sys;
mod world;
