//! System calls that the standard library lacks: as whom a program starts (getuid(2), getgid(2),
//! setgroups(2), setgid(2), setuid(2)), whether its file has capabilities (getxattr(2)), which
//! descriptors it inherits (close_range(2)), which signals it ignores (signal(2)), and how many
//! files it may have open (setrlimit(2)), and where it runs and by which policy
//! (sched_setaffinity(2), sched_setscheduler(2)).
//!
//! Invariants:
//! 1. A string that is passed ends with a zero, and lives until the call returns.
//! 2. The kernel writes nothing, because the passed buffer has no length.
//! 3. A list is passed with its own length, is only read, and lives until the call returns.
//! 4. Descriptors stay open: they are only marked to be closed by execve(2).
//! 5. Signals are ignored, and no handler runs.
//! 6. A limit is two plain numbers, a set of cores and a priority are plain numbers too, all
//!    borrowed for the call.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// The first descriptor behind standard input, output and error.
const FIRST_OTHER: u32 = 3;

/// The real user and group of this process.
pub(crate) fn user_and_group() -> (u32, u32) {
    // SAFETY: no address is passed, and neither can fail.
    unsafe { (libc::getuid(), libc::getgid()) }
}

/// Lets this process have as many files open as its hard limit allows.
pub(crate) fn raise_open_files() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit (6).
    done(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: a limit (6).
    done(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })
}

/// Has this thread, and those that it starts from now on, run on these cores.
pub(crate) fn run_on(cores: &mut dyn Iterator<Item = usize>) -> io::Result<()> {
    // SAFETY: a set is an array of integers.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    for core in cores.filter(|core| *core < libc::CPU_SETSIZE as usize) {
        // SAFETY: a set (6) that has this core.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: a set (6) with its length.
    done(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) })
}

/// Gives the real-time policy of this thread up, for the programs that it starts.
pub(crate) fn leave_real_time() {
    let normal = libc::sched_param { sched_priority: 0 };
    // Each thread may, and without such a policy nothing changes.
    // SAFETY: a priority (6).
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const normal) };
}

/// Makes this process another user's, with these supplementary groups. Only root may.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // The user comes last, because the others take his privilege.
    // SAFETY: a list with its length (3).
    done(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: no address is passed.
    done(unsafe { libc::setgid(gid) })?;
    // SAFETY: no address is passed.
    done(unsafe { libc::setuid(uid) })
}

/// Whether the file has capabilities; false if they cannot be read.
pub(crate) fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings (1), and no buffer (2): the length of the attribute is returned.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), ptr::null_mut(), 0) > 0 }
}

/// Programs that are started from now on inherit standard input, output and error alone.
pub(crate) fn keep_descriptors_from_programs() -> io::Result<()> {
    // SAFETY: no address is passed, and nothing is closed here (4).
    done(unsafe { libc::close_range(FIRST_OTHER, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) })
}

/// This process goes on when it is asked to end: by Ctrl-C, by a service manager, by the end of the
/// terminal.
pub(crate) fn ignore_requests_to_end() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: no handler (5).
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn done(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
