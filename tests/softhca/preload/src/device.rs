//! One NIC of the process: the model, its port, and the cable from its settings.

use std::path::Path;

use softhca::hca::Hca;
use softhca::settings::{DeviceSettings, WireSettings};
use softhca::wire::{Groups, PacketSocket, PairEnd, Pcap, Port, Tap};

use crate::counter_file::CounterFile;
use crate::hw_counters::HwCounters;
use crate::sys;

/// A NIC that a client has open, or the NIC at the other end of its cable.
pub(crate) struct Device {
    pub(crate) hca: Hca,
    pub(crate) port: Port,
    /// Where its counters are left.
    pub(crate) counter_file: Option<CounterFile>,
    /// The counters that sysfs shows, if it does.
    pub(crate) hw_counters: Option<HwCounters>,
    /// The device was removed: no frame moves, and the kernel answers EIO.
    pub(crate) is_gone: bool,
}

impl Device {
    /// A NIC that has just been switched on, on this port. The kernel's interface is added where
    /// the port has none of itself.
    ///
    /// # Errors
    /// In words that follow the device's name.
    pub(crate) fn new(settings: &DeviceSettings, port: Port, counters: Option<&Path>) -> Result<Self, String> {
        let port = match &settings.netdev {
            Some(name) if !matches!(settings.wire, WireSettings::Packet(_)) => {
                let tap = Tap::open(name).map_err(|error| format!("no interface {name}: {error}"))?;
                port.with_tap(tap).with_groups(Groups::new(name, settings.config.mac))
            }
            _ => port,
        };
        let counter_file = counters.and_then(|directory| CounterFile::open(directory, &settings.config.name));
        let hw_counters = HwCounters::open(&settings.config.name);
        Ok(Self { hca: Hca::new(settings.config.clone()), port, counter_file, hw_counters, is_gone: false })
    }
}

/// The port with a cable of its own: of a pair both ends are made together, elsewhere.
///
/// # Errors
/// In words that follow the device's name.
pub(crate) fn port(settings: &DeviceSettings) -> Result<Port, String> {
    Ok(match &settings.wire {
        WireSettings::Pair | WireSettings::Loop => Port::new(Box::new(PairEnd::looped())),
        WireSettings::Packet(interface) => packet_port(interface, settings)?,
        WireSettings::Tap(name) => {
            let tap = Tap::open(name).map_err(|error| format!("no TAP {name}: {error}; it takes CAP_NET_ADMIN"))?;
            Port::new(Box::new(tap))
        }
        WireSettings::Pcap { replay, record } => Port::new(Box::new(Pcap::open(replay.as_deref(), record.as_deref())?)),
    })
}

fn packet_port(interface: &str, settings: &DeviceSettings) -> Result<Port, String> {
    let cable = PacketSocket::open(interface).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => format!("there is no interface {interface} in this network namespace"),
        Some(libc::EPERM) => format!("a packet socket on {interface} takes CAP_NET_RAW and CAP_NET_ADMIN"),
        _ => format!("no packet socket on {interface}: {error}"),
    })?;
    let name = &settings.config.name;
    if cable.is_mute() {
        sys::tell_operator(&format!("another process has {interface}: {name} sends and hears nothing in this one"));
    } else if !cable.is_gated() {
        let sentence =
            format!("the kernel also answers what comes to {name} on {interface}: Linux 6.6 would not let it");
        sys::tell_operator(&sentence);
    }
    Ok(Port::new(Box::new(cable)).with_groups(Groups::new(interface, settings.config.mac)))
}

/// Devices with the wire `pair` belong together two and two, in the order of their numbers.
pub(crate) fn partner(devices: &[DeviceSettings], number: usize) -> Option<usize> {
    let is_pair = |number: &usize| devices[*number].wire == WireSettings::Pair;
    let pairs: Vec<_> = (0..devices.len()).filter(is_pair).collect();
    let place = pairs.iter().position(|other| *other == number)?;
    pairs.get(place ^ 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(wires: &[&str]) -> Vec<DeviceSettings> {
        let device = |wire: &&str| DeviceSettings { wire: wire.parse().unwrap(), ..DeviceSettings::default() };
        wires.iter().map(device).collect()
    }

    #[test]
    fn pairs_are_two_and_two_whatever_is_between() {
        let devices = devices(&["pair", "loop", "pair", "pair", "veth0", "pair", "pair"]);
        let partners: Vec<_> = (0..devices.len()).map(|number| partner(&devices, number)).collect();
        assert_eq!(partners, [Some(2), None, Some(0), Some(5), None, Some(3), None]);
    }

    #[test]
    fn cable_that_cannot_be_is_told_in_words() {
        let refusal = |wire: &str| port(&devices(&[wire])[0]).err().unwrap();
        assert_eq!(refusal("wirepath-none"), "there is no interface wirepath-none in this network namespace");
        assert!(refusal("pcap:/nowhere/day.pcap").starts_with("/nowhere/day.pcap cannot be read"));
    }
}
