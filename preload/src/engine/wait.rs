//! Calls that wait. The thread polls the worker for the spin budget, then it sleeps until packets
//! arrive, another thread changes its socket, a descriptor of the kernel is ready, or a timer of
//! the worker is due. A thread that wakes turns the worker, so a program whose threads all sleep
//! needs no other thread. A call that waits on sockets of several engines polls all of these, and
//! sleeps on the descriptors of all.

use std::time::{Duration, Instant};

use sockets::{Errno, Ready, Sleep};

use crate::engine::file::Replica;
use crate::engine::group::{EngineMask, Engines};
use crate::engine::table::FileId;
use crate::engine::{self, ClockReading, Engine, WaitFor, sets, thread};
use crate::{real, sys};

/// How a call waits.
#[derive(Debug)]
pub(crate) struct Blocking {
    /// The call does not block.
    pub(crate) is_nonblocking: bool,
    /// The call ends with `EAGAIN` after this time. Each wait of the call takes its own from it, so
    /// it bounds the whole call, however many waits that has.
    pub(crate) timeout: Option<Duration>,
    /// A handler with `SA_RESTART` does not end the call (man 7 signal: calls with a timeout,
    /// `poll`, `select` and epoll end all the same).
    pub(crate) restarts: bool,
    /// How often an engine had been opened anew: the numbers of sockets that the call has are of
    /// then.
    begun_anew: u32,
}

impl Blocking {
    /// The blocking of a socket's call with this timeout.
    pub(crate) fn of_socket(is_nonblocking: bool, timeout: Option<Duration>) -> Self {
        Self { is_nonblocking, timeout, restarts: timeout.is_none(), begun_anew: engine::count_begun_anew() }
    }

    /// The blocking of `poll` and its family.
    pub(crate) fn of_poll(timeout: Option<Duration>) -> Self {
        let is_nonblocking = timeout == Some(Duration::ZERO);
        Self { is_nonblocking, timeout, restarts: false, begun_anew: engine::count_begun_anew() }
    }

    /// The call [begins again](engine::BEGIN_AGAIN), with the time that it has left.
    pub(crate) fn begin_again(&mut self) {
        self.is_nonblocking |= self.timeout == Some(Duration::ZERO);
        self.begun_anew = engine::count_begun_anew();
    }

    /// Bytes have moved: a handler ends the call from now on, whatever its flags, and the call
    /// reports their number.
    pub(crate) fn note_moved(&mut self) {
        self.restarts = false;
    }

    fn spend(&mut self, waited_ns: u64) {
        self.timeout = self.timeout.map(|timeout| timeout.saturating_sub(Duration::from_nanos(waited_ns)));
        thread::set_time_left(self.timeout);
    }
}

/// The sides that an attempt checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// The engine alone: memory.
    Ours,
    /// The kernel too: a system call.
    Both,
}

/// What a call waits for.
#[derive(Clone, Copy)]
pub(crate) struct Waits<'a> {
    /// The engines of its sockets.
    pub(crate) engines: EngineMask,
    /// Its epoll sets: it waits on the engines of their members too.
    pub(crate) sets: &'a [FileId],
    pub(crate) interest: WaitFor,
    /// The listeners that it waits on, of several engines: then the interest is in each one's
    /// connections.
    pub(crate) listeners: &'a [Replica],
    /// Descriptors of the kernel that wake the thread too.
    pub(crate) kernel: &'a [libc::pollfd],
}

impl Waits<'_> {
    /// What it waits for in an engine.
    fn interest_in(&self, engine: usize) -> WaitFor {
        let listener = self.listeners.iter().find(|listener| listener.engine == engine);
        listener.map_or(self.interest, |listener| WaitFor::Socket(listener.id, Ready::IN))
    }

    /// The engines that it waits on now. Where sets are members of sets, that may be any.
    fn engines(&self) -> EngineMask {
        if self.sets.is_empty() {
            return self.engines;
        }
        if engine::all() == EngineMask::one(0) || sets::are_shown() {
            return engine::all();
        }
        self.sets.iter().fold(self.engines, |engines, set| engines.union(sets::engines(*set)))
    }
}

/// Repeats `attempt` on one engine until it returns something else than `EAGAIN`. The descriptors
/// `kernel` wake the thread too.
///
/// # Errors
/// The error of the attempt; `EAGAIN` after the timeout; `EINTR`;
/// [`BEGIN_AGAIN`](engine::BEGIN_AGAIN).
pub(crate) fn until<T>(
    blocking: &mut Blocking,
    number: usize,
    interest: WaitFor,
    kernel: &[libc::pollfd],
    mut attempt: impl FnMut(&mut Engine, Sides) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let waits = Waits { engines: EngineMask::one(number), sets: &[], interest, listeners: &[], kernel };
    until_any(blocking, &waits, |engines, sides| attempt(&mut engines.first, sides))
}

/// Repeats `attempt` on several engines, all locked, until it returns something else than `EAGAIN`.
///
/// # Errors
/// As [`until`].
pub(crate) fn until_any<T>(
    blocking: &mut Blocking,
    waits: &Waits<'_>,
    attempt: impl FnMut(&mut Engines, Sides) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut waited = Waited::default();
    let done = attempt_until(blocking, &mut waited, waits, attempt);
    if blocking.timeout.is_some() {
        blocking.spend(waited.ns);
    }
    done
}

fn attempt_until<T>(
    blocking: &Blocking,
    waited: &mut Waited,
    waits: &Waits<'_>,
    mut attempt: impl FnMut(&mut Engines, Sides) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut waited_in = EngineMask::NONE;
    let mut has_slept = false;
    // What the thread has sent since its last wait leaves.
    thread::set_answers(0);
    loop {
        let numbers = waits.engines();
        let spins = {
            let mut engines = Engines::enter(numbers);
            if blocking.begun_anew != engine::count_begun_anew() {
                return finish(engines, waited_in, Err(engine::BEGIN_AGAIN));
            }
            let sides = if has_slept { Sides::Both } else { next_sides(&engines.first) };
            let done = match attempt_and_turn_all(&mut engines, sides, &mut attempt) {
                // A call returns `EAGAIN` only after it has checked both sides.
                Err(Errno::EAGAIN) if sides == Sides::Ours && blocking.is_nonblocking => {
                    attempt(&mut engines, Sides::Both)
                }
                done => done,
            };
            let so_far = waited.until(engines.first.time(), Instant::now);
            match done {
                Err(Errno::EAGAIN) if !blocking.is_nonblocking => (),
                done => return finish(engines, waited_in, done),
            }
            waited_in = engines.iter_mut().fold(waited_in, |numbers, engine| numbers.with(engine.number));
            if let WaitFor::Set(file) = waits.interest {
                engines.iter_mut().for_each(|engine| engine.begin_watch(file));
            }
            if thread::is_interrupted(blocking.restarts) {
                return finish(engines, waited_in, Err(Errno(libc::EINTR)));
            }
            if has_slept && engines.iter_mut().any(|engine| engine.awaits_broker()) {
                return finish(engines, waited_in, Err(engine::BEGIN_AGAIN));
            }
            let left = blocking.timeout.map(|timeout| timeout.saturating_sub(Duration::from_nanos(so_far)));
            if left == Some(Duration::ZERO) {
                return finish(engines, waited_in, Err(Errno::EAGAIN));
            }
            if may_poll(&mut engines, so_far) {
                None
            } else {
                waited.begin_sleep(Instant::now());
                Some(left)
            }
        };
        has_slept = spins.is_some();
        match spins {
            None => core::hint::spin_loop(),
            Some(left) => {
                // From its first descriptor on a handler that runs wakes the thread by it.
                let _ = thread::eventfd();
                if thread::is_interrupted(blocking.restarts) {
                    return finish(Engines::enter(numbers), waited_in, Err(Errno(libc::EINTR)));
                }
                if let Some(done) = sleep(left, waits, numbers, &mut attempt) {
                    return finish(Engines::enter(numbers), waited_in, done);
                }
            }
        }
    }
}

/// Whether the thread polls on. It sleeps where another one polls any of the engines: that one
/// wakes it.
fn may_poll(engines: &mut Engines, so_far: u64) -> bool {
    let polls = engines.iter_mut().all(|engine| engine.may_poll(so_far));
    if !polls {
        engines.iter_mut().for_each(Engine::end_poll);
    }
    polls
}

/// How long a call has waited: by the clock of its first engine while it polls, and by the system's
/// from its last look before a sleep to the first one after it, because meanwhile another engine
/// may have come first, with a clock of its own.
#[derive(Default)]
struct Waited {
    /// When the thread has last looked.
    last: Option<ClockReading>,
    /// Since then it sleeps.
    asleep_since: Option<Instant>,
    ns: u64,
}

impl Waited {
    /// As of `now`; the system's clock is read after a sleep alone.
    fn until(&mut self, now: ClockReading, system: impl FnOnce() -> Instant) -> u64 {
        let last = self.last.replace(now);
        self.ns += match self.asleep_since.take() {
            Some(since) => system().saturating_duration_since(since).as_nanos() as u64,
            None => last.map_or(0, |last| now.since(last)),
        };
        self.ns
    }

    fn begin_sleep(&mut self, system: Instant) {
        self.asleep_since = Some(system);
    }
}

/// The call returns to the program: in the engines that it has waited in, another thread that
/// sleeps may have to lead.
fn finish<T>(mut engines: Engines, waited_in: EngineMask, done: Result<T, Errno>) -> Result<T, Errno> {
    let leave = |engine: &mut Engine| {
        engine.end_poll();
        engine.end_watch();
        engine.hand_over();
    };
    let others = engines.iter_mut().fold(waited_in, |others, engine| others.without(engine.number));
    engines.iter_mut().filter(|engine| waited_in.has(engine.number)).for_each(leave);
    let done = engine::of_today(done);
    drop(engines);
    // Those that the call waits on no longer, because a set was closed.
    others.iter().for_each(|number| leave(&mut engine::enter_at(number)));
    done
}

/// Mostly the engine alone, because the kernel costs a system call.
fn next_sides(engine: &Engine) -> Sides {
    if engine::looks_at_kernel(engine.time()) { Sides::Both } else { Sides::Ours }
}

/// One attempt, and another one if a turn of the worker has received packets.
pub(crate) fn attempt_and_turn<T>(
    engine: &mut Engine,
    sides: Sides,
    attempt: &mut impl FnMut(&mut Engine, Sides) -> Result<T, Errno>,
) -> Result<T, Errno> {
    match attempt(engine, sides) {
        Err(Errno::EAGAIN) if engine.turn() > 0 => attempt(engine, Sides::Ours),
        done => done,
    }
}

/// The same on several engines.
fn attempt_and_turn_all<T>(
    engines: &mut Engines,
    sides: Sides,
    attempt: &mut impl FnMut(&mut Engines, Sides) -> Result<T, Errno>,
) -> Result<T, Errno> {
    match attempt(engines, sides) {
        Err(Errno::EAGAIN) if engines.iter_mut().fold(0, |received, engine| received + engine.turn()) > 0 => {
            attempt(engines, Sides::Ours)
        }
        done => done,
    }
}

/// Sleeps until there is a reason to try again; `Some` if a last attempt succeeded.
fn sleep<T>(
    left: Option<Duration>,
    waits: &Waits<'_>,
    numbers: EngineMask,
    attempt: &mut impl FnMut(&mut Engines, Sides) -> Result<T, Errno>,
) -> Option<Result<T, Errno>> {
    let eventfd = thread::eventfd().ok();
    let mut waiting = {
        let mut engines = Engines::enter(numbers);
        match attempt(&mut engines, Sides::Both) {
            Err(Errno::EAGAIN) => (),
            done => return Some(done),
        }
        Waiting::begin(&mut engines, waits, eventfd)?
    };
    if waiting.begin_sleep() {
        waiting.sleep(left);
    }
    None
}

/// A thread that sleeps; by its end it no longer does, also where it is canceled in its sleep.
struct Waiting<'a> {
    /// Wakes the thread. Without it nothing can: it naps.
    eventfd: Option<i32>,
    /// The engines in which it is among the waiters, and those in which it leads them.
    engines: EngineMask,
    led: EngineMask,
    sets: &'a [FileId],
    /// What ends its sleep; from `devices` on the devices of the engines that it leads.
    fds: Vec<libc::pollfd>,
    devices: usize,
    /// Nanoseconds until the first of these engines' timers.
    timer: Option<u64>,
    /// Its sleep is over; without that it was canceled.
    was_woken: bool,
    /// The sleep ended by a timer.
    was_due: bool,
}

impl<'a> Waiting<'a> {
    /// Adds the thread to the waiters of its engines; `None` if one of them has a turn due now.
    fn begin(engines: &mut Engines, waits: &Waits<'a>, eventfd: Option<i32>) -> Option<Self> {
        let sleeps: Option<Vec<_>> = engines.iter_mut().map(Engine::sleep).collect();
        let sleeps = sleeps?;
        let mut fds = Vec::with_capacity(waits.kernel.len() + 2);
        fds.extend(eventfd.map(readable));
        fds.extend_from_slice(waits.kernel);
        let (none, devices) = (EngineMask::NONE, fds.len());
        let (was_woken, was_due) = (false, false);
        let mut waiting =
            Self { eventfd, engines: none, led: none, sets: waits.sets, fds, devices, timer: None, was_woken, was_due };
        for (engine, how) in engines.iter_mut().zip(sleeps) {
            waiting.engines = waiting.engines.with(engine.number);
            // From now on a thread that changes a socket finds this one among the waiters.
            if eventfd.is_none_or(|eventfd| engine.begin_wait(eventfd, waits.interest_in(engine.number))) {
                waiting.lead(engine, &how);
            }
        }
        Some(waiting)
    }

    /// The thread sleeps on an engine's device and timers.
    fn lead(&mut self, engine: &mut Engine, how: &Sleep) {
        // A device without a descriptor is polled; so is everything by a thread that has none.
        let nap = match (self.eventfd, how.fd) {
            (None, _) => Some(NO_WAKEUP_SLEEP_NS),
            (Some(_), _) if engine.awaits_broker() => Some(LOOK_FOR_BROKER_EVERY.as_nanos() as u64),
            (Some(_), None) if engine.is_open() && !engine.is_gone => Some(POLL_SLEEP_NS),
            (Some(_), _) => None,
        };
        self.led = self.led.with(engine.number);
        let longest = [how.timeout.map(|timeout| timeout.as_nanos()), nap].into_iter().flatten().min();
        self.timer = [self.timer, engine.lead_for(longest)].into_iter().flatten().min();
        self.fds.extend([how.fd, how.updates].into_iter().flatten().map(readable));
    }

    /// The thread is about to sleep: a first member of one of its sets in another engine wakes it.
    /// `false`: that has come already.
    fn begin_sleep(&mut self) -> bool {
        let Some(eventfd) = self.eventfd else { return true };
        if engine::all() == self.engines {
            return true;
        }
        let are_same = self.sets.iter().all(|set| sets::begin_sleep(*set, eventfd, self.engines));
        // It leaves as one that was woken.
        self.was_woken = !are_same;
        are_same
    }

    fn sleep(&mut self, left: Option<Duration>) {
        let longest = [left.map(|left| left.as_nanos() as u64), self.timer].into_iter().flatten().min();
        real::ppoll_to_sleep(&mut self.fds, longest);
        self.was_woken = true;
        self.was_due = self.fds.iter().all(|fd| fd.revents == 0);
        let is_error = |entry: &libc::pollfd| entry.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
        if self.fds[self.devices..].iter().any(is_error)
            && !self.led.iter().any(|number| engine::enter_at(number).lose_if_gone())
        {
            // The queue would end each sleep at once.
            sys::sleep(DEVICE_GONE_SLEEP_NS);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(eventfd) = self.eventfd else { return };
        let _ = sys::read(eventfd, &mut [0; 8]);
        if engine::all() != self.engines {
            self.sets.iter().for_each(|set| sets::end_sleep(*set, eventfd));
        }
        for number in self.engines.iter() {
            let mut engine = engine::enter_at(number);
            if !self.was_woken {
                engine.leave_wait();
            }
            engine.end_wait(eventfd);
            if self.was_due && self.led.has(number) {
                engine.note_timer();
            }
        }
    }
}

/// How long a thread sleeps on a device that has no descriptor, before it polls again.
const POLL_SLEEP_NS: u64 = 50_000;
/// Time between two looks whether another broker answers, where one has ended: each is a connection
/// to it.
pub(crate) const LOOK_FOR_BROKER_EVERY: Duration = Duration::from_millis(500);
/// The sleep of a thread for which there is no descriptor.
const NO_WAKEUP_SLEEP_NS: u64 = 5_000_000;

/// How long a thread sleeps once the queue wakes it no more.
const DEVICE_GONE_SLEEP_NS: u64 = 10_000_000;

/// An entry of `poll` that waits until a descriptor is readable.
pub(crate) fn readable(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_asleep_counts_although_another_engine_comes_first_after_it() {
        let (mut waited, begin) = (Waited::default(), Instant::now());
        let unread = || unreachable!("the thread has not slept");
        assert_eq!(waited.until(ClockReading::of(3, 1_000), unread), 0);
        assert_eq!(waited.until(ClockReading::of(3, 1_500), unread), 500);
        waited.begin_sleep(begin);
        assert_eq!(waited.until(ClockReading::of(0, 70), || begin + Duration::from_nanos(2_000)), 2_500);
        assert_eq!(waited.until(ClockReading::of(0, 80), unread), 2_510);
    }
}
