//! A port with a RoCE device, opened in one call: beside the kernel, whose interface it stays.

use core::net::Ipv4Addr;

use wirepath::port::{EmbeddedPort, Named, Port, PortSource};
use wirepath::worker::StopFlag;

use super::node::{RoceNode, subscription};
use super::path::{PathError, PathState, config_of};
use crate::cm::{CmConfig, Manager};
use crate::roce::{Device, DeviceConfig, Mtu, Path};

/// How a port is opened.
#[derive(Clone, Debug)]
pub struct RocePortOptions {
    /// What `wirepath stats` calls the process. The device's counters are below `rdma`.
    pub name: String,
    /// The device. Its MTU and the speed of its link are those of the interface.
    pub device: DeviceConfig,
    /// The largest payload of a packet; `None` for the largest that the link carries.
    pub mtu: Option<Mtu>,
    /// A connection manager beside the device.
    pub manager: Option<CmConfig>,
    /// Queue pairs with counters of their own ([`RoceNode::count_in`]).
    pub rows: u32,
    /// DSCP in the upper six bits and ECN in the lower two, of the paths that [`RocePort::path`]
    /// returns; `None` for ECN-capable packets, as [`Path::new`] has them.
    pub traffic_class: Option<u8>,
    /// Ends the port's own threads.
    pub stop: Option<StopFlag>,
}

impl RocePortOptions {
    /// A device of the usual sizes, with one row of counters.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            device: DeviceConfig::default(),
            mtu: None,
            manager: None,
            rows: 1,
            traffic_class: None,
            stop: None,
        }
    }
}

/// A port with a RoCE device, which its owner polls.
pub struct RocePort<S: PortSource = Named> {
    port: EmbeddedPort<RoceNode, S>,
    mtu: Mtu,
    traffic_class: Option<u8>,
}

impl RocePort {
    /// Opens the port `via`, as `wirepath rdma --via` names it. From now on its datagrams to UDP
    /// port 4791 come here and not to the kernel.
    ///
    /// # Errors
    /// There is no such port, or it carries no RoCE: what to do about it.
    pub fn open(via: &str, options: &RocePortOptions) -> Result<Self, String> {
        Self::over(Port::open(via).map_err(|error| error.to_string())?, via, options)
    }
}

impl<S: PortSource> RocePort<S> {
    /// The same over a port with options of its own. What the kernel knows of the interface of
    /// `via` says MTU and speed.
    ///
    /// # Errors
    /// As of [`RocePort::open`].
    pub fn over(port: Port<S>, via: &str, options: &RocePortOptions) -> Result<Self, String> {
        let link = config_of(via)?;
        let mtu = options.mtu.unwrap_or(link.mtu);
        if mtu > link.mtu {
            return Err(format!(
                "the link of {via} carries payloads of up to {} bytes, and not of {mtu}: take a smaller MTU for \
                 RoCE, or a larger one for the interface",
                link.mtu
            ));
        }
        let node = RoceNode::new(&DeviceConfig { mtu, link_mbps: link.link_mbps, ..options.device });
        let node = match &options.manager {
            Some(manager) => node.with_manager(manager),
            None => node,
        };
        let port = port.named(&options.name).subscribe(subscription());
        let port = match &options.stop {
            Some(stop) => port.stop_by(stop),
            None => port,
        };
        let mut port = port.embed(node).map_err(|error| error.to_string())?;
        if options.rows > 0 {
            let scope = port.scope("rdma");
            port.app_mut().count_in(&scope, options.rows);
        }
        // From the first turn on the frames come here: a peer that is told of a queue pair may
        // send at once.
        port.poll();
        Ok(Self { port, mtu, traffic_class: options.traffic_class })
    }

    /// The largest payload of a packet.
    pub const fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &Device {
        self.port.app().device()
    }

    /// The device, to post and to poll.
    #[inline]
    pub fn device_mut(&mut self) -> &mut Device {
        self.port.app_mut().device_mut()
    }

    /// The port, for its counters and for a thread that sleeps.
    pub const fn port_mut(&mut self) -> &mut EmbeddedPort<RoceNode, S> {
        &mut self.port
    }

    /// One turn: receives, answers, sends. Returns how many frames arrived.
    #[inline]
    pub fn turn(&mut self) -> usize {
        self.port.poll()
    }

    /// The way to a peer; `None` while its MAC address is being resolved, which takes turns.
    ///
    /// # Errors
    /// There is no way.
    pub fn path(&mut self, to: Ipv4Addr) -> Result<Option<Path>, PathError> {
        match self.port.with_app(|node, cx| node.path(to, cx)) {
            Ok(PathState::Known(path)) => {
                let traffic_class = self.traffic_class.unwrap_or(path.traffic_class);
                Ok(Some(Path { traffic_class, ..path }))
            }
            // Too many requests at once: a later turn asks.
            Ok(PathState::Resolving(_)) | Err(PathError::NeighborMissing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Calls the connection manager with the time, in nanoseconds, and the device that it connects;
    /// `None` where the port was opened without one.
    pub fn with_manager<T>(&mut self, call: impl FnOnce(u64, &mut Manager, &mut Device) -> T) -> Option<T> {
        self.port.with_app(|node, cx| {
            let (manager, device) = node.manager_mut()?;
            Some(call(cx.now.as_nanos(), manager, device))
        })
    }
}
