//! Calls that wait. The thread polls the worker for the spin budget, then it sleeps until packets
//! arrive, another thread changes its socket, a descriptor of the kernel is ready, or a timer of
//! the worker is due. A thread that wakes turns the worker, so a program whose threads all sleep
//! needs no other thread.

use std::time::Duration;

use sockets::Errno;

use crate::engine::{self, ClockReading, Engine, WaitFor, thread};
use crate::{real, sys};

/// How a call waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocking {
    /// The call does not block.
    pub(crate) is_nonblocking: bool,
    /// The call ends with `EAGAIN` after this time.
    pub(crate) timeout: Option<Duration>,
    /// A handler with `SA_RESTART` does not end the call (man 7 signal: calls with a timeout,
    /// `poll`, `select` and epoll end all the same).
    pub(crate) restarts: bool,
}

impl Blocking {
    /// The blocking of a socket's call with this timeout.
    pub(crate) fn of_socket(is_nonblocking: bool, timeout: Option<Duration>) -> Self {
        Self { is_nonblocking, timeout, restarts: timeout.is_none() }
    }

    /// The blocking of `poll` and its family.
    pub(crate) fn of_poll(timeout: Option<Duration>) -> Self {
        Self { is_nonblocking: timeout == Some(Duration::ZERO), timeout, restarts: false }
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

/// Repeats `attempt` until it returns something else than `EAGAIN`. The descriptors `kernel` wake
/// the thread too.
///
/// # Errors
/// The error of the attempt; `EAGAIN` after the timeout; `EINTR`.
pub(crate) fn until<T>(
    blocking: Blocking,
    interest: WaitFor,
    kernel: &[libc::pollfd],
    mut attempt: impl FnMut(&mut Engine, Sides) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut waited: Option<Waited> = None;
    let mut has_slept = false;
    // What the thread has sent since its last wait leaves.
    thread::set_answers(0);
    loop {
        let spins = {
            let mut engine = engine::enter();
            let sides = if has_slept { Sides::Both } else { next_sides(&engine) };
            let done = match attempt_and_turn(&mut engine, sides, &mut attempt) {
                // A call returns `EAGAIN` only after it has checked both sides.
                Err(Errno::EAGAIN) if sides == Sides::Ours && blocking.is_nonblocking => {
                    attempt(&mut engine, Sides::Both)
                }
                done => done,
            };
            match done {
                Err(Errno::EAGAIN) if !blocking.is_nonblocking => (),
                done => return finish(&mut engine, waited.is_some(), done),
            }
            let so_far = match &mut waited {
                Some(waited) => waited.until(engine.time()),
                None => {
                    if let WaitFor::Set(file) = interest {
                        engine.begin_watch(file);
                    }
                    waited.insert(Waited { last: engine.time(), ns: 0 }).ns
                }
            };
            if thread::is_interrupted(blocking.restarts) {
                return finish(&mut engine, true, Err(Errno(libc::EINTR)));
            }
            let left = blocking.timeout.map(|timeout| timeout.saturating_sub(Duration::from_nanos(so_far)));
            if left == Some(Duration::ZERO) {
                return finish(&mut engine, true, Err(Errno::EAGAIN));
            }
            if engine.may_poll(so_far) { None } else { Some(left) }
        };
        has_slept = spins.is_some();
        match spins {
            None => core::hint::spin_loop(),
            Some(left) => {
                // From its first descriptor on a handler that runs wakes the thread by it.
                let _ = thread::eventfd();
                if thread::is_interrupted(blocking.restarts) {
                    return finish(&mut engine::enter(), true, Err(Errno(libc::EINTR)));
                }
                if let Some(done) = sleep(left, interest, kernel, &mut attempt) {
                    return finish(&mut engine::enter(), true, done);
                }
            }
        }
    }
}

/// How long a call has waited.
struct Waited {
    last: ClockReading,
    ns: u64,
}

impl Waited {
    /// As of `now`, which may be of another clock, because the engine was opened or has failed.
    fn until(&mut self, now: ClockReading) -> u64 {
        self.ns += now.since(self.last);
        self.last = now;
        self.ns
    }
}

/// The call returns to the program: if it has waited, another thread that sleeps may have to lead.
fn finish<T>(engine: &mut Engine, has_waited: bool, done: Result<T, Errno>) -> Result<T, Errno> {
    if has_waited {
        engine.end_poll();
        engine.end_watch();
        engine.hand_over();
    }
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

/// Sleeps until there is a reason to try again; `Some` if a last attempt succeeded.
fn sleep<T>(
    left: Option<Duration>,
    interest: WaitFor,
    kernel: &[libc::pollfd],
    attempt: &mut impl FnMut(&mut Engine, Sides) -> Result<T, Errno>,
) -> Option<Result<T, Errno>> {
    // Without a descriptor for it nothing can wake the thread: it naps.
    let eventfd = thread::eventfd().ok();
    let mut fds = Vec::with_capacity(kernel.len() + 2);
    let (leads, timer, device);
    {
        let mut engine = engine::enter();
        match attempt(&mut engine, Sides::Both) {
            Err(Errno::EAGAIN) => (),
            done => return Some(done),
        }
        let how = engine.sleep()?;
        // A device without a descriptor is polled; so is everything by a thread that has none.
        let nap = match (eventfd, how.fd) {
            (None, _) => Some(NO_WAKEUP_SLEEP_NS),
            (Some(_), None) if engine.is_open() && !engine.is_gone => Some(POLL_SLEEP_NS),
            (Some(_), _) => None,
        };
        timer = [how.timeout.map(|timeout| timeout.as_nanos()), nap].into_iter().flatten().min();
        device = how.fd;
        // From now on a thread that changes a socket finds this one among the waiters.
        leads = eventfd.is_none_or(|eventfd| engine.begin_wait(eventfd, interest));
    }
    // A thread that is canceled unwinds from its sleep, and is no longer one of those.
    let mut waiting = eventfd.map(|eventfd| Waiting { eventfd, was_woken: false, was_due: false });
    fds.extend(eventfd.map(readable));
    fds.extend_from_slice(kernel);
    fds.extend(device.filter(|_| leads).map(readable));
    let longest = [left.map(|left| left.as_nanos() as u64), timer.filter(|_| leads)].into_iter().flatten().min();
    real::ppoll_to_sleep(&mut fds, longest);
    if let Some(waiting) = &mut waiting {
        waiting.was_woken = true;
        waiting.was_due = leads && fds.iter().all(|fd| fd.revents == 0);
    }
    let is_error = |entry: &libc::pollfd| entry.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
    if leads && device.is_some() && fds.last().is_some_and(is_error) && !engine::enter().lose_if_gone() {
        // The queue would end each sleep at once.
        sys::sleep(DEVICE_GONE_SLEEP_NS);
    }
    drop(waiting);
    None
}

/// A thread that sleeps; by its end it no longer does.
struct Waiting {
    eventfd: i32,
    /// Its sleep is over; without that it was canceled.
    was_woken: bool,
    /// The sleep ended by a timer.
    was_due: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = sys::read(self.eventfd, &mut [0; 8]);
        let mut engine = engine::enter();
        if !self.was_woken {
            engine.leave_wait();
        }
        engine.end_wait(self.eventfd);
        if self.was_due {
            engine.note_timer();
        }
    }
}

/// How long a thread sleeps on a device that has no descriptor, before it polls again.
const POLL_SLEEP_NS: u64 = 50_000;
/// The sleep of a thread for which there is no descriptor.
const NO_WAKEUP_SLEEP_NS: u64 = 5_000_000;

/// How long a thread sleeps once the queue wakes it no more.
const DEVICE_GONE_SLEEP_NS: u64 = 10_000_000;

/// An entry of `poll` that waits until a descriptor is readable.
pub(crate) fn readable(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}
