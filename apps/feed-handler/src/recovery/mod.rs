//! Recovery off the hot core: a thread beside each worker that has servers configured, with kernel
//! sockets.
//!
//! ```text
//!   worker ── Command: numbers that are missing, an image that is wanted ──▶ [ring] ──▶ thread ── UDP, TCP ──▶ servers
//!          ◀── Answer: packets, refusals, whole books ── [ring] ◀──────────────────────────┘
//! ```
//!
//! The worker decides what is requested and when, because it knows the holes
//! ([`market::Rerequester`], [`market::image`]); it makes no system call. The thread speaks the
//! servers' protocols. It builds the books of an image itself, in memory of its own, and hands them
//! over whole; the worker exchanges them for the stale ones, and applies the messages that it has
//! queued meanwhile, a bounded number in each turn.
//!
//! The loops of MDP 3.0 and of B3 are groups that bring each book's snapshot, and each instrument's
//! definition, again and again. The thread joins them with kernel sockets while the worker wants
//! them, and passes those packets on of which two lines have brought the same bytes
//! ([`market::loops::LoopLines`]). The
//! worker applies each snapshot, and what it has queued behind it, to one book
//! ([`market::loops::Recovery`]): one packet in each turn.
//!
//! Another application that has one channel of a feed uses the same thread: [`start`] returns the
//! worker's end, and order-gateway's feed is the model of what is at that end.
//!
//! What is bounded, and what happens at the limit: the rings (`link`); the packets that wait
//! behind a hole ([`market::Window`]: the hole becomes a gap); the messages that wait for an image
//! ([`market::image`]: the oldest go, and a later image will do); one image at a time is built,
//! others wait for their turn. Packets of the loops wait in
//! their sockets, and when these are full the kernel drops them: the next loop brings them again.

mod connection;
mod glimpse;
mod group;
mod image;
mod link;
mod loop_lines;
mod loops;
mod memx;
mod plan;
mod proxy;
mod spin;
mod thread;
mod udp;
mod unit_stream;

pub use link::{Answer, Command, PACKET_LEN_MAX, ThreadEnd, WorkerEnd, link};
pub use plan::{ImagePlan, ImageSource, LoopPlan, ProxyPlan, RecoveryGroup, RecoveryPlan, RequestPlan};
pub use thread::{RecoveryThread, Started, start};
