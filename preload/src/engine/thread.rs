//! State of a thread: whether it is within the engine, the signals that arrived meanwhile, and the
//! descriptor by which other threads wake it.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::sync::OnceLock;
use std::time::Duration;

use sockets::Errno;

use crate::engine::group::EngineMask;
use crate::engine::signals::FAULTS;
use crate::engine::table::{self, FileId};
use crate::heap::Cache;
use crate::{config, process, scarce, sys};

/// The most signals that are kept while a thread is within the engine; the kernel keeps all others.
pub(crate) const KEPT_MAX: usize = 16;

pub(crate) struct Thread {
    /// How many times the thread has entered without leaving.
    inside: Cell<u32>,
    /// Whether others may cancel it (`PTHREAD_CANCEL_ENABLE`), from when it entered.
    cancel_state: Cell<Option<i32>>,
    /// A handler has run since the call began.
    caught: Cell<bool>,
    /// All handlers that ran had `SA_RESTART`.
    restarts: Cell<bool>,
    /// Signals that arrived within the engine, and whether there are any.
    kept: [Cell<Option<libc::siginfo_t>>; KEPT_MAX],
    has_kept: Cell<bool>,
    /// What it has blocked itself, while it blocks all signals because there is no room for more.
    mask_before: Cell<Option<u64>>,
    /// Written to in order to wake the thread; 0 before its first sleep.
    eventfd: Cell<i32>,
    /// The number of its own engine, and whether it has one yet.
    own_engine: Cell<Option<u8>>,
    /// It is among the waiters of these engines.
    waits_in: Cell<EngineMask>,
    /// The file of the epoll set that it waits on, and the engines that know it.
    watches: Cell<FileId>,
    watches_in: Cell<EngineMask>,
    /// Events of its last wait that it may still answer: frames of its calls wait for the last one.
    answers_left: Cell<u32>,
    /// What the last wait with a timeout has left of that, and how the call has begun since.
    time_left: Cell<Option<Duration>>,
    begun: Cell<Begun>,
    /// Memory that it keeps for its next calls.
    pub(crate) cache: Cache,
}

/// How a call has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    First,
    /// Anew, maybe after a wait, whose time counts.
    Resumed,
    /// Again after a wait: what has interrupted that interrupts the call.
    Again,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            inside: Cell::new(0),
            cancel_state: Cell::new(None),
            caught: Cell::new(false),
            restarts: Cell::new(true),
            kept: [const { Cell::new(None) }; KEPT_MAX],
            has_kept: Cell::new(false),
            mask_before: Cell::new(None),
            eventfd: Cell::new(0),
            own_engine: Cell::new(None),
            waits_in: Cell::new(EngineMask::NONE),
            watches: Cell::new(FileId(0)),
            watches_in: Cell::new(EngineMask::NONE),
            answers_left: Cell::new(0),
            time_left: Cell::new(None),
            begun: Cell::new(Begun::First),
            cache: Cache::new(),
        }
    };
}

/// Calls `act` with the state of this thread; `None` while the thread ends.
#[inline]
pub(crate) fn with<T>(act: impl FnOnce(&Thread) -> T) -> Option<T> {
    THREAD.try_with(act).ok()
}

/// A number that no other living thread has.
pub(crate) fn token() -> usize {
    with(|thread| core::ptr::from_ref(thread).addr()).unwrap_or(0)
}

/// The thread enters the engine. Returns how many events of its last wait it may still answer.
#[inline]
pub(crate) fn enter() -> u32 {
    let entered = with(|thread| {
        thread.enter();
        thread.answers_left.get()
    });
    entered.unwrap_or(0)
}

/// The thread leaves. If it is now outside, it can be canceled as before, and gets the signals that
/// were kept.
#[inline]
pub(crate) fn leave() {
    with(Thread::leave);
}

/// Calls `act`, which takes a lock that no engine's is, or makes what is made once. Signals are
/// kept meanwhile, because a handler may make a call of ours, and would wait for its own thread.
pub(crate) fn uninterrupted<T>(act: impl FnOnce() -> T) -> T {
    enter();
    let done = act();
    leave();
    done
}

/// The value of a cell, made at its first use.
#[inline]
pub(crate) fn once<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    cell.get().unwrap_or_else(|| uninterrupted(|| cell.get_or_init(make)))
}

impl Thread {
    #[inline]
    pub(crate) fn enter(&self) {
        self.inside.set(self.inside.get() + 1);
        // A signal that arrives from here on is kept.
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn leave(&self) {
        // What was done within is done.
        compiler_fence(Ordering::SeqCst);
        let left = self.inside.get() - 1;
        self.inside.set(left);
        if left > 0 {
            return;
        }
        if let Some(state) = self.cancel_state.take() {
            sys::set_cancel_state(state);
        }
        // A signal that arrives from here on is not kept, unless one before it was.
        compiler_fence(Ordering::SeqCst);
        if self.has_kept.get() {
            self.raise_kept();
        }
    }

    /// Sends the thread the signals that were kept, all of them before one runs: a handler may
    /// leave by `siglongjmp`.
    #[cold]
    fn raise_kept(&self) {
        let mask = sys::set_signal_mask(libc::SIG_BLOCK, KEPT_SIGNALS);
        let mask = self.mask_before.take().unwrap_or(mask);
        // One of a fault's number runs at once, because it is not blocked.
        self.has_kept.set(false);
        let kept: [Option<libc::siginfo_t>; KEPT_MAX] = core::array::from_fn(|idx| self.kept[idx].take());
        let numbers = kept.iter().flatten().fold(0_u64, |numbers, info| numbers | 1 << (info.si_signo - 1));
        let realtime = |number: &i32| *number >= REALTIME_MIN && numbers & 1 << (number - 1) != 0;
        // The kernel has later ones of these numbers: marked, in order to go behind the kept ones.
        let marked = (REALTIME_MIN..=REALTIME_MAX).filter(realtime).filter(|number| sys::mark_pending(*number));
        let marked = marked.fold(0_u64, |marked, number| marked | 1 << (number - 1));
        kept.iter().flatten().for_each(|info| sys::raise_again(info.si_signo, info));
        let is_marked = |number: &i32| marked & 1 << (number - 1) != 0;
        (REALTIME_MIN..=REALTIME_MAX).filter(is_marked).for_each(sys::move_marked_back);
        sys::set_signal_mask(libc::SIG_SETMASK, mask);
    }
}

/// The signals of which several of one number may be pending, in their order (signal(7)).
const REALTIME_MIN: i32 = 32;
const REALTIME_MAX: i32 = 64;

/// All signals but those that an instruction may cause: the kernel ends a process which blocks
/// these.
const KEPT_SIGNALS: u64 = {
    let (mut signals, mut idx) = (sys::SIGNALS_OF_PROGRAMS, 0);
    while idx < FAULTS.len() {
        signals &= !(1 << (FAULTS[idx] - 1));
        idx += 1;
    }
    signals
};

/// Whether a signal that arrives now is to be kept.
pub(crate) fn keeps_signals() -> bool {
    with(|thread| thread.inside.get() > 0 || thread.has_kept.get()).unwrap_or(false)
}

/// Keeps a signal until the thread leaves the engine. `mask` is what the thread blocks when it goes
/// on: where this was the last room, all signals, so that the kernel keeps the others.
pub(crate) fn keep(info: &libc::siginfo_t, mask: &mut u64) {
    // From here on no other one comes in between. One that came before is kept by now: its handler
    // ran on top of this one.
    sys::set_signal_mask(libc::SIG_BLOCK, KEPT_SIGNALS);
    with(|thread| {
        match thread.kept.iter().find(|kept| kept.get().is_none()) {
            Some(free) => free.set(Some(*info)),
            // The one on top took the last room. This one is pending from now on.
            None => sys::raise_again(info.si_signo, info),
        }
        thread.has_kept.set(true);
        if thread.kept.iter().all(|kept| kept.get().is_some()) {
            // What is on top was interrupted with more blocked than what is below.
            thread.mask_before.set(Some(thread.mask_before.get().unwrap_or(u64::MAX) & *mask));
            *mask |= KEPT_SIGNALS;
        }
    });
}

/// A thread of the process was canceled once: from then on those within the engine cannot be.
static CANCELS: AtomicBool = AtomicBool::new(false);

/// Threads are canceled from now on. The caller holds all engines, so that no other thread is
/// within one.
pub(crate) fn expect_cancel() {
    CANCELS.store(true, Ordering::Relaxed);
}

/// It holds an engine: calls that the engine makes are no cancellation points.
#[inline]
pub(crate) fn refuse_cancel() {
    if CANCELS.load(Ordering::Relaxed) {
        with(|thread| {
            if thread.cancel_state.get().is_none() {
                thread.cancel_state.set(Some(sys::set_cancel_state(sys::CANCEL_DISABLE)));
            }
        });
    }
}

/// A call begins that is a cancellation point. The thread may end here.
#[inline]
pub(crate) fn test_cancel() {
    if CANCELS.load(Ordering::Relaxed) && !is_inside() {
        sys::test_cancel();
    }
}

/// Whether the thread is within the engine: its calls are then the engine's own, and go to the
/// kernel.
#[inline]
pub(crate) fn is_inside() -> bool {
    with(|thread| thread.inside.get() > 0).unwrap_or(true)
}

/// Begins a call: handlers that run from now on interrupt it, and what the wait of an earlier call
/// has left is not its time.
pub(crate) fn begin_call() {
    test_cancel();
    let begun = with(|thread| thread.begun.get()).unwrap_or(Begun::First);
    if begun != Begun::Again {
        forget_handlers();
    }
    if begun == Begun::First {
        set_time_left(None);
    }
}

/// Handlers that have run by now interrupt no wait.
pub(crate) fn forget_handlers() {
    with(|thread| {
        thread.caught.set(false);
        thread.restarts.set(true);
    });
}

/// The last wait of a call has left this of the call's timeout. `None`: the call has not waited.
pub(crate) fn set_time_left(left: Option<Duration>) {
    with(|thread| thread.time_left.set(left));
}

/// What the last wait of the thread's call has left of its timeout; `None` without one.
pub(crate) fn time_left() -> Option<Duration> {
    with(|thread| thread.time_left.get()).flatten()
}

/// Makes a call anew that may have waited: what its last wait has left is all the time that it has.
/// A handler that ran before, during that wait, does not interrupt it any more.
pub(crate) fn resume<T>(again: impl FnOnce() -> T) -> T {
    begin(Begun::Resumed, again)
}

/// The same, but a handler that ran before still interrupts it: the program sees one call, and its
/// wait was cut short by the library alone.
pub(crate) fn begin_again<T>(again: impl FnOnce() -> T) -> T {
    begin(Begun::Again, again)
}

fn begin<T>(begun: Begun, call: impl FnOnce() -> T) -> T {
    with(|thread| thread.begun.set(begun));
    let done = call();
    with(|thread| thread.begun.set(Begun::First));
    done
}

/// The timeout of a call, or what its first part has left of it.
pub(crate) fn timeout_of_call(timeout: Option<Duration>) -> Option<Duration> {
    let left = with(|thread| if thread.begun.get() == Begun::First { None } else { thread.time_left.get() }).flatten();
    timeout.map(|timeout| left.map_or(timeout, |left| left.min(timeout)))
}

/// Whether a handler has run since the call began, and whether all that did have `SA_RESTART`; the
/// time that the call has left.
#[derive(Clone, Copy)]
pub(crate) struct Interruption {
    caught: bool,
    restarts: bool,
    time_left: Option<Duration>,
    begun: Begun,
}

/// Records that a handler runs. The result is to be noted again when the handler returns, because
/// calls of its own change it.
pub(crate) fn note_handler(restarts: bool) -> Interruption {
    let restarts = with(|thread| thread.restarts.get() && restarts).unwrap_or(restarts);
    let (time_left, begun) =
        with(|thread| (thread.time_left.get(), thread.begun.get())).unwrap_or((None, Begun::First));
    let interruption = Interruption { caught: true, restarts, time_left, begun };
    // Calls of the handler have timeouts of their own.
    note_interruption(Interruption { begun: Begun::First, ..interruption });
    interruption
}

/// A handler has run: the call that it has interrupted looks again, and does not sleep.
pub(crate) fn note_interruption(interruption: Interruption) {
    with(|thread| {
        thread.caught.set(interruption.caught);
        thread.restarts.set(interruption.restarts);
        thread.time_left.set(interruption.time_left);
        thread.begun.set(interruption.begun);
        // It may be about to sleep, and a call of the handler may have taken what wakes it.
        if thread.eventfd.get() != 0 {
            let _ = sys::write(thread.eventfd.get(), &1_u64.to_ne_bytes());
        }
    });
}

/// Whether a handler has run after which the call does not restart (man 7 signal).
pub(crate) fn is_interrupted(may_restart: bool) -> bool {
    with(|thread| thread.caught.get() && !(may_restart && thread.restarts.get())).unwrap_or(false)
}

/// The descriptor that wakes the thread, made at its first sleep.
pub(crate) fn eventfd() -> Result<i32, Errno> {
    with(|thread| {
        if thread.eventfd.get() == 0 {
            let made = uninterrupted(wake_descriptor);
            thread.eventfd.set(made.inspect_err(|error| scarce::say_of(*error))?);
            process::expect_end_of_thread();
        }
        Ok(thread.eventfd.get())
    })
    .unwrap_or(Err(Errno(libc::EIO)))
}

/// The descriptor that wakes the thread; 0 before its first sleep.
pub(crate) fn known_eventfd() -> i32 {
    with(|thread| thread.eventfd.get()).unwrap_or(0)
}

/// A new descriptor that wakes threads.
pub(crate) fn wake_descriptor() -> Result<i32, Errno> {
    let fd = move_high(sys::eventfd()?);
    table::reserve_for_good(fd);
    Ok(fd)
}

/// Closes such a descriptor.
pub(crate) fn give_back(fd: i32) {
    table::clear(fd);
    sys::close(fd);
}

/// The number of the thread's own engine, which its new sockets live on: each thread gets the next
/// one at its first socket, or before, where it waits without sockets of an engine. Threads beyond
/// the last one share them by turns.
pub(crate) fn own_engine() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let engines = config::engines();
    if engines == 1 {
        return 0;
    }
    with(|thread| {
        let own =
            thread.own_engine.get().map_or_else(|| THREADS.fetch_add(1, Ordering::Relaxed) % engines, usize::from);
        thread.own_engine.set(Some(own as u8));
        own
    })
    .unwrap_or(0)
}

/// The thread is among an engine's waiters from now on.
pub(crate) fn begin_wait(engine: usize) {
    with(|thread| thread.waits_in.set(thread.waits_in.get().with(engine)));
}

/// It is no longer.
pub(crate) fn end_wait(engine: usize) {
    with(|thread| thread.waits_in.set(thread.waits_in.get().without(engine)));
}

/// The engines in which the thread waits in a call.
pub(crate) fn waiting_in() -> EngineMask {
    with(|thread| thread.waits_in.get().union(thread.watches_in.get())).unwrap_or(EngineMask::NONE)
}

/// Whether an engine knows of an epoll set that the thread waits on it.
pub(crate) fn watches_in(engine: usize) -> bool {
    with(|thread| thread.watches_in.get().has(engine)).unwrap_or(false)
}

/// An engine knows that the thread waits on this epoll set.
pub(crate) fn begin_watch(file: FileId, engine: usize) {
    with(|thread| {
        thread.watches.set(file);
        thread.watches_in.set(thread.watches_in.get().with(engine));
    });
}

/// The thread waits on it no longer, as far as an engine knows. Returns the set if the engine knew.
pub(crate) fn end_watch(engine: usize) -> Option<FileId> {
    with(|thread| {
        let before = thread.watches_in.get();
        thread.watches_in.set(before.without(engine));
        before.has(engine).then(|| thread.watches.get())
    })?
}

/// The thread has so many events to answer from now on; 0: none.
pub(crate) fn set_answers(count: u32) {
    with(|thread| thread.answers_left.set(count));
}

/// It answers one of them. Returns how many are left.
pub(crate) fn count_answer() -> u32 {
    let count = |thread: &Thread| {
        let left = thread.answers_left.get().saturating_sub(1);
        thread.answers_left.set(left);
        left
    };
    with(count).unwrap_or(0)
}

/// Moves a descriptor of the engine to a high number, which programs do not expect and do not close
/// in a loop over all of theirs.
pub(crate) fn move_high(fd: i32) -> i32 {
    let Ok(high) = duplicate_high(fd) else {
        table::reserve(fd);
        return fd;
    };
    sys::close(fd);
    high
}

/// A duplicate of the engine's own, with a high number as well.
pub(crate) fn duplicate_high(fd: i32) -> Result<i32, Errno> {
    let high = sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH)?;
    table::reserve(high);
    Ok(high)
}

/// The lowest number of the engine's own descriptors, if the limit of the process allows it (1,024
/// by default).
const HIGH: i32 = 900;

/// Closes the descriptor of a thread that ends.
pub(crate) fn close_eventfd() {
    let fd = with(|thread| thread.eventfd.replace(0)).unwrap_or(0);
    if fd != 0 {
        give_back(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_an_earlier_call_has_left_is_not_that_of_the_next() {
        let earlier = Some(Duration::ZERO);
        set_time_left(earlier);
        resume(begin_call);
        assert_eq!(time_left(), earlier, "of the same call");
        begin_call();
        assert_eq!(time_left(), None);
    }
}
