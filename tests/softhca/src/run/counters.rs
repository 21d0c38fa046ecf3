//! The model's counters in each process of the command, printed at the end, even those of a killed
//! process.

use std::fs;
use std::path::{Path, PathBuf};

use super::Failure;

/// The prefix of their names; the process follows.
const PREFIX: &str = "softhca-counters-";

/// A directory in which the preload library leaves a file for each process and device, as text.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Result<Self, Failure> {
        remove_those_of_the_dead();
        let path = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
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
            // The file is as long as its mapping: zeros follow the text.
            eprint!("{}", String::from_utf8_lossy(&text).trim_end_matches('\0'));
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Where it cannot be removed now, the next one removes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the files of processes that were killed.
fn remove_those_of_the_dead() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not() {
        // More than the kernel's PID_MAX_LIMIT, and the first process.
        let [dead, living] = ["4999999", "1"].map(|pid| std::env::temp_dir().join(format!("{PREFIX}{pid}")));
        fs::create_dir_all(&dead).unwrap();
        fs::create_dir_all(&living).unwrap();
        let own = Directory::new().unwrap();
        let found = (dead.exists(), living.exists(), own.path().exists());
        fs::remove_dir(living).unwrap();
        assert_eq!(found, (false, true, true));
    }
}
