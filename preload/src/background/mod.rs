//! A thread that turns the worker while the program computes: for acknowledgments, timers, ARP. It
//! does so rarely while a thread of the program sleeps in a call, because that thread wakes for
//! packets and timers itself, and not at all while other threads turn the worker. Once nothing has
//! happened for a while it sleeps until a frame comes, a timer is due, or a thread makes a call,
//! and wakes twice a second for the listing.
//!
//! The thread opens no descriptor: for a moment it would have the lowest number that is free, and a
//! program may count on that number for its own next file (POSIX `open`). The call of the program
//! that starts the thread makes those that it needs.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use wirepath::worker::affinity;

use crate::background::listing::{PartialListing, Published};
use crate::engine::group::EngineMask;
use crate::engine::group_members;
use crate::engine::table::ENGINES_MAX;
use crate::engine::wait::readable;
use crate::engine::{Engine, thread as thread_state};
use crate::{engine, sys};

mod listing;

/// Time between two looks while no thread of the program sleeps in a call, and something happens.
const BUSY_NS: u64 = 1_000_000;
/// Time between two looks while a thread sleeps, and something happens.
const IDLE_NS: u64 = 50_000_000;
/// Time until the next look at an engine that no thread has used yet, where there are others.
const UNUSED_NS: u64 = 500_000_000;

/// Starts the background thread unless there is one: it lists sockets of the kernel as well.
pub(crate) fn ensure() {
    if !IS_RUNNING.load(Ordering::Relaxed) {
        // The thread blocks all signals, so that the program's signals reach its own threads.
        let mask = sys::set_signal_mask(libc::SIG_SETMASK, sys::SIGNALS_OF_PROGRAMS);
        start();
        sys::set_signal_mask(libc::SIG_SETMASK, mask);
    }
}

/// A child of `fork` has none.
pub(crate) fn forget() {
    IS_RUNNING.store(false, Ordering::Relaxed);
}

/// Whether there is one.
pub(crate) fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Relaxed)
}

/// The program ends.
pub(crate) fn end() {
    NUMBER.fetch_add(1, Ordering::Relaxed);
}

/// An engine was opened: starts the background thread, unless it looks after another engine
/// already. The caller has blocked all signals.
pub(crate) fn start_for(engine: usize) {
    if engine::all() == EngineMask::one(engine) || !IS_RUNNING.load(Ordering::Relaxed) {
        start();
    }
}

/// Starts the background thread. The caller has blocked all signals, and the thread inherits that.
fn start() {
    IS_RUNNING.store(true, Ordering::Relaxed);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    thread_state::enter();
    let wakes = thread_state::wake_descriptor().ok();
    let routes = sys::route_events().ok().map(thread_state::move_high);
    let published = Published::new();
    thread_state::leave();
    let use_of = [Use { turns: 0, quiet_ns: 0, knows_old_routes: false }; ENGINES_MAX];
    let members_at = None;
    let thread = BackgroundThread { wakes, routes, use_of, published, collected: None, written: None, members_at };
    let started = affinity::spawn_helper(Builder::new().name("wirepath-bg".into()), move || thread.keep(number));
    if let Err(error) = started {
        // The next socket tries again.
        [wakes, routes].into_iter().flatten().for_each(thread_state::give_back);
        IS_RUNNING.store(false, Ordering::Relaxed);
        crate::config::say(format_args!(
            "no thread for timers: {error}; peers get no answer while the program computes"
        ));
    }
}

/// Time between two writes of the listing. Cached routes are forgotten then, if the kernel does not
/// tell of their changes.
const PUBLISHED_EVERY: Duration = Duration::from_millis(500);

/// The number of the current background thread: an older one ends when it sees another number,
/// because its worker was closed before a `fork`.
static NUMBER: AtomicU32 = AtomicU32::new(0);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// The thread's own state.
struct BackgroundThread {
    /// Wakes the thread when another one has used an engine.
    wakes: Option<i32>,
    /// Tells of changes of the kernel's routes.
    routes: Option<i32>,
    /// The use of each engine.
    use_of: [Use; ENGINES_MAX],
    published: Option<Published>,
    /// The values of the next write, of the engines that no thread was within so far.
    collected: Option<PartialListing>,
    /// When the listing was written.
    written: Option<Instant>,
    /// When the members of groups on this host were read.
    members_at: Option<Instant>,
}

/// How an engine was used lately.
#[derive(Clone, Copy)]
struct Use {
    /// The worker's turns at the last look.
    turns: u64,
    /// The time without any use of the worker, as a sum of the times between looks.
    quiet_ns: u64,
    /// Routes have changed since the engine has forgotten those that it knew.
    knows_old_routes: bool,
}

/// The time until the next look.
struct Rest {
    ns: u64,
    /// Descriptors that end it early: those of devices, and of news of the kernel.
    fds: Vec<i32>,
    /// A thread that uses an engine ends it too.
    ends_by_use: bool,
}

impl BackgroundThread {
    fn keep(mut self, number: u32) {
        // The calls of this thread are the library's, like those of a thread within the engine.
        thread_state::enter();
        while NUMBER.load(Ordering::Relaxed) == number {
            let rest = self.look();
            self.rest(&rest);
        }
        [self.wakes, self.routes].into_iter().flatten().for_each(thread_state::give_back);
    }

    /// Looks after all engines.
    fn look(&mut self) -> Rest {
        let is_due = self.written.is_none_or(|at| at.elapsed() >= PUBLISHED_EVERY);
        if self.routes.map_or(is_due, sys::take_events) {
            self.use_of.iter_mut().for_each(|seen| seen.knows_old_routes = true);
        }
        let begun = self.collected.take();
        let mut collected = begun.or_else(|| self.published.as_ref().filter(|_| is_due).map(Published::begin));
        let mut rest = Rest { ns: u64::MAX, fds: Vec::new(), ends_by_use: false };
        if group_members::is_to_be_read(self.members_at, is_due) {
            group_members::read_for_all();
            self.members_at = Some(Instant::now());
        }
        for number in engine::all().iter() {
            let ns = self.look_at(number, is_due, &mut rest, &mut collected);
            rest.ns = rest.ns.min(ns);
        }
        if is_due && collected.as_ref().is_none_or(PartialListing::is_whole) {
            self.written = Some(Instant::now());
            if let (Some(published), Some(collected)) = (&mut self.published, collected) {
                published.write(collected);
            }
        } else {
            self.collected = collected;
        }
        rest
    }

    /// Looks after an engine, unless a thread is within it; for its interface as well where the
    /// listing is due. Returns the time until the next look.
    fn look_at(&mut self, number: usize, is_due: bool, rest: &mut Rest, collected: &mut Option<PartialListing>) -> u64 {
        let Some(mut engine) = engine::try_enter_at(number) else { return BUSY_NS };
        engine.background = None;
        let ns = self.turn(&mut engine, is_due);
        self.use_of[number].turns = engine.turns;
        if is_due {
            engine.lose_if_gone();
        }
        if core::mem::take(&mut self.use_of[number].knows_old_routes) {
            engine.destinations.clear();
        }
        if let Some(collected) = collected {
            engine.refresh_counters();
            collected.add(&mut engine);
        }
        if self.use_of[number].quiet_ns >= QUIET_NS
            && let Some(how) = engine.sleep()
            && let Some(fd) = how.fd
        {
            let mut due = PUBLISHED_EVERY;
            // A thread that sleeps has these itself.
            if !engine.has_waiters() {
                rest.fds.extend([Some(fd), how.updates].into_iter().flatten());
                due = how.timeout.map_or(due, |timeout| Duration::from_nanos(timeout.as_nanos()).min(due));
            }
            rest.ends_by_use = true;
            engine.leave_to_sleep(self.wakes);
            return due.as_nanos() as u64;
        }
        ns
    }

    /// Turns the worker if no thread has since the last look, and in any case where the listing is
    /// due: it says when the worker has polled. Returns the time until the next look.
    fn turn(&mut self, engine: &mut Engine, is_due: bool) -> u64 {
        let seen = &mut self.use_of[engine.number];
        if !engine.is_open() {
            return if engine::all() == EngineMask::one(engine.number) { IDLE_NS } else { UNUSED_NS };
        }
        let is_used = engine.turns != seen.turns;
        if engine.has_waiters() {
            seen.quiet_ns = if is_used { 0 } else { seen.quiet_ns.saturating_add(IDLE_NS) };
            if is_due && !is_used {
                engine.turn_for_program();
            }
            // A sleeping thread wakes for a due timer, unless it fell asleep before the timer was
            // set.
            if engine.sleep().is_none() {
                engine.turn_for_program();
                engine.note_timer();
            }
            return IDLE_NS;
        }
        let mut is_quiet = !is_used;
        if is_quiet {
            is_quiet = engine.turn_for_program() == 0;
            engine.note_timer();
        }
        seen.quiet_ns = if is_quiet { seen.quiet_ns.saturating_add(BUSY_NS) } else { 0 };
        BUSY_NS
    }

    /// Sleeps until the next look. A long sleep ends where routes have changed.
    fn rest(&mut self, rest: &Rest) {
        let Some(wakes) = self.wakes.filter(|_| rest.ends_by_use) else {
            // A short one is not worth the look.
            let routes = self.routes.filter(|_| rest.ns >= IDLE_NS).map(readable);
            return match routes {
                Some(routes) => _ = sys::ppoll(&mut [routes], Some(rest.ns)),
                None => sys::sleep(rest.ns),
            };
        };
        let mut fds: Vec<_> = [wakes].iter().chain(&rest.fds).chain(&self.routes).map(|fd| readable(*fd)).collect();
        let woken = sys::ppoll(&mut fds, Some(rest.ns)).unwrap_or(0);
        let _ = sys::read(wakes, &mut [0; 8]);
        // A thread that has just begun to use the engine comes first.
        if woken > 0 {
            sys::sleep(BUSY_NS);
        }
        if fds[0].revents != 0 {
            self.use_of.iter_mut().for_each(|seen| seen.quiet_ns = 0);
        }
    }
}

/// Time without any use of the worker after which the background thread sleeps until there is one,
/// or until a frame or a timer.
const QUIET_NS: u64 = 100_000_000;
