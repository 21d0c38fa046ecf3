//! The port to a peer, where the user names none: that of the kernel's route.

use std::net::Ipv4Addr;

use ::rdma::port::source_to;
use wirepath::counters::Block;
use wirepath::worker::kernel::Mirror;

use crate::interface::Interface;
use crate::root::Root;

/// What a caller of these may do where they fail.
const CHOOSE: &str = "choose the interface by --via";

/// The interface over which the kernel reaches `peer`.
pub(super) fn to(peer: Ipv4Addr) -> Result<String, String> {
    let source = source_to(peer).map_err(|why| format!("{why}; {CHOOSE}"))?;
    if source == peer {
        return Err(format!("{peer} is an address of this host, and RoCE needs another host; {CHOOSE}"));
    }
    let name = with(source)?;
    eprintln!("wirepath: {peer} is reached over {name}, as the kernel routes to it");
    Ok(name)
}

/// The interface that has this address of ours.
pub(super) fn with(address: Ipv4Addr) -> Result<String, String> {
    let mirror = Mirror::open(&Block::heap().scope("route")).map_err(|error| format!("{error}; {CHOOSE}"))?;
    let has_it = |interface: &Interface| {
        let addresses = mirror.link(&interface.name).map(|link| mirror.addresses(link));
        addresses.into_iter().flatten().any(|prefix| prefix.address() == address)
    };
    let found = Interface::list(&Root::new(None)).into_iter().find(has_it);
    Ok(found.ok_or_else(|| format!("no interface has {address}; {CHOOSE}"))?.name)
}

/// Whether this host has the address: all of 127/8, and secondary addresses, from which the kernel
/// does not send to themselves.
pub(super) fn is_local(address: Ipv4Addr) -> bool {
    address.is_loopback() || source_to(address).is_ok_and(|source| source == address) || with(address).is_ok()
}
