//! The engines of the process. Each has offloaded sockets on their worker, their open files, and
//! the waiting threads, behind one lock. The thread that makes a call takes the lock of the file's
//! engine and turns the worker itself, so a packet that a thread waits for needs no thread of ours.
//! There is one engine, or by `WIREPATH_ENGINES` one for each thread that opens sockets.
//!
//! ```text
//!   a call ──▶ enter ──▶ what it does, and a turn of the worker ──▶ leave: wakes who waits for what
//!                                                                  has come, runs signals that came
//! ```
//!
//! Invariants:
//! 1. A stack is made, used and dropped only under its engine's lock. Nothing that it lends (packet
//!    buffers, handles) outlives a call: bytes are copied to the program.
//! 2. A thread of ours that the stack starts for itself (the mirror of the kernel's tables)
//!    communicates by channels that are `Send` on their own.

use core::cell::Cell;
use core::ffi::c_int;
use core::ops::{Deref, DerefMut};
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicU32, Ordering};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

use sockets::{Errno, Sleep, SocketId, Sockets, Stack};
use wirepath::device::Doorbell;
use wirepath::pipeline::Cx;

use crate::{config, sys};

mod clock;
mod destinations;
mod failure;
pub(crate) mod file;
mod gather;
pub(crate) mod group;
pub(crate) mod group_members;
mod kernel_looks;
pub(crate) mod options;
mod polling;
pub(crate) mod sets;
#[allow(unsafe_code)]
pub(crate) mod signals;
pub(crate) mod table;
pub(crate) mod thread;
pub(crate) mod wait;
mod waiters;

use destinations::Destinations;
use file::OpenFiles;
use gather::Gathering;
use group::EngineMask;
use group_members::GroupMembers;
use polling::Polling;
use table::{ENGINES_MAX, FileId};
use waiters::Waiter;

pub(crate) use clock::{ClockReading, system_ns};
pub(crate) use failure::{guard, panic_in_tests, unmap_rings};
pub(crate) use kernel_looks::{is_twins_turn, looks_at_kernel};
pub(crate) use waiters::WaitFor;

/// The state behind the lock.
pub(crate) struct Engine {
    /// Its number, the room of its files.
    pub(crate) number: usize,
    pub(crate) files: OpenFiles,
    pub(crate) state: State,
    /// Its listeners for those of other engines.
    pub(crate) guests: Vec<Guest>,
    /// Threads that sleep.
    waiters: Vec<Waiter>,
    /// The one of them that sleeps on the device and on the worker's timers, by its descriptor; 0
    /// for none. It wakes the others, so a frame wakes one thread instead of all.
    leader: i32,
    /// When the leader looks at the timers, at the latest, by the engine's clock.
    leader_until: u64,
    /// A call or a turn may have set a timer since the leader was last told.
    may_have_timer: bool,
    /// The thread that polls.
    polling: Polling,
    /// The background thread sleeps for long, because no thread has used the engine for a while:
    /// the next user wakes it by this descriptor.
    pub(crate) background: Option<i32>,
    /// Sets of the core in which an item has become ready; kept for its memory.
    moved_sets: Vec<usize>,
    /// A packet or a call has changed a socket since the sleeping threads were last checked.
    has_moved: bool,
    /// Counts turns, so that the background thread sees whether other threads turn the worker.
    pub(crate) turns: u64,
    /// The interface is gone, or its broker, and the worker with it.
    pub(crate) is_gone: bool,
    /// Its broker has ended, and may be there again.
    awaits_broker: bool,
    /// Why the worker could not be opened before the process has gone into a `chroot`.
    pub(crate) why_not_before: Option<String>,
    /// A socket of the kernel's that asks for the interface, as long as the worker runs.
    pub(crate) asks: Option<c_int>,
    /// Counts the sockets that were offloaded, so that a thread which waits for descriptors of the
    /// kernel sees that one of them has become ours.
    pub(crate) offloads: u64,
    /// Counts the sleeps of threads.
    pub(crate) sleeps: u64,
    pub(crate) wakeups: u64,
    /// Turns that have received packets, and those of the background thread.
    pub(crate) turns_with_packets: u64,
    pub(crate) keeper_turns: u64,
    /// How often a thread found another one here.
    pub(crate) contended: u64,
    /// Whether destinations leave by our interface. The background thread clears them where routes
    /// have changed.
    pub(crate) destinations: Destinations,
    /// Groups with members on this host, as the kernel has said; none before a datagram goes to a
    /// group. The background thread asks again.
    pub(crate) group_members: Option<GroupMembers>,
    /// A buffer for `sendfile`.
    pub(crate) file_block: Option<Box<[u8]>>,
    /// Frames that wait for others.
    pub(crate) gathering: Gathering,
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

/// A listener of an engine for one of another engine.
#[derive(Clone, Copy)]
pub(crate) struct Guest {
    pub(crate) id: SocketId,
    /// A descriptor of that other one, and what the listing says of it.
    pub(crate) fd: c_int,
    pub(crate) why: &'static str,
    pub(crate) opened: SystemTime,
}

/// The locked engine; dropping it releases the lock.
pub(crate) struct EngineGuard(Option<MutexGuard<'static, Shared>>);

struct Shared(Engine);

// SAFETY: invariants 1 and 2: the handles inside that are not `Send` are only used under the lock.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}

static ENGINES: [Mutex<Shared>; ENGINES_MAX] = {
    const fn engine(number: usize) -> Mutex<Shared> {
        Mutex::new(Shared(Engine::new(number)))
    }
    [
        engine(0),
        engine(1),
        engine(2),
        engine(3),
        engine(4),
        engine(5),
        engine(6),
        engine(7),
        engine(8),
        engine(9),
        engine(10),
        engine(11),
        engine(12),
        engine(13),
        engine(14),
    ]
};

/// The engines that the process may use.
pub(crate) fn all() -> EngineMask {
    (0..config::engines()).collect()
}

/// Takes the lock of a file's engine; that of an epoll set is the first one's.
#[inline]
pub(crate) fn enter(file: FileId) -> EngineGuard {
    enter_at(file.room())
}

/// Takes the lock of the thread's own engine.
pub(crate) fn enter_own() -> EngineGuard {
    enter_at(thread::own_engine())
}

/// Takes the lock of an engine. Signals are kept until it is released, because a handler may make a
/// call of ours.
#[inline]
pub(crate) fn enter_at(number: usize) -> EngineGuard {
    let answers_left = thread::enter();
    let (guard, has_waited) = lock(engine_of(number));
    thread::refuse_cancel();
    let mut engine = EngineGuard(Some(guard));
    if has_waited {
        engine.note_contention();
        engine.contended += 1;
    }
    engine.begin(answers_left);
    engine
}

/// Takes a lock, and returns whether another thread had it.
#[inline]
fn lock(lock: &Mutex<Shared>) -> (MutexGuard<'_, Shared>, bool) {
    match lock.try_lock() {
        Ok(guard) => (guard, false),
        Err(TryLockError::Poisoned(poisoned)) => (poisoned.into_inner(), false),
        Err(TryLockError::WouldBlock) => (lock.lock().unwrap_or_else(PoisonError::into_inner), true),
    }
}

/// Takes the lock of an engine if it is free.
pub(crate) fn try_enter_at(number: usize) -> Option<EngineGuard> {
    let answers_left = thread::enter();
    match engine_of(number).try_lock() {
        Ok(guard) => {
            thread::refuse_cancel();
            let mut engine = EngineGuard(Some(guard));
            engine.begin(answers_left);
            Some(engine)
        }
        Err(_) => {
            thread::leave();
            None
        }
    }
}

/// Calls `act` with the files that a file is among: those of its engine, or the epoll sets.
pub(crate) fn with_files<T>(file: FileId, act: impl FnOnce(&mut OpenFiles) -> T) -> T {
    if file.is_set() { sets::with(act) } else { act(&mut enter(file).files) }
}

fn engine_of(number: usize) -> &'static Mutex<Shared> {
    ENGINES.get(number).unwrap_or(&ENGINES[0])
}

impl Engine {
    const fn new(number: usize) -> Self {
        Self {
            number,
            files: OpenFiles::new(number),
            state: State::Closed,
            guests: Vec::new(),
            waiters: Vec::new(),
            leader: 0,
            leader_until: 0,
            may_have_timer: false,
            polling: Polling::new(),
            background: None,
            moved_sets: Vec::new(),
            has_moved: false,
            turns: 0,
            is_gone: false,
            awaits_broker: false,
            why_not_before: None,
            asks: None,
            offloads: 0,
            sleeps: 0,
            wakeups: 0,
            turns_with_packets: 0,
            keeper_turns: 0,
            contended: 0,
            destinations: Destinations::new(),
            group_members: None,
            file_block: None,
            gathering: Gathering::new(),
        }
    }

    /// A thread has entered that may still answer so many events.
    #[inline]
    fn begin(&mut self, answers_left: u32) {
        self.fail_with_others();
        self.hold_or_release(answers_left > 0);
    }

    /// It leaves: frames leave, some by what is returned once the lock is free, and threads that
    /// sleep are woken for what it has changed.
    #[inline]
    fn end(&mut self) -> Option<Arc<dyn Doorbell>> {
        let doorbell = self.ring_if_due();
        self.wake_waiters();
        self.wake_leader_for_timer();
        doorbell
    }

    /// A call of the sockets, which may change them: sleeping threads are checked when the lock is
    /// released.
    #[inline]
    pub(crate) fn call<T>(
        &mut self,
        act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        (self.has_moved, self.may_have_timer) = (true, true);
        self.ask(act)
    }

    /// A call that receives: by the clock's last reading, and without a doorbell, because it sends
    /// nothing. It sets a timer only where it has made room for data that waits.
    #[inline]
    pub(crate) fn receive<T>(
        &mut self,
        act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.has_moved = true;
        let State::Open(stack) = &self.state else { return Err(Errno(libc::EIO)) };
        let received =
            catch_unwind(AssertUnwindSafe(|| stack.read(|sockets, cx| (act(sockets, cx), sockets.take_resumed()))));
        let (done, has_resumed) = received.unwrap_or_else(|_| (self.fail(), false));
        self.may_have_timer |= has_resumed;
        done
    }

    /// A call that changes no socket, and needs what the worker knows or the time.
    #[inline]
    pub(crate) fn ask<T>(
        &mut self,
        act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let State::Open(stack) = &self.state else { return Err(Errno(libc::EIO)) };
        let done = catch_unwind(AssertUnwindSafe(|| stack.call(act))).unwrap_or_else(|_| self.fail());
        self.note_frames();
        done
    }

    /// A call that needs the sockets alone: no clock is read, and no doorbell rung. Threads that
    /// sleep are not checked for it. A panic ends the engine, not the program.
    #[inline]
    pub(crate) fn look<T>(&mut self, act: impl FnOnce(&mut Sockets) -> Result<T, Errno>) -> Result<T, Errno> {
        let State::Open(stack) = &self.state else { return Err(Errno(libc::EIO)) };
        catch_unwind(AssertUnwindSafe(|| stack.with_sockets(act))).unwrap_or_else(|_| self.fail())
    }

    /// The time, as the last turn or call read it.
    #[inline]
    pub(crate) fn time(&self) -> ClockReading {
        match &self.state {
            State::Open(stack) => ClockReading { engine: Some(self.number), ns: stack.last_reading().as_nanos() },
            State::Closed | State::Failed => ClockReading { engine: None, ns: system_ns() },
        }
    }

    /// A turn that the background thread makes.
    pub(crate) fn turn_for_program(&mut self) -> usize {
        self.keeper_turns += 1;
        self.turn()
    }

    /// One turn of the worker. Returns the number of received packets.
    pub(crate) fn turn(&mut self) -> usize {
        let State::Open(stack) = &self.state else { return 0 };
        (self.turns, self.may_have_timer) = (self.turns.wrapping_add(1), true);
        let (received, has_moved) = catch_unwind(AssertUnwindSafe(|| {
            panic_in_tests("turn");
            let received = stack.turn();
            // A timer, and an ICMP error that the kernel has received, change sockets too.
            (received, received > 0 || stack.with_sockets(Sockets::take_moved))
        }))
        .unwrap_or_else(|_| {
            let _: Result<(), Errno> = self.fail();
            (0, true)
        });
        self.turns_with_packets += u64::from(received > 0);
        self.has_moved |= has_moved;
        self.note_frames();
        received
    }

    /// Updates all counters, those of the kernel too, for a program that sleeps.
    pub(crate) fn refresh_counters(&mut self) {
        let State::Open(stack) = &self.state else { return };
        if catch_unwind(AssertUnwindSafe(|| stack.refresh())).is_err() {
            let _: Result<(), Errno> = self.fail();
        }
    }

    /// Whether this thread, which has waited for that time, polls on instead of sleeping. Unless
    /// the user has set a time, one thread polls at once, and none where the sleeping ones are as
    /// many as the other cores: the thread that polls would take the core of one that has work, or
    /// of a peer.
    pub(crate) fn may_poll(&mut self, waited_ns: u64) -> bool {
        let spin = config::spin();
        if !self.is_open() || self.is_gone || waited_ns >= spin.ns {
            self.end_poll();
            return false;
        }
        if spin.is_set {
            return true;
        }
        let now = self.time();
        self.polling.may_poll(thread::token(), now, self.waiters.len(), sys::cores())
    }

    /// This thread does not poll, or no longer.
    pub(crate) fn end_poll(&mut self) {
        self.polling.end(thread::token());
    }

    /// How a waiting thread sleeps: the descriptor that wakes it for packets, and the longest time;
    /// `None` if a turn is due now.
    pub(crate) fn sleep(&mut self) -> Option<Sleep> {
        let asleep = Some(Sleep { fd: None, updates: None, timeout: None });
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

    /// All streams that the program has left open send what they have, and their end, as the
    /// kernel's do when a process ends. They stay what they are for threads that still run.
    pub(crate) fn send_ends(&mut self) {
        for id in self.files.streams() {
            let _ = self.call(|sockets, cx| sockets.send_end(id, cx));
        }
    }

    /// Resets those whose bytes nobody has read.
    pub(crate) fn reset_unread(&mut self) {
        for id in self.files.streams() {
            let _ = self.call(|sockets, cx| sockets.reset_if_unread(id, cx));
        }
    }

    /// The longest retransmission timeout of the streams that were closed, or end with the process,
    /// and whose peers have not acknowledged all of it yet; `None` if there are none.
    pub(crate) fn longest_end(&mut self) -> Option<Duration> {
        let longest = self.ask(|sockets, cx| Ok(sockets.longest_end(cx))).ok().flatten();
        longest.map(|rto| Duration::from_nanos(rto.as_nanos()))
    }

    /// Ends all sockets of an interface that is gone, or whose frames come no more because its
    /// broker has ended. Returns whether that is so.
    pub(crate) fn lose_if_gone(&mut self) -> bool {
        if self.is_gone || !self.is_open() {
            return self.is_gone;
        }
        let name = config::get().map_or("", |config| config.port.interface());
        let idx = config::system().interface_idx;
        let is_without_interface = self.asks.is_some_and(|asks| idx != 0 && !sys::has_interface(asks, idx));
        let why = if is_without_interface {
            format!("{name} is gone: start the program again once the interface is back")
        } else {
            let Ok(Some(why)) = self.look(|sockets| Ok(sockets.why_ended())) else { return false };
            why
        };
        self.is_gone = true;
        // One of the same name is another interface, with an index of its own.
        if !is_without_interface && config::broker().is_some() {
            self.awaits_broker = true;
            file::begin_to_await_broker();
        }
        let _ = self.call(|sockets, cx| {
            sockets.lose(Errno::ENETDOWN, cx);
            Ok(())
        });
        self.wake_all();
        config::say(format_args!("{why}; until then its sockets end with ENETDOWN, and new ones are the kernel's"));
        true
    }

    /// Whether its broker has ended, and may be there again.
    pub(crate) fn awaits_broker(&self) -> bool {
        self.awaits_broker
    }

    /// Its sockets stay lost.
    pub(crate) fn await_no_broker(&mut self) {
        if core::mem::take(&mut self.awaits_broker) {
            file::end_to_await_broker();
        }
    }

    /// It has a worker again, or is closed.
    fn forget_loss(&mut self) {
        self.is_gone = false;
        if core::mem::take(&mut self.awaits_broker) {
            file::end_to_await_broker();
            BEGUN_ANEW.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the worker runs.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// In a child of `fork`: the worker and its sockets stay the parent's, and this process has
    /// none until a socket of its own needs one. Returns whether there was one.
    pub(crate) fn leave_to_parent(&mut self) -> bool {
        self.forget_waiters();
        self.files.leave_to_parent();
        let had_one = match core::mem::replace(&mut self.state, State::Closed) {
            State::Open(stack) => {
                // Dropped, it would end the parent's connections.
                core::mem::forget(stack);
                true
            }
            State::Closed => false,
            State::Failed => {
                self.state = State::Failed;
                false
            }
        };
        self.forget_loss();
        self.why_not_before = None;
        self.guests.clear();
        self.group_members = None;
        self.destinations.clear();
        had_one
    }

    /// Closes the stack, which gives the queue back.
    pub(crate) fn close(&mut self) {
        if let State::Open(stack) = core::mem::replace(&mut self.state, State::Closed) {
            let _ = guard(|| drop(stack));
        }
        if let Some(asks) = self.asks.take() {
            thread::give_back(asks);
        }
        self.forget_loss();
        self.guests.clear();
        self.gathering = Gathering::new();
        sets::forget_parts(self.number, false);
        self.wake_all();
    }
}

/// How often the process has opened an engine anew: a call that began before may have the number of
/// a socket of before.
static BEGUN_ANEW: AtomicU32 = AtomicU32::new(0);

/// The call begins again, as after Linux's error of this number (`ERESTARTNOINTR`), because it is
/// time to look for the broker, or because an engine was opened anew. No program sees it.
pub(crate) const BEGIN_AGAIN: Errno = Errno(513);

/// How often an engine was opened anew so far.
#[inline]
pub(crate) fn count_begun_anew() -> u32 {
    BEGUN_ANEW.load(Ordering::Relaxed)
}

/// What a call returns that has waited: one that began with the number of a socket of before begins
/// again. A thread is in one such call at most, so each is told so once: a number that is wrong for
/// good must not have a program try again for ever.
pub(crate) fn of_today<T>(done: Result<T, Errno>) -> Result<T, Errno> {
    match done {
        Err(Errno::EBADF) if is_first_since(count_begun_anew()) => Err(BEGIN_AGAIN),
        done => done,
    }
}

fn is_first_since(count: u32) -> bool {
    thread_local! {
        static SEEN: Cell<u32> = const { Cell::new(0) };
    }
    SEEN.try_with(|seen| seen.replace(count) != count).unwrap_or(false)
}

impl EngineGuard {
    /// The background thread leaves the engine, and sleeps: the next thread that leaves it wakes it
    /// by this descriptor.
    pub(crate) fn leave_to_sleep(mut self, background: Option<i32>) {
        let doorbell = self.end();
        self.background = background;
        self.let_go(doorbell);
        // All that `drop` does is done, but for the wake-up: the caller is the background thread
        // itself.
        core::mem::forget(self);
    }
}

impl Deref for EngineGuard {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        match &self.0 {
            Some(guard) => &guard.0,
            None => unreachable!("given back by drop alone"),
        }
    }
}

impl DerefMut for EngineGuard {
    fn deref_mut(&mut self) -> &mut Engine {
        match &mut self.0 {
            Some(guard) => &mut guard.0,
            None => unreachable!("given back by drop alone"),
        }
    }
}

impl EngineGuard {
    /// Other threads may have the engine from now on. Kept signals run behind the doorbell: a
    /// handler may leave by a jump.
    #[inline]
    fn let_go(&mut self, doorbell: Option<Arc<dyn Doorbell>>) {
        self.0 = None;
        if let Some(doorbell) = doorbell {
            doorbell.ring();
        }
        thread::leave();
    }
}

impl Drop for EngineGuard {
    fn drop(&mut self) {
        let doorbell = self.end();
        if let Some(background) = self.background.take() {
            let _ = sys::write(background, &1_u64.to_ne_bytes());
        }
        self.let_go(doorbell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_that_is_wrong_for_good_has_a_call_begin_again_once() {
        let call = || of_today::<()>(Err(Errno::EBADF));
        assert_eq!(call(), Err(Errno::EBADF));
        for _ in 0..2 {
            let mut engine = Engine::new(0);
            engine.awaits_broker = true;
            file::begin_to_await_broker();
            engine.forget_loss();
            assert_eq!(call(), Err(BEGIN_AGAIN));
            assert_eq!([call(), call()], [Err(Errno::EBADF); 2]);
        }
    }
}
