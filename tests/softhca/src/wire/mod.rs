//! Cables: to another model, to a packet socket, to a TAP, to a capture.
//!
//! A [`Port`] is the model's [`Wire`](crate::hca::Wire): a [`Cable`] on one side and, on the other,
//! the kernel's interface on the same port, where there is one.
//!
//! ```text
//!            ┌────────────────────────── Port ───────────────────────────┐
//!  model ────┤ send, receive ────────────────────────────────── Cable ───┼──── the other end
//!            │ to_kernel: what no rule named ──┐                  ▲      │
//!            │                                 ▼   sent by it     │      │
//!            └──────────────────────── kernel's interface ────────┘──────┘
//! ```
//!
//! Nothing here waits: every system call is non-blocking. System calls are made raw, without
//! threads and without the standard library's sockets, because libraries that intercept sockets
//! (libvma) may be in the same process.

#[allow(unsafe_code)]
mod bpf;
mod gate;
mod neighbor;
mod packet;
mod pair;
mod pcap;
mod port;
#[allow(unsafe_code)]
mod sys;
mod tap;

pub use neighbor::{ask_neighbor, neighbor};
pub use packet::PacketSocket;
pub use pair::PairEnd;
pub use pcap::Pcap;
pub use port::{Cable, Groups, InterfaceFacts, Port, look_at};
pub use tap::{Tap, raise};

/// Bytes of the longest frame that any cable carries: 9,600 bytes of IP packet, header and two
/// tags.
pub const FRAME_LEN_MAX: usize = 9_600 + 14 + 8;
