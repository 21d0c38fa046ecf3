//! The usual trees, ready made: [`udp_stack`] takes datagrams and counts everything else;
//! [`host_stack`] is a host of its own, with ARP, ICMP and IGMP. An application with other branches
//! can build its own tree in as few lines.

use super::arp::node::{Arp, ArpConfig};
use super::either::Either;
use super::ethernet::{Ethernet, Vlans};
use super::icmp::node::{Icmp, IcmpConfig};
use super::igmp::{Igmp, IgmpConfig};
use super::ipv4::{Ipv4, Ipv4Config, Ipv4Successors};
use super::tcp::{Tcp, TcpNodeConfig};
use super::udp::node::{Udp, UdpConfig};
use super::unhandled::Unhandled;
use crate::counters::Scope;
use crate::proto::{HashSeed, Host};
use crate::wire::MacAddr;

/// Datagrams in, nothing else.
pub type UdpStack = Ethernet<Ipv4<Udp, Unhandled, Unhandled, Unhandled>, Unhandled>;

/// The configuration of a [`UdpStack`]'s nodes.
#[derive(Clone, Copy, Debug)]
pub struct StackConfig {
    /// Our MAC address; `None` accepts every frame, for replays.
    pub station: Option<MacAddr>,
    /// The VLANs that are accepted.
    pub vlans: Vlans,
    /// The IPv4 node.
    pub ipv4: Ipv4Config,
    /// The UDP node.
    pub udp: UdpConfig,
}

/// Builds the tree; the nodes' counters go below `scope`.
pub fn udp_stack(config: StackConfig, scope: &Scope) -> UdpStack {
    let next = Ipv4Successors {
        udp: Udp::new(config.udp, scope),
        icmp: Unhandled::new("icmp", scope),
        igmp: Unhandled::new("igmp", scope),
        tcp: Unhandled::new("tcp", scope),
    };
    let ipv4 = Ipv4::new(config.ipv4, next, scope);
    Ethernet::new(config.station, config.vlans, ipv4, Unhandled::new("arp", scope), scope)
}

/// A host: accepts datagrams and segments, answers ARP and ICMP, reports groups.
pub type HostStack = Ethernet<Ipv4<Udp, Icmp, Either<Igmp, Unhandled>, Either<Tcp, Unhandled>>, Arp>;

/// The configuration of a [`HostStack`]'s nodes. [`EgressConfig`](super::EgressConfig) has that of
/// the packets that the host sends by itself.
#[derive(Clone, Copy, Debug)]
pub struct HostStackConfig {
    /// Accepts frames for every MAC address instead of ours alone: for captures. On a wire it also
    /// accepts the frames that a switch floods. By default false.
    pub is_promiscuous: bool,
    /// The VLANs that are accepted; frames of others are counted as `ethernet/drop/other_vlan`. By
    /// default [`Vlans::Untagged`].
    pub vlans: Vlans,
    /// The IPv4 node. By default [`Ipv4Config::new`].
    pub ipv4: Ipv4Config,
    /// The UDP node. By default it verifies checksums that the device has not verified.
    pub udp: UdpConfig,
    /// The ICMP node. By default it answers 100,000 echo requests a second.
    pub icmp: IcmpConfig,
    /// The ARP node. By default [`ArpConfig::new`], which announces our addresses.
    pub arp: ArpConfig,
    /// The IGMP node; None where the kernel holds the memberships, or the network floods: where
    /// neither is the case, groups stop after minutes. By default [`IgmpConfig::new`].
    pub igmp: Option<IgmpConfig>,
    /// The TCP node, for a worker that has connections
    /// ([`Worker::with_tcp`](crate::worker::Worker::with_tcp) panics without it); None where
    /// segments are counted and dropped. By default None.
    pub tcp: Option<TcpNodeConfig>,
}

impl HostStackConfig {
    /// The RFCs' behavior, on untagged frames.
    pub fn new(seed: HashSeed) -> Self {
        Self {
            is_promiscuous: false,
            vlans: Vlans::Untagged,
            ipv4: Ipv4Config::new(seed),
            udp: UdpConfig::default(),
            icmp: IcmpConfig::default(),
            arp: ArpConfig::new(seed),
            igmp: Some(IgmpConfig::new(seed)),
            tcp: None,
        }
    }
}

/// Builds the tree for `host`, and accepts frames to its MAC address only; the nodes' counters go
/// below `scope`. On an interface that the kernel shares, ARP and ICMP receive nothing: the
/// steering rules leave both to the kernel.
pub fn host_stack(config: HostStackConfig, host: &Host, scope: &Scope) -> HostStack {
    let next = Ipv4Successors {
        udp: Udp::new(config.udp, scope),
        icmp: Icmp::new(config.icmp, scope),
        igmp: match config.igmp {
            Some(igmp) => Either::Left(Igmp::new(igmp, host, scope)),
            None => Either::Right(Unhandled::new("igmp", scope)),
        },
        tcp: match config.tcp {
            Some(tcp) => Either::Left(Tcp::new(tcp, scope)),
            None => Either::Right(Unhandled::new("tcp", scope)),
        },
    };
    let ipv4 = Ipv4::new(config.ipv4, next, scope);
    let station = (!config.is_promiscuous).then(|| host.mac());
    Ethernet::new(station, config.vlans, ipv4, Arp::new(config.arp, scope), scope)
}
