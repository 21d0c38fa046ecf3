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
//! Nothing is made before the first call on one: in processes that open no device the library costs
//! a comparison a call.
//!
//! The engine is a thread of its own, or the program itself by `softhca_step`
//! (`SOFTHCA_ENGINE=manual`). Because both sides take the mutex, an object that was destroyed is
//! not looked at again once its destruction has returned: libmlx5 frees ring memory at that moment.
//!
//! After `fork` the child has no devices: neither the thread nor what a NIC would do to memory that
//! is no longer shared comes along. It may open devices of its own.

mod channels;
mod clock;
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
mod sheet;
#[allow(unsafe_code)]
mod sys;
mod world;
