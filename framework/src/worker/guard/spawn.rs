//! A guardian for the own process: the application's binary, started once more.
//!
//! ```no_run
//! use wirepath::worker::guard;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     guard::serve_if_spawned(); // before anything else: does not return in the guardian
//!     let _guard = guard::spawn()?; // before threads are pinned, and while the process may still do so
//!     // ... the application
//!     Ok(())
//! }
//! ```

use core::time::Duration;
use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::guardian::{Guardian, Target};
use super::socket::{self, ANY_INTERFACE, PacketSocket};
use crate::counters::{default_directory, is_privileged};

/// The name of the spawned process, before the pid that it guards.
const NAME: &str = "wirepath-guardian";
/// The line it prints when it is ready.
const READY: &str = "wirepath guard: ready";
/// Any process starts faster than this; one that prints nothing within it is not our guardian.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// A guardian of this process. It exits after the process has ended; dropping this value does not
/// stop it.
#[derive(Debug)]
pub struct Guard {
    child: Child,
}

impl Guard {
    /// The guardian's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs. If it was killed, the application may [`spawn`] another.
    pub fn is_there(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// Starts a guardian for this process and waits until it is ready. It inherits the CPUs and the
/// priority of the calling thread: call it before threads are pinned. It runs in a separate process
/// group, which Ctrl-C does not reach. It ignores the signals that ask a process to end, because
/// those are for the application; it exits after the application.
///
/// # Errors
/// The guardian cannot be started, this process may not send frames, or the program does not call
/// [`serve_if_spawned`] first.
pub fn spawn() -> io::Result<Guard> {
    if guarded_pid().is_some() {
        return Err(io::Error::other(
            "a guardian cannot start another guardian: call guard::serve_if_spawned first in main",
        ));
    }
    // The socket shows that the guardian can send and that we are allowed to: see `may_ask`.
    let right = PacketSocket::open(ANY_INTERFACE).map_err(|error| {
        io::Error::new(error.kind(), format!("no guardian could send frames: {error}; it needs CAP_NET_RAW"))
    })?;
    let mut child = Command::new("/proc/self/exe")
        .arg0(format!("{NAME} {}", std::process::id()))
        .process_group(0)
        .stdin(right.into_fd())
        .stdout(Stdio::piped())
        .spawn()?;
    match has_come(&mut child) {
        true => Ok(Guard { child }),
        false => {
            let _ = child.kill();
            let _ = child.wait();
            Err(io::Error::other(
                "the guardian did not start: call guard::serve_if_spawned first of all in main, and see what it said above",
            ))
        }
    }
}

fn has_come(child: &mut Child) -> bool {
    let Some(pipe) = child.stdout.take() else { return false };
    let (ready, is_ready) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(pipe).read_line(&mut line);
        // The waiting thread has given up.
        let _ = ready.send(read.is_ok() && line.trim_end() == READY);
    });
    is_ready.recv_timeout(READY_TIMEOUT).unwrap_or(false)
}

/// In a process started by [`spawn`]: guards, and exits. In any other process: does nothing.
pub fn serve_if_spawned() {
    let Some(pid) = guarded_pid() else { return };
    let code = match serve(pid) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("wirepath guard: {error}");
            1
        }
    };
    std::process::exit(code);
}

/// The process that this one was started to guard.
fn guarded_pid() -> Option<u32> {
    let name = env::args_os().next()?;
    name.to_str()?.strip_prefix(NAME)?.strip_prefix(' ')?.parse().ok()
}

fn serve(pid: u32) -> Result<(), Box<dyn core::error::Error>> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    may_ask(pid)?;
    let guardian = Guardian::new(&default_directory(), &Target::Pid(pid))?;
    writeln!(io::stdout(), "{READY}")?;
    guardian.watch(|report| eprintln!("wirepath guard: {report}"))?;
    Ok(())
}

/// Whether our parent may have us guard that process: it must be the process itself, and if our
/// executable gives privileges (setuid, capabilities), it must have had the right to send any frame
/// already. Any user can start such an executable under any name; the packet socket we inherit can
/// come only from a process with that right.
fn may_ask(pid: u32) -> io::Result<()> {
    if parent_id() != pid {
        return Err(io::Error::other(format!("process {pid} has ended, or is not the one that started this guardian")));
    }
    if is_privileged() && !socket::is_right_to_send(io::stdin().as_fd())? {
        return Err(io::Error::other("who has started this guardian may not send frames: guard::spawn starts it"));
    }
    Ok(())
}
