//! A live run from start to end: opens the port, starts a pinned worker for each queue, watches
//! them until a signal or the end of its time, and sums up the results.

use std::sync::{Arc, mpsc};

use exchange_sim::Truth;
use wirepath::proto::Host;
use wirepath::worker::live::{LivePort, LiveQueue};
use wirepath::worker::{Ended, StopFlag, WorkerGroup};

use crate::error::Error;
use crate::event::Event;
use crate::plan::{FeedPlan, Placement, RunPlan};
use crate::report::{Core, Ending, Origin, Run, Summary, silence};
use crate::worker::{Frames, Work, together};
use crate::{memory, watch};

/// Carries out a plan until `stop` or the end of its time; `tell` gets the events meanwhile. On
/// return nothing of ours is left on the interface.
pub fn run(plan: &RunPlan, stop: &StopFlag, mut tell: impl FnMut(Event)) -> Result<Summary, Error> {
    let interface = plan.live.port.interface().to_owned();
    let first = plan.live.queues.first().copied().unwrap_or_default();
    let books = memory::check(plan.feed.channels_max(), plan.feed.format.memory(plan.feed.capacity))?;
    let block = watch::counters(&mut tell);
    let mut port = LivePort::open(&plan.live, &block.scope("port"), stop).map_err(Error::failed)?;
    let mut queues = Vec::new();
    while let Some(queue) = port.take_queue().map_err(Error::failed)? {
        queues.push(queue);
    }
    tell(Event::Notice(books));
    tell(Event::Notice(port.describe()));
    if let Some(LiveQueue { live, .. }) = queues.first() {
        deaf(&live.host, &interface).into_iter().for_each(|notice| tell(Event::Notice(notice)));
    }
    port.notices().into_iter().for_each(|notice| tell(Event::Notice(notice)));

    let (events, heard) = mpsc::channel();
    let count = queues.len();
    let cores: Vec<_> = (0..count).map(|idx| watch::core(plan.feed.worker.placement, idx, count)).collect();
    unpinned(plan.feed.worker.placement, &cores).into_iter().for_each(|notice| tell(Event::Notice(notice)));
    let mut specs = Vec::new();
    for (number, queue) in queues.into_iter().enumerate() {
        let ready = format!("receiving on {interface} queue {}; Ctrl-C ends it with a summary", queue.idx);
        let work = Work {
            name: format!("worker{number}"),
            plan: on_queue(&plan.feed, queue.idx, first),
            block: Arc::clone(&block),
            events: events.clone(),
        };
        let frames = Frames::Live { queue: Box::new(queue), ready };
        specs.push(work.spec(frames, cores[number].number).polling(&*interface));
    }
    drop(events);
    let group = WorkerGroup::start(specs, stop).map_err(Error::failed)?;
    tell(Event::Machine(group.report().clone()));
    watch::watch(&heard, &block, (plan.duration, stop), &mut tell);
    let done = together(group.join().map_err(Error::failed)?)?;
    let why_ended = port.why_ended();
    drop(port);

    // The publisher writes the truth when the day is over.
    let truth = plan.feed.truth.as_deref().map(Truth::read).transpose();
    let (truth, missing) = match truth {
        Ok(truth) => (truth, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let run = Run {
        origin: Origin::Port(interface.clone()),
        stopped: false,
        limited: true,
        seconds: done.seconds,
        core: cores[0],
        held: done.kept,
        unnamed: done.unnamed,
        ending: Ending::Open,
        recorded: None,
        fault_seed: None,
    };
    let mut summary = Summary::new(&plan.feed, truth.as_ref(), run, &done.tally, &block.snapshot());
    summary.failures.extend(missing);
    if done.ended == Ended::DeviceEnded {
        summary.failures.push(why_ended.unwrap_or_else(|| gone(&interface)));
    }
    silence(plan, &summary).into_iter().for_each(|sentence| tell(Event::Notice(sentence)));
    Ok(summary)
}

/// A notice that some workers are not pinned, where we choose their cores and have too few.
fn unpinned(placement: Placement, cores: &[Core]) -> Option<String> {
    let is_short = placement == Placement::Last && cores.iter().any(|core| core.number.is_none());
    is_short.then(|| {
        let count = cores.len();
        format!(
            "{count} queues are more than the cores that are ours: the workers of the first queues are not pinned, and wait for \
             each other; take fewer queues, or give the process more cores (taskset, cpuset)"
        )
    })
}

/// Why nothing can arrive at present. It may change while we run, and we follow.
fn deaf(host: &Host, interface: &str) -> Vec<String> {
    let mut notices = Vec::new();
    if !host.is_up() {
        notices.push(format!(
            "{interface} is down or has no carrier, and nothing comes until that changes: `ip link set {interface} up`, or see to the \
             cable, the optics and the port of the switch"
        ));
    }
    if host.addresses().is_empty() {
        notices.push(format!(
            "{interface} has no IPv4 address: memberships are reported from 0.0.0.0, which some switches ignore; \
             `ip address add ADDRESS/LEN dev {interface}`"
        ));
    }
    notices
}

/// A failure, so that a supervisor restarts us.
fn gone(interface: &str) -> String {
    format!(
        "{interface} is gone: it was removed, or moved to another namespace, while we received from it; start again once \
         `ip link show {interface}` shows it (Restart=on-failure in a unit of systemd does)"
    )
}

/// The channels of one queue. Those without a queue belong to the first.
fn on_queue(plan: &FeedPlan, idx: u16, first: u16) -> FeedPlan {
    let sets = plan.sets.iter().filter(|set| set.queue.unwrap_or(first) == idx).cloned().collect();
    FeedPlan { sets, ..plan.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_are_not_pinned_are_told_of_where_nobody_asked_for_it() {
        let said = |placement, count| {
            let cores: Vec<_> = (0..count).map(|idx| watch::core(placement, idx, count)).collect();
            unpinned(placement, &cores)
        };
        assert!(
            said(Placement::Last, 5_000)
                .is_some_and(|notice| notice.starts_with("5000 queues are more than the cores"))
        );
        assert_eq!([said(Placement::Last, 1), said(Placement::Any, 5_000)], [None, None]);
    }
}
