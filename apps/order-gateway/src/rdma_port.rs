//! A port with a RoCE device, which its owner polls: beside the kernel, whose interface it stays.

use std::fmt;
use std::net::Ipv4Addr;

use rdma::mirror::MirrorOptions;
use rdma::port::{RocePort, RocePortOptions};
use rdma::roce::{Addresses, Device, DeviceConfig, Mtu, Path, PdHandle, QpHandle};

use crate::error::Error;

/// The port and its device.
pub struct RdmaPort {
    port: RocePort,
    pd: PdHandle,
}

impl RdmaPort {
    /// Opens the port `via`, as `wirepath rdma --via` names it. Packets have this traffic class.
    ///
    /// # Errors
    ///
    /// There is no such port, or it carries no RoCE: what to do about it.
    pub fn open(via: &str, traffic_class: u8) -> Result<Self, Error> {
        let failed = |error: &dyn fmt::Display| Error::failed(format!("RDMA by {via}: {error}"));
        // A mirror's window, in packets of WRITEs that are longer than the link's.
        let unacknowledged_packets = 4 * MirrorOptions::default().window;
        let device = DeviceConfig { qps: 4, unacknowledged_packets, ..DeviceConfig::default() };
        let options = RocePortOptions {
            device,
            traffic_class: Some(traffic_class),
            ..RocePortOptions::new("order-gateway-rdma")
        };
        let mut port = RocePort::open(via, &options).map_err(|error| failed(&error))?;
        let pd = port.device_mut().create_pd().map_err(|error| failed(&error))?;
        Ok(Self { port, pd })
    }

    /// The device.
    #[inline]
    pub fn device(&mut self) -> &mut Device {
        self.port.device_mut()
    }

    /// The domain of all its objects.
    pub const fn pd(&self) -> PdHandle {
        self.pd
    }

    /// The largest payload of a packet.
    pub const fn mtu(&self) -> Mtu {
        self.port.mtu()
    }

    /// The way to a peer, with our address on it; `None` while its MAC address is being resolved.
    ///
    /// # Errors
    ///
    /// There is no way.
    pub fn path(&mut self, to: Ipv4Addr) -> Result<Option<(Path, Ipv4Addr)>, String> {
        let Some(path) = self.port.path(to).map_err(|error| error.to_string())? else { return Ok(None) };
        match path.addresses {
            Addresses::Ipv4 { source, .. } => Ok(Some((path, source))),
            _ => Err(format!("the way to {to} is none of IPv4")),
        }
    }

    /// Whether requests of a queue pair have not left yet, or must leave again.
    #[inline]
    pub fn has_unsent_requests(&self, qp: QpHandle) -> bool {
        self.port.device().has_unsent_requests(qp)
    }

    /// One turn: receives, answers, sends. Returns how many frames arrived.
    #[inline]
    pub fn turn(&mut self) -> usize {
        self.port.turn()
    }
}

impl fmt::Debug for RdmaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaPort").field("mtu", &self.mtu()).finish_non_exhaustive()
    }
}
