//! wirepath: poll-mode packet processing for people who trade.
//!
//! A pinned worker owns a queue of a device and a pool of packet buffers in hugepages, and runs
//! each packet to completion through a pipeline of nodes. An application gets what a socket would
//! have given it, without the kernel on the path.
//!
//! The modules in reading order, from the ground up; an arrow between them only ever points down:
//!
//! - [`wire`] means: what the bytes of a frame say, and how to write them.
//! - [`time`] and [`counters`]: when, and how many. Counters live in shared memory, where
//!   `wirepath stats` reads them.
//! - [`mem`] holds: regions of hugepages, pools, mbufs and bursts.
//! - [`proto`] remembers: flows, groups, ports, fragments, neighbors; machines without I/O and
//!   without a clock.
//! - [`device`] moves: a port and its queues, the rules that steer frames to them, and the suite
//!   that each one passes.
//! - [`pipeline`] routes: one node checks one header and hands on, until an app has the packet or a
//!   reason is counted.
//! - [`worker`] turns the crank: [`poll_once`](worker::Worker::poll_once), threads on their cores,
//!   rings between them.
//! - [`port`] is the front door: a port by its name, what it subscribes to, and an app for each of
//!   its workers.
//!
//! A receiver, whole:
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
//! `examples/tick_to_order.rs` fires an order over TCP for each tick, in 54 lines. An engine with a
//! loop of its own takes a [`Worker`](worker::Worker) by its [builder](worker::Worker::builder) and
//! calls [`poll_once`](worker::Worker::poll_once) (`examples/embedded.rs`);
//! `examples/custom_node.rs` puts a node of its own into the pipeline.
//!
//! Each device has a feature, and all are on by default: `mlx5`, `af-xdp`, `pcap`. `testing` adds
//! what tests of devices and apps need: the suite that each device passes, a device that damages
//! frames, NICs of plain memory.
#![deny(unsafe_code)]
// Without a device, what the floors below have for it alone stands unused; without `testing`, what
// tests alone reach is unreachable. Lints run with all of them.
#![cfg_attr(not(feature = "testing"), allow(dead_code, unused_imports, unreachable_pub))]
#![cfg_attr(
    not(all(feature = "mlx5", feature = "af-xdp", feature = "pcap")),
    allow(unused_mut, unused_variables, unreachable_code)
)]

pub mod counters;
pub mod device;
pub mod mem;
pub mod pipeline;
pub mod port;
pub mod prelude;
pub mod proto;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod wire;
pub mod worker;

pub use port::{Error, Result};
