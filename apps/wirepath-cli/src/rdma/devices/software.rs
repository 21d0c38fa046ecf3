//! What wirepath itself offers: RoCE version 2 on each Ethernet interface, from its IPv4 addresses.

use std::error::Error;

use rdma::port::largest_mtu;
use wirepath::counters::Block;
use wirepath::worker::kernel::Mirror;

use super::{Gid, Mode, RdmaDevice};
use crate::interface::{Interface, LinkState};

/// `ARPHRD_ETHER` with an address of its own: the loopback has none.
const NO_MAC: &str = "00:00:00:00:00:00";

/// A device on each interface of Ethernet.
pub(super) fn list(interfaces: &[Interface]) -> Result<Vec<RdmaDevice>, Box<dyn Error>> {
    let mirror = Mirror::open(&Block::heap().scope("devices"))?;
    let gids = |interface: &Interface| {
        let addresses = mirror.link(&interface.name).map(|link| mirror.addresses(link)).into_iter().flatten();
        let gid = |(index, prefix): (u32, wirepath::proto::Ipv4Prefix)| Gid {
            index,
            address: prefix.address().to_ipv6_mapped(),
            version: "RoCE v2".to_owned(),
        };
        (0..).zip(addresses).map(gid).collect()
    };
    let is_ethernet =
        |interface: &&Interface| interface.ethernet && interface.mac.as_ref().is_some_and(|mac| mac != NO_MAC);
    let ours = interfaces.iter().filter(is_ethernet);
    Ok(ours.map(|interface| describe(interface, gids(interface))).collect())
}

fn describe(interface: &Interface, gids: Vec<Gid>) -> RdmaDevice {
    let state = match interface.link {
        LinkState::Up if !gids.is_empty() => "active",
        LinkState::Up => "no address",
        LinkState::NoCarrier => "no carrier",
        LinkState::Down => "down",
    };
    let mtu = interface.mtu.and_then(|mtu| largest_mtu(mtu as usize)).map(rdma::roce::Mtu::bytes);
    RdmaDevice {
        name: interface.name.clone(),
        driver: "wirepath".to_owned(),
        mode: Mode::Software,
        state: state.to_owned(),
        mtu,
        rate: interface.speed.map_or("-".to_owned(), |mbps| format!("{} Gbit/s", f64::from(mbps) / 1000.0)),
        uplink: Some(interface.name.clone()),
        description: match mtu {
            Some(_) => format!("wirepath rdma … --via {}", interface.name),
            None => "an MTU below 336 leaves no room for RoCE".to_owned(),
        },
        gids,
        pfc: None,
        ecn: "marks are answered by notifications, and notifications obeyed, by queue pair (DCQCN)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(interface: Interface) -> RdmaDevice {
        let gid = Gid { index: 0, address: "::ffff:10.0.0.1".parse().unwrap(), version: "RoCE v2".into() };
        describe(&interface, vec![gid])
    }

    #[test]
    fn interface_gives_its_mtu_and_rate() {
        let eth1 = Interface { link: LinkState::Up, mtu: Some(1500), speed: Some(2500), ..Interface::default() };
        let device = described(eth1.clone());
        assert_eq!((device.mtu, &*device.rate, &*device.state), (Some(1024), "2.5 Gbit/s", "active"));
        assert_eq!(describe(&eth1, Vec::new()).state, "no address");
    }

    #[test]
    fn link_too_small_for_a_packet_is_said() {
        let device = described(Interface { mtu: Some(300), ..Interface::default() });
        assert_eq!((device.mtu, &*device.state), (None, "down"));
        assert!(device.description.contains("below 336"), "{}", device.description);
    }
}
