//! What comes: the receive sequence space (RFC 9293 3.3.1).
//!
//! [`ReceiveVariables`] is in the first line, [`RareReceive`] behind all that segments ask for.
//! Written by `input`; `in_order` by `machine` and `calls` as well, where the app takes what waits
//! for it. What the peer was shown is in [`Shown`](super::Shown).

use crate::proto::tcp::segment::Range;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::queue::Queue;

/// The fields that each segment uses.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::proto::tcp) struct ReceiveVariables {
    /// RCV.NXT.
    pub(in crate::proto::tcp) nxt: Seq,
    /// The largest payload that arrived: two such are acknowledged at once (RFC 5681 4.2).
    pub(in crate::proto::tcp) full_len: u16,
    /// The peer's largest segment, by our SYN.
    pub(in crate::proto::tcp) mss: u16,
    /// Bytes in `in_order`.
    pub(in crate::proto::tcp) in_order_len: u32,
}

impl ReceiveVariables {
    pub(super) const NEW: Self = Self { nxt: Seq(0), full_len: 536, mss: 536, in_order_len: 0 };
}

/// Rare fields: data that waits for the app, and the beginning and the end of the stream.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(in crate::proto::tcp) struct RareReceive {
    /// Data in order that the app has not read yet.
    pub(in crate::proto::tcp) in_order: Queue,
    pub(in crate::proto::tcp) irs: Seq,
    /// The number of the peer's FIN, where `InputFlags::FIN_SEEN` is set.
    pub(in crate::proto::tcp) fin: Seq,
    /// SACK blocks for the peer: ranges that arrived, the latest first (RFC 2018 4).
    pub(in crate::proto::tcp) sacks: [Range; 4],
}
