//! Codes and sentences: every refused call returns a negative code, and `wp_last_error` has a
//! sentence for it.
//!
//! Errors of the hot path, such as a full ring or window, have only the general sentence, because
//! the hot path formats nothing.

use core::cell::{Cell, RefCell};
use core::ffi::CStr;
use std::ffi::CString;

/// Why a call was refused: the numbers are the negative results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// `WP_E_ARGUMENT`
    Argument = -1,
    /// `WP_E_STALE`
    Stale = -2,
    /// `WP_E_THREAD`
    Thread = -3,
    /// `WP_E_AGAIN`
    Again = -4,
    /// `WP_E_TOO_LONG`
    TooLong = -5,
    /// `WP_E_UNREACHABLE`
    Unreachable = -6,
    /// `WP_E_REFUSED`
    Refused = -7,
    /// `WP_E_STATE`
    State = -8,
    /// `WP_E_LIMIT`
    Limit = -9,
    /// `WP_E_OPEN`
    Open = -10,
    /// `WP_E_NAME`
    Name = -11,
    /// `WP_E_UNSUPPORTED`
    Unsupported = -12,
    /// `WP_E_ENDED`
    Ended = -13,
    /// `WP_E_BROKEN`
    Broken = -14,
}

impl Code {
    /// All of them, with their names in the header.
    pub const ALL: [(Self, &'static str); 14] = [
        (Self::Argument, "WP_E_ARGUMENT"),
        (Self::Stale, "WP_E_STALE"),
        (Self::Thread, "WP_E_THREAD"),
        (Self::Again, "WP_E_AGAIN"),
        (Self::TooLong, "WP_E_TOO_LONG"),
        (Self::Unreachable, "WP_E_UNREACHABLE"),
        (Self::Refused, "WP_E_REFUSED"),
        (Self::State, "WP_E_STATE"),
        (Self::Limit, "WP_E_LIMIT"),
        (Self::Open, "WP_E_OPEN"),
        (Self::Name, "WP_E_NAME"),
        (Self::Unsupported, "WP_E_UNSUPPORTED"),
        (Self::Ended, "WP_E_ENDED"),
        (Self::Broken, "WP_E_BROKEN"),
    ];

    const fn sentence(self) -> &'static CStr {
        match self {
            Self::Argument => c"an argument is null, out of range or of another version",
            Self::Stale => c"the handle names nothing, or nothing any more",
            Self::Thread => c"the stack belongs to the thread that opened it",
            Self::Again => c"no room at the moment: poll, then call again",
            Self::TooLong => c"more bytes than this call may carry",
            Self::Unreachable => c"there is no path to the peer",
            Self::Refused => c"the address, the group or the connection was refused",
            Self::State => c"the connection is not in a state for this call",
            Self::Limit => c"a table is full: close what is not needed, or open the stack with more room",
            Self::Open => c"the port cannot be opened",
            Self::Name => c"there is no counter of this name",
            Self::Unsupported => c"the device of this stack cannot do that",
            Self::Ended => c"the device has ended, and no event waits",
            Self::Broken => c"the stack failed by a fault of its own in an earlier call: close it",
        }
    }
}

/// The sentence of a result, also for a number that is no code.
pub(crate) fn sentence(code: i32) -> &'static CStr {
    match code {
        0.. => c"no error",
        _ => Code::ALL
            .iter()
            .find(|(other, _)| *other as i32 == code)
            .map_or(c"no such code", |(code, _)| code.sentence()),
    }
}

/// A code, and whether there is a sentence for particulars. The sentence is stored for
/// `wp_last_error` when the fault is made, so that a fault fits into a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    has_sentence: bool,
}

pub(crate) type Result<T> = core::result::Result<T, Fault>;

thread_local! {
    /// The last fault that a call of this thread returned.
    static LAST: Cell<Option<Fault>> = const { Cell::new(None) };
    /// The sentence of the last fault that has one of its own.
    static SENTENCE: RefCell<CString> = RefCell::new(CString::default());
}

impl Fault {
    /// A fault with a sentence of its own.
    #[cold]
    pub(crate) fn because(code: Code, why: impl ToString) -> Self {
        let text = CString::new(why.to_string().replace('\0', "?")).unwrap_or_default();
        // Fails only while the thread ends, when its last error is gone.
        let has_sentence = SENTENCE.try_with(|sentence| sentence.replace(text)).is_ok();
        Self { code, has_sentence }
    }
}

impl From<Code> for Fault {
    #[inline]
    fn from(code: Code) -> Self {
        Self { code, has_sentence: false }
    }
}

/// Stores the fault of a call of this thread. Returns the result of the call.
#[cold]
#[inline(never)]
pub(crate) fn note(fault: Fault) -> i32 {
    LAST.set(Some(fault));
    fault.code as i32
}

/// Runs `act` with the last error's sentence on this thread.
pub(crate) fn with_last<T>(act: impl Fn(&CStr) -> T) -> T {
    match LAST.get() {
        None => act(sentence(0)),
        Some(Fault { code, has_sentence: false }) => act(code.sentence()),
        Some(Fault { code, .. }) => {
            SENTENCE.try_with(|text| act(&text.borrow())).unwrap_or_else(|_| act(code.sentence()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        with_last(|text| text.to_str().unwrap().to_owned())
    }

    #[test]
    fn last_error_is_the_sentence_of_the_last_fault() {
        assert_eq!(last(), "no error");
        assert_eq!(note(Code::Again.into()), -4);
        assert_eq!(last(), "no room at the moment: poll, then call again");
        note(Fault::because(Code::Again, "this one has a \0 in it"));
        assert_eq!(last(), "this one has a ? in it");
        note(Code::Again.into());
        assert_eq!(last(), "no room at the moment: poll, then call again");
        note(Code::Stale.into());
        assert_eq!(last(), "the handle names nothing, or nothing any more");
    }

    #[test]
    fn every_code_has_a_sentence_and_no_other_number_has() {
        for (code, name) in Code::ALL {
            assert!(name.starts_with("WP_E_"));
            assert_ne!(sentence(code as i32), c"no such code");
        }
        assert_eq!([sentence(7), sentence(-99)], [c"no error", c"no such code"]);
    }
}
