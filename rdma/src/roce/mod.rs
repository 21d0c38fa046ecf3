//! RoCE without I/O and clock: queue pairs, memory and completions of a [`Device`].
//!
//! ```text
//!  post_send ─┐                                        ┌─▶ poll_cq, next_notification, next_event
//!             ▼                                        │
//!  receive ─▶ Device: queue pairs · memory regions · completion queues · timers ─▶ transmit
//! ```
//!
//! Names are those of the InfiniBand specification and of libibverbs. After a queue pair is made
//! nothing allocates. Each call does a bounded piece of work: one packet, one request, or, where a
//! queue pair fails, as many completions as it has requests.

#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod prefetch;

mod builder;
mod config;
mod counters;
mod cq;
mod device;
mod due;
mod events;
mod frame;
mod gather;
mod groups;
pub(crate) mod handle;
mod keys;
pub(crate) mod owned;
mod path;
mod qp;
mod receive_queue;
mod srq;
mod tables;
mod timers;
mod work;

#[cfg(test)]
mod tests;

pub(crate) use builder::frame_len_max;
pub(crate) use config::random;
pub use config::{DeviceConfig, Mtu};
pub use counters::{DeviceCounters, QpCounters};
pub use cq::Notify;
#[cfg(feature = "rdma-core")]
pub(crate) use device::check_group;
pub use device::{Device, DeviceError, GsiFull, MAD_LEN, ReceivedMad};
pub use events::Event;
pub use frame::{FrameError, RoceFrame};
pub use handle::{AhHandle, CqHandle, Handle, MrHandle, MwHandle, PdHandle, QpHandle, SrqHandle, kind};
pub use keys::{Access, Mr, Mw};
pub use memory::{Buffer, Region};
pub use path::{Addresses, Link, Path};
#[cfg(feature = "rdma-core")]
pub(crate) use qp::attributes::Limits;
pub use qp::{ModifyError, QpAttributes, QpOptions, QpState};
#[cfg(feature = "rdma-core")]
pub(crate) use receive_queue::check_pieces;
pub use work::{
    Binding, CompletionKind, Data, Destination, GRH_LEN, INLINE_MAX, MESSAGE_MAX, PostError, Remote, SGES_MAX,
    SendOperation, SendRequest, Sge, Status, WorkCompletion,
};
