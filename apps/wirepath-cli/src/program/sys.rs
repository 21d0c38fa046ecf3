//! System calls that the standard library lacks: the user who starts a program (getuid(2),
//! getgid(2)), and whether its file has capabilities (getxattr(2)).
//!
//! Invariants:
//! 1. A string that is passed ends with a zero, and lives until the call returns.
//! 2. The kernel writes nothing, because the passed buffer has no length.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// The real user and group of this process.
pub(super) fn user_and_group() -> (u32, u32) {
    // SAFETY: no address is passed, and neither can fail.
    unsafe { (libc::getuid(), libc::getgid()) }
}

/// Whether the file has capabilities; false if they cannot be read.
pub(super) fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings (1), and no buffer (2): the length of the attribute is returned.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), ptr::null_mut(), 0) > 0 }
}
