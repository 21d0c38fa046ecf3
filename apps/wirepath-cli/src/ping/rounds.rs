//! The rounds: sends echoes on schedule, receives in between, and records the outcomes.
//!
//! ```text
//!  clock ─▶ ask ─▶ path ══════ the other end ══════ path ─▶ listen ─▶ clock ─▶ tracker
//! ```
//!
//! The clock is read right before an echo is posted and right after this program has its reply. A
//! posted echo reaches the device in the same call. NIC timestamps are not used, because the NIC
//! stamps only arrivals, and by its own clock.

use wirepath::time::{Clock, Duration, Instant};
use wirepath::worker::StopFlag;

use super::clock::PingClock;
use super::path::{EchoPayload, Path, Received, Refusal};
use super::tracker::{EchoOutcome, EchoTracker};

/// A path that may sleep wakes up at this interval, to check for a stop.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// One path with its tracker.
pub(super) struct MeasuredPath {
    pub(super) path: Box<dyn Path>,
    pub(super) tracker: EchoTracker,
    /// Why the first failed echo could not be sent.
    pub(super) first_error: Option<String>,
}

impl MeasuredPath {
    pub(super) fn new(path: Box<dyn Path>, timeout: Duration) -> Self {
        Self { path, tracker: EchoTracker::new(timeout), first_error: None }
    }
}

/// The schedule and the end of echoes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Echoes on each path; `None`: no limit.
    pub(super) count: Option<u64>,
    /// Between two echoes; zero sends the next one as soon as the reply arrives.
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
}

/// An event that gets a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Answer { sequence: u64, ttl: Option<u8>, verdict: EchoOutcome },
    Damaged,
    Refused(Refusal),
    Unsent,
}

/// Runs until all echoes are answered or lost, or until `stop`. Several lanes take turns, and each
/// waits until the previous one has its reply. `report` gets every event at once, with the lane's
/// number.
pub(super) fn run(
    lanes: &mut [MeasuredPath],
    plan: &Plan,
    payload: &mut EchoPayload,
    (clock, stop): (&mut PingClock, &StopFlag),
    mut report: impl FnMut(&MeasuredPath, Event),
) {
    let mut rounds = Rounds { plan: *plan, lanes: lanes.len() as u64, asked: 0, next: clock.now() };
    let mut received = Vec::new();
    let mut current = 0;
    while !stop.is_stopping() {
        let now = clock.now();
        if rounds.is_all_asked() && lanes.iter().all(|lane| is_settled(lane, now)) {
            return;
        }
        if rounds.is_due(&lanes[current], now) {
            current = (rounds.asked % rounds.lanes) as usize;
            rounds.asked += 1;
            // Late ones are not made up for: a burst of echoes would measure itself.
            rounds.next = (rounds.next + plan.interval).max(now);
            if !ask(&mut lanes[current], payload, clock) {
                report(&lanes[current], Event::Unsent);
                // Failed sends are not repeated at full speed.
                rounds.next = rounds.next.max(now + Duration::from_millis(1));
            }
        }
        let lane = &mut lanes[current];
        let until = rounds.wakes_at(lane, now);
        lane.path.listen(now, until, &mut received);
        if received.is_empty() {
            continue;
        }
        let now = clock.now();
        for received in received.drain(..) {
            let event = take(lane, received, now);
            report(lane, event);
        }
    }
}

struct Rounds {
    plan: Plan,
    lanes: u64,
    /// Echoes on all lanes, sent or not.
    asked: u64,
    /// When the next one is due.
    next: Instant,
}

impl Rounds {
    fn is_all_asked(&self) -> bool {
        self.plan.count.is_some_and(|count| self.asked >= count.saturating_mul(self.lanes))
    }

    fn is_due(&self, current: &MeasuredPath, now: Instant) -> bool {
        !self.is_all_asked() && now >= self.next && self.waits_until(current, now).is_none()
    }

    /// Until when the next echo has to wait for the reply to this one.
    fn waits_until(&self, current: &MeasuredPath, now: Instant) -> Option<Instant> {
        let one_by_one = self.lanes > 1 || self.plan.interval == Duration::ZERO;
        current.tracker.waits_until().filter(|until| one_by_one && now < *until)
    }

    /// The next deadline, in case nothing arrives.
    fn wakes_at(&self, current: &MeasuredPath, now: Instant) -> Instant {
        let due = match self.waits_until(current, now) {
            Some(until) => until,
            None if self.is_all_asked() => current.tracker.open_until().unwrap_or(now),
            None => self.next,
        };
        due.min(now + SLEEP_MAX)
    }
}

/// Whether no outstanding reply could still be in time.
fn is_settled(lane: &MeasuredPath, now: Instant) -> bool {
    lane.tracker.open_until().is_none_or(|until| now >= until)
}

fn ask(lane: &mut MeasuredPath, payload: &mut EchoPayload, clock: &mut PingClock) -> bool {
    let sequence = lane.tracker.next();
    let data = payload.write(sequence);
    let now = clock.now();
    match lane.path.send_request(sequence, data, now) {
        Ok(()) => {
            lane.tracker.record_request(now);
            true
        }
        Err(why) => {
            lane.tracker.record_unsent();
            lane.first_error.get_or_insert(why);
            false
        }
    }
}

fn take(lane: &mut MeasuredPath, received: Received, now: Instant) -> Event {
    match received {
        Received::Answer { sequence, ttl } => {
            Event::Answer { sequence, ttl, verdict: lane.tracker.record_answer(sequence, now) }
        }
        Received::Damaged => {
            lane.tracker.record_damaged();
            Event::Damaged
        }
        Received::Refused(refusal) => {
            lane.tracker.record_refusal();
            Event::Refused(refusal)
        }
    }
}
