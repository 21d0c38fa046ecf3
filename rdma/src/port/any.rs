//! A device that is chosen by its name: a NIC of rdma-core, or the RoCE of this package on a port.

use core::net::Ipv4Addr;
use std::net::{IpAddr, UdpSocket};
use std::path::Path as FilePath;

use super::{RocePort, RocePortOptions};
use crate::provider::{Provider, RdmaCore};
use crate::roce::{Addresses, Device, Link, Path};
use crate::wire::ROCE_PORT;

/// Either provider, for one program over both:
///
/// ```no_run
/// use rdma::port::{AnyProvider, RocePortOptions};
///
/// let name = std::env::args().nth(1).expect("mlx5_0, or eth1");
/// let mut device = AnyProvider::open(&name, &RocePortOptions::new("ticks"))?;
/// let pd = device.provider_mut().create_pd().map_err(|error| error.to_string())?;
/// let path = loop {
///     if let Some(path) = device.path([192, 0, 2, 1].into())? {
///         break path;
///     }
///     device.turn();
/// };
/// # let _ = (pd, path);
/// # Ok::<(), String>(())
/// ```
pub enum AnyProvider {
    /// RoCE in software on a port, which its owner's turns move.
    Port(Box<RocePort>),
    /// A NIC, which moves its packets itself.
    Nic(Box<RdmaCore>, NicOptions),
}

/// What a NIC has of the options of a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct NicOptions {
    /// As of [`RocePortOptions::traffic_class`]. By default `None`: ECN-capable packets.
    pub traffic_class: Option<u8>,
}

impl AnyProvider {
    /// Opens the device of this name: a NIC as `wirepath rdma devices` names it (`mlx5_0`), or else
    /// a port as [`RocePort::open`] does (`eth1`). Of the options a NIC has the traffic class
    /// alone; its connections are the kernel's, and so are its counters.
    ///
    /// # Errors
    /// There is neither, or it carries no RoCE: what to do about it.
    pub fn open(name: &str, options: &RocePortOptions) -> Result<Self, String> {
        if !is_nic(name) {
            return Ok(Self::Port(Box::new(RocePort::open(name, options)?)));
        }
        let nic = RdmaCore::open(name).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self::Nic(Box::new(nic), NicOptions { traffic_class: options.traffic_class }))
    }

    /// The verbs.
    pub fn provider(&self) -> &dyn Provider {
        match self {
            Self::Port(port) => port.device(),
            Self::Nic(nic, _) => &**nic,
        }
    }

    /// The verbs, to make objects, to post and to poll.
    pub fn provider_mut(&mut self) -> &mut dyn Provider {
        match self {
            Self::Port(port) => port.device_mut(),
            Self::Nic(nic, _) => &mut **nic,
        }
    }

    /// The device in software, which counts; the counters of a NIC are the kernel's.
    pub fn software(&self) -> Option<&Device> {
        match self {
            Self::Port(port) => Some(port.device()),
            Self::Nic(..) => None,
        }
    }

    /// One turn: receives, answers, sends. Returns how many frames arrived. A NIC needs none, and
    /// returns 0.
    pub fn turn(&mut self) -> usize {
        match self {
            Self::Port(port) => port.turn(),
            Self::Nic(..) => 0,
        }
    }

    /// The way to a peer; `None` while its MAC address is being resolved, which takes turns. That
    /// of a NIC begins at the address from which the kernel reaches the peer, and the kernel finds
    /// the MAC address when a queue pair is connected.
    ///
    /// # Errors
    /// There is no way.
    pub fn path(&mut self, to: Ipv4Addr) -> Result<Option<Path>, String> {
        match self {
            Self::Port(port) => port.path(to).map_err(|error| error.to_string()),
            Self::Nic(nic, options) => nic_path(nic, to, *options).map(Some),
        }
    }
}

/// Whether the kernel has an RDMA device of this name.
fn is_nic(name: &str) -> bool {
    let is_name = !name.is_empty() && !name.contains('/') && name != ".." && name != ".";
    is_name && FilePath::new("/sys/class/infiniband").join(name).exists()
}

fn nic_path(nic: &RdmaCore, peer: Ipv4Addr, options: NicOptions) -> Result<Path, String> {
    let source = source_to(peer)?;
    if !nic.gids().any(|gid| gid == source.to_ipv6_mapped()) {
        return Err(format!(
            "the kernel reaches {peer} from {source}, which is no GID of the NIC: choose another one, or give its \
             interface an address of the peer's network"
        ));
    }
    // The kernel resolves the addresses of the link.
    let link = Link { destination: [0; 6], source: [0; 6], vlan: None };
    let path = Path::new(link, Addresses::Ipv4 { source, destination: peer });
    Ok(Path { traffic_class: options.traffic_class.unwrap_or(path.traffic_class), ..path })
}

/// The address of ours from which the kernel sends to `peer`. Nothing is sent: a datagram socket
/// that is connected has the address of its route.
///
/// # Errors
/// The kernel has no route there, or none of IPv4.
pub fn source_to(peer: Ipv4Addr) -> Result<Ipv4Addr, String> {
    let source = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect((peer, ROCE_PORT)).and_then(|()| socket.local_addr()))
        .map_err(|error| format!("the kernel has no route to {peer}: {error}"))?;
    match source.ip() {
        IpAddr::V4(source) => Ok(source),
        IpAddr::V6(_) => Err(format!("the route to {peer} is none of IPv4")),
    }
}
