//! The worker's own thread: builds the pipeline and turns it until the device has ended, or
//! somebody stops it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::Sender;

use market::DOUBTS_MAX;
use wirepath::counters::{Block, Scope};
use wirepath::device::RxQueue;
use wirepath::mem::{Layout, Pool, Sizing};
use wirepath::pipeline::{EgressConfig, Node, Outline, host_stack};
use wirepath::proto::{Host, SocketCapacity, UdpSockets};
use wirepath::time::{Clock, Duration, Instant, MonotonicClock};
use wirepath::worker::live::{LiveHost, LiveQueue};
use wirepath::worker::{Ended, Parts, Worker, WorkerContext, random_seed};

use super::inputs::{Frames, Replay, WorkerInputs, replay_host, replay_tree};
use super::{Done, Event};
use crate::device::{AnyQueue, AnyTx, Intake, IntakeConfig};
use crate::error::Error;
use crate::feed::{ArrivalClock, Feed, FeedConfig, Sampler};
use crate::format::Protocol;
use crate::join::Learning;
use crate::memory;
use crate::plan::FeedPlan;

/// A worker that turns a feed.
type FeedWorker<P, N> = Worker<Intake, AnyTx, N, Feed<P>>;

/// Turns after a stop: the longest ring at a frame a turn.
const DRAIN_TURNS: usize = 65_536;

/// What the network is told at the end has left within this, 200 ms at most: a few turns, where
/// nothing is in its way.
const LEAVING_MAX: Duration = Duration::from_millis(200);
/// For so long nothing more was said: all groups are left. Repetitions, up to a second later, are
/// not waited for.
const LEAVING_QUIET: Duration = Duration::from_millis(5);
/// And turns that either takes at least: on a busy machine the time may be over before we had our
/// turn.
const LEAVING_TURNS: usize = 64;

/// Does what the inputs say. Who fails stops the others.
pub(super) fn work<P: Protocol>(context: &WorkerContext, inputs: WorkerInputs) -> Result<Done, Error> {
    let WorkerInputs { name, plan, frames, block, events } = inputs;
    let scope = block.scope(&name);
    let work = Work { context, name: &name, plan: &plan, block: &block, scope, events: &events };
    let done = match frames {
        Frames::Live { queue, ready } => work.live::<P>(*queue, ready),
        Frames::Replay(replay) => work.replay::<P>(replay),
    };
    done.inspect_err(|_| context.stop.stop())
}

/// What both kinds of frames have in common.
struct Work<'a> {
    context: &'a WorkerContext,
    name: &'a str,
    plan: &'a FeedPlan,
    block: &'a Block,
    scope: Scope,
    events: &'a Sender<Event>,
}

/// A queue that is open, with its pool and the app that hears it.
struct Opened<P: Protocol> {
    rx: Intake,
    tx: AnyTx,
    pool: Pool,
    app: Feed<P>,
    clock: MonotonicClock,
    /// What the pool is made of, for the operator.
    sizing: Sizing,
}

/// How the buffers of a pool are cut, and how many there are without what waits behind holes.
struct Buffers {
    layout: Layout,
    sizing: Sizing,
}

impl Work<'_> {
    /// A queue of a live port: what came before a stop is taken, and the groups are left.
    fn live<P: Protocol>(&self, queue: LiveQueue, ready: String) -> Result<Done, Error> {
        let LiveHost { host, follower, egress, stack, layout, buffers, .. } = queue.live;
        let buffers = Buffers { layout, sizing: buffers };
        let opened = self.open::<P>(Box::new(queue.queue), buffers, None, ArrivalClock::Worker)?;
        let (mut clock, reports) = (opened.clock, stack.igmp.is_some());
        let pipeline = host_stack(stack, &host, &self.scope);
        let mut worker = self.worker(opened, pipeline, host, egress)?;
        worker.follow(follower);
        let started = clock.now();
        // The first poll opens the way for frames, and reports the groups.
        worker.poll_once(clock.now());
        let _ = self.events.send(Event::Ready(ready));
        let ended = worker.run(&mut clock, &self.context.stop);
        if ended == Ended::Stopped {
            // As long as it does not go on coming.
            let _ = (0..DRAIN_TURNS).find(|_| worker.poll_once(clock.now()) == 0);
        }
        let seconds = clock.now().since(started).as_secs_f64();
        if ended == Ended::Stopped && reports {
            leave(&mut worker, &mut clock, || said(self.block, self.name));
        }
        Ok(self.done(worker, clock, ended, seconds))
    }

    /// Files, to their end.
    fn replay<P: Protocol>(&self, replay: Replay) -> Result<Done, Error> {
        let Replay { queue, packets_max, layout, buffers, checksum } = replay;
        let buffers = Buffers { layout, sizing: buffers };
        let opened = self.open::<P>(queue, buffers, packets_max, ArrivalClock::Recorded)?;
        let (mut clock, seed) = (opened.clock, random_seed());
        let pipeline = replay_tree(checksum, learning(self.plan), seed, &self.scope);
        let mut worker = self.worker(opened, pipeline, replay_host(seed)?, EgressConfig::quiet(seed))?;
        let started = clock.now();
        let ended = worker.run(&mut clock, &self.context.stop);
        let seconds = clock.now().since(started).as_secs_f64();
        Ok(self.done(worker, clock, ended, seconds))
    }

    /// Makes the pool, opens the queue and takes the memory of the feed.
    fn open<P: Protocol>(
        &self,
        queue: Box<dyn AnyQueue>,
        buffers: Buffers,
        frames_max: Option<u64>,
        arrival: ArrivalClock,
    ) -> Result<Opened<P>, Error> {
        let sizing = sizing(buffers.sizing, self.plan);
        let count = self.plan.worker.buffers.unwrap_or(sizing.total());
        let pool = self.context.pool(count, buffers.layout).map_err(Error::failed)?;
        if let Some(fallback) = pool.region().mapping().and_then(|mapping| mapping.fallback()) {
            if self.plan.worker.require_hugepages {
                return Err(Error::Failed(format!("hugepages are required and not there: {}", fallback.shortage)));
            }
            let _ = self.events.send(Event::Notice(fallback.to_string()));
        }
        let mut clock = MonotonicClock::start();
        let received = Rc::new(Cell::new(clock.now()));
        let intake = IntakeConfig { frames_max, clock, received: Rc::clone(&received) };
        let (rx, tx) = queue.open_any(&pool, &self.scope, intake).map_err(Error::failed)?;
        let sampler = Sampler::new(clock, received, self.plan.worker.latency_every);
        let app = Feed::<P>::new(feed_config::<P>(self.plan, arrival), sampler, &self.scope);
        Ok(Opened { rx, tx, pool, app, clock, sizing })
    }

    /// The worker, with the groups that are known joined.
    fn worker<P: Protocol, N: Node<Feed<P>>>(
        &self,
        opened: Opened<P>,
        pipeline: N,
        host: Host,
        egress: EgressConfig,
    ) -> Result<FeedWorker<P, N>, Error> {
        let Opened { rx, tx, pool, app, mut clock, sizing } = opened;
        let sockets = UdpSockets::new(socket_capacity(self.plan), random_seed());
        let parts = Parts { rx, tx, pipeline, app, pool, host, sockets, egress, burst_len: self.plan.worker.burst_len };
        let mut worker = Worker::new(parts, &self.scope);
        self.block.check().map_err(Error::failed)?;
        worker.with_app(clock.now(), |feed, cx| feed.join(cx)).map_err(Error::failed)?;
        let mut outline = Outline::new();
        Node::<Feed<P>>::outline(worker.pipeline(), &mut outline);
        let _ = self.events.send(Event::Built(format!("{outline}{sizing}")));
        Ok(worker)
    }

    /// Adds up what the worker did.
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

/// Leaves the groups and turns until the network has been told, so that the switch does not go on
/// sending for minutes. What comes meanwhile is the device's: it counts it as it is closed.
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

/// Messages of IGMP that a worker has sent.
fn said(block: &Block, worker: &str) -> u64 {
    let snapshot = block.snapshot();
    let count = |name: &str| snapshot.count(&format!("{worker}/igmp/{name}")).unwrap_or(0);
    count("reports_sent") + count("leaves_sent")
}

/// A file of which nothing is named is heard whole. A port is not: whoever reaches it can send to
/// any group.
fn learning(plan: &FeedPlan) -> Learning {
    let is_named = !plan.sets.is_empty() || !plan.groups.is_empty();
    if is_named { Learning::Off } else { Learning::On }
}

fn feed_config<P: Protocol>(plan: &FeedPlan, clock: ArrivalClock) -> FeedConfig {
    let capacity = plan.capacity.over(P::capacity());
    // The first fits: it was looked at before anything was taken.
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

/// How many buffers the parts of this worker may hold at one time.
fn sizing(buffers: Sizing, plan: &FeedPlan) -> Sizing {
    let channels = plan.channels_max().max(4);
    buffers.part(
        "arbitration",
        channels * (plan.window.packets + 1 + DOUBTS_MAX),
        "packets behind a hole or that wait for a witness, four channels at one time",
    )
}

#[cfg(test)]
mod tests {
    use crate::plan::tests::feed_plan;

    use super::*;

    #[test]
    fn port_learns_neither_groups_nor_channels() {
        let plan = feed_plan();
        assert_eq!(learning(&plan), Learning::On, "of a file; the tree of a port has no node that joins");
        assert!(feed_config::<crate::format::IexDeep>(&plan, ArrivalClock::Recorded).learned_max > 0);
        assert_eq!(feed_config::<crate::format::IexDeep>(&plan, ArrivalClock::Worker).learned_max, 0);
    }
}
