//! A token bucket in integers: how often something may happen, and how many times in a row.
//!
//! Kept as one instant, the generic cell rate algorithm (ITU-T I.371): when the bucket would be full again. Nothing
//! is refilled by a timer, and nothing drifts.

use crate::time::Instant;

/// Permits `per_second` events a second on average and `burst` at once. Full at the beginning.
///
/// ICMP errors need one (RFC 1812 4.3.2.8): without it a flood of bad packets makes us a second flood.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Nanoseconds that one token takes to come back.
    interval_ns: u64,
    /// Nanoseconds that an empty bucket takes to hold all but one token.
    tolerance_ns: u64,
    full_at: Instant,
}

impl TokenBucket {
    /// A full bucket. Intervals are whole nanoseconds, rounded down: 3 a second become 3.000000003, and more than a
    /// billion is no limit.
    pub const fn new(per_second: u32, burst: u32) -> Self {
        assert!(per_second > 0 && burst > 0, "a bucket that never gives is a closed door: leave the event out");
        let interval_ns = 1_000_000_000 / per_second as u64;
        Self { interval_ns, tolerance_ns: interval_ns * (burst as u64 - 1), full_at: Instant::ZERO }
    }

    /// Whether there is no token now. Takes none.
    #[inline]
    pub fn is_empty(&self, now: Instant) -> bool {
        now < self.empty_until()
    }

    /// Until when there is no token, if none is taken. In the past where there is one.
    #[inline]
    pub fn empty_until(&self) -> Instant {
        Instant::from_nanos(self.full_at.as_nanos().saturating_sub(self.tolerance_ns))
    }

    /// Takes a token; false where there is none, and then nothing changes. About 1 ns.
    #[inline]
    pub fn take(&mut self, now: Instant) -> bool {
        if self.is_empty(now) {
            return false;
        }
        let begin = self.full_at.max(now).as_nanos();
        self.full_at = Instant::from_nanos(begin.saturating_add(self.interval_ns));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    /// How many of `attempts` at `now` succeed.
    fn taken(bucket: &mut TokenBucket, now: Instant, attempts: usize) -> usize {
        (0..attempts).filter(|_| bucket.take(now)).count()
    }

    #[test]
    fn full_bucket_gives_its_burst_and_no_more() {
        let mut bucket = TokenBucket::new(1000, 10);
        assert!(!bucket.is_empty(Instant::ZERO));
        assert_eq!(taken(&mut bucket, Instant::ZERO, 100), 10);
        assert!(bucket.is_empty(Instant::ZERO) && !bucket.is_empty(Instant::from_nanos(1_000_000)));
        assert_eq!(taken(&mut bucket, Instant::ZERO + Duration::from_nanos(999_999), 100), 0);
    }

    #[test]
    fn tokens_come_back_one_an_interval_and_never_more_than_the_burst() {
        let mut bucket = TokenBucket::new(1000, 10);
        let mut now = Instant::from_nanos(77);
        assert_eq!(taken(&mut bucket, now, 100), 10);
        now += Duration::from_millis(3);
        assert_eq!(taken(&mut bucket, now, 100), 3);
        now += Duration::from_secs(3600);
        assert_eq!(taken(&mut bucket, now, 100), 10);
    }

    #[test]
    fn asking_in_vain_costs_no_token() {
        let mut bucket = TokenBucket::new(1, 1);
        assert_eq!(taken(&mut bucket, Instant::ZERO, 1_000_000), 1);
        assert!(bucket.take(Instant::from_nanos(1_000_000_000)));
    }

    #[test]
    fn long_run_keeps_the_rate() {
        let mut bucket = TokenBucket::new(250, 5);
        let count: usize = (0..10_000).map(|ms| taken(&mut bucket, Instant::from_nanos(ms * 1_000_000), 1)).sum();
        assert_eq!(count, 2500 + 4);
    }

    #[test]
    fn end_of_time_does_not_overflow() {
        let mut bucket = TokenBucket::new(1, u32::MAX);
        assert!(bucket.take(Instant::MAX) && bucket.take(Instant::MAX));
    }
}
