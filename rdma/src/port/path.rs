//! The way to a peer by the host of a worker: its route, and the neighbor on it.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use wirepath::pipeline::Cx;
use wirepath::proto::{NeighborRequest, Resolution, ResolutionCause};

use super::node::RoceNode;
use crate::cm::Resolved;
use crate::roce::{Addresses, DeviceConfig, Link, Mtu, Path};
use crate::wire::psn::Psn;

/// Bytes that a packet may have around its payload: IPv6, UDP and all headers of RoCE (Linux rxe
/// and the drivers of RNICs reserve as much).
const OVERHEAD: usize = 80;

/// The way to a peer, or that it is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// What a queue pair is connected by.
    Known(Path),
    /// The MAC address of the next hop is being resolved: ask again in a later turn.
    Resolving(Ipv4Addr),
}

/// Why there is no way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The address is ours.
    Local(Ipv4Addr),
    /// The address is a group: connections have one peer.
    Group(Ipv4Addr),
    /// No route leads there.
    NoRoute(Ipv4Addr),
    /// RoCEv1: routers do not pass it on, and the peer is not on the link; or a GID that is neither
    /// an IPv4 address nor a link-local one.
    OffLink(Ipv6Addr),
    /// The neighbor's MAC address is not known, and was not requested: too many requests were sent
    /// just now, which a later turn mends; or the table of neighbors is full, or this port resolves
    /// none.
    NeighborMissing(Ipv4Addr),
    /// The port's frames have two VLAN tags, and a frame of RoCE at most one.
    TwoTags,
}

impl RoceNode {
    /// The way to `destination`: neighbors that are not known are requested. Queue pairs and
    /// address handles follow their neighbors: where a MAC address changes, their next packets go
    /// there.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn path(&self, destination: Ipv4Addr, cx: &mut Cx<'_>) -> Result<PathState, PathError> {
        path_to(destination, cx)
    }

    /// The way to a peer by RoCEv1, for a node [`with_v1`](Self::with_v1). A GID that is an IPv4
    /// address (`::ffff:a.b.c.d`) is resolved as [`path`](Self::path) does it, and ours is the
    /// source; a link-local one (`fe80::`) has the peer's MAC address in it, and its source is that
    /// of ours. Both are on the same link.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn path_v1(&self, gid: Ipv6Addr, cx: &mut Cx<'_>) -> Result<PathState, PathError> {
        path_to_gid(gid, cx)
    }

    /// The way to a multicast group on the link, for an address handle, whose datagrams go to
    /// [`Qpn::MULTICAST`](crate::wire::qpn::Qpn::MULTICAST). No router hands them on: another hop
    /// limit is the caller's to set.
    ///
    /// # Errors
    /// [`PathError`]: the address is no group, or no address of ours is there to send from.
    pub fn group_path(&self, group: Ipv4Addr, cx: &Cx<'_>) -> Result<Path, PathError> {
        let Resolution::Group { mac, source } = cx.host.resolve(group, cx.now) else {
            return Err(PathError::NoRoute(group));
        };
        let link = Link { destination: mac.0, source: cx.host.mac().0, vlan: vlan(cx)? };
        Ok(Path { hop_limit: 1, ..Path::new(link, Addresses::Ipv4 { source, destination: group }) })
    }
}

/// The tag of the port's frames.
fn vlan(cx: &Cx<'_>) -> Result<Option<u16>, PathError> {
    match cx.host.vlan().as_slice() {
        [] => Ok(None),
        [tag] => Ok(Some(tag.tci())),
        _ => Err(PathError::TwoTags),
    }
}

/// The way to `destination`, whose neighbor is requested where it is not known.
pub(super) fn path_to(destination: Ipv4Addr, cx: &mut Cx<'_>) -> Result<PathState, PathError> {
    let (mac, source) = match cx.host.resolve(destination, cx.now) {
        Resolution::Station { mac, source } => (mac, source),
        Resolution::NeighborMissing { next_hop, source } => {
            let request = NeighborRequest { next_hop, source, cause: ResolutionCause::App };
            let is_requested = cx.keep_neighbor(request);
            let missing = PathError::NeighborMissing(next_hop);
            return if is_requested { Ok(PathState::Resolving(next_hop)) } else { Err(missing) };
        }
        Resolution::Group { .. } => return Err(PathError::Group(destination)),
        Resolution::Local => return Err(PathError::Local(destination)),
        Resolution::NoRoute => return Err(PathError::NoRoute(destination)),
    };
    let link = Link { destination: mac.0, source: cx.host.mac().0, vlan: vlan(cx)? };
    Ok(PathState::Known(Path::new(link, Addresses::Ipv4 { source, destination })))
}

/// The way to `gid` by RoCEv1, whose neighbor is requested where it is not known.
fn path_to_gid(gid: Ipv6Addr, cx: &mut Cx<'_>) -> Result<PathState, PathError> {
    let Some(address) = gid.to_ipv4_mapped() else {
        let destination = mac_of(gid).ok_or(PathError::OffLink(gid))?;
        let own = cx.host.mac().0;
        let link = Link { destination, source: own, vlan: vlan(cx)? };
        return Ok(PathState::Known(Path::new(link, Addresses::Grh { source: gid_of(own), destination: gid })));
    };
    if cx.host.route(address).is_some_and(|route| route.gateway.is_some()) {
        return Err(PathError::OffLink(gid));
    }
    Ok(match path_to(address, cx)? {
        PathState::Known(path) => {
            let addresses = Addresses::Grh { source: path.addresses.own(), destination: gid };
            PathState::Known(Path { addresses, ..path })
        }
        resolving => resolving,
    })
}

/// The link-local GID of a MAC address, with its modified EUI-64 (RFC 4291, appendix A).
pub(super) const fn gid_of(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from_octets([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The MAC address in a link-local GID, which Linux takes for the peer's too (`rdma_get_ll_mac`).
const fn mac_of(gid: Ipv6Addr) -> Option<[u8; 6]> {
    match gid.octets() {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => Some([a ^ 2, b, c, d, e, f]),
        _ => None,
    }
}

/// The Ethernet header of the way between two addresses, where its neighbor is known: that of a
/// path follows it. Asks nobody.
pub(super) fn link_between(addresses: Addresses, cx: &Cx<'_>) -> Option<Link> {
    let destination = addresses.peer().to_ipv4_mapped()?;
    let Resolution::Station { mac, .. } = cx.host.resolve(destination, cx.now) else { return None };
    Some(Link { destination: mac.0, source: cx.host.mac().0, vlan: None })
}

/// The way between two addresses, for the connection manager.
pub(super) fn resolve(addresses: Addresses, cx: &mut Cx<'_>) -> Resolved {
    let path = match addresses {
        Addresses::Ipv4 { destination, .. } => path_to(destination, cx),
        Addresses::Grh { destination, .. } => path_to_gid(destination, cx),
        Addresses::Ipv6 { .. } => return Resolved::Never,
    };
    match path {
        Ok(PathState::Known(path)) => Resolved::Known(Path { addresses, ..path }),
        Ok(PathState::Resolving(_)) | Err(PathError::NeighborMissing(_)) => Resolved::Wait,
        Err(_) => Resolved::Never,
    }
}

/// The largest payload of a packet on a link of this MTU, with 80 bytes for all headers; `None` for
/// a link below 336 bytes. Linux rxe computes the same, so that both ends agree.
pub fn largest_mtu(link_mtu: usize) -> Option<Mtu> {
    Mtu::ALL.into_iter().rfind(|mtu| mtu.bytes() as usize + OVERHEAD <= link_mtu)
}

/// The largest payload on the link of the port `via`, as `wirepath rdma --via` names it; 1024 bytes
/// where the kernel knows no such interface.
///
/// # Errors
/// The link carries no RoCE, in a sentence.
pub fn mtu_of(via: &str) -> Result<Mtu, String> {
    let Some(mtu) = of_interface(via, "mtu") else { return Ok(Mtu::B1024) };
    largest_mtu(mtu).ok_or_else(|| format!("{via} has an MTU of {mtu}: RoCE needs 336 at least"))
}

/// What a device on the port `via` is made for: the largest payload by [`mtu_of`], the rate by the
/// speed of the link where the kernel knows one, and all else by default.
///
/// # Errors
/// The link carries no RoCE, in a sentence.
pub fn config_of(via: &str) -> Result<DeviceConfig, String> {
    let config = DeviceConfig { mtu: mtu_of(via)?, ..DeviceConfig::default() };
    // -1 is no speed, and parses to none.
    let link_mbps = of_interface(via, "speed").filter(|speed| *speed > 0).unwrap_or(config.link_mbps);
    Ok(DeviceConfig { link_mbps, ..config })
}

/// A number that the kernel has of the port's interface.
fn of_interface<T: core::str::FromStr>(via: &str, file: &str) -> Option<T> {
    let interface = via.rsplit(':').next().unwrap_or(via);
    std::fs::read_to_string(format!("/sys/class/net/{interface}/{file}")).ok()?.trim().parse().ok()
}

/// The number of a first packet: another one each time, so that packets of an earlier connection
/// are not taken for ours.
pub fn first_psn() -> Psn {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Psn::new((now.as_nanos() as u32 ^ std::process::id() << 8) & 0xff_ffff)
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(own) => {
                write!(f, "{own} is this host itself: a peer on the same host is reached by a cable of shared memory")
            }
            Self::Group(group) => write!(f, "{group} is a group, and a connection has one peer"),
            Self::OffLink(gid) => {
                write!(f, "RoCEv1 reaches peers on the link alone, and {gid} is not there: take RoCEv2 for it")
            }
            Self::NoRoute(peer) => write!(f, "no route leads to {peer}: add a route for its network"),
            Self::NeighborMissing(hop) => {
                write!(
                    f,
                    "the MAC address of {hop} is not known, and no request for it was sent: ask again in a later \
                     turn, or add it as a neighbor"
                )
            }
            Self::TwoTags => write!(f, "a frame of RoCE has at most one VLAN tag, and those of this port have two"),
        }
    }
}

impl core::error::Error for PathError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_gid_has_the_mac_address_in_it() {
        let mac = [0x02, 0, 0x5e, 0x10, 0, 0x0a];
        let gid = gid_of(mac);
        assert_eq!(gid, "fe80::5eff:fe10:a".parse::<Ipv6Addr>().unwrap());
        assert_eq!(mac_of(gid), Some(mac));
        for other in ["fe80::1", "fe80:1::5eff:fe10:a", "2001:db8::5eff:fe10:a"] {
            assert_eq!(mac_of(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn mtu_is_the_one_that_rxe_takes() {
        for (link, mtu) in [(1500, Some(1024)), (4200, Some(4096)), (4175, Some(2048)), (336, Some(256)), (335, None)] {
            assert_eq!(largest_mtu(link).map(Mtu::bytes), mtu, "{link}");
        }
    }
}
