//! The one engine of the process: the offloaded sockets on their worker, the open files, and the
//! waiting threads, behind one lock. The thread that makes a call takes the lock and turns the
//! worker itself, so a packet that a thread waits for needs no thread of ours.
//!
//! ```text
//!   a call ──▶ enter ──▶ what it does, and a turn of the worker ──▶ leave: wakes who waits for what
//!                                                                  has come, runs signals that came
//! ```
//!
//! Invariants:
//! 1. The stack is made, used and dropped only under the lock. Nothing that it lends (packet
//!    buffers, handles) outlives a call: bytes are copied to the program.
//! 2. A thread of ours that the stack starts for itself (the mirror of the kernel's tables)
//!    communicates by channels that are `Send` on their own.

use core::cell::Cell;
use core::net::Ipv4Addr;
use core::ops::{Deref, DerefMut};
use core::panic::AssertUnwindSafe;
use std::panic::{self, catch_unwind};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Instant;

use sockets::{Errno, Ready, Sleep, SocketId, Sockets, Stack};
use wirepath::pipeline::Cx;

use crate::{config, sys};

pub(crate) mod file;
pub(crate) mod options;
#[allow(unsafe_code)]
pub(crate) mod signals;
pub(crate) mod table;
pub(crate) mod thread;
pub(crate) mod wait;

use file::OpenFiles;
use table::FileId;

/// The state behind the lock.
pub(crate) struct Engine {
    pub(crate) files: OpenFiles,
    pub(crate) state: State,
    /// Threads that sleep.
    waiters: Vec<Waiter>,
    /// A packet or a call has changed a socket since the sleeping threads were last checked.
    has_moved: bool,
    /// Counts turns, so that the keeper sees whether other threads turn the worker.
    pub(crate) turns: u64,
    /// The interface is gone, and the worker with it.
    pub(crate) is_gone: bool,
    /// A stream was offloaded: its last data may be unacknowledged.
    pub(crate) had_streams: bool,
    /// Counts the sleeps of threads.
    pub(crate) sleeps: u64,
    pub(crate) wakeups: u64,
    /// Destinations of datagrams, and whether they leave by our interface. The keeper clears them
    /// regularly, because routes change.
    pub(crate) destinations: Vec<(Ipv4Addr, bool)>,
    /// Groups that were sent to: when the kernel was asked for members on this host, and whether
    /// there were any.
    pub(crate) members: Vec<(Ipv4Addr, Instant, bool)>,
}

/// The state of the worker.
pub(crate) enum State {
    /// No socket has needed the worker yet.
    Closed,
    /// It runs.
    Open(Stack),
    /// The worker could not be opened, or has panicked: sockets stay with the kernel, and calls on
    /// those that were offloaded fail with `EIO`.
    Failed,
}

/// A thread that sleeps until one of its sockets is ready.
#[derive(Clone, Copy)]
struct Waiter {
    eventfd: i32,
    interest: WaitFor,
}

/// The event that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Socket(SocketId, Ready),
    /// An epoll set, by its file.
    Set(FileId),
    /// Several sockets: the thread checks them itself.
    Any,
}

/// The locked engine; dropping it releases the lock.
pub(crate) struct Inside(Option<MutexGuard<'static, Shared>>);

struct Shared(Engine);

// SAFETY: invariants 1 and 2: the handles inside that are not `Send` are only used under the lock.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}

static ENGINE: Mutex<Shared> = Mutex::new(Shared(Engine {
    files: OpenFiles::new(),
    state: State::Closed,
    waiters: Vec::new(),
    has_moved: false,
    turns: 0,
    is_gone: false,
    had_streams: false,
    sleeps: 0,
    wakeups: 0,
    destinations: Vec::new(),
    members: Vec::new(),
}));

/// Takes the lock. Signals are kept until it is released, because a handler may make a call of
/// ours.
pub(crate) fn enter() -> Inside {
    thread::enter();
    let guard = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    thread::refuse_cancel();
    Inside(Some(guard))
}

/// Takes the lock if it is free.
pub(crate) fn try_enter() -> Option<Inside> {
    thread::enter();
    match ENGINE.try_lock() {
        Ok(guard) => {
            thread::refuse_cancel();
            Some(Inside(Some(guard)))
        }
        Err(_) => {
            signals::leave();
            None
        }
    }
}

impl Engine {
    /// A call of the sockets, which may change them: sleeping threads are checked when the lock is
    /// released.
    pub(crate) fn call<T>(
        &mut self,
        act: impl FnMut(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.has_moved = true;
        self.look(act)
    }

    /// A call of the sockets that changes none of them. A panic ends the engine, not the program.
    pub(crate) fn look<T>(
        &mut self,
        mut act: impl FnMut(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let State::Open(stack) = &self.state else { return Err(Errno(libc::EIO)) };
        catch_unwind(AssertUnwindSafe(|| stack.call(&mut act))).unwrap_or_else(|_| self.fail())
    }

    /// One turn of the worker. Returns the number of received packets.
    pub(crate) fn turn(&mut self) -> usize {
        let State::Open(stack) = &self.state else { return 0 };
        self.turns = self.turns.wrapping_add(1);
        let received = catch_unwind(AssertUnwindSafe(|| {
            panic_in_tests("turn");
            stack.turn()
        }))
        .unwrap_or_else(|_| {
            let _: Result<(), Errno> = self.fail();
            0
        });
        // A timer changes sockets without a packet, but a sleeping thread wakes for it by its own
        // timeout.
        self.has_moved |= received > 0;
        received
    }

    /// How a waiting thread sleeps: the descriptor that wakes it for packets, and the longest time;
    /// `None` if a turn is due now.
    pub(crate) fn sleep(&mut self) -> Option<Sleep> {
        let asleep = Some(Sleep { fd: None, timeout: None });
        let State::Open(stack) = &self.state else { return asleep };
        if self.is_gone {
            // Its descriptor would end each sleep at once.
            return asleep;
        }
        match catch_unwind(AssertUnwindSafe(|| stack.sleep_until(None))) {
            Ok(how) => how,
            Err(_) => {
                let _: Result<(), Errno> = self.fail();
                asleep
            }
        }
    }

    /// Registers this thread as a waiter: a change of its sockets wakes it.
    pub(crate) fn begin_wait(&mut self, eventfd: i32, interest: WaitFor) {
        // Earlier changes concern the other waiters only, because this thread has just checked its
        // sockets.
        self.wake_waiters();
        self.sleeps += 1;
        self.waiters.push(Waiter { eventfd, interest });
    }

    /// Removes this thread from the waiters.
    pub(crate) fn end_wait(&mut self, eventfd: i32) {
        self.waiters.retain(|waiter| waiter.eventfd != eventfd);
    }

    /// Whether threads sleep: they wake for packets and timers, and turn the worker.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Wakes all waiters after the worker was opened or has failed, because their descriptor has
    /// changed.
    pub(crate) fn wake_all(&mut self) {
        for waiter in &self.waiters {
            let _ = sys::write(waiter.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Forgets the parent's waiters in a child of `fork`, which has only one thread.
    pub(crate) fn forget_waiters(&mut self) {
        self.waiters.clear();
    }

    /// Closes all streams that the program has left open, as the kernel does for a process that
    /// ends. Returns whether any stream was ever offloaded.
    pub(crate) fn close_streams(&mut self) -> bool {
        let open = self.files.take_streams();
        self.had_streams |= !open.is_empty();
        for id in open {
            let _ = self.call(|sockets, cx| sockets.close(id, cx));
        }
        self.had_streams && self.is_open()
    }

    /// Ends all sockets of an interface that is gone. Returns whether it is.
    pub(crate) fn lose_if_gone(&mut self) -> bool {
        let idx = config::system().interface_idx;
        if self.is_gone || !self.is_open() || idx == 0 || sys::has_interface(idx) {
            return self.is_gone;
        }
        self.is_gone = true;
        let _ = self.call(|sockets, cx| {
            sockets.lose(Errno::ENETDOWN, cx);
            Ok(())
        });
        self.wake_all();
        let name = config::get().map_or("", |config| config.port.interface());
        config::say(format_args!(
            "{name} is gone: its sockets end with ENETDOWN, and new ones are the kernel's; start the program again \
             once the interface is back"
        ));
        true
    }

    /// Whether the worker runs.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Closes the stack, which gives the queue back.
    pub(crate) fn close(&mut self) {
        if let State::Open(stack) = core::mem::replace(&mut self.state, State::Closed) {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(stack)));
        }
        self.is_gone = false;
        self.files.forget_sets();
        self.wake_all();
    }

    fn wake_waiters(&mut self) {
        if !core::mem::take(&mut self.has_moved) || self.waiters.is_empty() {
            return;
        }
        for idx in 0..self.waiters.len() {
            let Waiter { eventfd, interest } = self.waiters[idx];
            let is_ready = match interest {
                WaitFor::Any => true,
                WaitFor::Set(file) => match self.files.set(file).map(|set| set.ours) {
                    Ok(Some(set)) => self.look(|sockets, _| sockets.epoll_ready(set)).unwrap_or(true),
                    Ok(None) => false,
                    Err(_) => true,
                },
                WaitFor::Socket(id, ready) => {
                    self.look(|sockets, _| sockets.ready(id)).map_or(true, |now| now.has(ready | Ready::ALWAYS))
                }
            };
            if is_ready {
                self.wakeups += 1;
                let _ = sys::write(eventfd, &1_u64.to_ne_bytes());
            }
        }
    }

    fn fail<T>(&mut self) -> Result<T, Errno> {
        // Its memory may be inconsistent, so it is not dropped.
        if let State::Open(stack) = core::mem::replace(&mut self.state, State::Failed) {
            core::mem::forget(stack);
        }
        self.files.fail_sets();
        self.wake_all();
        let words = last_panic();
        config::say(format_args!(
            "wirepath has failed ({words}): its sockets end with EIO, and new ones are the kernel's"
        ));
        Err(Errno(libc::EIO))
    }
}

impl Deref for Inside {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        match &self.0 {
            Some(guard) => &guard.0,
            None => unreachable!("given back by drop alone"),
        }
    }
}

impl DerefMut for Inside {
    fn deref_mut(&mut self) -> &mut Engine {
        match &mut self.0 {
            Some(guard) => &mut guard.0,
            None => unreachable!("given back by drop alone"),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.wake_waiters();
        self.0 = None;
        signals::leave();
    }
}

/// Runs what may panic before there is an engine. Returns the words of the panic.
pub(crate) fn guard<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // A panic within the engine becomes one sentence of ours, and not several lines of std's.
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::is_inside() {
                let words = info.to_string().replace('\n', " ");
                *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = words;
            } else {
                default(info);
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| last_panic())
}

/// The words of the last panic within the engine.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fn last_panic() -> String {
    core::mem::take(&mut *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Panics where a test asks for it.
pub(crate) fn panic_in_tests(place: &str) {
    assert!(!(cfg!(feature = "testing") && config::is_panic_asked_for(place)), "a test asks for it");
}

thread_local! {
    /// The thread's attempts, to check the kernel in each sixteenth only.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Whether a polling thread also checks the kernel now: in one attempt of [`KERNEL_LOOKS`], because
/// that is a system call.
pub(crate) fn looks_at_kernel() -> bool {
    LOOKS.with(|looks| {
        let next = looks.get().wrapping_add(1);
        looks.set(next);
        next.is_multiple_of(KERNEL_LOOKS)
    })
}

/// Whether the twin of a socket with equal rights has its turn before the engine, in this call of
/// the thread: in one of [`KERNEL_LOOKS`].
pub(crate) fn is_twins_turn() -> bool {
    CALLS.with(|calls| {
        let next = calls.get().wrapping_add(1);
        calls.set(next);
        next.is_multiple_of(KERNEL_LOOKS)
    })
}

/// Attempts for one system call.
const KERNEL_LOOKS: u32 = 16;
