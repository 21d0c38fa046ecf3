//! The errors in a file of rules.

use core::fmt;
use std::path::PathBuf;

use wirepath::counters::printable;

/// An error in a file of rules: one sentence with the file and the next step.
#[derive(Debug)]
#[non_exhaustive]
pub enum RulesError {
    /// The file cannot be read.
    Unreadable {
        /// The path as it was given.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// It is neither a file nor a pipe that the program has inherited: a device, a socket, a FIFO
    /// that has a name.
    NoFile {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file is longer than a file of rules is.
    TooLong {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The text is not valid in a file of rules.
    Invalid {
        /// The file's name as given.
        file: String,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// The expected text, and the text found.
        what: String,
    },
}

/// Bytes of the longest file: some 20,000 rules. The limit keeps a device or a log that was named
/// by mistake from filling the memory.
pub(super) const LEN_MAX: u64 = 1 << 20;

impl RulesError {
    /// An error at the byte `at` of `text`.
    pub(super) fn at(file: &str, text: &str, at: usize, what: impl fmt::Display) -> Self {
        let before = &text[..text.floor_char_boundary(at)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        Self::Invalid { file: file.to_owned(), line, column, what: what.to_string() }
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "cannot read the rules {}: {error}; check the path", printable(path.display()))
            }
            Self::NoFile { path } => {
                write!(
                    f,
                    "{} is neither a file nor a pipe of the shell's, such as <(...), and is not waited for: write the \
                     rules to a file",
                    printable(path.display())
                )
            }
            Self::TooLong { path } => {
                write!(
                    f,
                    "{} is longer than 1 MiB, which no file of rules is: check the path",
                    printable(path.display())
                )
            }
            Self::Invalid { file, line, column, what } => {
                write!(f, "{} line {line}, column {column}: {}", printable(file), printable(what))
            }
        }
    }
}

impl std::error::Error for RulesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => Some(error),
            _ => None,
        }
    }
}
