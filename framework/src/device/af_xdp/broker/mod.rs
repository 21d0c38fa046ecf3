//! Queues of AF_XDP that a broker lends: it has the program, its maps and its rules, and programs
//! without any capability have the queues.
//!
//! ```text
//!  program (no capability)            broker (root)
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
//! [`lend`] is what a broker makes for a client; how they talk is
//! [`device::broker`](crate::device::broker).

#[allow(unsafe_code)]
mod foreign;
pub(crate) mod forwarded;
pub(crate) mod lend;
#[cfg(test)]
mod tests;
