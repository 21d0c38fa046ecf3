//! The timestamps of CQEs (mlx5.md 2.9): ticks of the NIC's clock, which the kernel relates to the
//! wall clock, or the time of day itself. Input: the field of a CQE; output: the timestamp of an
//! mbuf. This file reads no clock: a caller reads the kernel's page at intervals and passes in the
//! relation of the clocks, which stays valid for seconds (its `overflow_period`).

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The relation of the NIC's ticks to the wall clock: `struct mlx5dv_clock_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockInfo {
    /// Wall clock time, in ns of the Unix epoch,
    pub(crate) ns: u64,
    /// at this tick count,
    pub(crate) ticks: u64,
    /// and the fraction of a nanosecond, in units of `1 >> shift`.
    pub(crate) fraction: u64,
    /// Nanoseconds per tick, in the same units.
    pub(crate) mult: u32,
    /// Number of fraction bits.
    pub(crate) shift: u32,
    /// Mask of the clock's valid bits.
    pub(crate) mask: u64,
}

/// The same relation as a straight line that starts before any possible frame: one multiplication
/// gives the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickConversion {
    ns: u64,
    ticks: u64,
    fraction: u64,
    mult: u64,
    shift: u32,
    mask: u64,
}

impl TickConversion {
    /// The line that leaves ticks unchanged.
    pub(crate) const TICKS: Self = Self { ns: 0, ticks: 0, fraction: 0, mult: 1, shift: 0, mask: u64::MAX };

    /// The line through `relation`, starting a quarter of the clock's range before it, or as far as
    /// 64 bits can multiply.
    pub(crate) fn through(relation: &ClockInfo) -> Self {
        let (mult, shift) = (u64::from(relation.mult).max(1), relation.shift.min(63));
        let back = (relation.mask / 4).min((1 << 62) / mult);
        let parts =
            (i128::from(relation.ns) << shift) + i128::from(relation.fraction) - i128::from(back) * i128::from(mult);
        Self {
            ns: (parts >> shift) as u64,
            ticks: relation.ticks.wrapping_sub(back),
            fraction: parts as u64 & ((1 << shift) - 1),
            mult,
            shift,
            mask: relation.mask,
        }
    }

    /// The time at tick count `ticks`, rounded down to the nanosecond. Any input gives some time.
    #[inline(always)]
    pub(crate) fn at(&self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.ticks) & self.mask;
        let parts = since.wrapping_mul(self.mult).wrapping_add(self.fraction);
        self.ns.wrapping_add(parts.wrapping_shr(self.shift))
    }
}

/// Decodes a timestamp of the real-time format: seconds in the upper half, nanoseconds in the
/// lower.
#[inline(always)]
pub(crate) fn real_time(timestamp: u64) -> u64 {
    (timestamp >> 32) * SECOND + (timestamp & 0xffff_ffff)
}

/// The handling of a queue's CQE timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimestampSource {
    /// They are ignored.
    Off,
    /// They are passed on unchanged, for an application that relates clocks itself:
    /// [`Mbuf::ticks`](crate::mem::Mbuf::ticks).
    Ticks,
    /// Ticks are converted to wall clock time.
    Wall(ClockInfo),
    /// Timestamps are wall clock time already.
    RealTime,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// From a ConnectX-5 at 156.25 MHz, an hour after it came up.
    const RELATION: ClockInfo = ClockInfo {
        ns: 1_700_000_000_000_000_000,
        ticks: 156_250_000 * 3600,
        fraction: 77,
        mult: 13_421_772,
        shift: 21,
        mask: (1 << 41) - 1,
    };

    /// The arithmetic of `mlx5dv_ts_to_ns`.
    fn reference(relation: &ClockInfo, ticks: u64) -> u64 {
        let delta = ticks.wrapping_sub(relation.ticks) & relation.mask;
        if delta > relation.mask / 2 {
            let delta = relation.ticks.wrapping_sub(ticks) & relation.mask;
            return relation.ns - ((delta * u64::from(relation.mult) - relation.fraction) >> relation.shift);
        }
        relation.ns + ((delta * u64::from(relation.mult) + relation.fraction) >> relation.shift)
    }

    fn wall(relation: ClockInfo, ticks: u64) -> u64 {
        TickConversion::through(&relation).at(ticks)
    }

    #[test]
    fn second_after_the_relation_is_a_second_later() {
        let second = wall(RELATION, RELATION.ticks + 156_250_000) - RELATION.ns;
        assert!((999_999_900..1_000_000_000).contains(&second), "the multiplier is cut to whole units: {second}");
        assert_eq!(wall(RELATION, RELATION.ticks), RELATION.ns);
    }

    #[test]
    fn frame_before_the_relation_is_earlier() {
        assert_eq!(wall(RELATION, RELATION.ticks - 1_000), RELATION.ns - 6_400);
        assert_eq!(wall(RELATION, RELATION.ticks + 1_000), RELATION.ns + 6_399);
    }

    #[test]
    fn clock_that_wrapped_around_goes_on() {
        let relation = ClockInfo { ticks: RELATION.mask - 499, ..RELATION };
        assert_eq!(wall(relation, 500), relation.ns + 6_399);
        let relation = ClockInfo { ticks: 499, ..RELATION };
        assert_eq!(wall(relation, relation.mask - 500), relation.ns - 6_400);
    }

    #[test]
    fn bits_above_the_clocks_are_nothing() {
        assert_eq!(wall(RELATION, RELATION.ticks | 7 << 50), RELATION.ns);
    }

    #[test]
    fn relation_near_the_epoch_works() {
        assert_eq!(wall(ClockInfo { ns: 0, ..RELATION }, RELATION.ticks + 1_000), 6_399);
    }

    #[test]
    fn ticks_are_told_as_they_are() {
        for ticks in [0, 1, u64::MAX] {
            assert_eq!(TickConversion::TICKS.at(ticks), ticks);
        }
    }

    #[test]
    fn real_time_is_seconds_and_nanoseconds() {
        assert_eq!(real_time(1_700_000_000 << 32 | 123_456_789), 1_700_000_000_123_456_789);
    }

    proptest! {
        #[test]
        fn no_relation_and_no_timestamp_panics(
            ns: u64, ticks: u64, fraction: u64, mult: u32, shift: u32, mask: u64, timestamp: u64
        ) {
            wall(ClockInfo { ns, ticks, fraction, mult, shift, mask }, timestamp);
            real_time(timestamp);
        }

        /// After the relation to the nanosecond; before it the reference rounds up.
        #[test]
        fn line_is_what_the_library_computes(from in -10_000_000_000i64..10_000_000_000, fraction in 0u64..1 << 21) {
            let relation = ClockInfo { fraction, ..RELATION };
            let ticks = relation.ticks.wrapping_add_signed(from);
            let early = u64::from(from < 0);
            prop_assert!((wall(relation, ticks)..=wall(relation, ticks) + early).contains(&reference(&relation, ticks)));
        }

        #[test]
        fn later_ticks_are_never_earlier(from in -1_000_000i64..1_000_000, by in 0u64..1_000_000) {
            let at = RELATION.ticks.wrapping_add_signed(from);
            prop_assert!(wall(RELATION, at) <= wall(RELATION, at + by));
        }
    }
}
