//! The round trip (RFC 6298).
//!
//! [`Rtt`], which sending asks for, is in the first line; [`Round`], which only acknowledgments
//! move, in the fifth. Written by `loss`.

use super::{Micros, coarse_seconds};
use crate::proto::tcp::seq::Seq;
use crate::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::proto::tcp) struct Rtt {
    /// Zero before the first sample.
    pub(in crate::proto::tcp) srtt: Micros,
    pub(in crate::proto::tcp) rto: Micros,
}

impl Rtt {
    pub(super) fn new() -> Self {
        // RFC 6298 2.1.
        Self { srtt: Micros::ZERO, rto: Micros::of(Duration::from_secs(1)) }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::proto::tcp) struct Round {
    pub(in crate::proto::tcp) rttvar: Micros,
    /// The recent minimum, and its time, in [`coarse_seconds`].
    pub(in crate::proto::tcp) rtt_min: Micros,
    pub(in crate::proto::tcp) rtt_min_at_s: u32,
    /// The end of the current round trip, by acknowledgment.
    pub(in crate::proto::tcp) end: Seq,
}

impl Round {
    pub(super) fn new(now: Instant) -> Self {
        Self { rttvar: Micros::ZERO, rtt_min: Micros::ZERO, rtt_min_at_s: coarse_seconds(now), end: Seq(0) }
    }
}
