//! A ConnectX NIC (4 to 7): each queue is a pair of raw-packet queue pairs whose rings the worker drives itself.
//!
//! ```text
//!  main thread                                     worker thread
//!  Mlx5Device ─ find, capabilities ─▶ Mlx5Queue ───▶ open: region registered, rings made and filled, rules in place
//!      └─ steer ─▶ table ─▶ flows in the NIC           │         ▲
//!                                                      ▼         │ after an error: reset, empty, ready
//!                       NIC ──CQEs──▶ Mlx5Rx ──▶ mbufs ──▶ Mlx5Tx ──WQEs, doorbell──▶ NIC
//! ```
//!
//! libibverbs and libmlx5 set the objects up and are never called per frame: receiving is reading CQEs and writing buffer
//! addresses, sending is writing WQEs and ringing a doorbell. What no rule names stays with the kernel, which keeps the port.
//!
//! ```no_run
//! use wirepath::device::mlx5::{Mlx5Config, Mlx5Device};
//! use wirepath::device::steering::Rule;
//! use wirepath::device::Device;
//!
//! let mut port = Mlx5Device::open(&Mlx5Config::new("eth1"))?;
//! println!("{}", port.describe());
//! port.steer(&Rule::udp([239, 1, 2, 3].into(), 9000), 0).expect("a rule that makes sense");
//! let queue = port.take_queue(0)?; // to a worker's thread, and there: queue.open(&pool, &scope)
//! # Ok::<(), wirepath::device::DeviceError>(())
//! ```
//!
//! What it does not do: steer by IPv6, or see inside tunnels.

mod capabilities;
mod clock;
mod compressed;
mod config;
mod cq;
mod cqe;
mod cqe_parser;
mod cyclic;
mod device;
#[allow(unsafe_code)]
mod doorbell;
mod error;
mod filter;
mod find;
#[allow(unsafe_code)]
mod mprq_buffer;
#[allow(unsafe_code)]
mod objects;
mod packet_types;
mod parts;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod plain;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod plain_tx;
mod port;
mod port_counter;
mod port_monitor;
mod queue;
mod reader;
mod recover;
#[allow(unsafe_code)]
mod ring;
mod rq;
mod rx;
mod shape;
mod sq;
#[allow(unsafe_code)]
mod sq_memory;
mod steering;
mod striding;
mod support;
mod table;
mod tx;
mod watch;
mod wqe;

pub use config::{Feature, HASH_KEY_LEN, Hash, HashBy, Mlx5Config, Pace, Spread};
pub use device::Mlx5Device;
pub use queue::Mlx5Queue;
pub use rx::Mlx5Rx;
pub use sq::WarmUp;
pub use support::{Mlx5Capabilities, Mlx5Port, Mlx5Support};
pub use tx::Mlx5Tx;

#[cfg(test)]
mod rx_tests;
#[cfg(test)]
mod tx_decoder;
#[cfg(test)]
mod tx_tests;
