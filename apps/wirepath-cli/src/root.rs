//! The machine's files: /sys and /proc of this machine, or a made-up tree below another directory.
//!
//! `None` means that the kernel does not report it: the file is absent, unreadable or not a number.
//! The caller decides how to treat it.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The root of the files.
#[derive(Clone, Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// This machine, or the tree below `directory`.
    pub(crate) fn new(directory: Option<&Path>) -> Self {
        Self(directory.unwrap_or(Path::new("/")).to_owned())
    }

    /// The path of `name`, which has no leading slash.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Whether there is such a file or folder.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// The whole file, without white space around it.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        let bytes = fs::read(self.path(name)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that is all of a file.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.read(name)?.parse().ok()
    }

    /// The names in a folder, in order; an absent folder has none.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_cached_key(|name| natural(name));
        names
    }

    /// The last part of a link's target: a device's driver, an interface's bridge. In a made-up
    /// tree a file with the name in it works as well.
    pub(crate) fn link_name(&self, name: &str) -> Option<String> {
        match fs::read_link(self.path(name)) {
            Ok(target) => Some(target.file_name()?.to_string_lossy().into_owned()),
            Err(_) => self.read(name),
        }
    }
}

/// `eth2` before `eth10`: the number at the end counts as one.
fn natural(name: &str) -> (String, u64) {
    let letters = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (letters.to_owned(), name[letters.len()..].parse().unwrap_or(0))
}
