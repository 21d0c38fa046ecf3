//! Two or more ports as one, of which one carries the traffic: a bond in active-backup.
//!
//! The legs are ports of their own, each with its queue, opened by one worker over one pool. What
//! arrives on the active leg is received, what arrives on another is dropped and counted (a switch
//! floods there, or has not yet noticed that the bond moved); what is sent leaves by the active
//! leg. Which one that is, [`ActiveLeg`] says: the kernel's choice, as `Follower::steer_bond` (in
//! `worker::kernel`) passes it on, or the operator's.
//!
//! The dropped frames of a standby leg cost a receive each turn, about as much as an empty one
//! does.

mod device;
mod rx;
mod tx;

pub use device::{ActiveLeg, BondDevice, BondQueue};
pub use rx::BondRx;
pub use tx::BondTx;

#[cfg(test)]
mod tests;
