//! Decides when a recorded frame is due: compares recorded offsets with offsets of `now`.

use crate::time::Instant;

/// The speed of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Pace {
    /// As fast as the worker polls.
    #[default]
    FullSpeed,
    /// With the recorded gaps.
    Recorded,
    /// This many times as fast as recorded: 10.0 replays an hour in six minutes.
    Times(f64),
}

/// Relates the clock of the capture to the clock of the worker at the first frame. For devices that
/// replay a file.
#[derive(Debug)]
pub struct Pacer {
    pace: Pace,
    /// The time of the first poll with a frame, and that frame's recorded time.
    origin: Option<(Instant, u64)>,
}

impl Pacer {
    /// A pacer before the first frame.
    pub fn new(pace: Pace) -> Self {
        Self { pace, origin: None }
    }

    /// Whether a frame recorded at `timestamp_ns` is due at `now`. Frames keep their order, so one
    /// with an earlier time than its predecessor is due with it.
    #[inline]
    pub fn is_due(&mut self, timestamp_ns: u64, now: Instant) -> bool {
        if self.pace == Pace::FullSpeed {
            return true;
        }
        let (start, first_ns) = *self.origin.get_or_insert((now, timestamp_ns));
        let elapsed = now.since(start).as_nanos();
        let reached = match self.pace {
            // A double holds nanoseconds of 104 days exactly, and a conversion saturates.
            Pace::Times(factor) => (elapsed as f64 * factor) as u64,
            Pace::FullSpeed | Pace::Recorded => elapsed,
        };
        timestamp_ns.saturating_sub(first_ns) <= reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pace: Pace, elapsed: u64, recorded: u64, due: bool) {
        let mut pacer = Pacer::new(pace);
        assert!(pacer.is_due(1_000_000, Instant::from_nanos(77)), "the first frame is due at once");
        assert_eq!(pacer.is_due(1_000_000 + recorded, Instant::from_nanos(77 + elapsed)), due, "{pace:?}");
    }

    #[test]
    fn frame_is_due_when_its_offset_is_reached() {
        check(Pace::Recorded, 99, 100, false);
        check(Pace::Recorded, 100, 100, true);
        check(Pace::Times(10.0), 9, 100, false);
        check(Pace::Times(10.0), 10, 100, true);
        check(Pace::Times(0.5), 199, 100, false);
        check(Pace::Times(0.5), 200, 100, true);
        check(Pace::FullSpeed, 0, u64::MAX - 1_000_000, true);
    }

    #[test]
    fn frame_recorded_before_the_first_is_due_at_once() {
        let mut pacer = Pacer::new(Pace::Recorded);
        assert!(pacer.is_due(1_000, Instant::ZERO));
        assert!(pacer.is_due(10, Instant::ZERO));
    }
}
