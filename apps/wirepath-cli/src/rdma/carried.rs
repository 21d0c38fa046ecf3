//! What carries the packets of an end: a port, a cable to the peer, or a NIC.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ::rdma::cable::{Cable, CableError, CabledDevice, FramedTcp, SharedMemory, SharedMemoryListener, Ticket};
use ::rdma::port::{AnyProvider, NicOptions};
use ::rdma::provider::{Provider, RdmaCore};
use ::rdma::roce::{Addresses, Device, DeviceError, Event, Link, Path};

use super::exchange::Connection;
use super::published::{Published, name_carrier};

/// How long the client may take to connect a second time.
const CABLE_SPAN: Duration = Duration::from_secs(5);

/// Of a NIC, turns between two looks for an event, each a system call.
const TURNS_PER_LOOK: u32 = 1024;

/// A device with what carries its packets.
pub(super) enum Carried {
    /// A port, or a NIC, of which the turns count down to the next look for an event.
    Wire {
        any: AnyProvider,
        turns: u32,
    },
    Cable {
        device: Box<CabledDevice<LateCable>>,
        begun: Instant,
        published: Option<Published>,
    },
}

impl Carried {
    /// A device at the end of a cable that comes once the peer is known.
    pub(super) fn by_cable(device: Device) -> Self {
        let device = CabledDevice::new(device, LateCable(None));
        Self::Cable { device: Box::new(device), begun: Instant::now(), published: None }
    }

    /// A port, or a NIC.
    pub(super) const fn by_wire(any: AnyProvider) -> Self {
        Self::Wire { any, turns: 0 }
    }

    /// A NIC of rdma-core, whose packets have this traffic class.
    pub(super) fn by_nic(nic: RdmaCore, traffic_class: u8) -> Self {
        Self::by_wire(AnyProvider::Nic(Box::new(nic), NicOptions { traffic_class: Some(traffic_class) }))
    }

    /// The device in software, which counts; a NIC's counters are the kernel's.
    pub(super) fn device(&self) -> Option<&Device> {
        match self {
            Self::Wire { any, .. } => any.software(),
            Self::Cable { device, .. } => Some(device.device()),
        }
    }

    pub(super) fn provider(&self) -> &dyn Provider {
        match self {
            Self::Wire { any, .. } => any.provider(),
            Self::Cable { device, .. } => device.device(),
        }
    }

    pub(super) fn provider_mut(&mut self) -> &mut dyn Provider {
        match self {
            Self::Wire { any, .. } => any.provider_mut(),
            Self::Cable { device, .. } => device.device_mut(),
        }
    }

    /// The next event. Of a NIC one is looked for in some turns alone.
    pub(super) fn next_event(&mut self) -> Result<Option<Event>, DeviceError> {
        match self {
            Self::Wire { any: AnyProvider::Nic(..), turns } if *turns % TURNS_PER_LOOK != 0 => Ok(None),
            _ => self.provider_mut().next_event(),
        }
    }

    /// Also of a NIC the next look for an event is one, in this turn.
    pub(super) const fn look_now(&mut self) {
        if let Self::Wire { turns, .. } = self {
            *turns = 0;
        }
    }

    /// One turn; says how much it moved.
    pub(super) fn turn(&mut self) -> Result<usize, CableError> {
        match self {
            Self::Wire { any: any @ AnyProvider::Port(_), .. } => Ok(any.turn()),
            Self::Cable { device, begun, published } => {
                let now = begun.elapsed().as_nanos() as u64;
                let moved = device.turn(now);
                if let Some(published) = published {
                    published.publish(now, device.device());
                }
                moved
            }
            // It moves them itself: no core is given up for each look at its completions.
            Self::Wire { turns, .. } => {
                *turns = turns.wrapping_add(1);
                Ok((*turns % TURNS_PER_LOOK) as usize)
            }
        }
    }

    /// Names for `wirepath stats` what carries the queue pair, and counts for it. What a NIC
    /// carries the kernel counts.
    pub(super) fn publish(&mut self, carrier: &str) {
        match self {
            Self::Wire { any: AnyProvider::Port(port), .. } => name_carrier(&port.port_mut().scope("rdma"), carrier),
            Self::Cable { published, .. } => *published = Published::create(carrier),
            Self::Wire { .. } => (),
        }
    }

    /// True at the end of a cable.
    pub(super) const fn is_cabled(&self) -> bool {
        matches!(self, Self::Cable { .. })
    }

    /// Plugs in a cable of shared memory; why there is none is said by both ends.
    pub(super) fn share_memory(&mut self, connection: &mut Connection) -> Result<Result<(), String>, Box<dyn Error>> {
        Ok(shared_memory(connection)?.map(|cable| self.plug_in(Box::new(cable))))
    }

    /// Plugs in a TCP connection.
    pub(super) fn frame_in_tcp(&mut self, connection: &Connection) -> Result<(), Box<dyn Error>> {
        self.plug_in(Box::new(FramedTcp::new(connection.second(CABLE_SPAN)?)?));
        Ok(())
    }

    fn plug_in(&mut self, cable: Box<dyn Cable>) {
        if let Self::Cable { device, .. } = self {
            device.cable_mut().0 = Some(cable);
        }
    }
}

/// The way over a cable: the addresses in its frames are read by nobody, and the same at both ends.
pub(super) fn cable_path() -> Path {
    let link = Link { destination: [0; 6], source: [0; 6], vlan: None };
    Path::new(link, Addresses::Ipv4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::LOCALHOST })
}

/// A cable, or why there is none. The server says where it listens, the client whether it has come
/// there, and the server whether it has taken it.
fn shared_memory(connection: &mut Connection) -> Result<Result<SharedMemory, String>, Box<dyn Error>> {
    if connection.is_client() {
        let cable = SharedMemory::connect(&Ticket::parse(&connection.read()?));
        let [is_taken] = connection.ask(&[cable.is_ok().into()])?;
        return Ok(match cable {
            Ok(_) if is_taken == 0 => Err("the peer has not taken it".to_owned()),
            cable => cable.map_err(|error| error.to_string()),
        });
    }
    let listener = SharedMemoryListener::new();
    // Nobody listens at 0.
    let ticket = listener.as_ref().map_or(Ticket::parse(&[0; Ticket::LEN]), SharedMemoryListener::ticket);
    connection.write(&ticket.encode())?;
    let [has_come] = connection.read()?;
    let cable = match listener {
        Ok(_) if has_come == 0 => Err("the peer has not reached it".to_owned()),
        Ok(mut listener) => listener.accept().map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    connection.write(&[cable.is_ok().into()])?;
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
