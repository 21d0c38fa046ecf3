//! The usual tree, ready made: Ethernet, IPv4 and UDP, with everything else counted and let go. An application that
//! wants other branches builds its own in the same few lines.

use super::ethernet::{Ethernet, Vlans};
use super::ipv4::{Ipv4, Ipv4Config, Ipv4Successors};
use super::udp::{Udp, UdpConfig};
use super::unhandled::Unhandled;
use crate::counters::Scope;
use crate::wire::MacAddr;

/// Datagrams in, nothing else.
pub type UdpStack = Ethernet<Ipv4<Udp, Unhandled, Unhandled, Unhandled>, Unhandled>;

/// What the nodes of a [`UdpStack`] need to know.
#[derive(Clone, Copy, Debug)]
pub struct StackConfig {
    /// Our station; `None` takes every frame, for replays.
    pub station: Option<MacAddr>,
    /// Which VLANs to take.
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
