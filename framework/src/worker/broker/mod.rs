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
//! It loads the program once. A client gets a free queue, whose socket is already bound, and the
//! memory of its umem; frames of the client's flows arrive in its queue. Rules, map entry and
//! memory are released when the client closes its socket or its process ends, however it ends.
//!
//! If there are more programs than queues, a broker may keep the queues and pass frames on
//! ([`BrokerConfig::forward`]): then up to 128 programs share the interface.
//!
//! The broker is configured with users, or with rules that name users, groups and programs and what
//! each may have ([`BrokerRule`]). Rules can be replaced while the broker runs ([`BrokerRules`]).
//!
//! A client is treated as hostile. Its messages are bounded, and decoded completely or not at all.
//! It names flows, never rules. A user may only have flows to the interface's addresses or to
//! groups, at a port that the kernel has given to a socket of the same user, or to one that a
//! process of the user has shown. With a queue, a user gets the right to send any frame on the
//! interface, because the kernel has no finer right.

mod claims;
mod clients;
mod closer;
mod config;
mod ended;
mod error;
mod flows;
mod forward;
mod leaving;
mod leftovers;
mod listener;
mod owners;
mod port;
mod refusals;
mod rights;
mod server;
mod waiting;

pub use config::BrokerConfig;
pub use error::BrokerError;
pub use owners::ports_of_kernels_connections;
pub use rights::{BrokerPorts, BrokerProgram, BrokerRule, BrokerRules, BrokerUser};
pub use server::Broker;
