//! System calls that the standard library lacks: files relative to an open directory (openat(2),
//! linkat(2), unlinkat(2)), our user (geteuid(2)), and whether the program started with privileges
//! (getauxval(3)).
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

/// Opens `name` in `directory`; `mode` is for a file that is created.
pub(super) fn open_at(directory: &File, name: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
    let name = c_string(name)?;
    // SAFETY: a string and a descriptor that are borrowed for the call (1).
    let fd = check(unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode) })?;
    // SAFETY: new (2).
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Links the file `from` of `directory` to the name `to` there; an existing file with that name
/// remains.
pub(super) fn link_at(directory: &File, from: &OsStr, to: &OsStr) -> io::Result<()> {
    let (from, to, fd) = (c_string(from)?, c_string(to)?, directory.as_raw_fd());
    // SAFETY: two strings and a descriptor that are borrowed for the call (1).
    check(unsafe { libc::linkat(fd, from.as_ptr(), fd, to.as_ptr(), 0) }).map(drop)
}

/// Removes the name of a file from `directory`.
pub(super) fn unlink_at(directory: &File, name: &OsStr) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: a string and a descriptor that are borrowed for the call (1).
    check(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// The effective user of this process.
pub(super) fn effective_user() -> u32 {
    // SAFETY: no address is passed, and the call cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the program has privileges that its user may lack: setuid, setgid or file capabilities
/// (getauxval(3), AT_SECURE). The linker then ignores `LD_PRELOAD` and similar variables.
pub(super) fn is_privileged() -> bool {
    // SAFETY: a number from the vector that the kernel passed to the process; no address is passed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn check(value: i32) -> io::Result<i32> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
