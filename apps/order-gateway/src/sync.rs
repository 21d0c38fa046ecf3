//! The thread that writes the journal's pages to the disk, again and again.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The time between two syncs: what a power cut takes at most.
const PAUSE: Duration = Duration::from_millis(100);

/// The hot core's end. The thread lives as long as the process, or until the disk fails: what the
/// kernel could not write it takes for written from then on, so a later sync says nothing.
#[derive(Clone, Debug)]
pub struct TimedSync {
    has_failed: Arc<AtomicBool>,
}

impl TimedSync {
    /// Starts the thread for `file`.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(file: File) -> io::Result<Self> {
        let has_failed = Arc::new(AtomicBool::new(false));
        let failed = Arc::clone(&has_failed);
        let sync = move || {
            while file.sync_data().is_ok() {
                thread::sleep(PAUSE);
            }
            failed.store(true, Ordering::Release);
        };
        thread::Builder::new().name("sync".into()).spawn(sync)?;
        Ok(Self { has_failed })
    }

    /// Whether the disk failed: nothing is written since. One load.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }
}
