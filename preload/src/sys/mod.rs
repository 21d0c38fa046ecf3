//! System calls without libc, whose symbols we replace: calls of this file never return to our
//! functions.
//!
//! Invariants:
//! 1. [`call`] passes registers to the kernel as the system call ABI says (man 2 syscall) and
//!    touches no memory itself: the kernel reads and writes what the arguments point at, as for a
//!    program that makes the call.
//! 2. Each function here makes one call, and passes its number with its arguments.
//! 3. Libc's functions of cancellation have no symbol of ours, and touch the calling thread alone.

use core::arch::asm;
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Duration;

use sockets::Errno;

use crate::engine::thread;

/// One system call: its result, or minus the error.
///
/// # Safety
/// As the call that `number` names.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: invariant 1.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// One system call: its result, or minus the error.
///
/// # Safety
/// As the call that `number` names.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: invariant 1.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// `PTHREAD_CANCEL_DISABLE`
pub(crate) const CANCEL_DISABLE: c_int = 1;

/// Whether this thread may be canceled: sets it, and says what it was.
pub(crate) fn set_cancel_state(state: c_int) -> c_int {
    let mut before = 0;
    // SAFETY: invariant 3.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Ends this thread if it was canceled, and unwinds its stack.
pub(crate) fn test_cancel() {
    // SAFETY: invariant 3.
    unsafe { pthread_testcancel() };
}

/// The result of a call, or its error.
pub(crate) fn result(value: isize) -> Result<usize, Errno> {
    match value {
        -4_095..0 => Err(Errno(-value as i32)),
        value => Ok(value as usize),
    }
}

/// A call whose arguments are numbers and pointers to memory of ours that lives as long as the
/// call.
macro_rules! call {
    ($number:expr $(, $argument:expr)*) => {{
        let mut arguments = [0; 6];
        let given: &[usize] = &[$($argument as usize),*];
        arguments[..given.len()].copy_from_slice(given);
        // SAFETY: invariants 1 and 2.
        result(unsafe { call($number, arguments) })
    }};
}

mod children;

pub(crate) use children::{STOPPED_BY_EXEC, end_with_parent, execve, execveat, give_way, kill, trace_exec, wait};

/// Calls on twins so far.
static ON_TWINS: AtomicU64 = AtomicU64::new(0);

/// How many system calls this library has made on the kernel's twins of sockets.
pub(crate) fn calls_on_twins() -> u64 {
    ON_TWINS.load(Ordering::Relaxed)
}

/// As `call`, and counted as one on a twin.
macro_rules! call_on_twin {
    ($($argument:tt)*) => {{
        ON_TWINS.fetch_add(1, Ordering::Relaxed);
        call!($($argument)*)
    }};
}

/// `socket`.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int, Errno> {
    call!(libc::SYS_socket, domain, kind, protocol).map(|fd| fd as c_int)
}

/// `close`.
pub(crate) fn close(fd: c_int) {
    let _ = call!(libc::SYS_close, fd);
}

/// `bind`.
pub(crate) fn bind(fd: c_int, address: &[u8]) -> Result<(), Errno> {
    call_on_twin!(libc::SYS_bind, fd, address.as_ptr(), address.len()).map(drop)
}

/// `connect`.
pub(crate) fn connect(fd: c_int, address: &[u8]) -> Result<(), Errno> {
    call_on_twin!(libc::SYS_connect, fd, address.as_ptr(), address.len()).map(drop)
}

/// `getsockname`: as many bytes as the address has.
pub(crate) fn getsockname(fd: c_int, into: &mut [u8; 128]) -> Result<usize, Errno> {
    let mut len = into.len() as u32;
    call_on_twin!(libc::SYS_getsockname, fd, into.as_mut_ptr(), &raw mut len)?;
    Ok((len as usize).min(into.len()))
}

/// `getpeername`: as many bytes as the address has.
pub(crate) fn getpeername(fd: c_int, into: &mut [u8; 128]) -> Result<usize, Errno> {
    let mut len = into.len() as u32;
    call!(libc::SYS_getpeername, fd, into.as_mut_ptr(), &raw mut len)?;
    Ok((len as usize).min(into.len()))
}

/// `listen`.
pub(crate) fn listen(fd: c_int, backlog: c_int) -> Result<(), Errno> {
    call_on_twin!(libc::SYS_listen, fd, backlog).map(drop)
}

/// `getsockopt` of a number.
pub(crate) fn getsockopt_int(fd: c_int, level: c_int, name: c_int) -> Result<c_int, Errno> {
    let (mut value, mut len) = (0 as c_int, 4_u32);
    call_on_twin!(libc::SYS_getsockopt, fd, level, name, &raw mut value, &raw mut len)?;
    Ok(value)
}

/// `getsockopt` of a structure: as many bytes as it has.
pub(crate) fn getsockopt(fd: c_int, level: c_int, name: c_int, into: &mut [u8]) -> Result<usize, Errno> {
    let mut len = into.len() as u32;
    call!(libc::SYS_getsockopt, fd, level, name, into.as_mut_ptr(), &raw mut len)?;
    Ok((len as usize).min(into.len()))
}

/// The backlog of a listener: `tcpi_sacked` of `TCP_INFO` (Linux `tcp_get_info`).
pub(crate) fn backlog(fd: c_int) -> Option<c_int> {
    let mut info = [0; 32];
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).ok()?;
    info[28..].first_chunk().map(|backlog| c_int::from_ne_bytes(*backlog))
}

/// `SO_RCVTIMEO` of the kernel's socket; `None` for no limit.
pub(crate) fn receive_timeout(fd: c_int) -> Option<Duration> {
    let mut bytes = [0; 16];
    let len = getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &mut bytes).ok()?;
    let (seconds, micros) = bytes[..len].split_first_chunk::<8>().map(|(first, rest)| {
        (i64::from_ne_bytes(*first), rest.first_chunk::<8>().map_or(0, |rest| i64::from_ne_bytes(*rest)))
    })?;
    let limit = Duration::from_secs(seconds as u64) + Duration::from_micros(micros as u64);
    (!limit.is_zero()).then_some(limit)
}

/// `ioctl` that stores a number.
pub(crate) fn ioctl_int(fd: c_int, request: usize) -> Result<c_int, Errno> {
    let mut value: c_int = 0;
    call!(libc::SYS_ioctl, fd, request, &raw mut value)?;
    Ok(value)
}

/// `SIOCGSTAMPNS`: a `struct timespec`.
pub(crate) fn last_stamp(fd: c_int, into: &mut [i64; 2]) -> Result<(), Errno> {
    const SIOCGSTAMPNS: usize = 0x8907;
    call_on_twin!(libc::SYS_ioctl, fd, SIOCGSTAMPNS, into.as_mut_ptr()).map(drop)
}

/// The core that the calling thread is on.
pub(crate) fn cpu() -> Result<c_int, Errno> {
    let mut cpu: c_int = 0;
    call!(libc::SYS_getcpu, &raw mut cpu, 0_usize, 0_usize)?;
    Ok(cpu)
}

/// `setsockopt`.
pub(crate) fn setsockopt(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    call_on_twin!(libc::SYS_setsockopt, fd, level, name, value.as_ptr(), value.len()).map(drop)
}

/// `sendmsg` to an address with a TTL (`IP_TTL`); with 0 by the socket's own.
pub(crate) fn send_with_ttl(
    fd: c_int,
    parts: &[IoSlice<'_>],
    to: &[u8],
    flags: c_int,
    (ttl, more): (u8, &[u8]),
) -> Result<usize, Errno> {
    // `struct cmsghdr`, the number, and padding.
    let mut own = [0_u8; 24];
    own[..8].copy_from_slice(&20_usize.to_ne_bytes());
    own[8..12].copy_from_slice(&libc::IPPROTO_IP.to_ne_bytes());
    own[12..16].copy_from_slice(&libc::IP_TTL.to_ne_bytes());
    own[16..20].copy_from_slice(&c_int::from(ttl).to_ne_bytes());
    // SAFETY: a structure of integers, and of pointers that may be null.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = to.as_ptr().cast_mut().cast();
    message.msg_namelen = to.len() as u32;
    // An `IoSlice` is a `struct iovec`.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len();
    // Those of the program come last, and go before ours.
    let mut all;
    if ttl > 0 && more.is_empty() {
        message.msg_control = own.as_mut_ptr().cast();
        message.msg_controllen = own.len();
    } else if ttl > 0 {
        all = [&own[..], more].concat();
        message.msg_control = all.as_mut_ptr().cast();
        message.msg_controllen = all.len();
    }
    call_on_twin!(libc::SYS_sendmsg, fd, &raw const message, flags)
}

/// An entry of an error queue.
pub(crate) struct TakenError {
    pub(crate) len: usize,
    pub(crate) name_len: usize,
    pub(crate) control_len: usize,
}

/// `recvmsg` with `MSG_ERRQUEUE`.
pub(crate) fn receive_error(
    fd: c_int,
    name: &mut [u8],
    bytes: &mut [u8],
    control: &mut [u8],
) -> Result<TakenError, Errno> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a structure of integers, and of pointers that may be null.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = name.len() as u32;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.len();
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let len = call!(libc::SYS_recvmsg, fd, &raw mut message, flags)?;
    let name_len = (message.msg_namelen as usize).min(name.len());
    Ok(TakenError { len, name_len, control_len: message.msg_controllen.min(control.len()) })
}

/// `fcntl` with a number.
pub(crate) fn fcntl(fd: c_int, command: c_int, argument: c_int) -> Result<c_int, Errno> {
    call_on_twin!(libc::SYS_fcntl, fd, command, argument).map(|value| value as c_int)
}

/// `eventfd2`.
pub(crate) fn eventfd() -> Result<c_int, Errno> {
    call!(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).map(|fd| fd as c_int)
}

/// A descriptor of the program, for a call that only passes it to the kernel: it may be closed by
/// then, and the call fails, as any with a number does.
pub(crate) fn borrowed(fd: c_int) -> BorrowedFd<'static> {
    // SAFETY: a number that is not -1; no memory depends on the file that it names.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Device, inode and number of a special file, by which a descriptor's file is told from others.
pub(crate) fn identity(fd: c_int) -> Option<[u64; 3]> {
    // SAFETY: a structure of integers.
    let mut facts: libc::stat = unsafe { core::mem::zeroed() };
    call!(libc::SYS_fstat, fd, &raw mut facts).ok()?;
    Some([facts.st_dev, facts.st_ino, facts.st_rdev])
}

/// `write`.
pub(crate) fn write(fd: c_int, bytes: &[u8]) -> Result<usize, Errno> {
    call!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len())
}

/// `read`.
pub(crate) fn read(fd: c_int, into: &mut [u8]) -> Result<usize, Errno> {
    call!(libc::SYS_read, fd, into.as_mut_ptr(), into.len())
}

/// The length of what `recv` would return without waiting.
pub(crate) fn peek(fd: c_int) -> Result<usize, Errno> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let into: &mut [u8] = &mut [];
    call!(libc::SYS_recvfrom, fd, into.as_mut_ptr(), into.len(), flags, 0, 0)
}

/// `pread64`.
pub(crate) fn pread(fd: c_int, into: &mut [u8], offset: i64) -> Result<usize, Errno> {
    call!(libc::SYS_pread64, fd, into.as_mut_ptr(), into.len(), offset)
}

/// `lseek`.
pub(crate) fn lseek(fd: c_int, offset: i64, whence: c_int) -> Result<i64, Errno> {
    call!(libc::SYS_lseek, fd, offset, whence).map(|at| at as i64)
}

/// `ppoll`, for `timeout_ns` at most.
pub(crate) fn ppoll(fds: &mut [libc::pollfd], timeout_ns: Option<u64>) -> Result<usize, Errno> {
    let time = timeout_ns.map(timespec);
    let time = time.as_ref().map_or(core::ptr::null(), |time| &raw const *time);
    call_on_twin!(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), time, 0, 8)
}

/// `epoll_pwait` that does not wait.
pub(crate) fn epoll_poll(epfd: c_int, events: &mut [libc::epoll_event]) -> Result<usize, Errno> {
    call_on_twin!(libc::SYS_epoll_pwait, epfd, events.as_mut_ptr(), events.len(), 0, 0, 8)
}

/// `epoll_ctl`.
pub(crate) fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: Option<libc::epoll_event>) -> Result<(), Errno> {
    let event = event.as_ref().map_or(core::ptr::null(), |event| &raw const *event);
    call_on_twin!(libc::SYS_epoll_ctl, epfd, op, fd, event).map(drop)
}

/// The index of an interface in the network namespace of this thread; 0 if there is none.
pub(crate) fn interface_idx(name: &str) -> u32 {
    let Ok(name) = std::ffi::CString::new(name) else { return 0 };
    // SAFETY: a string that ends with a null byte. Libc's function makes system calls of its own.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Whether there is an interface of this number in the network namespace of `socket`. It opens no
/// descriptor, as `if_indextoname` would.
pub(crate) fn has_interface(socket: c_int, idx: u32) -> bool {
    const SIOCGIFNAME: usize = 0x8910;
    // `struct ifreq`: a name of 16 bytes, and the number at the head of a union of 24.
    let mut request = [0_u8; 40];
    request[libc::IF_NAMESIZE..][..4].copy_from_slice(&idx.to_ne_bytes());
    let named = call!(libc::SYS_ioctl, socket, SIOCGIFNAME, request.as_mut_ptr());
    !matches!(named, Err(Errno(libc::ENXIO | libc::ENODEV)))
}

/// A socket that tells of changes of links, addresses, routes and rules (man 7 rtnetlink).
pub(crate) fn route_events() -> Result<c_int, Errno> {
    // Links too, because a route that goes with its link is not told of.
    const GROUPS: i32 = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV4_RULE;
    let fd = socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, libc::NETLINK_ROUTE)?;
    // `struct sockaddr_nl`: family, room, port, groups.
    let mut address = [0_u8; 12];
    address[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
    address[8..].copy_from_slice(&GROUPS.to_ne_bytes());
    match call!(libc::SYS_bind, fd, address.as_ptr(), address.len()) {
        Ok(_) => Ok(fd),
        Err(error) => {
            close(fd);
            Err(error)
        }
    }
}

/// Takes the events of such a socket. Returns whether there were any, or some were lost.
pub(crate) fn take_events(fd: c_int) -> bool {
    /// In one call; more are taken by the next.
    const EVENTS_MAX: usize = 256;
    let take = || call!(libc::SYS_recvfrom, fd, core::ptr::null_mut::<u8>(), 0, libc::MSG_TRUNC, 0, 0);
    (0..EVENTS_MAX).take_while(|_| matches!(take(), Ok(_) | Err(Errno(libc::ENOBUFS)))).count() > 0
}

/// Sets a variable of the environment, before the program begins.
pub(crate) fn set_environment(name: &str, value: &str) {
    // SAFETY: the constructor calls this, before threads of the program; ours read the environment
    // by the standard library alone, which locks it.
    unsafe { std::env::set_var(name, value) };
}

/// `getppid`.
pub(crate) fn getppid() -> c_int {
    call!(libc::SYS_getppid).unwrap_or(0) as c_int
}

/// `geteuid`.
pub(crate) fn geteuid() -> libc::uid_t {
    call!(libc::SYS_geteuid).unwrap_or(0) as libc::uid_t
}

/// The capabilities in force of the calling thread (capget(2)); none where the kernel does not say.
pub(crate) fn effective_capabilities() -> u64 {
    /// Version 3, which has two words of each set: effective, permitted, inheritable.
    const VERSION: u32 = 0x2008_0522;
    let (mut header, mut sets) = ([VERSION, 0], [0_u32; 6]);
    match call!(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) {
        Ok(_) => u64::from(sets[0]) | u64::from(sets[3]) << 32,
        Err(_) => 0,
    }
}

/// `getpid`, because libc may return a value that it cached before a `vfork`.
pub(crate) fn getpid() -> c_int {
    call!(libc::SYS_getpid).unwrap_or(0) as c_int
}

/// The cores that are online, as the first call has found them.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    // SAFETY: `sysconf` has no preconditions.
    *thread::once(&CORES, || unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize)
}

/// `gettid`.
pub(crate) fn gettid() -> c_int {
    call!(libc::SYS_gettid).unwrap_or(0) as c_int
}

/// `nanosleep`.
pub(crate) fn sleep(nanoseconds: u64) {
    let time = timespec(nanoseconds);
    let _ = call!(libc::SYS_nanosleep, &raw const time, 0);
}

/// All signals but the two of libc's own (nptl(7)): each thread takes part in `setuid` by one of
/// them, and a thread that blocked it would let the call wait for ever.
pub(crate) const SIGNALS_OF_PROGRAMS: u64 = !(0b11 << (SIGCANCEL - 1));
const SIGCANCEL: u32 = 32;

/// `rt_sigprocmask`: sets the mask of this thread, and returns the previous one.
pub(crate) fn set_signal_mask(how: c_int, mask: u64) -> u64 {
    let mut before = 0_u64;
    let _ = call!(libc::SYS_rt_sigprocmask, how, &raw const mask, &raw mut before, 8);
    before
}

/// Sends this thread a signal that it has caught, with its `siginfo_t` (`rt_tgsigqueueinfo`).
pub(crate) fn raise_again(signal: c_int, info: &libc::siginfo_t) {
    let mut info = *info;
    let raise = |info: &libc::siginfo_t| {
        call!(libc::SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, &raw const *info).is_ok()
    };
    if !raise(&info) {
        // The user has as many pending as he may (`RLIMIT_SIGPENDING`): as one of kill(2) it comes
        // without its value.
        info.si_code = libc::SI_USER;
        raise(&info);
    }
}

/// `siginfo_t` in words (asm-generic/siginfo.h, with 64 bits): the number, the code, the sender,
/// the value.
type SignalWords = [u64; 16];

/// A signal of this number whose value no program sends: an address of ours.
fn mark_of(signal: c_int) -> SignalWords {
    static MARK: u8 = 0;
    let mut words = [0; 16];
    (words[0], words[1]) = (signal as u64, u64::from(libc::SI_QUEUE as u32));
    words[3] = (&raw const MARK).addr() as u64;
    words
}

fn queue(signal: c_int, words: &SignalWords) -> bool {
    call!(libc::SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, words.as_ptr()).is_ok()
}

/// Queues a mark behind the signals of this number that are pending for this thread, which blocks
/// them. `false`: there is no room for one.
pub(crate) fn mark_pending(signal: c_int) -> bool {
    queue(signal, &mark_of(signal))
}

/// Queues what stands before the [mark](mark_pending) again, behind all others of its number.
pub(crate) fn move_marked_back(signal: c_int) {
    let (set, at_once) = (1_u64 << (signal - 1), [0_i64; 2]);
    loop {
        let mut words: SignalWords = [0; 16];
        let taken = call!(libc::SYS_rt_sigtimedwait, &raw const set, words.as_mut_ptr(), at_once.as_ptr(), 8);
        if taken.is_err() || words[3] == mark_of(signal)[3] {
            return;
        }
        // What was taken has left room for it, unless another process of the user has it by now:
        // as one of kill(2) it comes without its value.
        if !queue(signal, &words) {
            words[1] = u64::from(libc::SI_USER as u32);
            queue(signal, &words);
        }
    }
}

/// Sends this thread `SIGPIPE`, as a write to a closed stream does.
pub(crate) fn raise_sigpipe() {
    let _ = call!(libc::SYS_tgkill, getpid(), gettid(), libc::SIGPIPE);
}

/// Whether the program has more rights than the user who started it (`AT_SECURE`), so that the
/// environment is not to be trusted.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: reads a word that the kernel has passed to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether a path in a folder names a file that may be run; an empty one with `AT_EMPTY_PATH` the
/// folder's own descriptor. Nothing is read here: a wrong pointer is the kernel's to refuse.
pub(crate) fn is_program(folder: c_int, path: *const core::ffi::c_char, flags: c_int) -> bool {
    const EMPTY: libc::stat = // SAFETY: a structure of integers.
        unsafe { core::mem::zeroed() };
    let mut file = EMPTY;
    let flags = flags & (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW);
    call!(libc::SYS_newfstatat, folder, path, &raw mut file, flags).is_ok()
        && file.st_mode & libc::S_IFMT == libc::S_IFREG
        && call!(libc::SYS_faccessat2, folder, path, libc::X_OK, flags) != Err(Errno::EACCES)
}

/// Ends the process at once.
pub(crate) fn exit_group(status: c_int) -> ! {
    loop {
        let _ = call!(libc::SYS_exit_group, status);
    }
}

/// A page that is zero in a child of `fork` (`MADV_WIPEONFORK`): its first word is 1 in the process
/// that mapped it.
pub(crate) fn page_of_this_process() -> Option<&'static AtomicU32> {
    const FLAGS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let page = call!(libc::SYS_mmap, 0, PAGE, libc::PROT_READ | libc::PROT_WRITE, FLAGS, usize::MAX).ok()?;
    call!(libc::SYS_madvise, page, PAGE, libc::MADV_WIPEONFORK).ok()?;
    // SAFETY: the page was mapped for us alone, is never unmapped, and is aligned for any word.
    let word = unsafe { &*(page as *const c_void).cast::<AtomicU32>() };
    word.store(1, Ordering::Relaxed);
    Some(word)
}

/// A flag of this process and of those that it forks from now on.
#[derive(Debug)]
pub(crate) struct SharedFlag(NonNull<AtomicU32>);

// SAFETY: the word is atomic, and mapped as long as the flag lives.
unsafe impl Send for SharedFlag {}
// SAFETY: as above.
unsafe impl Sync for SharedFlag {}

impl SharedFlag {
    /// Takes a page. `None`: there is no memory.
    pub(crate) fn new() -> Option<Self> {
        const FLAGS: c_int = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let page = call!(libc::SYS_mmap, 0, PAGE, libc::PROT_READ | libc::PROT_WRITE, FLAGS, usize::MAX).ok()?;
        NonNull::new(page as *mut AtomicU32).map(Self)
    }

    /// Sets it. Returns whether it was unset: of all processes one is told so.
    pub(crate) fn set_first(&self) -> bool {
        // SAFETY: the page was mapped for this flag, which is its first word.
        unsafe { self.0.as_ref() }.swap(1, Ordering::Relaxed) == 0
    }

    pub(crate) fn is_set(&self) -> bool {
        // SAFETY: as in `set_first`.
        unsafe { self.0.as_ref() }.load(Ordering::Relaxed) != 0
    }
}

impl Drop for SharedFlag {
    fn drop(&mut self) {
        // SAFETY: the page was mapped for this flag, and the other processes' maps are their own.
        let _ = unsafe { unmap(self.0.as_ptr().cast(), PAGE) };
    }
}

/// The length of a map of one word: the kernel rounds it up to its pages.
const PAGE: usize = 4_096;

/// Memory of so many bytes, all zero, where nothing is.
pub(crate) fn map(len: usize) -> Option<*mut u8> {
    const FLAGS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let memory = call!(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, FLAGS, usize::MAX).ok()?;
    Some(memory as *mut u8)
}

/// Changes the length of such memory, maybe in another place.
///
/// # Safety
/// The caller has `len` bytes there from [`map`], and no reference to what goes.
pub(crate) unsafe fn remap(memory: *mut u8, len: usize, new: usize, may_move: bool) -> Option<*mut u8> {
    let flags = if may_move { libc::MREMAP_MAYMOVE } else { 0 };
    call!(libc::SYS_mremap, memory, len, new, flags).ok().map(|memory| memory as *mut u8)
}

/// Gives whole pages of such memory back.
///
/// # Safety
/// The caller has `len` bytes there from [`map`], and no reference to them.
pub(crate) unsafe fn unmap(memory: *mut u8, len: usize) -> bool {
    call!(libc::SYS_munmap, memory, len).is_ok()
}

/// Sleeps while a word has a value, until another thread wakes this one (futex(2)).
pub(crate) fn futex_wait(word: &AtomicU32, value: u32) {
    let _ = call!(libc::SYS_futex, core::ptr::from_ref(word), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value, 0);
}

/// Wakes a thread that sleeps on a word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    let _ = call!(libc::SYS_futex, core::ptr::from_ref(word), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
}

pub(crate) fn timespec(nanoseconds: u64) -> libc::timespec {
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    libc::timespec { tv_sec: seconds as libc::time_t, tv_nsec: rest as i64 }
}

/// `accept4`: the descriptor, and the bytes that the peer's address has.
pub(crate) fn accept(fd: c_int, flags: c_int, into: &mut [u8; 128]) -> Result<(c_int, usize), Errno> {
    let mut len = into.len() as u32;
    let accepted = call_on_twin!(libc::SYS_accept4, fd, into.as_mut_ptr(), &raw mut len, flags)?;
    Ok((accepted as c_int, (len as usize).min(into.len())))
}

/// Takes the lock of a file that one process has at a time (fcntl(2), record locks); `false` while
/// another one has it. The lock ends with its process.
pub(crate) fn try_lock(fd: c_int) -> bool {
    !matches!(set_lock(fd, libc::F_WRLCK), Err(Errno::EAGAIN | Errno::EACCES))
}

/// Gives the lock of a file back.
pub(crate) fn unlock(fd: c_int) {
    let _ = set_lock(fd, libc::F_UNLCK);
}

fn set_lock(fd: c_int, kind: c_int) -> Result<(), Errno> {
    let whole = libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    call_on_twin!(libc::SYS_fcntl, fd, libc::F_SETLK, &raw const whole).map(drop)
}

/// `shutdown`.
pub(crate) fn shutdown(fd: c_int, how: c_int) -> Result<(), Errno> {
    call_on_twin!(libc::SYS_shutdown, fd, how).map(drop)
}

/// `dup3`.
pub(crate) fn dup3(fd: c_int, new: c_int, flags: c_int) -> Result<c_int, Errno> {
    call!(libc::SYS_dup3, fd, new, flags).map(|fd| fd as c_int)
}

/// Removes a mapping of a device that no code uses any more, by its line of `/proc/self/maps`.
pub(crate) fn unmap_line(line: &str) {
    let mut ends = line.split([' ', '-']).map(|word| usize::from_str_radix(word, 16));
    if let (Some(Ok(begin)), Some(Ok(end))) = (ends.next(), ends.next()) {
        let _ = call!(libc::SYS_munmap, begin, end.saturating_sub(begin));
    }
}
