//! Multicast through a snooping switch: the visible one is the Linux bridge that the interface is,
//! or is a port of.

use wirepath::worker::topology::Finding;

use super::finding::{good, note, warning};
use super::inspected::{Inspected, Nic};

/// A snooping bridge forwards a group only to ports that reported it, and expires reports that no
/// querier refreshes, after 260 s (RFC 3376 8.4). A Linux bridge that never saw a querier floods
/// instead; other switches stop forwarding the groups.
pub(super) fn snooping(inspected: &Inspected) -> Vec<Finding> {
    let Some(nic) = &inspected.nic else { return Vec::new() };
    let Some((bridge, folder)) = bridge(inspected, nic) else {
        // Only a physical port has a switch that is out of sight.
        return match nic.interface.pci {
            None => Vec::new(),
            Some(_) => note(
                format!(
                    "whether the switch behind {} snoops IGMP, and who its querier is, cannot be seen from here",
                    nic.name()
                ),
                format!("look for queries: `timeout 130 tcpdump -c 1 -ni {} igmp and dst 224.0.0.1`", nic.name()),
            ),
        };
    };
    let setting = |name: &str| inspected.root.number::<u32>(&format!("{folder}/{name}"));
    if setting("multicast_snooping").unwrap_or(0) == 0 {
        return good(format!("the bridge {bridge} floods multicast to all ports: memberships do not matter there"));
    }
    if setting("multicast_querier").unwrap_or(0) != 0 {
        return good(format!("the bridge {bridge} snoops IGMP and asks for memberships itself"));
    }
    warning(
        format!(
            "the bridge {bridge} snoops IGMP and does not ask: without a querier elsewhere it floods every group to all ports, \
             and other switches let groups run dry after 260 s"
        ),
        format!("`ip link set dev {bridge} type bridge mcast_querier 1`"),
    )
}

/// The bridge's name and its folder of settings.
fn bridge(inspected: &Inspected, nic: &Nic) -> Option<(String, String)> {
    let own = nic.file("bridge");
    if inspected.root.has(&own) {
        return Some((nic.name().to_owned(), own));
    }
    let folder = nic.file("brport/bridge");
    let uevent = inspected.root.read(&format!("{folder}/uevent"))?;
    let name = uevent.lines().find_map(|line| line.strip_prefix("INTERFACE="))?;
    Some((name.to_owned(), format!("{folder}/bridge")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds_on;
    use super::*;
    use crate::interface::Interface;

    fn nic(pci: Option<&str>) -> Option<Nic> {
        let interface = Interface { name: "eth1".into(), pci: pci.map(str::to_owned), ..Interface::default() };
        Some(Nic { interface, ..Nic::default() })
    }

    #[test]
    fn snooping_port_without_a_querier_is_a_warning() {
        let folder = "sys/class/net/eth1/brport/bridge";
        let names =
            ["uevent", "bridge/multicast_snooping", "bridge/multicast_querier"].map(|name| format!("{folder}/{name}"));
        let files = |snooping, querier| {
            [(&*names[0], "DEVTYPE=bridge\nINTERFACE=br7\nIFINDEX=4\n"), (&*names[1], snooping), (&*names[2], querier)]
        };
        let remedy = "ip link set dev br7 type bridge mcast_querier 1";
        finds_on(nic(None), snooping, &files("1", "0"), "warning", "br7 snoops IGMP and does not ask", remedy);
        finds_on(nic(None), snooping, &files("1", "1"), "good", "asks for memberships itself", "");
        finds_on(nic(None), snooping, &files("0", "0"), "good", "floods", "");
    }

    #[test]
    fn bridge_itself_is_looked_at_too() {
        let files = [("sys/class/net/eth1/bridge/multicast_snooping", "1")];
        finds_on(nic(None), snooping, &files, "warning", "the bridge eth1 snoops", "dev eth1");
    }

    #[test]
    fn switch_out_of_sight_is_a_note_with_a_way_to_see() {
        finds_on(nic(Some("0000:3b:00.0")), snooping, &[], "note", "cannot be seen", "tcpdump -c 1 -ni eth1");
    }
}
