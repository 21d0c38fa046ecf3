//! Calls that wait. The thread polls the worker for as long as the spin budget, then it sleeps
//! until packets have come, another thread has moved what it waits for, the kernel has something,
//! or a timer of the worker is due. Whoever sleeps turns the worker when he wakes, so that a
//! program whose threads all wait needs nobody else.

use std::time::{Duration, Instant};

use sockets::Errno;

use crate::engine::{self, Engine, WaitFor, thread};
use crate::{config, sys};

/// How a call waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocking {
    /// It does not.
    pub(crate) is_nonblocking: bool,
    /// It gives up then, with `EAGAIN`.
    pub(crate) timeout: Option<Duration>,
    /// A handler with `SA_RESTART` does not end it (man 7 signal: not where there is a timeout, nor
    /// of `poll`, `select` and epoll).
    pub(crate) restarts: bool,
}

impl Blocking {
    /// As a call of a socket with this timeout waits.
    pub(crate) fn of_socket(is_nonblocking: bool, timeout: Option<Duration>) -> Self {
        Self { is_nonblocking, timeout, restarts: timeout.is_none() }
    }

    /// As `poll` and its family wait.
    pub(crate) fn of_poll(timeout: Option<Duration>) -> Self {
        Self { is_nonblocking: timeout == Some(Duration::ZERO), timeout, restarts: false }
    }
}

/// Which side an attempt looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// Ours alone: memory.
    Ours,
    /// The kernel's too: a system call.
    Both,
}

/// Repeats `attempt` until it returns something else than `EAGAIN`. `kernel` are descriptors of the
/// kernel that would change its mind too.
///
/// # Errors
/// That of the attempt; `EAGAIN` where the blocking is over; `EINTR`.
pub(crate) fn until<T>(
    blocking: Blocking,
    interest: WaitFor,
    kernel: &[libc::pollfd],
    mut attempt: impl FnMut(&mut Engine, Sides) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut began = None;
    let mut sides = next_sides();
    loop {
        let may_spin = {
            let mut engine = engine::enter();
            match attempt_and_turn(&mut engine, sides, &mut attempt) {
                // No call says that there is nothing before it has looked at both sides.
                Err(Errno::EAGAIN) if sides == Sides::Ours && blocking.is_nonblocking => {
                    sides = Sides::Both;
                    continue;
                }
                Err(Errno::EAGAIN) if !blocking.is_nonblocking => (),
                done => return done,
            }
            engine.is_open()
        };
        if thread::is_interrupted(blocking.restarts) {
            return Err(Errno(libc::EINTR));
        }
        let waited = began.get_or_insert_with(Instant::now).elapsed();
        let left = blocking.timeout.map(|timeout| timeout.saturating_sub(waited));
        if left == Some(Duration::ZERO) {
            return Err(Errno::EAGAIN);
        }
        if may_spin && waited < config::spin() {
            core::hint::spin_loop();
            sides = next_sides();
            continue;
        }
        sides = Sides::Both;
        if let Some(done) = sleep(left, interest, kernel, &mut attempt) {
            return done;
        }
    }
}

/// Mostly ours: the kernel's costs a system call.
fn next_sides() -> Sides {
    if engine::looks_at_kernel() { Sides::Both } else { Sides::Ours }
}

/// One attempt, and another where a turn of the worker has brought packets.
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

/// Sleeps until there is a reason to sides again; `Some` where a last sides found what is waited
/// for.
fn sleep<T>(
    left: Option<Duration>,
    interest: WaitFor,
    kernel: &[libc::pollfd],
    attempt: &mut impl FnMut(&mut Engine, Sides) -> Result<T, Errno>,
) -> Option<Result<T, Errno>> {
    let eventfd = match thread::eventfd() {
        Ok(fd) => fd,
        Err(error) => return Some(Err(error)),
    };
    let mut fds = Vec::with_capacity(kernel.len() + 2);
    let timer;
    {
        let mut engine = engine::enter();
        match attempt(&mut engine, Sides::Both) {
            Err(Errno::EAGAIN) => (),
            done => return Some(done),
        }
        let how = engine.sleep()?;
        timer = how.timeout.map(|timeout| Duration::from_nanos(timeout.as_nanos()));
        fds.extend(how.fd.map(readable));
        // Whoever moves a socket from now on finds this thread among those that sleep.
        engine.begin_wait(eventfd, interest);
    }
    fds.push(readable(eventfd));
    fds.extend_from_slice(kernel);
    let longest = [left, timer].into_iter().flatten().min();
    let _ = sys::ppoll(&mut fds, longest.map(|longest| longest.as_nanos() as u64));
    if fds[0].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
        // The interface has gone: its queue would wake us at once, again and again.
        sys::sleep(GONE_NS);
    }
    let _ = sys::read(eventfd, &mut [0; 8]);
    engine::enter().end_wait(eventfd);
    None
}

/// How long a thread sleeps where the queue can wake nobody any more.
const GONE_NS: u64 = 10_000_000;

/// A descriptor of the kernel that is waited for until it can be read.
pub(crate) fn readable(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}
