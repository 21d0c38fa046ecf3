//! The receive window as last advertised.
//!
//! In the first line. Written by `output` with each segment that leaves, and by `input` where the
//! SYNs have advertised it.

use crate::proto::tcp::seq::Seq;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct AdvertisedWindow {
    /// RCV.ADV: the right edge last advertised. It never moves left (RFC 9293 3.8.6).
    pub(crate) adv: Seq,
    /// The last acknowledgment number sent (RFC 7323 4.3: Last.ACK.sent).
    pub(crate) last_ack_sent: Seq,
}
