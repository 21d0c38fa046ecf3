//! The guardian: a small process that resets the TCP connections of another process when that dies.
//!
//! The kernel closes the sockets of a killed process, but does not know our connections. A peer
//! would keep the connection open, for hours if it only listens. So a process that is still alive
//! sends the RSTs:
//!
//! ```text
//!  worker ──Roster──▶ shared file ◀──scans for new ones── Guardian ◀──pidfd── the kernel: it has died
//!                        └──open connections──▶ Resets ──RST, probe──▶ packet socket ──▶ peers
//!                                                  ▲───────their answers────────┘
//! ```
//!
//! The guardian acts if a roster has lost its writer while connections were open: the process was
//! killed, has panicked or has exited without closing them. It does not act if they were closed,
//! nor while the process is stopped, slow or in a debugger. It ignores a roster whose process was
//! dead before the guardian started: its sequence numbers are out of date.
//!
//! [`Guardian`] is the loop, for `wirepath guard` and for [`spawn`], by which an application starts
//! a guardian for itself.

mod addresses;
mod guardian;
mod resets;
#[allow(unsafe_code)]
mod socket;
mod spawn;

pub use guardian::{GuardError, GuardReport, Guardian, ReportCause, Target};
pub use resets::{ResetConnection, ResetOutcome};
pub use spawn::{Guard, serve_if_spawned, spawn};
