//! The round trip (RFC 6298).
//!
//! [`Rtt`], which sending asks for, is in the first line; [`Round`], which only acknowledgments
//! move, in the fifth. Written by `loss`.

use super::{Micros, coarse_seconds};
use crate::proto::tcp::seq::Seq;
use crate::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Rtt {
    /// Zero before the first sample.
    pub(crate) srtt: Micros,
    pub(crate) rto: Micros,
}

impl Rtt {
    pub(super) fn new() -> Self {
        // RFC 6298 2.1.
        Self { srtt: Micros::ZERO, rto: Micros::of(Duration::from_secs(1)) }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Round {
    pub(crate) rttvar: Micros,
    /// The recent minimum, and its time, in [`coarse_seconds`].
    pub(crate) rtt_min: Micros,
    pub(crate) rtt_min_at_s: u32,
    /// The end of the current round trip, by acknowledgment.
    pub(crate) end: Seq,
}

impl Round {
    pub(super) fn new(now: Instant) -> Self {
        Self { rttvar: Micros::ZERO, rtt_min: Micros::ZERO, rtt_min_at_s: coarse_seconds(now), end: Seq(0) }
    }
}
