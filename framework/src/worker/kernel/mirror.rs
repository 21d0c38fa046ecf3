//! The mirror: the kernel's tables, the sockets that keep them current, and a [`HostSync`] for each
//! interface that a worker owns.
//!
//! The mirror follows an interface by its index as long as the interface exists, so a rename
//! changes nothing. When the interface is gone, its worker's host loses all addresses, routes and
//! neighbors, and the mirror waits for an interface with the configured name.

use core::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::follower::Follower;
use super::host_sync::HostSync;
use super::neighbor_requests::NeighborRequests;
use super::socket::{Events, NetlinkEvents, Requests};
use super::tables::{KernelLink, LinkIdx, Tables, TablesState};
use super::view::View;
use super::wakeup::Wakeup;
use crate::counters::{Counter, Gauge, Scope, Unit};
use crate::device::DeviceErrorKind;
use crate::proto::{HostConfig, HostError, Ipv4Prefix};
use crate::sys::helper;
use crate::worker::StopFlag;
use crate::worker::spsc::{CAPACITY_MIN, CapacityError, lossless};

/// Maximum wait for events before the thread checks the requests of workers that poll. A datagram
/// to an unknown neighbor waits that long, so a shorter wait is better. But each check costs a
/// wake-up: 25 µs on a machine whose cores are all busy, 0.25 % of one core.
const TURN_INTERVAL: Duration = Duration::from_millis(10);
/// The same where all workers are of those that sleep: they wake the thread for their requests, and
/// so does its owner to stop it. The stop flag of all has no descriptor.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);
/// The wait while a worker's ring is full, or after a dump failed.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// The most datagrams of events that are read before the workers are updated, so that a storm of
/// events does not delay updates for long.
const DATAGRAMS_PER_TURN: usize = 1024;

/// The kernel's state of its interfaces, and the followers. Made before the workers;
/// [`start`](Self::start) then moves it to a thread.
pub struct Mirror {
    events: Events,
    requests: Requests,
    tables: Tables,
    known: TablesState,
    /// Some workers have not received all changes yet.
    has_unsent_changes: bool,
    followed: Vec<Followed>,
    /// Ends the thread's sleep.
    wakeup: Arc<Wakeup>,
    /// Requests neighbors from the kernel; without it, this thread does.
    resolver: Option<Resolver>,
    counters: MirrorCounters,
}

/// Has the kernel resolve a neighbor of the followed interface, for a process that may not do so
/// itself.
pub(crate) type Resolver = Box<dyn Fn(Ipv4Addr) -> io::Result<()> + Send>;

struct Followed {
    name: String,
    idx: Option<LinkIdx>,
    host_sync: HostSync,
    requests: NeighborRequests,
    /// Ends the worker's sleep.
    worker: Arc<Wakeup>,
}

struct MirrorCounters {
    changes: Counter,
    dumps: Counter,
    gaps: Counter,
    dumps_failed: Counter,
    rings_full: Counter,
    undecoded: Counter,
    refused: Gauge,
    requests: Counter,
    requests_refused: Counter,
    resolves: Counter,
    resolves_refused: Counter,
    unanswered: Counter,
}

impl Mirror {
    /// Dumps the tables of the calling thread's network namespace, and follows them from then on.
    /// Needs no privilege. Counters are registered in `scope`.
    pub fn open(scope: &Scope) -> Result<Self, MirrorError> {
        // The event socket is opened first, so that changes during the dump are received after it.
        let events = Events::open().map_err(MirrorError::Socket)?;
        let mut requests = Requests::open().map_err(MirrorError::Socket)?;
        let tables = requests.tables().map_err(MirrorError::Dump)?;
        let counters = MirrorCounters::new(&scope.scope("kernel"));
        counters.dumps.inc();
        let (known, followed) = (TablesState::All, Vec::new());
        let wakeup = Arc::new(Wakeup::new().map_err(MirrorError::Socket)?);
        let (has_unsent_changes, resolver) = (false, None);
        Ok(Self { events, requests, tables, known, has_unsent_changes, followed, wakeup, resolver, counters })
    }

    /// Neighbors are resolved by another process from now on.
    pub(in crate::worker) fn resolve_by(&mut self, resolver: Resolver) {
        self.resolver = Some(resolver);
    }

    /// The interface of this name: the MAC address and MTU for a [`HostConfig`], its index for a
    /// socket.
    pub fn link(&self, name: &str) -> Option<&KernelLink> {
        self.tables.link_named(name)
    }

    /// The legs of a bond (and the ports of a bridge), in order of their indices.
    pub fn legs(&self, link: &KernelLink) -> Vec<&KernelLink> {
        self.tables.legs(link.idx).filter_map(|idx| self.tables.link(idx)).collect()
    }

    /// The IPv4 addresses of an interface, in order of their indices.
    pub fn addresses(&self, link: &KernelLink) -> impl Iterator<Item = Ipv4Prefix> {
        self.tables.addresses(link.idx)
    }

    /// Checks that the kernel resolves neighbors on our request, which needs CAP_NET_ADMIN. Without
    /// it a worker's [requests](Follower::want) have no effect but a count, `resolves_refused`.
    pub fn may_resolve(&mut self) -> Result<(), MirrorError> {
        // With permission the error is that there is no such interface: indices are below 2^31.
        match self.requests.use_neighbor(i32::MAX as u32, Ipv4Addr::new(192, 0, 2, 1)) {
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => Err(MirrorError::Resolve(error)),
            _ => Ok(()),
        }
    }

    /// Has the kernel resolve a neighbor now.
    #[cfg(feature = "af-xdp")]
    pub(in crate::worker) fn use_neighbor(&mut self, link: LinkIdx, address: Ipv4Addr) -> io::Result<()> {
        self.requests.use_neighbor(link, address)
    }

    /// Follows the interface `name` for one worker. `config` is the configuration of the worker's
    /// host. Two SPSC rings join the mirror and the [`Follower`]. One brings updates from the
    /// mirror to the worker: it holds `capacity` (a power of two) of them, and the call puts the
    /// current state into it, as far as it fits. The other brings requests for neighbors from the
    /// worker to the mirror, and holds one for each of `neighbors_max` neighbors.
    pub fn follow(&mut self, name: &str, config: HostConfig, capacity: usize) -> Result<Follower, MirrorError> {
        let Some(link) = self.link(name) else { return Err(MirrorError::NoSuchInterface(name.to_owned())) };
        let idx = Some(link.idx);
        let (producer, consumer) = lossless::ring(capacity).map_err(MirrorError::Capacity)?;
        let wishes_max = config.neighbors_max.next_power_of_two().max(CAPACITY_MIN);
        let (wishing, wished) = lossless::ring(wishes_max).map_err(MirrorError::Capacity)?;
        let host_sync = HostSync::new(config, producer).map_err(MirrorError::Host)?;
        let requests = NeighborRequests::new(config.neighbors_max, wished);
        let worker = Arc::new(Wakeup::new().map_err(MirrorError::Socket)?);
        let follower = Follower::new(consumer, wishing).woken_by(Arc::clone(&worker), Arc::clone(&self.wakeup));
        self.followed.push(Followed { name: name.to_owned(), idx, host_sync, requests, worker });
        self.has_unsent_changes = true;
        self.update_workers();
        Ok(follower)
    }

    /// Continues on a thread of its own until `stop`, or until the [`MirrorThread`] is dropped.
    pub fn start(self, stop: &StopFlag) -> Result<MirrorThread, MirrorError> {
        let (own, wakeup) = (StopFlag::new(), Arc::clone(&self.wakeup));
        let (all, mine) = (stop.clone(), own.clone());
        let run = move || {
            let mut mirror = self;
            let mut behind = false;
            loop {
                let (patience, wakeup) = mirror.rest(behind);
                if all.is_stopping() || mine.is_stopping() {
                    return;
                }
                behind = mirror.turn_or_wake(patience, wakeup);
            }
        };
        let thread =
            helper::spawn(thread::Builder::new().name("wirepath-kernel".into()), run).map_err(MirrorError::Thread)?;
        Ok(MirrorThread { stop: own, wakeup, thread: Some(thread) })
    }

    /// How long the thread waits for events, and the descriptor that ends the wait too, where all
    /// workers sleep. The thread checks its stop flag after this.
    fn rest(&mut self, is_behind: bool) -> (Duration, Option<RawFd>) {
        let tables = &self.tables;
        let is_polled = |Followed { idx, requests, worker, .. }: &Followed| {
            let is_waiting = |link| requests.are_waiting_for_time(|address| tables.knowledge(link, address));
            !worker.is_slept_on() || up_link(*idx, tables).is_some_and(is_waiting)
        };
        if is_behind {
            return (RETRY_INTERVAL, None);
        }
        if self.followed.iter().any(is_polled) {
            return (TURN_INTERVAL, None);
        }
        self.wakeup.arm();
        // A request that came before is collected now; a later one ends the wait.
        let has_requests = self.followed.iter_mut().any(|followed| followed.requests.are_waiting());
        (if has_requests { Duration::ZERO } else { IDLE_INTERVAL }, Some(self.wakeup.fd()))
    }

    /// One turn, for callers with a thread of their own: waits for events, at most `patience`,
    /// sends the workers their updates, and asks the kernel for the neighbors they request. True if
    /// some work is left, and the next turn should follow soon.
    ///
    /// Compares all routes out of each followed interface with each other: made for hosts with tens
    /// or hundreds of routes, not for a full table of the Internet.
    pub fn turn(&mut self, patience: Duration) -> bool {
        self.turn_or_wake(patience, None)
    }

    /// One turn, whose wait `wakeup` ends too.
    fn turn_or_wake(&mut self, patience: Duration, wakeup: Option<RawFd>) -> bool {
        let first = self.events.wait(patience, wakeup);
        self.apply_events(first);
        if self.known == TablesState::Incomplete {
            self.resync();
            // An event during the dump may be in it, or not: applying it twice is harmless, but a
            // worker must not see the state in between.
            let next = self.events.next();
            self.apply_events(next);
        }
        self.counters.undecoded.add(self.events.take_undecoded() + self.requests.take_undecoded());
        self.followed.retain(|followed| !followed.host_sync.is_closed());
        let now = Instant::now();
        self.collect_requests(now);
        self.update_workers();
        self.ask(now);
        self.known == TablesState::Incomplete || self.has_unsent_changes
    }

    /// Processes an event and all events queued after it.
    fn apply_events(&mut self, first: io::Result<NetlinkEvents>) {
        let mut events = first;
        for _ in 0..DATAGRAMS_PER_TURN {
            match events {
                Ok(NetlinkEvents::Nothing) => return,
                Ok(NetlinkEvents::Changes(changes)) => {
                    self.has_unsent_changes |= !changes.is_empty();
                    self.counters.changes.add(changes.len() as u64);
                    for change in changes {
                        if self.tables.apply(change) == TablesState::Incomplete {
                            self.known = TablesState::Incomplete;
                        }
                    }
                }
                Ok(NetlinkEvents::Gap) | Err(_) => {
                    self.counters.gaps.inc();
                    self.known = TablesState::Incomplete;
                    return;
                }
            }
            events = self.events.next();
        }
    }

    /// Dumps everything again. On failure the old tables remain, and the next turn tries again.
    fn resync(&mut self) {
        self.counters.dumps.inc();
        let dumped = self.events.discard().and_then(|()| self.requests.tables());
        match dumped {
            Ok(tables) => (self.tables, self.known, self.has_unsent_changes) = (tables, TablesState::All, true),
            Err(_) => self.counters.dumps_failed.inc(),
        }
    }

    /// Collects the workers' requests. A requested neighbor may be known already, but not have fit
    /// the worker's host.
    fn collect_requests(&mut self, now: Instant) {
        for followed in &mut self.followed {
            let collected = followed.requests.collect(now);
            self.counters.requests.add(collected.requests);
            self.counters.requests_refused.add(collected.refused);
            self.has_unsent_changes |= collected.requests > 0;
        }
    }

    /// Sends each worker its differences. If a ring is full, they remain to be sent.
    fn update_workers(&mut self) {
        if !std::mem::take(&mut self.has_unsent_changes) {
            return;
        }
        let mut refused = 0;
        for Followed { name, idx, host_sync, requests, worker } in &mut self.followed {
            find(name, idx, &self.tables);
            if host_sync.update(&View::of(&self.tables, *idx), |address| requests.wants(address)).is_err() {
                self.counters.rings_full.inc();
                self.has_unsent_changes = true;
            }
            worker.wake();
            refused += host_sync.refused().len() as u64;
        }
        self.counters.refused.set(refused);
    }

    /// Asks the kernel for the neighbors that workers request, and counts those that do not answer.
    fn ask(&mut self, now: Instant) {
        for Followed { idx, requests, .. } in &mut self.followed {
            let Some(link) = up_link(*idx, &self.tables) else { continue };
            self.counters.unanswered.add(requests.unanswered(|address| self.tables.knowledge(link, address)));
            for address in requests.due(now, |address| self.tables.knowledge(link, address)) {
                requests.asked(address, now);
                self.counters.resolves.inc();
                let asked = match &self.resolver {
                    Some(resolver) => resolver(address),
                    None => self.requests.use_neighbor(link, address),
                };
                match asked {
                    Ok(()) => self.tables.ask(link, address),
                    Err(_) => self.counters.resolves_refused.inc(),
                }
            }
        }
    }
}

/// The interface, if it is up: on one that is down no request leaves, so it waits until then.
fn up_link(idx: Option<LinkIdx>, tables: &Tables) -> Option<LinkIdx> {
    idx.and_then(|idx| tables.link(idx)).filter(|link| link.up).map(|link| link.idx)
}

/// Keeps the interface while it exists, whatever its name; searches by name when it is gone.
fn find(name: &str, idx: &mut Option<LinkIdx>, tables: &Tables) {
    if idx.is_none_or(|idx| tables.link(idx).is_none()) {
        *idx = tables.link_named(name).map(|link| link.idx);
    }
}

impl MirrorCounters {
    fn new(scope: &Scope) -> Self {
        Self {
            changes: scope.counter("changes", Unit::Messages),
            dumps: scope.counter("dumps", Unit::Events),
            gaps: scope.counter("gaps", Unit::Events),
            dumps_failed: scope.counter("dumps_failed", Unit::Events),
            rings_full: scope.counter("rings_full", Unit::Events),
            undecoded: scope.counter("undecoded", Unit::Messages),
            refused: scope.gauge("refused", Unit::Number),
            requests: scope.counter("neighbor_requests", Unit::Messages),
            requests_refused: scope.counter("neighbor_requests_refused", Unit::Messages),
            resolves: scope.counter("resolves", Unit::Messages),
            resolves_refused: scope.counter("resolves_refused", Unit::Messages),
            unanswered: scope.counter("unanswered", Unit::Events),
        }
    }
}

/// The mirror's thread. Dropping this stops the thread and waits for it: some 10 ms at most, and
/// the rest of a dump in progress.
#[derive(Debug)]
pub struct MirrorThread {
    stop: StopFlag,
    wakeup: Arc<Wakeup>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for MirrorThread {
    fn drop(&mut self) {
        self.stop.stop();
        self.wakeup.wake();
        if let Some(thread) = self.thread.take() {
            // The thread printed its panic when it happened; the followers see that their mirror is
            // gone.
            let _ = thread.join();
        }
    }
}

/// Why the mirror could not be opened, or an interface not be followed.
#[derive(Debug)]
#[non_exhaustive]
pub enum MirrorError {
    /// The netlink socket failed.
    Socket(io::Error),
    /// The kernel did not dump its tables.
    Dump(io::Error),
    /// The kernel refuses to resolve neighbors.
    Resolve(io::Error),
    /// No interface has this name.
    NoSuchInterface(String),
    /// The capacity of the ring is invalid.
    Capacity(CapacityError),
    /// The configuration of the host is invalid.
    Host(HostError),
    /// The thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for MirrorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => write!(
                f,
                "no netlink socket to mirror the kernel's interfaces: {error}; a container's seccomp profile or systemd's \
                 RestrictAddressFamilies must allow AF_NETLINK, or give addresses and routes in the configuration"
            ),
            Self::Dump(error) => {
                write!(f, "the kernel does not tell its addresses and routes over netlink: {error}; try again")
            }
            Self::Resolve(error) => write!(
                f,
                "the kernel does not ask for neighbors on our behalf: {error}; give the process CAP_NET_ADMIN (`setcap \
                 cap_net_admin+ep PROGRAM`), which AF_XDP needs as well, or configure the neighbors"
            ),
            Self::NoSuchInterface(name) => {
                write!(f, "there is no interface {name} in this network namespace; `ip link` lists those there are")
            }
            Self::Capacity(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
            Self::Thread(error) => {
                write!(f, "the mirror's thread could not be started: {error}; the limit on threads is `ulimit -u`")
            }
        }
    }
}

impl std::error::Error for MirrorError {}

impl MirrorError {
    /// The kind of the problem.
    pub(in crate::worker) fn kind(&self) -> DeviceErrorKind {
        match self {
            Self::Socket(error) | Self::Dump(error) | Self::Resolve(error) | Self::Thread(error) => error.into(),
            Self::NoSuchInterface(_) => DeviceErrorKind::NotFound,
            Self::Capacity(_) | Self::Host(_) => DeviceErrorKind::InvalidConfig,
        }
    }
}
