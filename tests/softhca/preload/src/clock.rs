//! The NIC's clock: the machine's monotonic one, a cycle a nanosecond.

use softhca::hca::Clock;

use crate::sys;

/// The machine's clocks.
pub(crate) struct HostClock;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) cycles: u64,
    pub(crate) unix_ns: u64,
}

impl HostClock {
    pub(crate) fn now(&self) -> Now {
        Now { cycles: self.cycles(), unix_ns: self.unix_ns() }
    }
}

impl Clock for HostClock {
    fn cycles(&self) -> u64 {
        sys::time_ns(libc::CLOCK_MONOTONIC)
    }

    fn unix_ns(&self) -> u64 {
        sys::time_ns(libc::CLOCK_REALTIME)
    }
}
