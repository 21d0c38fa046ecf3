//! Shared files that clients leave when they are killed: counters, listings, taps. The next program
//! of the same user removes them, and there may be none. So the broker, which may remove any
//! user's, has a thread for it: another user can fill the directory, which then takes long to read.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::counters::{FOUND_BY_GUARDIAN, default_directory, remove_left_by};

/// Ended clients whose files may wait. Those of further ones are left.
const WAITING_MAX: usize = 256;

/// Removes what ended clients have left, once guardians have had time to read it.
pub(super) struct Leftovers {
    directory: PathBuf,
    after: Duration,
    queue: Option<SyncSender<Ended>>,
}

/// A client that has ended.
struct Ended {
    pid: u32,
    uid: u32,
    at: Instant,
}

impl Leftovers {
    pub(super) fn new() -> Self {
        Self::of(default_directory(), FOUND_BY_GUARDIAN)
    }

    fn of(directory: PathBuf, after: Duration) -> Self {
        Self { directory, after, queue: None }
    }

    /// Has the files of a client removed that has ended. Those of a process that lives stay.
    pub(super) fn remove_later(&mut self, pid: u32, uid: u32) {
        if self.queue.is_none() {
            let (queue, waiting) = sync_channel(WAITING_MAX);
            let (directory, after) = (self.directory.clone(), self.after);
            let remover = thread::Builder::new().name("wirepath-files".into());
            // Without a thread the next client that ends tries again.
            let started = remover.spawn(move || remove_all(&waiting, &directory, after));
            self.queue = started.is_ok().then_some(queue);
        }
        if let Some(queue) = &self.queue {
            let _ = queue.try_send(Ended { pid, uid, at: Instant::now() });
        }
    }
}

/// Until the broker is dropped.
fn remove_all(waiting: &Receiver<Ended>, directory: &Path, after: Duration) {
    while let Ok(Ended { pid, uid, at }) = waiting.recv() {
        thread::sleep(after.saturating_sub(at.elapsed()));
        // Where that fails, they stay until the next program of their user starts.
        let _ = remove_left_by(directory, pid, None, |user| user == uid);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn files_of_an_ended_client_are_removed_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, b"wirepath").unwrap();
            path
        };
        let [its, of_another] = ["test.7.counters", "test.8.counters"].map(file);
        let uid = fs::metadata(&its).unwrap().uid();
        let mut leftovers = Leftovers::of(directory.path().into(), Duration::ZERO);
        leftovers.remove_later(8, uid + 1);
        leftovers.remove_later(7, uid);
        while its.exists() {
            thread::yield_now();
        }
        assert!(of_another.exists());
    }
}
