//! The path at which a broker listens.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::BrokerError;
use crate::device::broker::sys;
use crate::sys::process;

/// A listening socket. Dropping it removes its file.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    path: PathBuf,
}

/// The folder is writable for group or others, so another user could replace the socket's file.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Every user may connect: the broker checks the user of each connection.
const OPEN_TO_ALL: u32 = 0o666;

impl Listener {
    /// Listens at `path`. Creates the folder if it is missing, and replaces the socket of a broker
    /// that has ended.
    pub(super) fn open(path: &Path) -> Result<Self, BrokerError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let failed = |what: &str, error: &io::Error| {
            BrokerError(format!("{what} {} failed ({error}): name another path with --socket", path.display()))
        };
        match DirBuilder::new().mode(0o755).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("making the folder of", &error));
            }
            Ok(()) | Err(_) => (),
        }
        check_folder(folder)?;
        remove_stale(path)?;
        let socket = sys::listen(path).map_err(|error| failed("listening at", &error))?;
        let listener = Self { socket, path: path.into() };
        fs::set_permissions(path, Permissions::from_mode(OPEN_TO_ALL))
            .map_err(|error| failed("opening to all users", &error))?;
        Ok(listener)
    }
}

/// Refuses a folder in which another user could put a socket in the place of ours.
fn check_folder(folder: &Path) -> Result<(), BrokerError> {
    let shown = folder.display();
    let found = fs::metadata(folder).map_err(|error| BrokerError(format!("{shown} cannot be read ({error})")))?;
    let is_ours = found.uid() == 0 || found.uid() == process::effective_user();
    let is_safe = found.mode() & OTHERS_WRITE == 0 || found.mode() & STICKY != 0;
    match is_ours && is_safe {
        true => Ok(()),
        false => Err(BrokerError(format!(
            "other users may replace files in {shown}, and so the broker's socket: `chown root {shown}; chmod 755 {shown}`, \
             or name another path with --socket"
        ))),
    }
}

/// Removes the socket of a broker that has ended.
fn remove_stale(path: &Path) -> Result<(), BrokerError> {
    let shown = path.display();
    match sys::connect(path, Duration::from_secs(1)) {
        Ok(_) => Err(BrokerError(format!("another broker listens at {shown}: stop it, or use it"))),
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) && is_socket(path) => fs::remove_file(path)
            .map_err(|error| {
                BrokerError(format!("the socket of an ended broker, {shown}, cannot be removed ({error})"))
            }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(BrokerError(format!(
            "{shown} is there and no broker's socket ({error}): remove it, or name another path with --socket"
        ))),
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

impl Drop for Listener {
    fn drop(&mut self) {
        // If the file was already removed, nothing remains to be done.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broker_takes_the_place_of_an_ended_one_and_of_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/eth1.sock");
        let first = Listener::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, OPEN_TO_ALL);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & OTHERS_WRITE, 0);
        let refused = Listener::open(&path).unwrap_err().to_string();
        assert!(refused.contains("another broker listens at"), "{refused}");
        drop(first);
        assert!(!path.exists());
        // What kill -9 leaves.
        drop(sys::listen(&path).unwrap());
        assert!(path.exists(), "a socket that nobody listens at");
        Listener::open(&path).unwrap();
    }

    #[test]
    fn file_that_is_no_socket_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "mine").unwrap();
        let refused = Listener::open(&path).unwrap_err().to_string();
        assert!(refused.contains("no broker's socket"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn folder_where_others_may_replace_the_socket_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        let refused = Listener::open(&directory.path().join("eth1.sock")).unwrap_err().to_string();
        assert!(refused.contains("other users may replace files in"), "{refused}");
    }
}
