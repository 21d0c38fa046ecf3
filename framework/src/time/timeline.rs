//! The timeline: relates the worker's clock, the wall clock and the NIC's clock, each conversion
//! with its error.

use super::cross::elsewhere;
use super::{ClockMapping, Estimate, Instant, UnixTime};

/// The relations of other clocks to the worker's: plain numbers, read without a lock, a clock or a
/// system call. The sampler of the clocks updates it: a caller with
/// [`ClockTracker`](super::ClockTracker), or a thread of
/// [`worker::timeline`](../worker/timeline/index.html).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The wall clock: UTC or TAI, as the sampler is configured.
    pub wall: Option<ClockMapping>,
    /// The NIC's clock, which stamps frames: its PTP hardware clock.
    pub nic: Option<ClockMapping>,
}

impl Timeline {
    /// The wall clock time at an instant of the worker's clock.
    #[inline]
    pub fn wall_at(&self, at: Instant) -> Option<Estimate<UnixTime>> {
        Some(self.wall?.to_other(at))
    }

    /// The worker's time when the wall clock shows `at`.
    #[inline]
    pub fn instant_of_wall(&self, at: UnixTime) -> Option<Estimate<Instant>> {
        Some(self.wall?.to_ours(at))
    }

    /// The worker's time when the NIC stamped a frame with `at`.
    #[inline]
    pub fn instant_of_nic(&self, at: UnixTime) -> Option<Estimate<Instant>> {
        Some(self.nic?.to_ours(at))
    }

    /// The wall clock time when the NIC stamped a frame with `at`. The errors of both clocks add
    /// up.
    #[inline]
    pub fn wall_of_nic(&self, at: UnixTime) -> Option<Estimate<UnixTime>> {
        let instant = self.instant_of_nic(at)?;
        let wall = self.wall_at(instant.at)?;
        Some(Estimate { at: wall.at, error: wall.error + elsewhere(instant.error) })
    }

    /// As words, for a ring between threads.
    pub fn to_words(self) -> [u64; 12] {
        let mut words = [0; 12];
        for (half, line) in words.as_chunks_mut::<6>().0.iter_mut().zip([self.wall, self.nic]) {
            if let Some(line) = line {
                half[0] = 1;
                half[1..].copy_from_slice(&line.to_words());
            }
        }
        words
    }

    /// The inverse of [`to_words`](Self::to_words).
    pub fn from_words(words: &[u64; 12]) -> Self {
        let line = |half: &[u64; 6]| {
            let [is_there, rest @ ..] = *half;
            (is_there == 1).then(|| ClockMapping::from_words(rest))
        };
        let [wall, nic] = [0, 1].map(|idx| line(&words.as_chunks::<6>().0[idx]));
        Self { wall, nic }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ClockTracker, CrossTimestamp};

    const SECOND: u64 = 1_000_000_000;

    /// A clock that shows `origin` at our zero, read ten times within 100 ns.
    fn line(origin: u64) -> ClockMapping {
        let mut tracker = ClockTracker::new();
        let sample = |second: u64| CrossTimestamp {
            before: Instant::from_nanos(second * SECOND - 50),
            other: UnixTime::from_nanos(origin + second * SECOND),
            after: Instant::from_nanos(second * SECOND + 50),
        };
        (1..=10).map(|second| tracker.add(&sample(second))).last().unwrap()
    }

    #[test]
    fn stamp_of_the_nic_is_told_on_every_clock() {
        let (utc, ptp) = (1_700_000_000 * SECOND, 1_700_000_037 * SECOND);
        let timeline = Timeline { wall: Some(line(utc)), nic: Some(line(ptp)) };
        let stamp = UnixTime::from_nanos(ptp + 10 * SECOND + 5);
        let ours = timeline.instant_of_nic(stamp).unwrap();
        assert_eq!((ours.at.as_nanos(), ours.error.as_nanos()), (10 * SECOND + 5, 54));
        let wall = timeline.wall_of_nic(stamp).unwrap();
        assert_eq!((wall.at.as_nanos(), wall.error.as_nanos()), (utc + 10 * SECOND + 5, 108));
        assert_eq!(wall.to_string(), "1700000010.000000005 s ± 108 ns");
        assert_eq!(timeline.instant_of_wall(wall.at).unwrap().at, ours.at);
    }

    #[test]
    fn clock_that_nobody_samples_says_nothing() {
        let timeline = Timeline { wall: Some(line(0)), nic: None };
        assert_eq!(
            (timeline.instant_of_nic(UnixTime::default()), timeline.wall_of_nic(UnixTime::default())),
            (None, None)
        );
        assert!(timeline.wall_at(Instant::ZERO).is_some());
        assert_eq!(Timeline::default().wall_at(Instant::ZERO), None);
    }

    #[test]
    fn words_bring_all_of_it_back() {
        for timeline in [Timeline { wall: Some(line(7)), nic: None }, Timeline { wall: None, nic: Some(line(9)) }] {
            assert_eq!(Timeline::from_words(&timeline.to_words()), timeline);
        }
    }
}
