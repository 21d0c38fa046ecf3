//! The path's limit of segments (RFC 9293 3.9.2.2, RFC 1191, RFC 4821).
//!
//! After all fields that every segment needs; `snd.mss` is computed from these. Written by `input`.

use crate::proto::tcp::seq::Seq;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PathMtu {
    /// The number of the segment that the claim is about; or of the first full segment on trial.
    pub(crate) claimed_seq: Seq,
    /// The MSS by a router's claim that is not accepted yet; or 0.
    pub(crate) claimed_mss: u16,
    /// The largest `snd.mss`, to which it returns when a router's claim has expired: as negotiated
    /// by the SYNs, or less where the app has lowered it since (`limit_mss`).
    pub(crate) mss_max: u16,
    /// When it was lowered, in the lower half of [`coarse_seconds`](super::coarse_seconds); or 0.
    pub(crate) lowered_at_s: u16,
    /// How often timeouts have shortened full segments since one arrived.
    pub(crate) black_holes: u8,
    /// ICMP errors that did not close the connection; 255 is as many or more.
    pub(crate) soft_errors: u8,
}

impl PathMtu {
    pub(super) const NEW: Self =
        Self { claimed_seq: Seq(0), claimed_mss: 0, mss_max: 536, lowered_at_s: 0, black_holes: 0, soft_errors: 0 };
}
