//! The relation of two clocks: readings of one between two readings of the other, and the straight
//! line through them, with an error bound.
//!
//! ```text
//!  ours:   before ────────●──────── after        the other clock was read somewhere in between, at the middle give or
//!                       other                    take half the bracket
//! ```
//!
//! At its base reading a line is exact to half that reading's bracket. With the distance from it
//! the error grows by the uncertainty of the rate, and by [`WANDER_PPB`] for changes of the rate.
//! The error is a bound as long as the rate changes no faster. If a clock is set, or slewed faster,
//! the next reading detects it, and the line restarts. It also restarts after a step of our own
//! clock, for example when the processor's counter steps back.

use core::fmt;

use super::{Clock, Duration, Instant, UnixTime};

/// Readings kept for a line: at ten per second, those of the last six seconds.
const READINGS_MAX: usize = 64;
/// Maximum error of a rate that is known from only one reading, in ns per second: oscillators are
/// within 100 ppm, and NTP slews by 500 ppm at most (`MAXFREQ` in linux/timex.h).
const RATE_MAX_PPB: u64 = 600_000;
/// Maximum change of a rate during the life of a line, in ns per second: an oscillator that warms
/// up, and NTP's corrections in its steady state. If it is too low errors are understated, if too
/// high they grow faster than necessary.
pub(crate) const WANDER_PPB: u64 = 1_000;
/// Fraction bits of a rate: 1 ppm is 2^20.
const RATE_BITS: u32 = 40;
const BILLION: u128 = 1_000_000_000;

/// A reading of another clock between two readings of ours: a cross timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossTimestamp {
    /// Our clock before.
    pub before: Instant,
    /// The other clock.
    pub other: UnixTime,
    /// Our clock after.
    pub after: Instant,
}

impl CrossTimestamp {
    /// Reads `other` `tries` times between readings of `clock`, and keeps the narrowest bracket:
    /// the one most likely free of interruptions. `None` if `other` cannot be read.
    pub fn read(clock: &mut impl Clock, mut other: impl FnMut() -> Option<UnixTime>, tries: usize) -> Option<Self> {
        let mut best: Option<Self> = None;
        for _ in 0..tries.max(1) {
            let before = clock.now();
            let read = other()?;
            let this = Self { before, other: read, after: clock.now() };
            if best.is_none_or(|best| this.bracket() < best.bracket()) {
                best = Some(this);
            }
        }
        best
    }

    fn bracket(&self) -> u64 {
        self.after.since(self.before).as_nanos()
    }

    /// The middle of the bracket, and half its width, rounded up.
    fn reading(&self) -> Reading {
        let bracket = self.bracket();
        let at = self.before + Duration::from_nanos(bracket / 2);
        let half = Duration::from_nanos(bracket.div_ceil(2));
        Reading { at, other: self.other, error: elsewhere(half).as_nanos() }
    }
}

/// A time with its maximum error to either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate<T> {
    /// The time.
    pub at: T,
    /// The true time is at most this much earlier or later.
    pub error: Duration,
}

impl fmt::Display for Estimate<UnixTime> {
    /// `1700000000.123456789 s ± 84 ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.at.as_nanos();
        write!(f, "{}.{:09} s ± {}", ns / 1_000_000_000, ns % 1_000_000_000, self.error)
    }
}

/// A stored reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    at: Instant,
    other: UnixTime,
    error: u64,
}

/// The relation of another clock to ours. 40 bytes that may be copied freely; a conversion is two
/// multiplications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockMapping {
    base: Reading,
    /// The rate at which the other clock gains on ours, in units of 2^-40.
    gain: i64,
    /// The growth of the error, in ns per second.
    growth_ppb: u64,
}

impl ClockMapping {
    /// The other clock's time at `at` of ours.
    #[inline]
    pub fn to_other(&self, at: Instant) -> Estimate<UnixTime> {
        let distance = i128::from(at.as_nanos()) - i128::from(self.base.at.as_nanos());
        let gained = (distance * i128::from(self.gain)) >> RATE_BITS;
        let other = i128::from(self.base.other.as_nanos()) + distance + gained;
        Estimate { at: UnixTime::from_nanos(clamp(other)), error: self.error(distance) }
    }

    /// Our clock's time when the other one shows `at`.
    #[inline]
    pub fn to_ours(&self, at: UnixTime) -> Estimate<Instant> {
        let distance = i128::from(at.as_nanos()) - i128::from(self.base.other.as_nanos());
        // A distance in our time is that of the other clock over (1 + gain).
        let ours = (distance << RATE_BITS) / ((1 << RATE_BITS) + i128::from(self.gain)).max(1);
        let instant = i128::from(self.base.at.as_nanos()) + ours;
        Estimate { at: Instant::from_nanos(clamp(instant)), error: elsewhere(self.error(ours)) }
    }

    /// The rate at which the other clock gains on ours, in ns per second.
    pub fn rate_ppb(&self) -> i64 {
        ((i128::from(self.gain) * 1_000_000_000) >> RATE_BITS) as i64
    }

    /// The time of the base reading: the error is least there.
    pub fn base(&self) -> Instant {
        self.base.at
    }

    #[inline]
    fn error(&self, distance: i128) -> Duration {
        let distance = u64::try_from(distance.unsigned_abs()).unwrap_or(u64::MAX);
        let grown = (u128::from(distance) * u128::from(self.growth_ppb)).div_ceil(BILLION);
        let grown = u64::try_from(grown).unwrap_or(u64::MAX);
        // One more for rounding.
        Duration::from_nanos(grown.saturating_add(self.base.error).saturating_add(1))
    }

    /// As words, for a ring between threads.
    pub fn to_words(self) -> [u64; 5] {
        let Reading { at, other, error } = self.base;
        [at.as_nanos(), other.as_nanos(), error, self.gain.cast_unsigned(), self.growth_ppb]
    }

    /// The inverse of [`to_words`](Self::to_words).
    pub fn from_words([at, other, error, gain, growth_ppb]: [u64; 5]) -> Self {
        let base = Reading { at: Instant::from_nanos(at), other: UnixTime::from_nanos(other), error };
        Self { base, gain: gain.cast_signed(), growth_ppb }
    }
}

/// Converts an error from one clock to another that may run faster: a thousandth more covers every
/// rate.
pub(super) fn elsewhere(error: Duration) -> Duration {
    error + Duration::from_nanos(error.as_nanos().div_ceil(1_000))
}

fn clamp(ns: i128) -> u64 {
    ns.clamp(0, i128::from(u64::MAX)) as u64
}

/// Fits the line through the readings so far. Not for the hot path: a reading costs some hundred
/// nanoseconds of arithmetic.
#[derive(Clone, Debug, Default)]
pub struct ClockTracker {
    /// Oldest first.
    readings: Vec<Reading>,
    line: Option<ClockMapping>,
    steps: u64,
}

impl ClockTracker {
    /// Without readings.
    pub fn new() -> Self {
        Self { readings: Vec::with_capacity(READINGS_MAX), line: None, steps: 0 }
    }

    /// Adds a reading, and returns the line from now on.
    pub fn add(&mut self, sample: &CrossTimestamp) -> ClockMapping {
        let reading = sample.reading();
        if self.line.is_some_and(|line| contradicts(&line, &reading)) {
            self.readings.clear();
            self.steps += 1;
        }
        if self.readings.len() == READINGS_MAX {
            self.readings.remove(0);
        }
        self.readings.push(reading);
        let line = draw(&self.readings, &reading);
        self.line = Some(line);
        line
    }

    /// The line, once there is a reading.
    pub fn line(&self) -> Option<ClockMapping> {
        self.line
    }

    /// How often a reading of the other clock contradicted the line: it was set.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// Whether a reading deviates from the line by more than both their errors.
fn contradicts(line: &ClockMapping, reading: &Reading) -> bool {
    let expected = line.to_other(reading.at);
    let off = expected.at.as_nanos().abs_diff(reading.other.as_nanos());
    off > reading.error.saturating_add(expected.error.as_nanos())
}

/// The line through the most accurate current reading, with the rate to the reading that determines
/// it best.
fn draw(readings: &[Reading], newest: &Reading) -> ClockMapping {
    let aged = |reading: &&Reading| {
        let age = newest.at.since(reading.at).as_nanos();
        reading.error + (u128::from(age) * u128::from(WANDER_PPB) / BILLION) as u64
    };
    let base = *readings.iter().min_by_key(aged).unwrap_or(newest);
    let first = ClockMapping { base, gain: 0, growth_ppb: RATE_MAX_PPB };
    let lines = readings.iter().filter_map(|other| through(&base, other));
    let best = lines.min_by_key(|line| line.growth_ppb).filter(|line| line.growth_ppb < first.growth_ppb);
    best.unwrap_or(first)
}

/// The line through two readings, if they are far enough apart to determine a rate.
fn through(base: &Reading, far: &Reading) -> Option<ClockMapping> {
    let ours = i128::from(far.at.as_nanos()) - i128::from(base.at.as_nanos());
    let other = i128::from(far.other.as_nanos()) - i128::from(base.other.as_nanos());
    if ours == 0 {
        return None;
    }
    let gain = i64::try_from(((other - ours) << RATE_BITS) / ours).ok()?;
    let unsure =
        (u128::from(base.error.saturating_add(far.error).saturating_add(2)) * BILLION).div_ceil(ours.unsigned_abs());
    let growth_ppb = u64::try_from(unsure).ok()?.checked_add(WANDER_PPB)?;
    Some(ClockMapping { base: *base, gain, growth_ppb })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// The other clock's time at our origin.
    const ORIGIN: u64 = 1_700_000_000 * SECOND;

    /// The time of a clock that gains `ppb`.
    fn other_at(at: u64, ppb: i64) -> u64 {
        let gained = i128::from(at) * i128::from(ppb) / 1_000_000_000;
        (i128::from(ORIGIN + at) + gained) as u64
    }

    /// A reading at `at`, with the bracket from `before` to `after` it.
    fn sample(at: u64, (before, after): (u64, u64), ppb: i64) -> CrossTimestamp {
        CrossTimestamp {
            before: Instant::from_nanos(at - before),
            other: UnixTime::from_nanos(other_at(at, ppb)),
            after: Instant::from_nanos(at + after),
        }
    }

    fn off(estimate: Estimate<UnixTime>, truth: u64) -> u64 {
        estimate.at.as_nanos().abs_diff(truth)
    }

    #[test]
    fn one_reading_is_good_to_half_its_bracket_where_it_was_made() {
        let line = ClockTracker::new().add(&sample(5 * SECOND, (30, 90), 0));
        let there = line.to_other(Instant::from_nanos(5 * SECOND + 30));
        assert_eq!((there.at.as_nanos(), there.error.as_nanos()), (ORIGIN + 5 * SECOND, 62));
        // The rate of the other clock is not known yet.
        let later = line.to_other(Instant::from_nanos(6 * SECOND + 30));
        assert_eq!(later.error.as_nanos(), 600_062);
    }

    #[test]
    fn readings_far_apart_tell_the_rate() {
        let mut tracker = ClockTracker::new();
        let line = (1..=10).map(|second| tracker.add(&sample(second * SECOND, (40, 60), 20_000))).last().unwrap();
        assert!((19_900..=20_100).contains(&line.rate_ppb()), "{}", line.rate_ppb());
        let later = line.to_other(Instant::from_nanos(11 * SECOND));
        assert!(off(later, other_at(11 * SECOND, 20_000)) <= later.error.as_nanos());
        assert!(later.error < Duration::from_micros(2), "{}", later.error);
    }

    #[test]
    fn error_grows_with_age() {
        let mut tracker = ClockTracker::new();
        let line = (1..=10).map(|second| tracker.add(&sample(second * SECOND, (50, 50), 0))).last().unwrap();
        let errors = [10, 11, 20, 100].map(|second| line.to_other(Instant::from_nanos(second * SECOND)).error);
        assert!(errors.is_sorted() && errors[3] > errors[0] + Duration::from_micros(90), "{errors:?}");
    }

    #[test]
    fn clock_that_is_set_is_noticed_and_followed() {
        let mut tracker = ClockTracker::new();
        (1..=5).for_each(|second| {
            tracker.add(&sample(second * SECOND, (50, 50), 0));
        });
        let set =
            CrossTimestamp { other: UnixTime::from_nanos(ORIGIN + 7 * SECOND), ..sample(6 * SECOND, (50, 50), 0) };
        let line = tracker.add(&set);
        assert_eq!(tracker.steps(), 1);
        let now = line.to_other(Instant::from_nanos(6 * SECOND));
        assert_eq!((now.at.as_nanos(), now.error.as_nanos()), (ORIGIN + 7 * SECOND, 52));
    }

    #[test]
    fn interrupted_reading_is_not_what_the_line_goes_through() {
        let mut tracker = ClockTracker::new();
        tracker.add(&sample(SECOND, (50, 50), 0));
        tracker.add(&sample(2 * SECOND, (50, 50), 0));
        let line = tracker.add(&sample(2 * SECOND + 1_000, (50, 900_000), 0));
        assert_eq!(line.base(), Instant::from_nanos(2 * SECOND));
    }

    #[test]
    fn narrowest_of_some_readings_is_kept() {
        struct Steps(Vec<u64>);
        impl Clock for Steps {
            fn now(&mut self) -> Instant {
                Instant::from_nanos(self.0.remove(0))
            }
        }
        let mut clock = Steps(vec![0, 500, 600, 640, 700, 900]);
        let read = CrossTimestamp::read(&mut clock, || Some(UnixTime::from_nanos(1)), 3).unwrap();
        assert_eq!((read.before.as_nanos(), read.after.as_nanos()), (600, 640));
        assert_eq!(CrossTimestamp::read(&mut Steps(vec![1]), || None, 3), None);
    }

    proptest! {
        /// The guarantee for any rate, any brackets, and any moment within them at which the other
        /// clock was read.
        #[test]
        fn truth_is_within_the_stated_error(
            ppb in -500_000i64..500_000,
            brackets in prop::collection::vec((0u64..3_000, 0u64..3_000), 1..80),
            ahead in 0u64..20 * SECOND,
        ) {
            let mut tracker = ClockTracker::new();
            let mut at = SECOND;
            for bracket in &brackets {
                at += SECOND / 10;
                tracker.add(&sample(at, *bracket, ppb));
            }
            let line = tracker.line().unwrap();
            prop_assert_eq!(tracker.steps(), 0);
            for at in [at + ahead, at.saturating_sub(ahead / 10)] {
                let (ours, truth) = (Instant::from_nanos(at), other_at(at, ppb));
                let there = line.to_other(ours);
                prop_assert!(off(there, truth) <= there.error.as_nanos(), "{:?} {}", there, truth);
                let back = line.to_ours(UnixTime::from_nanos(truth));
                prop_assert!(back.at.as_nanos().abs_diff(at) <= back.error.as_nanos(), "{:?} {}", back, at);
            }
        }

        #[test]
        fn no_words_panic(words: [u64; 5], at: u64) {
            let line = ClockMapping::from_words(words);
            prop_assert_eq!(line.to_words(), words);
            line.to_other(Instant::from_nanos(at));
            line.to_ours(UnixTime::from_nanos(at));
        }
    }
}
