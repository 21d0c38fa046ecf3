//! The devices that the library was built with, for the port names that need them. Each device has
//! a feature of the same name.

use std::path::Path;

use super::error::Error;
#[cfg(not(feature = "pcap"))]
use crate::device::Absent;
#[cfg(feature = "af-xdp")]
use crate::device::af_xdp::AfXdpConfig;
#[cfg(feature = "mlx5")]
use crate::device::mlx5::{Feature, Mlx5Config};
#[cfg(feature = "pcap")]
use crate::device::pcap::{PcapConfig, PcapDevice};
use crate::worker::live::PortConfig;

/// A capture file.
#[cfg(feature = "pcap")]
pub(super) type Capture = PcapDevice;
#[cfg(not(feature = "pcap"))]
pub(super) type Capture = Absent;

/// An interface over AF_XDP.
#[cfg(feature = "af-xdp")]
pub(super) fn af_xdp(interface: &str) -> Result<PortConfig, Error> {
    Ok(PortConfig::AfXdp(AfXdpConfig::new(interface)))
}

#[cfg(not(feature = "af-xdp"))]
pub(super) fn af_xdp(_interface: &str) -> Result<PortConfig, Error> {
    Err(Error::NotBuilt("af-xdp"))
}

/// An interface over the queues of its ConnectX.
#[cfg(feature = "mlx5")]
pub(super) fn mlx5(interface: &str) -> Result<PortConfig, Error> {
    Ok(PortConfig::Mlx5(Mlx5Config::new(interface)))
}

#[cfg(not(feature = "mlx5"))]
pub(super) fn mlx5(_interface: &str) -> Result<PortConfig, Error> {
    Err(Error::NotBuilt("mlx5"))
}

/// Has a ConnectX stamp the frames. Other devices stamp them without being asked, or cannot.
#[cfg(feature = "mlx5")]
pub(super) fn stamp(port: &mut PortConfig) {
    match port {
        PortConfig::Mlx5(config) => config.timestamps = Feature::Required,
        #[cfg(feature = "af-xdp")]
        PortConfig::AfXdp(_) => {}
    }
}

#[cfg(not(feature = "mlx5"))]
pub(super) fn stamp(_port: &mut PortConfig) {}

/// A capture file, replayed at full speed.
#[cfg(feature = "pcap")]
pub(super) fn pcap(path: &Path) -> Result<Capture, Error> {
    Ok(PcapDevice::open(&PcapConfig { replay: Some(path.to_owned()), ..PcapConfig::default() })?)
}

#[cfg(not(feature = "pcap"))]
pub(super) fn pcap(_path: &Path) -> Result<Capture, Error> {
    Err(Error::NotBuilt("pcap"))
}
