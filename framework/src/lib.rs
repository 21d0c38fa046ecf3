//! wirepath: poll-mode packet processing for traders.
//!
//! A pinned worker owns a queue of a device and a pool of packet buffers in hugepages, and runs
//! each packet to completion through a pipeline of nodes. An application gets the data that a
//! socket would have given it, without the kernel on the path.
//!
//! The modules in reading order; each imports only those that are listed before it:
//!
//! - [`wire`]: parsers and writers of headers, and checksums.
//! - [`time`] and [`counters`]: clocks; counters in shared memory, where `wirepath stats` reads
//!   them.
//! - [`mem`]: buffers. Regions of hugepages, pools, mbufs and bursts.
//! - [`proto`]: protocol state machines without I/O and without a clock. Flows, groups, ports,
//!   fragments, neighbors, TCP.
//! - [`device`]: drivers. A port and its queues, the rules that steer frames to them, and the
//!   conformance suite that each driver passes.
//! - [`pipeline`]: the packet graph. One node checks one header and hands the packet on, until an
//!   app gets it or a drop reason is counted.
//! - [`worker`]: the run loop. [`poll_once`](worker::Worker::poll_once), pinned threads, rings
//!   between them.
//! - [`port`]: where an application begins. A port by its name, subscriptions, and an app for each
//!   worker.
//!
//! # A receiver
//!
//! `examples/receiver.rs`, whole:
//!
//! ```no_run
#![doc = include_str!("../examples/receiver.rs")]
//! ```
//!
//! # An order for each tick
//!
//! `examples/tick_to_order.rs`, whole:
//!
//! ```no_run
#![doc = include_str!("../examples/tick_to_order.rs")]
//! ```
//!
//! # Beyond
//!
//! An engine with its own loop makes a [`Worker`](worker::Worker) by its
//! [builder](worker::Worker::builder) and calls [`poll_once`](worker::Worker::poll_once)
//! (`examples/embedded.rs`); `examples/custom_node.rs` puts a custom node into the pipeline.
//!
//! Each device has a feature, and all are on by default: `mlx5`, `af-xdp`, `pcap`. `fault` adds
//! a device around another that loses, reorders and damages frames. `testing` adds the items that
//! tests of devices and apps need: the suite that each device passes, NICs of plain memory, and
//! `fault`.
#![deny(unsafe_code)]
// Without a device, code of lower floors that only it uses is unused. Lints run with all features.
#![cfg_attr(
    not(all(feature = "mlx5", feature = "af-xdp", feature = "pcap")),
    allow(dead_code, unused_imports, unused_mut, unused_variables, unreachable_code)
)]

pub mod counters;
pub mod device;
pub mod mem;
pub mod pipeline;
pub mod port;
pub mod prelude;
// Machines have calls that only tests and fuzzers make, which reach them with `testing`.
#[cfg_attr(not(feature = "testing"), allow(dead_code, unused_imports, unreachable_pub))]
pub mod proto;
mod sys;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod wire;
pub mod worker;

pub use port::error::{Error, Result};
