//! The mirror: tables, the sockets that keep them current, and an [`Outlet`] for each interface that a worker owns.
//!
//! It follows an interface by its number as long as that exists: a new name changes nothing. When the interface is gone,
//! its worker's host loses all addresses, routes and neighbours, and the mirror waits for one with the name that was asked
//! for.

use core::fmt;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::follower::Follower;
use super::outlet::Outlet;
use super::socket::{Dumps, Events, Heard};
use super::tables::{Known, Link, LinkIdx, Tables};
use super::view::View;
use crate::counters::{Counter, Gauge, Scope, Unit};
use crate::proto::{HostConfig, HostError};
use crate::worker::StopFlag;
use crate::worker::spsc::{CapacityError, lossless};

/// How long the thread waits for events before it looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long it waits while a worker's ring is full, or after a dump failed.
const PATIENCE_BEHIND: Duration = Duration::from_millis(5);
/// Datagrams of events read before workers are told, so that a storm of events does not keep all of it from them.
const DATAGRAMS_PER_TURN: usize = 1024;

/// The kernel's view of its interfaces, and those who follow one. Made before the workers; [`start`](Self::start) then
/// gives it a thread.
pub struct Mirror {
    events: Events,
    dumps: Dumps,
    tables: Tables,
    known: Known,
    followed: Vec<Followed>,
    counters: Counters,
}

struct Followed {
    name: String,
    idx: Option<LinkIdx>,
    outlet: Outlet,
}

struct Counters {
    changes: Counter,
    dumps: Counter,
    gaps: Counter,
    dumps_failed: Counter,
    rings_full: Counter,
    undecoded: Counter,
    refused: Gauge,
}

impl Mirror {
    /// Dumps the tables of the network namespace that the calling thread is in, and follows them from then on. Needs no
    /// privilege. Counters are registered in `scope`.
    pub fn open(scope: &Scope) -> Result<Self, MirrorError> {
        // Events first: what changes during the dump is heard after it.
        let events = Events::open().map_err(MirrorError::Socket)?;
        let mut dumps = Dumps::open().map_err(MirrorError::Socket)?;
        let tables = dumps.tables().map_err(MirrorError::Dump)?;
        let counters = Counters::new(&scope.scope("kernel"));
        counters.dumps.inc();
        Ok(Self { events, dumps, tables, known: Known::All, followed: Vec::new(), counters })
    }

    /// The interface of this name: the MAC address and MTU for a [`HostConfig`], its number for a socket.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.tables.link_named(name)
    }

    /// Follows the interface `name` for one worker. `config` is that of the worker's host, and `capacity` (a power of two)
    /// is how many tidings its ring holds. All that is known now is in the ring already, as far as it fits.
    pub fn follow(&mut self, name: &str, config: HostConfig, capacity: usize) -> Result<Follower, MirrorError> {
        let Some(link) = self.link(name) else { return Err(MirrorError::NoSuchInterface(name.to_owned())) };
        let idx = Some(link.idx);
        let (producer, consumer) = lossless::ring(capacity).map_err(MirrorError::Capacity)?;
        let outlet = Outlet::new(config, producer).map_err(MirrorError::Host)?;
        self.followed.push(Followed { name: name.to_owned(), idx, outlet });
        self.tell();
        Ok(Follower::new(consumer))
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

    /// One turn, for those who have a thread already: waits for events, `patience` at most, and tells the workers what
    /// has changed. True where something could not be done yet, and the next turn is wanted soon.
    ///
    /// Compares all routes out of each interface that is followed with each other: made for hosts with tens or hundreds of
    /// routes, not for a full table of the Internet.
    pub fn turn(&mut self, patience: Duration) -> bool {
        let first = self.events.wait(patience);
        self.hear(first);
        if self.known == Known::NotAll {
            self.resync();
            // What happened during the dump may be in it, or not: told twice does no harm, told to a worker in between might.
            let next = self.events.next();
            self.hear(next);
        }
        self.counters.undecoded.add(self.events.take_undecoded() + self.dumps.take_undecoded());
        self.followed.retain(|followed| !followed.outlet.is_closed());
        let all_told = self.tell();
        self.known == Known::NotAll || !all_told
    }

    /// Takes what was heard and all that is waiting behind it.
    fn hear(&mut self, first: io::Result<Heard>) {
        let mut heard = first;
        for _ in 0..DATAGRAMS_PER_TURN {
            match heard {
                Ok(Heard::Nothing) => return,
                Ok(Heard::Changes(changes)) => {
                    self.counters.changes.add(changes.len() as u64);
                    for change in changes {
                        if self.tables.apply(change) == Known::NotAll {
                            self.known = Known::NotAll;
                        }
                    }
                }
                Ok(Heard::Gap) | Err(_) => {
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
        let dumped = self.events.discard().and_then(|()| self.dumps.tables());
        match dumped {
            Ok(tables) => (self.tables, self.known) = (tables, Known::All),
            Err(_) => self.counters.dumps_failed.inc(),
        }
    }

    /// Sends each worker what is different for it. False where a ring was full.
    fn tell(&mut self) -> bool {
        let (mut all, mut refused) = (true, 0);
        for followed in &mut self.followed {
            followed.find(&self.tables);
            if followed.outlet.update(&View::of(&self.tables, followed.idx)).is_err() {
                self.counters.rings_full.inc();
                all = false;
            }
            refused += followed.outlet.refused().len() as u64;
        }
        self.counters.refused.set(refused);
        all
    }
}

impl Followed {
    /// Keeps the interface while it exists, whatever it is called; looks for the name when it is gone.
    fn find(&mut self, tables: &Tables) {
        if self.idx.is_none_or(|idx| tables.link(idx).is_none()) {
            self.idx = tables.link_named(&self.name).map(|link| link.idx);
        }
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
        }
    }
}

/// The mirror's thread. Dropping it stops the thread and waits for it: 100 ms, and the time of a dump that is under way.
#[derive(Debug)]
pub struct MirrorThread {
    stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

impl Drop for MirrorThread {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed when it happened; the followers see that their mirror is gone.
            let _ = thread.join();
        }
    }
}

/// Why there is no mirror, or nobody can follow it.
#[derive(Debug)]
pub enum MirrorError {
    /// No netlink socket.
    Socket(io::Error),
    /// The kernel did not tell its tables.
    Dump(io::Error),
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
