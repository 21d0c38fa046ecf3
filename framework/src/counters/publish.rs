//! The directory of shared files: how a file appears atomically, and how the file of a dead process
//! is recognized.
//!
//! A file is written under a hidden name, locked (`flock`) and only then linked to its real name,
//! so a reader always finds a whole header. The kernel holds the lock exactly as long as the
//! process lives, however the process ends and whichever other process reuses its pid. So a file
//! that can be locked is stale.
//!
//! Other users of the machine may put any file beside it. A file's content, including its name, is
//! a claim; its owner ([`Shared::user`]) comes from the kernel.

use core::ffi::c_int;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::block::BlockError;
use super::directory::{Access, Directory, ROOT};
use super::environment::environment;
use crate::sys::process;

/// The directory for the counters of all processes of this machine: in memory, so a reboot clears
/// it.
const DIRECTORY: &str = "/dev/shm/wirepath";
/// The suffix of a file's name while it is being made. The name begins with a dot.
const HIDDEN_SUFFIX: &str = ".new";
/// A younger file is not considered abandoned.
const CREATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of names for files of one application and pid. If all are taken, perhaps on purpose, the
/// name contains the time.
const NAMES_MAX: usize = 64;
/// The most files of another user that are read per directory, so that a user who fills the
/// directory hides only files of that user.
const FILES_OF_ANOTHER_MAX: usize = 256;
/// Names that a start looks at to find files of dead processes, each with a few system calls.
const LOOKED_AT_MAX: usize = 4_096;
/// Files that a start removes: their memory takes some 0.1 ms for each MiB to free. More than a
/// process leaves, so that starts remove more than they add.
const REMOVED_MAX: usize = 64;
/// The age from which open connections of another application's dead process are removed: a
/// guardian has found younger ones by then, and reads them when their process dies.
pub(crate) const FOUND_BY_GUARDIAN: Duration = Duration::from_secs(10);

/// The directory of shared files: `WIREPATH_SHM`, or else `/dev/shm/wirepath`. A program with
/// privileges that its user may lack (setuid, file capabilities) ignores the environment.
pub fn default_directory() -> PathBuf {
    environment("WIREPATH_SHM").map_or_else(|| DIRECTORY.into(), PathBuf::from)
}

/// The content of a shared file, which determines the suffix of its name (after `application.pid`)
/// and its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Counters, readable by every user.
    Counters,
    /// Frames that a queue receives and sends: for root and the user of the process.
    Frames,
    /// The open TCP connections of a worker: a reader of their sequence numbers could reset them,
    /// so they are as private as frames.
    Connections,
    /// The sockets of a program, for every user, as those of the kernel are (/proc/net/tcp).
    Sockets,
}

impl Content {
    const ALL: [Self; 4] = [Self::Counters, Self::Frames, Self::Connections, Self::Sockets];

    /// The first word of the file.
    pub(crate) const fn magic(self) -> u64 {
        u64::from_ne_bytes(match self {
            Self::Counters => *b"wirepath",
            Self::Frames => *b"wire-tap",
            Self::Connections => *b"wireopen",
            Self::Sockets => *b"wiresock",
        })
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Counters => ".counters",
            Self::Frames => ".tap",
            Self::Connections => ".connections",
            Self::Sockets => ".sockets",
        }
    }

    fn mode(self) -> u32 {
        match self {
            Self::Counters | Self::Sockets => 0o644,
            Self::Frames | Self::Connections => 0o600,
        }
    }
}

/// A published live file. Dropping it removes the file.
pub(crate) struct Publication {
    published: Arc<Published>,
    path: PathBuf,
    /// The process that made the file: a child of `fork` has a copy of this, and leaves the file to
    /// its parent.
    pub(super) pid: u32,
}

struct Published {
    directory: Directory,
    name: OsString,
    /// The file remains after the process, because others need it then.
    stays: AtomicBool,
    /// Open and locked as long as the process counts.
    locked: File,
}

/// The files of this process, for [`unpublish`], each with the process that made it.
static PUBLISHED: Mutex<Vec<(u32, Weak<Published>)>> = Mutex::new(Vec::new());

impl Publication {
    /// Creates the file of `app` and this process; `fill` writes its content before it becomes
    /// visible. Files that dead processes of this user have left are removed first.
    pub(crate) fn create<T>(
        directory: &Path,
        app: &str,
        content: Content,
        fill: impl FnOnce(&File) -> io::Result<T>,
    ) -> Result<(Self, T), BlockError> {
        let failed = |error: io::Error| BlockError::file(directory, &error);
        let directory = Directory::open_for_files(directory, Path::new(DIRECTORY)).map_err(failed)?;
        remove_left_by_dead(&directory, app).map_err(failed)?;

        let hidden: OsString = format!(".{app}.{}.{}{HIDDEN_SUFFIX}", std::process::id(), since_epoch_ns()).into();
        let publish = || {
            let file = directory.create(&hidden)?;
            let published = fill_and_link(&directory, &hidden, &file, app, content, fill);
            directory.remove(&hidden, &file);
            published.map(|(name, filled)| (name, file, filled))
        };
        let (name, locked, filled) = publish().map_err(failed)?;
        let path = directory.path().join(&name);
        let (pid, stays) = (std::process::id(), AtomicBool::new(false));
        let published = Arc::new(Published { directory, name, stays, locked });
        let mut all = published_files();
        all.retain(|(_, other)| other.strong_count() > 0);
        all.push((pid, Arc::downgrade(&published)));
        Ok((Self { published, path, pid }, filled))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is kept when this is dropped: unlocked, as if the process were dead.
    pub(crate) fn set_stays(&self, stays: bool) {
        self.published.stays.store(stays, Ordering::Relaxed);
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.published.remove();
        }
    }
}

impl Published {
    fn remove(&self) {
        if !self.stays.load(Ordering::Relaxed) {
            // A file that is already gone counts as removed.
            self.directory.remove(&self.name, &self.locked);
        }
    }
}

fn published_files() -> MutexGuard<'static, Vec<(u32, Weak<Published>)>> {
    // A panic leaves at worst an entry without its file.
    PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the shared files of this process (counters, taps, listings), which go on counting
/// unseen. For a process that ends without dropping what made them, because that is in a static.
/// Rosters with open connections stay, for the guardian. A child of `fork` removes none of its
/// parent's.
pub fn unpublish() {
    // Not waited for: a process that ends in the middle of a start leaves the file to the next one.
    let Ok(all) = PUBLISHED.try_lock() else { return };
    let ours = all.iter().filter(|(pid, _)| *pid == std::process::id());
    ours.filter_map(|(_, published)| published.upgrade()).for_each(|published| published.remove());
}

/// Nanoseconds since the Unix epoch, for the header and for unique names.
pub(crate) fn since_epoch_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn fill_and_link<T>(
    directory: &Directory,
    hidden: &OsStr,
    file: &File,
    app: &str,
    content: Content,
    fill: impl FnOnce(&File) -> io::Result<T>,
) -> io::Result<(OsString, T)> {
    // Other processes may open it only from here on: one that opened it before could take the lock,
    // and we would wait for ever.
    file.lock()?;
    let filled = fill(file)?;
    file.set_permissions(Permissions::from_mode(content.mode() & !umask()))?;
    Ok((link_free_name(hidden, directory, app, content)?, filled))
}

/// The permissions that the operator masks from new files. Its system call, umask(2), would change
/// them.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0)
}

/// Links a complete file to the first free name of `app` and this process. A second file takes the
/// second name, and so does a process in another container that has the same pid and shares the
/// directory.
fn link_free_name(hidden: &OsStr, directory: &Directory, app: &str, content: Content) -> io::Result<OsString> {
    let (pid, suffix) = (std::process::id(), content.suffix());
    let mut name: OsString = format!("{app}.{pid}{suffix}").into();
    let mut count = 1;
    loop {
        // A link, unlike a rename, does not replace an existing file.
        match directory.link(hidden, &name) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && count < 2 * NAMES_MAX => count += 1,
            Err(error) => return Err(error),
        }
        let number = if count <= NAMES_MAX { count as u64 } else { since_epoch_ns() };
        name = format!("{app}.{pid}-{number}{suffix}").into();
    }
}

/// A file of the shared directory, made by any process.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    /// Its owner.
    pub(crate) user: u32,
    /// The opened file, or the error.
    pub(crate) file: io::Result<File>,
}

/// The files of one content in a directory, opened one by one on demand.
pub(crate) struct SharedFiles {
    directory: Option<Directory>,
    names: std::vec::IntoIter<OsString>,
    access: Access,
    /// The number of files read for each other user.
    others: HashMap<u32, usize>,
}

/// The shared files of a directory with that content, by name. A missing directory counts as empty.
pub(crate) fn shared_files(directory: &Path, content: Content, access: Access) -> io::Result<SharedFiles> {
    shared_files_called(directory, content, access, |_| true)
}

/// The same, restricted to files whose name has this `pid`.
pub(crate) fn shared_files_of(directory: &Path, content: Content, access: Access, pid: u32) -> io::Result<SharedFiles> {
    shared_files_called(directory, content, access, |name| {
        app_and_pid(name, content).is_some_and(|(_, own)| own == pid)
    })
}

fn shared_files_called(
    directory: &Path,
    content: Content,
    access: Access,
    is_wanted: impl Fn(&str) -> bool,
) -> io::Result<SharedFiles> {
    let is_visible = |name: &str| name.ends_with(content.suffix()) && !name.starts_with('.');
    let (directory, names) = match Directory::open(directory) {
        Ok(directory) => {
            let names = directory.names(|name| is_visible(name) && is_wanted(name))?;
            (Some(directory), names)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (None, Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(SharedFiles { directory, names: names.into_iter(), access, others: HashMap::new() })
}

impl Iterator for SharedFiles {
    type Item = Shared;

    fn next(&mut self) -> Option<Shared> {
        let directory = self.directory.as_ref()?;
        loop {
            let name = self.names.next()?;
            // A file removed meanwhile: its owner may do that.
            let Ok(user) = directory.facts(&name).map(|facts| facts.uid()) else { continue };
            let path = directory.path().join(&name);
            let count = self.others.entry(user).or_insert(0);
            *count += usize::from(!is_trusted(user));
            if *count > FILES_OF_ANOTHER_MAX + 1 {
                continue;
            }
            if *count == FILES_OF_ANOTHER_MAX + 1 {
                let why = format!("user {user} has more than {FILES_OF_ANOTHER_MAX} files there: the rest is left out");
                return Some(Shared { path, user, file: Err(io::Error::other(why)) });
            }
            match directory.open_file(&name, self.access) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // The name may refer to another file than a moment ago.
                file => {
                    let user =
                        file.as_ref().ok().and_then(|file| file.metadata().ok()).map_or(user, |facts| facts.uid());
                    return Some(Shared { path, user, file });
                }
            }
        }
    }
}

/// Whether a user's files are as trustworthy as ours: root, or we ourselves.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == ROOT || user == process::effective_user()
}

/// The user whose rights a process has, as this process sees it; `None` if the process does not
/// exist or is not visible. The owner of the process's folder in /proc is not the answer: it is
/// root for a process that may not be traced.
pub(crate) fn user_of_process(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // Real, effective, saved, of the file system (proc_pid_status(5)).
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Opens a file that another process made, for reading.
pub(crate) fn open_foreign(path: &Path) -> io::Result<File> {
    const FLAGS: c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// Removes the name of an open file, if it still names that file.
pub(crate) fn remove_foreign(path: &Path, file: &File) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return };
    if let Ok(directory) = Directory::open(directory) {
        directory.remove(name, file);
    }
}

/// Whether the process that made this file has ended.
pub(crate) fn is_stale(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            true
        }
        // In doubt the process counts as alive, so that a live file is never removed.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

/// Removes files left by dead processes of this user, first those of `app`, then those of other
/// applications, also unfinished ones. Each start does a bounded part of that, from another place
/// on, so that files that cannot be removed do not hide the others for ever.
fn remove_left_by_dead(directory: &Directory, app: &str) -> io::Result<()> {
    let content_and_app = |name: &str| {
        Content::ALL.into_iter().find_map(|content| app_and_pid(name, content).map(|(own, _)| (content, own == app)))
    };
    let mut names = directory.names(|name| is_unfinished(name) || content_and_app(name).is_some())?;
    if !names.is_empty() {
        let place = since_epoch_ns() as usize % names.len();
        names.rotate_left(place);
    }
    names.sort_by_key(|name| !content_and_app(&name.to_string_lossy()).is_some_and(|(_, is_of_app)| is_of_app));
    let mut removed = 0;
    for name in names.into_iter().take(LOOKED_AT_MAX) {
        let Ok(facts) = directory.facts(&name) else { continue };
        if facts.uid() != process::effective_user() {
            continue;
        }
        let is_removed = match content_and_app(&name.to_string_lossy()) {
            None => remove_if_stale(directory, &name, may_be_unfinished),
            Some((Content::Connections, false)) if is_young(&facts) => false,
            Some((content, _)) => remove_if_stale(directory, &name, |word| word == content.magic()),
        };
        removed += usize::from(is_removed);
        if removed == REMOVED_MAX {
            break;
        }
    }
    Ok(())
}

/// Whether a file got its name a moment ago, by the clock of its file system.
fn is_young(facts: &Metadata) -> bool {
    let named = Duration::new(facts.ctime().max(0) as u64, facts.ctime_nsec().max(0) as u32);
    Duration::from_nanos(since_epoch_ns()).saturating_sub(named) < FOUND_BY_GUARDIAN
}

/// Whether the first word of an unfinished file may be ours: it may lack that word.
fn may_be_unfinished(word: u64) -> bool {
    word == 0 || Content::ALL.iter().any(|content| word == content.magic())
}

/// Removes the files of dead processes, also unfinished ones, and returns their paths. A file whose
/// name or first word is not ours remains.
pub(super) fn remove_stale(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = match Directory::open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut removed = directory.names(is_unfinished)?;
    removed.retain(|name| remove_if_stale(&directory, name, may_be_unfinished));
    for content in Content::ALL {
        let names = directory.names(|name| app_and_pid(name, content).is_some())?;
        let is_ours = |word| word == content.magic();
        removed.extend(names.into_iter().filter(|name| remove_if_stale(&directory, name, is_ours)));
    }
    Ok(removed.into_iter().map(|name| directory.path().join(name)).collect())
}

/// Removes the files of a process that has ended, but for those that are `kept`: those with its
/// `pid` of users that `is_believed`. What another process of this number has there is locked, and
/// remains.
pub(crate) fn remove_left_by(
    directory: &Path,
    pid: u32,
    kept: Option<Content>,
    is_believed: impl Fn(u32) -> bool,
) -> io::Result<()> {
    let directory = Directory::open(directory)?;
    for content in Content::ALL.into_iter().filter(|content| Some(*content) != kept) {
        for name in directory.names(|name| app_and_pid(name, content).is_some_and(|(_, own)| own == pid))? {
            if directory.facts(&name).is_ok_and(|facts| is_believed(facts.uid())) {
                remove_if_stale(&directory, &name, |word| word == content.magic());
            }
        }
    }
    Ok(())
}

/// Whether the file was stale, ours by its first word, and has been removed. A file of another user
/// that we may not remove remains.
fn remove_if_stale(directory: &Directory, name: &OsStr, is_ours: impl Fn(u64) -> bool) -> bool {
    directory
        .open_file(name, Access::Read)
        .is_ok_and(|file| is_stale(&file) && first_word(&file).is_ok_and(&is_ours) && directory.remove(name, &file))
}

/// The first word of a file; zero if it has none yet.
fn first_word(file: &File) -> io::Result<u64> {
    if file.metadata()?.len() == 0 {
        return Ok(0);
    }
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0)?;
    Ok(u64::from_ne_bytes(word))
}

/// The application and the pid in a file's name, such as `application.pid.counters`; `None` for
/// other names.
fn app_and_pid(name: &str, content: Content) -> Option<(&str, u32)> {
    let (app, pid) = name.strip_suffix(content.suffix())?.rsplit_once('.')?;
    let (pid, number) = pid.split_once('-').unwrap_or((pid, "0"));
    let is_ours = !app.is_empty() && !app.starts_with('.') && number.parse::<u64>().is_ok();
    is_ours.then_some(())?;
    Some((app, pid.parse().ok()?))
}

/// Whether the name is that of an unfinished file, and the file is so old that no process can still
/// be making it.
fn is_unfinished(name: &str) -> bool {
    let made = || {
        let (rest, made) = name.strip_prefix('.')?.strip_suffix(HIDDEN_SUFFIX)?.rsplit_once('.')?;
        let (app, pid) = rest.rsplit_once('.')?;
        (!app.is_empty()).then_some(())?;
        pid.parse::<u32>().ok().and(made.parse::<u64>().ok())
    };
    made().is_some_and(|made| since_epoch_ns().saturating_sub(made) > CREATION_TIMEOUT.as_nanos() as u64)
}
