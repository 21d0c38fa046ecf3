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
use core::ffi::{c_int, c_uint};
use core::net::Ipv4Addr;
use core::ops::{Deref, DerefMut};
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{self, catch_unwind};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use sockets::{Errno, Ready, Sleep, SocketId, Sockets, Stack};
use wirepath::pipeline::Cx;

use crate::{config, sys};

pub(crate) mod file;
mod gather;
pub(crate) mod group;
pub(crate) mod options;
mod polling;
pub(crate) mod sets;
#[allow(unsafe_code)]
pub(crate) mod signals;
pub(crate) mod table;
pub(crate) mod thread;
pub(crate) mod wait;

use file::OpenFiles;
use gather::Gathering;
use group::EngineMask;
use polling::Polling;
use table::{ENGINES_MAX, FileId};

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
    /// The interface is gone, and the worker with it.
    pub(crate) is_gone: bool,
    /// A socket of the kernel's that asks for the interface, as long as the worker runs.
    pub(crate) asks: Option<c_int>,
    /// A stream was offloaded: its last data may be unacknowledged.
    pub(crate) had_streams: bool,
    /// Counts the sockets that were offloaded, so that a thread which waits for descriptors of the
    /// kernel sees that one of them has become ours.
    pub(crate) offloads: u64,
    /// Counts the sleeps of threads.
    pub(crate) sleeps: u64,
    pub(crate) wakeups: u64,
    /// Destinations of datagrams, and whether they leave by our interface. The background thread
    /// clears them where routes have changed.
    pub(crate) destinations: Vec<(Ipv4Addr, bool)>,
    /// Groups that were sent to: when the kernel was asked for members on this host, and whether
    /// there were any.
    pub(crate) members: Vec<(Ipv4Addr, Instant, bool)>,
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

/// A thread that sleeps until one of its sockets is ready.
#[derive(Clone, Copy)]
struct Waiter {
    eventfd: i32,
    interest: WaitFor,
    /// It was woken, and has not run yet.
    is_woken: bool,
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

/// A reading of a clock: an engine's, or the system's where its engine is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// The engine that has read it, each of which has a clock of its own.
    engine: Option<usize>,
    ns: u64,
}

impl ClockReading {
    /// Nanoseconds since an earlier reading; 0 if that was of the other clock.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> u64 {
        if self.engine == earlier.engine { self.ns.saturating_sub(earlier.ns) } else { 0 }
    }
}

/// The system's clock.
#[cold]
fn system_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
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
pub(crate) fn enter_at(number: usize) -> EngineGuard {
    thread::enter();
    let guard = engine_of(number).lock().unwrap_or_else(PoisonError::into_inner);
    thread::refuse_cancel();
    let mut engine = EngineGuard(Some(guard));
    engine.begin();
    engine
}

/// Takes the lock of an engine if it is free.
pub(crate) fn try_enter_at(number: usize) -> Option<EngineGuard> {
    thread::enter();
    match engine_of(number).try_lock() {
        Ok(guard) => {
            thread::refuse_cancel();
            let mut engine = EngineGuard(Some(guard));
            engine.begin();
            Some(engine)
        }
        Err(_) => {
            signals::leave();
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

/// An engine has failed. The device's descriptors and memory are taken back all together, so that
/// the others fail too, when a thread next enters them.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

impl Engine {
    const fn new(number: usize) -> Self {
        Self {
            number,
            files: OpenFiles::new(number),
            state: State::Closed,
            guests: Vec::new(),
            waiters: Vec::new(),
            leader: 0,
            polling: Polling::new(),
            background: None,
            moved_sets: Vec::new(),
            has_moved: false,
            turns: 0,
            is_gone: false,
            asks: None,
            had_streams: false,
            offloads: 0,
            sleeps: 0,
            wakeups: 0,
            destinations: Vec::new(),
            members: Vec::new(),
            gathering: Gathering::new(),
        }
    }

    /// A thread has entered.
    #[inline]
    fn begin(&mut self) {
        if HAS_FAILED.load(Ordering::Relaxed) && self.is_open() {
            let _: Result<(), Errno> = self.fail();
        }
        self.hold_or_release();
    }

    /// A call of the sockets, which may change them: sleeping threads are checked when the lock is
    /// released.
    #[inline]
    pub(crate) fn call<T>(
        &mut self,
        act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.has_moved = true;
        self.ask(act)
    }

    /// A call that receives: as [`call`](Self::call), by the clock's last reading.
    #[inline]
    pub(crate) fn receive<T>(
        &mut self,
        act: impl FnOnce(&mut Sockets, &mut Cx<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.has_moved = true;
        let State::Open(stack) = &self.state else { return Err(Errno(libc::EIO)) };
        let done = catch_unwind(AssertUnwindSafe(|| stack.call_without_clock(act))).unwrap_or_else(|_| self.fail());
        self.note_frames();
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
        // A timer changes sockets without a packet, but the leading thread wakes for it.
        self.has_moved |= received > 0;
        self.note_frames();
        received
    }

    /// Whether this thread, which has waited for that time, polls on instead of sleeping. Unless
    /// the user has set a time, one thread polls at once, and none where the sleeping ones are as
    /// many as the other cores: the thread that polls would take the core of one that has work, or
    /// of a peer.
    pub(crate) fn may_poll(&mut self, waited_ns: u64) -> bool {
        let spin = config::spin();
        if !self.is_open() || waited_ns >= spin.ns {
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

    /// Registers this thread as a waiter: a change of its sockets wakes it. Returns whether it
    /// leads the others: then it sleeps on the device and the worker's timers.
    pub(crate) fn begin_wait(&mut self, eventfd: i32, interest: WaitFor) -> bool {
        // Earlier changes concern the other waiters only, because this thread has just checked its
        // sockets.
        self.wake_waiters();
        self.sleeps += 1;
        self.waiters.push(Waiter { eventfd, interest, is_woken: false });
        thread::begin_wait(self.number);
        if self.leader == 0 {
            self.leader = eventfd;
        }
        self.leader == eventfd
    }

    /// Removes this thread from the waiters: it looks at its sockets now. After that it either
    /// sleeps again or calls [`hand_over`](Self::hand_over). A leader that slept until a timer was
    /// due has the others look too, because the timer may be that of a socket of theirs.
    pub(crate) fn end_wait(&mut self, eventfd: i32) {
        thread::end_wait(self.number);
        self.waiters.retain(|waiter| waiter.eventfd != eventfd);
        if self.leader == eventfd {
            self.leader = 0;
        }
    }

    /// A worker's timer was due: any socket may have changed.
    pub(crate) fn note_timer(&mut self) {
        self.has_moved |= !self.waiters.is_empty();
    }

    /// This thread returns to the program: another one that sleeps leads from now on.
    pub(crate) fn hand_over(&mut self) {
        if self.leader == 0
            && let Some(waiter) = self.waiters.iter_mut().find(|waiter| !waiter.is_woken)
        {
            waiter.is_woken = true;
            let _ = sys::write(waiter.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// This thread waits on an epoll set: of several that are exclusive for a socket, one with such
    /// a thread is woken.
    pub(crate) fn begin_watch(&mut self, file: FileId) {
        if thread::watches_in(self.number) {
            return;
        }
        if let Ok(Some(set)) = sets::part(file, self.number) {
            thread::begin_watch(file, self.number);
            let _ = self.look(|sockets| sockets.epoll_sleeps(set, true));
        }
    }

    /// It waits on the set no longer.
    pub(crate) fn end_watch(&mut self) {
        if let Some(file) = thread::end_watch(self.number)
            && let Ok(Some(set)) = sets::part(file, self.number)
        {
            let _ = self.look(|sockets| sockets.epoll_sleeps(set, false));
        }
    }

    /// This thread leaves its wait without a look at its sockets: what it was woken for is another
    /// thread's.
    pub(crate) fn leave_wait(&mut self) {
        let eventfd = thread::known_eventfd();
        let woken = self.waiters.iter().find(|waiter| waiter.eventfd == eventfd && waiter.is_woken);
        if let Some(Waiter { interest: WaitFor::Set(file), .. }) = woken.copied() {
            self.pass_on(file);
        }
        self.end_wait(eventfd);
        self.end_watch();
        self.hand_over();
    }

    /// Has another thread woken for what is ready in an epoll set.
    pub(crate) fn pass_on(&mut self, file: FileId) {
        if let Ok(Some(set)) = sets::part(file, self.number) {
            let _ = self.call(|sockets, _| sockets.epoll_rewake(set));
        }
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
        (self.leader, self.background, self.asks) = (0, None, None);
        (self.polling, self.gathering) = (Polling::new(), Gathering::new());
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
        let Some(asks) = self.asks.filter(|_| !self.is_gone && self.is_open() && idx != 0) else {
            return self.is_gone;
        };
        if sys::has_interface(asks, idx) {
            return false;
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
        if let Some(asks) = self.asks.take() {
            thread::give_back(asks);
        }
        self.is_gone = false;
        self.guests.clear();
        self.gathering = Gathering::new();
        sets::forget_engine(self.number, false);
        self.wake_all();
    }

    fn wake_waiters(&mut self) {
        let has_moved = core::mem::take(&mut self.has_moved);
        if (!has_moved || self.waiters.is_empty()) && !sets::are_shown() {
            return;
        }
        let mut moved = core::mem::take(&mut self.moved_sets);
        let _ = self.look(|sockets| {
            sockets.take_woken(|set| moved.push(set));
            Ok(())
        });
        if sets::are_shown() {
            for (file, set) in sets::shown_in(self.number) {
                let is_ready = self.look(|sockets| sockets.epoll_ready(set)).unwrap_or(false);
                sets::show_events(file, self.number, is_ready, moved.contains(&set));
            }
        }
        for idx in 0..if has_moved { self.waiters.len() } else { 0 } {
            let Waiter { eventfd, interest, is_woken } = self.waiters[idx];
            if is_woken {
                continue;
            }
            let is_ready = match interest {
                WaitFor::Any => true,
                WaitFor::Set(file) => match sets::part(file, self.number) {
                    Ok(Some(set)) => {
                        moved.contains(&set)
                            && !self.is_woken_for(interest)
                            && self.look(|sockets| sockets.epoll_ready(set)).unwrap_or(true)
                    }
                    Ok(None) => false,
                    Err(_) => true,
                },
                WaitFor::Socket(id, ready) => {
                    self.look(|sockets| sockets.ready(id)).map_or(true, |now| !now.among(ready).is_none())
                }
            };
            if is_ready {
                self.wakeups += 1;
                self.waiters[idx].is_woken = true;
                let _ = sys::write(eventfd, &1_u64.to_ne_bytes());
            }
        }
        moved.clear();
        self.moved_sets = moved;
    }

    /// Whether a thread of these waiters is about to run: it takes all that is ready in the set, or
    /// passes it on.
    fn is_woken_for(&self, interest: WaitFor) -> bool {
        self.waiters.iter().any(|waiter| waiter.is_woken && waiter.interest == interest)
    }

    fn fail<T>(&mut self) -> Result<T, Errno> {
        let words = last_panic();
        if let State::Open(stack) = core::mem::replace(&mut self.state, State::Failed) {
            // Peers are reset, if it can do that still.
            let _ = catch_unwind(AssertUnwindSafe(|| stack.call(|sockets, cx| sockets.reset_all(cx))));
            let _ = catch_unwind(AssertUnwindSafe(|| stack.call(|sockets, _| sockets.give_port_back())));
            // Its memory may be inconsistent, so it is not dropped. What it has of the kernel is
            // given back all the same, so that frames are the kernel's, and the queue is free.
            core::mem::forget(stack);
            give_device_back();
        }
        sets::forget_engine(self.number, true);
        self.wake_all();
        if !HAS_FAILED.swap(true, Ordering::Relaxed) {
            config::say(format_args!(
                "wirepath has failed ({words}): its sockets end with EIO, and new ones are the kernel's"
            ));
        }
        Err(Errno(libc::EIO))
    }
}

/// Takes the files of a failed device from its descriptors and mappings. The numbers stay taken,
/// because threads of the device may still use them.
fn give_device_back() {
    let Ok(nothing) = sys::eventfd() else { return };
    let theirs: Vec<c_int> = table::in_range(0, c_uint::MAX).filter(|fd| table::is_of_device(*fd)).collect();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for fd in theirs {
        let file = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        let file = file.to_string_lossy().into_owned();
        if file.starts_with("socket:") {
            // The rings of an AF_XDP socket keep it alive.
            for line in maps.lines().filter(|line| line.ends_with(&file)) {
                sys::unmap_line(line);
            }
        }
        let _ = sys::dup3(nothing, fd, libc::O_CLOEXEC);
    }
    sys::close(nothing);
}

impl EngineGuard {
    /// The background thread leaves the engine, and sleeps: the next thread that leaves it wakes it
    /// by this descriptor.
    pub(crate) fn leave_to_sleep(mut self, background: Option<i32>) {
        self.ring_if_due();
        self.wake_waiters();
        self.background = background;
        self.0 = None;
        signals::leave();
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

impl Drop for EngineGuard {
    fn drop(&mut self) {
        self.ring_if_due();
        self.wake_waiters();
        if let Some(background) = self.background.take() {
            let _ = sys::write(background, &1_u64.to_ne_bytes());
        }
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
    /// The thread's attempts since it has checked the kernel, and when that was.
    static LOOKS: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
    /// Calls until the kernel's side has its turn, and the last number of the LCG.
    static TURNS: Cell<(u32, u32)> = const { Cell::new((KERNEL_LOOKS, 0)) };
}

/// Whether a polling thread also checks the kernel now. That is a system call, so it does after at
/// most [`KERNEL_LOOKS`] attempts, and not again within [`LOOK_EVERY_NS`]. The number varies with
/// the time: a constant one could fall on the same socket each time where a program polls some in
/// turn, and what the kernel has for the others would never be reported.
#[inline]
pub(crate) fn looks_at_kernel(now: ClockReading) -> bool {
    LOOKS.with(|looks| {
        let (count, at) = looks.get();
        // A clock that has begun anew is earlier.
        if count < KERNEL_LOOKS || (at..at + LOOK_EVERY_NS).contains(&now.ns) {
            looks.set((count.saturating_add(1), at));
            return false;
        }
        looks.set((now.ns as u32 % (KERNEL_LOOKS / 2), now.ns));
        true
    })
}

/// Whether the twin of a socket with equal rights has its turn before the engine, in this call of
/// the thread: in one of at most [`KERNEL_LOOKS`]. The number varies (by an LCG), as above.
pub(crate) fn is_twins_turn() -> bool {
    TURNS.with(|turns| {
        let (left, random) = turns.get();
        if left > 1 {
            turns.set((left - 1, random));
            return false;
        }
        let random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        turns.set((KERNEL_LOOKS - (random >> 16) % (KERNEL_LOOKS / 2), random));
        true
    })
}

/// Attempts for one system call.
const KERNEL_LOOKS: u32 = 16;
/// Datagrams that reach a socket by the kernel wait this much longer, a fraction of the time in
/// which a thread wakes.
const LOOK_EVERY_NS: u64 = 20_000;
