//! `poll`, `select` and epoll.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

use core::ffi::{c_int, c_void};
use core::time::Duration;
use std::time::Instant;

use sockets::Errno;

use super::{check_room, give, give_none, may_be_ours, memory, new_may_be_ours, ours};
use crate::calls::{epoll, poll};
use crate::engine::thread;
use crate::real::{self, fail};
use crate::{process, sys};

symbols! {
    fn poll(fds: *mut libc::pollfd, count: u64, timeout: c_int) -> c_int {
        let timeout = u64::try_from(timeout).ok();
        match poll_ours(fds, count, timeout.map(Duration::from_millis), core::ptr::null()) {
            Some(result) => give(result) as c_int,
            None => pass!(real::poll(fds, count, timeout.map_or(-1, |timeout| timeout as c_int))),
        }
    }

    fn __poll(fds: *mut libc::pollfd, count: u64, timeout: c_int) -> c_int {
        pass!(poll(fds, count, timeout))
    }

    fn __poll_chk(fds: *mut libc::pollfd, count: u64, timeout: c_int, room: usize) -> c_int {
        check_room(count as usize * size_of::<libc::pollfd>(), room);
        pass!(poll(fds, count, timeout))
    }

    fn ppoll(fds: *mut libc::pollfd, count: u64, timeout: *const libc::timespec, mask: *const c_void) -> c_int {
        let time = match memory::optional(timeout).and_then(|time| duration_of(time.as_ref())) {
            Ok(time) => time,
            Err(error) => return fail(error) as c_int,
        };
        match poll_ours(fds, count, time, mask) {
            Some(result) => give(result) as c_int,
            None => pass!(real::ppoll(fds, count, timeout, mask)),
        }
    }

    fn __ppoll_chk(fds: *mut libc::pollfd, count: u64, timeout: *const libc::timespec, mask: *const c_void, room: usize) -> c_int {
        check_room(count as usize * size_of::<libc::pollfd>(), room);
        pass!(ppoll(fds, count, timeout, mask))
    }

    fn select(count: c_int, reads: *mut libc::fd_set, writes: *mut libc::fd_set, excepts: *mut libc::fd_set, timeout: *mut libc::timeval) -> c_int {
        let of_kernel = || pass!(real::select(count, reads, writes, excepts, timeout));
        select_or(count, [reads, writes, excepts], timeout, of_kernel)
    }

    fn __select(count: c_int, reads: *mut libc::fd_set, writes: *mut libc::fd_set, excepts: *mut libc::fd_set, timeout: *mut libc::timeval) -> c_int {
        pass!(select(count, reads, writes, excepts, timeout))
    }

    fn pselect(count: c_int, reads: *mut libc::fd_set, writes: *mut libc::fd_set, excepts: *mut libc::fd_set, timeout: *const libc::timespec, mask: *const c_void) -> c_int {
        let time = match memory::optional(timeout).and_then(|time| duration_of(time.as_ref())) {
            Ok(time) => time,
            Err(error) => return fail(error) as c_int,
        };
        match select_ours(count, [reads, writes, excepts], time, mask) {
            Some(result) => give(result) as c_int,
            None => pass!(real::pselect(count, reads, writes, excepts, timeout, mask)),
        }
    }

    fn epoll_create(size: c_int) -> c_int {
        if size <= 0 {
            return fail(Errno::EINVAL) as c_int;
        }
        pass!(epoll_create1(0))
    }

    fn epoll_create1(flags: c_int) -> c_int {
        let fd = pass!(real::epoll_create1(flags));
        process::given(fd);
        if fd >= 0 && new_may_be_ours() {
            epoll::create_set(fd);
        }
        fd
    }

    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int {
        if ours(epfd).is_none() {
            return pass!(real::epoll_ctl(epfd, op, fd, event));
        }
        let event = match memory::optional(event) {
            _ if op == libc::EPOLL_CTL_DEL => None,
            Ok(Some(event)) => Some(event),
            _ => return fail(Errno(libc::EFAULT)) as c_int,
        };
        give_none(epoll::control(epfd, op, fd, event))
    }

    fn epoll_wait(epfd: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int) -> c_int {
        pass!(epoll_pwait(epfd, events, count, timeout, core::ptr::null()))
    }

    fn epoll_pwait(epfd: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int, mask: *const c_void) -> c_int {
        let time = u64::try_from(timeout).ok().map(Duration::from_millis);
        match wait_ours(epfd, events, count, time, mask) {
            Some(result) => give(result) as c_int,
            None => pass!(real::epoll_pwait(epfd, events, count, timeout, mask)),
        }
    }

    fn epoll_pwait2(epfd: c_int, events: *mut libc::epoll_event, count: c_int, timeout: *const libc::timespec, mask: *const c_void) -> c_int {
        let time = match memory::optional(timeout).and_then(|time| duration_of(time.as_ref())) {
            Ok(time) => time,
            Err(error) => return fail(error) as c_int,
        };
        match wait_ours(epfd, events, count, time, mask) {
            Some(result) => give(result) as c_int,
            None => {
                let arguments = [epfd as usize, events as usize, count as usize, timeout as usize, mask as usize, 8];
                give(sys::result(pass!(sys::call(libc::SYS_epoll_pwait2, arguments)))) as c_int
            }
        }
    }
}

fn poll_ours(
    fds: *mut libc::pollfd,
    count: u64,
    timeout: Option<Duration>,
    mask: *const c_void,
) -> Option<Result<usize, Errno>> {
    if !may_be_ours() || count > POLL_MAX {
        return None;
    }
    let mut fds = memory::array_mut(fds, count as usize).ok()?;
    // Checked before the mask is set: without an offloaded descriptor the kernel sets the mask and
    // waits in one step.
    if !poll::concerns_us(fds.iter().map(|entry| entry.fd)) {
        return None;
    }
    with_mask(mask, || Some(poll::poll(&mut fds, timeout)))
}

/// More descriptors than a process may have open (`fs.nr_open`): the kernel refuses such a call.
const POLL_MAX: u64 = 1 << 20;

fn wait_ours(
    epfd: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    timeout: Option<Duration>,
    mask: *const c_void,
) -> Option<Result<usize, Errno>> {
    ours(epfd)?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
    let mut room = memory::array_begin(events, count.min(EVENTS_MAX));
    if !room.is_empty() {
        return with_mask(mask, || epoll::wait_for_events(epfd, &mut room, timeout));
    }
    // The kernel reports a bad pointer only when it has events to store.
    let mut lost = [libc::epoll_event { events: 0, u64: 0 }];
    let waited = with_mask(mask, || epoll::wait_for_events(epfd, &mut lost, timeout))?;
    Some(waited.and_then(|count| if count == 0 { Ok(0) } else { Err(Errno(libc::EFAULT)) }))
}

/// Events of one call at most, so that only a few pages are probed. More wait for the next call.
const EVENTS_MAX: usize = 1_024;

/// `select` as a `poll` of the descriptors in its sets.
fn select_ours(
    count: c_int,
    sets: [*mut libc::fd_set; 3],
    timeout: Option<Duration>,
    mask: *const c_void,
) -> Option<Result<usize, Errno>> {
    const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    /// The `poll` events that `select` reports as readable, writable and exceptional (Linux
    /// `POLLIN_SET`, `POLLOUT_SET`, `POLLEX_SET`).
    const REPORTED: [i16; 3] =
        [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];
    if !may_be_ours() {
        return None;
    }
    // As the kernel does: it ignores bits beyond the descriptors that the process can have open.
    let count = usize::try_from(count).ok()?;
    let count = if count > libc::FD_SETSIZE { count.min(process::descriptors_max()) } else { count };
    let words = count.div_ceil(u64::BITS as usize);
    // Copies, because one set may be the argument twice.
    let mut bits = Vec::with_capacity(3);
    for set in sets {
        let len = if set.is_null() { 0 } else { words };
        bits.push(memory::array_mut(set.cast::<u64>(), len).ok()?.to_vec());
    }
    let has = |set: &[u64], fd: usize| set.get(fd / 64).is_some_and(|word| word >> (fd % 64) & 1 == 1);
    let mut fds = Vec::new();
    for fd in 0..count {
        let events = (0..3).filter(|idx| has(&bits[*idx], fd)).fold(0, |events, idx| events | EVENTS[idx]);
        if events != 0 {
            fds.push(libc::pollfd { fd: fd as c_int, events, revents: 0 });
        }
    }
    if !poll::concerns_us(fds.iter().map(|entry| entry.fd)) {
        return None;
    }
    let begin = Instant::now();
    let polled = with_mask(mask, || {
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
            let polled = poll::poll(&mut fds, left);
            let is_reported = |entry: &libc::pollfd| {
                entry.revents & libc::POLLNVAL != 0
                    || (0..3).any(|idx| entry.events & EVENTS[idx] != 0 && entry.revents & REPORTED[idx] != 0)
            };
            if !matches!(polled, Ok(1..)) || fds.iter().any(is_reported) {
                return Some(polled);
            }
            // `poll` reports an end or an error of each descriptor, `select` only to who reads or
            // writes: the others are waited for without those.
            fds.retain(|entry| entry.revents == 0);
        }
    })?;
    if polled.is_ok() {
        if fds.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Some(Err(Errno::EBADF));
        }
        bits.iter_mut().for_each(|set| set.fill(0));
    }
    let reported = polled.map(|_| {
        let mut reported = 0;
        for entry in &fds {
            for idx in 0..3 {
                if entry.events & EVENTS[idx] != 0 && entry.revents & REPORTED[idx] != 0 {
                    bits[idx][entry.fd as usize / 64] |= 1 << (entry.fd % 64);
                    reported += 1;
                }
            }
        }
        reported
    });
    if reported.is_ok() {
        // In this order, as Linux `core_sys_select` does.
        for (set, bits) in sets.iter().zip(&bits) {
            match memory::array_mut(set.cast::<u64>(), bits.len()) {
                Ok(mut set) => set.copy_from_slice(bits),
                Err(error) => return Some(Err(error)),
            }
        }
    }
    Some(reported)
}

/// `select`; `of_kernel` makes the call where none of the sockets is ours.
pub(super) fn select_or(
    count: c_int,
    sets: [*mut libc::fd_set; 3],
    timeout: *mut libc::timeval,
    of_kernel: impl FnOnce() -> c_int,
) -> c_int {
    let time = match memory::optional(timeout).and_then(|time| duration_of_timeval(time.as_ref())) {
        Ok(time) => time,
        Err(error) => return fail(error) as c_int,
    };
    let began = Instant::now();
    let Some(result) = select_ours(count, sets, time, core::ptr::null()) else { return of_kernel() };
    // Linux alone stores the time that is left; its programs expect so.
    let left = time.unwrap_or_default().saturating_sub(began.elapsed());
    let (seconds, microseconds) = (left.as_secs() as libc::time_t, left.subsec_micros().into());
    // As on Linux, a structure that is only to be read is no error.
    let _ = memory::store(timeout, libc::timeval { tv_sec: seconds, tv_usec: microseconds });
    give(result) as c_int
}

/// The duration of a `timespec`; `None` without one.
pub(super) fn duration_of(time: Option<&libc::timespec>) -> Result<Option<Duration>, Errno> {
    let Some(time) = time else { return Ok(None) };
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanoseconds @ ..1_000_000_000)) => Ok(Some(Duration::new(seconds, nanoseconds))),
        _ => Err(Errno::EINVAL),
    }
}

/// The duration of a `timeval`; `None` without one. Its microseconds may exceed a second, as on
/// Linux.
fn duration_of_timeval(time: Option<&libc::timeval>) -> Result<Option<Duration>, Errno> {
    let Some(time) = time else { return Ok(None) };
    match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
        (Ok(seconds), Ok(microseconds)) => {
            Ok(Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(microseconds))))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Waits under the signal mask of the call.
fn with_mask<T>(mask: *const c_void, act: impl FnOnce() -> Option<Result<T, Errno>>) -> Option<Result<T, Errno>> {
    thread::begin_call();
    let mask = match memory::optional(mask.cast::<u64>()) {
        Ok(Some(mask)) => mask,
        Ok(None) => return act(),
        Err(error) => return Some(Err(error)),
    };
    // Handlers of pending signals that this mask admits run here, and end the wait.
    let before = sys::set_signal_mask(libc::SIG_SETMASK, mask);
    let result = act();
    sys::set_signal_mask(libc::SIG_SETMASK, before);
    result
}
