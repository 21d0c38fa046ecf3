//! A replay from start to end: opens the files, starts a pinned worker, watches it, and sums up the
//! results.

mod source;

use std::sync::{Arc, mpsc};

use exchange_sim::Truth;
use wirepath::worker::{Ended, StopFlag, WorkerGroup};

use crate::error::Error;
use crate::event::Event;
use crate::plan::ReplayPlan;
use crate::report::{Origin, Run, Summary};
use crate::worker::{Frames, Work, together};
use crate::{memory, sniff, watch};

use source::Source;

/// Carries out a plan. `stop` ends it early, with the summary so far; `tell` gets the events
/// meanwhile.
pub fn replay(plan: &ReplayPlan, stop: &StopFlag, mut tell: impl FnMut(Event)) -> Result<Summary, Error> {
    let truth = plan.feed.truth.as_deref().map(Truth::read).transpose().map_err(Error::failed)?;
    sniff::check(plan)?;
    tell(Event::Notice(memory::check(plan.feed.channels_max().max(1), plan.feed.format.memory(plan.feed.capacity))?));
    let (source, queue, capabilities) = Source::open(plan)?;
    let block = watch::counters(&mut tell);
    let (events, heard) = mpsc::channel();
    let work = Work { name: "worker0".into(), plan: plan.feed.clone(), block: Arc::clone(&block), events };
    let frames = Frames::Replay { queue, capabilities, checksum: plan.checksum };
    let core = watch::core(plan.feed.worker.placement, 0, 1);
    let group = WorkerGroup::start(vec![work.spec(frames, core.number)], stop).map_err(Error::failed)?;
    tell(Event::Machine(group.report().clone()));
    watch::watch(&heard, &block, (None, stop), &mut tell);
    let done = together(group.join().map_err(Error::failed)?)?;
    let run = Run {
        origin: Origin::File(plan.input.clone()),
        stopped: done.ended == Ended::Stopped,
        limited: plan.packets_max.is_some(),
        seconds: done.seconds,
        core,
        held: done.kept,
        unnamed: done.unnamed,
        ending: source.ending(),
        recorded: source.recorded(),
        fault_seed: plan.faults.map(|faults| faults.seed),
    };
    let mut summary = Summary::new(&plan.feed, truth.as_ref(), run, &done.tally, &block.snapshot());
    if !summary.stopped && !summary.heard() && summary.failures.is_empty() {
        summary.failures.push(sniff::explain(plan));
    }
    Ok(summary)
}
