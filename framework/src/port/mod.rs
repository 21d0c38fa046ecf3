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
//! Three ways lead to a port: [`Port::open`] by its name, [`Port::from_config`] by the whole
//! configuration of an interface, [`Port::over`] any device. Each has the same verbs.
//! [`Port::run`] runs an app on each worker until the port stops. With [`Port::start`] the caller
//! builds the workers, polls them in its own loop, and gets their results. [`Port::embed`] has one
//! worker in the caller's own loop, on the caller's thread.
//!
//! It is built from parts that an embedder can use directly: [`live`](crate::worker::live) for
//! ports of interfaces, [`Worker::builder`](crate::worker::Worker::builder) for a worker without a
//! port.

mod account;
mod built;
mod control;
mod embedded;
pub(crate) mod error;
mod handle;
mod name;
mod named;
mod opened;
mod run;
mod running;
mod serve;
mod source;
mod subscription;

pub use embedded::EmbeddedPort;
pub use error::SubscriptionError;
pub use handle::{Pending, PortHandle};
pub use named::Named;
pub use run::Port;
pub use running::RunningPort;
pub use serve::{PortWorker, RunningWorker};
pub use source::PortSource;

pub use crate::sys::inherited::{close_inherited, note_descriptors};
pub use subscription::{Subscription, listen, multicast, tcp_from, udp};
