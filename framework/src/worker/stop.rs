//! A clean stop: the first SIGINT or SIGTERM requests it, the second ends the process.
//!
//! The first signal, or a call of [`StopFlag::stop`] from any thread, sets a flag. Workers check it
//! every few hundred polls and leave their loop in order: queues drained, counters whole, devices
//! closed. A second signal ends the process at once with the status that a shell expects (130 for
//! SIGINT, 143 for SIGTERM), in case a worker hangs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The stop flag. Clones share it. A check is one load of a cache line that hardly ever changes.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    stopping: Arc<AtomicBool>,
}

impl StopFlag {
    /// A flag that only [`stop`](Self::stop) sets: for tests, or an engine that handles signals
    /// itself.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag that SIGINT and SIGTERM set too. Call it once per process, before the workers start;
    /// from then on only a second signal of the two ends the process.
    pub fn on_signals() -> Result<Self, StopError> {
        let stop = Self::new();
        // Counts signals only: after a `stop` by the program, the first Ctrl-C still requests a
        // clean stop.
        let signalled = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            stop.register(signal, &signalled).map_err(|source| StopError { signal, source })?;
        }
        Ok(stop)
    }

    /// Requests a stop from every holder of this flag. May be called from any thread, any number of
    /// times.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether a stop was requested. It never becomes false again.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Actions of a signal run in the order of their registration: the exit is registered before
    /// the mark that arms it, so that only the second signal finds it armed.
    fn register(&self, signal: i32, signalled: &Arc<AtomicBool>) -> io::Result<()> {
        // 128 + signal is what a shell reports for a process that the signal killed.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(signalled))?;
        flag::register(signal, Arc::clone(signalled))?;
        flag::register(signal, Arc::clone(&self.stopping))?;
        Ok(())
    }
}

/// The kernel refused a signal handler.
#[derive(Debug)]
pub struct StopError {
    signal: i32,
    source: io::Error,
}

impl std::fmt::Display for StopError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "cannot handle signal {} for a clean stop: {}; look for a seccomp profile that forbids sigaction",
            self.signal, self.source
        )
    }
}

impl std::error::Error for StopError {}

#[cfg(test)]
mod tests {
    use std::process::{Command, ExitStatus, Stdio};

    use signal_hook::low_level::raise;

    use super::*;

    /// Names the scene that `scene_in_a_process_of_its_own` plays; in this process its signals
    /// would hit every other test.
    const SCENE: &str = "WIREPATH_STOP_SCENE";
    const LEFT_IN_ORDER: i32 = 7;

    #[test]
    fn scene_in_a_process_of_its_own() {
        let Ok(scene) = std::env::var(SCENE) else { return };
        let stop = StopFlag::on_signals().unwrap();
        assert!(!stop.is_stopping());
        for event in scene.split(' ') {
            match event {
                "int" => raise(SIGINT).unwrap(),
                "term" => raise(SIGTERM).unwrap(),
                _ => stop.stop(),
            }
        }
        assert!(stop.is_stopping());
        std::process::exit(LEFT_IN_ORDER);
    }

    fn play(scene: &str) -> ExitStatus {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker::stop::tests::scene_in_a_process_of_its_own"])
            .env(SCENE, scene)
            .stdout(Stdio::null())
            .status()
            .unwrap()
    }

    #[test]
    fn second_signal_exits_at_once_with_the_status_a_shell_expects() {
        assert_eq!(play("int int").code(), Some(130));
        assert_eq!(play("term term").code(), Some(143));
        assert_eq!(play("int term").code(), Some(143));
    }

    #[test]
    fn first_signal_asks() {
        assert_eq!(play("int").code(), Some(LEFT_IN_ORDER));
        assert_eq!(play("term").code(), Some(LEFT_IN_ORDER));
    }

    #[test]
    fn first_signal_after_a_stop_by_the_program_still_asks() {
        assert_eq!(play("stop int").code(), Some(LEFT_IN_ORDER));
        assert_eq!(play("stop int int").code(), Some(130));
    }

    #[test]
    fn stop_is_seen_by_another_thread() {
        let stop = StopFlag::new();
        let seen = stop.clone();
        let worker = std::thread::spawn(move || {
            while !seen.is_stopping() {
                std::thread::yield_now();
            }
        });
        stop.stop();
        worker.join().unwrap();
    }
}
