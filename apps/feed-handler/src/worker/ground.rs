//! What is under a worker's feed: a queue, and the host that its packets are for. A replay and a live port each give one.

use wirepath::counters::Scope;
use wirepath::mem::{Layout, Sizing};
use wirepath::pipeline::{
    Accept, Arp, ChecksumPolicy, EgressConfig, Either, Ethernet, HostStackConfig, Icmp, Igmp, Ipv4, Ipv4Config,
    Ipv4Successors, Udp, UdpConfig, Unhandled, Vlans,
};
use wirepath::proto::{HashSeed, Host, HostConfig, InterfaceId};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::kernel::Follower;
use wirepath::worker::random_seed;

use crate::device::AnyQueue;
use crate::error::Error;
use crate::feed::ArrivalClock;
use crate::join::{Join, Learning};

/// A queue and its host, on their way to a worker.
pub(crate) struct Ground {
    pub(crate) queue: Box<dyn AnyQueue>,
    /// Frames to receive at most.
    pub(crate) packets_max: Option<u64>,
    /// How the pool is cut.
    pub(crate) layout: Layout,
    /// Its buffers, without what waits behind holes.
    pub(crate) buffers: Sizing,
    pub(crate) host: Host,
    /// Keeps the host as the kernel has it.
    pub(crate) follower: Option<Follower>,
    pub(crate) egress: EgressConfig,
    pub(crate) nodes: Nodes,
    pub(crate) clock: ArrivalClock,
    /// What to say when the first poll is done.
    pub(crate) ready: Option<String>,
}

/// Which nodes a packet meets.
pub(crate) enum Nodes {
    /// Somebody else's capture: its stations and VLANs are not ours, and all of them are welcome.
    Replay(ChecksumPolicy),
    /// A host on a live port.
    Host(Box<HostStackConfig>),
}

/// The tree that every frame runs through.
pub(crate) type Tree =
    Ethernet<Ipv4<Join<Udp>, Either<Icmp, Unhandled>, Either<Igmp, Unhandled>, Unhandled>, Either<Arp, Unhandled>>;

impl Nodes {
    /// Builds the tree for `host`.
    pub(crate) fn tree(self, learning: Learning, host: &Host, seed: HashSeed, scope: &Scope) -> Tree {
        let unhandled = |name| Either::Right(Unhandled::new(name, scope));
        let udp = |config| Join::new(learning, Udp::new(config, scope));
        let tcp = Unhandled::new("tcp", scope);
        match self {
            Self::Replay(checksum) => {
                let (icmp, igmp) = (unhandled("icmp"), Either::Right(Unhandled::new("igmp", scope)));
                let next = Ipv4Successors { udp: udp(UdpConfig { checksum }), icmp, igmp, tcp };
                let ipv4 = Ipv4::new(Ipv4Config { accept: Accept::Any, ..Ipv4Config::new(seed) }, next, scope);
                Ethernet::new(None, Vlans::Any, ipv4, Either::Right(Unhandled::new("arp", scope)), scope)
            }
            Self::Host(config) => {
                let igmp = match config.igmp {
                    Some(igmp) => Either::Left(Igmp::new(igmp, host, scope)),
                    None => Either::Right(Unhandled::new("igmp", scope)),
                };
                let icmp = Either::Left(Icmp::new(config.icmp, scope));
                let ipv4 = Ipv4::new(config.ipv4, Ipv4Successors { udp: udp(config.udp), icmp, igmp, tcp }, scope);
                let arp = Either::Left(Arp::new(config.arp, scope));
                Ethernet::new(Some(host.mac()), config.vlans, ipv4, arp, scope)
            }
        }
    }
}

/// A host that nobody sends to: the replay does not answer.
pub(crate) fn replay_host(seed: HashSeed) -> Result<Host, Error> {
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

/// Keys for the tables of this process.
pub(crate) fn seed() -> HashSeed {
    random_seed()
}
