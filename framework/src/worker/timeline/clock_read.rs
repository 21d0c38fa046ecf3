//! Reading the system's clocks and a NIC's.

use std::io;

use crate::sys::process::clock_gettime;
use crate::time::UnixTime;

/// The current time of a clock.
pub(super) fn read(clock: libc::clockid_t) -> io::Result<UnixTime> {
    let time = clock_gettime(clock)?;
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(UnixTime::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)))
}
