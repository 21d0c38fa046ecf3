//! What a refused call says: its name and the errno, and nothing that could be guessed wrong.

use core::ffi::c_int;
use core::fmt;
use core::ptr::NonNull;
use std::io;

/// A call of libibverbs or libmlx5 that was refused:
/// `ibv_create_flow: No space left on device (28)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerbsError {
    call: &'static str,
    errno: c_int,
}

impl VerbsError {
    /// A call and the reason that it gave.
    pub const fn new(call: &'static str, errno: c_int) -> Self {
        Self { call, errno }
    }

    /// The function, as in its manual page.
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The reason, of errno.h. 0 where the call gave none.
    pub const fn errno(&self) -> c_int {
        self.errno
    }

    /// Whether device, kernel or library does not know how, as opposed to: not now, not you.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self.errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT)
    }

    /// The reason that the last call of this thread left in errno.
    pub(super) fn last(call: &'static str) -> Self {
        Self::new(call, io::Error::last_os_error().raw_os_error().unwrap_or_default())
    }

    /// For calls that answer with an object, or with null and errno.
    pub(super) fn check_object<T>(call: &'static str, object: *mut T) -> Result<NonNull<T>, Self> {
        NonNull::new(object).ok_or_else(|| Self::last(call))
    }

    /// For calls that answer with 0 or a reason. The reason is an errno; a few calls say -1 and set
    /// errno, and a few of the providers' say -errno.
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
