//! A thread that turns the worker while the program computes: for acknowledgments, timers, ARP. It
//! does so rarely while a thread of the program sleeps in a call, because that thread wakes for
//! packets and timers itself, and not at all while other threads turn the worker.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::engine::thread as thread_state;
use crate::keeper::listing::Published;
use crate::{engine, sys};

mod listing;

/// Time between two looks while no thread of the program sleeps in a call.
const BUSY_NS: u64 = 1_000_000;
/// Time between two looks while a thread sleeps.
const IDLE_NS: u64 = 50_000_000;

/// Starts the keeper unless there is one: it lists sockets of the kernel as well.
pub(crate) fn ensure() {
    if !IS_RUNNING.load(Ordering::Relaxed) {
        // The thread blocks all signals, so that the program's signals reach its own threads.
        let mask = sys::set_signal_mask(libc::SIG_SETMASK, u64::MAX);
        start();
        sys::set_signal_mask(libc::SIG_SETMASK, mask);
    }
}

/// A child of `fork` has none.
pub(crate) fn forget() {
    IS_RUNNING.store(false, Ordering::Relaxed);
    listing::forget();
}

/// The program ends.
pub(crate) fn end() {
    NUMBER.fetch_add(1, Ordering::Relaxed);
    listing::remove();
}

/// Starts the keeper. The caller has blocked all signals, and the thread inherits that.
pub(crate) fn start() {
    IS_RUNNING.store(true, Ordering::Relaxed);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let started = thread::Builder::new().name("wirepath-keeper".into()).spawn(move || keep(number));
    if let Err(error) = started {
        crate::config::say(format_args!(
            "no thread for timers: {error}; peers get no answer while the program computes"
        ));
    }
}

/// Time between two writes of the listing.
const PUBLISHED_EVERY: Duration = Duration::from_millis(500);

/// The number of the current keeper: an older one ends when it sees another number, because its
/// worker was closed before a `fork`.
static NUMBER: AtomicU32 = AtomicU32::new(0);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

fn keep(number: u32) {
    // Descriptors that this thread opens belong to the library, like those of a thread within the
    // engine.
    thread_state::enter();
    let (mut turns, mut looks) = (0, 0_u32);
    let mut published = Published::new();
    let mut written = None;
    while NUMBER.load(Ordering::Relaxed) == number {
        let mut sleep = BUSY_NS;
        let mut collected = None;
        if let Some(mut engine) = engine::try_enter() {
            if !engine.is_open() {
                sleep = IDLE_NS;
            } else if engine.has_waiters() {
                sleep = IDLE_NS;
                // A sleeping thread wakes for a due timer, unless it fell asleep before the timer
                // was set.
                if engine.sleep().is_none() {
                    engine.turn();
                }
            } else if engine.turns == turns {
                // No thread has turned the worker since the last look.
                engine.turn();
            }
            turns = engine.turns;
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_OF_A_ROUTE) {
                engine.destinations.clear();
                engine.lose_if_gone();
            }
            if written.is_none_or(|at: Instant| at.elapsed() >= PUBLISHED_EVERY) {
                written = Some(Instant::now());
                collected = published.as_ref().map(|published| published.collect(&mut engine));
            }
        }
        if let (Some(published), Some(collected)) = (&mut published, collected) {
            published.write(collected);
        }
        sys::sleep(sleep);
    }
}

/// Looks after which cached routes are forgotten: a second at most while the program is idle.
const LOOKS_OF_A_ROUTE: u32 = 20;
