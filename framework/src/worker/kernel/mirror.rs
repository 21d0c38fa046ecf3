//! The mirror: tables, the sockets that keep them current, and an [`HostSync`] for each interface
//! that a worker owns.
//!
//! It follows an interface by its number as long as that exists: a new name changes nothing. When
//! the interface is gone, its worker's host loses all addresses, routes and neighbors, and the
//! mirror waits for one with the name that was asked for.

use core::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::follower::Follower;
use super::host_sync::HostSync;
use super::neighbor_requests::NeighborRequests;
use super::socket::{Events, NetlinkEvents, Requests};
use super::tables::{Known, Link, LinkIdx, Tables};
use super::view::View;
use crate::counters::{Counter, Gauge, Scope, Unit};
use crate::proto::{HostConfig, HostError, Ipv4Prefix};
use crate::worker::StopFlag;
use crate::worker::spsc::{CAPACITY_MIN, CapacityError, lossless};

/// How long the thread waits for events before it looks what the workers wish, and whether it is to
/// stop. The kernel rounds it up to its ticks (17 ms measured at 250 Hz). A datagram to a neighbor
/// that is not known waits as long, so shorter is better; each look costs two system calls and a
/// wake-up, 25 µs on a machine whose cores are all busy, together 0.15 % of one core.
const PATIENCE: Duration = Duration::from_millis(10);
/// How long it waits while a worker's ring is full, or after a dump failed.
const PATIENCE_BEHIND: Duration = Duration::from_millis(5);
/// Datagrams of events read before workers are told, so that a storm of events does not keep all of
/// it from them.
const DATAGRAMS_PER_TURN: usize = 1024;

/// The kernel's view of its interfaces, and those who follow one. Made before the workers;
/// [`start`](Self::start) then gives it a thread.
pub struct Mirror {
    events: Events,
    requests: Requests,
    tables: Tables,
    known: Known,
    /// Something has changed that not all workers have been told.
    has_news: bool,
    followed: Vec<Followed>,
    counters: Counters,
}

struct Followed {
    name: String,
    idx: Option<LinkIdx>,
    host_sync: HostSync,
    requests: NeighborRequests,
}

struct Counters {
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
    /// Dumps the tables of the network namespace that the calling thread is in, and follows them
    /// from then on. Needs no privilege. Counters are registered in `scope`.
    pub fn open(scope: &Scope) -> Result<Self, MirrorError> {
        // Events first: what changes during the dump is heard after it.
        let events = Events::open().map_err(MirrorError::Socket)?;
        let mut requests = Requests::open().map_err(MirrorError::Socket)?;
        let tables = requests.tables().map_err(MirrorError::Dump)?;
        let counters = Counters::new(&scope.scope("kernel"));
        counters.dumps.inc();
        Ok(Self { events, requests, tables, known: Known::All, has_news: false, followed: Vec::new(), counters })
    }

    /// The interface of this name: the MAC address and MTU for a [`HostConfig`], its number for a
    /// socket.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.tables.link_named(name)
    }

    /// The legs of a bond (and the ports of a bridge), those of lower numbers first.
    pub fn legs(&self, link: &Link) -> Vec<&Link> {
        self.tables.legs(link.idx).filter_map(|idx| self.tables.link(idx)).collect()
    }

    /// The IPv4 addresses of an interface, those of lower numbers first.
    pub fn addresses(&self, link: &Link) -> impl Iterator<Item = Ipv4Prefix> {
        self.tables.addresses(link.idx)
    }

    /// Whether the kernel asks for neighbors when we say so, which needs CAP_NET_ADMIN. Without it
    /// a worker's [wishes](Follower::want) come to nothing but a count, `resolves_refused`.
    pub fn may_resolve(&mut self) -> Result<(), MirrorError> {
        // Who may do it hears that there is no such interface: numbers are below 2^31.
        match self.requests.use_neighbor(i32::MAX as u32, Ipv4Addr::new(192, 0, 2, 1)) {
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => Err(MirrorError::Resolve(error)),
            _ => Ok(()),
        }
    }

    /// Follows the interface `name` for one worker. `config` is that of the worker's host, and
    /// `capacity` (a power of two) is how many updates its ring holds. All that is known now is in
    /// the ring already, as far as it fits. The ring of wishes has room for one about each of
    /// `neighbors_max` neighbors.
    pub fn follow(&mut self, name: &str, config: HostConfig, capacity: usize) -> Result<Follower, MirrorError> {
        let Some(link) = self.link(name) else { return Err(MirrorError::NoSuchInterface(name.to_owned())) };
        let idx = Some(link.idx);
        let (producer, consumer) = lossless::ring(capacity).map_err(MirrorError::Capacity)?;
        let wishes_max = config.neighbors_max.next_power_of_two().max(CAPACITY_MIN);
        let (wishing, wished) = lossless::ring(wishes_max).map_err(MirrorError::Capacity)?;
        let host_sync = HostSync::new(config, producer).map_err(MirrorError::Host)?;
        let requests = NeighborRequests::new(config.neighbors_max, wished);
        self.followed.push(Followed { name: name.to_owned(), idx, host_sync, requests });
        self.has_news = true;
        self.tell();
        Ok(Follower::new(consumer, wishing))
    }

    /// Goes on on a thread of its own until `stop`, or until the [`MirrorThread`] is dropped.
    pub fn start(self, stop: &StopFlag) -> Result<MirrorThread, MirrorError> {
        let own = StopFlag::new();
        let (all, mine) = (stop.clone(), own.clone());
        let run = move || {
            let mut mirror = self;
            let mut behind = false;
            while !all.is_stopping() && !mine.is_stopping() {
                behind = mirror.turn(if behind { PATIENCE_BEHIND } else { PATIENCE });
            }
        };
        let thread = thread::Builder::new().name("wirepath-kernel".into()).spawn(run).map_err(MirrorError::Thread)?;
        Ok(MirrorThread { stop: own, thread: Some(thread) })
    }

    /// One turn, for those who have a thread already: waits for events, `patience` at most, tells
    /// the workers what has changed, and asks the kernel for the neighbors they want. True where
    /// something could not be done yet, and the next turn is wanted soon.
    ///
    /// Compares all routes out of each interface that is followed with each other: made for hosts
    /// with tens or hundreds of routes, not for a full table of the Internet.
    pub fn turn(&mut self, patience: Duration) -> bool {
        let first = self.events.wait(patience);
        self.hear(first);
        if self.known == Known::NotAll {
            self.resync();
            // What happened during the dump may be in it, or not: told twice does no harm, told to
            // a worker in between might.
            let next = self.events.next();
            self.hear(next);
        }
        self.counters.undecoded.add(self.events.take_undecoded() + self.requests.take_undecoded());
        self.followed.retain(|followed| !followed.host_sync.is_closed());
        let now = Instant::now();
        self.listen(now);
        self.tell();
        self.ask(now);
        self.known == Known::NotAll || self.has_news
    }

    /// Takes what was heard and all that is waiting behind it.
    fn hear(&mut self, first: io::Result<NetlinkEvents>) {
        let mut heard = first;
        for _ in 0..DATAGRAMS_PER_TURN {
            match heard {
                Ok(NetlinkEvents::Nothing) => return,
                Ok(NetlinkEvents::Changes(changes)) => {
                    self.has_news |= !changes.is_empty();
                    self.counters.changes.add(changes.len() as u64);
                    for change in changes {
                        if self.tables.apply(change) == Known::NotAll {
                            self.known = Known::NotAll;
                        }
                    }
                }
                Ok(NetlinkEvents::Gap) | Err(_) => {
                    self.counters.gaps.inc();
                    self.known = Known::NotAll;
                    return;
                }
            }
            heard = self.events.next();
        }
    }

    /// Reads everything anew. Where that fails the old tables stay, and the next turn tries again.
    fn resync(&mut self) {
        self.counters.dumps.inc();
        let dumped = self.events.discard().and_then(|()| self.requests.tables());
        match dumped {
            Ok(tables) => (self.tables, self.known, self.has_news) = (tables, Known::All, true),
            Err(_) => self.counters.dumps_failed.inc(),
        }
    }

    /// Takes the workers' wishes. Whom a worker wants may be known already, and have found no room
    /// in its host.
    fn listen(&mut self, now: Instant) {
        for followed in &mut self.followed {
            let collected = followed.requests.collect(now);
            self.counters.requests.add(collected.requests);
            self.counters.requests_refused.add(collected.refused);
            self.has_news |= collected.requests > 0;
        }
    }

    /// Sends each worker what is different for it. Where a ring is full, the news stays news.
    fn tell(&mut self) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let mut refused = 0;
        for Followed { name, idx, host_sync, requests } in &mut self.followed {
            find(name, idx, &self.tables);
            if host_sync.update(&View::of(&self.tables, *idx), |address| requests.wants(address)).is_err() {
                self.counters.rings_full.inc();
                self.has_news = true;
            }
            refused += host_sync.refused().len() as u64;
        }
        self.counters.refused.set(refused);
    }

    /// Asks the kernel for the neighbors that workers want, and counts who does not answer.
    fn ask(&mut self, now: Instant) {
        for Followed { idx, requests, .. } in &mut self.followed {
            // Nobody hears a request on an interface that is down: it waits until that is up.
            let link = idx.and_then(|idx| self.tables.link(idx)).filter(|link| link.up).map(|link| link.idx);
            let Some(link) = link else { continue };
            self.counters.unanswered.add(requests.unanswered(|address| self.tables.knowledge(link, address)));
            for address in requests.due(now, |address| self.tables.knowledge(link, address)) {
                requests.asked(address, now);
                self.counters.resolves.inc();
                match self.requests.use_neighbor(link, address) {
                    Ok(()) => self.tables.ask(link, address),
                    Err(_) => self.counters.resolves_refused.inc(),
                }
            }
        }
    }
}

/// Keeps the interface while it exists, whatever it is called; looks for the name when it is gone.
fn find(name: &str, idx: &mut Option<LinkIdx>, tables: &Tables) {
    if idx.is_none_or(|idx| tables.link(idx).is_none()) {
        *idx = tables.link_named(name).map(|link| link.idx);
    }
}

impl Counters {
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

/// The mirror's thread. Dropping it stops the thread and waits for it: some 10 ms, and the time of
/// a dump that is under way.
#[derive(Debug)]
pub struct MirrorThread {
    stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

impl Drop for MirrorThread {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed when it happened; the followers see that their mirror is
            // gone.
            let _ = thread.join();
        }
    }
}

/// Why there is no mirror, or nobody can follow it.
#[derive(Debug)]
#[non_exhaustive]
pub enum MirrorError {
    /// No netlink socket.
    Socket(io::Error),
    /// The kernel did not tell its tables.
    Dump(io::Error),
    /// The kernel does not ask for neighbors.
    Resolve(io::Error),
    /// No interface has this name.
    NoSuchInterface(String),
    /// The ring cannot have this capacity.
    Capacity(CapacityError),
    /// No host can be made so.
    Host(HostError),
    /// No thread.
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
