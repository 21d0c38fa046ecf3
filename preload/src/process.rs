//! Calls on descriptors of any kind (`close` and its family, `dup` and its family), `fork` and
//! exit.
//!
//! A child of `fork` has the twins but not its parent's engine, because the queue belongs to the
//! parent: what its parent has offloaded fails there. For sockets of its own, and for listeners
//! that its parent never waited on, it opens an engine of its own. A child of `vfork` shares our
//! memory but not our descriptors, so what it opens, closes and duplicates must not be recorded.
//!
//! Invariants:
//! 1. The handlers of `fork`, of the exit and of a thread's end are functions of ours that stay in
//!    memory, because the library is never unloaded.

use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use core::fmt::Display;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use sockets::Kind;
use wirepath::counters::unpublish;

use crate::abi::stdio::{self, StreamTable};
use crate::config::StandardError;
use crate::engine::file::{self, OpenFiles};
use crate::engine::group::{EngineMask, Engines};
use crate::engine::table::{ENGINES_MAX, FileId};
use crate::engine::{sets, table, thread};
use crate::sys::SharedFlag;
use crate::{background, calls, config, engine, heap, log, sys};

/// 1 in the process that has the engine, 0 in a child of `fork`.
static OWNER: OnceLock<&'static AtomicU32> = OnceLock::new();
static PID: AtomicI32 = AtomicI32::new(0);
/// The process that this one was forked from; 0: it was started by `exec`.
static FORKED_BY: AtomicI32 = AtomicI32::new(0);
/// This process has forked.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);
static HAS_SAID: AtomicBool = AtomicBool::new(false);
/// This process was forked from one that had an engine then.
static HAS_PARENT: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// `at_quick_exit`, which is no function of the shared libc.
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// Called once, by the constructor.
pub(crate) fn begin() {
    PID.store(sys::getpid(), Ordering::Relaxed);
    if let Some(page) = sys::page_of_this_process() {
        let _ = OWNER.set(page);
    }
    // SAFETY: invariant 1.
    unsafe { libc::atexit(at_exit) };
    // SAFETY: invariant 1.
    unsafe { __cxa_at_quick_exit(at_quick_exit, core::ptr::null_mut()) };
    // SAFETY: invariant 1.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
}

/// This thread has something of ours that is to be given back when it ends. `false`: libc does not
/// tell us of the end.
///
/// Libc tells by a key of which the thread has a value. A thread-local that must be dropped would
/// do it too, but libc registers that in memory of the program's `malloc`; the first 32 keys take
/// none.
pub(crate) fn expect_end_of_thread() -> bool {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = thread::once(&KEY, || {
        let mut key = 0;
        // SAFETY: invariant 1.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(at_end_of_thread)) };
        (made == 0).then_some(key)
    });
    // SAFETY: the key is ours, and its value is never followed.
    key.is_some_and(|key| unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(1)) == 0 })
}

/// A thread ends. Other destructors may still make calls.
extern "C" fn at_end_of_thread(_: *mut c_void) {
    thread::close_eventfd();
    heap::end_thread();
}

/// When the program ends, data that its sockets have taken is sent first, as the kernel would, and
/// its files in shared memory are removed, because the engine in its static is never dropped.
/// Other threads go on in their calls meanwhile.
extern "C" fn at_exit() {
    if !is_owner_by_pid() || thread::is_inside() {
        return;
    }
    // libc writes what its streams hold after these handlers, when it could be sent no more.
    stdio::flush_streams();
    end_sockets();
}

fn end_sockets() {
    send_the_rest();
    let _ = HAS_SENT_ALL.try_with(|has_sent| has_sent.set(true));
    background::end();
    unpublish();
}

/// The same at the end by `_exit`, which writes no stream of stdio and calls no handler.
pub(crate) fn about_to_exit() {
    if is_owner_by_pid() && !thread::is_inside() && !has_sent_all() {
        end_sockets();
    }
}

/// The same at the end by `quick_exit`. Its handlers are called in the reverse order in which they
/// were set, so that of the library comes last.
extern "C" fn at_quick_exit(_: *mut c_void) {
    about_to_exit();
}

/// The process is about to become another program, with which its connections end. The caller has
/// checked that this is the owner.
pub(crate) fn about_to_exec() {
    if !thread::is_inside() {
        say_that_a_connection_ends();
        calls::listener::leave_to_next_program();
        send_the_rest();
    }
}

/// Set by the first process that gives a connection to another program, for all that were forked
/// from the same one: a server does it for each connection.
static HAS_GIVEN: OnceLock<Option<SharedFlag>> = OnceLock::new();

/// Reports that a program gives a connection of ours to the next one as its standard input or
/// output, as `inetd` does, and `sshd` to itself.
fn say_that_a_connection_ends() {
    let is_connection = |fd| {
        table::find_offloaded(fd).is_some_and(|(file, _)| {
            let mut engine = engine::enter(file);
            engine.files.socket(file).is_ok_and(|socket| socket.kind == Kind::Stream && !socket.is_listener)
        })
    };
    if !(0..=2).any(is_connection) {
        return;
    }
    if thread::once(&HAS_GIVEN, SharedFlag::new).as_ref().is_none_or(SharedFlag::set_first) {
        config::say(format_args!(
            "process {} gives a connection to another program by exec, which gets a socket without it: the connection \
             is wirepath's, and ends; leave the listener to the kernel by a rule (use = \"os\", traffic = \
             \"tcp-server\")",
            sys::getpid()
        ));
    }
}

fn send_the_rest() {
    let began = Instant::now();
    let (mut last, mut left) = (began, engine::all());
    let (mut quiet, mut occupied) = (QUIET_AT_EXIT, Occupied::default());
    while left != EngineMask::NONE && began.elapsed() < LONGEST_EXIT {
        // Silence is what a look has found, and not the time that this thread was kept from its
        // processor.
        let mut is_silent = true;
        for number in left.iter() {
            let Some(mut engine) = engine::try_enter_at(number) else {
                // Another thread is in there, usually our own in the background, and soon leaves.
                let now = Instant::now();
                if occupied.is_for_long(number, now) {
                    left = left.without(number);
                } else {
                    (last, is_silent) = (now, false);
                    std::thread::yield_now();
                }
                continue;
            };
            occupied.end(number);
            engine.send_ends();
            let received = engine.turn();
            if received > 0 {
                (last, is_silent) = (Instant::now(), false);
            }
            match engine.longest_end() {
                // A lost segment is sent again after this time, and answered before it is over
                // twice.
                Some(timeout) => quiet = quiet.max(timeout * 2),
                // The ring may have connections that another process has handed over, and which
                // the next one of the port is to have.
                None if received > 0 => (),
                None => left = left.without(number),
            }
        }
        if is_silent && last.elapsed() >= quiet {
            break;
        }
    }
    for number in engine::all().iter() {
        if let Some(mut engine) = engine::try_enter_at(number) {
            engine.reset_unread();
        }
    }
}

thread_local! {
    /// This thread ends the process, and has sent the FIN of each stream.
    static HAS_SENT_ALL: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is about to end the process, so that no call of it may wait until a stream
/// takes further bytes.
pub(crate) fn has_sent_all() -> bool {
    HAS_SENT_ALL.try_with(Cell::get).unwrap_or(false)
}

/// The least silence of the peers after which an exiting process stops waiting for ACKs.
const QUIET_AT_EXIT: Duration = Duration::from_millis(20);
/// How long an exiting process waits for a thread that is in an engine; one that the program has
/// stopped would never leave.
const ENTERED_WITHIN: Duration = Duration::from_millis(500);

/// Since when an exiting process has not come into each engine. A thread that calls again and again
/// is in its engine nearly each time, and leaves it in between.
#[derive(Default)]
struct Occupied([Option<Instant>; ENGINES_MAX]);

impl Occupied {
    /// Another thread is in this engine; whether one has been for as long as none that runs.
    fn is_for_long(&mut self, engine: usize, now: Instant) -> bool {
        let since = self.0.get_mut(engine).map(|since| *since.get_or_insert(now));
        since.is_none_or(|since| now.saturating_duration_since(since) >= ENTERED_WITHIN)
    }

    /// We have come in.
    fn end(&mut self, engine: usize) {
        if let Some(since) = self.0.get_mut(engine) {
            *since = None;
        }
    }
}

/// The longest delay of an exit.
const LONGEST_EXIT: Duration = Duration::from_secs(2);

/// What is held from before a `fork` until after it, so that no other thread is within it: the heap
/// in any case, and where the process has an engine, what belongs to that.
struct Held {
    /// Given back first: an engine that is left may say something.
    _standard_error: StandardError,
    of_engines: Option<HeldOfEngines>,
    _signals: BlockedSignals,
}

/// All locked engines, the locked table of epoll sets and that of streams. The first ones are left
/// last, because an engine that is left looks into the table of sets.
struct HeldOfEngines {
    streams: StreamTable,
    sets: MutexGuard<'static, OpenFiles>,
    engines: Engines,
}

/// The signals of programs, blocked: one that comes stays pending, and is the parent's alone. One
/// that the library keeps would be a child's as well, with the rest of the thread's memory.
struct BlockedSignals(u64);

impl BlockedSignals {
    fn begin() -> Self {
        Self(sys::set_signal_mask(libc::SIG_BLOCK, sys::SIGNALS_OF_PROGRAMS))
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        sys::set_signal_mask(libc::SIG_SETMASK, self.0);
    }
}

thread_local! {
    /// To be dropped by hand: libc would take memory in order to note that it must be dropped.
    static HELD: Cell<Option<ManuallyDrop<Held>>> = const { Cell::new(None) };
}

/// Unlocks the heap, and returns what else is held.
fn take_held() -> Option<Held> {
    let held = HELD.try_with(Cell::take).ok().flatten()?;
    heap::unlock_after_fork();
    Some(ManuallyDrop::into_inner(held))
}

extern "C" fn before_fork() {
    let signals = BlockedSignals::begin();
    let of_engines = (is_owner() && !thread::is_inside()).then(|| {
        let mut engines = Engines::enter(engine::all());
        calls::listener::leave_idle(&mut engines);
        thread::once(&HAS_GIVEN, SharedFlag::new);
        HeldOfEngines { streams: stdio::lock_streams(), sets: sets::lock(), engines }
    });
    let standard_error = config::lock_standard_error();
    heap::lock_for_fork();
    let held = ManuallyDrop::new(Held { _standard_error: standard_error, of_engines, _signals: signals });
    let _ = HELD.try_with(|place| place.set(Some(held)));
}

extern "C" fn after_fork() {
    HAS_FORKED.store(true, Ordering::Relaxed);
    drop(take_held());
}

extern "C" fn after_fork_in_child() {
    // The signals are dropped last.
    let Some(Held { of_engines: Some(held), _signals, .. }) = take_held() else { return };
    let HeldOfEngines { streams, mut sets, mut engines } = held;
    drop(streams);
    let mut had_one = false;
    for engine in engines.iter_mut() {
        had_one |= engine.leave_to_parent();
    }
    sets::forget_parent(&mut sets);
    drop(sets);
    thread::close_eventfd();
    background::forget();
    // Otherwise the queue and the listing would outlive the parent, as long as the child has
    // descriptors of them.
    let is_theirs = |fd: &c_int| table::is_reserved(*fd) && !log::has(*fd);
    let theirs: Vec<c_int> = table::in_range(0, c_uint::MAX).filter(is_theirs).collect();
    if had_one {
        engine::unmap_rings(&theirs);
        HAS_PARENT.store(true, Ordering::Relaxed);
    }
    for fd in theirs {
        table::clear(fd);
        sys::close(fd);
    }
    if let Some(page) = OWNER.get() {
        FORKED_BY.store(PID.swap(sys::getpid(), Ordering::Relaxed), Ordering::Relaxed);
        HAS_FORKED.store(false, Ordering::Relaxed);
        page.store(1, Ordering::Relaxed);
    }
}

/// Whether this process was started by `exec`, or the one that it was forked from has ended since,
/// as that of a daemon has.
pub(crate) fn is_no_child() -> bool {
    let forked_by = FORKED_BY.load(Ordering::Relaxed);
    forked_by == 0 || sys::getppid() != forked_by
}

/// Whether this process was made by `fork`, and has not forked itself: what its parent has left,
/// it has left to this one.
pub(crate) fn is_childless_child() -> bool {
    FORKED_BY.load(Ordering::Relaxed) != 0 && !HAS_FORKED.load(Ordering::Relaxed)
}

/// Whether this process was forked from one that had an engine then.
pub(crate) fn has_parent_with_engine() -> bool {
    HAS_PARENT.load(Ordering::Relaxed)
}

/// Whether this process owns the engine. One load.
#[inline]
pub(crate) fn is_owner() -> bool {
    OWNER.get().is_some_and(|page| page.load(Ordering::Relaxed) == 1)
}

/// The same by a system call, also right in a child of `vfork`, which shares the page.
pub(crate) fn is_owner_by_pid() -> bool {
    is_owner() && sys::getpid() == PID.load(Ordering::Relaxed)
}

/// Whether this is a child of `vfork`, whose memory is its parent's and whose descriptors are not.
pub(crate) fn is_vfork_child() -> bool {
    is_owner() && !is_owner_by_pid()
}

/// Reports that a child uses a descriptor whose socket its parent has offloaded.
pub(crate) fn say_that_child_has_none(file: FileId) {
    if HAS_SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let is_datagrams =
        is_owner_by_pid() && engine::enter(file).files.socket(file).is_ok_and(|socket| socket.kind == Kind::Datagram);
    let what = match is_datagrams {
        true => {
            "its datagram sockets send and receive by the kernel here, and what comes by the interface is its parent's"
        }
        false => "they stay its parent's, and fail here",
    };
    config::say(format_args!(
        "process {} was forked from one whose sockets are on wirepath: {what}; have it make sockets of its own, or let \
         the parent serve them",
        sys::getpid()
    ));
}

/// Reports that a child of `fork` has a socket, and its parent the queue that the child would need.
pub(crate) fn say_that_new_ones_are_the_kernels(why: impl Display) {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    if !HAS_SAID.swap(true, Ordering::Relaxed) {
        config::say(format_args!(
            "a socket stays with the kernel: process {} was forked from one whose sockets are on wirepath; start it by \
             exec, or fork before the first socket, or share the interface by a broker (wirepath run --share): {why}",
            sys::getpid()
        ));
    }
}

/// The size of the kernel's descriptor table of the process: `select` ignores bits beyond it (Linux
/// `core_sys_select`). Read only for sets that are longer than libc's own.
pub(crate) fn descriptors_max() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse().ok());
    size.unwrap_or(1_024)
}

/// Forgets a descriptor that was closed by another call than `close`, or names another file now.
pub(crate) fn forget(fd: c_int) {
    if let Some(file) = table::find(fd) {
        calls::close(file, fd);
    }
}

/// The program is about to close a descriptor. Two loads, until it has duplicated a socket.
pub(crate) fn about_to_close(fd: c_int) {
    if let Some(file) = table::find_possible(fd)
        && file::has_duplicates()
        && !file.is_set()
        && !thread::is_inside()
        && is_owner_by_pid()
    {
        calls::epoll_twins::keep_items(file, fd);
    }
}

/// The kernel has returned this number, so an older file of it in the table was closed by a call
/// that we did not see (libc's own `fclose`, a direct system call), and is forgotten. Usually two
/// loads.
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

/// Whether this is a child of `fork` without an engine: it may change the table, because its memory
/// is its own. A child of `vfork` does not count.
pub(crate) fn is_child_of_fork() -> bool {
    OWNER.get().is_some_and(|page| page.load(Ordering::Relaxed) == 0)
}

/// Records that `new` names the same file as `fd`.
pub(crate) fn duplicated(fd: c_int, new: c_int) {
    forget(new);
    if let Some(file) = table::find(fd) {
        engine::with_files(file, |files| files.dup(file, new));
    }
}

/// The parts of `first..=last` that `close_range` may close: the engine's own descriptors stay
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

/// Forgets the descriptors of a range that was closed.
pub(crate) fn forget_range(first: c_uint, last: c_uint) {
    let fds: Vec<c_int> = table::in_range(first, last).collect();
    for fd in fds {
        about_to_close(fd);
        forget(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a busy machine an exit takes longer than a thread that has stopped is waited for.
    #[test]
    fn engine_that_was_entered_in_between_is_not_occupied_for_long() {
        let (mut occupied, begin) = (Occupied::default(), Instant::now());
        assert!(!occupied.is_for_long(3, begin));
        occupied.end(3);
        let later = begin + 2 * ENTERED_WITHIN;
        assert!(!occupied.is_for_long(3, later));
        assert!(!occupied.is_for_long(0, later), "another one");
        assert!(occupied.is_for_long(3, later + ENTERED_WITHIN));
    }
}
