//! A replay from beginning to end: open, start a pinned worker, watch it, and add up what happened.
//!
//! The main thread opens files and counters and starts a crew of one; everything that touches packets is made on the
//! worker's own thread, in `work`. While it runs the main thread only reads counters, once a second.

mod source;

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use exchange_sim::Truth;
use wirepath::counters::{Block, Scope, Snapshot};
use wirepath::mem::{BURST_MAX, Layout, Sizing};
use wirepath::pipeline::{
    Accept, EgressConfig, Ethernet, Ipv4, Ipv4Config, Ipv4Successors, Node, Outline, Udp, UdpConfig, Unhandled, Vlans,
};
use wirepath::proto::{HashSeed, Host, HostConfig, InterfaceId, SocketCapacity, UdpSockets};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::wire::{MacAddr, VlanTags};
use wirepath::worker::topology::Report;
use wirepath::worker::{Crew, Ended, Parts, Post, Station, StopFlag, Worker, affinity};

use crate::device::{AnyQueue, IntakeConfig};
use crate::error::Error;
use crate::feed::{ArrivalClock, Feed, FeedConfig, FeedTally, Sampler};
use crate::format::{CboePitch, Format, IexDeep, IexTops, MoldItch50, Protocol};
use crate::join::{Join, Learning};
use crate::plan::{Placement, Plan};
use crate::report::{Core, Run, Summary, grouped, rate};
use crate::sniff;

use source::Source;

/// The scope of the worker's counters.
pub(crate) const WORKER: &str = "worker0";
/// Between two looks at the counters.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// What the user hears while it runs.
#[derive(Clone, Debug)]
pub enum Event {
    /// Something worth knowing, as a sentence.
    Notice(String),
    /// The pipeline as it was built, and what its pool is made of.
    Built(String),
    /// What is good and what is not about the machine.
    Machine(Report),
    /// A second has passed.
    Progress(Progress),
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Since the start.
    pub seconds: f64,
    /// Frames received.
    pub packets: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Messages a second, over the last second.
    pub messages_per_second: f64,
    /// Gaps so far.
    pub gaps: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [packets, messages, gaps] = [self.packets, self.messages, self.gaps].map(grouped);
        let (seconds, rate) = (self.seconds, rate(self.messages_per_second));
        write!(f, "{seconds:4.0} s  {packets} packets  {messages} messages, {rate}  {gaps} gaps")
    }
}

/// What the worker brings home.
struct Done {
    ended: Ended,
    seconds: f64,
    kept: u64,
    unnamed: u64,
    tally: FeedTally,
}

/// Everything that the worker's thread needs, and can be sent there.
struct Job {
    plan: Plan,
    queue: Box<dyn AnyQueue>,
    block: Arc<Block>,
    events: Sender<Event>,
}

/// Carries out a plan. `stop` ends it early, with the summary so far; `tell` hears what happens meanwhile.
pub fn replay(plan: &Plan, stop: &StopFlag, mut tell: impl FnMut(Event)) -> Result<Summary, Error> {
    let truth = plan.truth.as_deref().map(Truth::read).transpose().map_err(Error::failed)?;
    sniff::check(plan)?;
    let (source, queue) = Source::open(plan)?;
    let block = Arc::new(Block::create("feed-handler").unwrap_or_else(|error| {
        tell(Event::Notice(format!("{error}; counting in private memory instead: wirepath stats will not see it")));
        Block::heap()
    }));
    let (events, heard) = mpsc::channel();
    let job = Job { plan: plan.clone(), queue, block: Arc::clone(&block), events };
    let core = match plan.worker.placement {
        Placement::Core(core) => Some(core),
        Placement::Last => affinity::current().and_then(|cores| cores.last()),
        Placement::Any => None,
    };
    let crew = Crew::start(vec![station(job, core)], stop).map_err(Error::failed)?;
    tell(Event::Machine(crew.report().clone()));
    watch(&heard, &block, &mut tell);
    let done = crew.join().map_err(Error::failed)?.pop().expect("a crew of one gives one result")?;
    let run = Run {
        stopped: done.ended == Ended::Stopped,
        limited: plan.packets_max.is_some(),
        seconds: done.seconds,
        core: Core { number: core, chosen: plan.worker.placement == Placement::Last },
        held: done.kept,
        unnamed: done.unnamed,
        ending: source.ending(),
        recorded: source.recorded(),
    };
    Ok(Summary::new(plan, truth.as_ref(), run, &done.tally, &block.snapshot()))
}

/// Passes on what the worker says, and looks at its counters once a second, until it lets go of its end.
fn watch(heard: &Receiver<Event>, block: &Block, tell: &mut impl FnMut(Event)) {
    let mut before = block.snapshot();
    let started = before.taken;
    loop {
        match heard.recv_timeout(PROGRESS_PERIOD) {
            Ok(event) => tell(event),
            Err(RecvTimeoutError::Timeout) => {
                let now = block.snapshot();
                tell(Event::Progress(progress(&now, &before, now.taken.duration_since(started))));
                before = now;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

/// The worker for the plan's format: from here on it is known at compile time.
fn station(job: Job, core: Option<usize>) -> Station<Result<Done, Error>> {
    let station = match job.plan.format {
        Format::MoldItch50 | Format::Itch50File => Station::new(WORKER, |post: &Post| work::<MoldItch50>(post, job)),
        Format::IexTops => Station::new(WORKER, |post: &Post| work::<IexTops>(post, job)),
        Format::IexDeep => Station::new(WORKER, |post: &Post| work::<IexDeep>(post, job)),
        Format::CboePitch => Station::new(WORKER, |post: &Post| work::<CboePitch>(post, job)),
    };
    match core {
        Some(core) => station.on_core(core),
        None => station,
    }
}

/// Builds the pipeline on this thread and turns it until the device has ended.
fn work<P: Protocol>(post: &Post, job: Job) -> Result<Done, Error> {
    let Job { plan, queue, block, events } = job;
    let scope = block.scope(WORKER);
    let sizing = sizing(&plan);
    let buffers = plan.worker.buffers.unwrap_or(sizing.total());
    let pool = post.pool(buffers, Layout::for_frames(plan.frame_len_max)).map_err(Error::failed)?;
    if let Some(fallback) = pool.region().mapping().and_then(|mapping| mapping.fallback()) {
        if plan.worker.require_hugepages {
            return Err(Error::Failed(format!("hugepages are required and not there: {}", fallback.shortage)));
        }
        let _ = events.send(Event::Notice(fallback.to_string()));
    }
    let mut clock = MonotonicClock::start();
    let received = Rc::new(Cell::new(clock.now()));
    let intake = IntakeConfig { frames_max: plan.packets_max, clock, received: Rc::clone(&received) };
    let (rx, tx) = queue.open_any(&pool, &scope, intake).map_err(Error::failed)?;

    let seed = seed();
    let learning = if plan.sets.is_empty() && plan.groups.is_empty() { Learning::On } else { Learning::Off };
    let pipeline = pipeline::<P>(&plan, learning, seed, &scope);
    let sampler = Sampler::new(clock, received, plan.worker.latency_every);
    let app = Feed::<P>::new(feed_config::<P>(&plan), sampler, &scope);
    let parts = Parts {
        rx,
        tx,
        pipeline,
        app,
        pool,
        host: host(seed)?,
        sockets: UdpSockets::new(SocketCapacity::default(), seed),
        egress: EgressConfig::quiet(seed),
        burst_len: plan.worker.burst_len,
    };
    let mut worker = Worker::new(parts, &scope);
    block.check().map_err(Error::failed)?;
    worker.with_app(clock.now(), |feed, cx| feed.join(cx)).map_err(Error::failed)?;
    let mut outline = Outline::new();
    worker.pipeline().outline(&mut outline);
    let _ = events.send(Event::Built(format!("{outline}{sizing}")));

    let started = clock.now();
    let ended = worker.run(&mut clock, &post.stop);
    let seconds = clock.now().since(started).as_secs_f64();
    worker.with_app(clock.now(), |feed, _| feed.finish());
    worker.publish();
    let (kept, unnamed) = (worker.kept() as u64, worker.pool().unnamed());
    let tally = worker.app().tally(plan.tops);
    Ok(Done { ended, seconds, kept, unnamed, tally })
}

/// The tree that every frame runs through. `P` only names the app at its end.
fn pipeline<P: Protocol>(plan: &Plan, learning: Learning, seed: HashSeed, scope: &Scope) -> impl Node<Feed<P>> {
    let next = Ipv4Successors {
        udp: Join::new(learning, Udp::new(UdpConfig { checksum: plan.checksum }, scope)),
        icmp: Unhandled::new("icmp", scope),
        igmp: Unhandled::new("igmp", scope),
        tcp: Unhandled::new("tcp", scope),
    };
    // Somebody else's capture: its stations and VLANs are not ours, and all of them are welcome.
    let ipv4 = Ipv4::new(Ipv4Config { accept: Accept::Any, ..Ipv4Config::new(seed) }, next, scope);
    Ethernet::new(None, Vlans::Any, ipv4, Unhandled::new("arp", scope), scope)
}

fn feed_config<P: Protocol>(plan: &Plan) -> FeedConfig {
    FeedConfig {
        policy: plan.policy,
        window: plan.window,
        capacity: plan.capacity.over(P::capacity()),
        clock: ArrivalClock::Recorded,
        sets: plan.sets.clone(),
        groups: plan.groups.clone(),
    }
}

/// How many buffers the parts of this worker may hold at one time.
fn sizing(plan: &Plan) -> Sizing {
    let faults = if plan.faults.is_some() { BURST_MAX * 4 } else { 0 };
    let channels = plan.sets.len().max(4);
    Sizing::new()
        .part("burst", BURST_MAX, "in the hands of the pipeline")
        .part("reserve", BURST_MAX, "for receiving, however much waits")
        .part("reassembly", Ipv4Config::new(seed()).reassembly.pieces, "fragments that wait for the rest")
        .part("arbitration", channels * (plan.window.packets + 1), "packets behind a hole, four channels at one time")
        .part("faults", faults, "frames that the fault device holds back or copies")
}

/// A host that nobody sends to: the replay does not answer.
fn host(seed: HashSeed) -> Result<Host, Error> {
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 1,
        neighbours_max: 1,
    };
    Host::new(config, seed).map_err(Error::failed)
}

/// Keys for the tables of this process, from the system's random numbers.
fn seed() -> HashSeed {
    HashSeed::new(RandomState::new().hash_one(0u8), RandomState::new().hash_one(1u8))
}

fn progress(now: &Snapshot, before: &Snapshot, elapsed: Duration) -> Progress {
    let count = |name: &str| now.count(&format!("{WORKER}/{name}")).unwrap_or(0);
    let change = now.change(&format!("{WORKER}/feed/messages"), before);
    Progress {
        seconds: elapsed.as_secs_f64(),
        packets: count("frames"),
        messages: count("feed/messages"),
        messages_per_second: change.map_or(0.0, |change| change.per_second),
        gaps: count("feed/gaps"),
    }
}
