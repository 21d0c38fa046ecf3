//! Where shared files are, how one appears whole, and how a dead process's file is told from a live
//! one's.
//!
//! A file is written under a hidden name, locked (`flock`) and only then linked to its real name,
//! so a reader finds a whole header. The kernel holds the lock as long as the process lives,
//! however it ends and whoever gets its pid next: a file that can be locked is stale.
//!
//! Other users of the machine may put anything beside it. What is in a file, its name included, is
//! a claim; whose it is ([`Shared::user`]) says the kernel.

use core::ffi::c_int;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::block::SetupError;
use super::directory::{Access, Directory, ROOT};
use super::environment::environment;
use super::sys;

/// Where the counters of all processes of this machine are: memory, gone with the next boot.
const DIRECTORY: &str = "/dev/shm/wirepath";
/// The end of a file's name while it is being made. It begins with a dot.
const HIDDEN_SUFFIX: &str = ".new";
/// A file that is younger is not taken for one that was never finished.
const MAKING_SPAN: Duration = Duration::from_secs(60);
/// Numbers that files of one application and pid get. From there on, as others may have taken them
/// all on purpose, the name has the time.
const NAMES_MAX: usize = 64;
/// Files of another user that are looked at in one directory: who fills it is in nobody's way but
/// his own.
const FILES_OF_ANOTHER_MAX: usize = 256;

/// The directory of shared files: `WIREPATH_SHM`, or else `/dev/shm/wirepath`. A program with
/// rights that whoever started it need not have (setuid, capabilities of its file) does not ask the
/// environment.
pub fn default_directory() -> PathBuf {
    environment("WIREPATH_SHM").map_or_else(|| DIRECTORY.into(), PathBuf::from)
}

/// What a shared file holds, which decides about the end of its name (it begins with
/// `application.pid`) and its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Counters, for everybody.
    Counters,
    /// Frames that a queue receives and sends: for root and for the user who runs the process.
    Frames,
    /// The open TCP connections of a worker: who reads their numbers can end them, so they are as
    /// private as frames.
    Connections,
}

impl Content {
    const ALL: [Self; 3] = [Self::Counters, Self::Frames, Self::Connections];

    /// The first word of the file.
    pub(crate) const fn magic(self) -> u64 {
        u64::from_ne_bytes(match self {
            Self::Counters => *b"wirepath",
            Self::Frames => *b"wire-tap",
            Self::Connections => *b"wireopen",
        })
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Counters => ".counters",
            Self::Frames => ".tap",
            Self::Connections => ".connections",
        }
    }

    fn mode(self) -> u32 {
        match self {
            Self::Counters => 0o644,
            Self::Frames | Self::Connections => 0o600,
        }
    }
}

/// A live file under its name. Dropping it removes the file.
pub(crate) struct Publication {
    directory: Directory,
    name: OsString,
    path: PathBuf,
    /// The file has something to tell when we are gone.
    stays: bool,
    /// Open and locked for as long as the process counts.
    locked: File,
}

impl Publication {
    /// Makes the file of `app` and this process; `fill` gives it its content before anybody sees
    /// it.
    pub(crate) fn create<T>(
        directory: &Path,
        app: &str,
        content: Content,
        fill: impl FnOnce(&File) -> io::Result<T>,
    ) -> Result<(Self, T), SetupError> {
        let failed = |error: io::Error| SetupError::file(directory, &error);
        let directory = Directory::open_for_files(directory, Path::new(DIRECTORY)).map_err(failed)?;
        remove_stale_of(&directory, app, content).map_err(failed)?;

        let hidden: OsString = format!(".{app}.{}.{}{HIDDEN_SUFFIX}", std::process::id(), since_epoch_ns()).into();
        let publish = || {
            let file = directory.create(&hidden)?;
            let published = fill_and_link(&directory, &hidden, &file, app, content, fill);
            directory.remove(&hidden, &file);
            published.map(|(name, filled)| (name, file, filled))
        };
        let (name, locked, filled) = publish().map_err(failed)?;
        let path = directory.path().join(&name);
        Ok((Self { directory, name, path, stays: false, locked }, filled))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file where it is when this is dropped: unlocked, as a dead process's.
    pub(crate) fn stay(&mut self) {
        self.stays = true;
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if !self.stays {
            // Gone already is as good as removed.
            self.directory.remove(&self.name, &self.locked);
        }
    }
}

/// Nanoseconds since the Unix epoch, for the header and for names that nobody else has.
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
    // Others may open it from here on only: who opened it before could take the lock, and we would
    // wait for ever.
    file.lock()?;
    let filled = fill(file)?;
    file.set_permissions(Permissions::from_mode(content.mode() & !umask()))?;
    Ok((link_free_name(hidden, directory, app, content)?, filled))
}

/// The rights that the operator wants new files not to have. The call for it, umask(2), would
/// change them.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0)
}

/// Links a whole file to the first name of `app` and this process that is free. A second file takes
/// the second name, and so does a process in another container that has the same pid and shares the
/// directory.
fn link_free_name(hidden: &OsStr, directory: &Directory, app: &str, content: Content) -> io::Result<OsString> {
    let (pid, suffix) = (std::process::id(), content.suffix());
    let mut name: OsString = format!("{app}.{pid}{suffix}").into();
    let mut count = 1;
    loop {
        // A link, unlike a rename, does not replace what is there.
        match directory.link(hidden, &name) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && count < 2 * NAMES_MAX => count += 1,
            Err(error) => return Err(error),
        }
        let number = if count <= NAMES_MAX { count as u64 } else { since_epoch_ns() };
        name = format!("{app}.{pid}-{number}{suffix}").into();
    }
}

/// A file of the shared directory that somebody made.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    /// Whose it is.
    pub(crate) user: u32,
    /// The file, opened; or why it is not.
    pub(crate) file: io::Result<File>,
}

/// The files of one content in a directory, opened one by one as they are asked for.
pub(crate) struct SharedFiles {
    directory: Option<Directory>,
    names: std::vec::IntoIter<OsString>,
    access: Access,
    /// How many of each other user were looked at.
    others: HashMap<u32, usize>,
}

/// The shared files of a directory with that content, by name. A directory that is not there has
/// none.
pub(crate) fn shared_files(directory: &Path, content: Content, access: Access) -> io::Result<SharedFiles> {
    shared_files_called(directory, content, access, |_| true)
}

/// The same, of those that a process has made that calls itself `pid`.
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
            // One that is gone meanwhile was its owner's to remove.
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
                // What is open may be another file than a moment ago.
                file => {
                    let user =
                        file.as_ref().ok().and_then(|file| file.metadata().ok()).map_or(user, |facts| facts.uid());
                    return Some(Shared { path, user, file });
                }
            }
        }
    }
}

/// Whether what a user puts into a file is as good as ours: root, or we ourselves.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == ROOT || user == sys::effective_user()
}

/// The user whose rights a process has, as this process sees it; `None` where there is no such
/// process, or none that we may see. Not the owner of its folder in /proc, who is root for a
/// process that may not be traced.
pub(crate) fn user_of_process(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // Real, effective, saved, of the file system (proc_pid_status(5)).
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Opens a file that somebody else made, to read it.
pub(crate) fn open_foreign(path: &Path) -> io::Result<File> {
    const FLAGS: c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// Removes the name of a file that is open, where it is still its name.
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
        // In doubt it lives: a live file is never removed.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

/// Removes the files with that content that dead processes of `app` left.
fn remove_stale_of(directory: &Directory, app: &str, content: Content) -> io::Result<()> {
    let is_of_app = |name: &str| app_and_pid(name, content).is_some_and(|(own, _)| own == app);
    for name in directory.names(is_of_app)? {
        remove_if_stale(directory, &name, |word| word == content.magic());
    }
    Ok(())
}

/// Removes the files of dead processes, also those that were never finished, and says which. What
/// is not a file of ours by its name and its first word stays.
pub(super) fn remove_stale(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = match Directory::open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut removed = directory.names(is_unfinished)?;
    // One that was never finished may not have its first word yet.
    let may_be_ours = |word| word == 0 || Content::ALL.iter().any(|content| word == content.magic());
    removed.retain(|name| remove_if_stale(&directory, name, may_be_ours));
    for content in Content::ALL {
        let names = directory.names(|name| app_and_pid(name, content).is_some())?;
        let is_ours = |word| word == content.magic();
        removed.extend(names.into_iter().filter(|name| remove_if_stale(&directory, name, is_ours)));
    }
    Ok(removed.into_iter().map(|name| directory.path().join(name)).collect())
}

/// Whether the file was stale, ours by its first word, and has gone. One that belongs to somebody
/// else and that we may not remove stays.
fn remove_if_stale(directory: &Directory, name: &OsStr, is_ours: impl Fn(u64) -> bool) -> bool {
    directory
        .open_file(name, Access::Read)
        .is_ok_and(|file| is_stale(&file) && first_word(&file).is_ok_and(&is_ours) && directory.remove(name, &file))
}

/// The first word of a file; zero where it has none yet.
fn first_word(file: &File) -> io::Result<u64> {
    if file.metadata()?.len() == 0 {
        return Ok(0);
    }
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0)?;
    Ok(u64::from_ne_bytes(word))
}

/// The application and the pid in a file's name, such as `application.pid.counters`; `None` where
/// it is no such name.
fn app_and_pid(name: &str, content: Content) -> Option<(&str, u32)> {
    let (app, pid) = name.strip_suffix(content.suffix())?.rsplit_once('.')?;
    let (pid, number) = pid.split_once('-').unwrap_or((pid, "0"));
    let is_ours = !app.is_empty() && !app.starts_with('.') && number.parse::<u64>().is_ok();
    is_ours.then_some(())?;
    Some((app, pid.parse().ok()?))
}

/// Whether a name is one that a file has while it is being made, and for so long that nobody can be
/// making it still.
fn is_unfinished(name: &str) -> bool {
    let made = || {
        let (rest, made) = name.strip_prefix('.')?.strip_suffix(HIDDEN_SUFFIX)?.rsplit_once('.')?;
        let (app, pid) = rest.rsplit_once('.')?;
        (!app.is_empty()).then_some(())?;
        pid.parse::<u32>().ok().and(made.parse::<u64>().ok())
    };
    made().is_some_and(|made| since_epoch_ns().saturating_sub(made) > MAKING_SPAN.as_nanos() as u64)
}
