//! A live run from start to end: a port from its configuration, a feed on each of its workers, the
//! events until a signal or the end of its time, and the sum of the results. The workers of a
//! replay are the same: only the source of their frames, their clock and their nodes differ.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{SystemTime, UNIX_EPOCH};

use market::{DOUBTS_MAX, EventSink};
use wirepath::counters::Scope;
use wirepath::device::Queue;
use wirepath::pipeline::{HostStackConfig, Node, NodeTree, host_stack};
use wirepath::port::{Port, PortWorker};
use wirepath::proto::{Host, SocketCapacity};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::worker::{Ended, HostProvider, StopFlag, WorkerBuilder};

use crate::device::StampingQueue;
use crate::error::Error;
use crate::event::Event;
use crate::expose::Exposure;
use crate::feed::{ArrivalClock, Feed, FeedConfig, FeedTally, MixedFeed, Sampler, WorkerFeed};
use crate::format::{
    AllocatedBooks, B3Umdf, CboePitch, CmeMdp3, EurexEobi, IexDeep, IexTops, MemxDepth, MoldItch50, NysePillar,
    Protocol, with_protocol,
};
use crate::plan::{FeedPlan, RunPlan};
use crate::recovery::{self, RecoveryPlan, RecoveryThread};
use crate::report::{Core, Ending, PacketSource, Run, Summary, read_truth, silence};
use crate::values::Placement;
use crate::{memory, watch};

/// Carries out a plan until `stop` or the end of its time; `report` gets the events during the run.
/// On return we have left nothing on the interface.
pub fn run(plan: &RunPlan, stop: &StopFlag, report: impl FnMut(Event)) -> Result<Summary, Error> {
    run_with(plan, stop, report, |_| Ok(()))
}

/// The same; each worker passes the events of its channels to clones of the sink that `sinks` makes
/// for it, on the worker's thread and before its first packet.
pub fn run_with<S: EventSink + Clone + 'static>(
    plan: &RunPlan,
    stop: &StopFlag,
    mut report: impl FnMut(Event),
    sinks: impl Fn(&SinkContext) -> Result<S, Error> + Send + Sync + 'static,
) -> Result<Summary, Error> {
    let Some(expose) = &plan.expose else { return run_to_end(plan, stop, report, sinks) };
    let exposure = Arc::new(Exposure::open(expose, &plan.live.queues)?);
    report(Event::Notice(exposure.notice(expose)));
    let exposed = Arc::clone(&exposure);
    run_to_end(plan, stop, report, move |context| Ok((sinks(context)?, exposed.sink(context)?)))
}

fn run_to_end<S: EventSink + Clone + 'static>(
    plan: &RunPlan,
    stop: &StopFlag,
    mut report: impl FnMut(Event),
    sinks: impl Fn(&SinkContext) -> Result<S, Error> + Send + Sync + 'static,
) -> Result<Summary, Error> {
    let (interface, queues) = (plan.live.port.interface().to_owned(), &plan.live.queues);
    let first = queues.first().copied().unwrap_or_default();
    let books = memory::check(&plan.feed.books())?;
    let block = watch::counters(&mut report);
    let placement = plan.feed.worker.placement;
    let cores: Vec<_> = (0..queues.len()).map(|idx| watch::core(placement, idx, queues.len())).collect();
    let port = Port::from_config(plan.live.clone()).cores(cores.iter().filter_map(|core| core.number)).drain();
    let port = plan.feed.subscriptions(Some(first)).into_iter().fold(port, Port::subscribe);
    let (work, events) = WorkerTask::new(plan.feed.clone(), sinks);
    let polled = interface.clone();
    let running = port.counters(&block).stop_by(stop).log(|_| ()).start(move |builder, worker| {
        let queue = worker.queue();
        let ready = format!("receiving on {polled} queue {queue}; Ctrl-C ends it with a summary");
        let frames = Frames { clock: ArrivalClock::Worker, count_max: None, ready: Some(ready) };
        let nodes = |stack, host: &_, scope: &_| {
            let notices = if queue == first { deaf(host, &polled) } else { Vec::new() };
            notices.into_iter().for_each(|notice| work.report(Event::Notice(notice)));
            host_stack(stack, host, scope)
        };
        work.run(work.plan.on_queue(queue, first), builder, worker, frames, nodes)
    });
    let mut running = running.map_err(Error::failed)?;
    report(Event::Notice(books));
    report(Event::Notice(running.port().describe()));
    running.port().notices().into_iter().for_each(|notice| report(Event::Notice(notice)));
    unpinned(placement, &cores).into_iter().for_each(|notice| report(Event::Notice(notice)));
    report(Event::Machine(running.report().clone()));
    watch::watch(&events, &block, (plan.duration, stop), &mut report);
    let why_ended = running.port().why_ended();
    let done = merge_results(running.join().map_err(Error::failed)?)?;

    // The publisher writes the truth when the day is over.
    let truth = plan.feed.truth.as_deref().map(read_truth).transpose();
    let (truth, missing) = match truth {
        Ok(truth) => (truth, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let run = Run {
        source: PacketSource::Port(interface.clone()),
        stopped: false,
        limited: true,
        seconds: done.seconds,
        core: cores[0],
        held: done.kept,
        without_reason: done.without_reason,
        ending: Ending::Open,
        recorded: None,
        fault_seed: None,
    };
    let mut summary = Summary::new(&plan.feed, truth.as_ref(), run, &done.tally, &block.snapshot());
    summary.failures.extend(missing);
    if done.ended == Ended::DeviceEnded {
        summary.failures.push(why_ended.unwrap_or_else(|| gone(&interface)));
    }
    silence(plan, &summary).into_iter().for_each(|sentence| report(Event::Notice(sentence)));
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

/// Why no frame can arrive at present. That may change during the run, and then we notice.
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

/// What a sink is made for: a worker and its channels.
pub struct SinkContext {
    /// The worker's queue; 0 in a replay.
    pub queue: u16,
    /// The worker's part of the plan.
    pub plan: FeedPlan,
    /// The number of the first channel of each of its sets, counted over all workers in the order
    /// of the configuration.
    pub first_channels: Vec<usize>,
    /// Add it to the times that the sink is given, which are of the worker's clock, and they are ns
    /// since 1970, as the wall clock was at the start. 0 in a replay, whose times are recorded.
    pub unix_offset_ns: u64,
    /// The worker's counters, for those of the sink.
    pub scope: Scope,
}

/// The task of a port's worker. `F` makes the sink of its events.
pub(crate) struct WorkerTask<F> {
    pub(crate) plan: FeedPlan,
    events: Sender<Event>,
    sinks: F,
}

/// The frames of a worker.
#[derive(Clone)]
pub(crate) struct Frames {
    /// The clock of their arrival.
    pub(crate) clock: ArrivalClock,
    /// The most of them; `None`: all.
    pub(crate) count_max: Option<u64>,
    /// The message to print after the first poll.
    pub(crate) ready: Option<String>,
}

/// The results of a worker.
pub(crate) struct WorkerResult {
    /// How the run ended; with several workers, the end of a device if one ended.
    pub(crate) ended: Ended,
    pub(crate) seconds: f64,
    pub(crate) kept: u64,
    pub(crate) without_reason: u64,
    pub(crate) tally: FeedTally,
}

/// The combined results of all workers, at least one.
pub(crate) fn merge_results(done: Vec<Result<WorkerResult, Error>>) -> Result<WorkerResult, Error> {
    let mut all = done.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut sum = all.next().ok_or_else(|| Error::Failed("no worker was started".into()))?;
    for done in all {
        if done.ended == Ended::DeviceEnded {
            sum.ended = done.ended;
        }
        sum.seconds = sum.seconds.max(done.seconds);
        sum.kept += done.kept;
        sum.without_reason += done.without_reason;
        sum.tally.add(done.tally);
    }
    Ok(sum)
}

impl<S: EventSink + Clone + 'static, F: Fn(&SinkContext) -> Result<S, Error>> WorkerTask<F> {
    /// The work of a plan, and the events of all workers, which end with the last of them.
    pub(crate) fn new(plan: FeedPlan, sinks: F) -> (Self, Receiver<Event>) {
        let (events, received) = mpsc::channel();
        (Self { plan, events, sinks }, received)
    }

    fn report(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Runs a worker with its part of the plan. From here on its format is known at compile time,
    /// where it has only one.
    pub(crate) fn run<Q: Queue, H: HostProvider, N: Nodes<S>>(
        &self,
        plan: FeedPlan,
        builder: WorkerBuilder<Q, H>,
        worker: PortWorker,
        frames: Frames,
        nodes: impl FnOnce(HostStackConfig, &Host, &Scope) -> N,
    ) -> Result<WorkerResult, Error> {
        let inputs = Inputs { plan, builder, worker, frames, nodes };
        match inputs.plan.formats()[..] {
            [format] => with_protocol!(format, P => self.drive(inputs, |parts| self.feed::<P>(parts, &[]))),
            _ => self.drive(inputs, |parts| self.mixed(parts)),
        }
    }

    /// The worker with the memory of its feed, from its first poll to its results.
    fn drive<A, Q: Queue, H: HostProvider, N: Node<A>>(
        &self,
        inputs: Inputs<Q, H, impl FnOnce(HostStackConfig, &Host, &Scope) -> N>,
        make: impl FnOnce(Parts<'_, S>) -> Result<Made<A>, Error>,
    ) -> Result<WorkerResult, Error>
    where
        A: WorkerFeed,
    {
        let Inputs { plan, builder, worker, frames, nodes } = inputs;
        let (mut clock, scope) = (MonotonicClock::start(), worker.scope());
        let sampler = Sampler::new(clock, plan.worker.latency_every);
        let intake = |queue| StampingQueue::new(queue, frames.count_max, clock, sampler.received());
        let builder = sized(builder.wrap_queue(intake), &plan);
        let sizing = builder.sizing();
        let unix_offset_ns = unix_offset_ns(frames.clock, &mut clock);
        let first_channels = self.plan.first_channels(&plan);
        let (queue, own) = (worker.queue(), plan.clone());
        let context = SinkContext { queue, plan: own, first_channels, unix_offset_ns, scope: scope.clone() };
        let sink = (self.sinks)(&context)?;
        let Made { feed, threads } = make(Parts { plan: &plan, arrival: frames.clock, sink, sampler, scope: &scope })?;
        let built = builder.build_with(feed, &scope, nodes).map_err(Error::failed)?;
        if let Some(fallback) = built.pool().region().mapping().and_then(|mapping| mapping.fallback()) {
            self.report(Event::Notice(fallback.to_string()));
        }
        let mut outline = NodeTree::new();
        Node::<A>::outline(built.pipeline(), &mut outline);
        let mut running = worker.start(built, &mut clock).map_err(Error::failed)?;
        self.report(Event::Built(format!("{outline}{sizing}")));
        let started = clock.now();
        if let Some(ready) = frames.ready {
            // The first poll activates the steering rules, and reports the groups.
            running.worker().poll_once(clock.now());
            self.report(Event::Ready(ready));
        }
        let ended = running.run(&mut clock);
        let seconds = clock.now().since(started).as_secs_f64();
        let worker = running.finish(&mut clock);
        let (kept, without_reason) = (worker.kept() as u64, worker.pool().drops_without_reason());
        let tally = worker.app().results(plan.tops);
        // The feed has the other end of the threads' rings.
        drop(worker);
        threads.into_iter().try_for_each(RecoveryThread::join)?;
        Ok(WorkerResult { ended, seconds, kept, without_reason, tally })
    }

    /// The feed of one format; `places` as in [`FeedConfig`].
    fn feed<P: Protocol>(&self, parts: Parts<'_, S>, places: &[u16]) -> Result<Made<Feed<P, S>>, Error> {
        let Parts { plan, arrival, sink, sampler, scope } = parts;
        let config = FeedConfig { places: places.to_vec(), ..feed_config::<P>(plan, arrival) };
        let recovery = recovery::start::<P>(&config.sets, config.capacity, scope, self.events.clone())?;
        let mut feed = Feed::<P, S>::with_sink(config, sink, sampler, scope);
        let threads = recovery.map(|(link, thread)| {
            feed.recover_by(link);
            thread
        });
        Ok(Made { feed, threads: threads.into_iter().collect() })
    }

    /// The feeds of several formats. The counters of each are below its format's name.
    fn mixed(&self, parts: Parts<'_, S>) -> Result<Made<MixedFeed>, Error> {
        let plan = parts.plan;
        let (mut feeds, mut threads) = (Vec::<Box<dyn WorkerFeed>>::new(), Vec::new());
        for format in plan.formats() {
            let (part, places) = plan.of_format(format);
            let scope = parts.scope.scope(format.name());
            let sampler = Sampler::new(MonotonicClock::start(), 0);
            let parts = Parts { plan: &part, arrival: parts.arrival, sink: parts.sink.clone(), sampler, scope: &scope };
            with_protocol!(format, P => {
                let made = self.feed::<P>(parts, &places)?;
                feeds.push(Box::new(made.feed));
                threads.extend(made.threads);
            });
        }
        Ok(Made { feed: MixedFeed::new(feeds, plan.lines_by_format(), parts.sampler), threads })
    }
}

/// Nodes for the feed of any format, and for several.
pub(crate) trait Nodes<S>:
    Node<Feed<MoldItch50, S>>
    + Node<Feed<IexTops, S>>
    + Node<Feed<IexDeep, S>>
    + Node<Feed<CboePitch, S>>
    + Node<Feed<CmeMdp3, S>>
    + Node<Feed<NysePillar, S>>
    + Node<Feed<MemxDepth, S>>
    + Node<Feed<B3Umdf, S>>
    + Node<Feed<EurexEobi, S>>
    + Node<MixedFeed>
{
}

impl<S, N> Nodes<S> for N where
    N: Node<Feed<MoldItch50, S>>
        + Node<Feed<IexTops, S>>
        + Node<Feed<IexDeep, S>>
        + Node<Feed<CboePitch, S>>
        + Node<Feed<CmeMdp3, S>>
        + Node<Feed<NysePillar, S>>
        + Node<Feed<MemxDepth, S>>
        + Node<Feed<B3Umdf, S>>
        + Node<Feed<EurexEobi, S>>
        + Node<MixedFeed>
{
}

/// A worker before it is built.
struct Inputs<Q: Queue, H: HostProvider, F> {
    plan: FeedPlan,
    builder: WorkerBuilder<Q, H>,
    worker: PortWorker,
    frames: Frames,
    nodes: F,
}

/// The parts of a worker's feed.
struct Parts<'a, S> {
    plan: &'a FeedPlan,
    arrival: ArrivalClock,
    sink: S,
    sampler: Sampler,
    scope: &'a Scope,
}

/// A worker's feed, and the threads that speak with its servers.
struct Made<A> {
    feed: A,
    threads: Vec<RecoveryThread>,
}

/// See [`SinkContext::unix_offset_ns`].
fn unix_offset_ns(arrival: ArrivalClock, clock: &mut MonotonicClock) -> u64 {
    let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    match arrival {
        ArrivalClock::Recorded => 0,
        ArrivalClock::Worker => unix_ns.saturating_sub(clock.now().as_nanos()),
    }
}

/// A builder with the sizes of the plan.
fn sized<Q: Queue, H: HostProvider>(builder: WorkerBuilder<Q, H>, plan: &FeedPlan) -> WorkerBuilder<Q, H> {
    let channels = plan.channels_max().max(4);
    let mut builder = builder.sockets(socket_capacity(plan)).burst_len(plan.worker.burst_len).held_as(
        "arbitration",
        channels * (plan.window.packets + 1 + DOUBTS_MAX),
        "packets behind a hole or that wait for a witness, four channels at one time",
    );
    if let Some(count) = plan.worker.buffers {
        builder = builder.buffers(count);
    }
    if plan.worker.require_hugepages { builder.require_hugepages() } else { builder }
}

pub(crate) fn feed_config<P: Protocol>(plan: &FeedPlan, clock: ArrivalClock) -> FeedConfig {
    let capacity = plan.capacity.over(P::capacity());
    // The first fits: memory was checked before it was allocated.
    let learned_max = match clock {
        ArrivalClock::Recorded if plan.sets.is_empty() => memory::room_for(P::Books::memory(capacity)).max(1),
        _ => 0,
    };
    let mut sets = plan.sets.clone();
    if clock == ArrivalClock::Recorded {
        // No server has what was recorded.
        sets.iter_mut().for_each(|set| set.recovery = RecoveryPlan::default());
    }
    FeedConfig {
        policy: plan.policy,
        window: plan.window,
        capacity,
        clock,
        sets,
        places: Vec::new(),
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
