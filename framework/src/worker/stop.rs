//! A clean stop: the first SIGINT or SIGTERM requests it, a later one ends the process.
//!
//! The first signal, or a call of [`StopFlag::stop`] from any thread, sets a flag. Workers check it
//! every few hundred polls and leave their loop in order: queues drained, counters whole, devices
//! closed. A signal that comes later than [`GRACE`] after the first ends the process at once with
//! the status that a shell expects (130 for SIGINT, 143 for SIGTERM), in case a worker hangs.
//!
//! ```text
//!  first signal ─▶ stopping, and a byte to a thread that sleeps ─ GRACE ─▶ armed
//!  next signal  ─▶ armed? the process exits : ignored
//! ```

use std::io::{self, PipeReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use crate::sys::helper;

/// Signals this soon after the first are the same request: `timeout` sends its signal to the
/// process and then to its group, and Ctrl-C reaches it from the terminal and from a parent that
/// forwards it. The limit is well above the time between those two, and below the time that a
/// person takes to press Ctrl-C again.
const GRACE: Duration = Duration::from_millis(500);

/// The thread that waits for the first signal sleeps and stores a flag: the least that the
/// platform allows for a stack would do.
const STACK_LEN: usize = 64 * 1024;

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
    /// from then on only a second signal of the two ends the process, and only if it comes 500 ms
    /// or more after the first: `timeout` sends its signal twice.
    pub fn on_signals() -> Result<Self, StopError> {
        Self::on_signals_with(GRACE).map(|(stop, _)| stop)
    }

    /// Returns the flag, and whether the next signal ends the process.
    fn on_signals_with(grace: Duration) -> Result<(Self, Arc<AtomicBool>), StopError> {
        let stop = Self::new();
        // Signals alone arm it: after a `stop` by the program, the first Ctrl-C still requests a
        // clean stop.
        let armed = Arc::new(AtomicBool::new(false));
        let failed = |signal| move |source| StopError { signal, source };
        let (first, signaled) = io::pipe().map_err(failed(SIGINT))?;
        for signal in [SIGINT, SIGTERM] {
            let signaled = signaled.try_clone().map_err(failed(signal))?;
            stop.register(signal, &armed, signaled).map_err(failed(signal))?;
        }
        arm_after(first, grace, Arc::clone(&armed)).map_err(failed(SIGINT))?;
        Ok((stop, armed))
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

    fn register(&self, signal: i32, armed: &Arc<AtomicBool>, signaled: io::PipeWriter) -> io::Result<()> {
        // 128 + signal is what a shell reports for a process that the signal killed.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(armed))?;
        flag::register(signal, Arc::clone(&self.stopping))?;
        pipe::register(signal, signaled)?;
        Ok(())
    }
}

/// Starts the thread that waits for the first signal and arms the exit `grace` later. A handler
/// itself has no clock.
fn arm_after(mut first: PipeReader, grace: Duration, armed: Arc<AtomicBool>) -> io::Result<()> {
    let thread = thread::Builder::new().name("signals".into()).stack_size(STACK_LEN);
    helper::spawn(thread, move || {
        // The handlers keep the other end for as long as the process lives, so this reads a byte or
        // waits.
        if first.read_exact(&mut [0]).is_ok() {
            thread::sleep(grace);
            armed.store(true, Ordering::Release);
        }
    })?;
    Ok(())
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

    /// `int` and `term` are signals, `stop` is a call. With `later` in it the grace is over at
    /// once, and it waits until the exit is armed; without, the grace is longer than the test.
    #[test]
    fn scene_in_a_process_of_its_own() {
        let Ok(scene) = std::env::var(SCENE) else { return };
        let grace = if scene.contains("later") { Duration::ZERO } else { Duration::from_secs(3_600) };
        let (stop, armed) = StopFlag::on_signals_with(grace).unwrap();
        assert!(!stop.is_stopping());
        for event in scene.split(' ') {
            match event {
                "int" => raise(SIGINT).unwrap(),
                "term" => raise(SIGTERM).unwrap(),
                "later" => {
                    while !armed.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                }
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
        assert_eq!(play("int later int").code(), Some(130));
        assert_eq!(play("term later term").code(), Some(143));
        assert_eq!(play("int later term").code(), Some(143));
    }

    #[test]
    fn second_signal_right_after_the_first_is_the_same_request() {
        assert_eq!(play("int int").code(), Some(LEFT_IN_ORDER));
        assert_eq!(play("int term int").code(), Some(LEFT_IN_ORDER));
    }

    #[test]
    fn first_signal_asks() {
        assert_eq!(play("int").code(), Some(LEFT_IN_ORDER));
        assert_eq!(play("term").code(), Some(LEFT_IN_ORDER));
    }

    #[test]
    fn first_signal_after_a_stop_by_the_program_still_asks() {
        assert_eq!(play("stop int").code(), Some(LEFT_IN_ORDER));
        assert_eq!(play("stop int later int").code(), Some(130));
    }

    #[test]
    fn stop_is_seen_by_another_thread() {
        let stop = StopFlag::new();
        let seen = stop.clone();
        let worker = thread::spawn(move || {
            while !seen.is_stopping() {
                thread::yield_now();
            }
        });
        stop.stop();
        worker.join().unwrap();
    }
}
