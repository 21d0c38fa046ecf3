//! Timestamps (RFC 7323).
//!
//! In the first line. Written by `input`.

use super::coarse_seconds;
use crate::time::Instant;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TimestampState {
    /// TS.Recent.
    pub(crate) recent: u32,
    /// The offset of our clock.
    pub(crate) offset: u32,
    /// When TS.Recent was recorded, in [`coarse_seconds`]: PAWS needs days (RFC 7323 5.5).
    pub(crate) recent_at_s: u32,
}

impl TimestampState {
    pub(super) fn new(now: Instant) -> Self {
        Self { recent: 0, offset: 0, recent_at_s: coarse_seconds(now) }
    }

    /// TSval: our clock in milliseconds, from a secret origin (RFC 7323 5.4, 7.1).
    #[inline]
    pub(crate) fn now(&self, now: Instant) -> u32 {
        ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.offset)
    }
}
