//! Files relative to an open directory (openat(2), linkat(2), unlinkat(2)).
//!
//! Invariants:
//! 1. A name is a C string that is borrowed for the call, and so is each descriptor, from its
//!    owner.
//! 2. A descriptor that the kernel returns is new and has no other owner.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;

use super::inherited;
use super::socket::check;

/// Opens `name` in `directory`; `mode` is for a file that is created.
pub(crate) fn open_at(directory: &File, name: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
    let name = c_string(name)?;
    // SAFETY: a string and a descriptor that are borrowed for the call (1).
    let fd = check(unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode) })?;
    // SAFETY: new (2).
    Ok(inherited::note(unsafe { File::from_raw_fd(fd) }))
}

/// Links the file `from` of `directory` to the name `to` there; an existing file with that name
/// remains.
pub(crate) fn link_at(directory: &File, from: &OsStr, to: &OsStr) -> io::Result<()> {
    let (from, to, fd) = (c_string(from)?, c_string(to)?, directory.as_raw_fd());
    // SAFETY: two strings and a descriptor that are borrowed for the call (1).
    check(unsafe { libc::linkat(fd, from.as_ptr(), fd, to.as_ptr(), 0) }).map(drop)
}

/// Removes the name of a file from `directory`.
pub(crate) fn unlink_at(directory: &File, name: &OsStr) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: a string and a descriptor that are borrowed for the call (1).
    check(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Gives the first `len` bytes of a file their blocks, and the file at least that length, so that
/// no store into a mapping of them fails for want of room.
pub(crate) fn allocate(file: &File, len: u64) -> io::Result<()> {
    let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a descriptor that is borrowed for the call (1).
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}
