//! The common part of the benches: the measured paths as values that can be fed and drained, and
//! ways to compare them fairly.
//!
//! ```text
//!  frames ─▶ receiver (the product's path)       ┐
//!         ├▶ smoltcp_peer                        ├─▶ measure: A B A B …, median, min, max, a table ─▶ figures
//!         ├▶ forwarder (four nodes with work)    │
//!         └▶ connectx (drivers on software NICs) ┘
//! ```
//! `make bench` runs the criterion benches of the parts and `benches/report.rs`, which prints the
//! table of targets and appends it to the history of figures.

pub mod frames;

pub mod connectx;
pub mod decoding;
pub mod feed;
pub mod feeder;
pub mod figures;
pub mod forwarder;
pub mod handoff;
pub mod live;
pub mod mlx5;
pub mod rdma;
pub mod receiver;
pub mod single_packets;
pub mod smoltcp_peer;
pub mod sockets;
pub mod tcp;
pub mod trading;

pub mod measure;
#[allow(unsafe_code)]
pub mod prefetch;

/// Whether fewer samples are enough: `QUICK=1`.
pub fn is_quick() -> bool {
    std::env::var_os("QUICK").is_some_and(|value| value != "0")
}
