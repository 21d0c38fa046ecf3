//! The thread that writes the journal's pages to the disk: again and again, or when it is asked to.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wirepath::worker::affinity::spawn_helper;

use crate::memory::SyncPolicy;

/// The time between two syncs: what a power cut takes at most.
const PAUSE: Duration = Duration::from_millis(100);

/// The hot core's end. The thread lives as long as the process, or until the disk fails: what the
/// kernel could not write it takes for written from then on, so a later sync says nothing.
#[derive(Clone, Debug)]
pub struct JournalSync {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Shared {
    has_failed: AtomicBool,
    /// Somebody has asked since the last sync began.
    is_due: AtomicBool,
}

impl JournalSync {
    /// Starts the thread for `file`: with [`SyncPolicy::Timed`] it syncs ten times a second, with
    /// others when it is asked to.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(file: File, policy: SyncPolicy) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let is_timed = policy == SyncPolicy::Timed;
        let sync = move || {
            loop {
                let is_due = theirs.is_due.swap(false, Ordering::AcqRel) || is_timed;
                if is_due && file.sync_data().is_err() {
                    break;
                }
                if is_timed { thread::park_timeout(PAUSE) } else { thread::park() }
            }
            theirs.has_failed.store(true, Ordering::Release);
        };
        let thread = spawn_helper(thread::Builder::new().name("sync".into()), sync)?.thread().clone();
        Ok(Self { shared, thread })
    }

    /// Has all that is in the journal on the disk soon. It does not wait for that: a system call at
    /// most, for what is rare.
    pub fn request(&self) {
        self.shared.is_due.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Whether the disk failed: nothing is written since. One load.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }
}
