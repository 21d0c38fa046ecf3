//! The user and the privileges of this process (geteuid(2), getauxval(3)), the end of another
//! (pidfd_open(2)), and the clocks of the system and of NICs (clock_gettime(2)).
//!
//! Invariants:
//! 1. clock_gettime(2) writes one timespec, or nothing and fails; it touches no other memory.
//! 2. A descriptor that the kernel returns is new and has no other owner.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::socket::check;

/// The effective user of this process.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: no address is passed, and the call cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the program has privileges that its user may lack: setuid, setgid or file capabilities
/// (getauxval(3), AT_SECURE). The linker then ignores `LD_PRELOAD` and similar variables.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: a number from the vector that the kernel passed to the process; no address is passed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A descriptor that is readable once process `pid` has ended.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no address is passed.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32)?;
    // SAFETY: new (2).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The current time of a clock. The system's own takes no system call (vDSO); a NIC's is read over
/// PCIe by its driver.
pub(crate) fn clock_gettime(clock: libc::clockid_t) -> io::Result<libc::timespec> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: (1); the timespec is ours.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(time)
}
