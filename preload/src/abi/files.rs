//! Calls that return a descriptor of a kind that we do not offload. If the number belonged to an
//! offloaded socket that was closed by a call we did not see, the table forgets that socket. And
//! those of liburing, which return none under the library.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.
//! 2. After a call that has succeeded, the two descriptors of a pair are in the caller's array.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::{made, may_be_ours, memory};
use crate::{config, real};

symbols! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        made(pass!(real::open(path, flags, mode)))
    }

    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        pass!(open(path, flags | libc::O_LARGEFILE, mode))
    }

    fn __open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        pass!(open(path, flags, mode))
    }

    fn __open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        pass!(open64(path, flags, mode))
    }

    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        pass!(open(path, flags, 0))
    }

    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        pass!(open64(path, flags, 0))
    }

    fn creat(path: *const c_char, mode: c_uint) -> c_int {
        pass!(open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode))
    }

    fn creat64(path: *const c_char, mode: c_uint) -> c_int {
        pass!(open64(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode))
    }

    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        made(pass!(real::openat(directory, path, flags, mode)))
    }

    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        pass!(openat(directory, path, flags | libc::O_LARGEFILE, mode))
    }

    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        pass!(openat(directory, path, flags, 0))
    }

    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        pass!(openat64(directory, path, flags, 0))
    }

    fn pipe(fds: *mut c_int) -> c_int {
        pass!(pipe2(fds, 0))
    }

    fn __pipe(fds: *mut c_int) -> c_int {
        pass!(pipe2(fds, 0))
    }

    fn pipe2(fds: *mut c_int, flags: c_int) -> c_int {
        both_made(pass!(real::pipe2(fds, flags)), fds)
    }

    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int {
        both_made(pass!(real::socketpair(domain, kind, protocol, fds)), fds)
    }

    fn eventfd(value: c_uint, flags: c_int) -> c_int {
        made(pass!(real::eventfd(value, flags)))
    }

    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
        made(pass!(real::memfd_create(name, flags)))
    }

    fn timerfd_create(clock: c_int, flags: c_int) -> c_int {
        made(pass!(real::timerfd_create(clock, flags)))
    }

    fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int {
        let given = pass!(real::signalfd(fd, mask, flags));
        // Given a descriptor, the call only changes the mask of that signalfd.
        if fd == -1 { made(given) } else { given }
    }

    fn inotify_init() -> c_int {
        pass!(inotify_init1(0))
    }

    fn inotify_init1(flags: c_int) -> c_int {
        made(pass!(real::inotify_init1(flags)))
    }
}

/// The result of a call that returns two descriptors.
fn both_made(result: c_int, fds: *mut c_int) -> c_int {
    if result == 0
        && let Ok(mut fds) = memory::array_mut(fds, 2)
    {
        fds.iter_mut().for_each(|fd| *fd = made(*fd));
    }
    result
}

// The functions of liburing that make a ring. Its system calls are instructions of its own, which
// no symbol of ours sees, and its rings act on the kernel's side of a socket of ours, where nothing
// ever arrives: the program would wait for ever. Without a ring it falls back to epoll, as on a
// kernel that has none, or says why it ends.
symbols! {
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
        if gets_no_ring() { NO_RING } else { pass!(real::io_uring_setup(entries, parameters)) }
    }

    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        if gets_no_ring() { NO_RING } else { pass!(real::io_uring_queue_init(entries, ring, flags)) }
    }

    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int {
        if gets_no_ring() { NO_RING } else { pass!(real::io_uring_queue_init_params(entries, ring, parameters)) }
    }

    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, len: usize
    ) -> c_int {
        if gets_no_ring() {
            return NO_RING;
        }
        pass!(real::io_uring_queue_init_mem(entries, ring, parameters, memory, len))
    }
}

/// The result of these functions where the kernel has no io_uring: the error itself, not `errno`.
const NO_RING: c_int = -libc::ENOSYS;

fn gets_no_ring() -> bool {
    may_be_ours() && config::refuses_io_uring()
}
