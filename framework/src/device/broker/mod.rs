//! Between a broker and the programs that it lends queues of any device to.
//!
//! ```text
//!  program (no capability)            broker (root)
//!  LentPort ──── requests ──────────▶ one at a time, each checked   (message, seqpacket)
//!           ◀─── descriptors, and what they are
//! ```
//!
//! [`message`] is the codec, with what it says of a queue of a NIC in [`nic`]; [`request`] what is
//! asked for, [`sys`] sockets and memory that are passed on, [`client`] the port in the program.
//! What is lent is the devices' own: `af_xdp::broker`, `mlx5::lend`. The broker itself is
//! [`worker::broker`](crate::worker::broker).

pub(crate) mod client;
pub(crate) mod message;
pub(crate) mod nic;
pub(crate) mod request;
#[allow(unsafe_code)]
pub(crate) mod sys;

/// A number of a rule, for tests of who keeps them.
#[cfg(test)]
pub(crate) fn rule_id(number: u32) -> super::steering::RuleId {
    super::steering::RuleId(number)
}
