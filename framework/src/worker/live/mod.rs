//! Going live: from a small configuration to everything that a worker needs on a queue of a real
//! interface, over AF_XDP or as a queue of a ConnectX.
//!
//! ```text
//!  main thread                                                worker thread
//!  LiveConfig ─▶ LivePort::open ─▶ rules, mirror, memberships
//!                   └──────────── take_queue ─▶ LiveQueue ──▶ pool, queue, host, follower ─▶ Worker
//! ```
//!
//! The question that decides all others is whose the interface is ([`Owner`]): the kernel's, whose
//! addresses, routes and neighbors are then followed and who goes on to get all that nobody here
//! has asked for; or ours, with an address that the kernel does not have, and ARP, ICMP and IGMP of
//! our own.
//!
//! What can fail fails in [`LivePort::open`] and [`LiveQueue::worker`], before a frame has come to
//! us; an error gives everything back. When the port and its queues are dropped, or the process
//! dies, nothing is left on the interface.

#[cfg(feature = "af-xdp")]
mod af_xdp;
mod config;
mod device;
mod error;
mod host;
mod membership;
#[cfg(feature = "mlx5")]
mod mlx5;
mod port;
mod queue;
mod rules;
#[allow(unsafe_code)]
mod sys;

pub use config::{CaptureMode, FlowSpec, IgmpMode, LiveConfig, OwnHost, Owner, StaticRoute};
pub use device::{LiveDevice, PortConfig};
pub use error::LiveError;
pub use host::{LiveHost, OwnFault, OwnPart};
pub use port::LivePort;
pub use queue::{LiveQueue, LiveWorker};
