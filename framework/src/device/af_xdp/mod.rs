//! AF_XDP: a live port of any Linux NIC, shared with the kernel. What a steering rule names comes
//! to our queues without the kernel's stack on the path; everything else the kernel gets as before.
//!
//! ```text
//!  NIC ─▶ program ── a rule names it ──▶ rx ring ─▶ AfXdpRx      AfXdpTx ─▶ tx ring ─▶ NIC
//!            └────── no rule ──▶ kernel   fill ring ◀── pool ──▶            completion ring
//! ```
//!
//! The program is generated from the rules (`program/generate.rs`: a few comparisons for each where
//! they are few, else one lookup for each shape of rule) and loaded as instructions: no compiler
//! and no library on the user's machine. It is held by a BPF link, so it goes with the process,
//! also after kill -9. The pool of the worker is the umem; its layout is
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
//! Where the driver tells programs about frames (Linux 6.3 and later), a frame brings when it
//! arrived, its hash and the VLAN tag that the NIC took off; [`AfXdpDevice::describe`] says what
//! comes, and why the rest does not.
//!
//! A rule that names a group has the NIC let that group through its own filter
//! (`device/nic_filter.rs`); the kernel's own memberships would do it too, but those that we speak
//! IGMP for ourselves the kernel does not know of.
//!
//! What it does not do: move frames between queues (the NIC does), insert VLAN tags, or compute
//! checksums.

mod program;
mod rings;
mod rx;
mod setup;
mod tx;

use setup::device::LINK_HEADER_LEN;

pub use rings::socket::Copying;
pub(crate) use rings::umem::chunks_for;
pub use rx::AfXdpRx;
pub use setup::device::{AfXdpConfig, AfXdpDevice, AfXdpQueue};
pub use setup::error::CAPABILITIES;
pub use setup::port::Mode;
pub use setup::support::{AttachedProgram, DriverSupport, Support};
pub use tx::AfXdpTx;
