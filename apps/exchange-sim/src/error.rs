//! Why a run failed, in words for the user.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use market::truth::TRUTH_HINT;
use wirepath::device::pcap;

use crate::settings::SettingsError;

/// The error of a run.
#[derive(Debug)]
pub enum Error {
    /// Invalid settings: a usage error.
    Settings(SettingsError),
    /// A file cannot be read or written.
    File {
        /// `read`, `write` or `replace`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The directory of an output does not exist.
    NoDirectory {
        /// The output.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// The capture cannot be written.
    Capture(pcap::Error),
    /// A truth file does not parse, or its sums do not hold.
    Truth {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        why: String,
    },
    /// A named interface has no address to send from.
    Interface {
        /// Its name.
        name: String,
        /// The error, and a remedy.
        why: String,
    },
    /// The system refuses something that publishing needs besides sockets: signal handlers, a
    /// thread.
    System(String),
    /// A socket cannot be set up, or a send fails.
    Socket {
        /// The operation.
        what: String,
        /// The system's error.
        error: io::Error,
    },
}

impl Error {
    pub(crate) fn io(verb: &'static str, path: &Path, error: io::Error) -> Self {
        Self::File { verb, path: path.into(), error }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) => error.fmt(f),
            Self::File { verb: "read", path, error } => {
                write!(f, "cannot read {}: {error}; {TRUTH_HINT}", path.display())
            }
            Self::File { verb, path, error } => {
                write!(f, "cannot {verb} {}: {error}; check the folder, its permissions and its space", path.display())
            }
            Self::NoDirectory { path, directory } => write!(
                f,
                "cannot create {}: there is no directory {}; create it or choose another file",
                path.display(),
                directory.display()
            ),
            Self::Capture(error) => error.fmt(f),
            Self::Truth { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Interface { name, why } => write!(f, "cannot send from interface {name}: {why}"),
            Self::System(why) => f.write_str(why),
            Self::Socket { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}

/// Checks an output's directory before the work, not after it.
pub fn check_directory(path: &Path) -> Result<(), Error> {
    let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) else { return Ok(()) };
    if directory.is_dir() {
        return Ok(());
    }
    Err(Error::NoDirectory { path: path.into(), directory: directory.into() })
}
