//! The workers: what a replay and a live port have in common once there is a queue. The main thread
//! gives each worker its [`WorkerInputs`]; everything that touches packets is made on the worker's
//! own thread, in `work.rs`. While they run the main thread only reads counters, once a second.

mod inputs;
mod progress;
mod work;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use wirepath::counters::Block;
use wirepath::worker::{Ended, StopFlag, WorkerContext, WorkerSpec, affinity};

use crate::error::Error;
use crate::feed::FeedTally;
use crate::format::{CboePitch, Format, IexDeep, IexTops, MoldItch50};
use crate::plan::Placement;
use crate::report::{Core, newly_met};

pub(crate) use inputs::{Frames, Replay, WorkerInputs};
pub use progress::{Event, Progress};
use work::work;

/// Between two looks at the counters.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// What a worker brings home.
pub(crate) struct Done {
    /// Of several: that a device ended, where one did.
    pub(crate) ended: Ended,
    pub(crate) seconds: f64,
    pub(crate) kept: u64,
    pub(crate) unnamed: u64,
    pub(crate) tally: FeedTally,
}

/// What all of them bring home together. There is one at least.
pub(crate) fn together(done: Vec<Result<Done, Error>>) -> Result<Done, Error> {
    let mut all = done.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut sum = all.next().ok_or_else(|| Error::Failed("no worker was started".into()))?;
    for done in all {
        if done.ended == Ended::DeviceEnded {
            sum.ended = done.ended;
        }
        sum.seconds = sum.seconds.max(done.seconds);
        sum.kept += done.kept;
        sum.unnamed += done.unnamed;
        sum.tally.add(done.tally);
    }
    Ok(sum)
}

/// Counters for other processes to see; in private memory, and said so, where there can be none.
pub(crate) fn counters(tell: &mut impl FnMut(Event)) -> Arc<Block> {
    Arc::new(Block::create("feed-handler").unwrap_or_else(|error| {
        tell(Event::Notice(format!("{error}; counting in private memory instead: wirepath stats will not see it")));
        Block::heap()
    }))
}

/// The core of worker number `idx` of `count`: the last ones that are ours, or counted from the one
/// that was named.
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

/// The worker for the plan's format: from here on it is known at compile time.
pub(crate) fn spec(inputs: WorkerInputs, core: Option<usize>) -> WorkerSpec<Result<Done, Error>> {
    let name = inputs.name.clone();
    let spec = match inputs.plan.format {
        Format::MoldItch50 | Format::Itch50File => {
            WorkerSpec::new(name, |context: &WorkerContext| work::<MoldItch50>(context, inputs))
        }
        Format::IexTops => WorkerSpec::new(name, |context: &WorkerContext| work::<IexTops>(context, inputs)),
        Format::IexDeep => WorkerSpec::new(name, |context: &WorkerContext| work::<IexDeep>(context, inputs)),
        Format::CboePitch => WorkerSpec::new(name, |context: &WorkerContext| work::<CboePitch>(context, inputs)),
    };
    match core {
        Some(core) => spec.on_core(core),
        None => spec,
    }
}

/// Passes on what the workers say, and looks at their counters once a second, until the last of
/// them lets go of its end. Stops them after `duration`, counted from the moment when the first was
/// ready.
pub(crate) fn watch(
    heard: &Receiver<Event>,
    block: &Block,
    (duration, stop): (Option<Duration>, &StopFlag),
    tell: &mut impl FnMut(Event),
) {
    let mut before = block.snapshot();
    let started = before.taken;
    let mut next = Instant::now() + PROGRESS_PERIOD;
    let mut deadline: Option<Instant> = None;
    loop {
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        match heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(event) => {
                if matches!(event, Event::Ready(_)) {
                    deadline = deadline.or_else(|| Some(Instant::now() + duration?));
                }
                tell(event);
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
                    tell(Event::Progress(Progress::between(&before, &now, now.taken.duration_since(started))));
                    newly_met(&before, &now).into_iter().for_each(|sentence| tell(Event::Notice(sentence)));
                    before = now;
                }
            }
        }
    }
}
