//! The clock for round trips.

use wirepath::time::{Clock, Instant, MonotonicClock, TscClock};

/// The best clock of this machine.
#[derive(Clone, Debug)]
pub(super) enum PingClock {
    Tsc(TscClock),
    Monotonic(MonotonicClock),
}

impl PingClock {
    /// Takes 20 ms, during which it measures the rate of the processor's counter.
    pub(super) fn start() -> Self {
        TscClock::start().map_or_else(|| Self::Monotonic(MonotonicClock::start()), Self::Tsc)
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Tsc(_) => "TSC",
            Self::Monotonic(_) => "CLOCK_MONOTONIC",
        }
    }
}

impl Clock for PingClock {
    #[inline]
    fn now(&mut self) -> Instant {
        match self {
            Self::Tsc(clock) => clock.now(),
            Self::Monotonic(clock) => clock.now(),
        }
    }
}
