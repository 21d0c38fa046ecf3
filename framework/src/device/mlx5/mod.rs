//! A ConnectX NIC (4 to 7): each queue is a raw-packet queue pair whose rings the worker drives itself.
//!
//! libibverbs and libmlx5 set the objects up and are never called per frame: receiving is reading CQEs and writing buffer
//! addresses, sending is writing WQEs and ringing a doorbell. What no rule names stays with the kernel, which keeps the port.

// What is not used yet is used as the halves of a queue grow together.
#![allow(dead_code)]

mod capabilities;
mod clock;
mod compressed;
mod config;
mod cq;
mod cqe;
mod departures;
mod device;
#[allow(unsafe_code)]
mod doorbell;
mod error;
mod find;
mod kinds;
#[allow(unsafe_code)]
mod objects;
mod parts;
#[doc(hidden)]
pub mod plain;
#[doc(hidden)]
pub mod plain_tx;
mod port;
mod queue;
mod recover;
#[allow(unsafe_code)]
mod ring;
mod rq;
mod rx;
mod shape;
mod sq;
mod steering;
mod support;
mod table;
mod tx;
#[allow(unsafe_code)]
mod units;
mod watch;
mod wishes;
mod wqe;

pub use config::{Feature, HASH_KEY_LEN, Hash, HashBy, Mlx5Config, Pace, Spread};
pub use device::Mlx5Device;
pub use queue::Mlx5Queue;
pub use rx::{Mlx5Rx, Mlx5RxDrop};
pub use sq::Warmth;
pub use support::{Mlx5Abilities, Mlx5Port, Mlx5Support};
pub use tx::{Mlx5Tx, Mlx5TxDrop};

#[cfg(test)]
mod rx_tests;
