//! What the model counted, in each process of the command, printed at the end: also of one that was killed.

use std::fs;
use std::path::{Path, PathBuf};

use super::Failure;

/// A directory in which the preload library leaves a file for each process and device, as text.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("softhca-{}", std::process::id()));
        let made = fs::create_dir_all(&path);
        made.map_err(|error| Failure::new(format!("no directory for counters, {}: {error}", path.display())))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn print(&self) {
        let mut files: Vec<_> = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|file| file.path()).collect();
        files.sort();
        for text in files.iter().filter_map(|file| fs::read(file).ok()) {
            // The file is as long as its mapping: what follows the text is zeros.
            eprint!("{}", String::from_utf8_lossy(&text).trim_end_matches('\0'));
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // In the temporary directory of a machine, what is left is the machine's to tidy.
        let _ = fs::remove_dir_all(&self.0);
    }
}
