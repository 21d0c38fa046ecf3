//! A NIC's PTP hardware clock, exposed by the kernel as `/dev/ptp0`. It is the clock that stamps
//! frames in hardware.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::clock_read;
use crate::time::UnixTime;

/// An open PTP hardware clock.
#[derive(Debug)]
pub struct Phc {
    file: File,
}

impl Phc {
    /// The clock of a network interface.
    ///
    /// # Errors
    /// The interface has no clock, as for a virtual link, or the clock cannot be opened: one
    /// sentence.
    pub fn of_interface(interface: &str) -> io::Result<Self> {
        let folder = format!("/sys/class/net/{interface}/device/ptp");
        let name = fs::read_dir(&folder).ok().and_then(|mut entries| entries.next()?.ok());
        let Some(name) = name else {
            let what = format!(
                "{interface} has no PTP hardware clock ({folder} names none): `ethtool -T {interface}` says what its driver has"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        };
        Self::open(&Path::new("/dev").join(name.file_name()))
    }

    /// The clock behind a device file.
    ///
    /// # Errors
    /// The file does not exist, may not be read, or is not a clock: one sentence.
    pub fn open(path: &Path) -> io::Result<Self> {
        let failed = |error: io::Error| {
            let what = format!(
                "the PTP hardware clock {} cannot be read: {error}; run as root, or `chmod o+r` it",
                path.display()
            );
            io::Error::new(error.kind(), what)
        };
        let clock = Self { file: File::open(path).map_err(failed)? };
        clock_read::read(clock.id()).map_err(failed)?;
        Ok(clock)
    }

    /// The time of the clock: a system call, and a read over PCIe of about a microsecond. `None` if
    /// the NIC is gone.
    pub fn now(&self) -> Option<UnixTime> {
        clock_read::read(self.id()).ok()
    }

    /// The clock id of a descriptor: FD_TO_CLOCKID of linux/posix-timers.h.
    fn id(&self) -> libc::clockid_t {
        const CLOCKFD: libc::clockid_t = 3;
        (!self.file.as_raw_fd() << 3) | CLOCKFD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_without_a_clock_is_a_sentence() {
        let refused = Phc::of_interface("lo").unwrap_err().to_string();
        assert!(refused.starts_with("lo has no PTP hardware clock"), "{refused}");
    }

    #[test]
    fn file_that_is_no_clock_is_a_sentence() {
        for path in ["/dev/null", "/dev/ptp_of_nobody"] {
            let refused = Phc::open(Path::new(path)).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("the PTP hardware clock {path} cannot be read")), "{refused}");
        }
    }
}
