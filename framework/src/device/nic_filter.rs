//! The NIC's filter of destination addresses. A NIC passes to the kernel, and so to the XDP
//! program, only frames to its own MAC address, to broadcast, and to the multicast groups in its
//! filter; the kernel adds those that sockets have joined. We must add the groups that we join
//! ourselves, or the NIC drops their frames before any counter sees them.
//!
//! We add them by a packet socket that receives nothing: the kernel removes them when the socket is
//! closed, also after kill -9 (packet(7), `PACKET_ADD_MEMBERSHIP`).

use std::io;
use std::os::fd::OwnedFd;

use crate::device::steering::Rule;
use crate::sys::socket as sys;
use crate::wire::{EtherType, MacAddr, Protocol};

/// An entry of the NIC's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Frames to one group.
    Group(MacAddr),
    /// Frames to a MAC address beside its own.
    Station(MacAddr),
    /// Frames to every group.
    AllGroups,
}

impl Wanted {
    /// The filter entry that a rule needs on an interface with address `own`; None if the NIC
    /// passes the rule's frames anyway.
    pub(super) fn by(rule: &Rule, own: MacAddr) -> Option<Self> {
        match (rule.destination_mac, rule.destination) {
            (Some(mac), _) if mac == own || mac == MacAddr::BROADCAST => None,
            (Some(mac), _) if mac.is_multicast() => Some(Self::Group(mac)),
            (Some(mac), _) => Some(Self::Station(mac)),
            (None, Some(group)) if group.is_multicast() => Some(Self::Group(MacAddr::multicast_ipv4(group))),
            (None, Some(_)) => None,
            (None, None) => may_be_to_any_group(rule).then_some(Self::AllGroups),
        }
    }
}

/// ARP goes to none. IGMP itself goes to groups that pass: all systems, or one that another rule
/// names. Which groups another Ethernet type has is its protocol's affair (PTP, LLDP).
fn may_be_to_any_group(rule: &Rule) -> bool {
    rule.ethertype != Some(EtherType::ARP) && matches!(rule.protocol, None | Some(Protocol::UDP))
}

/// Our entries in one NIC's filter.
pub(super) struct NicFilter {
    socket: OwnedFd,
    interface: u32,
}

impl NicFilter {
    /// Without entries, for interface number `interface` of the calling thread's network namespace.
    pub(super) fn open(interface: u32) -> io::Result<Self> {
        // Protocol 0: no frame is ever queued on it.
        Ok(Self { socket: sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?, interface })
    }

    /// Adds an entry for one more rule. The kernel counts users; beyond the capacity of the NIC's
    /// filter it passes all groups.
    pub(super) fn add(&self, wanted: Wanted) -> io::Result<()> {
        self.change(libc::PACKET_ADD_MEMBERSHIP, wanted)
    }

    /// Removes the entry for one rule.
    pub(super) fn remove(&self, wanted: Wanted) {
        // If the interface is gone, so are its entries.
        let _ = self.change(libc::PACKET_DROP_MEMBERSHIP, wanted);
    }

    fn change(&self, option: i32, wanted: Wanted) -> io::Result<()> {
        let (kind, mac) = match wanted {
            Wanted::Group(mac) => (libc::PACKET_MR_MULTICAST, mac),
            Wanted::Station(mac) => (libc::PACKET_MR_UNICAST, mac),
            Wanted::AllGroups => (libc::PACKET_MR_ALLMULTI, MacAddr::ZERO),
        };
        let request = sys::PacketRequest::new(self.interface, kind as u16, mac.0);
        sys::set_packet_option(&self.socket, option, &request)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    #[test]
    fn rules_ask_for_no_more_than_they_name() {
        let udp = Rule { ethertype: Some(EtherType::IPV4), protocol: Some(Protocol::UDP), ..Rule::ALL };
        let other = MacAddr([2, 0, 0, 0, 0, 2]);
        let group = Wanted::Group(MacAddr::multicast_ipv4(GROUP));
        for (rule, wanted) in [
            (Rule { destination: Some(GROUP), ..udp }, Some(group)),
            (Rule { destination_mac: Some(MacAddr::multicast_ipv4(GROUP)), ..Rule::ALL }, Some(group)),
            (Rule { destination: Some(Ipv4Addr::new(10, 0, 0, 1)), ..udp }, None),
            (Rule { destination_mac: Some(OWN), ..Rule::ALL }, None),
            (Rule { destination_mac: Some(MacAddr::BROADCAST), ..Rule::ALL }, None),
            (Rule { destination_mac: Some(other), ..Rule::ALL }, Some(Wanted::Station(other))),
            (Rule { destination_port: Some(9), ..udp }, Some(Wanted::AllGroups)),
            (Rule::ALL, Some(Wanted::AllGroups)),
            (Rule { ethertype: Some(EtherType::ARP), ..Rule::ALL }, None),
            (Rule { ethertype: Some(EtherType(0x88f7)), ..Rule::ALL }, Some(Wanted::AllGroups)),
            (Rule { protocol: Some(Protocol::IGMP), ..udp }, None),
        ] {
            assert_eq!(Wanted::by(&rule, OWN), wanted, "{rule}");
        }
    }
}
