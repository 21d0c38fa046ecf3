//! `exec` in all its forms. The process becomes another program, with which its connections end:
//! they send what they have before, unless the call will fail.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

#[cfg(target_arch = "x86_64")]
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use sockets::Errno;

use super::IS_ON;
use crate::engine::{self, thread};
use crate::real::{self, Words};
use crate::rehearsal::{Exec, Verdict, rehearse};
use crate::{process, sys};

unsafe extern "C" {
    static environ: Words;
}

symbols! {
    fn execve(path: *const c_char, words: Words, environment: Words) -> c_int {
        about_to_exec(&Exec { path, words, environment, ..AT_PATH });
        pass!(real::execve(path, words, environment))
    }

    fn execv(path: *const c_char, words: Words) -> c_int {
        about_to_exec(&Exec { path, words, environment: pass!(environ), ..AT_PATH });
        pass!(real::execv(path, words))
    }

    fn execvp(name: *const c_char, words: Words) -> c_int {
        about_to_search(&Exec { path: name, words, environment: pass!(environ), ..AT_PATH });
        pass!(real::execvp(name, words))
    }

    fn execvpe(name: *const c_char, words: Words, environment: Words) -> c_int {
        about_to_search(&Exec { path: name, words, environment, ..AT_PATH });
        pass!(real::execvpe(name, words, environment))
    }

    fn fexecve(fd: c_int, words: Words, environment: Words) -> c_int {
        about_to_exec(&Exec { folder: fd, path: c"".as_ptr(), words, environment, flags: libc::AT_EMPTY_PATH });
        pass!(real::fexecve(fd, words, environment))
    }

    fn execveat(folder: c_int, path: *const c_char, words: Words, environment: Words, flags: c_int) -> c_int {
        about_to_exec(&Exec { folder, path, words, environment, flags });
        pass!(real::execveat(folder, path, words, environment, flags))
    }
}

const AT_PATH: Exec = Exec {
    folder: libc::AT_FDCWD,
    path: core::ptr::null(),
    words: core::ptr::null(),
    environment: core::ptr::null(),
    flags: 0,
};

// `execl` and its like have their words as arguments. On x86-64 (System V ABI 3.2.3) the first five
// are in registers, and the others on the stack, above the return address: with that taken off and
// the registers put on, all of them are the list that `execv` takes.
#[cfg(target_arch = "x86_64")]
macro_rules! exec_list {
    ($name:ident, $list:ident, $($more:literal),*) => {
        #[doc = concat!("`", stringify!($name), "`.\n\n# Safety\nAs libc's.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                $($more,)*
                // The stack is as far from a multiple of 16 as it was, with five words more.
                "call {list}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                list = sym $list,
            );
        }
    };
}

#[cfg(target_arch = "x86_64")]
exec_list!(execl, execv,);
#[cfg(target_arch = "x86_64")]
exec_list!(execlp, execvp,);
// The environment follows the null pointer at the end of the words.
#[cfg(target_arch = "x86_64")]
exec_list!(
    execle,
    execve,
    "mov rdx, rsi",
    "2:",
    "add rdx, 8",
    "cmp qword ptr [rdx - 8], 0",
    "jne 2b",
    "mov rdx, [rdx]"
);

/// Whether sockets of ours, or listeners that were left, end with this program.
fn concerns_us() -> bool {
    IS_ON.load(Ordering::Acquire) && !thread::is_inside() && process::is_owner_by_pid()
}

fn about_to_exec(exec: &Exec) {
    if concerns_us() && !matches!(judge(exec), Verdict::Fails(_)) {
        process::about_to_exec();
    }
}

/// The same of a name that is looked for in the folders of `PATH`.
fn about_to_search(exec: &Exec) {
    if !concerns_us() {
        return;
    }
    // SAFETY: invariant 1: a string, as libc's function reads it.
    let name = unsafe { CStr::from_ptr(exec.path) }.to_bytes();
    let starts = |path: *const c_char| match judge(&Exec { path, ..*exec }) {
        // libc has a shell read it.
        Verdict::Fails(Errno(libc::ENOEXEC)) => true,
        verdict => verdict == Verdict::Succeeds,
    };
    let is_found = if name.contains(&b'/') {
        starts(exec.path)
    } else {
        let places = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let mut paths = std::env::split_paths(&places).map(|place| place.join(OsStr::from_bytes(name)));
        paths.any(|path| CString::new(path.into_os_string().into_vec()).is_ok_and(|path| starts(path.as_ptr())))
    };
    if is_found {
        process::about_to_exec();
    }
}

/// What the call would do. Where that cannot be tried, or no connection is at stake, any file
/// succeeds that may be run.
fn judge(exec: &Exec) -> Verdict {
    let is_open = |number| engine::enter_at(number).is_open();
    let verdict = if engine::all().iter().any(is_open) { rehearse(*exec) } else { Verdict::Unknown };
    match verdict {
        Verdict::Unknown if sys::is_program(exec.folder, exec.path, exec.flags) => Verdict::Succeeds,
        Verdict::Unknown => Verdict::Fails(Errno(libc::ENOENT)),
        known => known,
    }
}
