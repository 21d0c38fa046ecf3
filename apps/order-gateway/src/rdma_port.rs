//! A port with a RoCE device, which its owner polls: beside the kernel, whose interface it stays.

use std::fmt;
use std::net::Ipv4Addr;

use rdma::mirror::MirrorOptions;
use rdma::port::{PathError, PathState, RoceNode, config_of, subscription};
use rdma::roce::{Addresses, Device, DeviceConfig, Mtu, Path, PdHandle, QpHandle};
use wirepath::port::{EmbeddedPort, Port};

use crate::error::Error;

/// The port and its device.
pub struct RdmaPort {
    port: EmbeddedPort<RoceNode>,
    pd: PdHandle,
    mtu: Mtu,
    traffic_class: u8,
}

impl RdmaPort {
    /// Opens the port `via`, as `wirepath rdma --via` names it. Packets have this traffic class.
    ///
    /// # Errors
    ///
    /// There is no such port, or it carries no RoCE: what to do about it.
    pub fn open(via: &str, traffic_class: u8) -> Result<Self, Error> {
        let failed = |error: &dyn fmt::Display| Error::failed(format!("RDMA by {via}: {error}"));
        let config = config_of(via).map_err(|why| failed(&why))?;
        // A mirror's window, in packets of WRITEs that are longer than the link's.
        let unacknowledged_packets = 4 * MirrorOptions::default().window;
        let node = RoceNode::new(&DeviceConfig { qps: 4, unacknowledged_packets, ..config });
        let port = Port::open(via).map_err(|error| failed(&error))?;
        let port = port.named("order-gateway-rdma").subscribe(subscription());
        let mut port = port.embed(node).map_err(|error| failed(&error))?;
        let scope = port.scope("rdma");
        port.app_mut().count_in(&scope, 1);
        let pd = port.app_mut().device_mut().create_pd().map_err(|error| failed(&error))?;
        // From the first turn on the port's frames come here and not to the kernel.
        port.poll();
        Ok(Self { port, pd, mtu: config.mtu, traffic_class })
    }

    /// The device.
    #[inline]
    pub fn device(&mut self) -> &mut Device {
        self.port.app_mut().device_mut()
    }

    /// The domain of all its objects.
    pub const fn pd(&self) -> PdHandle {
        self.pd
    }

    /// The largest payload of a packet.
    pub const fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// The way to a peer, with our address on it; `None` while its MAC address is being resolved.
    ///
    /// # Errors
    ///
    /// There is no way.
    pub fn path(&mut self, to: Ipv4Addr) -> Result<Option<(Path, Ipv4Addr)>, String> {
        match self.port.with_app(|node, cx| node.path(to, cx)) {
            Ok(PathState::Known(path)) => match path.addresses {
                Addresses::Ipv4 { source, .. } => {
                    Ok(Some((Path { traffic_class: self.traffic_class, ..path }, source)))
                }
                _ => Err(format!("the way to {to} is none of IPv4")),
            },
            // Too many requests at once: a later turn asks.
            Ok(PathState::Resolving(_)) | Err(PathError::NeighborMissing(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether requests of a queue pair have not left yet, or must leave again.
    #[inline]
    pub fn has_unsent_requests(&self, qp: QpHandle) -> bool {
        self.port.app().device().has_unsent_requests(qp)
    }

    /// One turn: receives, answers, sends. Returns how many frames arrived.
    #[inline]
    pub fn turn(&mut self) -> usize {
        self.port.poll()
    }
}

impl fmt::Debug for RdmaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaPort").field("mtu", &self.mtu).finish_non_exhaustive()
    }
}
