//! A clock from the processor's own time stamp counter: about 10 ns a read where the system's takes 22, which is what an
//! idle turn of the loop spends most of its time on.
//!
//! The counter's rate is measured against the monotonic clock once, at start. It is good to a few parts in a million,
//! so an hour may be some milliseconds off the wall: right for timers and latencies, not for dates.
//!
//! A counter can go back: a virtual machine is moved or restored, a machine wakes from sleep with its counter at zero. Then the
//! clock asks the system's once, and goes on from what that says: time neither runs backwards nor stands still, and what passed
//! meanwhile is counted as the system counts it. The rate stays the one that was measured at start, also where another
//! processor counts at another: a process that was moved to other hardware is better started anew.
//!
//! Invariants:
//! 1. `rdtsc` is an instruction that every x86-64 has; it reads a counter and touches no memory.

use std::time::{Duration as StdDuration, Instant as StdInstant};

use super::{Clock, Duration, Instant};

/// How long the rate is measured. Both ends are uncertain by some 30 ns, so 20 ms give three parts in a million.
const CALIBRATION: StdDuration = StdDuration::from_millis(20);

/// Bits behind the binary point of the rate.
const FRACTION_BITS: u32 = 32;

/// As far as the counters of two cores of a machine may differ, and more: 0.2 to 1 ms. A step back of so little is waited out.
const SKEW_MAX: u64 = 1 << 20;

/// A clock that counts processor ticks.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    /// A reading of the counter,
    origin: u64,
    /// and when it was.
    origin_at: Instant,
    /// Nanoseconds a tick, with [`FRACTION_BITS`] of fraction.
    ns_per_tick: u64,
    /// The counter as it was read last, never before `origin`.
    last: u64,
    /// The system's clock at our zero, for when the counter has gone back.
    zero: StdInstant,
}

impl TscClock {
    /// Measures the rate for 20 ms and starts at zero. `None` where the counter does not run at one rate at all times
    /// (no invariant TSC), or where this is not x86-64: use [`MonotonicClock`](super::MonotonicClock).
    pub fn start() -> Option<Self> {
        if !runs_evenly() {
            return None;
        }
        let (ticks_before, before) = (ticks(), StdInstant::now());
        std::thread::sleep(CALIBRATION);
        let (ticks_after, after) = (ticks(), StdInstant::now());
        let ns = after.duration_since(before).as_nanos() << FRACTION_BITS;
        let elapsed = u128::from(ticks_after.checked_sub(ticks_before).filter(|&elapsed| elapsed > 0)?);
        let ns_per_tick = u64::try_from(ns / elapsed).ok()?;
        Some(Self { origin: ticks_after, origin_at: Instant::ZERO, ns_per_tick, last: ticks_after, zero: after })
    }

    #[inline(always)]
    fn at(&mut self, ticks: u64, system: impl FnOnce(StdInstant) -> Instant) -> Instant {
        self.last = if ticks < self.last { self.go_back(ticks, system) } else { ticks };
        self.time(self.last)
    }

    /// The counter is behind what it was. Returns the reading to go on with.
    #[cold]
    fn go_back(&mut self, ticks: u64, system: impl FnOnce(StdInstant) -> Instant) -> u64 {
        if self.last - ticks <= SKEW_MAX {
            return self.last;
        }
        self.origin_at = self.time(self.last).max(system(self.zero));
        self.origin = ticks;
        ticks
    }

    #[inline(always)]
    fn time(&self, ticks: u64) -> Instant {
        let ns = (u128::from(ticks - self.origin) * u128::from(self.ns_per_tick)) >> FRACTION_BITS;
        self.origin_at + Duration::from_nanos(ns as u64)
    }
}

impl Clock for TscClock {
    #[inline]
    fn now(&mut self) -> Instant {
        // A u64 of nanoseconds overflows after 584 years of uptime.
        self.at(ticks(), |zero| Instant::from_nanos(zero.elapsed().as_nanos() as u64))
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: (1).
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ticks() -> u64 {
    0
}

/// Whether the counter runs at one rate through all power states: CPUID 0x8000_0007, EDX bit 8 (Intel SDM 18.17.1,
/// AMD APM 3, E.4.6).
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn runs_evenly() -> bool {
    use core::arch::x86_64::__cpuid;
    const EXTENDED_MAX: u32 = 0x8000_0000;
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    __cpuid(EXTENDED_MAX).eax >= POWER_MANAGEMENT && __cpuid(POWER_MANAGEMENT).edx & (1 << 8) != 0
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn runs_evenly() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_never_goes_backwards() {
        let Some(mut clock) = TscClock::start() else {
            println!("SKIPPED counter_never_goes_backwards: this processor has no invariant time stamp counter");
            return;
        };
        let mut before = Instant::ZERO;
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= before);
            before = now;
        }
        assert!(before > Instant::ZERO);
    }

    /// Two ticks a nanosecond.
    fn clock(origin: u64) -> TscClock {
        TscClock { origin, origin_at: Instant::ZERO, ns_per_tick: 1 << 31, last: origin, zero: StdInstant::now() }
    }

    fn unasked(_: StdInstant) -> Instant {
        panic!("the system's clock costs more")
    }

    #[test]
    fn counter_of_another_core_is_waited_out() {
        let mut clock = clock(5_000_000);
        assert_eq!(clock.at(5_000_000 - 400, unasked), Instant::ZERO);
        assert_eq!(clock.at(5_002_000, unasked), Instant::from_nanos(1_000));
        assert_eq!(clock.at(5_001_600, unasked), Instant::from_nanos(1_000));
        assert_eq!(clock.at(5_002_002, unasked), Instant::from_nanos(1_001));
    }

    #[test]
    fn counter_that_goes_back_has_time_go_on_as_the_system_says() {
        let mut clock = clock(1 << 40);
        assert_eq!(clock.at((1 << 40) + 2_000, unasked), Instant::from_nanos(1_000));
        // The machine woke with the counter at 50, and the system has counted 7 µs since the start.
        assert_eq!(clock.at(50, |_| Instant::from_nanos(7_000)), Instant::from_nanos(7_000));
        assert_eq!(clock.at(250, unasked), Instant::from_nanos(7_100));
        // Again, and the system's clock is behind ours: ours goes on from where it stood.
        assert_eq!(clock.at(250 + (1 << 30), unasked), Instant::from_nanos(7_100 + (1 << 29)));
        assert_eq!(clock.at(0, |_| Instant::from_nanos(8_000)), Instant::from_nanos(7_100 + (1 << 29)));
        assert_eq!(clock.at(2, unasked), Instant::from_nanos(7_101 + (1 << 29)));
    }

    proptest::proptest! {
        #[test]
        fn any_counter_neither_runs_time_backwards_nor_stops_it(readings in proptest::collection::vec(0..1u64 << 40, 0..50)) {
            let mut clock = clock(readings.first().copied().unwrap_or(0));
            let mut before = Instant::ZERO;
            for ticks in readings {
                let now = clock.at(ticks, |_| Instant::ZERO);
                proptest::prop_assert!(now >= before);
                // From here on the counter counts.
                let after = clock.at(ticks.saturating_add(2 * SKEW_MAX), |_| Instant::ZERO);
                proptest::prop_assert!(after > now || ticks > u64::MAX - 2 * SKEW_MAX);
                before = after;
            }
        }
    }
}
