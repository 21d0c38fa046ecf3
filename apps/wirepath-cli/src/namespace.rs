//! The network namespace of another process, entered by a thread of its own.
//!
//! Entering is `setns(2)`, for which the standard library has no call.
//!
//! Invariants:
//! 1. The descriptor passed to the system call is open: it is borrowed from a `File` for the call.
//!    No address is passed.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::{io, thread};

/// Runs `act` in the network namespace of process `pid`: on this thread if it is in that namespace,
/// otherwise on a thread that enters it.
///
/// # Errors
/// The process is gone, or this user may not inspect it or enter its namespace.
pub(crate) fn run_in<T: Send>(pid: u32, act: impl FnOnce() -> T + Send) -> io::Result<T> {
    let path = format!("/proc/{pid}/ns/net");
    if fs::read_link(&path)? == fs::read_link("/proc/thread-self/ns/net")? {
        return Ok(act());
    }
    let file = File::open(path)?;
    let entered = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(&file)?;
            Ok(act())
        });
        thread.join()
    });
    entered.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: an open descriptor and no address (1).
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_namespace_needs_no_thread() {
        let here = thread::current().id();
        assert_eq!(run_in(std::process::id(), || thread::current().id()).unwrap(), here);
    }

    #[test]
    fn process_that_is_gone_is_an_error() {
        // More than the kernel's PID_MAX_LIMIT.
        assert!(run_in(u32::MAX, || ()).is_err());
    }
}
