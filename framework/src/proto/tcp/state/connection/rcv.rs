//! Received data: the receive sequence space (RFC 9293 3.3.1).
//!
//! [`ReceiveVariables`] is in the first cache line, [`OutOfOrder`] in the fourth, [`Duplicate`] in
//! the fifth, [`RareReceive`] after all fields that every segment needs. Written by `input`;
//! `in_order` also by `machine` and `calls`, where the app takes waiting data. `output` clears the
//! range of [`Duplicate`] by its verb `settle`. The window that the peer was shown is in
//! [`AdvertisedWindow`](super::AdvertisedWindow).

use crate::proto::tcp::segment::Range;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::queue::Queue;

/// The fields that each segment uses.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ReceiveVariables {
    /// RCV.NXT.
    pub(crate) nxt: Seq,
    /// The largest payload that arrived: two such are acknowledged at once (RFC 5681 4.2).
    pub(crate) full_len: u16,
    /// The peer's largest segment, by our SYN.
    pub(crate) mss: u16,
    /// Bytes in `in_order`.
    pub(crate) in_order_len: u32,
}

impl ReceiveVariables {
    pub(super) const NEW: Self = Self { nxt: Seq(0), full_len: 536, mss: 536, in_order_len: 0 };
}

/// Chunks beyond a hole, by their numbers and without overlap.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct OutOfOrder {
    pub(crate) queue: Queue,
}

/// A range that came twice, to be reported to the peer (RFC 2883).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Duplicate {
    pub(crate) range: Range,
}

impl Duplicate {
    /// Whether there is one to be reported.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        !self.range.is_empty()
    }

    /// Notes a range that came twice. The next acknowledgment reports the first such range, to its
    /// contiguous end (RFC 2883 4 (3)). Where the chunks out of order split a range, it comes here
    /// in pieces, and adjacent pieces are merged.
    pub(crate) fn note(&mut self, range: Range) {
        let held = self.range;
        if held.is_empty() {
            self.range = range;
        } else if range.left.is_at_most(held.right) && held.left.is_at_most(range.right) {
            self.range = Range { left: held.left.min(range.left), right: held.right.max(range.right) };
        }
    }

    /// The range was reported to the peer in a D-SACK, or is not reported because SACK is off.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        self.range = Range::default();
    }
}

/// Rare fields: data that waits for the app, and the beginning and the end of the stream.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RareReceive {
    /// Data in order that the app has not read yet.
    pub(crate) in_order: Queue,
    pub(crate) irs: Seq,
    /// The number of the peer's FIN, where `InputFlags::FIN_SEEN` is set.
    pub(crate) fin: Seq,
    /// SACK blocks for the peer: ranges that arrived, the latest first (RFC 2018 4).
    pub(crate) sacks: [Range; 4],
}
