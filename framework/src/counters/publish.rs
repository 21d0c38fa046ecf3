//! Where shared files are, how one appears whole, and how a dead process's file is told from a live one's.
//!
//! A file is written under a hidden name, locked (`flock`) and only then linked to its real name, so a reader finds
//! a whole header. The kernel holds the lock as long as the process lives, however it ends and whoever gets its pid
//! next: a file that can be locked is stale.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::block::SetupError;

/// Where the counters of all processes of this machine are: memory, gone with the next boot.
const DIRECTORY: &str = "/dev/shm/wirepath";
/// The end of a file's name. It begins with `application.pid`.
const SUFFIX: &str = ".counters";

/// The directory of shared files: `WIREPATH_SHM`, or else `/dev/shm/wirepath`.
pub fn default_directory() -> PathBuf {
    match std::env::var_os("WIREPATH_SHM") {
        Some(directory) if !directory.is_empty() => directory.into(),
        _ => DIRECTORY.into(),
    }
}

/// A live file under its name. Dropping it removes the file.
pub(super) struct Publication {
    path: PathBuf,
    /// Open and locked for as long as the process counts.
    _locked: File,
}

impl Publication {
    /// Makes the file of `app` and this process; `fill` gives it its content before anybody sees it.
    pub(super) fn create<T>(
        directory: &Path,
        app: &str,
        fill: impl FnOnce(&File) -> io::Result<T>,
    ) -> Result<(Self, T), SetupError> {
        make_directory(directory).map_err(|error| SetupError::file(directory, &error))?;
        remove_stale(directory, Some(app)).map_err(|error| SetupError::file(directory, &error))?;

        let stem = format!("{app}.{}", std::process::id());
        let hidden = directory.join(format!(".{stem}"));
        let path = directory.join(stem + SUFFIX);
        let publish = || {
            let _ = fs::remove_file(&hidden);
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(&hidden)?;
            let filled = fill(&file)?;
            file.lock()?;
            // A link, unlike a rename, does not replace a second block of the same name in this process.
            fs::hard_link(&hidden, &path)?;
            Ok((file, filled))
        };
        let published = publish();
        let _ = fs::remove_file(&hidden);
        let (file, filled) = published.map_err(|error: io::Error| SetupError::file(&path, &error))?;
        Ok((Self { path, _locked: file }, filled))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        // Gone already is as good as removed.
        let _ = fs::remove_file(&self.path);
    }
}

/// The shared files of a directory, by name. A directory that is not there has none.
pub(super) fn shared_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(SUFFIX) && !name.starts_with('.') {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Opens a file that somebody else made. It may be anything: neither a link is followed nor a pipe waited for.
pub(super) fn open_foreign(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// Whether the process that made this file has ended.
pub(super) fn is_stale(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            true
        }
        // In doubt it lives: a live file is never removed.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

/// Removes the files of dead processes, those of `app` or all, and says which. A file that somebody else owns and
/// we may not remove stays, without a word.
pub(super) fn remove_stale(directory: &Path, app: Option<&str>) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for path in shared_files(directory)? {
        if app.is_some_and(|app| app_of(&path) != Some(app)) {
            continue;
        }
        let Ok(file) = open_foreign(&path) else { continue };
        if is_stale(&file) && fs::remove_file(&path).is_ok() {
            removed.push(path);
        }
    }
    Ok(removed)
}

/// The application in a file's name, `application.pid.counters`.
fn app_of(path: &Path) -> Option<&str> {
    let stem = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
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
