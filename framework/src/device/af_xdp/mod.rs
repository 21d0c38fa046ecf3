//! AF_XDP: a live port of any Linux NIC, shared with the kernel. Frames that match a steering rule
//! bypass the kernel's stack and go to our queues; the kernel receives all others as before.
//!
//! ```text
//!  NIC ─▶ program ── a rule matches ───▶ rx ring ─▶ AfXdpRx      AfXdpTx ─▶ tx ring ─▶ NIC
//!            └────── no rule ──▶ kernel   fill ring ◀── pool ──▶            completion ring
//! ```
//!
//! The program is generated from the rules (`program/generate.rs`: a few comparisons per rule if
//! there are few rules, otherwise one lookup per shape of rule) and loaded as instructions: the
//! operator's machine needs no compiler and no library. A BPF link holds it, so it is removed with
//! the process, also after kill -9. The pool of the worker is the umem; its layout is
//! [`Layout::umem`](crate::mem::Layout::umem).
//!
//! ```no_run
//! use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice};
//! use wirepath::device::steering::Rule;
//! use wirepath::device::Device;
//!
//! let mut port = AfXdpDevice::open(&AfXdpConfig::new("eth1"))?;
//! println!("{}", port.describe());
//! port.steer(&Rule::udp([239, 1, 2, 3].into(), 9000), 0).expect("a rule that makes sense");
//! let queue = port.take_queue(0)?; // to a worker's thread, and there: queue.open(&pool, &scope)
//! # Ok::<(), wirepath::device::DeviceError>(())
//! ```
//!
//! If the driver provides RX metadata to programs (Linux 6.3 and later), a frame carries its
//! timestamp, its hash and the VLAN tag that the NIC stripped; [`AfXdpDevice::describe`] lists
//! these fields, and the reason where one is missing.
//!
//! A rule for a group also adds the group to the NIC's address filter (`device/nic_filter.rs`). The
//! kernel's own memberships would do that too, but the kernel has none for the groups that we
//! report by IGMP ourselves.
//!
//! It does not move frames between queues (the NIC does), insert VLAN tags, or compute checksums.

pub(crate) mod broker;
mod config;
mod doorbell;
pub(super) mod error;
mod gate;
mod holder;
pub(super) mod interface;
mod program;
pub(super) mod rings;
mod rx;
mod setup;
mod tx;

pub use super::broker::client::{
    ask_broker_to_serve, broker_of, check_broker, does_broker_answer, does_broker_forward,
};
pub use config::{AfXdpConfig, CopyMode, Mode};
pub(crate) use rings::umem::chunks_for;
pub use rx::AfXdpRx;
pub use setup::capabilities::{AfXdpCapabilities, AttachedProgram, DriverCapabilities};
pub use setup::device::AfXdpDevice;
pub use tx::AfXdpTx;
