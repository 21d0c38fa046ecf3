//! The times of the open market's messages.
//!
//! Background messages and microbursts are one Poisson process in an even "operational" time from 0
//! to 1, which is then mapped to the day so that the opening and the close are dense and noon is
//! sparse. A burst takes no operational time: its messages are about a microsecond of real time
//! apart.

use crate::random::Random;
use crate::settings::Settings;

/// Steps of the table that maps time; finer ones make no visible difference.
const STEPS: usize = 1024;
/// Messages of a burst come 200 ns plus an exponential of this mean apart, about a million a
/// second. Nasdaq's opening of 2019-12-30 holds 1,000 messages within 2.4 ms, and its bursts are
/// denser than their mean.
const BURST_GAP_MEAN_NS: f64 = 800.0;
const BURST_GAP_MIN_NS: u64 = 200;

/// One message is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub time_ns: u64,
    pub burst: BurstPart,
}

/// Whether a message stands alone, or where in a burst it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BurstPart {
    None,
    First,
    Later,
}

/// Hands out arrival times that never run backwards.
#[derive(Debug)]
pub(super) struct Clock {
    start_ns: u64,
    span_ns: f64,
    /// Share of the day's activity until each step of the day.
    activity: Vec<f64>,
    step_idx: usize,
    position: f64,
    position_step: f64,
    burst_chance: f64,
    burst_size: u32,
    burst_left: u32,
    last_ns: u64,
    random: Random,
}

impl Clock {
    /// Spreads `messages` over the time they take at the rate of `settings`, from `start_ns` on.
    pub(super) fn new(settings: &Settings, messages: u64, start_ns: u64, random: Random) -> Self {
        let span_s = messages as f64 / settings.rate as f64;
        let bursts = settings.burst.per_second * span_s;
        let alone = (messages as f64 - bursts * f64::from(settings.burst.size)).max(0.0);
        let arrivals = (alone + bursts).max(1.0);
        Self {
            start_ns,
            span_ns: span_s * 1e9,
            activity: activity(),
            step_idx: 0,
            position: 0.0,
            position_step: 1.0 / arrivals,
            burst_chance: if settings.burst.size == 0 { 0.0 } else { bursts / arrivals },
            burst_size: settings.burst.size,
            burst_left: 0,
            last_ns: start_ns,
            random,
        }
    }

    /// When the next message happens. Costs some ten draws.
    pub(super) fn next(&mut self) -> Arrival {
        if self.burst_left > 0 {
            self.burst_left -= 1;
            self.last_ns += BURST_GAP_MIN_NS + (self.random.exponential() * BURST_GAP_MEAN_NS) as u64;
            return Arrival { time_ns: self.last_ns, burst: BurstPart::Later };
        }
        self.position += self.random.exponential() * self.position_step;
        let bent = self.bend();
        self.last_ns = self.last_ns.max(self.start_ns + (bent * self.span_ns) as u64);
        if !self.random.chance(self.burst_chance) {
            return Arrival { time_ns: self.last_ns, burst: BurstPart::None };
        }
        self.burst_left = self.burst_size - 1;
        Arrival { time_ns: self.last_ns, burst: BurstPart::First }
    }

    /// The time of day at which `position` of the activity is reached. Past 1, where the random
    /// draws made the day a little longer, time goes on evenly.
    fn bend(&mut self) -> f64 {
        if self.position >= 1.0 {
            return self.position;
        }
        while self.activity[self.step_idx + 1] <= self.position {
            self.step_idx += 1;
        }
        let (from, to) = (self.activity[self.step_idx], self.activity[self.step_idx + 1]);
        (self.step_idx as f64 + (self.position - from) / (to - from)) / STEPS as f64
    }
}

/// Sums the intensity over the day, scaled to end at 1.
fn activity() -> Vec<f64> {
    let mut sums = vec![0.0; STEPS + 1];
    for step in 0..STEPS {
        sums[step + 1] = sums[step] + intensity((step as f64 + 0.5) / STEPS as f64);
    }
    let total = sums[STEPS];
    for sum in &mut sums {
        *sum /= total;
    }
    // Rounding must not leave a position below 1 behind the last step.
    sums[STEPS] = 1.0;
    sums
}

/// Messages per time over the day (0 open, 1 close), up to a factor: a smile with two peaks. The
/// opening is some 18 times as dense as noon and the close some 13 times, as in the US markets to
/// the order of magnitude.
fn intensity(day: f64) -> f64 {
    let peak = |distance: f64| 1.0 / (1.0 + (distance / 0.02) * (distance / 0.02));
    let smile = (2.0 * day - 1.0) * (2.0 * day - 1.0);
    0.4 + 0.6 * smile + 6.0 * peak(day) + 4.0 * peak(1.0 - day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Burst;

    fn arrivals(messages: u64, burst: Burst) -> Vec<Arrival> {
        let settings = Settings { burst, ..Settings::default() };
        let mut clock = Clock::new(&settings, messages, 5, Random::new(1, 0));
        (0..messages).map(|_| clock.next()).collect()
    }

    #[test]
    fn time_never_runs_backwards() {
        let arrivals = arrivals(100_000, Burst { size: 300, per_second: 30.0 });
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.time_ns));
        assert!(arrivals[0].time_ns >= 5);
    }

    #[test]
    fn day_lasts_as_long_as_the_rate_says() {
        for burst in [Burst::NONE, Burst { size: 100, per_second: 500.0 }] {
            let last = arrivals(200_000, burst).last().unwrap().time_ns as f64;
            assert!((last / 2e9 - 1.0).abs() < 0.05, "{burst}: 2 s became {last} ns");
        }
    }

    #[test]
    fn opening_and_close_are_denser_than_noon() {
        let arrivals = arrivals(100_000, Burst::NONE);
        let in_slot = |slot: u64| arrivals.iter().filter(|arrival| arrival.time_ns / 50_000_000 == slot).count();
        assert!(in_slot(0) > 5 * in_slot(9));
        assert!(in_slot(19) > 4 * in_slot(9));
    }

    #[test]
    fn bursts_have_their_size_and_frequency() {
        let arrivals = arrivals(100_000, Burst { size: 50, per_second: 200.0 });
        let bursts = arrivals.iter().filter(|arrival| arrival.burst == BurstPart::First).count();
        let later = arrivals.iter().filter(|arrival| arrival.burst == BurstPart::Later).count();
        assert!((150..250).contains(&bursts), "{bursts} bursts in one second");
        assert!((later / 49).abs_diff(bursts) <= 1);
    }

    #[test]
    fn burst_of_all_messages_leaves_none_alone() {
        let arrivals = arrivals(10_000, Burst { size: 100, per_second: 1000.0 });
        assert!(arrivals.iter().all(|arrival| arrival.burst != BurstPart::None));
    }
}
