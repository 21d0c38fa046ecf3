//! The functions that ours pass calls on to: those of the next library with that name, usually
//! libc, so that other preloaded libraries work too. Before our constructor has looked them up, and
//! if there is none, the system call itself.
//!
//! Invariants:
//! 1. A pointer in a cell is null or what `dlsym` returned for the cell's own name, so it has the
//!    type that the function of that name has in libc.
//! 2. Each function passes its arguments on unchanged, so the caller's promises to libc hold. A
//!    thread that is canceled unwinds through them (`C-unwind`).

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::engine::BEGIN_AGAIN;
use crate::sys;

/// The words of a command line, or the lines of an environment.
pub(crate) type Words = *const *const c_char;

/// The return type of calls: a count or -1.
pub(crate) type Count = isize;

/// Sets `errno` and returns -1.
pub(crate) fn fail(errno: sockets::Errno) -> Count {
    // Calls that can begin again do so themselves, and a `close` that lingers reports no error. So
    // it is a `connect`: its handshake goes on, as on Linux after a signal, and `EINTR` says so.
    let errno = if errno == BEGIN_AGAIN { sockets::Errno(libc::EINTR) } else { errno };
    // SAFETY: libc's `errno` of this thread.
    unsafe { *libc::__errno_location() = errno.0 };
    -1
}

/// The error of the last call.
pub(crate) fn errno() -> sockets::Errno {
    // SAFETY: libc's `errno` of this thread.
    sockets::Errno(unsafe { *libc::__errno_location() })
}

/// Converts the value of a system call into libc's return value and `errno`.
fn done(value: isize) -> Count {
    sys::result(value).map_or_else(fail, |value| value as Count)
}

/// The next function of a name, which ends with a null byte; null where there is none.
fn next_of(name: &'static str) -> *mut c_void {
    // SAFETY: a string that ends with a null byte; the result is only stored.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) }
}

/// `ppoll` as a cancellation point, for `timeout_ns` at most.
pub(crate) fn ppoll_to_sleep(fds: &mut [libc::pollfd], timeout_ns: Option<u64>) {
    let time = timeout_ns.map(sys::timespec);
    let time = time.as_ref().map_or(core::ptr::null(), |time| &raw const *time);
    // SAFETY: a slice and a structure of ours that live as long as the call.
    unsafe { ppoll(fds.as_mut_ptr(), fds.len() as u64, time, core::ptr::null()) };
}

/// Defines the pass-through of each name: `fn name(arguments) -> type, number [register values];`.
macro_rules! pass_through {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $number:expr, [$($register:expr),*];)*) => {
        $(
            /// The next function of this name.
            ///
            /// # Safety
            /// As libc's.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                let mut next = cells::$name.load(Ordering::Relaxed);
                if next.is_null() && $number == NO_CALL {
                    // A constructor of another library may be faster than ours.
                    next = next_of(concat!(stringify!($name), "\0"));
                    cells::$name.store(next, Ordering::Relaxed);
                }
                if !next.is_null() {
                    // SAFETY: invariants 1 and 2.
                    return unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $result>(next)($($argument),*)
                    };
                }
                let mut registers = [0_usize; 6];
                let given: &[usize] = &[$($register as usize),*];
                registers[..given.len()].copy_from_slice(given);
                // SAFETY: invariant 2.
                done(unsafe { sys::call($number, registers) }) as $result
            }
        )*

        #[allow(non_upper_case_globals)]
        mod cells {
            use super::*;
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());)*
        }

        /// Looks up all functions. Called once, by the constructor.
        pub(crate) fn look_up() {
            $(
                cells::$name.store(next_of(concat!(stringify!($name), "\0")), Ordering::Relaxed);
            )*
        }
    };
}

pass_through! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, libc::SYS_socket, [domain, kind, protocol];
    fn close(fd: c_int) -> c_int, libc::SYS_close, [fd];
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, libc::SYS_close_range, [first, last, flags];
    fn dup(fd: c_int) -> c_int, libc::SYS_dup, [fd];
    fn dup2(fd: c_int, new: c_int) -> c_int, libc::SYS_dup3, [fd, new, 0];
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int, libc::SYS_dup3, [fd, new, flags];
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, libc::SYS_fcntl, [fd, command, argument];
    fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int, libc::SYS_ioctl, [fd, request, argument];
    fn bind(fd: c_int, address: *const c_void, len: u32) -> c_int, libc::SYS_bind, [fd, address, len];
    fn listen(fd: c_int, backlog: c_int) -> c_int, libc::SYS_listen, [fd, backlog];
    fn accept4(fd: c_int, address: *mut c_void, len: *mut u32, flags: c_int) -> c_int, libc::SYS_accept4, [fd, address, len, flags];
    fn connect(fd: c_int, address: *const c_void, len: u32) -> c_int, libc::SYS_connect, [fd, address, len];
    fn shutdown(fd: c_int, how: c_int) -> c_int, libc::SYS_shutdown, [fd, how];
    fn getsockname(fd: c_int, address: *mut c_void, len: *mut u32) -> c_int, libc::SYS_getsockname, [fd, address, len];
    fn getpeername(fd: c_int, address: *mut c_void, len: *mut u32) -> c_int, libc::SYS_getpeername, [fd, address, len];
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut u32) -> c_int, libc::SYS_getsockopt, [fd, level, name, value, len];
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) -> c_int, libc::SYS_setsockopt, [fd, level, name, value, len];
    fn read(fd: c_int, into: *mut c_void, len: usize) -> Count, libc::SYS_read, [fd, into, len];
    fn readv(fd: c_int, parts: *const libc::iovec, count: c_int) -> Count, libc::SYS_readv, [fd, parts, count];
    fn preadv2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> Count, libc::SYS_preadv2, [fd, parts, count, offset, 0, flags];
    fn pwritev2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> Count, libc::SYS_pwritev2, [fd, parts, count, offset, 0, flags];
    fn recvfrom(fd: c_int, into: *mut c_void, len: usize, flags: c_int, address: *mut c_void, address_len: *mut u32) -> Count, libc::SYS_recvfrom, [fd, into, len, flags, address, address_len];
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> Count, libc::SYS_recvmsg, [fd, message, flags];
    fn recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, timeout: *mut libc::timespec) -> c_int, libc::SYS_recvmmsg, [fd, messages, count, flags, timeout];
    fn write(fd: c_int, bytes: *const c_void, len: usize) -> Count, libc::SYS_write, [fd, bytes, len];
    fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> Count, libc::SYS_writev, [fd, parts, count];
    fn sendto(fd: c_int, bytes: *const c_void, len: usize, flags: c_int, address: *const c_void, address_len: u32) -> Count, libc::SYS_sendto, [fd, bytes, len, flags, address, address_len];
    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> Count, libc::SYS_sendmsg, [fd, message, flags];
    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int, libc::SYS_sendmmsg, [fd, messages, count, flags];
    fn sendfile(fd: c_int, from: c_int, offset: *mut i64, count: usize) -> Count, libc::SYS_sendfile, [fd, from, offset, count];
    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, len: usize, flags: c_uint) -> Count, libc::SYS_splice, [from, from_offset, to, to_offset, len, flags];
    fn ppoll(fds: *mut libc::pollfd, count: u64, timeout: *const libc::timespec, mask: *const c_void) -> c_int, libc::SYS_ppoll, [fds, count, core::ptr::null::<c_void>(), mask, 8];
    fn poll(fds: *mut libc::pollfd, count: u64, timeout: c_int) -> c_int, SYS_POLL, [fds, count, timeout];
    fn select(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set, timeout: *mut libc::timeval) -> c_int, SYS_SELECT, [count, read, write, except, timeout];
    fn pselect(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set, timeout: *const libc::timespec, mask: *const c_void) -> c_int, SYS_SELECT, [count, read, write, except, core::ptr::null::<c_void>(), mask];
    fn epoll_create1(flags: c_int) -> c_int, libc::SYS_epoll_create1, [flags];
    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int, libc::SYS_epoll_ctl, [epfd, op, fd, event];
    fn epoll_pwait(epfd: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int, mask: *const c_void) -> c_int, libc::SYS_epoll_pwait, [epfd, events, count, timeout, mask, 8];
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, libc::SYS_openat, [libc::AT_FDCWD, path, flags, mode];
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int, libc::SYS_openat, [directory, path, flags, mode];
    fn pipe2(fds: *mut c_int, flags: c_int) -> c_int, libc::SYS_pipe2, [fds, flags];
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int, libc::SYS_socketpair, [domain, kind, protocol, fds];
    fn eventfd(value: c_uint, flags: c_int) -> c_int, libc::SYS_eventfd2, [value, flags];
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int, libc::SYS_memfd_create, [name, flags];
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int, libc::SYS_timerfd_create, [clock, flags];
    fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int, libc::SYS_signalfd4, [fd, mask, 8, flags];
    fn inotify_init1(flags: c_int) -> c_int, libc::SYS_inotify_init1, [flags];
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE, NO_CALL, [path, mode];
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE, NO_CALL, [fd, mode];
    fn fileno(stream: *mut libc::FILE) -> c_int, NO_CALL, [stream];
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int, NO_CALL, [fd, format, arguments];
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int, NO_CALL, [fd, flag, format, arguments];
    fn _exit(status: c_int) -> c_int, libc::SYS_exit_group, [status];
    fn execve(path: *const c_char, words: Words, lines: Words) -> c_int, libc::SYS_execve, [path, words, lines];
    fn execv(path: *const c_char, words: Words) -> c_int, NO_CALL, [path, words];
    fn execvp(name: *const c_char, words: Words) -> c_int, NO_CALL, [name, words];
    fn execvpe(name: *const c_char, words: Words, lines: Words) -> c_int, NO_CALL, [name, words, lines];
    fn fexecve(fd: c_int, words: Words, lines: Words) -> c_int, NO_CALL, [fd, words, lines];
    fn execveat(folder: c_int, path: *const c_char, words: Words, lines: Words, flags: c_int) -> c_int,
        libc::SYS_execveat, [folder, path, words, lines, flags];
    fn setuid(user: libc::uid_t) -> c_int, libc::SYS_setuid, [user];
    fn seteuid(user: libc::uid_t) -> c_int, libc::SYS_setresuid, [-1_i32, user, -1_i32];
    fn setreuid(user: libc::uid_t, effective: libc::uid_t) -> c_int, libc::SYS_setreuid, [user, effective];
    fn setresuid(user: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t) -> c_int,
        libc::SYS_setresuid, [user, effective, saved];
    fn chroot(path: *const c_char) -> c_int, libc::SYS_chroot, [path];
    fn capset(header: *mut c_void, sets: *const c_void) -> c_int, libc::SYS_capset, [header, sets];
    fn pthread_cancel(thread: libc::pthread_t) -> c_int, NO_CALL, [thread];
    fn sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int, NO_CALL, [signal, action, before];
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int, NO_CALL, [entries, parameters];
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int, NO_CALL, [entries, ring, flags];
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int,
        NO_CALL, [entries, ring, parameters];
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, len: usize
    ) -> c_int, NO_CALL, [entries, ring, parameters, memory, len];
    fn syscall(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64, number, [a, b, c, d, e, f];
}

/// There is no such system call, or the library's structure is not the kernel's: the function is
/// looked up when it is first called.
const NO_CALL: i64 = i64::MAX;
/// aarch64 lacks these two system calls; there a program polls only after libc's functions were
/// looked up.
#[cfg(target_arch = "x86_64")]
const SYS_POLL: i64 = libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
const SYS_POLL: i64 = NO_CALL;
#[cfg(target_arch = "x86_64")]
const SYS_SELECT: i64 = libc::SYS_select;
#[cfg(not(target_arch = "x86_64"))]
const SYS_SELECT: i64 = NO_CALL;
