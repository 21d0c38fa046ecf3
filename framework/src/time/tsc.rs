//! A clock from the processor's time stamp counter: about 10 ns per read instead of the system's
//! 22, the largest part of an idle turn of the loop.
//!
//! The counter's rate is measured against the monotonic clock once, at start. It is accurate to a
//! few parts in a million, so an hour may deviate by some milliseconds: good for timers and
//! latencies, not for dates.
//!
//! A counter can step back: a virtual machine is moved or restored, a machine wakes from sleep with
//! its counter at zero. Then the clock reads the system's clock once and continues from there. So
//! time neither runs backwards nor stands still, and the clock counts the time that has passed as
//! the system does. The rate stays as measured at the start, even if another processor has another
//! rate, so restart a process that was moved to other hardware.
//!
//! Copies of a clock show the same time, whichever of them detects the step first, because they
//! share the base from which time is counted. If a copy has already shown a later time than the new
//! base, the base moves on for all copies. Until each copy is read once more, they differ by the
//! accumulated error of the rate.
//!
//! Invariants:
//! 1. `rdtsc` is an instruction that every x86-64 has; it reads a counter and touches no memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use super::{Clock, Duration, Instant};

/// Duration of the rate measurement. Both ends are uncertain by some 30 ns, so 20 ms give three
/// parts in a million.
const CALIBRATION: StdDuration = StdDuration::from_millis(20);

/// Fraction bits of the rate.
const FRACTION_BITS: u32 = 32;

/// Upper bound of the difference between the counters of two cores of a machine: 0.2 to 1 ms. The
/// clock waits out so small a step back.
const SKEW_MAX: u64 = 1 << 20;

/// A clock that counts processor ticks. Copies ([`Clone`]) share one origin, now and later.
#[derive(Clone, Debug)]
pub struct TscClock {
    /// The base that this copy counts from.
    base: Base,
    /// Nanoseconds per tick, with [`FRACTION_BITS`] of fraction.
    ns_per_tick: u64,
    /// The last counter value that this copy read, never before the base.
    last: u64,
    /// The system's clock at our zero, for use after a step back.
    zero: StdInstant,
    shared: Arc<Shared>,
}

/// The state that the copies of a clock share.
#[derive(Debug)]
struct Shared {
    /// The number of the base, checked at each reading.
    number: AtomicU64,
    /// The base of all copies; each adopts it at its next reading.
    base: Mutex<Base>,
}

/// A base that time is counted from.
#[derive(Clone, Copy, Debug)]
struct Base {
    /// Incremented at each change of the base.
    number: u64,
    /// A counter value,
    ticks: u64,
    /// and its time.
    at: Instant,
}

impl TscClock {
    /// Measures the rate for 20 ms and starts at zero. `None` if the counter's rate is not constant
    /// (no invariant TSC), or if this is not x86-64: use [`MonotonicClock`](super::MonotonicClock).
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
        Some(Self::counting_from(ticks_after, after, ns_per_tick))
    }

    fn counting_from(ticks: u64, zero: StdInstant, ns_per_tick: u64) -> Self {
        let base = Base { number: 0, ticks, at: Instant::ZERO };
        let shared = Arc::new(Shared { number: AtomicU64::new(base.number), base: Mutex::new(base) });
        Self { base, ns_per_tick, last: ticks, zero, shared }
    }

    #[inline(always)]
    fn at(&mut self, counter: impl Fn() -> u64, system: impl FnOnce(StdInstant) -> Instant) -> Instant {
        let ticks = counter();
        if ticks < self.last || !self.has_shared_base() {
            return self.settle(ticks, counter, system);
        }
        self.last = ticks;
        self.time(ticks)
    }

    #[inline(always)]
    fn has_shared_base(&self) -> bool {
        self.base.number == self.shared.number.load(Ordering::Relaxed)
    }

    /// Handles a counter that has stepped back, or a new base from another copy.
    #[cold]
    fn settle(&mut self, ticks: u64, counter: impl Fn() -> u64, system: impl FnOnce(StdInstant) -> Instant) -> Instant {
        let shown = self.time(self.last);
        if self.has_shared_base() && self.last.saturating_sub(ticks) <= SKEW_MAX {
            return shown;
        }
        // No panic leaves it half written.
        let mut base = self.shared.base.lock().unwrap_or_else(PoisonError::into_inner);
        // The base may be from after the step, and the reading that led here from before it.
        let ticks = counter();
        let least = if base.number == self.base.number { self.last } else { base.ticks };
        if least.saturating_sub(ticks) <= SKEW_MAX {
            self.last = ticks.max(least);
        } else {
            base.move_to(ticks, shown.max(system(self.zero)));
            self.last = ticks;
        }
        if base.time(self.last, self.ns_per_tick) < shown {
            base.move_to(self.last, shown);
        }
        self.shared.number.store(base.number, Ordering::Relaxed);
        self.base = *base;
        base.time(self.last, self.ns_per_tick)
    }

    #[inline(always)]
    fn time(&self, ticks: u64) -> Instant {
        self.base.time(ticks, self.ns_per_tick)
    }
}

impl Base {
    #[inline(always)]
    fn time(&self, ticks: u64, ns_per_tick: u64) -> Instant {
        let ns = (u128::from(ticks - self.ticks) * u128::from(ns_per_tick)) >> FRACTION_BITS;
        self.at + Duration::from_nanos(ns as u64)
    }

    fn move_to(&mut self, ticks: u64, at: Instant) {
        *self = Self { number: self.number + 1, ticks, at };
    }
}

impl Clock for TscClock {
    #[inline]
    fn now(&mut self) -> Instant {
        // A u64 of nanoseconds overflows after 584 years of uptime.
        self.at(ticks, |zero| Instant::from_nanos(zero.elapsed().as_nanos() as u64))
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

/// Whether the counter's rate is constant through all power states: CPUID 0x8000_0007, EDX bit 8
/// (Intel SDM 18.17.1, AMD APM 3, E.4.6).
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

    /// Two ticks per nanosecond.
    fn clock(ticks: u64) -> TscClock {
        TscClock::counting_from(ticks, StdInstant::now(), 1 << 31)
    }

    fn unasked(_: StdInstant) -> Instant {
        panic!("the system's clock costs more")
    }

    impl TscClock {
        /// Reads the clock at counter value `ticks`. The system's clock is not read.
        fn read(&mut self, ticks: u64) -> u64 {
            self.at(|| ticks, unasked).as_nanos()
        }

        /// The same if the system's clock shows `ns`.
        fn read_beside(&mut self, ticks: u64, ns: u64) -> u64 {
            self.at(|| ticks, |_| Instant::from_nanos(ns)).as_nanos()
        }
    }

    #[test]
    fn counter_of_another_core_is_waited_out() {
        let mut clock = clock(5_000_000);
        assert_eq!(clock.read(5_000_000 - 400), 0);
        assert_eq!(clock.read(5_002_000), 1_000);
        assert_eq!(clock.read(5_001_600), 1_000);
        assert_eq!(clock.read(5_002_002), 1_001);
    }

    #[test]
    fn counter_that_goes_back_has_time_go_on_as_the_system_says() {
        let mut clock = clock(1 << 40);
        assert_eq!(clock.read((1 << 40) + 2_000), 1_000);
        // The machine woke with the counter at 50, and the system has counted 7 µs since the start.
        assert_eq!(clock.read_beside(50, 7_000), 7_000);
        assert_eq!(clock.read(250), 7_100);
        // Again the system's clock is behind ours: ours continues from its last value.
        assert_eq!(clock.read(250 + (1 << 30)), 7_100 + (1 << 29));
        assert_eq!(clock.read_beside(0, 8_000), 7_100 + (1 << 29));
        assert_eq!(clock.read(2), 7_101 + (1 << 29));
    }

    #[test]
    fn copies_show_one_time_after_the_counter_went_back() {
        let mut worker = clock(1 << 40);
        let mut sampler = worker.clone();
        assert_eq!(sampler.read((1 << 40) + 2_000), 1_000);
        assert_eq!(worker.read((1 << 40) + 8_000), 4_000);
        // The worker detects it, and the other copy adopts it: the system's clock is read once.
        assert_eq!(worker.read_beside(50, 7_000), 7_000);
        assert_eq!(sampler.read(250), 7_100);
        assert_eq!(worker.read(250), 7_100);
        // The copy that detects it has not been read for long, and the system's clock is slow.
        let (early, late) = (6_975 + (1 << 24), 6_975 + (1 << 29));
        assert_eq!((sampler.read(1 << 25), worker.read(1 << 30)), (early, late));
        assert_eq!(sampler.read_beside(10, 9_000), early);
        assert_eq!((worker.read(10), sampler.read(10)), (late, late));
        assert_eq!((worker.read(30), sampler.read(30)), (late + 10, late + 10));
    }

    /// A copy that was not read for so long that the counter has passed its last value.
    #[test]
    fn copy_that_cannot_see_that_the_counter_went_back_learns_it() {
        let mut worker = clock(1 << 30);
        let mut sampler = worker.clone();
        let before = worker.read(1 << 40);
        let now = worker.read_beside(1 << 35, before + 7_000);
        assert_eq!(now, before + 7_000);
        assert_eq!((sampler.read(1 << 35), sampler.read((1 << 35) + 2)), (now, now + 1));
    }

    proptest::proptest! {
        #[test]
        fn any_counter_neither_runs_time_backwards_nor_stops_it(readings in proptest::collection::vec(0..1u64 << 40, 0..50)) {
            let mut clock = clock(readings.first().copied().unwrap_or(0));
            let mut before = 0;
            for ticks in readings {
                let now = clock.read_beside(ticks, 0);
                proptest::prop_assert!(now >= before);
                // From here on the counter advances.
                let after = clock.read_beside(ticks.saturating_add(2 * SKEW_MAX), 0);
                proptest::prop_assert!(after > now || ticks > u64::MAX - 2 * SKEW_MAX);
                before = after;
            }
        }

        #[test]
        fn copies_neither_run_backwards_nor_differ_once_all_were_read(
            readings in proptest::collection::vec((0..3usize, 0..1u64 << 40, 0..1u64 << 40), 0..50)
        ) {
            let mut before = [0; 3];
            let clock = clock(0);
            let mut clocks = [clock.clone(), clock.clone(), clock];
            let mut ticks = 0;
            for (idx, now, system) in readings {
                ticks = now;
                let shown = clocks[idx].read_beside(ticks, system);
                proptest::prop_assert!(shown >= before[idx]);
                before[idx] = shown;
            }
            // Two rounds: the second copy may have shown more than the first.
            for _ in 0..2 {
                clocks.iter_mut().for_each(|clock| _ = clock.read_beside(ticks, 0));
            }
            let shown = clocks.each_mut().map(|clock| clock.read(ticks + 2 * SKEW_MAX));
            proptest::prop_assert!(shown.iter().all(|&one| one == shown[0]), "{:?}", shown);
        }
    }
}
