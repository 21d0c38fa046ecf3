//! The symbols of libc that stand in front of libc's. Each looks whether the descriptor is ours, and
//! passes the call on where it is not; libc's functions are `unsafe` to call, and so are ours.
//!
//! Invariants:
//! 1. Each has the type of libc's function of the name. Functions with a variable number of arguments
//!    (`fcntl`, `ioctl`, `syscall`) take as many as any use of them has: on the platforms that we run
//!    on these are passed as those of a function with fixed ones.
//! 2. What the caller promises libc it promises us: `memory` makes slices of it.
//! 3. Nothing is allocated or locked before the constructor has run, nor where a descriptor is not
//!    ours.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use sockets::Errno;

use crate::calls::{self, Direction, Done};
use crate::data::{self, Received};
use crate::real::{self, Count, fail};
use crate::table::{self, FileId};
use crate::{config, memory, poll, process, signals, sys, thread};

/// The constructor has run, and the environment names an interface.
static IS_ON: AtomicBool = AtomicBool::new(false);

#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn begin() {
        real::look_up();
        if config::get().is_some() {
            process::begin();
            IS_ON.store(true, Ordering::Release);
        }
    }
    begin
};

/// The file of a descriptor that is ours, to a call of the program.
#[inline]
fn ours(fd: c_int) -> Option<FileId> {
    let file = table::find_ours(fd)?;
    if thread::is_inside() {
        return None;
    }
    if !process::is_owner() {
        process::say_that_child_has_none();
        return None;
    }
    Some(file)
}

/// The file of a descriptor that is ours or may become it.
#[inline]
fn known(fd: c_int) -> Option<FileId> {
    let file = table::find(fd)?;
    (!thread::is_inside() && process::is_owner()).then_some(file)
}

/// Whether a new descriptor of the program may become ours.
fn may_be_ours() -> bool {
    IS_ON.load(Ordering::Acquire) && !thread::is_inside() && process::is_owner()
}

/// A result as libc returns it.
fn give(result: Result<usize, Errno>) -> Count {
    result.map_or_else(fail, |value| value as Count)
}

fn give_none(result: Result<(), Errno>) -> c_int {
    give(result.map(|()| 0)) as c_int
}

/// Defines the symbols: `fn name(arguments) -> type { body }`.
macro_rules! symbols {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.\n\n# Safety\nAs libc's.")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result $body
        )*
    };
}

/// A call with the arguments that the caller gave us.
macro_rules! pass {
    ($call:expr) => {{
        // SAFETY: invariants 1 and 2: the caller promises us what it promises libc.
        unsafe { $call }
    }};
}

symbols! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        let fd = pass!(real::socket(domain, kind, protocol));
        if fd >= 0 && IS_ON.load(Ordering::Acquire) && thread::is_inside() {
            return thread::move_high(fd);
        }
        if fd >= 0 && may_be_ours() {
            process::forget(fd);
            calls::socket(fd, domain, kind, protocol);
        }
        fd
    }

    fn close(fd: c_int) -> c_int {
        if thread::is_inside() {
            // Ours, or a number whose file was closed behind our back.
            table::clear(fd);
        } else if table::is_reserved(fd) {
            if process::is_owner_by_pid() {
                return fail(Errno::EBADF) as c_int;
            }
        } else if table::find(fd).is_some() && process::is_owner_by_pid() {
            process::forget(fd);
        }
        pass!(real::close(fd))
    }

    fn __close(fd: c_int) -> c_int {
        pass!(close(fd))
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const CLOEXEC: c_int = 4;
        if flags & CLOEXEC != 0 || !may_be_ours() || !process::is_owner_by_pid() {
            return pass!(real::close_range(first, last, flags));
        }
        process::forget_range(first, last);
        for (first, last) in process::ranges_to_close(first, last) {
            if pass!(real::close_range(first, last, flags)) != 0 {
                return -1;
            }
        }
        0
    }

    fn closefrom(first: c_int) -> () {
        pass!(close_range(first.max(0) as c_uint, c_uint::MAX, 0));
    }

    fn dup(fd: c_int) -> c_int {
        let new = pass!(real::dup(fd));
        note_dup(fd, new);
        new
    }

    fn dup2(fd: c_int, new: c_int) -> c_int {
        if fd != new && is_kept(new) {
            return fail(Errno(libc::EBUSY)) as c_int;
        }
        let made = pass!(real::dup2(fd, new));
        if fd != new {
            note_dup(fd, made);
        }
        made
    }

    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
        if is_kept(new) {
            return fail(Errno(libc::EBUSY)) as c_int;
        }
        let made = pass!(real::dup3(fd, new, flags));
        note_dup(fd, made);
        made
    }

    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        let result = pass!(real::fcntl(fd, command, argument));
        if result < 0 || table::find(fd).is_none() {
            return result;
        }
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => note_dup(fd, result),
            libc::F_SETFL => if let Some(file) = known(fd) {
                calls::set_nonblocking(file, argument as c_int & libc::O_NONBLOCK != 0);
            },
            _ => (),
        }
        result
    }

    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        pass!(fcntl(fd, command, argument))
    }

    fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
        let into = argument as *mut c_int;
        let Some(file) = known(fd) else { return pass!(real::ioctl(fd, request, argument)) };
        let queued = match request as libc::Ioctl {
            libc::FIONREAD => calls::queued(file, Direction::Receive),
            libc::TIOCOUTQ => calls::queued(file, Direction::Send),
            libc::FIONBIO => {
                let result = pass!(real::ioctl(fd, request, argument));
                if result == 0 {
                    calls::set_nonblocking(file, memory::optional(into).is_some_and(|on| *on != 0));
                }
                return result;
            }
            _ => Done::Pass,
        };
        match queued {
            Done::Pass => pass!(real::ioctl(fd, request, argument)),
            Done::Ours(Ok(_)) if into.is_null() => fail(Errno(libc::EFAULT)) as c_int,
            Done::Ours(Ok(len)) => {
                memory::store(into, len);
                0
            }
            Done::Ours(Err(error)) => fail(error) as c_int,
        }
    }

    fn bind(fd: c_int, address: *const c_void, len: u32) -> c_int {
        let result = pass!(real::bind(fd, address, len));
        match known(fd) {
            Some(file) if result == 0 => give_none(calls::bind(file)),
            _ => result,
        }
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int {
        match known(fd) {
            Some(file) => give_none(calls::listen(file, backlog)),
            None => pass!(real::listen(fd, backlog)),
        }
    }

    fn connect(fd: c_int, address: *const c_void, len: u32) -> c_int {
        let Some(file) = known(fd) else { return pass!(real::connect(fd, address, len)) };
        match memory::bytes(address, len as usize).map(|remote| calls::connect(file, remote)) {
            Ok(Done::Ours(result)) => give_none(result),
            _ => pass!(real::connect(fd, address, len)),
        }
    }

    fn accept(fd: c_int, address: *mut c_void, len: *mut u32) -> c_int {
        pass!(accept4(fd, address, len, 0))
    }

    fn accept4(fd: c_int, address: *mut c_void, len: *mut u32, flags: c_int) -> c_int {
        let accepted = match ours(fd).map(|file| calls::accept(file, flags)) {
            None | Some(Done::Pass) => return pass!(real::accept4(fd, address, len, flags)),
            Some(Done::Ours(accepted)) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                match accepted.peer {
                    Some(peer) => _ = memory::store_address(peer, address, len),
                    None if address.is_null() => (),
                    None => _ = pass!(real::getpeername(accepted.fd, address, len)),
                }
                accepted.fd
            }
            Err(error) => fail(error) as c_int,
        }
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        match ours(fd).map(|file| calls::shutdown(file, how)) {
            Some(Done::Ours(result)) => give_none(result),
            _ => pass!(real::shutdown(fd, how)),
        }
    }

    fn getsockname(fd: c_int, address: *mut c_void, len: *mut u32) -> c_int {
        match ours(fd).map(|file| calls::name(file, false)) {
            Some(Done::Ours(name)) => give_none(name.and_then(|name| memory::store_address(name, address, len))),
            _ => pass!(real::getsockname(fd, address, len)),
        }
    }

    fn getpeername(fd: c_int, address: *mut c_void, len: *mut u32) -> c_int {
        match ours(fd).map(|file| calls::name(file, true)) {
            Some(Done::Ours(name)) => give_none(name.and_then(|name| memory::store_address(name, address, len))),
            _ => pass!(real::getpeername(fd, address, len)),
        }
    }

    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) -> c_int {
        let Some(file) = known(fd) else { return pass!(real::setsockopt(fd, level, name, value, len)) };
        let bytes = match memory::bytes(value, len as usize) {
            Ok(bytes) => bytes,
            Err(error) => return fail(error) as c_int,
        };
        if ours(fd).is_none() {
            let result = pass!(real::setsockopt(fd, level, name, value, len));
            if result == 0 {
                let _ = calls::setsockopt(file, level, name, bytes);
            }
            return result;
        }
        match calls::setsockopt(file, level, name, bytes) {
            Done::Ours(result) => give_none(result),
            Done::Pass => pass!(real::setsockopt(fd, level, name, value, len)),
        }
    }

    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut u32) -> c_int {
        let Some(file) = ours(fd) else { return pass!(real::getsockopt(fd, level, name, value, len)) };
        let Some(room) = memory::optional(len) else { return fail(Errno(libc::EFAULT)) as c_int };
        let into = match memory::bytes_mut(value, *room as usize) {
            Ok(into) => into,
            Err(error) => return fail(error) as c_int,
        };
        match calls::getsockopt(file, level, name, into) {
            Done::Ours(Ok(written)) => {
                memory::store(len, written as u32);
                0
            }
            Done::Ours(Err(error)) => fail(error) as c_int,
            Done::Pass => pass!(real::getsockopt(fd, level, name, value, len)),
        }
    }

    fn read(fd: c_int, into: *mut c_void, len: usize) -> Count {
        match ours(fd).and_then(|file| receive_one(file, into, len, 0)) {
            Some(received) => give(received.map(|received| received.len)),
            None if is_ours(fd) => from_twin(|| pass!(recv(fd, into, len, 0)), |flags| {
                pass!(real::recvfrom(fd, into, len, flags, core::ptr::null_mut(), core::ptr::null_mut()))
            }),
            None => pass!(real::read(fd, into, len)),
        }
    }

    fn __read_chk(fd: c_int, into: *mut c_void, len: usize, room: usize) -> Count {
        check_room(len, room);
        pass!(read(fd, into, len))
    }

    fn readv(fd: c_int, parts: *const libc::iovec, count: c_int) -> Count {
        match ours(fd).and_then(|file| receive_parts(file, parts, count as usize, 0)) {
            Some(received) => give(received.map(|received| received.len)),
            None if is_ours(fd) => from_twin(|| pass!(readv(fd, parts, count)), |flags| {
                let mut message = message_of(parts, count as usize);
                pass!(real::recvmsg(fd, &raw mut message, flags))
            }),
            None => pass!(real::readv(fd, parts, count)),
        }
    }

    fn recv(fd: c_int, into: *mut c_void, len: usize, flags: c_int) -> Count {
        match ours(fd).and_then(|file| receive_one(file, into, len, flags)) {
            Some(received) => give(received.map(|received| received.len)),
            None if is_ours(fd) && flags & libc::MSG_DONTWAIT == 0 => from_twin(|| pass!(recv(fd, into, len, flags)), |more| {
                pass!(real::recvfrom(fd, into, len, flags | more, core::ptr::null_mut(), core::ptr::null_mut()))
            }),
            None => pass!(real::recvfrom(fd, into, len, flags, core::ptr::null_mut(), core::ptr::null_mut())),
        }
    }

    fn __recv_chk(fd: c_int, into: *mut c_void, len: usize, room: usize, flags: c_int) -> Count {
        check_room(len, room);
        pass!(recv(fd, into, len, flags))
    }

    fn recvfrom(fd: c_int, into: *mut c_void, len: usize, flags: c_int, address: *mut c_void, address_len: *mut u32) -> Count {
        match ours(fd).and_then(|file| receive_one(file, into, len, flags)) {
            Some(Ok(received)) => give(store_source(&received, address, address_len).map(|()| received.len)),
            Some(Err(error)) => fail(error),
            None if is_ours(fd) && flags & libc::MSG_DONTWAIT == 0 => {
                from_twin(|| pass!(recvfrom(fd, into, len, flags, address, address_len)), |more| {
                    pass!(real::recvfrom(fd, into, len, flags | more, address, address_len))
                })
            }
            None => pass!(real::recvfrom(fd, into, len, flags, address, address_len)),
        }
    }

    fn __recvfrom_chk(fd: c_int, into: *mut c_void, len: usize, room: usize, flags: c_int, address: *mut c_void, address_len: *mut u32) -> Count {
        check_room(len, room);
        pass!(recvfrom(fd, into, len, flags, address, address_len))
    }

    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> Count {
        match ours(fd).and_then(|file| receive_message(file, message, flags)) {
            Some(received) => give(received),
            None if is_ours(fd) && flags & libc::MSG_DONTWAIT == 0 => {
                from_twin(|| pass!(recvmsg(fd, message, flags)), |more| pass!(real::recvmsg(fd, message, flags | more)))
            }
            None => pass!(real::recvmsg(fd, message, flags)),
        }
    }

    fn recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, timeout: *mut libc::timespec) -> c_int {
        let Some(file) = ours(fd) else { return pass!(real::recvmmsg(fd, messages, count, flags, timeout)) };
        match receive_messages(file, messages, count as usize, flags, memory::optional(timeout)) {
            Some(received) => give(received) as c_int,
            None => from_twin(
                || pass!(recvmmsg(fd, messages, count, flags, timeout)) as Count,
                |more| pass!(real::recvmmsg(fd, messages, count, flags | more, timeout)) as Count,
            ) as c_int,
        }
    }

    fn write(fd: c_int, bytes: *const c_void, len: usize) -> Count {
        match ours(fd).and_then(|file| send_one(file, bytes, len, None, 0)) {
            Some(sent) => give(sent),
            None => pass!(real::write(fd, bytes, len)),
        }
    }

    fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> Count {
        match ours(fd).and_then(|file| send_parts(file, parts, count as usize, None, 0)) {
            Some(sent) => give(sent),
            None => pass!(real::writev(fd, parts, count)),
        }
    }

    fn send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> Count {
        match ours(fd).and_then(|file| send_one(file, bytes, len, None, flags)) {
            Some(sent) => give(sent),
            None => pass!(real::sendto(fd, bytes, len, flags, core::ptr::null(), 0)),
        }
    }

    fn sendto(fd: c_int, bytes: *const c_void, len: usize, flags: c_int, address: *const c_void, address_len: u32) -> Count {
        // A destination may make a socket ours.
        let is_named = !address.is_null() && address_len > 0;
        let file = if is_named { known(fd) } else { ours(fd) };
        let to = if !is_named { None } else { memory::bytes(address, address_len as usize).ok() };
        match file.and_then(|file| send_one(file, bytes, len, to, flags)) {
            Some(sent) => give(sent),
            None => pass!(real::sendto(fd, bytes, len, flags, address, address_len)),
        }
    }

    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> Count {
        match known(fd).and_then(|file| send_message(file, message, flags)) {
            Some(sent) => give(sent),
            None => pass!(real::sendmsg(fd, message, flags)),
        }
    }

    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let Some(file) = known(fd) else { return pass!(real::sendmmsg(fd, messages, count, flags)) };
        let Ok(list) = memory::array_mut(messages, count as usize) else { return fail(Errno(libc::EFAULT)) as c_int };
        for (idx, entry) in list.iter_mut().enumerate() {
            match send_message(file, &raw const entry.msg_hdr, flags) {
                Some(Ok(sent)) => entry.msg_len = sent as c_uint,
                Some(Err(error)) if idx == 0 => return fail(error) as c_int,
                Some(Err(_)) => return idx as c_int,
                None if idx == 0 => return pass!(real::sendmmsg(fd, messages, count, flags)),
                None => return idx as c_int,
            }
        }
        count as c_int
    }

    fn __sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        pass!(sendmmsg(fd, messages, count, flags))
    }

    fn sendfile(fd: c_int, from: c_int, offset: *mut i64, count: usize) -> Count {
        let Some(file) = ours(fd) else { return pass!(real::sendfile(fd, from, offset, count)) };
        let at = memory::optional(offset).copied();
        match data::send_file(file, from, at, count) {
            Done::Ours(Ok(sent)) => {
                if let Some(at) = at {
                    memory::store(offset, at + sent as i64);
                }
                sent as Count
            }
            Done::Ours(Err(error)) => fail(error),
            Done::Pass => pass!(real::sendfile(fd, from, offset, count)),
        }
    }

    fn sendfile64(fd: c_int, from: c_int, offset: *mut i64, count: usize) -> Count {
        pass!(sendfile(fd, from, offset, count))
    }

    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, len: usize, flags: c_uint) -> Count {
        if ours(from).is_some() || ours(to).is_some() {
            return fail(Errno::EINVAL);
        }
        pass!(real::splice(from, from_offset, to, to_offset, len, flags))
    }

    fn poll(fds: *mut libc::pollfd, count: u64, timeout: c_int) -> c_int {
        let timeout = u64::try_from(timeout).ok();
        match poll_ours(fds, count, timeout.map(Duration::from_millis), core::ptr::null()) {
            Some(result) => give(result) as c_int,
            None => pass!(real::poll(fds, count, timeout.map_or(-1, |timeout| timeout as c_int))),
        }
    }

    fn __poll_chk(fds: *mut libc::pollfd, count: u64, timeout: c_int, room: usize) -> c_int {
        check_room(count as usize * size_of::<libc::pollfd>(), room);
        pass!(poll(fds, count, timeout))
    }

    fn ppoll(fds: *mut libc::pollfd, count: u64, timeout: *const libc::timespec, mask: *const c_void) -> c_int {
        let time = match duration_of(memory::optional(timeout)) {
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
        let time = match duration_of_timeval(memory::optional(timeout)) {
            Ok(time) => time,
            Err(error) => return fail(error) as c_int,
        };
        let began = std::time::Instant::now();
        match select_ours(count, [reads, writes, excepts], time, core::ptr::null()) {
            Some(result) => {
                // As Linux alone does, and its programs expect.
                let left = time.unwrap_or_default().saturating_sub(began.elapsed());
                let (seconds, microseconds) = (left.as_secs() as libc::time_t, left.subsec_micros().into());
                memory::store(timeout, libc::timeval { tv_sec: seconds, tv_usec: microseconds });
                give(result) as c_int
            }
            None => pass!(real::select(count, reads, writes, excepts, timeout)),
        }
    }

    fn pselect(count: c_int, reads: *mut libc::fd_set, writes: *mut libc::fd_set, excepts: *mut libc::fd_set, timeout: *const libc::timespec, mask: *const c_void) -> c_int {
        let time = match duration_of(memory::optional(timeout)) {
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
        if fd >= 0 && may_be_ours() {
            process::forget(fd);
            poll::create_set(fd);
        }
        fd
    }

    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int {
        if ours(epfd).is_none() {
            return pass!(real::epoll_ctl(epfd, op, fd, event));
        }
        give_none(poll::control(epfd, op, fd, memory::optional(event).copied()))
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
        let time = match duration_of(memory::optional(timeout)) {
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

    fn sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int {
        // A child of `vfork` has handlers of its own, but our memory.
        if !may_be_ours() || !process::is_owner_by_pid() {
            return pass!(real::sigaction(signal, action, before));
        }
        pass!(signals::sigaction(signal, action, before))
    }

    fn signal(signal: c_int, handler: usize) -> usize {
        // As BSD and glibc have it: restarts calls, and stays.
        let mut action: libc::sigaction = no_action();
        let mut before: libc::sigaction = no_action();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        match pass!(sigaction(signal, &raw const action, &raw mut before)) {
            0 => before.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }

    fn syscall(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64 {
        if !IS_ON.load(Ordering::Acquire) {
            return pass!(real::syscall(number, a, b, c, d, e, f));
        }
        if thread::is_inside() {
            let made = pass!(real::syscall(number, a, b, c, d, e, f));
            let is_descriptor = matches!(number, libc::SYS_bpf if matches!(a, 0 | 5 | 18 | 28)) && made > 2;
            return if is_descriptor { i64::from(thread::move_high(made as c_int)) } else { made };
        }
        match number {
            // It would hide sockets from us, and programs do without it.
            libc::SYS_io_uring_setup if may_be_ours() => fail(Errno(libc::ENOSYS)) as i64,
            libc::SYS_close => i64::from(pass!(close(a as c_int))),
            libc::SYS_close_range => i64::from(pass!(close_range(a as c_uint, b as c_uint, c as c_int))),
            libc::SYS_epoll_ctl => i64::from(pass!(epoll_ctl(a as c_int, b as c_int, c as c_int, d as *mut libc::epoll_event))),
            libc::SYS_epoll_pwait => i64::from(pass!(epoll_pwait(a as c_int, b as *mut libc::epoll_event, c as c_int, d as c_int, e as *const c_void))),
            libc::SYS_recvmmsg => i64::from(pass!(recvmmsg(a as c_int, b as *mut libc::mmsghdr, c as c_uint, d as c_int, e as *mut libc::timespec))),
            libc::SYS_sendmmsg => i64::from(pass!(sendmmsg(a as c_int, b as *mut libc::mmsghdr, c as c_uint, d as c_int))),
            libc::SYS_read => pass!(read(a as c_int, b as *mut c_void, c) as i64),
            libc::SYS_write => pass!(write(a as c_int, b as *const c_void, c) as i64),
            libc::SYS_dup3 => i64::from(pass!(dup3(a as c_int, b as c_int, c as c_int))),
            _ => pass!(real::syscall(number, a, b, c, d, e, f)),
        }
    }
}

/// The default action of a signal, without flags and with an empty mask.
fn no_action() -> libc::sigaction {
    // SAFETY: a structure of integers, and of a pointer that may be null.
    unsafe { core::mem::zeroed() }
}

/// Whether a descriptor is a socket of ours.
fn is_ours(fd: c_int) -> bool {
    ours(fd).is_some_and(is_ours_file)
}

fn is_ours_file(file: FileId) -> bool {
    calls::ours_of(file).is_ok()
}

/// Takes what the twin has, without a wait: where another thread was faster, the call begins again, so
/// that it hears both sides.
fn from_twin(again: impl FnOnce() -> Count, take: impl FnOnce(c_int) -> Count) -> Count {
    let taken = take(libc::MSG_DONTWAIT);
    if taken < 0 && real::errno() == Errno::EAGAIN { again() } else { taken }
}

/// The message of a receive that has buffers alone.
fn message_of(parts: *const libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: a structure of integers, and of pointers that may be null.
    let empty: libc::msghdr = unsafe { core::mem::zeroed() };
    libc::msghdr { msg_iov: parts.cast_mut(), msg_iovlen: count, ..empty }
}

/// `new` is a duplicate of `fd`, where the call has made one.
fn note_dup(fd: c_int, new: c_int) {
    if new >= 0
        && (table::find(fd).is_some() || table::find(new).is_some())
        && !thread::is_inside()
        && process::is_owner_by_pid()
    {
        process::duplicated(fd, new);
    }
}

/// A descriptor of the engine's own, over which the program may not put another.
fn is_kept(fd: c_int) -> bool {
    table::is_reserved(fd) && process::is_owner_by_pid()
}

/// What the `_chk` forms check: the compiler knew how much room there is.
fn check_room(len: usize, room: usize) {
    if len > room {
        config::say("buffer overflow detected: a receive call names more bytes than its buffer has");
        sys::exit_group(134);
    }
}

fn receive_one(file: FileId, into: *mut c_void, len: usize, flags: c_int) -> Option<Result<Received, Errno>> {
    match memory::bytes_mut(into, len) {
        Ok(into) => ours_or_pass(data::receive(file, &mut [IoSliceMut::new(into)], flags)),
        // The kernel finds out when it has bytes to put there.
        Err(error) => match data::receive(file, &mut [IoSliceMut::new(&mut [])], flags | libc::MSG_PEEK) {
            Done::Ours(Ok(_)) => Some(Err(error)),
            done => ours_or_pass(done),
        },
    }
}

fn receive_parts(
    file: FileId,
    parts: *const libc::iovec,
    count: usize,
    flags: c_int,
) -> Option<Result<Received, Errno>> {
    match memory::parts_mut(parts, count) {
        Ok(parts) => ours_or_pass(data::receive(file, parts, flags)),
        Err(error) => Some(Err(error)),
    }
}

fn receive_message(file: FileId, message: *mut libc::msghdr, flags: c_int) -> Option<Result<usize, Errno>> {
    let Ok([header]) = memory::array_mut(message, 1) else { return Some(Err(Errno(libc::EFAULT))) };
    let received = match receive_parts(file, header.msg_iov, header.msg_iovlen, flags)? {
        Ok(received) => received,
        Err(error) => return Some(Err(error)),
    };
    header.msg_flags = received.flags;
    let mut control_len = 0;
    if let Some(info) = &received.info {
        let stored = store_source(&received, header.msg_name, &raw mut header.msg_namelen);
        let control = memory::store_control(&data::control(file, info), header.msg_control, header.msg_controllen);
        match stored.and(control) {
            Ok((len, flags)) => {
                control_len = len;
                header.msg_flags |= flags;
            }
            Err(error) => return Some(Err(error)),
        }
    } else {
        header.msg_namelen = 0;
    }
    header.msg_controllen = control_len;
    Some(Ok(received.len))
}

/// As many datagrams as have come, and one that is waited for where none has. `None` where the twin has
/// the first.
fn receive_messages(
    file: FileId,
    messages: *mut libc::mmsghdr,
    count: usize,
    flags: c_int,
    timeout: Option<&libc::timespec>,
) -> Option<Result<usize, Errno>> {
    let (time, list) = match (duration_of(timeout), memory::array_mut(messages, count)) {
        (Ok(time), Ok(list)) => (time, list),
        (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
    };
    let deadline = time.and_then(|time| std::time::Instant::now().checked_add(time));
    let mut flags = flags & !libc::MSG_WAITFORONE | if flags & libc::MSG_WAITFORONE != 0 { WAIT_FOR_ONE } else { 0 };
    for (idx, entry) in list.iter_mut().enumerate() {
        let one = receive_message(file, &raw mut entry.msg_hdr, flags & !WAIT_FOR_ONE);
        match one {
            Some(Ok(len)) => entry.msg_len = len as c_uint,
            Some(Err(error)) if idx == 0 => return Some(Err(error)),
            None if idx == 0 => return None,
            Some(Err(_)) | None => return Some(Ok(idx)),
        }
        if flags & WAIT_FOR_ONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        // As Linux has it: looked at after a datagram, never before.
        if deadline.is_some_and(|deadline| std::time::Instant::now() >= deadline) {
            return Some(Ok(idx + 1));
        }
    }
    Some(Ok(list.len()))
}

/// `MSG_WAITFORONE` is a flag of the list, and not of its messages.
const WAIT_FOR_ONE: c_int = 1 << 30;

fn send_one(
    file: FileId,
    bytes: *const c_void,
    len: usize,
    to: Option<&[u8]>,
    flags: c_int,
) -> Option<Result<usize, Errno>> {
    match memory::bytes(bytes, len) {
        Ok(bytes) => ours_or_pass(data::send(file, &[IoSlice::new(bytes)], to, flags)),
        Err(error) => Some(Err(error)),
    }
}

fn send_parts(
    file: FileId,
    parts: *const libc::iovec,
    count: usize,
    to: Option<&[u8]>,
    flags: c_int,
) -> Option<Result<usize, Errno>> {
    match memory::parts(parts, count) {
        Ok(parts) => ours_or_pass(data::send(file, parts, to, flags)),
        Err(error) => Some(Err(error)),
    }
}

fn send_message(file: FileId, message: *const libc::msghdr, flags: c_int) -> Option<Result<usize, Errno>> {
    let Some(header) = memory::optional(message) else { return Some(Err(Errno(libc::EFAULT))) };
    if header.msg_controllen > 0 && !header.msg_control.is_null() && is_ours_file(file) {
        // None is carried by ours, and none is to be lost silently.
        return Some(Err(Errno::EINVAL));
    }
    let to = if header.msg_name.is_null() || header.msg_namelen == 0 {
        None
    } else {
        memory::bytes(header.msg_name, header.msg_namelen as usize).ok()
    };
    send_parts(file, header.msg_iov, header.msg_iovlen, to, flags)
}

fn store_source(received: &Received, address: *mut c_void, len: *mut u32) -> Result<(), Errno> {
    match &received.info {
        Some(info) => memory::store_address((info.source, received.family), address, len),
        // Of a stream nothing is filled in.
        None => {
            memory::store(len, 0);
            Ok(())
        }
    }
}

fn ours_or_pass<T>(done: Done<T>) -> Option<Result<T, Errno>> {
    match done {
        Done::Ours(result) => Some(result),
        Done::Pass => None,
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
    let fds = memory::array_mut(fds, count as usize).ok()?;
    // Before the mask is set: where nothing is ours the kernel sets it and waits in one step.
    if !poll::concerns_us(fds.iter().map(|entry| entry.fd)) {
        return None;
    }
    with_mask(mask, || Some(poll::poll(fds, timeout)))
}

/// More than any process may have open (`fs.nr_open`): the kernel refuses it.
const POLL_MAX: u64 = 1 << 20;

fn wait_ours(
    epfd: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    timeout: Option<Duration>,
    mask: *const c_void,
) -> Option<Result<usize, Errno>> {
    ours(epfd)?;
    let events = memory::array_mut(events, usize::try_from(count).ok()?).ok()?;
    with_mask(mask, || poll::wait_for_events(epfd, events, timeout))
}

/// `select` as a `poll` of the descriptors in its sets.
fn select_ours(
    count: c_int,
    sets: [*mut libc::fd_set; 3],
    timeout: Option<Duration>,
    mask: *const c_void,
) -> Option<Result<usize, Errno>> {
    const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    /// What `select` reports as readable, writable, exceptional (Linux `POLLIN_SET` and its kin).
    const REPORTED: [i16; 3] =
        [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];
    if !may_be_ours() {
        return None;
    }
    // As the kernel does: sets have bits for what the process can have open, and programs name more.
    let count = usize::try_from(count).ok()?;
    let count = if count > libc::FD_SETSIZE { count.min(process::descriptors_max()) } else { count };
    let words = count.div_ceil(u64::BITS as usize);
    let mut bits = Vec::with_capacity(3);
    for set in sets {
        let len = if set.is_null() { 0 } else { words };
        bits.push(memory::array_mut(set.cast::<u64>(), len).ok()?);
    }
    let has = |set: &[u64], fd: usize| set.get(fd / 64).is_some_and(|word| word >> (fd % 64) & 1 == 1);
    let mut fds = Vec::new();
    for fd in 0..count {
        let events = (0..3).filter(|idx| has(bits[*idx], fd)).fold(0, |events, idx| events | EVENTS[idx]);
        if events != 0 {
            fds.push(libc::pollfd { fd: fd as c_int, events, revents: 0 });
        }
    }
    if !poll::concerns_us(fds.iter().map(|entry| entry.fd)) {
        return None;
    }
    let polled = with_mask(mask, || Some(poll::poll(&mut fds, timeout)))?;
    if polled.is_ok() {
        if fds.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Some(Err(Errno::EBADF));
        }
        bits.iter_mut().for_each(|set| set.fill(0));
    }
    Some(polled.map(|_| {
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
    }))
}

/// The time of a `timespec`; `None` without one.
fn duration_of(time: Option<&libc::timespec>) -> Result<Option<Duration>, Errno> {
    let Some(time) = time else { return Ok(None) };
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanoseconds @ ..1_000_000_000)) => Ok(Some(Duration::new(seconds, nanoseconds))),
        _ => Err(Errno::EINVAL),
    }
}

/// The time of a `timeval`; `None` without one. Microseconds may be more than a second, as on Linux.
fn duration_of_timeval(time: Option<&libc::timeval>) -> Result<Option<Duration>, Errno> {
    let Some(time) = time else { return Ok(None) };
    match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
        (Ok(seconds), Ok(microseconds)) => {
            Ok(Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(microseconds))))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Waits under the signal mask that the call names.
fn with_mask<T>(mask: *const c_void, act: impl FnOnce() -> Option<T>) -> Option<T> {
    thread::begin_call();
    let Some(mask) = memory::optional(mask.cast::<u64>()) else { return act() };
    // Handlers of signals that wait for this mask run here, and end the wait.
    let before = sys::set_signal_mask(libc::SIG_SETMASK, *mask);
    let result = act();
    sys::set_signal_mask(libc::SIG_SETMASK, before);
    result
}
