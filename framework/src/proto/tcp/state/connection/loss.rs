//! Losses: the present recovery, and the values that its progress is measured by.
//!
//! [`Recovery`] and [`RackSegment`], which every segment needs, are in the connection's first and
//! third cache line, [`Rack`] in the fifth; the other fields, which only a loss needs, come last.
//! Written by `loss`.

use super::Micros;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::queue::Lane;
use crate::time::Instant;

/// The sender's state of loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::proto::tcp) enum Recovery {
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

/// RFC 8985 5.2, except RACK.xmit_ts: see [`RackSegment`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(in crate::proto::tcp) struct Rack {
    pub(in crate::proto::tcp) end_seq: Seq,
    pub(in crate::proto::tcp) rtt: Micros,
    pub(in crate::proto::tcp) fack: Seq,
    /// RFC 8985 7.2: TLP.end_seq.
    pub(in crate::proto::tcp) probe_end: Seq,
}

/// The segment that was sent last of those that have arrived (RFC 8985 5.2), apart from the others
/// of [`Rack`]: sending after a pause reads the length of the pause.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::proto::tcp) struct RackSegment {
    /// RACK.xmit_ts.
    pub(in crate::proto::tcp) xmit_ts: Instant,
}

impl RackSegment {
    pub(super) const NONE: Self = Self { xmit_ts: Instant::ZERO };
}

/// RFC 8985 6.2 step 4: the tolerance of RACK.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::proto::tcp) struct Reordering {
    pub(in crate::proto::tcp) wnd_mult: u8,
    pub(in crate::proto::tcp) wnd_persist: u8,
}

impl Reordering {
    pub(super) const NEW: Self = Self { wnd_mult: 1, wnd_persist: 0 };
}

/// Variables of a recovery.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(in crate::proto::tcp) struct Loss {
    pub(in crate::proto::tcp) recovery_point: Seq,
    /// Chunks that are LOST and not retransmitted since, the next one first.
    pub(in crate::proto::tcp) lost: Lane,
    pub(in crate::proto::tcp) undo: Undo,
    pub(in crate::proto::tcp) prr: Prr,
}

/// State to restore after a spurious recovery (RFC 4015, RFC 3708).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(in crate::proto::tcp) struct Undo {
    pub(in crate::proto::tcp) cwnd: u32,
    pub(in crate::proto::tcp) ssthresh: u32,
    /// SND.UNA when the recovery began, where `LossFlags::UNDO` is set.
    pub(in crate::proto::tcp) marker: Seq,
    /// Retransmitted segments without a reported duplicate yet.
    pub(in crate::proto::tcp) resent: u32,
    /// When the first retransmission left, by the clock of timestamps (Eifel, RFC 3522).
    pub(in crate::proto::tcp) resent_ts: u32,
}

/// Proportional rate reduction (RFC 6937).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(in crate::proto::tcp) struct Prr {
    pub(in crate::proto::tcp) delivered: u32,
    pub(in crate::proto::tcp) out: u32,
    pub(in crate::proto::tcp) recover_fs: u32,
}
