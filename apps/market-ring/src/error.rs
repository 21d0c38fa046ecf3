//! Why a ring could not be made or opened.

use std::path::{Path, PathBuf};
use std::{error, fmt, io};

/// A ring that could not be made or opened: its file and the problem.
#[derive(Debug)]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: OpenProblem,
}

/// See [`OpenError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenProblem {
    /// There is no such file: its writer has not started, or has ended.
    NoWriter,
    /// Another process writes the ring now.
    InUse,
    /// The file is none of ours, or was cut.
    NotARing,
    /// The writer is of another version, which is given.
    Version(u64),
    /// More records or quotes were asked for than a ring has.
    TooLarge,
    /// The operating system's error, and what was done.
    Io(&'static str, io::Error),
}

impl OpenError {
    pub(crate) fn new(path: &Path, problem: OpenProblem) -> Self {
        Self { path: path.to_owned(), problem }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            OpenProblem::NoWriter => write!(f, "{path}: there is no ring; start its publisher, then open it"),
            OpenProblem::InUse => write!(f, "{path}: another process writes this ring; end it or choose another path"),
            OpenProblem::NotARing => {
                write!(f, "{path}: this is no ring of wirepath, or it was cut; name the file of a publisher")
            }
            OpenProblem::Version(version) => {
                write!(f, "{path}: its publisher writes version {version}, and this program reads version 1; ")?;
                f.write_str("build both from one release")
            }
            OpenProblem::TooLarge => {
                write!(f, "{path}: a ring has at most 2^30 records and 2^22 quotes; configure fewer")
            }
            OpenProblem::Io(what, error) => {
                write!(f, "{path}: {what}: {error}")?;
                let full = error.kind() == io::ErrorKind::StorageFull;
                f.write_str(if full { "; configure fewer records, or make the file system larger" } else { "" })
            }
        }
    }
}

impl error::Error for OpenError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.problem {
            OpenProblem::Io(_, error) => Some(error),
            _ => None,
        }
    }
}
