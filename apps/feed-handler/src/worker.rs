//! A worker, on its own thread: from its plan and a queue to its results. A replay and a live port
//! differ in the source of the frames, in the nodes that they run through, and in how they end.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use market::DOUBTS_MAX;
use wirepath::counters::{Block, Scope};
use wirepath::device::{Capabilities, RxQueue};
use wirepath::pipeline::{ChecksumPolicy, HostStackConfig, Node, Outline, host_stack};
use wirepath::proto::{Host, SocketCapacity};
use wirepath::time::{Clock, Duration, Instant, MonotonicClock};
use wirepath::worker::live::LiveQueue;
use wirepath::worker::{Ended, Hosting, StopFlag, Worker, WorkerBuilder, WorkerContext, WorkerSpec};

use crate::device::{AnyQueue, AnyTx, Intake};
use crate::error::Error;
use crate::event::Event;
use crate::feed::{ArrivalClock, Feed, FeedConfig, FeedTally, Sampler};
use crate::format::{CboePitch, Format, IexDeep, IexTops, MoldItch50, Protocol};
use crate::join::{Learning, learning_stack};
use crate::memory;
use crate::plan::FeedPlan;

/// A worker that runs a feed.
type FeedWorker<P, N> = Worker<Intake, AnyTx, N, Feed<P>>;

/// Turns after a stop: the longest ring at a frame a turn.
const DRAIN_TURNS: usize = 65_536;

/// The leave reports have been sent within this, 200 ms at most: a few turns, unless something
/// blocks them.
const LEAVING_MAX: Duration = Duration::from_millis(200);
/// If no report was sent for this long, all groups are left. Repetitions, up to a second later, are
/// not waited for.
const LEAVING_QUIET: Duration = Duration::from_millis(5);
/// The least turns for either: on a busy machine the time may be over before we were scheduled.
const LEAVING_TURNS: usize = 64;

/// The work of one worker.
pub(crate) struct Work {
    /// `worker0` and so on: the thread's name and the scope of its counters.
    pub(crate) name: String,
    pub(crate) plan: FeedPlan,
    pub(crate) block: Arc<Block>,
    pub(crate) events: Sender<Event>,
}

/// The source of its frames.
pub(crate) enum Frames {
    /// A queue of a live port; and the message to print after the first poll.
    Live { queue: Box<LiveQueue>, ready: String },
    /// Files of other hosts: all MAC addresses and VLANs are accepted.
    Replay { queue: AnyQueue, capabilities: Capabilities, checksum: ChecksumPolicy },
}

/// The results of a worker.
pub(crate) struct Done {
    /// Of several: the end of a device, where one ended.
    pub(crate) ended: Ended,
    pub(crate) seconds: f64,
    pub(crate) kept: u64,
    pub(crate) unnamed: u64,
    pub(crate) tally: FeedTally,
}

/// The combined results of all workers, at least one.
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

impl Work {
    /// A thread that runs it. From here on the plan's format is known at compile time.
    pub(crate) fn spec(self, frames: Frames, core: Option<usize>) -> WorkerSpec<Result<Done, Error>> {
        let name = self.name.clone();
        let run = match self.plan.format {
            Format::MoldItch50 | Format::Itch50File => Self::run::<MoldItch50>,
            Format::IexTops => Self::run::<IexTops>,
            Format::IexDeep => Self::run::<IexDeep>,
            Format::CboePitch => Self::run::<CboePitch>,
        };
        let spec = WorkerSpec::new(name, move |context: &WorkerContext| run(&self, frames, &context.stop));
        match core {
            Some(core) => spec.on_core(core),
            None => spec,
        }
    }

    /// Runs the worker. A worker that fails stops the others.
    fn run<P: Protocol>(&self, frames: Frames, stop: &StopFlag) -> Result<Done, Error> {
        let done = match frames {
            Frames::Live { queue, ready } => self.live::<P>(*queue, ready, stop),
            Frames::Replay { queue, capabilities, checksum } => {
                let builder = WorkerBuilder::new(queue, capabilities).promiscuous().checksum(checksum);
                self.replay::<P>(builder, stop)
            }
        };
        done.inspect_err(|_| stop.stop())
    }

    /// Runs a queue of a live port: frames that arrived before a stop are processed, and the groups
    /// are left.
    fn live<P: Protocol>(&self, queue: LiveQueue, ready: String, stop: &StopFlag) -> Result<Done, Error> {
        let reports = queue.live.stack.igmp.is_some();
        let builder = queue.builder().around(|queue| AnyQueue::new(queue, None));
        let (mut worker, mut clock) = self.worker::<P, _, _>(builder, ArrivalClock::Worker, host_stack)?;
        let started = clock.now();
        // The first poll activates the steering rules, and reports the groups.
        worker.poll_once(clock.now());
        let _ = self.events.send(Event::Ready(ready));
        let ended = worker.run(&mut clock, stop);
        if ended == Ended::Stopped {
            // Unless frames keep arriving.
            let _ = (0..DRAIN_TURNS).find(|_| worker.poll_once(clock.now()) == 0);
        }
        let seconds = clock.now().since(started).as_secs_f64();
        if ended == Ended::Stopped && reports {
            leave(&mut worker, &mut clock, || said(&self.block, &self.name));
        }
        Ok(self.done(worker, clock, ended, seconds))
    }

    /// Runs files to their end.
    fn replay<P: Protocol>(&self, builder: WorkerBuilder<AnyQueue>, stop: &StopFlag) -> Result<Done, Error> {
        let learning = learning(&self.plan);
        let nodes = |stack: HostStackConfig, _: &Host, scope: &Scope| learning_stack(&stack, learning, scope);
        let (mut worker, mut clock) = self.worker::<P, _, _>(builder, ArrivalClock::Recorded, nodes)?;
        let started = clock.now();
        let ended = worker.run(&mut clock, stop);
        let seconds = clock.now().since(started).as_secs_f64();
        Ok(self.done(worker, clock, ended, seconds))
    }

    /// The worker with the memory of its feed, and the groups joined that are known.
    fn worker<P: Protocol, H: Hosting, N: Node<Feed<P>>>(
        &self,
        builder: WorkerBuilder<AnyQueue, H>,
        arrival: ArrivalClock,
        nodes: impl FnOnce(HostStackConfig, &Host, &Scope) -> N,
    ) -> Result<(FeedWorker<P, N>, MonotonicClock), Error> {
        let (plan, scope) = (&self.plan, self.block.scope(&self.name));
        let mut clock = MonotonicClock::start();
        let sampler = Sampler::new(clock, plan.worker.latency_every);
        let channels = plan.channels_max().max(4);
        let mut builder = builder
            .around(|queue| queue.stamping(clock, sampler.received()))
            .sockets(socket_capacity(plan))
            .burst_len(plan.worker.burst_len)
            .held_as(
                "arbitration",
                channels * (plan.window.packets + 1 + DOUBTS_MAX),
                "packets behind a hole or that wait for a witness, four channels at one time",
            );
        if let Some(count) = plan.worker.buffers {
            builder = builder.buffers(count);
        }
        if plan.worker.require_hugepages {
            builder = builder.require_hugepages();
        }
        let sizing = builder.sizing();
        let feed = Feed::<P>::new(feed_config::<P>(plan, arrival), sampler, &scope);
        let mut worker = builder.build_with(feed, &scope, nodes).map_err(Error::failed)?;
        if let Some(fallback) = worker.pool().region().mapping().and_then(|mapping| mapping.fallback()) {
            let _ = self.events.send(Event::Notice(fallback.to_string()));
        }
        self.block.check().map_err(Error::failed)?;
        worker.with_app(clock.now(), |feed, cx| feed.join(cx)).map_err(Error::failed)?;
        let mut outline = Outline::new();
        Node::<Feed<P>>::outline(worker.pipeline(), &mut outline);
        let _ = self.events.send(Event::Built(format!("{outline}{sizing}")));
        Ok((worker, clock))
    }

    /// Sums up the worker's results.
    fn done<P: Protocol, N: Node<Feed<P>>>(
        &self,
        mut worker: FeedWorker<P, N>,
        mut clock: MonotonicClock,
        ended: Ended,
        seconds: f64,
    ) -> Done {
        worker.with_app(clock.now(), |feed, _| feed.finish());
        worker.rx_mut().refresh_counters();
        worker.publish();
        let (kept, unnamed) = (worker.kept() as u64, worker.pool().unnamed());
        let tally = worker.app().tally(self.plan.tops);
        Done { ended, seconds, kept, unnamed, tally }
    }
}

/// Leaves the groups and polls until the reports have left, so that the switch does not go on
/// sending for minutes. Frames that arrive meanwhile stay in the device, which counts them when it
/// is closed.
fn leave<P: Protocol, N: Node<Feed<P>>>(
    worker: &mut FeedWorker<P, N>,
    clock: &mut MonotonicClock,
    said: impl Fn() -> u64,
) {
    worker.rx_mut().close();
    let began = clock.now();
    let before = said();
    worker.with_app(began, |feed, cx| feed.leave(cx));
    let (mut last, mut changed) = (before, (began, 0));
    for turn in 0.. {
        let now = clock.now();
        worker.poll_once(now);
        let count = said();
        if count != last {
            (last, changed) = (count, (now, turn));
        }
        let passed = |since: (Instant, usize), time| now.since(since.0) >= time && turn >= since.1 + LEAVING_TURNS;
        if last != before && passed(changed, LEAVING_QUIET) || passed((began, 0), LEAVING_MAX) {
            return;
        }
    }
}

/// IGMP messages that a worker has sent.
fn said(block: &Block, worker: &str) -> u64 {
    let snapshot = block.snapshot();
    let count = |name: &str| snapshot.count(&format!("{worker}/igmp/{name}")).unwrap_or(0);
    count("reports_sent") + count("leaves_sent")
}

/// All groups of a file are received where none is named. Those of a port are not: any host that
/// reaches it can send to any group.
fn learning(plan: &FeedPlan) -> Learning {
    let is_named = !plan.sets.is_empty() || !plan.groups.is_empty();
    if is_named { Learning::Off } else { Learning::On }
}

fn feed_config<P: Protocol>(plan: &FeedPlan, clock: ArrivalClock) -> FeedConfig {
    let capacity = plan.capacity.over(P::capacity());
    // The first fits: memory was checked before it was allocated.
    let learned_max = match clock {
        ArrivalClock::Recorded if plan.sets.is_empty() => memory::room_for(P::memory(capacity)).max(1),
        _ => 0,
    };
    FeedConfig {
        policy: plan.policy,
        window: plan.window,
        capacity,
        clock,
        sets: plan.sets.clone(),
        groups: plan.groups.clone(),
        learned_max,
    }
}

/// As many groups as a feed has, and as many senders as are named.
fn socket_capacity(plan: &FeedPlan) -> SocketCapacity {
    let usual = SocketCapacity::default();
    let senders = plan.sets.iter().flat_map(|set| &set.lines).map(|line| line.senders.len()).sum();
    SocketCapacity { sources: usual.sources.max(senders), ..usual }
}

#[cfg(test)]
mod tests {
    use crate::plan::tests::feed_plan;

    use super::*;

    #[test]
    fn port_learns_neither_groups_nor_channels() {
        let plan = feed_plan();
        assert_eq!(learning(&plan), Learning::On, "of a file; the tree of a port has no node that joins");
        assert!(feed_config::<IexDeep>(&plan, ArrivalClock::Recorded).learned_max > 0);
        assert_eq!(feed_config::<IexDeep>(&plan, ArrivalClock::Worker).learned_max, 0);
    }
}
