//! Losses: what is missing of the data in flight, the present recovery, and the values that its
//! progress is measured by.
//!
//! [`Recovery`] and [`RackSegment`], which every segment needs, are in the connection's first and
//! third cache line. So is [`Scoreboard`], at the end of the third with its last field in the
//! fourth, because each acknowledgment tests whether anything is missing. [`Rack`] is in the fifth;
//! the other fields, which only a loss needs, come last. Written by `loss`; other rooms change the
//! scoreboard by a verb of this file.

use super::Micros;
use crate::proto::slab::NIL;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::queue::Lane;
use crate::time::Instant;

/// The sender's state of loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// Nothing is lost as far as we know.
    #[default]
    Open,
    /// Lost segments are retransmitted, until `recovery_point` is acknowledged (RFC 6675, RFC
    /// 8985).
    Fast,
    /// The timer expired; F-RTO finds out whether it was spurious (RFC 5682).
    Probing,
    /// The timer expired: slow start from one segment (RFC 5681 3.1).
    Loss,
    /// ECN reported congestion: the window was reduced, until `recovery_point` (RFC 3168 6.1.2).
    Reduced,
}

/// The state of sent data, as far as the peer reports it (RFC 2018, RFC 6675): sums over the marks
/// of the chunks.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Scoreboard {
    /// The end of the last search for a SACK block; `NIL` while nothing is marked.
    pub(crate) hint: u32,
    /// Segments that have left the network out of order: SACKED chunks or, without SACK, duplicate
    /// ACKs in a row.
    pub(crate) sacked_count: u32,
    /// Marks of data in flight, in bytes (RFC 6675 2: pipe).
    pub(crate) sacked_len: u32,
    pub(crate) lost_len: u32,
    pub(crate) resent_len: u32,
}

impl Scoreboard {
    pub(crate) const CLEAR: Self = Self { hint: NIL, sacked_count: 0, sacked_len: 0, lost_len: 0, resent_len: 0 };

    /// Whether no data in flight is marked.
    #[inline(always)]
    pub(crate) fn is_clear(&self) -> bool {
        (self.sacked_len | self.lost_len | self.resent_len | self.sacked_count | !self.hint) == 0
    }

    /// Without SACK: a duplicate ACK means that one more segment has left the network.
    pub(crate) fn count_duplicate(&mut self) {
        self.sacked_count = self.sacked_count.saturating_add(1);
    }
}

/// RFC 8985 5.2, except RACK.xmit_ts: see [`RackSegment`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Rack {
    pub(crate) end_seq: Seq,
    pub(crate) rtt: Micros,
    pub(crate) fack: Seq,
    /// RFC 8985 7.2: TLP.end_seq.
    pub(crate) probe_end: Seq,
}

/// The segment that was sent last of those that have arrived (RFC 8985 5.2), apart from the others
/// of [`Rack`]: sending after a pause reads the length of the pause.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RackSegment {
    /// RACK.xmit_ts.
    pub(crate) xmit_ts: Instant,
}

impl RackSegment {
    pub(super) const NONE: Self = Self { xmit_ts: Instant::ZERO };
}

/// RFC 8985 6.2 step 4: the tolerance of RACK.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Reordering {
    pub(crate) wnd_mult: u8,
    pub(crate) wnd_persist: u8,
}

impl Reordering {
    pub(super) const NEW: Self = Self { wnd_mult: 1, wnd_persist: 0 };
}

/// Variables of a recovery.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Loss {
    pub(crate) recovery_point: Seq,
    /// Chunks that are LOST and not retransmitted since, the next one first.
    pub(crate) lost: Lane,
    pub(crate) undo: Undo,
    pub(crate) prr: Prr,
}

/// State to restore after a spurious recovery (RFC 4015, RFC 3708).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Undo {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    /// SND.UNA when the recovery began, where `LossFlags::UNDO` is set.
    pub(crate) marker: Seq,
    /// Retransmitted segments without a reported duplicate yet.
    pub(crate) resent: u32,
    /// When the first retransmission left, by the clock of timestamps (Eifel, RFC 3522).
    pub(crate) resent_ts: u32,
}

/// Proportional rate reduction (RFC 6937).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Prr {
    pub(crate) delivered: u32,
    pub(crate) out: u32,
    pub(crate) recover_fs: u32,
}
