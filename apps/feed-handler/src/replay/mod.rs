//! A replay from start to end: opens the files, starts a pinned worker, watches it, and sums up the
//! results.

mod source;

use market::EventSink;
use wirepath::port::Port;
use wirepath::worker::{Ended, StopFlag};

use crate::error::Error;
use crate::event::Event;
use crate::feed::ArrivalClock;
use crate::join::{Learning, learning_stack};
use crate::plan::{FeedPlan, ReplayPlan};
use crate::report::{PacketSource, Run, Summary, read_truth};
use crate::run::{Frames, SinkContext, WorkerTask, merge_results};
use crate::{memory, sniff, watch};

use source::Source;

/// Carries out a plan. `stop` ends it early, with the summary so far; `report` gets the events
/// meanwhile.
pub fn replay(plan: &ReplayPlan, stop: &StopFlag, report: impl FnMut(Event)) -> Result<Summary, Error> {
    replay_with(plan, stop, report, |_| Ok(()))
}

/// The same; the worker passes the events of its channels to clones of the sink that `sinks` makes,
/// on the worker's thread and before the first packet.
pub fn replay_with<S: EventSink + Clone + 'static>(
    plan: &ReplayPlan,
    stop: &StopFlag,
    mut report: impl FnMut(Event),
    sinks: impl Fn(&SinkContext) -> Result<S, Error> + Send + Sync + 'static,
) -> Result<Summary, Error> {
    let truth = plan.feed.truth.as_deref().map(read_truth).transpose()?;
    sniff::check(plan)?;
    report(Event::Notice(memory::check(&plan.feed.books())?));
    let (source, device) = Source::open(plan)?;
    let block = watch::counters(&mut report);
    let core = watch::core(plan.feed.worker.placement, 0, 1);
    let port = Port::over(device).cores(core.number).promiscuous().checksum(plan.checksum);
    let port = plan.feed.subscriptions(None).into_iter().fold(port, Port::subscribe);
    let (work, events) = WorkerTask::new(plan.feed.clone(), sinks);
    let frames = Frames { clock: ArrivalClock::Recorded, count_max: plan.packets_max, ready: None };
    let learning = learning(&plan.feed);
    let running = port.counters(&block).stop_by(stop).log(|_| ()).start(move |builder, worker| {
        let nodes = |stack, _: &_, scope: &_| learning_stack(&stack, learning, scope);
        work.run(work.plan.clone(), builder, worker, frames.clone(), nodes)
    });
    let mut running = running.map_err(Error::failed)?;
    report(Event::Machine(running.report().clone()));
    watch::watch(&events, &block, (None, stop), &mut report);
    let recording = source::recording(running.port());
    let done = merge_results(running.join().map_err(Error::failed)?)?;
    let recorded = recording.as_ref().and_then(|recording| recording.get());
    let run = Run {
        source: PacketSource::File(plan.input.clone()),
        stopped: done.ended == Ended::Stopped,
        limited: plan.packets_max.is_some(),
        seconds: done.seconds,
        core,
        held: done.kept,
        without_reason: done.without_reason,
        ending: source.ending(),
        recorded: recorded.map(|recorded| recorded.as_ref().map(|file| file.frames).map_err(ToString::to_string)),
        fault_seed: plan.faults.map(|faults| faults.seed),
    };
    let mut summary = Summary::new(&plan.feed, truth.as_ref(), run, &done.tally, &block.snapshot());
    if !summary.stopped && !summary.received_anything() && summary.failures.is_empty() {
        summary.failures.push(sniff::explain_no_packets(plan));
    }
    Ok(summary)
}

/// All groups of a file are received where the configuration names none. On a port they are not,
/// because any host that reaches it can send to any group.
fn learning(plan: &FeedPlan) -> Learning {
    let is_named = !plan.sets.is_empty() || !plan.groups.is_empty();
    if is_named { Learning::Off } else { Learning::On }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::IexDeep;
    use crate::plan::tests::feed_plan;
    use crate::run::feed_config;

    #[test]
    fn port_learns_neither_groups_nor_channels() {
        let plan = feed_plan();
        assert_eq!(learning(&plan), Learning::On, "of a file; the tree of a port has no node that joins");
        assert!(feed_config::<IexDeep>(&plan, ArrivalClock::Recorded).learned_max > 0);
        assert_eq!(feed_config::<IexDeep>(&plan, ArrivalClock::Worker).learned_max, 0);
    }
}
