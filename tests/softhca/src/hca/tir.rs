//! Receive-side scaling, as far as QPs need it.

use super::Hca;
use super::control::{Errno, RssRequest};

impl Hca {
    /// Makes what spreads frames over the rings of an indirection table, and returns its number.
    pub(super) fn add_tir(&mut self, request: &RssRequest) -> Result<u32, Errno> {
        let _ = request;
        Err(Errno(libc::EOPNOTSUPP))
    }

    /// Takes it away.
    pub(super) fn remove_tir(&mut self, number: u32) {
        let _ = number;
    }
}
