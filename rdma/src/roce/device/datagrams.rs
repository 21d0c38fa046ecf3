//! What datagrams need: address handles, and multicast groups.

use core::net::Ipv6Addr;

use super::{Device, DeviceError};
use crate::roce::handle::{AhHandle, PdHandle, QpHandle};
use crate::roce::path::{Path, Template};
use crate::roce::tables::Ah;
use crate::wire::icrc::Network;
use crate::wire::opcode::Transport;
use crate::wire::packet::Packet;
use crate::wire::qpn::Qpn;

const NAME: &str = "address handle";

/// A queue pair of this service may be attached to the group.
pub(crate) fn check_group(transport: Transport, group: Ipv6Addr) -> Result<(), DeviceError> {
    if transport != Transport::Ud {
        return Err(DeviceError::Value("multicast over a connection"));
    }
    match group.to_ipv4_mapped().map_or(group.is_multicast(), |group| group.is_multicast()) {
        true => Ok(()),
        false => Err(DeviceError::Value("address that is no multicast group")),
    }
}

impl Device {
    /// Makes an address handle: the way to the receivers of datagrams.
    ///
    /// # Errors
    /// If the device has no room for it.
    pub fn create_ah(&mut self, pd: PdHandle, path: &Path) -> Result<AhHandle, DeviceError> {
        self.pds.get(pd).ok_or(DeviceError::Unknown("protection domain"))?;
        let made = self.tables.ahs.insert_with(|handle| {
            // The UDP port spreads ways over a network; the receivers are not known here.
            let template = Template::new(path, Qpn::new(handle.idx() + 1), Qpn::new(1));
            // Nothing slows datagrams: a switch that is congested is to drop them.
            let template = template.with_class(path.traffic_class & !0b11);
            Ah { pd, template }
        });
        made.ok_or(DeviceError::Full("address handles"))
    }

    /// Destroys an address handle. Requests that wait and name it fail.
    ///
    /// # Errors
    /// If there is none.
    pub fn destroy_ah(&mut self, handle: AhHandle) -> Result<(), DeviceError> {
        self.tables.ahs.remove(handle).map(drop).ok_or(DeviceError::Unknown(NAME))
    }

    /// Has a queue pair receive the datagrams to a multicast group: an IPv6 address, or one of IPv4
    /// as `::ffff:a.b.c.d`. Whoever carries the device sees to it that they arrive.
    ///
    /// # Errors
    /// If the device has no room for it, the queue pair is not one of datagrams, or the address is
    /// no group.
    pub fn attach_multicast(&mut self, handle: QpHandle, group: Ipv6Addr) -> Result<(), DeviceError> {
        let qp = self.qps.get(handle).ok_or(DeviceError::Unknown("queue pair"))?;
        check_group(qp.transport(), group)?;
        if self.groups.attach(group, handle) { Ok(()) } else { Err(DeviceError::Full("attachments")) }
    }

    /// Ends that.
    ///
    /// # Errors
    /// If it was not attached.
    pub fn detach_multicast(&mut self, handle: QpHandle, group: Ipv6Addr) -> Result<(), DeviceError> {
        if self.groups.detach(group, handle) { Ok(()) } else { Err(DeviceError::Unknown("attachment")) }
    }

    /// Gives a packet to all queue pairs of its group.
    pub(super) fn receive_group(&mut self, now: u64, packet: &Packet<'_>, network: Network<'_>) {
        let group = destination(network);
        let mut from = 0;
        while let Some((member, behind)) = self.groups.next_member(group, from) {
            from = behind;
            if self.is_receiver(member.idx(), packet, network) {
                self.give(now, member.idx(), packet, network);
            }
        }
        self.tables.counters.unknown_groups += u64::from(from == 0);
    }
}

/// True for a packet to a group, or to all of a network.
pub(super) fn is_for_many(network: Network<'_>) -> bool {
    let to = destination(network);
    to.to_ipv4_mapped().map_or(to.is_multicast(), |to| to.is_multicast() || to.is_broadcast())
}

/// Where a packet goes.
fn destination(network: Network<'_>) -> Ipv6Addr {
    match network {
        Network::Ipv4(ip, _) => core::net::Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]).to_ipv6_mapped(),
        Network::Ipv6(ip, _) | Network::Grh(ip) => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&ip[24..]);
            Ipv6Addr::from(octets)
        }
    }
}
