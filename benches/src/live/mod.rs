//! Live figures: AF_XDP on a veth pair between two namespaces, against DPDK's testpmd and the
//! kernel's own sockets.
//!
//! ```text
//!  near: a kernel's sender, or client ── veth0 ═══ veth1 ── far: ours, testpmd, or a kernel's socket
//! ```
//! Senders run on the first core, which also does the kernel's work on the receiving side of a veth
//! (the sender's system call delivers); receivers and forwarders run on the second. All of them run
//! before other programs (SCHED_RR), and contenders take turns.

pub mod echo;
pub mod flood;
pub mod forwarding;
pub mod goodput;
pub mod in_step;
pub mod multicast;
pub mod order;
pub mod pair;
pub mod port;
pub mod rdma;
pub mod reflector;
pub mod round_trip;
#[allow(unsafe_code)]
pub mod sys;
pub mod tcp_round_trip;
pub mod testpmd;
pub mod turnaround;

mod lines;
mod sockets;
mod trading;

pub use lines::Live;
