//! What the kernel knows of an interface, mirrored for the worker that owns it.
//!
//! A [`Mirror`] dumps links, addresses, routes, rules and neighbours over rtnetlink and follows the kernel's events, on a
//! thread beside the workers. What an interface should look like is compared with what its worker was last told, and the
//! difference travels as [`Tidings`] over a lossless ring to the worker's [`Follower`]. No worker waits for the
//! mirror and the mirror waits for no worker: where a ring is full, the difference stays, and is sent later.
//!
//! ```text
//!  kernel --messages--> decode --changes--> Tables --view of one interface--> Outlet ==ring==> Follower --> Host
//!                                             ^ a dump, where a message was lost
//! ```

mod decode;
mod follower;
mod lookup;
mod mirror;
mod outlet;
mod socket;
mod tables;
mod view;

pub use follower::{Follower, LinkState, Tidings};
pub use mirror::{Mirror, MirrorError, MirrorThread};
pub use tables::Link;

#[cfg(test)]
mod tests;
