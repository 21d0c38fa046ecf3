//! The kernel's side of libibverbs: frames of `write` and `ioctl` become requests to the model, its replies become responses.
//!
//! A [`Session`] is one open uverbs descriptor. What a client hands to the kernel goes in, with the NIC, the client's memory
//! and a way to make descriptors beside it ([`Kernel`]); an answer or an errno comes out. The session does no I/O of its own:
//! whoever interposes the system calls makes descriptors and mappings, and writes [`event_record`]s when the NIC has events.
//!
//! Sources: mlx5.md section 3; the kernel's own headers in `/usr/include/rdma` are compared in the tests.

mod event;
mod session;

pub use event::{EventRecord, event_record};
pub use session::{Descriptors, Kernel, Mapping, Protocol, Session};
