//! What belongs to a thread: whether it is within the engine, the signals that came meanwhile, and
//! the descriptor by which others wake it.

use core::cell::Cell;

use sockets::Errno;

use crate::engine::table;
use crate::sys;

/// Signals that are kept at most while a thread is within the engine. One more of a kind is merged
/// by the kernel anyway, but for real-time ones.
pub(crate) const KEPT_MAX: usize = 16;

pub(crate) struct Thread {
    /// How often it has entered.
    inside: Cell<u32>,
    /// A handler has run since the call began.
    caught: Cell<bool>,
    /// All handlers that ran have `SA_RESTART`.
    restarts: Cell<bool>,
    /// Signals that came within.
    pub(crate) kept: [Cell<Option<libc::siginfo_t>>; KEPT_MAX],
    /// Written to wake it; 0 before its first sleep.
    eventfd: Cell<i32>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            inside: Cell::new(0),
            caught: Cell::new(false),
            restarts: Cell::new(true),
            kept: [const { Cell::new(None) }; KEPT_MAX],
            eventfd: Cell::new(0),
        }
    };
}

/// Of the thread that calls; `None` while it ends.
pub(crate) fn with<T>(act: impl FnOnce(&Thread) -> T) -> Option<T> {
    THREAD.try_with(act).ok()
}

/// It enters the engine.
pub(crate) fn enter() {
    with(|thread| thread.inside.set(thread.inside.get() + 1));
}

/// It leaves. Says whether it was its outermost stay.
pub(crate) fn leave() -> bool {
    with(|thread| {
        let left = thread.inside.get() - 1;
        thread.inside.set(left);
        left == 0
    })
    .unwrap_or(true)
}

/// Whether it is within the engine: its calls are then the engine's own, and the kernel's.
pub(crate) fn is_inside() -> bool {
    with(|thread| thread.inside.get() > 0).unwrap_or(true)
}

/// A call begins: which handlers run from now on interrupts it.
pub(crate) fn begin_call() {
    with(|thread| {
        thread.caught.set(false);
        thread.restarts.set(true);
    });
}

/// A handler has run.
pub(crate) fn note_handler(restarts: bool) {
    with(|thread| {
        thread.caught.set(true);
        thread.restarts.set(thread.restarts.get() && restarts);
        // It may be about to sleep.
        if thread.eventfd.get() != 0 {
            let _ = sys::write(thread.eventfd.get(), &1_u64.to_ne_bytes());
        }
    });
}

/// Whether a handler has run, and the call does not restart (man 7 signal).
pub(crate) fn is_interrupted(may_restart: bool) -> bool {
    with(|thread| thread.caught.get() && !(may_restart && thread.restarts.get())).unwrap_or(false)
}

/// The descriptor that wakes it.
pub(crate) fn eventfd() -> Result<i32, Errno> {
    with(|thread| {
        if thread.eventfd.get() == 0 {
            let fd = sys::eventfd()?;
            thread.eventfd.set(move_high(fd));
            let _ = EVENTFD.try_with(|closed| closed.0.set(thread.eventfd.get()));
        }
        Ok(thread.eventfd.get())
    })
    .unwrap_or(Err(Errno(libc::EIO)))
}

/// Puts a descriptor of the engine where programs do not look, and where those that close all of
/// theirs do not hit it.
pub(crate) fn move_high(fd: i32) -> i32 {
    let Ok(high) = sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH) else {
        table::reserve(fd);
        return fd;
    };
    sys::close(fd);
    table::reserve(high);
    high
}

/// From here on the engine's own descriptors stand, where the limit of the process allows it (1,024
/// by default).
const HIGH: i32 = 900;

/// Closes the descriptor of a thread that ends. Apart from [`Thread`], which has nothing to drop:
/// what has is noted with libc when it is first used, which allocates, and an allocator makes calls
/// of ours.
struct Eventfd(Cell<i32>);

thread_local! {
    static EVENTFD: Eventfd = const { Eventfd(Cell::new(0)) };
}

impl Drop for Eventfd {
    fn drop(&mut self) {
        let fd = self.0.get();
        if fd != 0 {
            with(|thread| thread.eventfd.set(0));
            table::clear(fd);
            sys::close(fd);
        }
    }
}

/// The thread of a child of `fork`: the descriptor by which others wake it is its parent's as well.
pub(crate) fn forget_eventfd() {
    let _ = EVENTFD.try_with(|closed| {
        let fd = closed.0.replace(0);
        with(|thread| thread.eventfd.set(0));
        if fd != 0 {
            table::clear(fd);
            sys::close(fd);
        }
    });
}
