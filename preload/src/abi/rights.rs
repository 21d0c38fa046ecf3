//! The calls by which a program gives up rights: those of root, and the file system.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

use core::ffi::{c_char, c_int, c_void};

use super::{memory, new_may_be_ours};
use crate::calls::rights::{RightsLoss, STEERING, about_to_lose};
use crate::{real, sys};

symbols! {
    fn setuid(user: libc::uid_t) -> c_int {
        about_to_become(user);
        pass!(real::setuid(user))
    }

    fn seteuid(user: libc::uid_t) -> c_int {
        about_to_become(user);
        pass!(real::seteuid(user))
    }

    fn setreuid(real: libc::uid_t, effective: libc::uid_t) -> c_int {
        about_to_become(effective);
        pass!(real::setreuid(real, effective))
    }

    fn setresuid(real: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t) -> c_int {
        about_to_become(effective);
        pass!(real::setresuid(real, effective, saved))
    }

    fn chroot(path: *const c_char) -> c_int {
        about_to_change_root();
        pass!(real::chroot(path))
    }

    fn capset(header: *mut c_void, sets: *const c_void) -> c_int {
        about_to_set_capabilities(header, sets);
        pass!(real::capset(header, sets))
    }
}

/// The process is about to have this effective user; -1: the one that it has.
pub(super) fn about_to_become(user: libc::uid_t) {
    const THE_SAME: libc::uid_t = libc::uid_t::MAX;
    const ROOT: libc::uid_t = 0;
    if !matches!(user, ROOT | THE_SAME) && new_may_be_ours() && sys::geteuid() == ROOT {
        about_to_lose(RightsLoss::RootsRights);
    }
}

/// The calling thread is about to have these capabilities: `cap_user_header_t`, `cap_user_data_t`.
pub(super) fn about_to_set_capabilities(header: *const c_void, sets: *const c_void) {
    /// The version whose sets have one word each: effective, permitted, inheritable.
    const OF_ONE_WORD: u32 = 0x1998_0330;
    const LEN: usize = 24;
    let Ok(Some([version, _])) = memory::optional(header.cast::<[u32; 2]>()) else { return };
    let bytes = memory::begin_of(sets, if version == OF_ONE_WORD { LEN / 2 } else { LEN });
    let word = |at: usize| bytes.get(at..at + 4)?.first_chunk().map(|word| u64::from(u32::from_ne_bytes(*word)));
    let Some(low) = word(0) else { return };
    let effective = low | word(LEN / 2).unwrap_or(0) << 32;
    if new_may_be_ours() && sys::effective_capabilities() & !effective & STEERING != 0 {
        about_to_lose(RightsLoss::RootsRights);
    }
}

/// The process is about to have another root of its file system.
pub(super) fn about_to_change_root() {
    if new_may_be_ours() {
        about_to_lose(RightsLoss::RootDirectory);
    }
}
