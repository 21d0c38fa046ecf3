//! Time on the data path: nanoseconds in a `u64`, read once per poll and passed down.
//!
//! `Instant` counts from an origin that its clock chose, so instants of two clocks are not
//! comparable. Nothing below the worker reads a clock: nodes, machines and devices take `now` as an
//! argument, so that the simulator and a replay run the same code in virtual time.

mod cross;
mod timeline;
#[allow(unsafe_code)]
mod tsc;

pub use cross::{ClockMapping, ClockTracker, CrossTimestamp, Estimate};
pub use timeline::Timeline;
pub use tsc::TscClock;

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds since the origin of the clock it came from. 64 bits last 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A span of time in nanoseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

/// Wall clock time: nanoseconds since the Unix epoch, 1 January 1970 UTC. The timestamp of a NIC or
/// a capture. A separate type, because it is not comparable with an [`Instant`] of the worker's
/// clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    /// The time `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// Later than any instant a clock returns: "never" for a timer.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in seconds, for people.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    /// Saturates at [`Instant::MAX`], so that "now + never" stays never.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    /// Saturates at the origin.
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Duration {
    /// Three significant digits with the unit that fits: `812 ns`, `4.31 µs`, `1.20 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.2} µs", ns / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", ns / 1e6),
            _ => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}

/// The source of the worker's `now`: read once per poll, nowhere else.
pub trait Clock {
    /// The current time. Never goes backwards.
    fn now(&mut self) -> Instant;
}

/// The machine's monotonic clock through the standard library: about 22 ns per read (vDSO), no
/// system call on hardware with a stable TSC.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: std::time::Instant,
}

impl MonotonicClock {
    /// A clock whose origin is this call.
    pub fn start() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now(&mut self) -> Instant {
        // A u64 of nanoseconds overflows after 584 years of uptime.
        Instant(self.origin.elapsed().as_nanos() as u64)
    }
}

/// A clock that advances only when set: for tests, replays, the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct ManualClock {
    now: Instant,
}

impl ManualClock {
    /// Sets the time to `now`; a step backwards is ignored, because no clock may go backwards.
    pub fn set(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Advances by `span`.
    pub fn advance(&mut self, span: Duration) {
        self.now += span;
    }
}

impl Clock for ManualClock {
    fn now(&mut self) -> Instant {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_a_later_instant_is_zero() {
        assert_eq!(Instant::from_nanos(5).since(Instant::from_nanos(9)), Duration::ZERO);
    }

    #[test]
    fn never_plus_any_span_is_never() {
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
    }

    #[test]
    fn manual_clock_does_not_go_backwards() {
        let mut clock = ManualClock::default();
        clock.set(Instant::from_nanos(10));
        clock.set(Instant::from_nanos(3));
        assert_eq!(clock.now(), Instant::from_nanos(10));
    }

    #[test]
    fn durations_print_with_the_unit_that_fits() {
        assert_eq!(Duration::from_nanos(812).to_string(), "812 ns");
        assert_eq!(Duration::from_nanos(4_310).to_string(), "4.31 µs");
    }
}
