//! System calls that the standard library lacks: segmentation, many datagrams in one call, a
//! thread's own CPU time.
//!
//! `unsafe`, because libc's functions take addresses.
//!
//! Invariants:
//! 1. Every address comes from a reference, slice or vector that lives until the call has returned,
//!    and the length passed with it is that of the object.
//! 2. The kernel writes only into plain data: any bytes are a valid value.
//! 3. The message headers of a `Batch` point into vectors beside them that are never resized, so
//!    they do not move.

use core::{mem, ptr};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// CPU time that the calling thread has used, its system calls included.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: borrowed mutably for the call (1), plain data (2).
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Takes from the calling thread what [`run_first`] gave it.
pub fn run_with_others() {
    schedule(libc::SCHED_OTHER, 0);
}

/// Gives the calling thread priority over all threads that are not real-time, so that none of them
/// interrupts the two ends of a round trip. Does nothing without the permission.
pub fn run_first() {
    schedule(libc::SCHED_RR, 1);
}

fn schedule(policy: i32, priority: i32) {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: borrowed for the call (1).
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
}

/// Lets the calling thread, and the programs that it starts from now on, run on these cores alone.
pub fn run_on(cores: &[usize]) -> io::Result<()> {
    // SAFETY: any bytes are a valid set (2).
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &core in cores {
        // SAFETY: borrowed mutably for the call (1); the macro checks that the core is in the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: borrowed for the call, with its own length (1).
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) }).map(drop)
}

/// Lets this process, and those that it starts from now on, have as many descriptors as it is
/// allowed to; returns how many.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: borrowed mutably for the call (1), plain data (2).
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: borrowed for the call (1).
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(limit.rlim_max)
}

/// Sets room for `bytes` of waiting datagrams, also beyond the system's limit where we are root.
pub fn set_receive_buffer(socket: &UdpSocket, bytes: i32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
}

fn set_option(socket: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is borrowed for the call, with its own length (1).
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) }).map(drop)
}

/// Has the kernel cut sent data into datagrams of `len` bytes, on its way to the device.
pub fn cut_into_segments(socket: &UdpSocket, len: i32) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, len)
}

/// Sets a socket's congestion control by its name, also one that the namespace itself does not
/// allow.
pub fn set_congestion_control(socket: &impl AsRawFd, name: &str) -> io::Result<()> {
    let (address, len) = (name.as_ptr().cast(), name.len() as libc::socklen_t);
    // SAFETY: the name is borrowed for the call, with its own length (1).
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_TCP, libc::TCP_CONGESTION, address, len) }).map(drop)
}

/// The messages of one system call.
pub struct Batch {
    headers: Vec<libc::mmsghdr>,
    _parts: Vec<libc::iovec>,
    _bytes: Vec<Vec<u8>>,
}

impl Batch {
    /// Messages that contain `bytes` at first: to send them, or to receive into them.
    pub fn new(bytes: Vec<Vec<u8>>) -> Self {
        let mut bytes = bytes;
        let mut parts: Vec<_> = bytes
            .iter_mut()
            .map(|bytes| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() })
            .collect();
        let headers = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: all zeros are a value of this plain data (2).
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (ptr::from_mut(part), 1);
                header
            })
            .collect();
        Self { headers, _parts: parts, _bytes: bytes }
    }

    /// Sends the messages, or as many of them as the kernel accepts; returns their number.
    pub fn send(&mut self, socket: &impl AsRawFd) -> io::Result<usize> {
        let (headers, len) = (self.headers.as_mut_ptr(), self.headers.len() as u32);
        // SAFETY: headers and the objects that they point to live in `self` (1, 3).
        check(unsafe { libc::sendmmsg(socket.as_raw_fd(), headers, len, 0) }).map(|sent| sent as usize)
    }

    /// Receives waiting messages without blocking; returns their number.
    pub fn receive(&mut self, socket: &impl AsRawFd) -> usize {
        let (headers, len) = (self.headers.as_mut_ptr(), self.headers.len() as u32);
        // SAFETY: headers and the objects that they point to live in `self` (1, 3), and any bytes
        // are a message (2).
        let received = unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, len, libc::MSG_DONTWAIT, ptr::null_mut()) };
        usize::try_from(received).unwrap_or(0)
    }
}

fn check(value: i32) -> io::Result<i32> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
