//! The worker floor: starts pinned threads, checks the machine for them, polls, stops.
//!
//! [`WorkerGroup`] starts [`WorkerSpec`]s; on its thread each makes a pool, opens its queue, builds
//! a pipeline and assembles a [`Worker`], whose [`poll_once`](Worker::poll_once) is the whole data
//! path. Decoded events travel between workers over the rings of [`spsc`].
//!
//! A [`Worker`] belongs to its thread. Work that must not run there has a thread beside the workers
//! ([`kernel`], [`timeline`]) or a process of its own ([`guard`]); [`live`] sets up all of it from
//! a configuration. This floor imports all floors below it, but not the inside of `proto`.

pub mod affinity;
#[cfg(feature = "af-xdp")]
pub mod broker;
mod builder;
mod group;
pub mod guard;
pub mod kernel;
pub mod live;
mod poll;
mod reload;
mod seed;
pub mod spsc;
mod stop;
pub mod timeline;
pub mod topology;

pub use builder::{HostDescription, HostProvider, WorkerBuilder, WorkerBuilderError};
pub use group::{PoolSetupError, WorkerContext, WorkerGroup, WorkerGroupError, WorkerSpec};
pub use poll::{Ended, Parts, Worker};
pub use reload::ReloadSignal;
pub use seed::random_seed;
pub use stop::{StopError, StopFlag};

#[cfg(test)]
mod tests;
