//! A clock from the processor's own time stamp counter: about 10 ns a read where the system's takes 22, which is what an
//! idle turn of the loop spends most of its time on.
//!
//! The counter's rate is measured against the monotonic clock once, at start. It is good to a few parts in a million,
//! so an hour may be some milliseconds off the wall: right for timers and latencies, not for dates.
//!
//! Invariants:
//! 1. `rdtsc` is an instruction that every x86-64 has; it reads a counter and touches no memory.

use std::time::{Duration as StdDuration, Instant as StdInstant};

use super::{Clock, Instant};

/// How long the rate is measured. Both ends are uncertain by some 30 ns, so 20 ms give three parts in a million.
const CALIBRATION: StdDuration = StdDuration::from_millis(20);

/// Bits behind the binary point of the rate.
const FRACTION_BITS: u32 = 32;

/// A clock that counts processor ticks.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    /// The counter at the origin.
    origin: u64,
    /// Nanoseconds a tick, with [`FRACTION_BITS`] of fraction.
    ns_per_tick: u64,
    /// What was read last: another core's counter may be a few ticks behind, and no clock goes back.
    last: Instant,
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
        Some(Self { origin: ticks_after, ns_per_tick, last: Instant::ZERO })
    }
}

impl Clock for TscClock {
    #[inline]
    fn now(&mut self) -> Instant {
        // Another core's counter may be a few ticks behind the origin, so the difference is signed.
        let elapsed = u64::try_from(ticks().wrapping_sub(self.origin).cast_signed()).unwrap_or(0);
        let ns = (u128::from(elapsed) * u128::from(self.ns_per_tick)) >> FRACTION_BITS;
        let now = Instant::from_nanos(ns as u64);
        self.last = self.last.max(now);
        self.last
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

    #[test]
    fn counter_behind_the_origin_is_the_origin() {
        let mut clock = TscClock { origin: ticks().wrapping_add(1 << 40), ns_per_tick: 1 << 31, last: Instant::ZERO };
        assert_eq!(clock.now(), Instant::ZERO);
    }
}
