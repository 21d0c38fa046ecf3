//! What the protocols remember: pure machines that take (event, now) and give actions.
//!
//! No I/O, no clock, no memory of a packet's own: payloads that a machine must keep are opaque handles, a type
//! parameter, and come back to the caller when the machine lets go of them. Everything is allocated at construction.

mod alloc;
mod hash;
mod ids;
mod prefix;
mod slab;
mod table;
mod timers;
mod wheel;

pub mod claim;
pub mod demux;
pub mod fragmentation;
pub mod host;
pub mod icmp;
pub mod identification;
pub mod membership;
pub mod neighbor;
pub mod path_mtu;
pub mod ports;
pub mod rate_limit;
pub mod reassembly;
pub mod sockets;
pub mod source_filter;
pub mod tcp;

pub use alloc::{Madvise, without_madvise};
pub(crate) use alloc::{allocate_table, is_allocatable};
pub use claim::{ClaimAction, ClaimConfig, ClaimError, ClaimHeard, Claims};
pub use demux::{Cursor, Demux, DemuxCapacity, DemuxError, Flow, Found, LocalHash, Subscriber};
pub use fragmentation::{FragmentPiece, FragmentPlan, FragmentRequest, FragmentationError};
pub use hash::HashSeed;
pub use host::{Destination, Host, HostConfig, HostError, HostEvent, Resolution, Route};
pub use icmp::{
    ErrorLimit, ErrorRefusal, ErrorRoute, FlowError, FlowErrorKind, Offence, UnmatchedError, match_error, match_segment,
};
pub use identification::{IdentificationKey, Identifications};
pub use ids::{ConsumerId, FilterId, InterfaceId};
pub use membership::{Announcement, Reporter, ReporterConfig, ReporterError};
pub use neighbor::{
    ArpSend, Asker, Heard, LearnFrom, NeighborAction, NeighborConfig, NeighborDrop, NeighborRequest, Neighbors,
    NotLearned,
};
pub use path_mtu::{PathMtuClaim, PathMtuConfig, PathMtuRefusal, PathMtus};
pub use ports::{Binding, PortError, PortRange, Ports, PortsCapacity};
pub use prefix::{Ipv4Prefix, PrefixError};
pub use rate_limit::{PeerLimit, PeerShares, Shares, TokenBucket};
pub use reassembly::{Fragment, FragmentKey, Outcome, Reassembly, ReassemblyCapacity, ReassemblyDrop, Released};
pub use sockets::{Group, Sharing, SocketCapacity, SocketError, UdpSockets};
pub use source_filter::{FilterError, FilterMode, Membership, Merged, SourceFilterCapacity, SourceFilters};
pub use timers::{TIMERS_MAX, TimerId, Timers, TimersFull};
