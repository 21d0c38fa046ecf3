//! Threads beside the data path: where they run, and by which policy (pthread_setaffinity_np(3),
//! pthread_setschedparam(3)). A thread inherits both from the one that starts it, which may be
//! pinned and real-time: a helper would wait on the core of a thread that never sleeps.
//!
//! Invariants:
//! 1. A thread's handle names it until it is joined or detached, which nobody does before it has
//!    ended: the handle is ours, and the thread waits for us.
//! 2. A set of cores and a priority are plain numbers, borrowed for the call.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};

use super::socket::check;

/// The cores of helpers; `None`: those of the thread that starts one.
static CORES: Mutex<Option<libc::cpu_set_t>> = Mutex::new(None);

/// Has helpers that are started from now on run on these cores. The calling thread tries them.
///
/// # Errors
/// It may run on none of them.
pub(crate) fn place(cores: impl Iterator<Item = usize>) -> io::Result<()> {
    let cores = cores.filter(|core| *core < libc::CPU_SETSIZE as usize);
    let set = cores.fold(no_cores(), |mut set, core| {
        // SAFETY: a set (2) that has this core.
        unsafe { libc::CPU_SET(core, &mut set) };
        set
    });
    let mut before = no_cores();
    let len = size_of_val(&set);
    // SAFETY: sets with their length (2), in this and the next two calls.
    check(unsafe { libc::sched_getaffinity(0, len, &raw mut before) })?;
    // SAFETY: as above.
    check(unsafe { libc::sched_setaffinity(0, len, &raw const set) })?;
    // SAFETY: as above.
    check(unsafe { libc::sched_setaffinity(0, len, &raw const before) })?;
    *CORES.lock().unwrap_or_else(PoisonError::into_inner) = Some(set);
    Ok(())
}

/// Starts a helper, without a real-time policy of the calling thread. The calling thread places it,
/// because on a core that this thread keeps busy the helper might never begin.
///
/// # Errors
/// The kernel has no room for a thread. One that cannot be placed runs where it is.
pub(crate) fn spawn<T: Send + 'static>(
    thread: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (placed, waits) = mpsc::sync_channel::<()>(0);
    let thread = thread.spawn(move || {
        let _ = waits.recv();
        work()
    })?;
    let (handle, normal) = (thread.as_pthread_t(), libc::sched_param { sched_priority: 0 });
    // SAFETY: the thread has not ended (1), and a priority (2).
    unsafe { libc::pthread_setschedparam(handle, libc::SCHED_OTHER, &raw const normal) };
    if let Some(set) = *CORES.lock().unwrap_or_else(PoisonError::into_inner) {
        // SAFETY: the thread has not ended (1), and a set with its length (2).
        unsafe { libc::pthread_setaffinity_np(handle, size_of_val(&set), &raw const set) };
    }
    drop(placed);
    Ok(thread)
}

/// A set without a core.
fn no_cores() -> libc::cpu_set_t {
    // SAFETY: a set is an array of integers.
    unsafe { core::mem::zeroed() }
}
