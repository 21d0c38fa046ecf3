//! The protocols' state: pure machines that take (event, now) and return actions.
//!
//! Machines have no I/O, no clock and no packet memory. Payloads that a machine must keep are
//! opaque handles of a type parameter, and return to the caller when the machine releases them.
//! Everything is allocated at construction.

mod alloc;
mod hash;
mod ids;
mod prefix;
mod slab;
mod table;
mod timers;
mod wheel;

pub(crate) mod claim;
pub(crate) mod demux;
pub(crate) mod fragmentation;
pub(crate) mod host;
pub(crate) mod icmp;
pub(crate) mod identification;
pub(crate) mod membership;
pub(crate) mod neighbor;
pub(crate) mod path_mtu;
pub(crate) mod ports;
pub(crate) mod rate_limit;
pub(crate) mod reassembly;
pub(crate) mod sockets;
pub(crate) mod source_filter;
pub(crate) mod tcp;

pub(crate) use alloc::{Madvise, allocate_table, is_allocatable, without_madvise};
pub use claim::ClaimError;
pub(crate) use claim::{ClaimAction, ClaimConfig, ClaimOutcome, Claims};
pub use demux::{Cursor, DemuxError, DemuxMatch, Flow, Sharing, Subscriber};
pub(crate) use fragmentation::{FragmentPiece, FragmentPlan, FragmentRequest, FragmentationError};
pub use hash::HashSeed;
pub use host::{Destination, Host, HostConfig, HostError, HostEvent, Resolution, Route};
pub use icmp::{ErrorLimit, FlowErrorKind};
pub(crate) use icmp::{ErrorRefusal, ErrorRoute, OffendingPacket};
pub(crate) use icmp::{FlowError, UnmatchedError, match_error, match_segment};
pub(crate) use identification::{IdentificationKey, Identifications};
pub use ids::{ConsumerId, FilterId, InterfaceId};
pub use membership::ReporterConfig;
pub(crate) use neighbor::{ArpOutcome, ArpSend, NeighborAction, NeighborDrop, Neighbors, NotLearned};
pub use neighbor::{LearnFrom, NeighborConfig, NeighborRequest, ResolutionCause};
pub use path_mtu::PathMtuConfig;
pub(crate) use path_mtu::{PathMtuClaim, PathMtuRefusal, PathMtus};
pub use ports::{PortError, PortRange};
pub use prefix::{Ipv4Prefix, PrefixError};
pub(crate) use rate_limit::PeerLimit;
pub use rate_limit::TokenBucket;
pub use reassembly::ReassemblyCapacity;
pub(crate) use reassembly::{Fragment, FragmentKey, Outcome, Reassembly, ReassemblyDrop, Released};
pub use sockets::{Group, SocketCapacity, SocketError, UdpSockets};
pub use source_filter::{FilterError, FilterMode, ReceptionState};
pub(crate) use timers::TIMERS_MAX;
pub use timers::{TimerId, Timers, TimersFull};
