//! System calls, made raw where a library that intercepts calls might be in between, and the
//! library's knowledge about descriptors.
//!
//! Invariants:
//! 1. Arguments of raw calls are as wide as the kernel reads them: those beyond the fifth are on
//!    the stack. Every passed address comes from a reference, slice or C string that is borrowed
//!    until the call has returned, and the length passed with it is that of the object.
//! 2. The kernel writes only into plain data: any bytes are a valid value.
//! 3. A descriptor that the kernel returns is new and has no other owner.
//! 4. A mapping of a file has the length that it states, and is removed with its owner.
//! 5. A thread or a hook of ours runs a plain function without arguments.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use libc::{c_int, c_long, c_void, clockid_t};

/// The library's knowledge about a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Not a device, or not examined yet.
    No = 0,
    /// An open uverbs device.
    Device = 1,
    /// The client's end of a channel.
    Channel = 2,
}

/// Looked at by every call that a process makes, without a lock. Higher numbers than these would be
/// a leak.
static KNOWN: [AtomicU8; 65_536] = [const { AtomicU8::new(0) }; 65_536];

/// Records the kind of a descriptor.
pub(crate) fn know(fd: c_int, known: Known) {
    if let Some(entry) = usize::try_from(fd).ok().and_then(|fd| KNOWN.get(fd)) {
        entry.store(known as u8, Ordering::Relaxed);
    }
}

/// The recorded kind of a descriptor.
pub(crate) fn known(fd: c_int) -> Known {
    let entry = usize::try_from(fd).ok().and_then(|fd| KNOWN.get(fd));
    match entry.map(|entry| entry.load(Ordering::Relaxed)) {
        Some(1) => Known::Device,
        Some(2) => Known::Channel,
        _ => Known::No,
    }
}

/// In a forked child.
pub(crate) fn forget_all() {
    for entry in &KNOWN {
        entry.store(0, Ordering::Relaxed);
    }
}

/// Bytes of a file of registers: more than any offset at which a page is mapped, and no other
/// file's length.
const REGISTERS_LEN: i64 = (1 << 44) + 0x5c00_0000;

/// Whether a descriptor is of a uverbs node: `/dev/zero` under a name of its, or once it was looked
/// at the file of its registers.
pub(crate) fn is_node(fd: c_int) -> bool {
    // SAFETY: 2.
    let mut status: libc::stat = unsafe { zeroed() };
    // SAFETY: 1, 2.
    let result = unsafe { libc::syscall(libc::SYS_fstat, fd, &raw mut status) };
    let is_zero = status.st_mode & libc::S_IFMT == libc::S_IFCHR && status.st_rdev == libc::makedev(1, 5);
    result == 0 && (is_zero || status.st_size == REGISTERS_LEN)
}

/// Which uverbs node a descriptor was opened as, if it was.
pub(crate) fn uverbs_number(fd: c_int) -> Option<usize> {
    if !is_node(fd) {
        return None;
    }
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let number = link.to_str()?.rsplit_once("infiniband/uverbs")?.1;
    // A file in memory has no name that others could open.
    number.strip_suffix(" (deleted)").unwrap_or(number).parse().ok()
}

/// Puts a file of registers in the place of the descriptor of a uverbs node, so that another
/// process that is given the descriptor can map them; returns another descriptor of the file.
pub(crate) fn place_registers(fd: c_int, number: usize) -> io::Result<OwnedFd> {
    let name = CString::new(format!("infiniband/uverbs{number}"))?;
    // SAFETY: a C string (1).
    let file = check(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: 3.
    let file = unsafe { OwnedFd::from_raw_fd(file as c_int) };
    // SAFETY: a file of our own.
    check(unsafe { libc::syscall(libc::SYS_ftruncate, file.as_raw_fd(), REGISTERS_LEN) })?;
    // SAFETY: both are open; the program's number stays open.
    check(unsafe { libc::syscall(libc::SYS_dup3, file.as_raw_fd(), fd, libc::O_CLOEXEC) })?;
    Ok(file)
}

/// The process that calls. After `vfork` it is another one in the same memory.
pub(crate) fn process() -> c_int {
    // SAFETY: no address is passed.
    unsafe { libc::syscall(libc::SYS_getpid) as c_int }
}

/// Nanoseconds of one of the machine's clocks.
pub(crate) fn time_ns(clock: clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: 1, 2.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether the calling thread has a capability, capget(2).
pub(crate) fn has_capability(number: u32) -> bool {
    // Version 3: two sets of 32, each effective, permitted, inheritable.
    let (header, mut sets) = ([0x2008_0522u32, 0], [[0u32; 3]; 2]);
    // SAFETY: 1, 2.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw const header, &raw mut sets) };
    result == 0 && sets[number as usize / 32][0] >> (number % 32) & 1 != 0
}

/// Bytes of memory that the process may lock; `None` without a limit.
pub(crate) fn locked_len_max() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: 1, 2.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Two connected ends for records: the client's number, which is the client's to close, and ours.
pub(crate) fn connected_pair() -> io::Result<(c_int, OwnedFd)> {
    let mut ends: [c_int; 2] = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: 1, 2.
    check(unsafe { libc::syscall(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, &raw mut ends) })?;
    // SAFETY: 3.
    Ok((ends[0], unsafe { OwnedFd::from_raw_fd(ends[1]) }))
}

/// Sends one record: whether it is done with. A client that has closed its end wants nothing any
/// more.
pub(crate) fn send_record(fd: &OwnedFd, record: &[u8]) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let none = std::ptr::null::<c_void>();
    // SAFETY: 1.
    let sent =
        unsafe { libc::syscall(libc::SYS_sendto, fd.as_raw_fd(), record.as_ptr(), record.len(), flags, none, 0usize) };
    sent >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
}

/// Takes a record that the client has not read from its end; its length, which is 0 where there is
/// none.
pub(crate) fn take_record(client: c_int, into: &mut [u8; 16]) -> usize {
    let none = std::ptr::null_mut::<c_void>();
    let (flags, len) = (libc::MSG_DONTWAIT, into.len());
    // SAFETY: 1, 2.
    let taken = unsafe { libc::syscall(libc::SYS_recvfrom, client, into.as_mut_ptr(), len, flags, none, 0usize) };
    usize::try_from(taken).unwrap_or(0)
}

/// Prints a sentence for the operator. Does not use the standard library, whose lock the program
/// may hold.
pub(crate) fn tell_operator(sentence: &str) {
    let line = format!("softhca: {sentence}\n");
    // SAFETY: 1.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.as_ptr(), line.len()) };
}

/// A file of fixed length that is written by storing.
#[derive(Debug)]
pub(crate) struct SharedFile {
    address: usize,
    len: usize,
}

impl SharedFile {
    pub(crate) fn create(path: &Path, len: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(len as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes.
        let address = check(unsafe {
            libc::syscall(libc::SYS_mmap, 0usize, len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0usize)
        })?;
        Ok(Self { address: address as usize, len })
    }

    /// Replaces the contents by as much of `text` as fits, and zeros.
    pub(crate) fn show(&mut self, text: &[u8]) {
        // SAFETY: 4; no other code in this process has the address.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) };
        let len = text.len().min(self.len);
        bytes[..len].copy_from_slice(&text[..len]);
        bytes[len..].fill(0);
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: 4.
        unsafe { libc::syscall(libc::SYS_munmap, self.address, self.len) };
    }
}

/// Starts a thread on which no signal handler of the program runs. Does not use the standard
/// library, because its thread-local values would be destroyed when the program's libraries are
/// already gone.
pub(crate) fn start_thread(body: extern "C" fn(*mut c_void) -> *mut c_void) -> io::Result<()> {
    // SAFETY: 1, 2, 5: set, attributes and thread are plain data, borrowed for the calls.
    let error = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut attributes: libc::pthread_attr_t = zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let mut thread: libc::pthread_t = zeroed();
        let error = libc::pthread_create(&raw mut thread, &raw const attributes, body, std::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        error
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Lets the calling thread run before the program's threads and wake up on time. Otherwise a
/// program that polls keeps the processors for milliseconds.
pub(crate) fn hurry() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: 1; the rest passes no address.
    unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, c"softhca".as_ptr());
        libc::syscall(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, 1);
        if libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_RR, &raw const priority) != 0 {
            // Without the right to real-time priority, requests a short slice: the kernel (6.12)
            // soon runs a thread that requests little.
            let attributes =
                SchedAttributes { len: size_of::<SchedAttributes>() as u32, slice_ns: 100_000, ..zeroed() };
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// `struct sched_attr`, sched_setattr(2).
#[repr(C)]
struct SchedAttributes {
    len: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    slice_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Sleeps.
pub(crate) fn nap(ns: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns.into() };
    // SAFETY: 1.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, std::ptr::null::<c_void>()) };
}

/// Has functions called around each `fork`, and one at the end of the process.
pub(crate) fn hook(
    before_fork: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
    at_exit: extern "C" fn(),
) {
    /// `#include <pthread.h>`; missing in the libc crate for this target.
    type Hook = Option<extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(prepare: Hook, parent: Hook, child: Hook) -> c_int;
    }
    // SAFETY: 5.
    unsafe {
        pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        libc::atexit(at_exit);
    }
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
