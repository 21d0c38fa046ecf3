//! System calls that the standard library has no call for: what the kernel said of the program as it started (getauxval(3)).
//!
//! Invariants:
//! 1. No address is passed.

/// Whether the program has rights that whoever started it need not have: setuid, setgid or capabilities of its file
/// (getauxval(3), AT_SECURE). The linker then ignores `LD_PRELOAD` and the like.
pub(super) fn is_privileged() -> bool {
    // SAFETY: a number out of the vector that the kernel gave to the process; no address is passed (1).
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
