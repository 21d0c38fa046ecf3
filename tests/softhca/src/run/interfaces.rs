//! TAPs that the devices want: made before the command starts, so that sysfs shows them, gone when
//! it has ended, however that was.

use std::io;

use softhca::settings::{DeviceSettings, WireSettings};
use softhca::wire::Tap;

use super::Failure;

/// Makes the kernel's interfaces of ports that have none, and the kernel's end of cables to the
/// kernel. They exist as long as the returned value.
pub(super) fn make(devices: &[DeviceSettings]) -> Result<Vec<Tap>, Failure> {
    let mut taps = Vec::new();
    for device in devices {
        let config = &device.config;
        let is_tap = !matches!(device.wire, WireSettings::Packet(_));
        if let Some(netdev) = device.netdev.as_ref().filter(|_| is_tap) {
            // The NIC's address is that of its interface.
            taps.push(Tap::keep(netdev, config.mac, config.mtu).map_err(|error| refused(netdev, &error))?);
        }
        if let WireSettings::Tap(name) = &device.wire {
            // At the other end is another machine, so to speak.
            let mut mac = config.mac;
            mac[4] ^= 1;
            match Tap::keep(name, mac, config.mtu) {
                Ok(tap) => taps.push(tap),
                // An interface that the operator has made is kept.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(refused(name, &error)),
            }
        }
    }
    Ok(taps)
}

fn refused(name: &str, error: &io::Error) -> Failure {
    Failure::new(match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::AlreadyExists, _) => {
            format!("there is an interface {name} already: use --netns, or take it away: ip link delete {name}")
        }
        (io::ErrorKind::NotFound, _) => "there is no /dev/net/tun: modprobe tun".into(),
        (_, Some(libc::EPERM)) => {
            format!("only root may make the interface {name}: sudo softhca run …, or with CAP_NET_ADMIN")
        }
        _ => format!("the interface {name} cannot be made: {error}"),
    })
}
