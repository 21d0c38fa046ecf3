//! Calls of the processes that try an `exec`, and of the one that waits for them.

use core::ffi::{c_char, c_int};

use sockets::Errno;

use super::{call, result};
use crate::real::Words;

/// The status of a traced process that `exec` has made another program (ptrace(2)).
pub(crate) const STOPPED_BY_EXEC: c_int = 0x7f | libc::SIGTRAP << 8 | libc::PTRACE_EVENT_EXEC << 16;

/// Waits until a child stops or ends; its status.
pub(crate) fn wait(child: c_int) -> Result<c_int, Errno> {
    let mut status = 0;
    call!(libc::SYS_wait4, child, &raw mut status, libc::__WALL, 0)?;
    Ok(status)
}

/// Traces a child, which stops once it is another program, and ends with its tracer.
pub(crate) fn trace_exec(child: c_int) -> bool {
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, child, 0, options).is_ok()
}

/// Ends a process that is not reaped yet.
pub(crate) fn kill(child: c_int) -> Result<(), Errno> {
    call!(libc::SYS_kill, child, libc::SIGKILL).map(drop)
}

/// This process ends with the thread that has made it.
pub(crate) fn end_with_parent() {
    let _ = call!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
}

/// Another process runs.
pub(crate) fn give_way() {
    let _ = call!(libc::SYS_sched_yield);
}

/// `execve`; returns if it fails.
pub(crate) fn execve(path: *const c_char, words: Words, environment: Words) -> Errno {
    call!(libc::SYS_execve, path, words, environment).err().unwrap_or(Errno(libc::EIO))
}

/// `execveat`; returns if it fails.
pub(crate) fn execveat(folder: c_int, path: *const c_char, words: Words, environment: Words, flags: c_int) -> Errno {
    call!(libc::SYS_execveat, folder, path, words, environment, flags).err().unwrap_or(Errno(libc::EIO))
}
