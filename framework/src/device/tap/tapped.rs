//! The tapped queues of this machine.

use core::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zerocopy::IntoBytes;

use super::layout::{Identity, RING};
use super::listener::Listener;
use super::ring::{Copies, RingEnd};
use crate::counters::{Access, Content, Shared, is_stale, is_trusted, printable, shared_files, user_of_process};

/// A tapped queue of a running process.
#[derive(Debug)]
pub struct Tapped {
    /// The application.
    pub app: String,
    /// Its pid, in its own pid namespace.
    pub pid: u32,
    /// The owner of the file, if that is neither root nor the reader: everything else is that
    /// user's claim.
    pub user: Option<u32>,
    /// The time at which the tap was made.
    pub started: SystemTime,
    /// The device, by the name its operator knows.
    pub device: String,
    /// The queue of that device.
    pub queue: u16,
    file: File,
    path: PathBuf,
    capacity: u64,
}

/// The taps of a directory.
#[derive(Debug, Default)]
pub struct Taps {
    /// The taps of running processes, ordered by process, device and queue.
    pub running: Vec<Tapped>,
    /// Files that cannot be opened, and why: often those of other users.
    pub closed: Vec<TapError>,
}

impl Tapped {
    /// Lists the taps in `directory`. Files of dead processes are skipped.
    ///
    /// # Errors
    /// The directory cannot be listed. A missing directory counts as empty.
    pub fn list(directory: &Path) -> Result<Taps, TapError> {
        let mut taps = Taps::default();
        let files = shared_files(directory, Content::Frames, Access::Write);
        for shared in files.map_err(|error| TapError::new(directory, RingEnd::Io(error)))? {
            match Self::open(shared) {
                Ok(Some(tapped)) => taps.running.push(tapped),
                Ok(None) => {}
                Err(error) => taps.closed.push(error),
            }
        }
        taps.running.sort_by(|a, b| a.order().cmp(&b.order()));
        Ok(taps)
    }

    /// Whether the named process may be genuine: the file belongs to root, to the reader, or to the
    /// user who runs that process. Other users can give their files any name.
    pub fn is_credible(&self) -> bool {
        self.user.is_none_or(|user| user_of_process(self.pid) == Some(user))
    }

    /// Starts to listen: to the first `snap_len` bytes of each frame, and to more if another
    /// listener requests more.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn listen(self, snap_len: usize) -> Result<Listener, TapError> {
        Listener::begin(self.file, self.capacity, self.path, snap_len)
    }

    /// The shared file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// None if the process has ended.
    fn open(shared: Shared) -> Result<Option<Self>, TapError> {
        let Shared { path, user, file } = shared;
        let fault = |fault| TapError { path: path.clone(), fault };
        let file = file.map_err(|error| fault(Fault::Io(error)))?;
        if is_stale(&file) {
            return Ok(None);
        }
        let file_len = file.metadata().map_err(|error| fault(Fault::Io(error)))?.len();
        let mut words = [0; RING];
        file.copy(0, &mut words).map_err(|error| fault(Fault::Io(error)))?;
        let identity = Identity::read(&words, file_len / 8).map_err(|what| fault(Fault::NotOurs(what)))?;
        let started = UNIX_EPOCH.checked_add(Duration::from_nanos(identity.started_ns)).unwrap_or(UNIX_EPOCH);
        let Identity { app, pid, device, queue, ring_words: capacity, .. } = identity;
        let user = (!is_trusted(user)).then_some(user);
        Ok(Some(Self { app, pid, user, started, device, queue, file, path, capacity }))
    }

    fn order(&self) -> (&str, u32, &str, u16) {
        (&self.app, self.pid, &self.device, self.queue)
    }
}

/// Read, not mapped: if a mapped file shrinks, the reader is killed. The kernel copies an aligned
/// word in one piece.
impl Copies for File {
    fn copy(&self, first: usize, into: &mut [u64]) -> io::Result<()> {
        self.read_exact_at(into.as_mut_bytes(), first as u64 * 8)
    }
}

/// Why a tap cannot be opened, or no longer be read.
#[derive(Debug)]
pub struct TapError {
    path: PathBuf,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    Io(io::Error),
    NotOurs(&'static str),
    Damaged,
}

impl TapError {
    pub(super) fn new(path: &Path, trouble: RingEnd) -> Self {
        let fault = match trouble {
            RingEnd::Io(error) => Fault::Io(error),
            RingEnd::Damaged => Fault::Damaged,
        };
        Self { path: path.to_owned(), fault }
    }

    /// Whether the error is a lack of permission.
    pub fn is_permission(&self) -> bool {
        matches!(&self.fault, Fault::Io(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }
}

impl fmt::Display for TapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(self.path.display());
        match &self.fault {
            Fault::Io(_) if self.is_permission() => {
                write!(f, "no permission to listen at {path}: be the user who runs the process, or root (sudo)")
            }
            Fault::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                write!(f, "no memory for the ring of {path}: {error}; remove files from that file system")
            }
            Fault::Io(error) => write!(f, "cannot listen at {path}: {error}"),
            Fault::NotOurs(what) => write!(f, "cannot listen at {path}: {what}"),
            Fault::Damaged => {
                write!(f, "the ring in {path} is damaged: no wirepath worker writes so; start its process anew")
            }
        }
    }
}

impl std::error::Error for TapError {}
