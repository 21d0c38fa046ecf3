//! The kernel's side of libibverbs: frames of `write` and `ioctl` become requests to the model, its
//! replies become responses.
//!
//! A [`Session`] is one open uverbs descriptor. The input is a client's call to the kernel, with
//! the NIC, the client's memory and the client's process ([`Kernel`]); the output is a response or
//! an errno. The session does no I/O: the code that interposes the system calls makes descriptors
//! and mappings, and writes [`event_record`]s when the NIC has events.
//!
//! ```text
//! write ── frame ──────┐             ┌─ pd, cq, qp, wq, flow, device ── Hca
//!                      ├─ command ───┤     through objects: handles of this session
//! ioctl ── attributes ─┴─ method ────┘
//! ```
//!
//! Whatever comes from the client may be anything. A request is read in whole and the places of its
//! response are tried before something is done, so that a refused command has done nothing.
//!
//! Sources: mlx5.md section 3; the structs are compared with the kernel's headers in the tests.

mod abi;
mod calls;
mod context;
mod device;
mod event;
mod objects;
mod session;
#[cfg(test)]
mod tests;

pub mod testing;

pub use event::{EventRecord, event_record};
pub use session::{Kernel, Mapping, Process, Protocol, Session, Unread};

use crate::hca::Errno;

/// Bytes of a page, of memory and of registers.
const PAGE_LEN: u64 = 4096;

const fn errno(number: i32) -> Errno {
    Errno(number)
}

const fn refuse<T>(number: i32) -> Result<T, Errno> {
    Err(Errno(number))
}
