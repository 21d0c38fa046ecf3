//! Owned handles for verbs objects. A handle is cheap to clone, keeps its parents alive, and
//! destroys its object when the last clone is dropped: flow before QP, QP before indirection table,
//! table before WQ, WQ before CQ, then memory region, protection domain, context.
//!
//! ```no_run
//! use rdma_core_sys::RdmaCore;
//! use rdma_core_sys::verbs::{CompletionQueue, CqRequest, ProtectionDomain, QpCaps, QpRequest, QpState, QueuePair};
//!
//! let devices = RdmaCore::load()?.devices()?;
//! let context = devices.by_name("mlx5_0").expect("listed by ibv_devices").open()?;
//! let pd = ProtectionDomain::allocate(&context)?;
//! let cq = CompletionQueue::create(&context, &CqRequest::new(1024))?;
//! let caps = QpCaps { send_wr_max: 512, ..QpCaps::default() };
//! let qp = QueuePair::create(&QpRequest { caps, ..QpRequest::new(&pd, &cq, &cq) })?;
//! for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
//!     qp.to_state(state, 1)?;
//! }
//! let rings = qp.rings()?; // from here on the driver is alone with the NIC
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All handles are `Send` and `Sync`: the set-up calls of libibverbs may come from any thread.
//! Writing into rings at the addresses in [`QpRings`], [`CqRings`] and [`WqRing`] needs `unsafe`,
//! and a rule about the only writer.

mod attributes;
#[allow(unsafe_code)]
mod completion;
#[allow(unsafe_code)]
mod context;
#[allow(unsafe_code)]
mod device;
mod error;
#[allow(unsafe_code)]
mod flow;
#[allow(unsafe_code)]
mod handle;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod own_objects;
#[allow(unsafe_code)]
mod queue_pair;
#[allow(unsafe_code)]
mod ring_memory;
mod rule;
#[allow(unsafe_code)]
mod service;
#[allow(unsafe_code)]
mod work_queue;

#[cfg(test)]
#[allow(unsafe_code)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

pub use attributes::{
    DeviceAttributes, LinkLayer, Mlx5Attributes, Pacing, PortAttributes, PortState, RawPacketCaps, Rss, Striding,
};
pub use completion::{CompletionChannel, CompletionQueue, Compression, CqOptions, CqRequest, CqRings};
pub use context::{AsyncEvent, ClockInfo, Context, Element, EventKind};
pub use device::{Device, DeviceList};
pub use error::VerbsError;
pub use flow::Flow;
pub use handle::{MemoryOwner, failed_destructions};
pub use memory::{Access, MemoryRegion, MemoryWindow, ProtectionDomain, RemoteAccess, ThreadDomain};
pub use queue_pair::{QpCaps, QpOptions, QpRequest, QpRing, QpRings, QpState, QueuePair, RateLimit, RssRequest};
pub use ring_memory::RingMemory;
pub use rule::{EthernetMatch, FlowKind, FlowRule, Ipv4Match, PortsMatch};
pub use service::{
    Address, AddressHandle, Bind, Completion, QpChange, ReceiveWork, SendError, SendKind, SendWork, Service,
    ServiceRequest, Sge, SharedReceiveQueue,
};
pub use work_queue::{IndirectionTable, StridingRequest, WorkQueue, WqOptions, WqRequest, WqRing, WqState};
