//! What happens to the descriptors as a whole: `close` and its family, `dup` and its family,
//! `fork`.
//!
//! A child of `fork` has the twins and nothing of an engine that runs: the queue belongs to its
//! parent. Where none runs yet, as in a server that listens and leaves the rest to its workers, the
//! child may open one of its own. A child of `vfork` shares our memory but not our descriptors, so
//! nothing that it closes or duplicates may be noted.
//!
//! Invariants:
//! 1. The handlers of `fork` are functions of ours that stay, as the library is never unloaded.

use core::cell::Cell;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::engine::{table, thread};
use crate::{calls, config, engine, sys};

/// 1 in the process that has the engine, 0 in a child of `fork`.
static OWNER: OnceLock<&'static AtomicU32> = OnceLock::new();
static PID: AtomicI32 = AtomicI32::new(0);
static HAS_SAID: AtomicBool = AtomicBool::new(false);

/// Called once, by the constructor.
pub(crate) fn begin() {
    PID.store(sys::getpid(), Ordering::Relaxed);
    if let Some(page) = sys::page_of_this_process() {
        let _ = OWNER.set(page);
    }
    // SAFETY: invariant 1.
    unsafe { libc::atexit(at_exit) };
    // SAFETY: invariant 1.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
}

/// The program ends: what its sockets took leaves first, as the kernel would go on sending. Its own
/// `_exit` passes this by.
extern "C" fn at_exit() {
    if !is_owner_by_pid() || thread::is_inside() {
        return;
    }
    let began = Instant::now();
    let mut last = began;
    while last.elapsed() < QUIET_AT_EXIT && began.elapsed() < LONGEST_EXIT {
        let Some(mut engine) = engine::try_enter() else { return };
        if !engine.close_streams() {
            return;
        }
        if engine.turn() > 0 {
            last = Instant::now();
        }
    }
}

/// The peers have said nothing for so long: they have all that they will acknowledge.
const QUIET_AT_EXIT: Duration = Duration::from_millis(20);
/// No program takes longer to end, whatever its peers say.
const LONGEST_EXIT: Duration = Duration::from_secs(2);

thread_local! {
    /// The engine, from before a `fork` until after it: no other thread is within it meanwhile.
    static HELD: Cell<Option<engine::Inside>> = const { Cell::new(None) };
}

extern "C" fn before_fork() {
    if is_owner() && !thread::is_inside() {
        let mut engine = engine::enter();
        calls::leave_listeners(&mut engine);
        let _ = HELD.try_with(|held| held.set(Some(engine)));
    }
}

extern "C" fn after_fork() {
    let _ = HELD.try_with(Cell::take);
}

extern "C" fn after_fork_in_child() {
    let mut held = HELD.try_with(Cell::take).ok().flatten();
    if let Some(engine) = &mut held {
        engine.forget_waiters();
        thread::forget_eventfd();
    }
    if let Some(engine) = &held
        && matches!(engine.state, engine::State::Closed)
        && let Some(page) = OWNER.get()
    {
        PID.store(sys::getpid(), Ordering::Relaxed);
        page.store(1, Ordering::Relaxed);
    } else if held.is_some() {
        // Else the queue would outlive the parent, as long as a descriptor of it is open.
        let theirs: Vec<c_int> = table::in_range(0, c_uint::MAX).filter(|fd| table::is_reserved(*fd)).collect();
        for fd in theirs {
            table::clear(fd);
            sys::close(fd);
        }
    }
}

/// Whether the engine is this process's. One load.
#[inline]
pub(crate) fn is_owner() -> bool {
    OWNER.get().is_some_and(|page| page.load(Ordering::Relaxed) == 1)
}

/// The same where a child of `vfork` may ask, which shares the page: a system call.
pub(crate) fn is_owner_by_pid() -> bool {
    is_owner() && sys::getpid() == PID.load(Ordering::Relaxed)
}

/// A child uses a descriptor that is a socket of ours in its parent.
pub(crate) fn say_that_child_has_none() {
    if !HAS_SAID.swap(true, Ordering::Relaxed) {
        config::say(format_args!(
            "process {} was forked from one whose sockets are on wirepath: they stay its parent's, and fail here; \
             have it make sockets of its own, or let the parent serve them",
            sys::getpid()
        ));
    }
}

/// Descriptors that the kernel's table of the process has room for: `select` looks no further
/// (Linux `core_sys_select`). Read for sets that are longer than libc's own alone.
pub(crate) fn descriptors_max() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse().ok());
    size.unwrap_or(1_024)
}

/// A descriptor is closed by another way than `close`, or becomes another file.
pub(crate) fn forget(fd: c_int) {
    if let Some(file) = table::find(fd) {
        calls::close(file, fd);
    }
}

/// The kernel has given out a number: what the table has for it was closed where nobody saw it (by
/// libc's own `fclose`, by a system call without libc). Two loads, as a rule.
#[inline]
pub(crate) fn given(fd: c_int) {
    if fd >= 0 && table::is_known(fd) {
        forget_stale(fd);
    }
}

#[cold]
fn forget_stale(fd: c_int) {
    if is_child_of_fork() || (is_owner_by_pid() && (thread::is_inside() || table::is_reserved(fd))) {
        table::clear(fd);
    } else if is_owner_by_pid() {
        forget(fd);
    }
}

/// A child of `fork` without an engine: its memory is its own, so its table may say what it likes. A
/// child of `vfork` is none.
pub(crate) fn is_child_of_fork() -> bool {
    OWNER.get().is_some_and(|page| page.load(Ordering::Relaxed) == 0)
}

/// `new` names what `fd` does.
pub(crate) fn duplicated(fd: c_int, new: c_int) {
    forget(new);
    if let Some(file) = table::find(fd) {
        engine::enter().files.dup(file, new);
    }
}

/// Ranges of descriptors of `first..=last` that `close_range` may close: the engine's own stay
/// open.
pub(crate) fn ranges_to_close(first: c_uint, last: c_uint) -> Vec<(c_uint, c_uint)> {
    let mut ranges = Vec::new();
    let mut next = first;
    for fd in table::in_range(first, last).filter(|fd| table::is_reserved(*fd)) {
        let fd = fd as c_uint;
        if fd > next {
            ranges.push((next, fd - 1));
        }
        next = fd + 1;
    }
    if next <= last {
        ranges.push((next, last));
    }
    ranges
}

/// All of a range that is ours is closed.
pub(crate) fn forget_range(first: c_uint, last: c_uint) {
    let fds: Vec<c_int> = table::in_range(first, last).collect();
    fds.into_iter().for_each(forget);
}
