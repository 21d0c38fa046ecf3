//! A replay from beginning to end: open the files, start a pinned worker, watch it, and add up what happened.

mod source;

use std::sync::Arc;
use std::sync::mpsc;

use exchange_sim::Truth;
use wirepath::mem::{BURST_MAX, Layout, Sizing};
use wirepath::pipeline::{EgressConfig, Ipv4Config};
use wirepath::worker::{Ended, StopFlag, WorkerGroup};

use crate::device::AnyQueue;
use crate::error::Error;
use crate::feed::ArrivalClock;
use crate::memory;
use crate::plan::ReplayPlan;
use crate::report::{Origin, Run, Summary};
use crate::sniff;
use crate::worker::{self, Event, Ground, Job, Nodes, replay_host};

use source::Source;

/// Carries out a plan. `stop` ends it early, with the summary so far; `tell` hears what happens meanwhile.
pub fn replay(plan: &ReplayPlan, stop: &StopFlag, mut tell: impl FnMut(Event)) -> Result<Summary, Error> {
    let truth = plan.feed.truth.as_deref().map(Truth::read).transpose().map_err(Error::failed)?;
    sniff::check(plan)?;
    tell(Event::Notice(memory::check(plan.feed.channels_max().max(1), plan.feed.format.memory(plan.feed.capacity))?));
    let (source, queue) = Source::open(plan)?;
    let block = worker::counters(&mut tell);
    let (events, heard) = mpsc::channel();
    let job = Job {
        name: "worker0".into(),
        plan: plan.feed.clone(),
        ground: ground(plan, queue)?,
        block: Arc::clone(&block),
        events,
    };
    let core = worker::core(plan.feed.worker.placement, 0, 1);
    let group = WorkerGroup::start(vec![worker::spec(job, core.number)], stop).map_err(Error::failed)?;
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

fn ground(plan: &ReplayPlan, queue: Box<dyn AnyQueue>) -> Result<Ground, Error> {
    let seed = worker::seed();
    let faults = if plan.faults.is_some() { BURST_MAX * 4 } else { 0 };
    let buffers = Sizing::new()
        .part("burst", BURST_MAX, "in the hands of the pipeline")
        .part("reserve", BURST_MAX, "for receiving, however much waits")
        .part("reassembly", Ipv4Config::new(seed).reassembly.pieces, "fragments that wait for the rest")
        .part("faults", faults, "frames that the fault device holds back or copies");
    Ok(Ground {
        queue,
        packets_max: plan.packets_max,
        layout: Layout::for_frames(plan.frame_len_max),
        buffers,
        host: replay_host(seed)?,
        follower: None,
        egress: EgressConfig::quiet(seed),
        nodes: Nodes::Replay(plan.checksum),
        clock: ArrivalClock::Recorded,
        ready: None,
    })
}
