//! A ConnectX NIC (4 to 7): each queue is a pair of raw-packet queue pairs whose rings the worker
//! drives itself.
//!
//! ```text
//!  main thread                                     worker thread
//!  Mlx5Device ─ find, capabilities ─▶ Mlx5Queue ───▶ open: region registered, rings made and filled, rules in place
//!      └─ steer ─▶ table ─▶ flows in the NIC           │         ▲
//!                                                      ▼         │ after an error: reset, empty, ready
//!                       NIC ──CQEs──▶ Mlx5Rx ──▶ mbufs ──▶ Mlx5Tx ──WQEs, doorbell──▶ NIC
//! ```
//!
//! libibverbs and libmlx5 set up the objects and are never called per frame: receiving is reading
//! CQEs and writing buffer addresses, sending is writing WQEs and ringing a doorbell. The kernel
//! keeps the port and receives the frames that no rule matches.
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
//! The device neither steers by IPv6 nor parses tunnels.

mod completion;
mod config;
mod error;
mod health;
#[cfg(feature = "af-xdp")]
pub(crate) mod lend;
#[cfg(not(feature = "af-xdp"))]
#[path = "lend/absent.rs"]
mod lend;
mod receive;
#[allow(unsafe_code)]
mod ring;
mod send;
mod setup;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;

pub use config::{Feature, Mlx5Config, Pace, RssConfig, RssFields, RxDistribution};
pub(crate) use lend::lost_rule;
pub use receive::rx::Mlx5Rx;
pub use send::sq::WarmUp;
pub use send::tx::Mlx5Tx;
pub use setup::device::Mlx5Device;
pub use setup::device_info::{Mlx5Capabilities, Mlx5DeviceInfo, Mlx5Port};
