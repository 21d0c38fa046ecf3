//! A replay from beginning to end: open the files, start a pinned worker, watch it, and add up what
//! happened.

mod source;

use std::sync::Arc;
use std::sync::mpsc;

use exchange_sim::Truth;
use wirepath::mem::{BURST_MAX, Layout, Sizing};
use wirepath::pipeline::Ipv4Config;
use wirepath::worker::{Ended, StopFlag, WorkerGroup, random_seed};

use crate::device::AnyQueue;
use crate::error::Error;
use crate::memory;
use crate::plan::ReplayPlan;
use crate::report::{Origin, Run, Summary};
use crate::sniff;
use crate::worker::{self, Event, Frames, Replay, WorkerInputs};

use source::Source;

/// Carries out a plan. `stop` ends it early, with the summary so far; `tell` hears what happens
/// meanwhile.
pub fn replay(plan: &ReplayPlan, stop: &StopFlag, mut tell: impl FnMut(Event)) -> Result<Summary, Error> {
    let truth = plan.feed.truth.as_deref().map(Truth::read).transpose().map_err(Error::failed)?;
    sniff::check(plan)?;
    tell(Event::Notice(memory::check(plan.feed.channels_max().max(1), plan.feed.format.memory(plan.feed.capacity))?));
    let (source, queue) = Source::open(plan)?;
    let block = worker::counters(&mut tell);
    let (events, heard) = mpsc::channel();
    let inputs = WorkerInputs {
        name: "worker0".into(),
        plan: plan.feed.clone(),
        frames: frames(plan, queue),
        block: Arc::clone(&block),
        events,
    };
    let core = worker::core(plan.feed.worker.placement, 0, 1);
    let group = WorkerGroup::start(vec![worker::spec(inputs, core.number)], stop).map_err(Error::failed)?;
    tell(Event::Machine(group.report().clone()));
    worker::watch(&heard, &block, (None, stop), &mut tell);
    let done = worker::together(group.join().map_err(Error::failed)?)?;
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

fn frames(plan: &ReplayPlan, queue: Box<dyn AnyQueue>) -> Frames {
    let faults = if plan.faults.is_some() { BURST_MAX * 4 } else { 0 };
    let buffers = Sizing::new()
        .part("burst", BURST_MAX, "in the hands of the pipeline")
        .part("reserve", BURST_MAX, "for receiving, however much waits")
        .part("reassembly", Ipv4Config::new(random_seed()).reassembly.pieces, "fragments that wait for the rest")
        .part("faults", faults, "frames that the fault device holds back or copies");
    let layout = Layout::for_frames(plan.frame_len_max);
    Frames::Replay(Replay { queue, packets_max: plan.packets_max, layout, buffers, checksum: plan.checksum })
}
