//! RoCE on a port of wirepath: over AF_XDP, the queues of a ConnectX, or plain memory.
//!
//! ```text
//!  port: UDP 4791 ─▶ Ethernet ─▶ Ipv4 ─▶ Udp ─▶ RoceNode ─▶ Device ─▶ completions
//!                     frames ◀── tick, one doorbell a turn ◀──┘  ◀── requests
//! ```
//!
//! The [`RoceNode`] is an [`App`](wirepath::pipeline::App) like any other: the framework steers
//! datagrams to UDP port 4791 to it by a [`subscription`] and knows nothing of RDMA. Answers leave
//! with the doorbell of the turn in which their cause arrived. RoCEv1 comes by its Ethernet type,
//! to a node that takes it ([`RoceNode::with_v1`]).

#[cfg(feature = "rdma-core")]
mod any;
mod counters;
mod long_frames;
#[allow(unsafe_code)]
mod mbufs;
mod node;
mod path;
mod prefetch;
mod roce_port;

#[cfg(feature = "rdma-core")]
pub use any::{AnyProvider, NicOptions, source_to};
pub use counters::DeviceRows;
pub use mbufs::Mbufs;
pub use node::{NodeCounters, RoceNode, V1_ETHERTYPE, group_subscription, subscription};
pub use path::{PathError, PathState, config_of, first_psn, largest_mtu, mtu_of};
pub use roce_port::{RocePort, RocePortOptions};

#[cfg(test)]
mod tests;
