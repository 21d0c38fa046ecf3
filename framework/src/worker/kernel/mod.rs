//! Mirrors the kernel's state of an interface for the worker that owns it.
//!
//! A [`Mirror`] dumps links, addresses, routes, rules and neighbors over rtnetlink and follows the
//! kernel's events, on a thread beside the workers. It compares the state of an interface with the
//! state last sent to its worker, and sends the difference as `HostUpdate` over a lossless ring to
//! the worker's [`Follower`]. Neither waits for the other: if a ring is full, the difference
//! remains, and is sent later. While the workers poll, the mirror looks for their requests a
//! hundred times a second; once they sleep, it sleeps too, and each end wakes the other (`Wakeup`).
//!
//! ```text
//!  kernel --messages--> decode --changes--> Tables --view of one interface--> HostSync ==ring==> Follower --> Host
//!    ^                                        ^ a dump after the loss of a message                 |
//!    +----requests for neighbors--------------------------------- NeighborRequests <==ring== requests ---+
//! ```
//!
//! The kernel sends and answers ARP on its interfaces, so our frames use the neighbors in its
//! table. It resolves those that a worker [requests](Follower::want).
//!
//! Of other interfaces a worker learns only the addresses that its own routes send from: the kernel
//! answers packets to other addresses of the host, and VRFs are ignored.

mod decode;
mod follower;
mod host_sync;
mod icmp_errors;
mod lookup;
mod mirror;
mod neighbor_requests;
mod socket;
mod tables;
mod view;
mod wakeup;

pub use follower::{Follower, LinkState};
pub(crate) use icmp_errors::{ICMP_ERROR_LEN_MAX, IcmpErrorListener, KernelIcmpError};
pub(super) use mirror::Resolver;
pub use mirror::{Mirror, MirrorError, MirrorThread};
pub use tables::KernelLink;

#[doc(hidden)]
pub use crate::sys::interface::Ethtool;

#[cfg(test)]
mod tests;
