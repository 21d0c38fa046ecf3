//! Events for the user during a run.

use std::fmt;
use std::time::Duration;

use wirepath::counters::Snapshot;
use wirepath::worker::topology::TopologyReport;

use crate::report::{grouped, rate, worker_count};

/// An event that the user may want to know.
#[derive(Clone, Debug)]
pub enum Event {
    /// A notice, as a sentence.
    Notice(String),
    /// The pipeline as it was built, and the sizes of its pool.
    Built(String),
    /// The report about the machine.
    Machine(TopologyReport),
    /// A worker on a live port receives from now on; its description, as a sentence.
    Ready(String),
    /// A second has passed.
    Progress(Progress),
}

/// The progress so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Since the start.
    pub seconds: f64,
    /// Frames received.
    pub packets: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Messages a second, over the last second.
    pub messages_per_second: f64,
    /// Gaps so far.
    pub gaps: u64,
}

impl Progress {
    pub(crate) fn between(before: &Snapshot, now: &Snapshot, elapsed: Duration) -> Self {
        let messages = worker_count(now, "feed/messages");
        let span = now.taken.duration_since(before.taken).as_secs_f64();
        let more = messages.saturating_sub(worker_count(before, "feed/messages"));
        Self {
            seconds: elapsed.as_secs_f64(),
            packets: worker_count(now, "frames"),
            messages,
            messages_per_second: if span > 0.0 { more as f64 / span } else { 0.0 },
            gaps: worker_count(now, "feed/gaps"),
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [packets, messages, gaps] = [self.packets, self.messages, self.gaps].map(grouped);
        let (seconds, rate) = (self.seconds, rate(self.messages_per_second));
        write!(f, "{seconds:4.0} s  {packets} packets  {messages} messages, {rate}  {gaps} gaps")
    }
}
