//! The error of a call: its name and the errno, without further interpretation.

use core::ffi::c_int;
use core::fmt;
use core::ptr::NonNull;
use std::io;

/// A call of libibverbs or libmlx5 that failed: `ibv_create_flow: No space left on device (28)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerbsError {
    call: &'static str,
    errno: c_int,
}

impl VerbsError {
    /// A call and its errno.
    pub const fn new(call: &'static str, errno: c_int) -> Self {
        Self { call, errno }
    }

    /// The function, as in its manual page.
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The errno. 0 if the call gave none.
    pub const fn errno(&self) -> c_int {
        self.errno
    }

    /// Whether device, kernel or library lack the feature, rather than resources or permission.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self.errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT)
    }

    /// The errno of this thread's last call.
    pub(super) fn last(call: &'static str) -> Self {
        Self::new(call, io::Error::last_os_error().raw_os_error().unwrap_or_default())
    }

    /// For calls that return an object, or null and errno.
    pub(super) fn check_object<T>(call: &'static str, object: *mut T) -> Result<NonNull<T>, Self> {
        NonNull::new(object).ok_or_else(|| Self::last(call))
    }

    /// For calls that return 0 or an errno; a few return -1 and set errno, and a few of the
    /// providers' return -errno.
    pub(super) fn check(call: &'static str, answer: c_int) -> Result<(), Self> {
        match answer {
            0 => Ok(()),
            -1 => Err(Self::last(call)),
            reason => Err(Self::new(call, reason.saturating_abs())),
        }
    }
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = io::Error::from_raw_os_error(self.errno).to_string();
        let words = words.split(" (os error").next().unwrap_or_default();
        write!(f, "{}: {words} ({})", self.call, self.errno)
    }
}

impl core::error::Error for VerbsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_call_reason_number() {
        let check = |error: VerbsError, expected: &str| assert_eq!(error.to_string(), expected);
        check(VerbsError::new("ibv_create_flow", libc::ENOSPC), "ibv_create_flow: No space left on device (28)");
        check(VerbsError::new("ibv_reg_mr", libc::ENOMEM), "ibv_reg_mr: Cannot allocate memory (12)");
    }

    #[test]
    fn reason_is_found_whatever_the_sign() {
        let reason = |answer| VerbsError::check("ibv_modify_qp", answer).map_err(|error| error.errno());
        assert_eq!(reason(0), Ok(()));
        assert_eq!(reason(libc::EINVAL), Err(libc::EINVAL));
        assert_eq!(reason(-libc::EINVAL), Err(libc::EINVAL));
    }
}
