//! Requests and replies: each echo ends as answered in time, answered late, or lost.

use hdrhistogram::Histogram;
use wirepath::time::{Duration, Instant};

/// Echoes that can be distinguished: a reply to an older one is of an unknown echo. As many as ICMP
/// has sequence numbers.
const WINDOW: usize = 1 << 16;
/// Significant digits of the quantiles: an error of 0.1 %.
const DIGITS: u8 = 3;
/// The longest round trip that the histogram resolves: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The echoes of one path.
pub(super) struct EchoTracker {
    timeout: Duration,
    entries: Vec<RequestEntry>,
    counts: Counts,
    round_trips: Histogram<u64>,
    /// Exact, where the histogram rounds.
    fastest: Duration,
    slowest: Duration,
}

#[derive(Clone, Copy)]
struct RequestEntry {
    asked: Instant,
    is_answered: bool,
}

/// The number of echoes by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Echoes that left.
    pub(super) sent: u64,
    /// Answered within the timeout.
    pub(super) received: u64,
    /// Answered after it.
    pub(super) late: u64,
    /// Second and further answers.
    pub(super) duplicates: u64,
    /// Replies with other bytes than were sent, or to echoes that were not sent.
    pub(super) damaged: u64,
    /// Errors instead of a reply: the port is closed.
    pub(super) refused: u64,
    /// Echoes that could not be sent.
    pub(super) unsent: u64,
}

impl Counts {
    /// Echoes without a reply: at the end those are lost.
    pub(super) fn unanswered(&self) -> u64 {
        self.sent - self.received - self.late
    }
}

/// The class of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EchoOutcome {
    InTime(Duration),
    Late(Duration),
    Duplicate(Duration),
    /// Not requested, or so long ago that the record is gone.
    Unknown,
}

impl EchoTracker {
    /// A tracker of no echoes. A reply later than `timeout` after its echo is late, and not among
    /// the round trips.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            entries: Vec::new(),
            counts: Counts::default(),
            round_trips: Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("these bounds make sense"),
            fastest: Duration::from_nanos(u64::MAX),
            slowest: Duration::ZERO,
        }
    }

    /// The sequence number of the next echo.
    pub(super) fn next(&self) -> u64 {
        self.counts.sent
    }

    /// The next echo leaves.
    pub(super) fn record_request(&mut self, now: Instant) {
        let entry = RequestEntry { asked: now, is_answered: false };
        let place = self.counts.sent as usize % WINDOW;
        match self.entries.get_mut(place) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
        self.counts.sent += 1;
    }

    /// The echo could not leave.
    pub(super) fn record_unsent(&mut self) {
        self.counts.unsent += 1;
    }

    /// A reply to echo `sequence`.
    pub(super) fn record_answer(&mut self, sequence: u64, now: Instant) -> EchoOutcome {
        let is_known = sequence < self.counts.sent && sequence + (WINDOW as u64) >= self.counts.sent;
        let entry = self.entries.get_mut(sequence as usize % WINDOW).filter(|_| is_known);
        let Some(entry) = entry else {
            self.counts.damaged += 1;
            return EchoOutcome::Unknown;
        };
        let round_trip = now.since(entry.asked);
        if entry.is_answered {
            self.counts.duplicates += 1;
            return EchoOutcome::Duplicate(round_trip);
        }
        entry.is_answered = true;
        if round_trip > self.timeout {
            self.counts.late += 1;
            return EchoOutcome::Late(round_trip);
        }
        self.counts.received += 1;
        self.round_trips.saturating_record(round_trip.as_nanos());
        self.fastest = self.fastest.min(round_trip);
        self.slowest = self.slowest.max(round_trip);
        EchoOutcome::InTime(round_trip)
    }

    /// A reply with other bytes than were sent.
    pub(super) fn record_damaged(&mut self) {
        self.counts.damaged += 1;
    }

    /// An error instead of a reply.
    pub(super) fn record_refusal(&mut self) {
        self.counts.refused += 1;
    }

    /// Until when the newest echo may still be answered in time; `None` where none is pending.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        let newest = self.counts.sent.checked_sub(1)?;
        let entry = &self.entries[newest as usize % WINDOW];
        (!entry.is_answered).then(|| entry.asked + self.timeout)
    }

    /// Until when any echo may still be answered in time; `None` where none is pending.
    pub(super) fn open_until(&self) -> Option<Instant> {
        let newest = self.counts.sent.checked_sub(1)?;
        let asked = self.entries[newest as usize % WINDOW].asked;
        (self.counts.unanswered() > 0).then(|| asked + self.timeout)
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// The round trips in time, in nanoseconds.
    pub(super) fn round_trips(&self) -> &Histogram<u64> {
        &self.round_trips
    }

    /// Minimum and maximum of the round trips; `None` where there are none.
    pub(super) fn extremes(&self) -> Option<(Duration, Duration)> {
        (self.counts.received > 0).then_some((self.fastest, self.slowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn asked(times_ms: &[u64]) -> EchoTracker {
        let mut tracker = EchoTracker::new(Duration::from_millis(100));
        times_ms.iter().for_each(|&ms| tracker.record_request(at(ms)));
        tracker
    }

    #[test]
    fn answer_is_in_time_late_or_twice() {
        let mut tracker = asked(&[0, 10]);
        assert_eq!(tracker.record_answer(1, at(20)), EchoOutcome::InTime(Duration::from_millis(10)));
        assert_eq!(tracker.record_answer(1, at(21)), EchoOutcome::Duplicate(Duration::from_millis(11)));
        assert_eq!(tracker.record_answer(0, at(101)), EchoOutcome::Late(Duration::from_millis(101)));
        assert_eq!(tracker.record_answer(2, at(101)), EchoOutcome::Unknown);
        let counts = Counts { sent: 2, received: 1, late: 1, duplicates: 1, damaged: 1, ..Counts::default() };
        assert_eq!((tracker.counts(), tracker.counts().unanswered()), (counts, 0));
        assert_eq!(tracker.extremes(), Some((Duration::from_millis(10), Duration::from_millis(10))));
    }

    #[test]
    fn echo_without_an_answer_is_waited_for_until_its_timeout() {
        let mut tracker = asked(&[0, 10]);
        assert_eq!((tracker.waits_until(), tracker.open_until()), (Some(at(110)), Some(at(110))));
        tracker.record_answer(1, at(20));
        assert_eq!((tracker.waits_until(), tracker.open_until()), (None, Some(at(110))));
        tracker.record_answer(0, at(30));
        assert_eq!((tracker.open_until(), tracker.counts().unanswered()), (None, 0));
    }

    #[test]
    fn echo_that_was_overtaken_by_the_window_is_unknown() {
        let mut tracker = EchoTracker::new(Duration::from_secs(1));
        (0..=WINDOW as u64).for_each(|us| tracker.record_request(Instant::ZERO + Duration::from_micros(us)));
        assert_eq!(tracker.record_answer(0, at(70)), EchoOutcome::Unknown);
        assert!(matches!(tracker.record_answer(1, at(70)), EchoOutcome::InTime(_)));
        assert_eq!(tracker.counts().unanswered(), WINDOW as u64);
    }

    #[test]
    fn nothing_asked_is_nothing_open() {
        let tracker = asked(&[]);
        assert_eq!((tracker.waits_until(), tracker.open_until(), tracker.extremes()), (None, None, None));
    }
}
