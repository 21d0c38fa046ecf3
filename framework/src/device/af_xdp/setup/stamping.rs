//! Receive timestamping of the NIC (Documentation/networking/timestamping.rst 3). It is a setting
//! of the whole interface, which others share: ptp4l, for example, needs timestamps of its
//! protocol's frames, and gets them when all frames are stamped.

use std::io;
use std::os::fd::OwnedFd;

use super::super::interface::Interface;
use super::super::rings::sys::{self, Stamping};

/// linux/net_tstamp.h: HWTSTAMP_FILTER_ALL
const ALL: u32 = 1;

/// Keeps the stamping of all frames enabled. Dropping it restores the former setting, unless
/// another process has changed the setting meanwhile. A killed process leaves it enabled, which
/// costs others nothing.
pub(in crate::device::af_xdp) struct TimestampingGuard {
    socket: OwnedFd,
    index: u32,
    before: Option<Stamping>,
}

impl TimestampingGuard {
    /// Switches it on.
    pub(in crate::device::af_xdp) fn start(interface: &Interface) -> io::Result<Self> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let before = sys::stamping(&socket, &interface.name)?;
        let mut started = Self { socket, index: interface.index, before: None };
        if before.rx_filter != ALL {
            let mut wanted = before;
            wanted.rx_filter = ALL;
            sys::set_stamping(&started.socket, &interface.name, wanted)?;
            started.before = Some(before);
        }
        Ok(started)
    }

    fn restore(&self, before: Stamping) -> io::Result<()> {
        // The interface may have another name by now.
        let name = sys::interface_name(&self.socket, self.index)?;
        let name = String::from_utf8_lossy(&name);
        if sys::stamping(&self.socket, &name)?.rx_filter == ALL {
            sys::set_stamping(&self.socket, &name, before)?;
        }
        Ok(())
    }
}

impl Drop for TimestampingGuard {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // An interface that is gone has nothing to restore.
            let _ = self.restore(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_that_cannot_stamp_is_refused() {
        let lo = Interface::find("lo").unwrap();
        let error = TimestampingGuard::start(&lo).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn name_of_an_interface_is_asked_by_its_number() {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        assert_eq!(sys::interface_name(&socket, Interface::find("lo").unwrap().index).unwrap().as_slice(), b"lo");
        assert_eq!(sys::interface_name(&socket, u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
