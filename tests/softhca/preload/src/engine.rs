//! The engine: a thread that steps the NICs as long as a device is open, and the hooks that keep it
//! consistent with the process.
//!
//! The thread has priority over the program's threads. Yet it must leave them time, because both
//! may be on one processor: it works for a while, then naps. While there is no work it only naps,
//! longer and longer.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Once;

use libc::c_void;

use crate::{sys, world};

/// Frames a direction in one step: short enough that a call of the program does not wait long for
/// the mutex.
const BUDGET: usize = 64;
/// Work between two naps, and the nap. A program that polls on the same processor gets a third of
/// it.
const WORK_NS: u64 = 100_000;
const NAP_NS: u32 = 50_000;
/// Naps while there is no work: within the first a ping is answered, and the last determines the
/// cost of an idle process.
const IDLE_NAP_NS: u32 = 20_000;
const IDLE_NAP_NS_MAX: u32 = 500_000;
/// Idle naps before they get longer: some 20 ms.
const IDLE_NAPS: u32 = 1_000;

/// Starts the thread: whether it is there.
pub(crate) fn start() -> bool {
    let started = sys::start_thread(body);
    if let Err(error) = &started {
        sys::tell_operator(&format!("no thread for the NIC: {error}"));
    }
    started.is_ok()
}

extern "C" fn body(_: *mut c_void) -> *mut c_void {
    sys::hurry();
    let mut idle = 0;
    while let Some(turn) = turn() {
        idle = if turn == Turn::Idle { idle + 1 } else { 0 };
        sys::nap(match turn {
            Turn::Long => NAP_NS,
            Turn::Idle if idle > IDLE_NAPS => IDLE_NAP_NS_MAX,
            Turn::Short | Turn::Idle => IDLE_NAP_NS,
        });
    }
    std::ptr::null_mut()
}

/// How a turn went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Nothing was to be done.
    Idle,
    /// Nothing is left to be done.
    Short,
    /// There is more, but it is the program's turn.
    Long,
}

/// Steps until nothing is left to do, time is up, or the program wants to call. `None` where no
/// device is open any more: the thread ends.
fn turn() -> Option<Turn> {
    let begin = sys::time_ns(libc::CLOCK_MONOTONIC);
    let mut turn = Turn::Idle;
    loop {
        let mut guard = world::lock_for_engine();
        let world = guard.as_mut()?;
        if !world.is_in_use() {
            world.has_engine = false;
            return None;
        }
        if world.step(BUDGET) == 0 {
            return Some(turn);
        }
        drop(guard);
        turn = Turn::Short;
        if world::is_wanted() || sys::time_ns(libc::CLOCK_MONOTONIC) - begin > WORK_NS {
            return Some(Turn::Long);
        }
    }
}

/// Registers hooks for the process's forks and its end.
pub(crate) fn watch_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| sys::hook(before_fork, after_fork_in_parent, after_fork_in_child, at_exit));
}

thread_local! {
    /// The mutex while this thread forks, so that the child gets a world that is whole. Without a
    /// destructor.
    static FORKING: Cell<Option<ManuallyDrop<world::Guard>>> = const { Cell::new(None) };
}

extern "C" fn before_fork() {
    FORKING.set(Some(ManuallyDrop::new(world::lock())));
}

extern "C" fn after_fork_in_parent() {
    drop(FORKING.take().map(ManuallyDrop::into_inner));
}

/// The child has no devices: their descriptors behave like those of a NIC that has just been
/// opened. The world is not dropped, because another library may have closed the world's
/// descriptors in this child, and given their numbers to other files.
extern "C" fn after_fork_in_child() {
    sys::forget_all();
    if let Some(mut guard) = FORKING.take().map(ManuallyDrop::into_inner) {
        core::mem::forget(guard.take());
    }
}

/// Writes the last counters, but only if the mutex is free: a signal handler may end the process
/// while a call of this thread has the mutex.
extern "C" fn at_exit() {
    for _ in 0..100 {
        if let Some(mut guard) = world::try_lock() {
            if let Some(world) = guard.as_mut() {
                world.finish();
            }
            return;
        }
        sys::nap(NAP_NS);
    }
}
