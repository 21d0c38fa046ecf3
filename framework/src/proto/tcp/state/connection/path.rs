//! What the path says of the length of segments (RFC 9293 3.9.2.2, RFC 1191, RFC 4821).
//!
//! Behind all that segments ask for: `snd.mss` is what comes of it. Written by `input`.

use crate::proto::tcp::seq::Seq;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::proto::tcp) struct PathMtu {
    /// The number of the segment that the claim is about; or that from which on full segments are
    /// on trial.
    pub(in crate::proto::tcp) claimed_seq: Seq,
    /// What a router says that our segments should carry, while that is not believed; or 0.
    pub(in crate::proto::tcp) claimed_mss: u16,
    /// `snd.mss` as the SYNs agreed on it.
    pub(in crate::proto::tcp) mss_max: u16,
    /// When it was lowered, in the lower half of [`coarse_seconds`](super::coarse_seconds); or 0.
    pub(in crate::proto::tcp) lowered_at_s: u16,
    /// How often timeouts had full segments shortened since one has arrived.
    pub(in crate::proto::tcp) holes: u8,
    /// Reports of routers that were no reason to close; 255 is as many or more.
    pub(in crate::proto::tcp) soft_errors: u8,
}

impl PathMtu {
    pub(super) const NEW: Self =
        Self { claimed_seq: Seq(0), claimed_mss: 0, mss_max: 536, lowered_at_s: 0, holes: 0, soft_errors: 0 };
}
