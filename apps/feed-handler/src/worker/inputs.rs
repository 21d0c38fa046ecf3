//! What a worker's thread needs, and can be sent there. A replay and a live port differ in where
//! frames come from, and in nothing else.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use wirepath::counters::{Block, Scope};
use wirepath::mem::{Layout, Sizing};
use wirepath::pipeline::{
    Accept, ChecksumPolicy, Ethernet, Ipv4, Ipv4Config, Ipv4Successors, Udp, UdpConfig, Unhandled, Vlans,
};
use wirepath::proto::{HashSeed, Host, HostConfig, InterfaceId};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::live::LiveQueue;

use super::Event;
use crate::device::AnyQueue;
use crate::error::Error;
use crate::join::{Join, Learning};
use crate::plan::FeedPlan;

/// Everything that a worker's thread needs.
pub(crate) struct WorkerInputs {
    /// `worker0` and so on: the thread's name and the scope of its counters.
    pub(crate) name: String,
    pub(crate) plan: FeedPlan,
    pub(crate) frames: Frames,
    pub(crate) block: Arc<Block>,
    pub(crate) events: Sender<Event>,
}

/// Where frames come from.
pub(crate) enum Frames {
    /// A queue of a live port, with its host; and what to say when the first poll is done.
    Live { queue: Box<LiveQueue>, ready: String },
    /// Somebody else's capture: its stations and VLANs are not ours, and all of them are welcome.
    Replay(Replay),
}

/// Files as a queue.
pub(crate) struct Replay {
    pub(crate) queue: Box<dyn AnyQueue>,
    /// Frames to receive at most.
    pub(crate) packets_max: Option<u64>,
    /// How the pool is cut.
    pub(crate) layout: Layout,
    /// Its buffers, without what waits behind holes.
    pub(crate) buffers: Sizing,
    pub(crate) checksum: ChecksumPolicy,
}

/// The tree that the frames of a replay run through. Those of a live port run through a
/// [`HostStack`](wirepath::pipeline::HostStack).
pub(super) type ReplayTree = Ethernet<Ipv4<Join<Udp>, Unhandled, Unhandled, Unhandled>, Unhandled>;

/// Takes datagrams for every station, and counts all else.
pub(super) fn replay_tree(checksum: ChecksumPolicy, learning: Learning, seed: HashSeed, scope: &Scope) -> ReplayTree {
    let unhandled = |name| Unhandled::new(name, scope);
    let udp = Join::new(learning, Udp::new(UdpConfig { checksum }, scope));
    let next = Ipv4Successors { udp, icmp: unhandled("icmp"), igmp: unhandled("igmp"), tcp: unhandled("tcp") };
    let ipv4 = Ipv4::new(Ipv4Config { accept: Accept::Any, ..Ipv4Config::new(seed) }, next, scope);
    Ethernet::new(None, Vlans::Any, ipv4, unhandled("arp"), scope)
}

/// A host that nobody sends to: the replay does not answer.
pub(super) fn replay_host(seed: HashSeed) -> Result<Host, Error> {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 1,
        neighbors_max: 1,
    };
    Host::new(config, seed).map_err(Error::failed)
}
