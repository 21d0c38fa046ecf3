//! Open files: the sockets and epoll sets that descriptors of the program name. Each engine has
//! those of its sockets, and the sets have a table of their own. Each descriptor is a real one of
//! the kernel (its twin), so that `fstat`, `/proc` and programs beside us work as usual, and so
//! that the kernel gives out each descriptor and each port once.

use core::ffi::c_int;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use sockets::{Errno, Kind, SocketId, UnreadDatagram};

use crate::address::Family;
use crate::engine::options::Options;
use crate::engine::sets::Set;
use crate::engine::table::{self, FileId, Served};
use crate::sys::SharedFlag;
use crate::{config, sys};

/// The open files of an engine, or the epoll sets of the process.
pub(crate) struct OpenFiles {
    /// What the files' numbers begin with.
    room: usize,
    /// Entry 0 stays empty, because 0 means no file.
    files: Vec<Option<File>>,
    /// Places of files that were closed, the longest ago first.
    free: VecDeque<u32>,
}

/// An open file, which one or several descriptors name.
pub(crate) struct File {
    /// Its descriptors. The first is the twin, for calls to the kernel.
    pub(crate) fds: Vec<c_int>,
    /// `O_NONBLOCK`, which all descriptors of the file share.
    pub(crate) is_nonblocking: bool,
    pub(crate) what: FileKind,
}

pub(crate) enum FileKind {
    Socket(Socket),
    Set(Set),
}

/// A socket of the program.
pub(crate) struct Socket {
    pub(crate) kind: Kind,
    pub(crate) family: Family,
    pub(crate) place: Owner,
    /// Options that the program has set so far; the offloaded socket gets them.
    pub(crate) options: Options,
    /// The kernel's epoll sets that the twin entered before the owner was decided.
    pub(crate) watches: Vec<Watch>,
    /// Duplicates that stand in these sets for descriptors that the program has closed.
    pub(crate) stand_ins: Vec<c_int>,
    /// The backlog of a listener that no thread has waited on yet: a process that forks now leaves
    /// the listener to its children.
    pub(crate) backlog: Option<c_int>,
    /// A datagram socket that this process, or the one that it was forked from, has given up before
    /// a `fork`: the first process that uses it offloads it again.
    pub(crate) is_left: bool,
    /// The datagrams that it had then: each process has a copy, and the first that uses it has
    /// them.
    pub(crate) unread: Option<Unread>,
    /// `listen` was called.
    pub(crate) is_listener: bool,
    /// The program was started with it.
    pub(crate) is_inherited: bool,
    /// The listeners of other engines for this one.
    pub(crate) replicas: Vec<Replica>,
    /// Groups.
    pub(crate) groups: Groups,
    /// Receives that found nothing and did not wait, and those that the twin had the bytes for.
    pub(crate) would_block: u64,
    pub(crate) twin_reads: u64,
    /// A rule gives the kernel's side of it equal rights.
    pub(crate) is_both: bool,
    /// `O_ASYNC`: the kernel is to send a signal when it is ready.
    pub(crate) wants_sigio: bool,
    /// `IPV6_RECVPKTINFO`, which datagrams of IPv4 peers have a message of as well.
    pub(crate) receives_info6: bool,
    /// A send had `MSG_MORE`, or `UDP_CORK` was set, once: several calls may make one datagram.
    pub(crate) may_append: bool,
    /// One is under way that the kernel has begun.
    pub(crate) twin_has_begun: bool,
    /// `UDP_CORK` is set.
    pub(crate) is_corked: bool,
    /// `SIOCGSTAMP`.
    pub(crate) stamp: Stamp,
    /// `bind` has named a port, which the socket keeps when its connection ends.
    pub(crate) has_named_port: bool,
    /// The directions that `shutdown` has closed before the owner was decided.
    pub(crate) shut: ShutdownMask,
    /// A rule has refused it.
    pub(crate) is_refused: bool,
    /// The reason for the owner, for the listing.
    pub(crate) why: &'static str,
    pub(crate) opened: SystemTime,
}

/// The datagrams of a socket that was given up before a `fork`.
pub(crate) struct Unread {
    datagrams: Vec<UnreadDatagram>,
    since: Instant,
    /// A process has them.
    is_taken: SharedFlag,
}

impl Unread {
    pub(crate) fn new(datagrams: Vec<UnreadDatagram>, is_taken: SharedFlag) -> Self {
        Self { datagrams, since: Instant::now(), is_taken }
    }

    /// How many there are; 0 if another process has them.
    pub(crate) fn count(&self) -> usize {
        if self.is_taken.is_set() { 0 } else { self.datagrams.len() }
    }

    /// The datagrams, and the time since they were taken out of their socket; `None`: another
    /// process has them.
    pub(crate) fn take(self) -> Option<(Vec<UnreadDatagram>, Duration)> {
        let ago = self.since.elapsed();
        self.is_taken.set_first().then_some((self.datagrams, ago))
    }
}

/// Directions of a socket that are closed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShutdownMask {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// When the datagram arrived that was received last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// The program has not asked for it.
    Off,
    /// There was none.
    Nothing,
    /// Nanoseconds since 1970.
    Of(u64),
    /// The twin has received it.
    Twins,
}

/// The owner of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Not decided yet: all calls go to the twin.
    Undecided,
    /// The kernel's for good: no call of ours looks at it any more.
    Kernel,
    /// Ours in the parent of this process, which was forked from it. Calls go to the twin.
    Parent,
    /// Ours.
    Ours {
        id: SocketId,
        /// The twin receives the frames that reach the host by another interface.
        hears_twin: bool,
    },
}

/// The multicast options of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    /// `IP_MULTICAST_IF`: the interface's index, or its address.
    pub(crate) sends_by: (u32, Ipv4Addr),
    /// `IP_MULTICAST_LOOP`.
    pub(crate) loops: bool,
    /// The twin's `IP_MULTICAST_TTL` is 0, for datagrams that stay on this host.
    pub(crate) stays_on_host: bool,
    /// The group that the socket is connected to.
    pub(crate) peer: Option<SocketAddrV4>,
    /// A datagram of several calls has begun: whether its parts go to members on this host too.
    pub(crate) is_part_copied: Option<bool>,
}

impl Default for Groups {
    fn default() -> Self {
        let sends_by = (0, Ipv4Addr::UNSPECIFIED);
        Self { sends_by, loops: true, stays_on_host: false, peer: None, is_part_copied: None }
    }
}

/// A socket of an engine that stands for a file of another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    pub(crate) engine: usize,
    pub(crate) id: SocketId,
}

/// A twin in a set of the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    pub(crate) set: FileId,
    pub(crate) fd: c_int,
    pub(crate) event: libc::epoll_event,
    /// A one-shot item that the kernel has reported: off until `EPOLL_CTL_MOD`. Known once it was
    /// [looked for](crate::calls::epoll_twins::find_reported).
    pub(crate) is_off: bool,
    /// An edge-triggered item that the kernel has reported. Known then as well. Of a descriptor
    /// that was closed the kernel's set has none, until the owner is known.
    pub(crate) is_reported: bool,
}

/// So many files are closed before the place of one is another file's: a thread that waits for a
/// lock meanwhile names a file that is gone, and not the one whose descriptor has the same number.
const STALE_MAX: usize = 64;

/// A file has had more than one descriptor. It stays true.
static HAS_DUPLICATES: AtomicBool = AtomicBool::new(false);

/// How many sockets are [left](Socket::is_left), and how many engines by their broker.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Whether there are any.
#[inline]
pub(crate) fn is_any_left() -> bool {
    LEFT.load(Ordering::Relaxed) > 0
}

/// An engine's broker has ended: calls look for another one.
pub(crate) fn begin_to_await_broker() {
    LEFT.fetch_add(1, Ordering::Relaxed);
}

/// The engine has another one, or is closed.
pub(crate) fn end_to_await_broker() {
    LEFT.fetch_sub(1, Ordering::Relaxed);
}

/// Whether a file may have several descriptors.
pub(crate) fn has_duplicates() -> bool {
    HAS_DUPLICATES.load(Ordering::Relaxed)
}

impl OpenFiles {
    pub(crate) const fn new(room: usize) -> Self {
        Self { room, files: Vec::new(), free: VecDeque::new() }
    }

    /// A new file with its first descriptor.
    pub(crate) fn open(&mut self, fd: c_int, is_nonblocking: bool, what: FileKind) -> FileId {
        if self.files.is_empty() {
            self.files.push(None);
        }
        let file = File { fds: vec![fd], is_nonblocking, what };
        let place = if self.free.len() > STALE_MAX { self.free.pop_front() } else { None };
        let idx = match place {
            Some(idx) => {
                self.files[idx as usize] = Some(file);
                idx
            }
            None => {
                self.files.push(Some(file));
                self.files.len() as u32 - 1
            }
        };
        let id = FileId::of(self.room, idx);
        self.mark(id);
        id
    }

    /// Updates the entries of the file's descriptors in the table.
    pub(crate) fn mark(&mut self, id: FileId) {
        if let Some(file) = self.get(id) {
            let served = file.what.served();
            file.fds.iter().for_each(|fd| table::set(*fd, id, served));
        }
    }

    /// Adds a descriptor (`dup`).
    pub(crate) fn dup(&mut self, id: FileId, fd: c_int) {
        HAS_DUPLICATES.store(true, Ordering::Relaxed);
        if let Some(file) = self.get(id) {
            file.fds.push(fd);
        }
        self.mark(id);
    }

    /// Removes a descriptor; returns the file if it was the last one.
    pub(crate) fn close(&mut self, id: FileId, fd: c_int) -> Option<File> {
        // Where two threads close it, the second one may find the next file of this number there.
        if table::find(fd) == Some(id) {
            table::clear(fd);
        }
        let file = self.get(id)?;
        file.fds.retain(|other| *other != fd);
        if let FileKind::Socket(socket) = &mut file.what {
            socket.watches.retain(|watch| watch.fd != fd);
        }
        if !file.fds.is_empty() {
            return None;
        }
        self.forget(id)
    }

    /// Leaves a socket to the kernel from now on. It stays listed.
    pub(crate) fn keep(&mut self, id: FileId) {
        if let Ok(socket) = self.socket(id) {
            socket.place = Owner::Kernel;
            (socket.options, socket.backlog) = (Options::default(), None);
            socket.set_left(false);
        }
        self.mark(id);
    }

    pub(crate) fn get(&mut self, id: FileId) -> Option<&mut File> {
        if id.room() == self.room { self.files.get_mut(id.place())?.as_mut() } else { None }
    }

    /// The socket of a file.
    pub(crate) fn socket(&mut self, id: FileId) -> Result<&mut Socket, Errno> {
        match self.get(id) {
            Some(File { what: FileKind::Socket(socket), .. }) => Ok(socket),
            Some(_) => Err(Errno::ENOTSOCK),
            None if id.is_set() => Err(Errno::ENOTSOCK),
            None => Err(Errno::EBADF),
        }
    }

    /// All that is open, with the number of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &File)> {
        self.files.iter().enumerate().filter_map(|(idx, file)| Some((idx, file.as_ref()?)))
    }

    /// All offloaded connections.
    pub(crate) fn streams(&self) -> Vec<SocketId> {
        let streams = self.files.iter().flatten().filter_map(|file| match &file.what {
            FileKind::Socket(socket) if socket.kind == Kind::Stream && !socket.is_listener => socket.ours(),
            FileKind::Socket(_) | FileKind::Set(_) => None,
        });
        streams.collect()
    }

    /// Whether any socket is offloaded but for listeners that no thread has waited on.
    pub(crate) fn has_sockets_in_use(&self) -> bool {
        let is_in_use = |file: &File| match &file.what {
            FileKind::Socket(socket) => socket.ours().is_some() && !socket.is_idle(),
            FileKind::Set(_) => false,
        };
        self.files.iter().flatten().any(is_in_use)
    }

    /// In a child of `fork`: offloaded sockets are its parent's. The descriptors of the library's
    /// own are closed next.
    pub(crate) fn leave_to_parent(&mut self) {
        let mut left = Vec::new();
        for (idx, file) in self.files.iter_mut().enumerate() {
            let Some(File { what: FileKind::Socket(socket), .. }) = file else { continue };
            socket.stand_ins.clear();
            if socket.ours().is_some() {
                (socket.place, socket.why, socket.backlog) = (Owner::Parent, PARENT, None);
                (socket.watches, socket.replicas) = (Vec::new(), Vec::new());
                left.push(FileId::of(self.room, idx as u32));
            }
        }
        left.into_iter().for_each(|file| self.mark(file));
    }

    /// The listeners that no thread has waited on, whoever has them now, and the datagram sockets
    /// that are left: a server leaves them to its children.
    pub(crate) fn idle(&self) -> Vec<FileId> {
        let is_idle = |file: &File| matches!(&file.what, FileKind::Socket(socket) if socket.is_idle());
        let files = self.files.iter().enumerate().filter(|(_, file)| file.as_ref().is_some_and(is_idle));
        files.map(|(idx, _)| FileId::of(self.room, idx as u32)).collect()
    }

    /// Forgets that sockets were in an epoll set: its number may be given to another one soon.
    pub(crate) fn forget_watches(&mut self, set: FileId) {
        for file in self.files.iter_mut().flatten() {
            if let FileKind::Socket(socket) = &mut file.what {
                socket.watches.retain(|watch| watch.set != set);
            }
        }
    }

    /// All epoll sets.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (FileId, &Set)> {
        self.files.iter().enumerate().filter_map(|(idx, file)| match file.as_ref().map(|file| &file.what) {
            Some(FileKind::Set(set)) => Some((FileId::of(self.room, idx as u32), set)),
            Some(FileKind::Socket(_)) | None => None,
        })
    }

    /// The same, to be changed.
    pub(crate) fn sets_mut(&mut self) -> impl Iterator<Item = &mut Set> {
        self.files.iter_mut().flatten().filter_map(|file| match &mut file.what {
            FileKind::Set(set) => Some(set),
            FileKind::Socket(_) => None,
        })
    }

    /// The epoll set of a file.
    pub(crate) fn set(&mut self, id: FileId) -> Result<&mut Set, Errno> {
        match self.get(id) {
            Some(File { what: FileKind::Set(set), .. }) => Ok(set),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::EBADF),
        }
    }

    /// The descriptor for calls to the kernel.
    pub(crate) fn twin(&mut self, id: FileId) -> Result<c_int, Errno> {
        let error = if id.room() == self.room || !id.is_set() { Errno::EBADF } else { Errno::ENOTSOCK };
        self.get(id).and_then(|file| file.fds.first().copied()).ok_or(error)
    }

    pub(crate) fn is_nonblocking(&mut self, id: FileId) -> bool {
        self.get(id).is_some_and(|file| file.is_nonblocking)
    }

    fn forget(&mut self, id: FileId) -> Option<File> {
        let mut file = self.files.get_mut(id.place())?.take()?;
        if let FileKind::Socket(socket) = &mut file.what {
            socket.set_left(false);
        }
        self.free.push_back(id.place() as u32);
        Some(file)
    }
}

impl FileKind {
    /// Who serves calls on this file. The engine serves a set, because offloaded sockets may be
    /// added, and a listener or a datagram socket, that the next call offloads.
    fn served(&self) -> Served {
        match self {
            Self::Socket(Socket { place: Owner::Kernel, .. }) => Served::Kernel,
            Self::Socket(Socket { place: Owner::Parent, .. }) => Served::Parent,
            Self::Socket(socket) if socket.ours().is_none() && !socket.is_idle() => Served::Undecided,
            Self::Socket(_) | Self::Set(_) => Served::Ours,
        }
    }
}

impl Socket {
    pub(crate) fn new(kind: Kind, family: Family) -> Self {
        let (opened, groups) = (SystemTime::now(), Groups::default());
        let (options, watches, why) = (Options::default(), Vec::new(), UNDECIDED);
        Self {
            kind,
            family,
            place: Owner::Undecided,
            options,
            watches,
            stand_ins: Vec::new(),
            backlog: None,
            is_left: false,
            unread: None,
            is_listener: false,
            is_inherited: false,
            replicas: Vec::new(),
            groups,
            would_block: 0,
            twin_reads: 0,
            is_both: false,
            wants_sigio: false,
            receives_info6: false,
            may_append: false,
            twin_has_begun: false,
            is_corked: false,
            stamp: Stamp::Off,
            has_named_port: false,
            shut: ShutdownMask::default(),
            is_refused: false,
            why,
            opened,
        }
    }

    /// Why options that were set earlier keep the socket with the kernel, if they do: IPv6 only,
    /// signals, another interface, or an option that the engine cannot apply.
    pub(crate) fn stays_the_kernels(&self, twin: c_int) -> Option<&'static str> {
        let is_v6_only =
            self.family == Family::Inet6 && sys::getsockopt_int(twin, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Ok(1);
        if is_v6_only {
            return Some("IPv6 alone (IPV6_V6ONLY)");
        }
        if self.wants_sigio {
            return Some("signals of its readiness (O_ASYNC)");
        }
        self.options.keep_on_kernel(self.kind, config::interface())
    }

    /// Whether it is to be offloaded, or was for no other purpose, when a thread first uses it.
    pub(crate) fn is_idle(&self) -> bool {
        self.backlog.is_some() || self.is_left
    }

    pub(crate) fn set_left(&mut self, is_left: bool) {
        match (core::mem::replace(&mut self.is_left, is_left), is_left) {
            (false, true) => _ = LEFT.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = LEFT.fetch_sub(1, Ordering::Relaxed),
            _ => (),
        }
    }

    /// Notes an option that the twin has taken and that calls of ours read.
    pub(crate) fn note(&mut self, level: c_int, name: c_int, value: &[u8]) {
        if (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) {
            self.receives_info6 = value.iter().take(4).any(|byte| *byte != 0);
        }
        if (level, name) == (libc::IPPROTO_UDP, libc::UDP_CORK) {
            self.note_cork(value.iter().take(4).any(|byte| *byte != 0));
        }
    }

    /// `UDP_CORK` was set, or what it kept has left.
    pub(crate) fn note_cork(&mut self, on: bool) {
        self.is_corked = on;
        self.may_append |= on;
        self.twin_has_begun &= on;
    }

    /// The kernel sends a datagram, or begins one of several calls.
    pub(crate) fn note_send_of_twin(&mut self, flags: c_int) {
        self.twin_has_begun = self.kind == Kind::Datagram && (self.is_corked || flags & libc::MSG_MORE != 0);
        self.may_append |= self.twin_has_begun;
    }

    /// The kernel has refused what was noted: nothing is left of a datagram to which something
    /// could not be appended (Linux `udp_sendmsg`).
    pub(crate) fn note_refusal_of_twin(&mut self) {
        self.twin_has_begun = false;
    }

    /// The offloaded socket, if it is one.
    pub(crate) fn ours(&self) -> Option<SocketId> {
        match self.place {
            Owner::Undecided | Owner::Kernel | Owner::Parent => None,
            Owner::Ours { id, .. } => Some(id),
        }
    }
}

/// The reason of a socket that has named no address yet.
pub(crate) const UNDECIDED: &str = "not used yet";

/// The reason of a socket in a child of `fork`.
const PARENT: &str = "offloaded in the process that this one was forked from";

/// The unbound address.
pub(crate) const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

#[cfg(test)]
mod tests {
    use super::*;

    fn open(files: &mut OpenFiles, fd: c_int) -> FileId {
        files.open(fd, false, FileKind::Socket(Socket::new(Kind::Datagram, Family::Inet)))
    }

    #[test]
    fn datagram_that_the_kernel_refuses_to_begin_is_not_under_way() {
        let mut socket = Socket::new(Kind::Datagram, Family::Inet);
        socket.note_send_of_twin(libc::MSG_MORE);
        assert!(socket.twin_has_begun && socket.may_append);
        socket.note_refusal_of_twin();
        assert!(!socket.twin_has_begun);
    }

    #[test]
    fn call_that_began_before_a_close_names_no_file_that_was_opened_since() {
        let mut files = OpenFiles::new(0);
        let before = open(&mut files, 700);
        assert!(files.close(before, 700).is_some());
        for _ in 0..STALE_MAX {
            let next = open(&mut files, 700);
            assert_ne!(next, before);
            // The other thread's close of the same number.
            assert!(files.close(before, 700).is_none());
            assert_eq!(table::find(700), Some(next));
            assert!(files.close(next, 700).is_some());
        }
        assert_eq!(open(&mut files, 700), before, "it does not grow for ever");
        table::clear(700);
    }
}
