//! What carries the packets of an end: a port, or a cable to the peer.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ::rdma::cable::{Cable, CableError, CabledDevice, Carrier, FramedTcp, SharedMemory, Ticket};
use ::rdma::port::RoceNode;
use ::rdma::roce::{Addresses, Device, Link, Path};
use wirepath::port::EmbeddedPort;

use super::exchange::Connection;

/// How long the client may take to connect a second time.
const CABLE_SPAN: Duration = Duration::from_secs(5);

/// A device with what carries its packets.
pub(super) enum Carried {
    Port(Box<EmbeddedPort<RoceNode>>),
    Cable { device: Box<CabledDevice<LateCable>>, begun: Instant },
}

impl Carried {
    /// A device at the end of a cable that comes once the peer is known.
    pub(super) fn by_cable(device: Device) -> Self {
        let device = CabledDevice::new(device, LateCable(None));
        Self::Cable { device: Box::new(device), begun: Instant::now() }
    }

    pub(super) fn device(&self) -> &Device {
        match self {
            Self::Port(port) => port.app().device(),
            Self::Cable { device, .. } => device.device(),
        }
    }

    pub(super) fn device_mut(&mut self) -> &mut Device {
        match self {
            Self::Port(port) => port.app_mut().device_mut(),
            Self::Cable { device, .. } => device.device_mut(),
        }
    }

    /// One turn; says how much it moved.
    pub(super) fn turn(&mut self) -> Result<usize, CableError> {
        match self {
            Self::Port(port) => Ok(port.poll()),
            Self::Cable { device, begun } => device.turn(begun.elapsed().as_nanos() as u64),
        }
    }

    /// Plugs the cable in that the peer makes too; a port needs none.
    pub(super) fn join(&mut self, carrier: Carrier, connection: &mut Connection) -> Result<(), Box<dyn Error>> {
        let Self::Cable { device, .. } = self else { return Ok(()) };
        let cable: Box<dyn Cable> = match carrier {
            Carrier::FramedTcp => Box::new(FramedTcp::new(connection.second(CABLE_SPAN)?)?),
            _ => Box::new(shared_memory(connection)?),
        };
        device.cable_mut().0 = Some(cable);
        Ok(())
    }
}

/// The way over a cable: the addresses in its frames are read by nobody, and the same at both ends.
pub(super) fn cable_path() -> Path {
    let link = Link { destination: [0; 6], source: [0; 6], vlan: None };
    Path::new(link, Addresses::Ipv4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::LOCALHOST })
}

/// The server makes it, and tells the client where it is.
fn shared_memory(connection: &mut Connection) -> Result<SharedMemory, Box<dyn Error>> {
    if connection.is_client() {
        let ticket = Ticket::parse(&connection.read()?);
        return Ok(SharedMemory::open(&ticket).map_err(|error| {
            format!("the memory of the peer's end cannot be reached: {error}; run both as one user, or take --over tcp")
        })?);
    }
    let cable = SharedMemory::create().map_err(|error| format!("no memory to share with the peer: {error}"))?;
    connection.write(&cable.ticket().encode())?;
    Ok(cable)
}

/// A cable that is not there before the peer is known.
pub(super) struct LateCable(Option<Box<dyn Cable>>);

impl Cable for LateCable {
    fn has_room(&mut self) -> Result<bool, CableError> {
        self.0.as_mut().map_or(Ok(false), |cable| cable.has_room())
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), CableError> {
        self.0.as_mut().map_or(Ok(()), |cable| cable.send(frame))
    }

    fn flush(&mut self) -> Result<(), CableError> {
        self.0.as_mut().map_or(Ok(()), |cable| cable.flush())
    }

    fn receive(&mut self, frame: &mut [u8]) -> Result<Option<usize>, CableError> {
        self.0.as_mut().map_or(Ok(None), |cable| cable.receive(frame))
    }
}
