//! The port API: a port by its name, its subscriptions, and an app for each of its workers.
//!
//! ```no_run
//! use wirepath::prelude::*;
//!
//! struct Ticks(u64);
//!
//! impl App for Ticks {
//!     fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
//!         self.0 += datagram.payload.len() as u64;
//!     }
//! }
//!
//! fn main() -> wirepath::Result<()> {
//!     Port::open("eth1")?
//!         .subscribe(multicast([239, 1, 1, 1], 9000).source([198, 51, 100, 1]))
//!         .run(|_worker| Ticks(0))
//! }
//! ```
//!
//! ```text
//!  main thread                                    a pinned thread for each queue
//!  Port::open ─▶ subscribe, tcp, .. ─▶ run ─────▶ pool, queue, host, Worker ─▶ on_start
//!     counters in shared memory, rules, ─┘         ─▶ poll until Ctrl-C ─▶ on_stop
//!     memberships, the kernel's addresses and routes
//! ```
//!
//! It is built from parts that an embedder can use directly: [`live`](crate::worker::live) for
//! ports of interfaces, [`Worker::builder`](crate::worker::Worker::builder) for a worker in a loop
//! of one's own.

mod account;
mod built;
mod control;
mod error;
mod handle;
mod name;
mod opened;
mod run;
mod serve;
mod subscription;

pub use error::{Error, Result};
pub use handle::{Pending, PortHandle};
pub use run::Port;
pub use subscription::{Subscription, listen, multicast, tcp_from, udp};
