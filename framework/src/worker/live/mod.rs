//! Going live: from a small configuration to a worker on a queue of a real interface, over AF_XDP
//! or on a queue of a ConnectX.
//!
//! ```text
//!  main thread                                                worker thread
//!  LiveConfig ─▶ LivePort::open ─▶ rules, mirror, memberships
//!                   └──────────── take_queue ─▶ LiveQueue ──▶ pool, queue, host, follower ─▶ Worker
//! ```
//!
//! The first decision is the owner of the interface ([`Owner`]). If the kernel owns it, we follow
//! its addresses, routes and neighbors, and the kernel receives all frames but the configured
//! flows. On an interface of our own, we have an address that the kernel does not have, and do ARP,
//! ICMP and IGMP ourselves.
//!
//! All errors occur in [`LivePort::open`] and when the worker is [built](LiveQueue::builder),
//! before a frame has been received; an error undoes every step. When the port and its queues are
//! dropped, or the process dies, nothing is left on the interface.

#[cfg(feature = "af-xdp")]
mod af_xdp;
mod config;
mod config_problem;
mod device;
mod error;
mod host;
mod kernel_socket;
mod lost;
mod membership;
#[cfg(feature = "mlx5")]
mod mlx5;
mod port;
mod queue;
mod rules;

pub use config::{CaptureMode, DedicatedHost, FlowSpec, IgmpMode, LiveConfig, Owner, StaticRoute};
pub use config_problem::LiveConfigProblem;
pub use device::{LiveDevice, PortConfig};
pub use error::LiveError;
pub use host::{DedicatedHostFault, DedicatedHostPart, LiveHost};
#[cfg(feature = "af-xdp")]
pub(super) use kernel_socket::icmp_errors;
pub use kernel_socket::sleep_on;
pub use port::LivePort;
pub use queue::{LiveQueue, LiveWorker};
