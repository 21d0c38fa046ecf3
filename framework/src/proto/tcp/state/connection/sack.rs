//! The state of sent data, as far as the peer reports it (RFC 2018, RFC 6675): sums over the marks
//! of the chunks.
//!
//! At the end of the third cache line, with its last field in the fourth, because each
//! acknowledgment tests whether anything is missing. Written by `loss`; other rooms change it by a
//! verb of this file.

use crate::proto::slab::NIL;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::proto::tcp) struct Scoreboard {
    /// The end of the last search for a SACK block; `NIL` while nothing is marked.
    pub(in crate::proto::tcp) hint: u32,
    /// Segments that have left the network out of order: SACKED chunks or, without SACK, duplicate
    /// ACKs in a row.
    pub(in crate::proto::tcp) sacked_count: u32,
    /// Marks of data in flight, in bytes (RFC 6675 2: pipe).
    pub(in crate::proto::tcp) sacked_len: u32,
    pub(in crate::proto::tcp) lost_len: u32,
    pub(in crate::proto::tcp) resent_len: u32,
}

impl Scoreboard {
    pub(in crate::proto::tcp) const CLEAR: Self =
        Self { hint: NIL, sacked_count: 0, sacked_len: 0, lost_len: 0, resent_len: 0 };

    /// Whether no data in flight is marked.
    #[inline(always)]
    pub(in crate::proto::tcp) fn is_clear(&self) -> bool {
        (self.sacked_len | self.lost_len | self.resent_len | self.sacked_count | !self.hint) == 0
    }

    /// Without SACK: a duplicate ACK means that one more segment has left the network.
    pub(in crate::proto::tcp) fn count_duplicate(&mut self) {
        self.sacked_count = self.sacked_count.saturating_add(1);
    }
}
