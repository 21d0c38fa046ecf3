//! The broker: a process with the capabilities for AF_XDP that lends queues of one interface to
//! programs that have none.
//!
//! ```text
//!  program of uid 1000 ──▶ /run/wirepath/eth1.sock ──▶ Broker: one loop, one thread
//!                                                       ├ rights    may this user have that flow?
//!                                                       ├ owners    whose is its port in the kernel?
//!                                                       ├ flows     does another client have it?
//!                                                       └ AfXdpDevice: program, maps, rules
//! ```
//!
//! It loads the program once. A client gets a queue that is free, whose socket is bound already,
//! and the memory of its umem; frames of a client's flows come to its queue. Rules, map entry and
//! memory go when the client's socket is closed or its process has ended, however it ended.
//!
//! Where there are fewer queues than programs, a broker may keep the queues and pass frames on
//! ([`BrokerConfig::forward`]): then any number of programs, up to 128, share the interface.
//!
//! Who is served is said by numbers of users, or by rules that name users, groups and programs, and
//! what each may have ([`BrokerRule`]); they can be replaced while the broker runs
//! ([`BrokerRules`]).
//!
//! A client is hostile: its messages are bounded and decoded whole or not at all, it names flows
//! and no rules, and a user may only have flows to the interface's addresses or to groups, to a
//! port that the kernel has given to a socket of the same user. What a user gets with a queue is
//! the right to send any frame on the interface: the kernel has no finer one.

mod clients;
mod error;
mod flows;
mod forward;
mod listener;
mod owners;
mod rights;
mod server;

pub use error::BrokerError;
pub use rights::{BrokerPorts, BrokerProgram, BrokerRule, BrokerRules, BrokerUser};
pub use server::{Broker, BrokerConfig};
