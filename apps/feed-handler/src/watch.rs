//! The main thread while workers run: it gives them their cores and the memory of their counters,
//! and then only reads counters, once a second.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use wirepath::counters::Block;
use wirepath::worker::{StopFlag, affinity};

use crate::event::{Event, Progress};
use crate::report::{Core, newly_met};
use crate::values::Placement;

/// Interval of reading the counters.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Counters in shared memory; in private memory, with a notice, where that is impossible.
pub(crate) fn counters(report: &mut impl FnMut(Event)) -> Arc<Block> {
    Arc::new(Block::create("feed-handler").unwrap_or_else(|error| {
        report(Event::Notice(format!("{error}; counting in private memory instead: wirepath stats will not see it")));
        Block::heap()
    }))
}

/// The core of worker number `idx` of `count`: the last ones that we may use, or counted from the
/// named one.
pub(crate) fn core(placement: Placement, idx: usize, count: usize) -> Core {
    let number = match placement {
        Placement::Core(core) => Some(core + idx),
        Placement::Last => affinity::current().and_then(|cores| {
            let cores: Vec<_> = cores.iter().collect();
            cores.get(cores.len().checked_sub(count - idx)?).copied()
        }),
        Placement::Any => None,
    };
    Core { number, chosen: placement == Placement::Last }
}

/// Passes on the workers' events, and reads their counters once a second, until the last worker has
/// dropped its sender. Stops them after `duration`, counted from the moment when the first was
/// ready.
pub(crate) fn watch(
    events_of_worker: &Receiver<Event>,
    block: &Block,
    (duration, stop): (Option<Duration>, &StopFlag),
    report: &mut impl FnMut(Event),
) {
    let mut before = block.snapshot();
    let started = before.taken;
    let mut next = Instant::now() + PROGRESS_PERIOD;
    let mut deadline: Option<Instant> = None;
    loop {
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        match events_of_worker.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(event) => {
                if matches!(event, Event::Ready(_)) {
                    deadline = deadline.or_else(|| Some(Instant::now() + duration?));
                }
                report(event);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                    stop.stop();
                    deadline = None;
                }
                if next <= Instant::now() {
                    next += PROGRESS_PERIOD;
                    let now = block.snapshot();
                    report(Event::Progress(Progress::between(&before, &now, now.taken.duration_since(started))));
                    newly_met(&before, &now).into_iter().for_each(|sentence| report(Event::Notice(sentence)));
                    before = now;
                }
            }
        }
    }
}
