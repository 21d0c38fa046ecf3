//! The name of a port: which device, and its place.

use core::str::FromStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::built;
use super::error::Error;
use crate::worker::live::PortConfig;

/// A device by its name, as it stands in a configuration file or on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PortName {
    /// `eth1`, `af_xdp:eth1`: an interface over AF_XDP.
    AfXdp(String),
    /// `mlx5:eth1`, `mlx5:0000:3b:00.0`: a ConnectX by its own queues, named by its interface or
    /// its place on the PCI bus.
    Mlx5(String),
    /// `pcap:day.pcap.gz`: a capture.
    Pcap(PathBuf),
    /// `memory:wire`: one end of a wire of plain memory within this process.
    Memory(String),
}

impl FromStr for PortName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, place) = text.split_once(':').unwrap_or(("af_xdp", text));
        if place.is_empty() {
            return Err(Error::PortName(text.to_owned()));
        }
        match kind {
            "af_xdp" => Ok(Self::AfXdp(place.to_owned())),
            "mlx5" => Ok(Self::Mlx5(place.to_owned())),
            "pcap" => Ok(Self::Pcap(place.into())),
            "memory" => Ok(Self::Memory(place.to_owned())),
            _ => Err(Error::PortName(text.to_owned())),
        }
    }
}

/// The device of a port on an interface; `None` for captures and memory wires.
pub(super) fn live(name: &PortName) -> Result<Option<PortConfig>, Error> {
    Ok(match name {
        PortName::AfXdp(interface) => Some(built::af_xdp(interface)?),
        PortName::Mlx5(place) => Some(built::mlx5(&interface_of(place)?)?),
        PortName::Pcap(_) | PortName::Memory(_) => None,
    })
}

impl PortConfig {
    /// The port on an interface that a name of [`Port::open`](super::Port::open) means: `eth1` over
    /// AF_XDP, `mlx5:eth1` or `mlx5:0000:3b:00.0` over the queues of a ConnectX.
    ///
    /// # Errors
    /// [`Error::PortName`] for a name of another kind, [`Error::NoInterface`],
    /// [`Error::NotBuilt`].
    pub fn named(name: &str) -> Result<Self, Error> {
        live(&name.parse()?)?.ok_or_else(|| Error::PortName(name.to_owned()))
    }
}

/// The interface of a PCI function; an interface name is returned unchanged.
fn interface_of(place: &str) -> Result<String, Error> {
    if !place.contains([':', '.']) {
        return Ok(place.to_owned());
    }
    let nets = Path::new("/sys/bus/pci/devices").join(place).join("net");
    let first = fs::read_dir(&nets).ok().and_then(|mut nets| nets.next()?.ok());
    let name = first.and_then(|net| net.file_name().into_string().ok());
    name.ok_or_else(|| Error::NoInterface(place.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_device_and_where() {
        let names = [
            ("eth1", PortName::AfXdp("eth1".into())),
            ("af_xdp:eth1", PortName::AfXdp("eth1".into())),
            ("mlx5:0000:3b:00.0", PortName::Mlx5("0000:3b:00.0".into())),
            ("pcap:/tmp/a:b.pcap", PortName::Pcap("/tmp/a:b.pcap".into())),
            ("memory:wire", PortName::Memory("wire".into())),
        ];
        for (text, name) in names {
            assert_eq!(text.parse::<PortName>().unwrap(), name);
        }
    }

    #[test]
    fn name_of_no_device_is_refused_with_those_there_are() {
        for text in ["", "dpdk:eth1", "mlx5:"] {
            let refused = text.parse::<PortName>().unwrap_err().to_string();
            assert!(refused.contains("pcap:day.pcap"), "{refused}");
        }
    }

    #[test]
    fn port_on_an_interface_has_the_name_of_one() {
        assert_eq!(PortConfig::named("eth1").unwrap().interface(), "eth1");
        assert!(matches!(PortConfig::named("mlx5:eth1"), Ok(PortConfig::Mlx5(config)) if config.device == "eth1"));
        assert!(matches!(PortConfig::named("memory:wire"), Err(Error::PortName(_))));
    }

    #[test]
    fn pci_function_without_an_interface_is_refused_by_its_place() {
        let refused = interface_of("ffff:ff:ff.f").unwrap_err().to_string();
        assert!(refused.contains("ffff:ff:ff.f"), "{refused}");
    }
}
