//! The listing of this process for `wirepath sockets`. The background thread writes it twice a
//! second: what it knows of our sockets under the engine's lock, what it asks the kernel after
//! that.

use core::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use sockets::listing::{Entry, Header, LentQueue, Listing, Place as Whose, State};
use sockets::{Errno, Kind};
use wirepath::counters::{Block, Reading, Sample};

use crate::address;
use crate::calls::offload;
use crate::engine::file::{ANY, File, FileKind, Owner, Socket, UNDECIDED};
use crate::engine::group::EngineMask;
use crate::engine::{self, Engine, Guest};
use crate::scarce::{self, Scarce};
use crate::{config, sys};

/// The file in shared memory, and the number of records in use.
pub(crate) struct Published {
    listing: Listing,
    used: usize,
    writes: u32,
    /// The kernel's sockets in the order of their slots, as the kernel was last asked for them.
    asked: Vec<Option<Entry<'static>>>,
}

/// The values of all sockets, before the kernel is asked for those of its own.
pub(crate) struct PartialListing {
    /// Each socket with the descriptor of its twin, if the kernel has the values.
    sockets: Vec<(Entry<'static>, Option<i32>)>,
    /// How many there may be.
    room: usize,
    now: SystemTime,
    header: Header<'static>,
    /// The counters of the devices, which belong to the workers and go with them.
    counters: Vec<Weak<Block>>,
    /// The engines whose values were read.
    added: EngineMask,
}

impl PartialListing {
    /// Reads the values of an engine, unless it has them.
    pub(crate) fn add(&mut self, engine: &mut Engine) {
        if self.added.has(engine.number) {
            return;
        }
        let files: Vec<Listed> = engine.files.iter().filter_map(|(_, file)| Listed::of(file)).collect();
        let files: Vec<Listed> = files.into_iter().chain(engine.guests.iter().map(Listed::of_guest)).collect();
        let room = self.room - self.sockets.len();
        self.sockets.extend(files.iter().take(room).map(|listed| listed.entry(engine, self.now)));
        if let Ok(Some(counters)) = engine.look(|sockets| Ok(sockets.counters())) {
            self.counters.push(Arc::downgrade(&counters));
        }
        let header = &mut self.header;
        header.turns += engine.turns;
        header.turns_with_packets += engine.turns_with_packets;
        header.keeper_turns += engine.keeper_turns;
        header.contended += engine.contended;
        header.sleeps += engine.sleeps;
        header.wakeups += engine.wakeups;
        header.unlisted += files.len().saturating_sub(room) as u64;
        header.system_calls.sleep += engine.sleeps;
        header.system_calls.wake += engine.wakeups;
        header.system_calls.port += engine.look(|sockets| Ok(sockets.flow_changes())).unwrap_or(0);
        if engine.is_open()
            && let Some(config) = config::get()
        {
            header.interface = config.port.interface().into();
        }
        self.added = self.added.with(engine.number);
    }

    /// Whether it has all engines. One is added later if a thread is within it.
    pub(crate) fn is_whole(&self) -> bool {
        engine::all().is_within(self.added)
    }
}

/// Kernel's sockets whose values are asked for in each write; of more in each eighth, because each
/// takes a few system calls.
const ASKED_ALWAYS: usize = 256;

impl Published {
    /// Makes the file. If that fails, the program runs all the same, and is not listed.
    pub(crate) fn new() -> Option<Self> {
        let config = config::get()?;
        let listing = Listing::create(&config.program).inspect_err(|error| {
            config::say(format_args!("wirepath sockets will not show this program: {error}"));
        });
        let listing = listing.ok()?;
        Some(Self { listing, used: 0, writes: 0, asked: Vec::new() })
    }

    /// Begins to read the values that are under the engines' locks.
    pub(crate) fn begin(&self) -> PartialListing {
        let mut header = Header::default();
        header.system_calls.twin = sys::calls_on_twins();
        if let Some(config) = config::get() {
            header.program = config.program.as_str().into();
        }
        let (sockets, counters, room) = (Vec::new(), Vec::new(), self.listing.capacity());
        PartialListing { sockets, room, now: SystemTime::now(), header, counters, added: EngineMask::NONE }
    }

    /// Writes the values, and those of the kernel.
    pub(crate) fn write(&mut self, collected: PartialListing) {
        let PartialListing { sockets, mut header, counters, .. } = collected;
        let kernels = sockets.iter().filter(|(_, twin)| twin.is_some()).count();
        let asks = kernels <= ASKED_ALWAYS || self.writes.is_multiple_of(8);
        self.writes = self.writes.wrapping_add(1);
        let used = sockets.len();
        self.asked.resize_with(used, || None);
        for ((slot, (mut entry, twin)), asked) in sockets.into_iter().enumerate().zip(&mut self.asked) {
            let known = asked.take().filter(|known| (known.fd, known.opened) == (entry.fd, entry.opened));
            match (twin, known) {
                (None, _) => (),
                (Some(_), Some(known)) if !asks => {
                    let Entry { place, why, epoll_sets, .. } = entry;
                    entry = Entry { place, why, epoll_sets, ..known };
                }
                (Some(twin), _) => ask_kernel(&mut entry, twin),
            }
            *asked = twin.map(|_| entry.clone());
            self.listing.set(slot, &entry);
        }
        (used..self.used).for_each(|slot| self.listing.clear(slot));
        self.used = used;
        let samples = counters.iter().filter_map(Weak::upgrade).map(|counters| counters.snapshot().samples);
        for samples in samples {
            header.system_calls.device += sum(&samples, |name| name.ends_with("/wakeups"));
            header.dropped += sum(&samples, |name| name.contains("rx/drop/"));
            header.lent.extend(lent_queue(&samples));
            scarce::found_in(&samples).for_each(Scarce::say);
        }
        self.listing.header(&header);
    }
}

/// The sum of the device's counters with such names.
fn sum(samples: &[Sample], is_meant: impl Fn(&str) -> bool) -> u64 {
    let meant = samples.iter().filter(|sample| is_meant(&sample.name));
    meant.map(|sample| if let Reading::Counter(count) = sample.reading { count } else { 0 }).sum()
}

/// The queue of a NIC that a broker has lent to the engine with these counters.
fn lent_queue(samples: &[Sample]) -> Option<LentQueue> {
    let number = |name| {
        let sample = samples.iter().find(|sample| sample.name.ends_with(name))?;
        if let Reading::Gauge(number) = sample.reading { u32::try_from(number).ok() } else { None }
    };
    Some(LentQueue { send: number("tx/lent_queue")?, receive: number("rx/lent_queue")? })
}

/// The listed values of a file.
struct Listed {
    fd: i32,
    kind: Kind,
    place: Owner,
    is_refused: bool,
    why: &'static str,
    sets: u32,
    listens: bool,
    would_block: u64,
    twin_reads: u64,
    opened: SystemTime,
}

impl Listed {
    fn of(file: &File) -> Option<Self> {
        let FileKind::Socket(socket) = &file.what else { return None };
        let Socket { kind, place, why, opened, is_listener, is_refused, would_block, twin_reads, .. } = *socket;
        let mut sets: Vec<u32> = socket.watches.iter().map(|watch| watch.set.0).collect();
        sets.sort_unstable();
        sets.dedup();
        let (fd, sets) = (*file.fds.iter().min()?, sets.len() as u32);
        let listens = is_listener;
        Some(Self { fd, kind, place, is_refused, why, sets, listens, would_block, twin_reads, opened })
    }

    /// That of a listener for another engine's.
    fn of_guest(guest: &Guest) -> Self {
        let Guest { id, fd, why, opened } = *guest;
        let place = Owner::Ours { id, hears_twin: false };
        let (kind, would_block, twin_reads) = (Kind::Stream, 0, 0);
        Self { fd, kind, place, is_refused: false, why, sets: 0, listens: true, would_block, twin_reads, opened }
    }

    fn entry(&self, engine: &mut Engine, now: SystemTime) -> (Entry<'static>, Option<i32>) {
        let place = match self.place {
            _ if self.is_refused => Whose::Refused,
            Owner::Undecided if self.why == UNDECIDED => Whose::Undecided,
            Owner::Undecided | Owner::Kernel | Owner::Parent => Whose::Kernel,
            Owner::Ours { hears_twin: true, .. } => Whose::Both,
            Owner::Ours { .. } => Whose::Ours,
        };
        let known = match self.place {
            Owner::Ours { id, .. } => engine.ask(|sockets, cx| sockets.entry(id, now, cx)).ok(),
            Owner::Undecided | Owner::Kernel | Owner::Parent => None,
        };
        let taken_back = match self.place {
            Owner::Ours { id, .. } => engine.look(|sockets| sockets.taken_back(id)).ok().flatten(),
            Owner::Undecided | Owner::Kernel | Owner::Parent => None,
        };
        let (place, why) = match taken_back.map(offload::why_taken_back) {
            Some(why) => {
                offload::say_kept(why, known.as_ref().map_or(ANY, |known| v4_of(known.local)));
                (Whose::Kernel, why)
            }
            None => (place, self.why),
        };
        let is_asked = known.is_none().then_some(self.fd);
        let number = known.is_some().then_some(engine.number as u8);
        let state = if self.listens { State::Listen } else { State::Closed };
        let known = known.unwrap_or(Entry { state, epoll_sets: self.sets, ..Entry::default() });
        let Self { fd, kind, opened, would_block, twin_reads, .. } = *self;
        let why = why.into();
        (Entry { fd, kind, place, why, opened, would_block, twin_reads, engine: number, ..known }, is_asked)
    }
}

/// An address of ours, which is of IPv4.
fn v4_of(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => ANY,
    }
}

/// Fills in what the kernel knows of a socket. The descriptor may be closed meanwhile, or name
/// another file: then the next write corrects the entry.
fn ask_kernel(entry: &mut Entry<'_>, fd: i32) {
    const SO_MEMINFO: i32 = 55;
    const SK_MEMINFO_RMEM_ALLOC: usize = 0;
    const SK_MEMINFO_DROPS: usize = 8;
    const TIOCOUTQ: usize = 0x5411;
    const FIONREAD: usize = 0x541b;
    let mut name = [0; 128];
    let named = |asked: Result<usize, Errno>, name: &[u8]| address::parse_any(&name[..asked.ok()?]);
    let asked = sys::getsockname(fd, &mut name);
    entry.local = named(asked, &name).unwrap_or(ANY.into());
    let asked = sys::getpeername(fd, &mut name);
    entry.remote = named(asked, &name);
    entry.receive_limit = sys::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).map_or(0, |limit| limit as u64);
    let queued = |request| sys::ioctl_int(fd, request).map_or(0, |count| count.max(0) as u64);
    if entry.kind == Kind::Datagram {
        entry.state = match (entry.remote, entry.local.port()) {
            (Some(_), _) => State::Established,
            (None, 0) => State::Closed,
            (None, _) => State::Bound,
        };
        (entry.receive_queue, entry.send_queue) = (queued(FIONREAD), queued(TIOCOUTQ));
        let mut memory = [0; 36];
        if sys::getsockopt(fd, libc::SOL_SOCKET, SO_MEMINFO, &mut memory) == Ok(memory.len()) {
            // FIONREAD is the length of the next datagram alone; this is what `ss` shows.
            entry.receive_queue = u64::from(word(&memory, SK_MEMINFO_RMEM_ALLOC * 4));
            entry.drops = u64::from(word(&memory, SK_MEMINFO_DROPS * 4));
        }
        return;
    }
    let mut info = [0; 248];
    if sys::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).is_err() {
        return;
    }
    // `struct tcp_info`.
    entry.state = state_of(info[0], entry.local.port());
    if entry.state == State::Listen {
        (entry.receive_queue, entry.receive_limit) = (u64::from(word(&info, 24)), u64::from(word(&info, 28)));
        return;
    }
    (entry.receive_queue, entry.send_queue) = (queued(FIONREAD), queued(TIOCOUTQ));
    let long = |at: usize| u64::from(word(&info, at)) | u64::from(word(&info, at + 4)) << 32;
    entry.retransmits = u64::from(word(&info, 100));
    (entry.rx_bytes, entry.tx_bytes) = (long(128), long(200));
    (entry.tx_packets, entry.rx_packets) = (u64::from(word(&info, 136)), u64::from(word(&info, 140)));
    if entry.rx_packets > 0 {
        let silence = [44, 52, 56].map(|at| word(&info, at)).into_iter().min().unwrap_or(0);
        let last = SystemTime::now().checked_sub(Duration::from_millis(u64::from(silence)));
        entry.active = last.unwrap_or(SystemTime::UNIX_EPOCH);
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| Some(u32::from_ne_bytes(word.try_into().ok()?))).unwrap_or(0)
}

/// `TCP_ESTABLISHED` and the others.
fn state_of(number: u8, port: u16) -> State {
    match number {
        1 => State::Established,
        2 => State::SynSent,
        3 | 12 => State::SynReceived,
        4 => State::FinWait1,
        5 => State::FinWait2,
        6 => State::TimeWait,
        8 => State::CloseWait,
        9 => State::LastAck,
        10 => State::Listen,
        11 => State::Closing,
        _ if port != 0 => State::Bound,
        _ => State::Closed,
    }
}
