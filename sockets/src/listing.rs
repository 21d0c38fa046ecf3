//! The data that `wirepath sockets` shows: a file in shared memory with a record for each socket of
//! a program, written by the program and read by others.
//!
//! The owner of the sockets writes: it may call [`Listing::set`] at any time, for tens of
//! nanoseconds and no system call. Readers see each record whole or not at all. Records of another
//! user's process are only claims: their strings contain no control characters, but their numbers
//! may be anything.
//!
//! ```
//! use sockets::listing::{Entry, Header, Listing, Place, Processes};
//!
//! # let directory = std::env::temp_dir().join(format!("listing-{}", std::process::id()));
//! let mut listing = Listing::create_in(&directory, "redis-server", 64)?;
//! listing.header(&Header { program: "redis-server".into(), interface: "eth1".into(), ..Header::default() });
//! listing.set(0, &Entry { fd: 6, place: Place::Ours, why: "no rule fits".into(), ..Entry::default() });
//!
//! let processes = Processes::list(&directory)?;
//! assert_eq!(processes.running[0].sockets[0].fd, 6);
//! # drop(listing);
//! # std::fs::remove_dir(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use wirepath::counters::{ReadError, RecordedProcess, RecordedProcesses, Records, default_directory};
use wirepath::proto::FilterMode;

use crate::table::Kind;

/// Sockets of a program that are listed by default: 1.8 MiB of shared memory.
const SOCKETS_MAX: usize = 4_096;
/// Words of a record.
const RECORD_WORDS: usize = 54;
/// The word behind the lists of both kinds of records, where older programs have nothing.
const LATER_WORDS: usize = 48;
/// Groups of a socket that are listed: as many as a program may join on Linux by default
/// (`net.ipv4.igmp_max_memberships`).
const GROUPS_MAX: usize = 20;
/// The record of the header; those of sockets follow.
const HEADER: usize = 0;
/// The first word of a record that is in use.
const IN_USE: u64 = 1;
/// The most bytes of a program's name, of an interface's (IFNAMSIZ), and of a reason.
const PROGRAM_MAX: usize = 64;
const INTERFACE_MAX: usize = 16;
const WHY_MAX: usize = 64;

/// The program and its engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// The program's file name; 64 bytes of it are shown.
    pub program: Cow<'a, str>,
    /// The interface that the worker uses; empty while none is open.
    pub interface: Cow<'a, str>,
    /// Turns of the worker.
    pub turns: u64,
    /// Those of them that have received packets.
    pub turns_with_packets: u64,
    /// Those that the library's own thread has made, while no thread of the program was in a call.
    pub keeper_turns: u64,
    /// How often a thread found another one in its engine, and waited.
    pub contended: u64,
    /// How often a thread of the program slept in a call.
    pub sleeps: u64,
    /// How often a thread was woken by another one that took its packet out of the ring.
    pub wakeups: u64,
    /// System calls that the engine made.
    pub system_calls: SystemCalls,
    /// Sockets for which there was no room here.
    pub unlisted: u64,
    /// Frames that the queues have dropped, those that found no buffer among them.
    pub dropped: u64,
    /// The queues of a NIC that a broker lends to the program's engines; nine are listed.
    pub lent: Vec<LentQueue>,
}

/// The numbers of a queue's rings in the NIC, by which its tools (`ethtool`, `rdma resource`) and
/// the kernel's log name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LentQueue {
    /// Of the ring that sends.
    pub send: u32,
    /// Of the ring that receives.
    pub receive: u32,
}

/// System calls of the engine, by their reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemCalls {
    /// Doorbells: for the device to send, or to take receive buffers.
    pub device: u64,
    /// A thread went to sleep.
    pub sleep: u64,
    /// A thread was woken.
    pub wake: u64,
    /// On the kernel's twin of a socket.
    pub twin: u64,
    /// On the rules of the port.
    pub port: u64,
}

impl SystemCalls {
    /// Each cause with its word, in the order of the fields.
    pub fn by_cause(&self) -> [(&'static str, u64); 5] {
        let Self { device, sleep, wake, twin, port } = *self;
        [("device", device), ("sleep", sleep), ("wake", wake), ("twin", twin), ("port", port)]
    }
}

/// One socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The lowest of its descriptors.
    pub fd: i32,
    /// TCP or UDP.
    pub kind: Kind,
    /// The state of its connection.
    pub state: State,
    /// The owner of the socket.
    pub place: Place,
    /// The rule that decided, or why the socket is not offloaded; 64 bytes are shown.
    pub why: Cow<'a, str>,
    /// Its address, unspecified while it has none.
    pub local: SocketAddr,
    /// Its peer.
    pub remote: Option<SocketAddr>,
    /// Bytes that the program received, or may receive without waiting.
    pub rx_bytes: u64,
    /// Segments, or datagrams.
    pub rx_packets: u64,
    /// Bytes that were sent.
    pub tx_bytes: u64,
    /// Segments, or datagrams.
    pub tx_packets: u64,
    /// Bytes that wait for the program; of a listener, connections that wait for `accept`.
    pub receive_queue: u64,
    /// The limit of the receive queue: `SO_RCVBUF`, or the backlog.
    pub receive_limit: u64,
    /// Bytes that are not sent or not acknowledged.
    pub send_queue: u64,
    /// Datagrams, or connections, that were dropped because the queue was full.
    pub drops: u64,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// The most that has waited for the program at one time, as it counts against the limit.
    pub receive_queue_max: u64,
    /// Receives that found nothing and did not wait (`EAGAIN`).
    pub would_block: u64,
    /// Receives that the kernel's twin of an offloaded socket had the bytes for.
    pub twin_reads: u64,
    /// Groups that it is a member of, 20 at most.
    pub groups: Cow<'a, [Group]>,
    /// How many these are in all.
    pub groups_count: u32,
    /// Epoll sets that it is in.
    pub epoll_sets: u32,
    /// The engine that it lives on, where it is offloaded: a program may have several.
    pub engine: Option<u8>,
    /// The time at which it was opened; the epoch if unknown.
    pub opened: SystemTime,
    /// The time of the last received or sent packet; the epoch if there was none.
    pub active: SystemTime,
}

impl Default for Entry<'_> {
    fn default() -> Self {
        Self {
            fd: -1,
            kind: Kind::Stream,
            state: State::Closed,
            place: Place::Undecided,
            why: Cow::Borrowed(""),
            local: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
            remote: None,
            rx_bytes: 0,
            rx_packets: 0,
            tx_bytes: 0,
            tx_packets: 0,
            receive_queue: 0,
            receive_limit: 0,
            send_queue: 0,
            drops: 0,
            retransmits: 0,
            receive_queue_max: 0,
            would_block: 0,
            twin_reads: 0,
            groups: Cow::Borrowed(&[]),
            groups_count: 0,
            epoll_sets: 0,
            engine: None,
            opened: SystemTime::UNIX_EPOCH,
            active: SystemTime::UNIX_EPOCH,
        }
    }
}

/// A group of a datagram socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its address.
    pub address: Ipv4Addr,
    /// Whether datagrams of its sources alone come, or those of all others.
    pub mode: FilterMode,
    /// Sources that it includes or excludes.
    pub sources: u16,
}

impl Group {
    fn to_word(self) -> u64 {
        let includes = u64::from(self.mode == FilterMode::Include);
        u64::from(u32::from(self.address)) | u64::from(self.sources) << 32 | includes << 48
    }

    fn of_word(word: u64) -> Self {
        let mode = if word >> 48 & 1 == 1 { FilterMode::Include } else { FilterMode::Exclude };
        Self { address: Ipv4Addr::from(word as u32), mode, sources: (word >> 32) as u16 }
    }
}

/// Enums with a name for each number: a number in the file never changes its meaning.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $byte:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$word_doc])* $word = $byte,)* }

        impl $name {
            /// The word in tables and JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$word => $text,)* }
            }

            fn from_byte(byte: u8) -> Option<Self> {
                match byte { $($byte => Some(Self::$word),)* _ => None }
            }
        }
    };
}

words! {
    /// The owner of a socket.
    Place {
        /// The program has not used the socket yet: it is the kernel's until it does.
        Undecided = 0 "undecided",
        /// Offloaded.
        Ours = 1 "wirepath",
        /// Left to the kernel.
        Kernel = 2 "kernel",
        /// Offloaded; the kernel's twin receives the traffic of other interfaces.
        Both = 3 "both",
        /// Refused by a rule.
        Refused = 4 "refused",
    }
}

words! {
    /// The state of a socket, in RFC 9293's words for streams.
    State {
        /// Neither bound nor connected, or closed.
        Closed = 0 "closed",
        /// Bound, no more.
        Bound = 1 "bound",
        /// A listener.
        Listen = 2 "listen",
        /// `connect` waits for the answer.
        SynSent = 3 "syn-sent",
        /// The handshake's last segment is missing.
        SynReceived = 4 "syn-received",
        /// Connected; a datagram socket with a peer, too.
        Established = 5 "established",
        /// Our FIN is not acknowledged yet.
        FinWait1 = 6 "fin-wait-1",
        /// Our FIN is acknowledged, and the peer still sends.
        FinWait2 = 7 "fin-wait-2",
        /// The peer has ended, we still send.
        CloseWait = 8 "close-wait",
        /// Both FINs crossed.
        Closing = 9 "closing",
        /// Ours is the last FIN, not acknowledged yet.
        LastAck = 10 "last-ack",
        /// Waits for segments that are late.
        TimeWait = 11 "time-wait",
    }
}

/// The listing of this process. Dropping this removes the file, except in a child of fork(2).
pub struct Listing {
    records: Records,
}

impl Listing {
    /// A listing in the directory of all shared files: `WIREPATH_SHM`, or `/dev/shm/wirepath`.
    /// `name` is the program's name; characters that a file name cannot contain are replaced.
    ///
    /// # Errors
    /// The file or its directory cannot be made.
    pub fn create(name: &str) -> io::Result<Self> {
        Self::create_in(&default_directory(), name, SOCKETS_MAX)
    }

    /// As [`Self::create`], in a directory of the caller's choice, with room for `sockets_max`
    /// sockets, 65,535 at most.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_in(directory: &Path, name: &str, sockets_max: usize) -> io::Result<Self> {
        let capacity = sockets_max.clamp(1, (1 << 16) - 1) + 1;
        let records = Records::create(directory, &file_name(name), RECORD_WORDS, capacity).map_err(io::Error::other)?;
        let mut listing = Self { records };
        listing.header(&Header { program: name.into(), ..Header::default() });
        Ok(listing)
    }

    /// Sockets that there is room for: slots are `0..capacity()`.
    pub fn capacity(&self) -> usize {
        self.records.capacity() - 1
    }

    /// The shared file.
    pub fn path(&self) -> &Path {
        self.records.path()
    }

    /// Writes the present state of the program and its engine.
    pub fn header(&mut self, header: &Header<'_>) {
        let mut words = Words::new();
        words.put(IN_USE);
        words.put_text(&header.program, PROGRAM_MAX);
        words.put_text(&header.interface, INTERFACE_MAX);
        for value in [header.turns, header.sleeps, header.wakeups, header.unlisted] {
            words.put(value);
        }
        for (_, value) in header.system_calls.by_cause() {
            words.put(value);
        }
        words.put(header.dropped);
        for queue in header.lent.iter().take(LATER_WORDS - words.count) {
            words.put(u64::from(queue.send) | u64::from(queue.receive) << 32);
        }
        words.count = LATER_WORDS;
        for value in [header.turns_with_packets, header.keeper_turns, header.contended] {
            words.put(value);
        }
        self.records.store(HEADER, words.written());
    }

    /// Writes the present state of the socket in this slot. A socket for which there is no room is
    /// not listed: count it in [`Header::unlisted`].
    pub fn set(&mut self, slot: usize, entry: &Entry<'_>) {
        if slot >= self.capacity() {
            return;
        }
        let bytes = [IN_USE as u8, entry.kind as u8, entry.state as u8, entry.place as u8];
        let mut words = Words::new();
        words.put(u64::from(u32::from_le_bytes(bytes)) | u64::from(entry.fd as u32) << 32);
        // 0 is no engine: older programs have nothing there.
        let engine = entry.engine.map_or(0, |engine| u64::from(engine) + 1);
        let is_v6 = [Some(entry.local), entry.remote].map(|end| u64::from(end.is_some_and(|end| end.is_ipv6())));
        let [local_v6, remote_v6] = is_v6;
        let second = u64::from(entry.epoll_sets) | u64::from(entry.remote.is_some()) << 32 | engine << 40;
        words.put(second | local_v6 << LOCAL_V6 | remote_v6 << REMOTE_V6);
        words.put(address(entry.local));
        words.put(entry.remote.map_or(0, address));
        let Entry { rx_bytes, rx_packets, tx_bytes, tx_packets, receive_queue, receive_limit, .. } = *entry;
        let Entry { send_queue, drops, retransmits, .. } = *entry;
        for value in [rx_bytes, rx_packets, tx_bytes, tx_packets, receive_queue, receive_limit] {
            words.put(value);
        }
        for value in [send_queue, drops, retransmits, since_epoch(entry.opened), since_epoch(entry.active)] {
            words.put(value);
        }
        words.put_text(&entry.why, WHY_MAX);
        for value in [entry.receive_queue_max, entry.would_block, entry.twin_reads] {
            words.put(value);
        }
        words.put(u64::from(entry.groups_count));
        entry.groups.iter().take(GROUPS_MAX).for_each(|group| words.put(group.to_word()));
        words.count = LATER_WORDS;
        for end in [Some(entry.local), entry.remote] {
            v6_words(end).into_iter().for_each(|word| words.put(word));
        }
        self.records.store(1 + slot, words.written());
    }

    /// Removes the socket of this slot.
    pub fn clear(&mut self, slot: usize) {
        if slot < self.capacity() {
            self.records.store(1 + slot, &[]);
        }
    }
}

/// The sockets of one process, at the time of the read.
#[derive(Clone, Debug)]
pub struct Process {
    /// The pid, by its own claim: in its own pid namespace.
    pub pid: u32,
    /// The owner of the file, if that is neither root nor the reader: everything else in here is
    /// that user's claim.
    pub user: Option<u32>,
    /// Whether the process may be genuine: root's, the reader's, or run by the file's owner.
    pub is_credible: bool,
    /// When it made its listing.
    pub started: SystemTime,
    /// The program and its engine.
    pub header: Header<'static>,
    /// Its sockets, by their slots.
    pub sockets: Vec<Entry<'static>>,
}

/// The sockets of all processes.
#[derive(Debug, Default)]
pub struct Processes {
    /// The running processes, ordered by the names of their files.
    pub running: Vec<Process>,
    /// Files of processes that are gone: `Snapshot::clean` removes them.
    pub stale: Vec<PathBuf>,
    /// Files that cannot be read.
    pub unreadable: Vec<ReadError>,
}

impl Processes {
    /// Reads the listings in `directory`.
    ///
    /// # Errors
    /// The directory cannot be listed. A missing directory counts as empty.
    pub fn list(directory: &Path) -> Result<Self, ReadError> {
        let RecordedProcesses { running, stale, unreadable } = RecordedProcesses::list(directory)?;
        Ok(Self { running: running.into_iter().map(process).collect(), stale, unreadable })
    }
}

/// A record that is not in our format, because its writer is not ours, is left out.
fn process(recorded: RecordedProcess) -> Process {
    let is_credible = recorded.is_credible();
    let RecordedProcess { app, pid, user, started, records } = recorded;
    let mut process = Process { pid, user, is_credible, started, header: Header::default(), sockets: Vec::new() };
    for (idx, words) in &records {
        match *idx {
            HEADER => process.header = read_header(words).unwrap_or_default(),
            _ => process.sockets.extend(read_entry(words)),
        }
    }
    if process.header.program.is_empty() {
        process.header.program = app.into();
    }
    process
}

fn read_header(words: &[u64]) -> Option<Header<'static>> {
    let (mut words, mut later) = read(words);
    (words.take()? == IN_USE).then_some(())?;
    Some(Header {
        program: words.take_text(PROGRAM_MAX)?,
        interface: words.take_text(INTERFACE_MAX)?,
        turns: words.take()?,
        turns_with_packets: later.take().unwrap_or(0),
        keeper_turns: later.take().unwrap_or(0),
        contended: later.take().unwrap_or(0),
        sleeps: words.take()?,
        wakeups: words.take()?,
        unlisted: words.take()?,
        system_calls: SystemCalls {
            device: words.take()?,
            sleep: words.take()?,
            wake: words.take()?,
            twin: words.take()?,
            port: words.take()?,
        },
        // Older programs have nothing there.
        dropped: words.take().unwrap_or(0),
        lent: core::iter::from_fn(|| words.take().filter(|word| *word != 0))
            .map(|word| LentQueue { send: word as u32, receive: (word >> 32) as u32 })
            .collect(),
    })
}

fn read_entry(words: &[u64]) -> Option<Entry<'static>> {
    let (mut words, mut later) = read(words);
    let first = words.take()?;
    let [in_use, kind, state, place, ..] = first.to_le_bytes();
    (u64::from(in_use) == IN_USE).then_some(())?;
    let second = words.take()?;
    let local = socket_address(words.take()?, second >> LOCAL_V6 & 1 == 1, &mut later);
    let remote = socket_address(words.take()?, second >> REMOTE_V6 & 1 == 1, &mut later);
    Some(Entry {
        fd: (first >> 32) as i32,
        kind: [Kind::Stream, Kind::Datagram].into_iter().find(|known| *known as u8 == kind)?,
        state: State::from_byte(state)?,
        place: Place::from_byte(place)?,
        epoll_sets: second as u32,
        engine: u8::try_from(second >> 40 & 0xffff).ok().and_then(|engine| engine.checked_sub(1)),
        local,
        remote: (second >> 32 & 0xff == 1).then_some(remote),
        rx_bytes: words.take()?,
        rx_packets: words.take()?,
        tx_bytes: words.take()?,
        tx_packets: words.take()?,
        receive_queue: words.take()?,
        receive_limit: words.take()?,
        send_queue: words.take()?,
        drops: words.take()?,
        retransmits: words.take()?,
        opened: from_epoch(words.take()?),
        active: from_epoch(words.take()?),
        why: words.take_text(WHY_MAX)?,
        // Older programs have nothing there.
        receive_queue_max: words.take().unwrap_or(0),
        would_block: words.take().unwrap_or(0),
        twin_reads: words.take().unwrap_or(0),
        groups_count: words.take().map_or(0, |count| count as u32),
        groups: words.take_groups(),
    })
}

/// The consecutive words of a record.
struct Words {
    words: [u64; RECORD_WORDS],
    count: usize,
}

impl Words {
    fn new() -> Self {
        Self { words: [0; RECORD_WORDS], count: 0 }
    }

    fn put(&mut self, word: u64) {
        self.words[self.count] = word;
        self.count += 1;
    }

    /// The length, and room for the longest text, so that later fields have a fixed place.
    fn put_text(&mut self, text: &str, len_max: usize) {
        let text = &text[..text.floor_char_boundary(len_max)];
        self.put(text.len() as u64);
        let end = self.count + len_max / 8;
        for (word, bytes) in self.words[self.count..end].iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        self.count = end;
    }

    fn written(&self) -> &[u64] {
        &self.words[..self.count]
    }
}

/// A record that is parsed: its words, and those that older programs do not have.
fn read(words: &[u64]) -> (Read<'_>, Read<'_>) {
    let (words, later) = words.split_at_checked(LATER_WORDS).unwrap_or((words, &[]));
    (Read(words), Read(later))
}

/// The rest of a record that is being parsed.
struct Read<'a>(&'a [u64]);

impl Read<'_> {
    fn take(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The groups that are there: the words of no group are 0.
    fn take_groups(&mut self) -> Cow<'static, [Group]> {
        core::iter::from_fn(|| self.take()).take(GROUPS_MAX).filter(|word| *word != 0).map(Group::of_word).collect()
    }

    /// A text that a terminal shows as it is.
    fn take_text(&mut self, len_max: usize) -> Option<Cow<'static, str>> {
        let len = usize::try_from(self.take()?).ok().filter(|len| *len <= len_max)?;
        let (words, rest) = self.0.split_at_checked(len_max / 8)?;
        self.0 = rest;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.truncate(len);
        let text = String::from_utf8(bytes).ok()?;
        (!text.contains(char::is_control)).then_some(Cow::Owned(text))
    }
}

/// Bits of an entry's second word: its addresses are of IPv6.
const LOCAL_V6: u32 = 56;
const REMOTE_V6: u32 = 57;

/// The port, and an IPv4 address.
fn address(address: SocketAddr) -> u64 {
    let ip = match address {
        SocketAddr::V4(address) => u32::from(*address.ip()),
        SocketAddr::V6(_) => 0,
    };
    u64::from(ip) << 16 | u64::from(address.port())
}

/// An IPv6 address; zeros where it is none.
fn v6_words(end: Option<SocketAddr>) -> [u64; 2] {
    match end {
        Some(SocketAddr::V6(end)) => [(u128::from(*end.ip()) >> 64) as u64, u128::from(*end.ip()) as u64],
        Some(SocketAddr::V4(_)) | None => [0; 2],
    }
}

fn socket_address(word: u64, is_v6: bool, later: &mut Read<'_>) -> SocketAddr {
    let v6 = [later.take(), later.take()].map(|word| u128::from(word.unwrap_or(0)));
    match is_v6 {
        true => SocketAddr::from((Ipv6Addr::from(v6[0] << 64 | v6[1]), word as u16)),
        false => SocketAddr::from((Ipv4Addr::from((word >> 16) as u32), word as u16)),
    }
}

fn since_epoch(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn from_epoch(ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(core::time::Duration::from_nanos(ns)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The name of a program's files in shared memory: a program may be called anything, and the name
/// of a file is 64 bytes of printable ASCII without a dot in front.
pub fn file_name(program: &str) -> String {
    let fits = |letter: char| letter.is_ascii_graphic() && letter != '/';
    let name: String =
        program.chars().take(PROGRAM_MAX).map(|letter| if fits(letter) { letter } else { '_' }).collect();
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if name.is_empty() => "program".to_owned(),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(number: u64) -> Entry<'static> {
        Entry {
            fd: 7,
            kind: Kind::Datagram,
            state: State::Established,
            place: Place::Both,
            why: "rule 3 of trading.toml".into(),
            local: "192.0.2.1:5000".parse().unwrap(),
            remote: Some("255.255.255.255:65535".parse().unwrap()),
            rx_bytes: number,
            rx_packets: number + 1,
            tx_bytes: number + 2,
            tx_packets: number + 3,
            receive_queue: number + 4,
            receive_limit: number + 5,
            send_queue: number + 6,
            drops: number + 7,
            retransmits: number + 8,
            receive_queue_max: number + 11,
            would_block: number + 12,
            twin_reads: number + 13,
            groups: groups(GROUPS_MAX).into(),
            groups_count: 21,
            epoll_sets: u32::MAX,
            engine: Some(14),
            opened: SystemTime::UNIX_EPOCH + Duration::from_nanos(number + 9),
            active: SystemTime::UNIX_EPOCH + Duration::from_nanos(number + 10),
        }
    }

    fn groups(count: usize) -> Vec<Group> {
        let modes = [FilterMode::Include, FilterMode::Exclude].into_iter().cycle();
        let group = |(idx, mode)| Group { address: Ipv4Addr::new(239, 1, 1, idx), mode, sources: u16::MAX };
        (0..).zip(modes).map(group).take(count).collect()
    }

    fn only(directory: &Path) -> Process {
        let mut processes = Processes::list(directory).unwrap();
        assert_eq!((processes.running.len(), processes.unreadable.len()), (1, 0));
        processes.running.remove(0)
    }

    #[test]
    fn what_was_set_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut listing = Listing::create_in(directory.path(), "engine", 4).unwrap();
        let header = Header {
            program: "engine".into(),
            interface: "enp129s0f0np0ab".into(),
            turns: 1,
            turns_with_packets: 15,
            keeper_turns: 16,
            contended: u64::MAX,
            sleeps: 2,
            wakeups: 3,
            system_calls: SystemCalls { device: 4, sleep: 5, wake: 6, twin: 7, port: 8 },
            unlisted: 9,
            dropped: 10,
            lent: vec![LentQueue { send: 11, receive: u32::MAX }, LentQueue { send: 13, receive: 14 }],
        };
        listing.header(&header);
        listing.set(3, &Entry { groups: groups(GROUPS_MAX + 1).into(), ..entry(1 << 60) });
        listing.set(0, &Entry::default());
        listing.set(1, &entry(0));
        listing.clear(1);
        let [local, remote] = ["[::]:80", "[2001:db8::1]:65535"].map(|end| end.parse().unwrap());
        let of_v6 = Entry { local, remote: Some(remote), ..Entry::default() };
        listing.set(2, &of_v6);
        // Beyond the capacity: no effect.
        listing.set(4, &entry(0));
        listing.clear(4);
        let process = only(directory.path());
        assert_eq!(process.header, header);
        assert_eq!(process.sockets, [Entry::default(), of_v6, entry(1 << 60)]);
        assert_eq!((process.pid, process.user, process.is_credible), (std::process::id(), None, true));
        drop(listing);
        assert!(Processes::list(directory.path()).unwrap().running.is_empty());
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let directory = tempfile::tempdir().unwrap();
        let mut listing = Listing::create_in(directory.path(), "x", 1).unwrap();
        listing.set(0, &Entry { why: "ä".repeat(40).into(), ..entry(5) });
        listing.header(&Header { interface: "a".repeat(20).into(), ..Header::default() });
        let process = only(directory.path());
        assert_eq!(process.sockets, [Entry { why: "ä".repeat(32).into(), ..entry(5) }]);
        assert_eq!(process.header.interface, "a".repeat(16));
        // Without a program's name, the file's.
        assert_eq!(process.header.program, "x");
    }

    #[test]
    fn program_of_any_name_has_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let long = "n".repeat(100);
        for name in ["", ".hidden", "a b/c\n", "Käse", "..", "(sd-pam)", &long] {
            let listing = Listing::create_in(directory.path(), name, 1).unwrap();
            assert_eq!(listing.path().parent(), Some(directory.path()), "{name:?}");
            assert_eq!(Processes::list(directory.path()).unwrap().running.len(), 1, "{name:?}");
        }
    }

    #[test]
    fn record_that_lies_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let mut records = Records::create(directory.path(), "liar", RECORD_WORDS, 8).unwrap();
        let mut words = Words::new();
        words.put(IN_USE);
        words.put_text("\x1b[2J", PROGRAM_MAX);
        records.store(HEADER, words.written());
        for (slot, first) in [0x0101, 0x01 | 9 << 8, 0x01 | 99 << 16, 0x01 | 99 << 24, 2].into_iter().enumerate() {
            // Words whose text lengths are at the maximum.
            let mut words = [u64::MAX; RECORD_WORDS];
            words[0] = first;
            records.store(1 + slot, &words);
        }
        let process = only(directory.path());
        assert_eq!((process.header, process.sockets), (Header { program: "liar".into(), ..Header::default() }, vec![]));
    }
}
