//! The guardian: a small process that ends the TCP connections of another one when that dies.
//!
//! A kernel closes the sockets of a process that was killed; nobody closes ours. A peer would go on
//! believing in the connection, and where it only listens, for hours. So somebody who is still
//! there says it for us:
//!
//! ```text
//!  worker ──Roster──▶ shared file ◀──looks for new ones── Guardian ◀──pidfd── the kernel: it has died
//!                        └──open connections──▶ Resets ──RST, probe──▶ packet socket ──▶ peers
//!                                                  ▲────what they answer────────┘
//! ```
//!
//! It fires where a roster has lost its writer with connections open: the process was killed, has
//! panicked or has left without closing them. It does not where they were closed, and not while the
//! process is stopped, slow or in a debugger. A roster that was a dead process's before the
//! guardian came is not its business: its numbers are of another time.
//!
//! [`Guardian`] is the loop, for `wirepath guard` and for [`spawn`], by which an application starts
//! one for itself.

mod addresses;
mod guardian;
mod resets;
#[allow(unsafe_code)]
mod socket;
mod spawn;

pub use guardian::{GuardError, Guardian, Occasion, Report, Target};
pub use resets::{End, Ended};
pub use spawn::{Guard, serve_if_spawned, spawn};
