//! The ConnectX devices of a machine, queried without opening a queue: for `wirepath devices`, and
//! for a choice of device.

use std::io;

use rdma_core_sys::RdmaCore;
use rdma_core_sys::verbs::{Device as VerbsDevice, LinkLayer, PortState, VerbsError};

use super::capabilities::DeviceCapabilities;
use super::find::{self, SysfsDevice};
use crate::device::DeviceError;
use crate::device::mlx5::error::Mlx5SetupError;

/// A verbs device, and its reported properties.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlx5DeviceInfo {
    /// The verbs name.
    pub name: String,
    /// The address of the PCI function, if it has one.
    pub pci: Option<String>,
    /// The network interfaces of the same function.
    pub interfaces: Vec<String>,
    /// The capabilities, or why it cannot be used: one sentence.
    pub capabilities: Result<Mlx5Capabilities, String>,
}

/// The capabilities of a ConnectX.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlx5Capabilities {
    /// The version of its firmware.
    pub firmware: String,
    /// Its ports, from 1.
    pub ports: Vec<Mlx5Port>,
    /// Each feature that [`Mlx5Config`](crate::device::mlx5::Mlx5Config) can request, with its
    /// variant, or why it is absent.
    pub features: Vec<(&'static str, Result<String, String>)>,
}

/// A port of a ConnectX.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mlx5Port {
    /// Whether it is an Ethernet port, rather than InfiniBand.
    pub is_ethernet: bool,
    /// Whether it has a link.
    pub is_up: bool,
    /// Gigabits per second; 0 if not reported.
    pub gbps: f32,
}

impl Mlx5DeviceInfo {
    /// All verbs devices of this machine. Opens each and changes nothing.
    ///
    /// # Errors
    /// rdma-core is not installed, or is too old; one sentence with the command to run.
    pub fn list() -> Result<Vec<Self>, DeviceError> {
        let core = RdmaCore::load().map_err(|error| Mlx5SetupError::NoRdmaCore { reason: error.to_string() })?;
        let devices = core.devices().map_err(|error| verbs("rdma-core", "listing verbs devices", error))?;
        let listed = find::list(&find::sysfs_root(), devices.iter().map(|device| device.name().to_owned()));
        let mut found: Vec<_> = devices.iter().zip(listed).map(|(device, listed)| Self::of(device, listed)).collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn of(device: &VerbsDevice, listed: SysfsDevice) -> Self {
        let capabilities = Mlx5Capabilities::ask(device, &listed).map_err(|error| error.to_string());
        Self { name: listed.name, pci: listed.pci, interfaces: listed.interfaces, capabilities }
    }
}

impl Mlx5Capabilities {
    fn ask(device: &VerbsDevice, listed: &SysfsDevice) -> Result<Self, Mlx5SetupError> {
        if !device.is_mlx5() {
            return Err(Mlx5SetupError::OtherVendor { device: listed.name.clone(), driver: listed.driver.clone() });
        }
        let context = device
            .open()
            .map_err(|error| Mlx5SetupError::Opening { device: listed.name.clone(), error: system(error) })?;
        let capabilities =
            DeviceCapabilities::read(&context).map_err(|error| verbs(&listed.name, "asking what it can do", error))?;
        let port = |number| {
            let port = context.port(number).map_err(|error| verbs(&listed.name, "asking for its port", error))?;
            Ok(Mlx5Port {
                is_ethernet: port.link_layer == LinkLayer::Ethernet,
                is_up: port.state == PortState::Active,
                gbps: port.speed_gbps,
            })
        };
        let ports = (1..=capabilities.device.port_count).map(port).collect::<Result<_, Mlx5SetupError>>()?;
        Ok(Self { ports, features: capabilities.describe(), firmware: capabilities.device.firmware })
    }
}

fn system(error: VerbsError) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

fn verbs(device: &str, doing: &'static str, error: VerbsError) -> Mlx5SetupError {
    Mlx5SetupError::verbs(device, doing, 0, system(error))
}
