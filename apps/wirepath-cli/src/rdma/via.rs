//! The port to a peer, where the user names none: that of the kernel's route.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use ::rdma::wire::ROCE_PORT;
use wirepath::counters::Block;
use wirepath::worker::kernel::Mirror;

use crate::interface::Interface;
use crate::root::Root;

/// The interface over which the kernel reaches `peer`.
pub(super) fn to(peer: Ipv4Addr) -> Result<String, String> {
    let choose = "choose the interface by --via";
    // Nothing is sent: a datagram socket that is connected has the address of its route.
    let source = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect((peer, ROCE_PORT)).and_then(|()| socket.local_addr()))
        .map_err(|error| format!("the kernel has no route to {peer}: {error}; {choose}"))?;
    let IpAddr::V4(source) = source.ip() else { return Err(format!("the route to {peer} is none of IPv4; {choose}")) };
    if source == peer {
        return Err(format!("{peer} is an address of this host, and RoCE needs another host; {choose}"));
    }
    let mirror = Mirror::open(&Block::heap().scope("route")).map_err(|error| format!("{error}; {choose}"))?;
    let has_it = |interface: &Interface| {
        let addresses = mirror.link(&interface.name).map(|link| mirror.addresses(link));
        addresses.into_iter().flatten().any(|prefix| prefix.address() == source)
    };
    let found = Interface::list(&Root::new(None)).into_iter().find(has_it);
    let name = found.ok_or_else(|| format!("no interface has {source}, from which {peer} is reached; {choose}"))?.name;
    eprintln!("wirepath: {peer} is reached over {name}, as the kernel routes to it");
    Ok(name)
}
