//! Reading the system's clocks and a NIC's.
//!
//! Invariants:
//! 1. clock_gettime(2) writes one timespec, or nothing and fails; it touches no other memory.

use std::io;

use crate::time::UnixTime;

/// The current time of a clock. The system's own takes no system call (vDSO); a NIC's is read over
/// PCIe by its driver.
pub(super) fn read(clock: libc::clockid_t) -> io::Result<UnixTime> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: (1); the timespec is ours.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(UnixTime::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)))
}
