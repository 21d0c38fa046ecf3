//! Where shared files are, how one appears whole, and how a dead process's file is told from a live one's.
//!
//! A file is written under a hidden name, locked (`flock`) and only then linked to its real name, so a reader finds
//! a whole header. The kernel holds the lock as long as the process lives, however it ends and whoever gets its pid
//! next: a file that can be locked is stale.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::block::SetupError;
use super::environment::environment;

/// Where the counters of all processes of this machine are: memory, gone with the next boot.
const DIRECTORY: &str = "/dev/shm/wirepath";
/// The end of a file's name while it is being made. It begins with a dot.
const HIDDEN_SUFFIX: &str = ".new";
/// Files of one application and pid. More are a mistake.
const NAMES_MAX: usize = 64;

/// The directory of shared files: `WIREPATH_SHM`, or else `/dev/shm/wirepath`. A program with rights that whoever started
/// it need not have (setuid, capabilities of its file) does not ask the environment.
pub fn default_directory() -> PathBuf {
    environment("WIREPATH_SHM").map_or_else(|| DIRECTORY.into(), PathBuf::from)
}

/// What a shared file holds, which decides about the end of its name (it begins with `application.pid`) and its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Counters, for everybody.
    Counters,
    /// Frames that a queue receives and sends: for root and for the user who runs the process.
    Frames,
    /// The open TCP connections of a worker: who reads their numbers can end them, so they are as private as frames.
    Connections,
}

impl Content {
    const ALL: [Self; 3] = [Self::Counters, Self::Frames, Self::Connections];

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
    path: PathBuf,
    /// The file has something to tell when we are gone.
    stays: bool,
    /// Open and locked for as long as the process counts.
    _locked: File,
}

impl Publication {
    /// Makes the file of `app` and this process; `fill` gives it its content before anybody sees it.
    pub(crate) fn create<T>(
        directory: &Path,
        app: &str,
        content: Content,
        fill: impl FnOnce(&File) -> io::Result<T>,
    ) -> Result<(Self, T), SetupError> {
        make_directory(directory).map_err(|error| SetupError::file(directory, &error))?;
        remove_stale_of(directory, app, content).map_err(|error| SetupError::file(directory, &error))?;

        let hidden = directory.join(format!(".{app}.{}.{}{HIDDEN_SUFFIX}", std::process::id(), since_epoch_ns()));
        let publish = || {
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(content.mode()).open(&hidden)?;
            file.lock()?;
            let filled = fill(&file)?;
            Ok((link_free_name(&hidden, directory, app, content)?, file, filled))
        };
        let published = publish();
        let _ = fs::remove_file(&hidden);
        let (path, file, filled) = published.map_err(|error: io::Error| SetupError::file(directory, &error))?;
        Ok((Self { path, stays: false, _locked: file }, filled))
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
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Nanoseconds since the Unix epoch, for the header and for names that nobody else has.
pub(crate) fn since_epoch_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Links a whole file to the first name of `app` and this process that is free. A second file takes the second name,
/// and so does a process in another container that has the same pid and shares the directory.
fn link_free_name(hidden: &Path, directory: &Path, app: &str, content: Content) -> io::Result<PathBuf> {
    let (pid, suffix) = (std::process::id(), content.suffix());
    let mut path = directory.join(format!("{app}.{pid}{suffix}"));
    let mut count = 1;
    loop {
        // A link, unlike a rename, does not replace what is there.
        match fs::hard_link(hidden, &path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && count < NAMES_MAX => count += 1,
            Err(error) => return Err(error),
        }
        path = directory.join(format!("{app}.{pid}-{count}{suffix}"));
    }
}

/// The shared files of a directory with that content, by name. A directory that is not there has none.
pub(crate) fn shared_files(directory: &Path, content: Content) -> io::Result<Vec<PathBuf>> {
    files(directory, |name| name.ends_with(content.suffix()) && !name.starts_with('.'))
}

fn files(directory: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Opens a file that somebody else made, to read it.
pub(crate) fn open_foreign(path: &Path) -> io::Result<File> {
    open_checked(path, OpenOptions::new().read(true))
}

/// Opens a file that somebody else made, to read it and to write what is the reader's to write.
pub(crate) fn open_foreign_writable(path: &Path) -> io::Result<File> {
    open_checked(path, OpenOptions::new().read(true).write(true))
}

/// What is opened may be anything: neither a link is followed nor a pipe waited for.
fn open_checked(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
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
fn remove_stale_of(directory: &Path, app: &str, content: Content) -> io::Result<()> {
    for path in shared_files(directory, content)? {
        if app_of(&path, content) == Some(app) {
            remove_if_stale(&path);
        }
    }
    Ok(())
}

/// Removes the files of dead processes, also those that were never finished, and says which.
pub(super) fn remove_stale(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = files(directory, |name| name.starts_with('.') && name.ends_with(HIDDEN_SUFFIX))?;
    for content in Content::ALL {
        paths.append(&mut shared_files(directory, content)?);
    }
    paths.retain(|path| remove_if_stale(path));
    Ok(paths)
}

/// Whether the file was stale and has gone. One that belongs to somebody else and that we may not remove stays.
fn remove_if_stale(path: &Path) -> bool {
    match open_foreign(path) {
        Ok(file) => is_stale(&file) && fs::remove_file(path).is_ok(),
        Err(_) => false,
    }
}

/// The application in a file's name, such as `application.pid.counters`.
fn app_of(path: &Path, content: Content) -> Option<&str> {
    let stem = path.file_name()?.to_str()?.strip_suffix(content.suffix())?;
    stem.rsplit_once('.').map(|(app, _pid)| app)
}

fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    if directory == Path::new(DIRECTORY) {
        // Like /dev/shm itself: every user may add files, nobody may remove another's.
        fs::set_permissions(directory, Permissions::from_mode(0o1777))?;
    }
    Ok(())
}
