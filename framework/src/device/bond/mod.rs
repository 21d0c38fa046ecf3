//! Two or more ports as one, with one active leg: a bond in active-backup mode.
//!
//! The legs are separate ports, each with its queue, opened by one worker over one pool. Frames
//! that arrive on the active leg are received. Frames that arrive on another leg are dropped and
//! counted: a switch floods to that leg, or has not yet noticed the failover. Frames are sent on
//! the active leg. [`ActiveLeg`] selects it: the kernel's choice, forwarded by
//! `Follower::steer_bond` (in `worker::kernel`), or the operator's.
//!
//! A standby leg costs a receive call per turn, about as much as an empty poll.

mod device;
mod rx;
mod tx;

pub use device::{ActiveLeg, BondDevice};
#[cfg(test)]
pub(crate) use {rx::BondRx, tx::BondTx};

#[cfg(test)]
mod tests;
