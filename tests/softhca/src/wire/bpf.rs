//! bpf(2): programs at the ingress and the egress of an interface (tcx, Linux 6.6), which go with
//! the descriptor of their link.
//!
//! Invariants:
//! 1. Every address in an attribute comes from a slice that is borrowed until the call has
//!    returned, and the length beside it is the slice's.
//! 2. An attribute is plain data, and the length passed is its own.
//! 3. A descriptor that the kernel returns is new and has no other owner.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// linux/bpf.h
const PROG_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
const PROG_TYPE_SCHED_CLS: u32 = 3;
/// The helpers that we call require no particular license; this is ours.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// Where on an interface a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// `BPF_TCX_INGRESS`
    Ingress = 46,
    /// `BPF_TCX_EGRESS`
    Egress = 47,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log: [u64; 2],
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    hook: u32,
    flags: u32,
    relative: u64,
    revision: u64,
}

/// Loads a program, an instruction a word, and attaches it.
pub(super) fn attach(ifindex: u32, hook: Hook, insns: &[u64]) -> io::Result<OwnedFd> {
    let load = ProgLoad {
        kind: PROG_TYPE_SCHED_CLS,
        insn_count: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log: [0; 2],
        kernel_version: 0,
        flags: 0,
        name: *b"softhca\0\0\0\0\0\0\0\0\0",
    };
    // SAFETY: 1, 2: instructions and license live until the call is over; the count and the final
    // zero give their lengths.
    let program = unsafe { bpf(PROG_LOAD, &load) }?;
    let create = LinkCreate {
        program: program.as_raw_fd() as u32,
        ifindex,
        hook: hook as u32,
        flags: 0,
        relative: 0,
        revision: 0,
    };
    // SAFETY: 2: no address in it.
    unsafe { bpf(LINK_CREATE, &create) }
}

/// # Safety
/// Addresses in the attribute are valid for the call.
unsafe fn bpf<T>(command: i64, attribute: &T) -> io::Result<OwnedFd> {
    // SAFETY: 2, and the caller's promise.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attribute as *const T, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: 3.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
