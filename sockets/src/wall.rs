//! The wall clock for the stamps of messages: the time of a turn, converted by the framework's
//! timeline.

use wirepath::time::{Clock, ClockMapping, ClockTracker, CrossTimestamp, Duration, Instant, UnixTime};

/// The wall time of an instant of the worker's clock.
pub trait Wall {
    /// Converts a recent instant. Not called for sockets without stamps.
    fn at(&mut self, instant: Instant) -> UnixTime;
}

/// In virtual time: the wall clock shows the worker's time since 1 January 1970.
impl Wall for () {
    fn at(&mut self, instant: Instant) -> UnixTime {
        UnixTime::from_nanos(instant.as_nanos())
    }
}

/// Time between two readings: as long as between those of `TimelineThread`.
const EVERY: Duration = Duration::from_millis(100);
/// Readings of which the best one counts.
const TRIES: usize = 4;

/// The system's wall clock (`CLOCK_REALTIME`). It is read by the conversions themselves, ten times
/// a second at most and not at all while nothing is converted, so it needs no thread.
pub(crate) struct SystemWall<C> {
    clock: C,
    tracker: ClockTracker,
    line: Option<ClockMapping>,
    read_at: Option<Instant>,
}

impl<C: Clock> SystemWall<C> {
    /// The wall clock beside `clock`, a copy of the worker's.
    pub(crate) fn beside(clock: C) -> Self {
        Self { clock, tracker: ClockTracker::new(), line: None, read_at: None }
    }
}

impl<C: Clock> Wall for SystemWall<C> {
    fn at(&mut self, instant: Instant) -> UnixTime {
        // An instant before the last reading lies on the line that the readings make.
        if self.read_at.is_none_or(|read_at| instant >= read_at + EVERY) {
            let wall = || {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                Some(UnixTime::from_nanos(since.map_or(0, |since| since.as_nanos() as u64)))
            };
            if let Some(sample) = CrossTimestamp::read(&mut self.clock, wall, TRIES) {
                self.line = Some(self.tracker.add(&sample));
                self.read_at = Some(sample.after);
            }
        }
        self.line.map_or(UnixTime::from_nanos(0), |line| line.to_other(instant).at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use wirepath::time::MonotonicClock;

    use super::*;

    #[test]
    fn instant_is_converted_to_what_the_systems_clock_showed() {
        let mut clock = MonotonicClock::start();
        let mut wall = SystemWall::beside(clock);
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let before = now();
        let instant = clock.now();
        let after = now();
        let at = wall.at(instant).as_nanos();
        let slack = 1_000_000;
        assert!((before - slack..after + slack).contains(&at), "{at} within {before} to {after}");
    }
}
