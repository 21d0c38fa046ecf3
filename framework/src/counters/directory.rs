//! An open directory, so that checks and operations refer to the same directory.
//!
//! If another user can write, a path may lead elsewhere from one call to the next; a descriptor
//! cannot. So the directory is opened once, without following a link, and files are created, opened
//! and removed relative to the descriptor.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::printable::printable;
use crate::sys::{files, process};

pub(super) const ROOT: u32 = 0;
/// As /dev/shm itself: every user may add files, but not remove or rename another user's.
const OPEN_TO_ALL: u32 = 0o1777;
const STICKY: u32 = 0o1000;
/// Group and others may write.
const OTHERS_WRITE: u32 = 0o022;
/// The opened object may be anything, so do not follow a link, do not block on a pipe, and do not
/// acquire a terminal.
const UNKNOWN: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// An open directory.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    handle: File,
}

/// The access to a file that another process made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read only.
    Read,
    /// Read, and write the words that belong to the reader.
    Write,
}

impl Directory {
    /// Opens a directory to read its files.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Without a trailing slash, behind which a link would be followed.
        let path: PathBuf = path.components().collect();
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(&path);
        match opened {
            Ok(handle) => Ok(Self { path, handle }),
            Err(_) if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) => {
                Err(io::Error::other("it is a symbolic link, which others may turn: name the directory itself"))
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a directory to create files in it; creates it if missing. `common` is the directory
    /// that all users share.
    ///
    /// # Errors
    /// The directory cannot be created or opened, or another user could replace or remove our files
    /// in it.
    pub(super) fn open_for_files(path: &Path, common: &Path) -> io::Result<Self> {
        let made = make(path);
        let directory = Self::open(path).map_err(|error| match &made {
            Err(why) if error.kind() == io::ErrorKind::NotFound => io::Error::new(why.kind(), why.to_string()),
            _ => error,
        })?;
        if path == common {
            directory.share(made.is_ok())?;
        }
        directory.check_that_files_stay()?;
        Ok(directory)
    }

    /// Opens the common directory to all users. Root takes over its ownership if another user
    /// created it, because the owner of a directory may remove its files, even if the directory is
    /// sticky.
    fn share(&self, is_new: bool) -> io::Result<()> {
        let is_anothers = self.handle.metadata()?.uid() != ROOT && process::effective_user() == ROOT;
        if is_anothers {
            fchown(&self.handle, Some(ROOT), Some(ROOT))?;
        }
        if is_anothers || is_new {
            self.handle.set_permissions(Permissions::from_mode(OPEN_TO_ALL))?;
        }
        Ok(())
    }

    /// Checks that only root and we can replace, rename or remove our files here.
    fn check_that_files_stay(&self) -> io::Result<()> {
        let (owner, mode) = self.handle.metadata().map(|facts| (facts.uid(), facts.mode()))?;
        if owner != ROOT && owner != process::effective_user() {
            return Err(io::Error::other(format!(
                "it belongs to user {owner}, who could replace what is put there; have root run `chown root {0}`",
                printable(self.path.display())
            )));
        }
        if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
            return Err(io::Error::other(format!(
                "others may write there and could replace what is put there; run `chmod +t {0}` or `chmod go-w {0}`",
                printable(self.path.display())
            )));
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The wanted names, in order. Listed by path, which may have been redirected meanwhile: then
    /// they are names that do not exist here.
    pub(super) fn names(&self, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if is_wanted(&name.to_string_lossy()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Creates a file that no other process can open.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        files::open_at(&self.handle, name, flags, 0o600)
    }

    /// Opens a file that another process made.
    pub(super) fn open_file(&self, name: &OsStr, access: Access) -> io::Result<File> {
        let mode = if access == Access::Read { libc::O_RDONLY } else { libc::O_RDWR };
        let file = files::open_at(&self.handle, name, mode | UNKNOWN, 0)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(file)
    }

    /// The metadata of a name, without opening it: of a link itself, or of a file that we may not
    /// open.
    pub(super) fn facts(&self, name: &OsStr) -> io::Result<Metadata> {
        files::open_at(&self.handle, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?.metadata()
    }

    /// Gives the file `from` another name that is free.
    pub(super) fn link(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        files::link_at(&self.handle, from, to)
    }

    /// Removes a name if it still names `file`; returns whether it did. Between the check and the
    /// removal only the directory's owner, the file's owner and root can assign the name to another
    /// file.
    pub(super) fn remove(&self, name: &OsStr, file: &File) -> bool {
        let id = |facts: Metadata| (facts.dev(), facts.ino());
        let named = self.facts(name).map(id);
        named.is_ok_and(|named| file.metadata().is_ok_and(|facts| id(facts) == named))
            && files::unlink_at(&self.handle, name).is_ok()
    }
}

fn make(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    DirBuilder::new().mode(0o755).create(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// The id of a user that is neither root nor the user of the tests.
    const SOMEBODY: u32 = 4_711;

    fn refused(path: &Path, says: &[&str]) {
        let error = Directory::open_for_files(path, Path::new("/nonexistent")).unwrap_err().to_string();
        says.iter().for_each(|part| assert!(error.contains(part), "no {part:?} in: {error}"));
    }

    fn is_root() -> bool {
        let is_root = process::effective_user() == ROOT;
        if !is_root {
            println!("SKIPPED: only root can give files to others");
        }
        is_root
    }

    fn mode_of(path: &Path) -> (u32, u32) {
        let facts = fs::metadata(path).unwrap();
        (facts.uid(), facts.mode() & 0o7777)
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn directory_of_another_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        if is_root() {
            chown(directory.path(), Some(SOMEBODY), None).unwrap();
            refused(directory.path(), &["belongs to user 4711", "`chown root "]);
            // Reading is permitted: each file shows its owner.
            Directory::open(directory.path()).unwrap();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn directory_where_others_may_replace_files_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let set = |mode| fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        for mode in [0o777, 0o770, 0o702] {
            set(mode);
            refused(directory.path(), &["others may write there", "`chmod +t "]);
        }
        for mode in [0o1777, 0o1770, 0o755, 0o700] {
            set(mode);
            Directory::open_for_files(directory.path(), Path::new("/nonexistent")).unwrap();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn directory_that_is_a_link_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        refused(&link, &["symbolic link"]);
        refused(&link.join(""), &["symbolic link"]);
        assert!(Directory::open(&link).unwrap_err().to_string().contains("symbolic link"));
        symlink(directory.path().join("nowhere"), directory.path().join("dangling")).unwrap();
        refused(&directory.path().join("dangling"), &["symbolic link"]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn common_directory_is_open_to_all_and_sticky() {
        let directory = tempfile::tempdir().unwrap();
        let common = directory.path().join("common");
        Directory::open_for_files(&common, &common).unwrap();
        assert_eq!(mode_of(&common), (process::effective_user(), 0o1777));
        // An existing directory keeps the mode that its owner gave it.
        fs::set_permissions(&common, Permissions::from_mode(0o700)).unwrap();
        Directory::open_for_files(&common, &common).unwrap();
        assert_eq!(mode_of(&common).1, 0o700);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn common_directory_that_another_user_made_first_is_taken_over_by_root() {
        let common = tempfile::tempdir().unwrap();
        if is_root() {
            chown(common.path(), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
            Directory::open_for_files(common.path(), common.path()).unwrap();
            assert_eq!(mode_of(common.path()), (ROOT, 0o1777));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn name_that_has_become_another_files_is_not_removed() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::open(path.path()).unwrap();
        let ours = directory.create("ours".as_ref()).unwrap();
        fs::rename(path.path().join("ours"), path.path().join("moved")).unwrap();
        fs::write(path.path().join("ours"), "another's").unwrap();
        assert!(!directory.remove("ours".as_ref(), &ours));
        assert!(directory.remove("moved".as_ref(), &ours));
        assert_eq!(directory.names(|_| true).unwrap(), ["ours"]);
    }
}
