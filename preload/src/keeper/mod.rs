//! A thread that turns the worker while the program computes: acknowledgments, timers, ARP. It
//! looks seldom while a thread of the program sleeps in a call, as that one wakes for packets and
//! timers itself, and leaves the worker alone while somebody turns it.

use core::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::engine::thread as thread_state;
use crate::keeper::listing::Published;
use crate::{engine, sys};

mod listing;

/// Between two looks while no thread of the program sleeps in a call.
const BUSY_NS: u64 = 1_000_000;
/// Between two looks while one does.
const IDLE_NS: u64 = 50_000_000;

/// Begins. The caller has blocked all signals, which the thread inherits.
pub(crate) fn start() {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let started = thread::Builder::new().name("wirepath-keeper".into()).spawn(move || keep(number));
    if let Err(error) = started {
        crate::config::say(format_args!(
            "no thread for timers: {error}; a program that computes for long is not heard"
        ));
    }
}

/// How often what `wirepath sockets` shows is written.
const PUBLISHED_EVERY: Duration = Duration::from_millis(500);

/// The keeper that there is: one that finds another number ends, as the worker that it turned was
/// given back before a `fork`.
static NUMBER: AtomicU32 = AtomicU32::new(0);

fn keep(number: u32) {
    // This thread's descriptors are the library's, as those of a thread within the engine are.
    thread_state::enter();
    let (mut turns, mut looks) = (0, 0_u32);
    let mut published = Published::new();
    let mut written = Instant::now();
    while NUMBER.load(Ordering::Relaxed) == number {
        let mut sleep = BUSY_NS;
        if let Some(mut engine) = engine::try_enter() {
            if !engine.is_open() {
                return;
            }
            if engine.has_waiters() {
                sleep = IDLE_NS;
                // Who sleeps sees to what is due, unless he slept before there was anything to see
                // to.
                if engine.sleep().is_none() {
                    engine.turn();
                }
            } else if engine.turns == turns {
                // Nobody has turned it since the last look.
                engine.turn();
            }
            turns = engine.turns;
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_OF_A_ROUTE) {
                engine.destinations.clear();
            }
            if written.elapsed() >= PUBLISHED_EVERY {
                written = Instant::now();
                if let Some(published) = &mut published {
                    published.write(&mut engine);
                }
            }
        }
        sys::sleep(sleep);
    }
}

/// Looks after which routes are asked for again: a second at most while the program is idle.
const LOOKS_OF_A_ROUTE: u32 = 20;
