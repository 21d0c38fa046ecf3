//! What the kernel knows of an interface, mirrored for the worker that owns it.
//!
//! A [`Mirror`] dumps links, addresses, routes, rules and neighbors over rtnetlink and follows the
//! kernel's events, on a thread beside the workers. What an interface should look like is compared
//! with what its worker was last told, and the difference travels as `HostUpdate` over a lossless
//! ring to the worker's [`Follower`]. No worker waits for the mirror and the mirror waits for no
//! worker: where a ring is full, the difference stays, and is sent later.
//!
//! ```text
//!  kernel --messages--> decode --changes--> Tables --view of one interface--> HostSync ==ring==> Follower --> Host
//!    ^                                        ^ a dump, where a message was lost                   |
//!    +----requests for neighbors--------------------------------- NeighborRequests <==ring== wishes -----+
//! ```
//!
//! The kernel answers and asks by ARP on its interfaces, so our frames find the neighbors that it
//! knows. It asks for those that a worker [wants](Follower::want).
//!
//! Of other interfaces nothing reaches a worker but an address that one of its own routes sends
//! from: a packet to another address of the host is the kernel's to answer, and VRFs are not looked
//! into.

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

pub use follower::{Follower, LinkState};
pub(crate) use icmp_errors::ICMP_ERROR_LEN_MAX;
pub(crate) use icmp_errors::IcmpErrorListener;
pub use icmp_errors::{KernelIcmpError, KernelIcmpErrors};
pub use mirror::{Mirror, MirrorError, MirrorThread};
pub use tables::Link;

#[cfg(test)]
mod bond_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod neighbor_request_tests;
#[cfg(test)]
mod tests;
