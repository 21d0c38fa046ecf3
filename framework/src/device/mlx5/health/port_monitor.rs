//! The port monitor: a thread that checks the port as long as it is open, so that no worker has to.
//! Ten times a second it reads the pending events and the count of frames without a buffer
//! (`watch.rs`). It runs where helper threads do (`worker::affinity::place_helpers`); without that
//! it inherits the affinity of the thread that opened the device: open the device before pinning,
//! otherwise the monitor shares a worker's core.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::watch::{Source, Watch};
use crate::sys::helper;

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Checks after which the port is queried even without an event, because an event may have been
/// lost: 10 s.
const ASK_EVERY: u32 = 100;

/// The monitoring thread. Dropping this ends it.
pub(crate) struct PortMonitor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortMonitor {
    /// Starts monitoring the port of this device.
    pub(crate) fn start<S>(device: &str, watch: Arc<Watch<S>>) -> io::Result<Self>
    where
        S: Source + Send + Sync + 'static,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        // Thread names have at most 15 bytes.
        let name: String = format!("wirepath-{device}").chars().take(15).collect();
        let thread = helper::spawn(thread::Builder::new().name(name), move || run(&watch, &stopping))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for PortMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread does not panic, and if it did the port would close nevertheless.
            let _ = thread.join();
        }
    }
}

fn run<S: Source>(watch: &Watch<S>, stop: &AtomicBool) {
    for look in 1u32.. {
        thread::park_timeout(LOOK_EVERY);
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if look.is_multiple_of(ASK_EVERY) { watch.ask() } else { watch.look() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::sync::mpsc;

    use rdma_core_sys::verbs::{AsyncEvent, PortState, VerbsError};

    use super::*;

    /// Reports the thread that asks for events.
    struct Port(mpsc::SyncSender<Option<String>>);

    impl Source for Port {
        fn next_event(&self) -> Result<Option<AsyncEvent>, VerbsError> {
            let _ = self.0.try_send(thread::current().name().map(str::to_owned));
            Ok(None)
        }

        fn port_state(&self, _port: u8) -> Result<PortState, VerbsError> {
            Ok(PortState::Active)
        }

        fn is_listed(&self) -> bool {
            true
        }
    }

    #[test]
    fn thread_of_the_port_looks_and_has_ended_with_it() {
        let (sender, asked) = mpsc::sync_channel(1);
        let watch = Arc::new(Watch::new(Port(sender), 1, None));
        asked.recv().unwrap();
        let port_monitor = PortMonitor::start("mlx5_bond_0", Arc::clone(&watch)).unwrap();
        assert_eq!(asked.recv().unwrap().as_deref(), Some("wirepath-mlx5_b"));
        drop(port_monitor);
        assert_eq!(Arc::strong_count(&watch), 1, "the thread has it no more");
    }
}
