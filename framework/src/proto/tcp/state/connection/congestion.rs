//! Congestion control (RFC 5681, RFC 9438).
//!
//! The windows, and the fields that each acknowledgment changes, end the connection's fifth cache
//! line. The last four fields are in later lines, because few acknowledgments need them. Written by
//! `loss`.

use crate::proto::tcp::options::Congestion;

/// Variables in bytes and milliseconds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CongestionState {
    pub(crate) ssthresh: u32,
    pub(crate) cwnd: u32,
    pub(crate) kind: Congestion,
    /// An epoch of congestion avoidance has begun: the last three count.
    pub(crate) in_epoch: bool,
    /// Acknowledged bytes for which cwnd has not grown yet.
    pub(crate) acked: u32,
    /// Zero before the first loss.
    pub(crate) w_max: u32,
    pub(crate) epoch_start_ms: u32,
    pub(crate) k_ms: u32,
    pub(crate) w_est: u32,
}

impl CongestionState {
    pub(super) const fn new(kind: Congestion) -> Self {
        Self {
            ssthresh: u32::MAX,
            cwnd: 0,
            kind,
            in_epoch: false,
            acked: 0,
            w_max: 0,
            epoch_start_ms: 0,
            k_ms: 0,
            w_est: 0,
        }
    }

    /// Makes the window at least a segment of `mss`.
    pub(crate) fn make_room_for(&mut self, mss: u16) {
        self.cwnd = self.cwnd.max(mss.into());
    }

    /// Another algorithm begins with the current windows, without an earlier loss.
    pub(crate) fn change(&mut self, kind: Congestion) {
        *self = Self { ssthresh: self.ssthresh, cwnd: self.cwnd, ..Self::new(kind) };
    }
}
