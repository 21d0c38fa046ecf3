//! Scripts for the TCP machine: segments that arrive, segments that must leave, and calls of the
//! app, in virtual time. `docs/tcp-scripts.md` is the grammar.
//!
//! ```text
//!   text ──parse──▶ lines ──play──▶ stage: machine, wire, app ──▶ expect ──▶ a fact that holds, or the line where it does not
//! ```
//!
//! A script is parsed as a whole before it is played, so a misspelt line is reported whatever would
//! have happened before it.

mod app;
mod expect;
mod expression;
mod line;
mod options;
mod parse;
mod play;
mod segment;
mod stage;
pub(crate) mod wire;

use core::fmt;
use std::path::{Path, PathBuf};

pub(crate) use wire::{Bytes, SentSegment, Wire};

/// Where the scripts lie.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// A line that cannot be parsed, or whose expectation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Counted from 1.
    pub line: usize,
    /// The unchanged line.
    pub text: String,
    /// The error in the line, or the actual segment.
    pub what: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    {}", self.line, self.text, self.what.replace('\n', "\n    "))
    }
}

/// Reads and plays a script.
pub fn run(script: &str) -> Result<(), ScriptError> {
    play::play(&parse::parse(script)?)
}

/// All scripts of a folder and those below it, by the fact that each proves: names without `.pkt`,
/// sorted.
pub fn find(folder: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(find(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
            found.push((name.unwrap_or_default(), path));
        }
    }
    found.sort();
    Ok(found)
}
