//! Open files: what descriptors of the program stand for, where it may be ours. Each descriptor is
//! a real one of the kernel (its twin), so that `fstat`, `/proc` and a program that we do not see
//! find what they expect, and so that the kernel hands out each number once and each port once.

use core::ffi::c_int;
use core::net::SocketAddrV4;
use std::time::SystemTime;

use sockets::{Errno, Kind, SocketId};

use crate::address::Family;
use crate::engine::options::Options;
use crate::engine::table::{self, FileId};
use crate::sys;

/// All of the process.
pub(crate) struct OpenFiles {
    /// The first stays empty: 0 is no file.
    files: Vec<Option<File>>,
    free: Vec<u32>,
}

/// An open file, which one descriptor or several name.
pub(crate) struct File {
    /// Its descriptors. The first is the twin that calls to the kernel go by.
    pub(crate) fds: Vec<c_int>,
    /// `O_NONBLOCK`, which descriptors share.
    pub(crate) is_nonblocking: bool,
    pub(crate) what: What,
}

pub(crate) enum What {
    Socket(Socket),
    Set(Set),
}

/// A socket of the program.
pub(crate) struct Socket {
    pub(crate) kind: Kind,
    pub(crate) family: Family,
    pub(crate) place: Owner,
    /// What the program has set so far: ours gets it when there is one.
    pub(crate) options: Options,
    /// Sets of the kernel that the twin is in, as nobody knew yet whose it would be.
    pub(crate) watches: Vec<Watch>,
    /// The backlog of a listener that nobody has waited on so far: a process that forks now leaves
    /// it to its children.
    pub(crate) backlog: Option<c_int>,
    /// `listen` was called.
    pub(crate) is_listener: bool,
    /// Why it is whose it is, for the listing.
    pub(crate) why: &'static str,
    pub(crate) opened: SystemTime,
}

/// Whose a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Not decided yet: all calls go to the twin.
    Twin,
    /// Ours.
    Ours {
        id: SocketId,
        /// What reaches the host another way than by our interface comes to the twin.
        hears_twin: bool,
    },
}

/// A twin in a set of the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    pub(crate) set: FileId,
    pub(crate) fd: c_int,
    pub(crate) event: libc::epoll_event,
}

/// An epoll set: ours beside the kernel's of the same descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Set {
    /// Its number in the engine; made when the first socket of ours comes in.
    pub(crate) ours: Option<usize>,
    /// The kernel's has members too.
    pub(crate) has_kernel: bool,
}

impl OpenFiles {
    pub(crate) const fn new() -> Self {
        Self { files: Vec::new(), free: Vec::new() }
    }

    /// A new file with its first descriptor.
    pub(crate) fn open(&mut self, fd: c_int, is_nonblocking: bool, what: What) -> FileId {
        if self.files.is_empty() {
            self.files.push(None);
        }
        let file = File { fds: vec![fd], is_nonblocking, what };
        let idx = match self.free.pop() {
            Some(idx) => {
                self.files[idx as usize] = Some(file);
                idx
            }
            None => {
                self.files.push(Some(file));
                self.files.len() as u32 - 1
            }
        };
        self.mark(FileId(idx));
        FileId(idx)
    }

    /// Has the table say of its descriptors what the file is.
    pub(crate) fn mark(&mut self, id: FileId) {
        if let Some(file) = self.get(id) {
            let is_ours = file.what.is_ours();
            file.fds.iter().for_each(|fd| table::set(*fd, id, is_ours));
        }
    }

    /// One descriptor more (`dup`).
    pub(crate) fn dup(&mut self, id: FileId, fd: c_int) {
        if let Some(file) = self.get(id) {
            file.fds.push(fd);
        }
        self.mark(id);
    }

    /// A descriptor is closed; returns the file with its last one.
    pub(crate) fn close(&mut self, id: FileId, fd: c_int) -> Option<File> {
        table::clear(fd);
        let file = self.get(id)?;
        file.fds.retain(|other| *other != fd);
        if let What::Socket(socket) = &mut file.what {
            socket.watches.retain(|watch| watch.fd != fd);
        }
        if !file.fds.is_empty() {
            return None;
        }
        self.forget(id)
    }

    /// The kernel's from now on, by all its descriptors.
    pub(crate) fn give_up(&mut self, id: FileId) {
        if let Some(file) = self.forget(id) {
            file.fds.iter().for_each(|fd| table::clear(*fd));
        }
    }

    pub(crate) fn get(&mut self, id: FileId) -> Option<&mut File> {
        self.files.get_mut(id.0 as usize)?.as_mut()
    }

    /// The socket that a file is.
    pub(crate) fn socket(&mut self, id: FileId) -> Result<&mut Socket, Errno> {
        match self.get(id) {
            Some(File { what: What::Socket(socket), .. }) => Ok(socket),
            Some(_) => Err(Errno::ENOTSOCK),
            None => Err(Errno::EBADF),
        }
    }

    /// All that is open, with the number of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &File)> {
        self.files.iter().enumerate().filter_map(|(idx, file)| Some((idx, file.as_ref()?)))
    }

    /// Sockets of ours that are streams and no listeners; their files are twins from now on.
    pub(crate) fn take_streams(&mut self) -> Vec<SocketId> {
        let mut taken = Vec::new();
        for file in self.files.iter_mut().flatten() {
            if let What::Socket(socket) = &mut file.what
                && socket.kind == Kind::Stream
                && !socket.is_listener
                && let Owner::Ours { id, .. } = core::mem::replace(&mut socket.place, Owner::Twin)
            {
                taken.push(id);
            }
        }
        taken
    }

    /// Listeners that nobody has waited on, where nothing else is ours: what a server has that
    /// leaves all else to its children. `None` where anything else is ours.
    pub(crate) fn idle_listeners(&self) -> Option<Vec<FileId>> {
        let mut found = Vec::new();
        for (idx, file) in self.files.iter().enumerate() {
            match file.as_ref().map(|file| &file.what) {
                Some(What::Socket(Socket { place: Owner::Ours { .. }, backlog: Some(_), .. })) => {
                    found.push(FileId(idx as u32));
                }
                Some(What::Socket(Socket { place: Owner::Ours { .. }, .. })) => return None,
                _ => (),
            }
        }
        Some(found)
    }

    /// The engine that had our sides of the epoll sets is gone.
    pub(crate) fn forget_sets(&mut self) {
        for file in self.files.iter_mut().flatten() {
            if let What::Set(set) = &mut file.what {
                set.ours = None;
            }
        }
    }

    /// The epoll set that a file is.
    pub(crate) fn set(&mut self, id: FileId) -> Result<&mut Set, Errno> {
        match self.get(id) {
            Some(File { what: What::Set(set), .. }) => Ok(set),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::EBADF),
        }
    }

    /// The descriptor by which calls go to the kernel.
    pub(crate) fn twin(&mut self, id: FileId) -> Result<c_int, Errno> {
        self.get(id).and_then(|file| file.fds.first().copied()).ok_or(Errno::EBADF)
    }

    pub(crate) fn is_nonblocking(&mut self, id: FileId) -> bool {
        self.get(id).is_some_and(|file| file.is_nonblocking)
    }

    fn forget(&mut self, id: FileId) -> Option<File> {
        let file = self.files.get_mut(id.0 as usize)?.take()?;
        if matches!(file.what, What::Set(_)) {
            // Its number may be another set's soon.
            for other in self.files.iter_mut().flatten() {
                if let What::Socket(socket) = &mut other.what {
                    socket.watches.retain(|watch| watch.set != id);
                }
            }
        }
        self.free.push(id.0);
        Some(file)
    }
}

impl What {
    /// Whether calls on it are the engine's. A set is, as sockets of ours may come in, and a
    /// listener that becomes ours with the next call.
    fn is_ours(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.ours().is_some() || socket.backlog.is_some(),
            Self::Set(_) => true,
        }
    }
}

impl Socket {
    pub(crate) fn new(kind: Kind, family: Family) -> Self {
        let opened = SystemTime::now();
        let (options, watches, why) = (Options::default(), Vec::new(), "not decided yet");
        Self { kind, family, place: Owner::Twin, options, watches, backlog: None, is_listener: false, why, opened }
    }

    /// What the program has set before: IPv6 alone, or what ours cannot do.
    pub(crate) fn stays_the_kernels(&self, twin: c_int) -> bool {
        let is_v6_only =
            self.family == Family::Inet6 && sys::getsockopt_int(twin, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Ok(1);
        is_v6_only || self.options.change_what_is_sent()
    }

    /// Ours, if it is.
    pub(crate) fn ours(&self) -> Option<SocketId> {
        match self.place {
            Owner::Twin => None,
            Owner::Ours { id, .. } => Some(id),
        }
    }
}

/// Nothing is bound yet, or any address and port.
pub(crate) const ANY: SocketAddrV4 = SocketAddrV4::new(core::net::Ipv4Addr::UNSPECIFIED, 0);
