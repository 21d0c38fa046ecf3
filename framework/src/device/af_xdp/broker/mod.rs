//! Queues of a broker: a process with the capabilities for AF_XDP has the program, its maps and its
//! rules, and lends queues to processes without any.
//!
//! ```text
//!  program (no capability)            broker (root)
//!  LentPort ──── requests ──────────▶ one at a time, each checked   (message, seqpacket)
//!           ◀─── a socket that is bound, and the memory of its umem
//!  maps both, receives and sends      keeps program, maps, rules
//! ```
//!
//! The broker registers the umem and binds the socket before it passes them on. A socket that is
//! not bound could be bound to any queue of any interface by whoever holds it: bind(2) of AF_XDP
//! asks for no capability, only socket(2) does. The rings of a bound socket can be mapped since
//! Linux 6.4.
//!
//! Where an interface has fewer queues than programs, the broker keeps the queues and passes frames
//! on: [`forwarded`] is a queue of which it plays the kernel's part.
//!
//! [`message`] is the codec, [`lend`] what a broker makes for a client, [`client`] the port in the
//! program; the broker itself is [`worker::broker`](crate::worker::broker).

pub(crate) mod client;
#[cfg(test)]
mod conformance_tests;
#[allow(unsafe_code)]
mod foreign;
pub(crate) mod forwarded;
pub(crate) mod lend;
pub(crate) mod message;
pub(crate) mod nic;
#[allow(unsafe_code)]
pub(crate) mod sys;

/// A number of a rule, for tests of who keeps them.
#[cfg(test)]
pub(crate) fn rule_id(number: u32) -> crate::device::steering::RuleId {
    crate::device::steering::RuleId(number)
}
