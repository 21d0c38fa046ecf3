//! Descriptors: `socket`, `close` and its family, `dup` and its family, `fcntl`, `ioctl`; signal
//! handlers and threads; and `syscall` by number.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use sockets::Errno;

use super::exec::{execve, execveat};
#[cfg(target_arch = "x86_64")]
use super::polling::{epoll_create, epoll_wait, poll, select_or};
use super::polling::{epoll_create1, epoll_ctl, epoll_pwait, epoll_pwait2, ppoll, pselect};
use super::receive::{preadv2, read, readv, recvfrom, recvmmsg, recvmsg};
use super::rights::{about_to_become, about_to_change_root, about_to_set_capabilities};
use super::send::{pwritev2, sendfile, sendmmsg, sendmsg, sendto, splice, write, writev};
use super::socket::{accept4, bind, connect, getpeername, getsockname, getsockopt, listen, setsockopt, shutdown};
use super::{IS_ON, give_none, known, made, may_be_ours, memory, new_may_be_ours};
use crate::calls::{self, Direction, Outcome};
use crate::engine::group::Engines;
use crate::engine::table::FileId;
use crate::engine::{self, signals, table, thread};
use crate::real::{self, Words, fail};
use crate::{config, process, sys};

symbols! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        if may_be_ours() && calls::inherited::is_refused(domain, kind, protocol) {
            return fail(Errno(libc::EPROTONOSUPPORT)) as c_int;
        }
        let fd = made(pass!(real::socket(domain, kind, protocol)));
        if fd >= 0 && matches!(domain, libc::AF_INET | libc::AF_INET6) {
            config::say_unsaid();
            if new_may_be_ours() {
                calls::socket(fd, domain, kind, protocol);
            } else if process::is_child_of_fork() {
                process::say_that_new_ones_are_the_kernels("it has no engine");
            }
        }
        fd
    }

    fn close(fd: c_int) -> c_int {
        if thread::is_inside() {
            // A socket of ours, or an old entry of a descriptor that was closed by a system call we
            // did not see.
            table::clear(fd);
        } else if table::is_reserved(fd) {
            if process::is_owner_by_pid() {
                return fail(Errno::EBADF) as c_int;
            }
        } else if table::find(fd).is_some() && process::is_owner_by_pid() {
            process::about_to_close(fd);
            process::forget(fd);
        }
        if process::is_child_of_fork() {
            table::clear(fd);
        }
        pass!(real::close(fd))
    }

    fn __close(fd: c_int) -> c_int {
        pass!(close(fd))
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const UNSHARE: c_int = 2;
        const CLOEXEC: c_int = 4;
        let is_refused = flags & !(UNSHARE | CLOEXEC) != 0 || first > last;
        if is_refused || flags & CLOEXEC != 0 || !new_may_be_ours() {
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
        if fd != new {
            about_to_replace(fd, new);
        }
        let made = pass!(real::dup2(fd, new));
        if fd != new {
            note_dup(fd, made);
        }
        made
    }

    fn __dup2(fd: c_int, new: c_int) -> c_int {
        pass!(dup2(fd, new))
    }

    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
        if is_kept(new) {
            return fail(Errno(libc::EBUSY)) as c_int;
        }
        if fd != new {
            about_to_replace(fd, new);
        }
        let made = pass!(real::dup3(fd, new, flags));
        note_dup(fd, made);
        made
    }

    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        if command == libc::F_SETFL
            && let Some(file) = known(fd)
            && !calls::ask_for_signals(file, argument as c_int & libc::O_ASYNC != 0)
        {
            // As on a file that has none.
            return fail(Errno::EINVAL) as c_int;
        }
        let result = pass!(real::fcntl(fd, command, argument));
        if command == libc::F_DUPFD_CLOEXEC && thread::is_inside() {
            return made(result);
        }
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

    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        pass!(fcntl(fd, command, argument))
    }

    fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
        let into = argument as *mut c_int;
        let Some(file) = known(fd) else { return pass!(real::ioctl(fd, request, argument)) };
        let queued = match request as libc::Ioctl {
            libc::FIONREAD => calls::queued(file, Direction::Receive),
            libc::TIOCOUTQ => calls::queued(file, Direction::Send),
            SIOCOUTQNSD => calls::queued_unsent(file),
            libc::FIOASYNC if !calls::ask_for_signals(file, memory::optional(into).is_ok_and(|on| on.is_some_and(|on| on != 0))) => {
                return fail(Errno(libc::ENOTTY)) as c_int;
            }
            SIOCGSTAMP | SIOCGSTAMP_NEW => return last_stamp(fd, (request, argument), file, 1_000),
            SIOCGSTAMPNS | SIOCGSTAMPNS_NEW => return last_stamp(fd, (request, argument), file, 1),
            libc::FIONBIO => {
                let result = pass!(real::ioctl(fd, request, argument));
                if result == 0 {
                    calls::set_nonblocking(file, memory::optional(into).is_ok_and(|on| on.is_some_and(|on| on != 0)));
                }
                return result;
            }
            _ => Outcome::Pass,
        };
        match queued {
            Outcome::Pass => pass!(real::ioctl(fd, request, argument)),
            Outcome::Ours(Ok(_)) if into.is_null() => fail(Errno(libc::EFAULT)) as c_int,
            Outcome::Ours(Ok(len)) => give_none(memory::store(into, len)),
            Outcome::Ours(Err(error)) => fail(error) as c_int,
        }
    }

    fn sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int {
        // A child of `vfork` has its own signal handlers, but shares our memory.
        if !new_may_be_ours() {
            return pass!(real::sigaction(signal, action, before));
        }
        pass!(signals::sigaction(signal, action, before))
    }

    fn __sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int {
        pass!(sigaction(signal, action, before))
    }

    fn pthread_cancel(thread: libc::pthread_t) -> c_int {
        if may_be_ours() {
            // No thread is within the engine now, and one that enters later cannot be canceled
            // there.
            let _engines = Engines::enter(engine::all());
            thread::expect_cancel();
        }
        pass!(real::pthread_cancel(thread))
    }

    fn signal(signal: c_int, handler: usize) -> usize {
        // As in BSD and glibc: the handler restarts calls and stays installed.
        let interrupts = INTERRUPTS.load(Ordering::Relaxed) & signal_bit(signal) != 0;
        install(signal, handler, if interrupts { 0 } else { libc::SA_RESTART })
    }

    fn bsd_signal(number: c_int, handler: usize) -> usize {
        pass!(signal(number, handler))
    }

    fn ssignal(number: c_int, handler: usize) -> usize {
        pass!(signal(number, handler))
    }

    fn sysv_signal(signal: c_int, handler: usize) -> usize {
        install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
    }

    fn __sysv_signal(signal: c_int, handler: usize) -> usize {
        pass!(sysv_signal(signal, handler))
    }

    fn sigignore(signal: c_int) -> c_int {
        if install(signal, libc::SIG_IGN, 0) == libc::SIG_ERR { -1 } else { 0 }
    }

    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
        let mut action = no_action();
        if pass!(sigaction(signal, core::ptr::null(), &raw mut action)) != 0 {
            return -1;
        }
        // A handler that `signal` sets later does the same.
        if interrupts != 0 {
            INTERRUPTS.fetch_or(signal_bit(signal), Ordering::Relaxed);
            action.sa_flags &= !libc::SA_RESTART;
        } else {
            INTERRUPTS.fetch_and(!signal_bit(signal), Ordering::Relaxed);
            action.sa_flags |= libc::SA_RESTART;
        }
        pass!(sigaction(signal, &raw const action, core::ptr::null_mut()))
    }

    fn _exit(status: c_int) -> ! {
        process::about_to_exit();
        pass!(real::_exit(status));
        sys::exit_group(status)
    }

    fn _Exit(status: c_int) -> ! {
        pass!(_exit(status))
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
            // io_uring would bypass these functions; programs fall back to other calls without it.
            libc::SYS_io_uring_setup if may_be_ours() && config::refuses_io_uring() => fail(Errno(libc::ENOSYS)) as i64,
            libc::SYS_exit_group => pass!(_exit(a as c_int)),
            libc::SYS_execve => i64::from(pass!(execve(a as *const c_char, b as Words, c as Words))),
            libc::SYS_execveat => {
                i64::from(pass!(execveat(a as c_int, b as *const c_char, c as Words, d as Words, e as c_int)))
            }
            // By number these are of the calling thread alone, so libc's, which are of all threads,
            // are not called.
            libc::SYS_setuid | libc::SYS_setreuid | libc::SYS_setresuid | libc::SYS_chroot | libc::SYS_capset => {
                match number {
                    libc::SYS_setuid => about_to_become(a as libc::uid_t),
                    libc::SYS_chroot => about_to_change_root(),
                    libc::SYS_capset => about_to_set_capabilities(a as *const c_void, b as *const c_void),
                    _ => about_to_become(b as libc::uid_t),
                }
                pass!(real::syscall(number, a, b, c, d, e, f))
            }
            libc::SYS_close => i64::from(pass!(close(a as c_int))),
            libc::SYS_close_range => i64::from(pass!(close_range(a as c_uint, b as c_uint, c as c_int))),
            libc::SYS_epoll_ctl => i64::from(pass!(epoll_ctl(a as c_int, b as c_int, c as c_int, d as *mut libc::epoll_event))),
            libc::SYS_epoll_pwait => i64::from(pass!(epoll_pwait(a as c_int, b as *mut libc::epoll_event, c as c_int, d as c_int, e as *const c_void))),
            libc::SYS_epoll_pwait2 => {
                let (events, timeout) = (b as *mut libc::epoll_event, d as *const libc::timespec);
                i64::from(pass!(epoll_pwait2(a as c_int, events, c as c_int, timeout, e as *const c_void)))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => i64::from(pass!(epoll_wait(a as c_int, b as *mut libc::epoll_event, c as c_int, d as c_int))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => i64::from(pass!(poll(a as *mut libc::pollfd, b as u64, c as c_int))),
            libc::SYS_ppoll => i64::from(pass!(ppoll(a as *mut libc::pollfd, b as u64, c as *const libc::timespec, d as *const c_void))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                let sets = [b as *mut libc::fd_set, c as *mut libc::fd_set, d as *mut libc::fd_set];
                // libc's own stores the time that is left by itself, and has no error for it.
                let of_kernel = || pass!(real::syscall(number, a, b, c, d, e, f)) as c_int;
                i64::from(select_or(a as c_int, sets, e as *mut libc::timeval, of_kernel))
            }
            libc::SYS_pselect6 => match memory::optional(f as *const usize) {
                // A pointer to the mask, and its length.
                Ok(mask) => i64::from(pass!(pselect(a as c_int, b as *mut libc::fd_set, c as *mut libc::fd_set, d as *mut libc::fd_set, e as *const libc::timespec, mask.unwrap_or(0) as *const c_void))),
                Err(error) => fail(error) as i64,
            },
            libc::SYS_sendfile => pass!(sendfile(a as c_int, b as c_int, c as *mut i64, d) as i64),
            libc::SYS_splice => pass!(splice(a as c_int, b as *mut i64, c as c_int, d as *mut i64, e, f as c_uint) as i64),
            libc::SYS_recvmmsg => i64::from(pass!(recvmmsg(a as c_int, b as *mut libc::mmsghdr, c as c_uint, d as c_int, e as *mut libc::timespec))),
            libc::SYS_sendmmsg => i64::from(pass!(sendmmsg(a as c_int, b as *mut libc::mmsghdr, c as c_uint, d as c_int))),
            libc::SYS_socket => i64::from(pass!(socket(a as c_int, b as c_int, c as c_int))),
            libc::SYS_bind => i64::from(pass!(bind(a as c_int, b as *const c_void, c as u32))),
            libc::SYS_listen => i64::from(pass!(listen(a as c_int, b as c_int))),
            libc::SYS_connect => i64::from(pass!(connect(a as c_int, b as *const c_void, c as u32))),
            libc::SYS_accept => i64::from(pass!(accept4(a as c_int, b as *mut c_void, c as *mut u32, 0))),
            libc::SYS_accept4 => i64::from(pass!(accept4(a as c_int, b as *mut c_void, c as *mut u32, d as c_int))),
            libc::SYS_shutdown => i64::from(pass!(shutdown(a as c_int, b as c_int))),
            libc::SYS_getsockname => i64::from(pass!(getsockname(a as c_int, b as *mut c_void, c as *mut u32))),
            libc::SYS_getpeername => i64::from(pass!(getpeername(a as c_int, b as *mut c_void, c as *mut u32))),
            libc::SYS_setsockopt => i64::from(pass!(setsockopt(a as c_int, b as c_int, c as c_int, d as *const c_void, e as u32))),
            libc::SYS_getsockopt => i64::from(pass!(getsockopt(a as c_int, b as c_int, c as c_int, d as *mut c_void, e as *mut u32))),
            libc::SYS_sendto => pass!(sendto(a as c_int, b as *const c_void, c, d as c_int, e as *const c_void, f as u32) as i64),
            libc::SYS_recvfrom => pass!(recvfrom(a as c_int, b as *mut c_void, c, d as c_int, e as *mut c_void, f as *mut u32) as i64),
            libc::SYS_sendmsg => pass!(sendmsg(a as c_int, b as *const libc::msghdr, c as c_int) as i64),
            libc::SYS_recvmsg => pass!(recvmsg(a as c_int, b as *mut libc::msghdr, c as c_int) as i64),
            libc::SYS_readv => pass!(readv(a as c_int, b as *const libc::iovec, c as c_int) as i64),
            libc::SYS_writev => pass!(writev(a as c_int, b as *const libc::iovec, c as c_int) as i64),
            // The offset is in two halves, as on machines of 32 bits; the second is unused here.
            libc::SYS_preadv2 => pass!(preadv2(a as c_int, b as *const libc::iovec, c as c_int, d as i64, f as c_int) as i64),
            libc::SYS_pwritev2 => pass!(pwritev2(a as c_int, b as *const libc::iovec, c as c_int, d as i64, f as c_int) as i64),
            libc::SYS_dup => i64::from(pass!(dup(a as c_int))),
            libc::SYS_fcntl => i64::from(pass!(fcntl(a as c_int, b as c_int, c))),
            libc::SYS_ioctl => i64::from(pass!(ioctl(a as c_int, b, c))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => i64::from(pass!(epoll_create(a as c_int))),
            libc::SYS_epoll_create1 => i64::from(pass!(epoll_create1(a as c_int))),
            libc::SYS_read => pass!(read(a as c_int, b as *mut c_void, c) as i64),
            libc::SYS_write => pass!(write(a as c_int, b as *const c_void, c) as i64),
            libc::SYS_openat | libc::SYS_memfd_create | libc::SYS_pidfd_open | libc::SYS_perf_event_open | libc::SYS_userfaultfd => {
                let made = pass!(real::syscall(number, a, b, c, d, e, f));
                process::given(made as c_int);
                made
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => i64::from(pass!(dup2(a as c_int, b as c_int))),
            libc::SYS_dup3 => i64::from(pass!(dup3(a as c_int, b as c_int, c as c_int))),
            _ => pass!(real::syscall(number, a, b, c, d, e, f)),
        }
    }
}

// Numbers of `linux/sockios.h`: the bytes of a stream that were not sent yet; when the last
// datagram arrived, as `timeval` and as `timespec`, each with 64 bits on all machines too.
const SIOCOUTQNSD: libc::Ioctl = 0x894B;
const SIOCGSTAMP: libc::Ioctl = 0x8906;
const SIOCGSTAMPNS: libc::Ioctl = 0x8907;
const SIOCGSTAMP_NEW: libc::Ioctl = 0x8010_8906;
const SIOCGSTAMPNS_NEW: libc::Ioctl = 0x8010_8907;

/// `SIOCGSTAMP` and its kin: seconds, and units of so many nanoseconds.
fn last_stamp(fd: c_int, (request, argument): (usize, usize), file: FileId, unit_ns: u64) -> c_int {
    const SECOND_NS: u64 = 1_000_000_000;
    match calls::stamp::last(file) {
        Outcome::Ours(at) => give_none(at.and_then(|at| {
            let stamp = [(at / SECOND_NS) as i64, (at % SECOND_NS / unit_ns) as i64];
            if argument == 0 { Err(Errno(libc::EFAULT)) } else { memory::store(argument as *mut [i64; 2], stamp) }
        })),
        Outcome::Pass => pass!(real::ioctl(fd, request, argument)),
    }
}

/// Signals whose handlers interrupt calls (`siginterrupt`).
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

fn signal_bit(signal: c_int) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}

/// Sets the handler of a signal, and returns the one before.
fn install(signal: c_int, handler: usize, flags: c_int) -> usize {
    let mut action = no_action();
    let mut before = no_action();
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    match pass!(sigaction(signal, &raw const action, &raw mut before)) {
        0 => before.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}

/// The default action of a signal, without flags and with an empty mask.
fn no_action() -> libc::sigaction {
    // SAFETY: a structure of integers, and of a pointer that may be null.
    unsafe { core::mem::zeroed() }
}

/// `dup2` is about to close `new`, unless it fails.
fn about_to_replace(fd: c_int, new: c_int) {
    if table::find_possible(new).is_some() && pass!(real::fcntl(fd, libc::F_GETFD, 0)) >= 0 {
        process::about_to_close(new);
    }
}

/// Records that `new` duplicates `fd`, if the call succeeded.
fn note_dup(fd: c_int, new: c_int) {
    if new == 2 && IS_ON.load(Ordering::Acquire) && !process::is_vfork_child() {
        config::note_standard_error();
    }
    if new >= 0
        && (table::find(fd).is_some() || table::find(new).is_some())
        && !thread::is_inside()
        && process::is_owner_by_pid()
    {
        process::duplicated(fd, new);
    }
}

/// Whether the engine itself uses this descriptor: the program may not replace it by another.
fn is_kept(fd: c_int) -> bool {
    table::is_reserved(fd) && process::is_owner_by_pid()
}
