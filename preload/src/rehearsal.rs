//! Whether `exec` will succeed: a child makes the call, and is killed before the first instruction
//! of the new program. So the sockets of a process whose `exec` fails stay as they are.
//!
//! ```text
//!   the caller ──clone, waits──▶ tracer ──clone, seizes──▶ tracee: execve
//!              ◀─── verdict ────        ◀── stopped by it, and killed; or the error
//! ```
//!
//! Invariants:
//! 1. Tracer and tracee share the caller's memory, and are no threads of it: they make system
//!    calls of ours alone, write the verdict, and end. The caller waits until both have ended.
//! 2. Each runs on a stack of its own that outlives it.
//! 3. The tracee makes its call only once the tracer traces it: from then on the kernel stops it
//!    at the new program's begin, whatever signals it blocks, and kills it with the tracer.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};

use sockets::Errno;

use crate::real::Words;
use crate::sys;

/// The arguments of `execveat`, or with the working directory and no flags those of `execve`.
#[derive(Clone, Copy)]
pub(crate) struct Exec {
    pub(crate) folder: c_int,
    pub(crate) path: *const c_char,
    pub(crate) words: Words,
    pub(crate) environment: Words,
    pub(crate) flags: c_int,
}

/// What became of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Succeeds,
    Fails(Errno),
    /// The process may not trace, is traced itself, or was refused the call as one that is traced.
    Unknown,
}

impl Verdict {
    /// That of an error. Others than those of the file and of the arguments may be the rehearsal's
    /// own: a security module (`ptrace prevents transition` of AppArmor) or a filter of system
    /// calls refuses it, and not the program's call; or there is no room for it now.
    fn of(error: Errno) -> Self {
        match error.0 {
            libc::ENOENT | libc::ENOTDIR | libc::EISDIR | libc::ENOEXEC | libc::ELIBBAD | libc::ETXTBSY => {
                Self::Fails(error)
            }
            libc::ELOOP | libc::ENAMETOOLONG | libc::E2BIG | libc::EFAULT | libc::EBADF | libc::EINVAL => {
                Self::Fails(error)
            }
            _ => Self::Unknown,
        }
    }
}

struct Rehearsal {
    exec: Exec,
    /// [`UNKNOWN`], [`SUCCEEDS`], or the error.
    verdict: AtomicI32,
    /// Whether the tracee may make its call: [`WAIT`], [`GO`] or [`END`].
    permission: AtomicI32,
    /// The end of the tracee's stack, where it begins.
    stack: *mut c_void,
}

const UNKNOWN: i32 = 0;
const SUCCEEDS: i32 = -1;
const WAIT: i32 = 0;
const GO: i32 = 1;
const END: i32 = 2;
/// 16 KiB: some frames of ours, without optimization too.
const STACK: usize = 1_024;

/// Makes a call of `exec` in a child that ends with it.
pub(crate) fn rehearse(exec: Exec) -> Verdict {
    let (verdict, permission) = (AtomicI32::new(UNKNOWN), AtomicI32::new(WAIT));
    let mut stacks = [vec![0_u128; STACK], vec![0_u128; STACK]];
    let [top, stack] = stacks.each_mut().map(|stack| stack.as_mut_ptr_range().end.cast::<c_void>());
    let rehearsal = Rehearsal { exec, verdict, permission, stack };
    // A handler of the program's would run in the children too, in its memory.
    let mask = sys::set_signal_mask(libc::SIG_SETMASK, sys::SIGNALS_OF_PROGRAMS);
    let argument = (&raw const rehearsal).cast_mut().cast::<c_void>();
    // SAFETY: invariants 1 and 2: this thread goes on once the tracer has ended.
    let tracer = unsafe { libc::clone(tracer, top, libc::CLONE_VM | libc::CLONE_VFORK, argument) };
    if tracer > 0 {
        let _ = sys::wait(tracer);
    }
    sys::set_signal_mask(libc::SIG_SETMASK, mask);
    match rehearsal.verdict.load(Ordering::Acquire) {
        _ if tracer < 0 => Verdict::Unknown,
        SUCCEEDS => Verdict::Succeeds,
        UNKNOWN => Verdict::Unknown,
        error => Verdict::of(Errno(error)),
    }
}

extern "C" fn tracer(argument: *mut c_void) -> c_int {
    // SAFETY: invariant 1: the caller's, which waits.
    let rehearsal = unsafe { &*argument.cast::<Rehearsal>() };
    // SAFETY: invariants 1 and 2: nobody else has the stack, and the tracee ends before this does.
    let tracee = unsafe { libc::clone(tracee, rehearsal.stack, libc::CLONE_VM, argument) };
    if tracee < 0 {
        return 0;
    }
    let may_trace = sys::trace_exec(tracee);
    rehearsal.permission.store(if may_trace { GO } else { END }, Ordering::Release);
    // One that has ended is reaped by this, and its number may be another process's already.
    let Ok(status) = sys::wait(tracee) else { return 0 };
    if status == sys::STOPPED_BY_EXEC {
        rehearsal.verdict.store(SUCCEEDS, Ordering::Release);
    }
    if libc::WIFSTOPPED(status) && sys::kill(tracee).is_ok() {
        let _ = sys::wait(tracee);
    }
    0
}

extern "C" fn tracee(argument: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let Rehearsal { exec, verdict, permission, .. } = unsafe { &*argument.cast::<Rehearsal>() };
    sys::end_with_parent();
    loop {
        match permission.load(Ordering::Acquire) {
            WAIT => sys::give_way(),
            // Invariant 3.
            GO => break,
            _ => return 0,
        }
    }
    let error = match (exec.folder, exec.flags) {
        (libc::AT_FDCWD, 0) => sys::execve(exec.path, exec.words, exec.environment),
        (folder, flags) => sys::execveat(folder, exec.path, exec.words, exec.environment, flags),
    };
    verdict.store(error.0, Ordering::Release);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_that_the_rehearsal_may_have_alone_decides_nothing() {
        for error in [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EAGAIN, libc::ENOMEM] {
            assert_eq!(Verdict::of(Errno(error)), Verdict::Unknown);
        }
        assert_eq!(Verdict::of(Errno(libc::ENOENT)), Verdict::Fails(Errno(libc::ENOENT)));
    }
}
