//! The worker's own thread: builds the pipeline and turns it until the device has ended, or somebody stops it.

use std::cell::Cell;
use std::rc::Rc;

use market::sequence::DOUBTS_MAX;
use wirepath::counters::Block;
use wirepath::device::RxQueue;
use wirepath::mem::Sizing;
use wirepath::pipeline::{Node, Outline};
use wirepath::proto::{SocketCapacity, UdpSockets};
use wirepath::time::{Clock, Duration, Instant, MonotonicClock};
use wirepath::worker::{Ended, Parts, Worker, WorkerContext, random_seed};

use super::{Done, Event, Ground, Job, Nodes};
use crate::device::{AnyTx, Intake, IntakeConfig};
use crate::error::Error;
use crate::feed::{ArrivalClock, Feed, FeedConfig, Sampler};
use crate::format::Protocol;
use crate::join::Learning;
use crate::memory;
use crate::plan::FeedPlan;

/// Turns after a stop: the longest ring at a frame a turn.
const DRAIN_TURNS: usize = 65_536;

/// What the network is told at the end has left within this, 200 ms at most: a few turns, where nothing is in its way.
const LEAVING_MAX: Duration = Duration::from_millis(200);
/// For so long nothing more was said: all groups are left. Repetitions, up to a second later, are not waited for.
const LEAVING_QUIET: Duration = Duration::from_millis(5);
/// And turns that either takes at least: on a busy machine the time may be over before we had our turn.
const LEAVING_TURNS: usize = 64;

/// Does the job. Who fails stops the others.
pub(super) fn work<P: Protocol>(context: &WorkerContext, job: Job) -> Result<Done, Error> {
    turn::<P>(context, job).inspect_err(|_| context.stop.stop())
}

fn turn<P: Protocol>(context: &WorkerContext, job: Job) -> Result<Done, Error> {
    let Job { name, plan, ground, block, events } = job;
    let Ground { queue, packets_max, layout, buffers, host, follower, egress, nodes, clock: arrival, ready } = ground;
    let scope = block.scope(&name);
    let sizing = sizing(buffers, &plan);
    let pool = context.pool(plan.worker.buffers.unwrap_or(sizing.total()), layout).map_err(Error::failed)?;
    if let Some(fallback) = pool.region().mapping().and_then(|mapping| mapping.fallback()) {
        if plan.worker.require_hugepages {
            return Err(Error::Failed(format!("hugepages are required and not there: {}", fallback.shortage)));
        }
        let _ = events.send(Event::Notice(fallback.to_string()));
    }
    let mut clock = MonotonicClock::start();
    let received = Rc::new(Cell::new(clock.now()));
    let intake = IntakeConfig { frames_max: packets_max, clock, received: Rc::clone(&received) };
    let (rx, tx) = queue.open_any(&pool, &scope, intake).map_err(Error::failed)?;

    let seed = random_seed();
    let learning = learning(&plan, arrival);
    let reports = matches!(&nodes, Nodes::Host(config) if config.igmp.is_some());
    let pipeline = nodes.tree(learning, &host, seed, &scope);
    let sampler = Sampler::new(clock, received, plan.worker.latency_every);
    let app = Feed::<P>::new(feed_config::<P>(&plan, arrival), sampler, &scope);
    let sockets = UdpSockets::new(socket_capacity(&plan), seed);
    let parts = Parts { rx, tx, pipeline, app, pool, host, sockets, egress, burst_len: plan.worker.burst_len };
    let mut worker = Worker::new(parts, &scope);
    if let Some(follower) = follower {
        worker.follow(follower);
    }
    block.check().map_err(Error::failed)?;
    worker.with_app(clock.now(), |feed, cx| feed.join(cx)).map_err(Error::failed)?;
    let mut outline = Outline::new();
    Node::<Feed<P>>::outline(worker.pipeline(), &mut outline);
    let _ = events.send(Event::Built(format!("{outline}{sizing}")));

    let started = clock.now();
    if let Some(ready) = ready {
        // The first poll opens the way for frames, and reports the groups.
        worker.poll_once(clock.now());
        let _ = events.send(Event::Ready(ready));
    }
    let ended = worker.run(&mut clock, &context.stop);
    if ended == Ended::Stopped && arrival == ArrivalClock::Worker {
        // What came before the stop is taken, as long as it does not go on coming.
        for _ in 0..DRAIN_TURNS {
            if worker.poll_once(clock.now()) == 0 {
                break;
            }
        }
    }
    let seconds = clock.now().since(started).as_secs_f64();
    if ended == Ended::Stopped && reports {
        leave(&mut worker, &mut clock, || said(&block, &name));
    }
    worker.with_app(clock.now(), |feed, _| feed.finish());
    worker.rx_mut().refresh_counters();
    worker.publish();
    let (kept, unnamed) = (worker.kept() as u64, worker.pool().unnamed());
    let tally = worker.app().tally(plan.tops);
    Ok(Done { ended, seconds, kept, unnamed, tally })
}

/// Leaves the groups and turns until the network has been told, so that the switch does not go on sending for minutes. What
/// comes meanwhile is the device's: it counts it as it is closed.
fn leave<P: Protocol, N: Node<Feed<P>>>(
    worker: &mut Worker<Intake, AnyTx, N, Feed<P>>,
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

/// A file of which nothing is named is heard whole. A port is not: whoever reaches it can send to any group.
fn learning(plan: &FeedPlan, arrival: ArrivalClock) -> Learning {
    let is_named = !plan.sets.is_empty() || !plan.groups.is_empty();
    if is_named || arrival == ArrivalClock::Worker { Learning::Off } else { Learning::On }
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
        assert_eq!(learning(&plan, ArrivalClock::Recorded), Learning::On);
        assert_eq!(learning(&plan, ArrivalClock::Worker), Learning::Off);
        assert!(feed_config::<crate::format::IexDeep>(&plan, ArrivalClock::Recorded).learned_max > 0);
        assert_eq!(feed_config::<crate::format::IexDeep>(&plan, ArrivalClock::Worker).learned_max, 0);
    }
}
