//! Receive timestamping of the NIC (Documentation/networking/timestamping.rst 3). It is a setting
//! of the whole interface, which others share: ptp4l, for example, needs timestamps of its
//! protocol's frames, and gets them when all frames are stamped.

use std::io;
use std::os::fd::OwnedFd;

use crate::device::af_xdp::interface::Interface;
use crate::sys::interface::{StampFilter, interface_name, set_stamp_filter, stamp_filter};
use crate::sys::socket::socket;

/// linux/net_tstamp.h: HWTSTAMP_FILTER_ALL
const ALL: u32 = 1;
/// The word of `struct hwtstamp_config` that selects arrivals.
const RX_FILTER: usize = 2;

/// Keeps the stamping of all frames enabled. Dropping it restores the former setting, unless
/// another process has changed the setting meanwhile. A killed process leaves it enabled, which
/// costs others nothing.
pub(crate) struct TimestampingGuard {
    socket: OwnedFd,
    index: u32,
    before: Option<StampFilter>,
}

impl TimestampingGuard {
    /// Switches it on.
    pub(crate) fn start(interface: &Interface) -> io::Result<Self> {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let before = stamp_filter(&socket, &interface.name)?;
        let mut started = Self { socket, index: interface.index, before: None };
        if before[RX_FILTER] != ALL {
            let mut wanted = before;
            wanted[RX_FILTER] = ALL;
            set_stamp_filter(&started.socket, &interface.name, wanted)?;
            started.before = Some(before);
        }
        Ok(started)
    }

    fn restore(&self, before: StampFilter) -> io::Result<()> {
        // The interface may have another name by now.
        let name = interface_name(&self.socket, self.index)?;
        let name = String::from_utf8_lossy(&name);
        if stamp_filter(&self.socket, &name)?[RX_FILTER] == ALL {
            set_stamp_filter(&self.socket, &name, before)?;
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
}
