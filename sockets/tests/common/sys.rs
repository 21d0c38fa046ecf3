//! The kernel's `setsockopt` and `getsockopt` by numbers and bytes, which no safe interface has.
//!
//! Invariants:
//! 1. The address comes from a slice that is borrowed until the call has returned, and the length
//!    passed with it is at most the slice's.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use sockets::Errno;

fn check(status: i32) -> Result<(), Errno> {
    if status == 0 { Ok(()) } else { Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))) }
}

pub(crate) fn setsockopt(fd: &OwnedFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: (1).
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) })
}

pub(crate) fn getsockopt(fd: &OwnedFd, level: i32, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
    let mut len = out.len() as libc::socklen_t;
    // SAFETY: (1); the kernel writes no more than `len` bytes.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, out.as_mut_ptr().cast(), &raw mut len) })?;
    Ok(len as usize)
}
