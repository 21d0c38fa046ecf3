//! The calls by which a program gives up rights: those of root, and the file system.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

use core::ffi::{c_char, c_int};

use super::new_may_be_ours;
use crate::calls::rights::{RightsLoss, about_to_lose};
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
}

/// The process is about to have this effective user; -1: the one that it has.
pub(super) fn about_to_become(user: libc::uid_t) {
    const THE_SAME: libc::uid_t = libc::uid_t::MAX;
    const ROOT: libc::uid_t = 0;
    if !matches!(user, ROOT | THE_SAME) && new_may_be_ours() && sys::geteuid() == ROOT {
        about_to_lose(RightsLoss::RootUser);
    }
}

/// The process is about to have another root of its file system.
pub(super) fn about_to_change_root() {
    if new_may_be_ours() {
        about_to_lose(RightsLoss::RootDirectory);
    }
}
