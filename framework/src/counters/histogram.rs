//! Latencies as counts in log-linear buckets: written with plain stores, quantiles worked out by the reader.
//!
//! Each power of two has four buckets, so a bucket is at most a quarter of its value wide. 64-bit values need 252 of
//! the 256 words; two of the rest keep the sum and the maximum exactly.

use core::array;
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::counter::bump;
use super::memory::Held;

/// Words of one histogram: 2 KiB.
pub(super) const WORDS: usize = 256;
/// Values 0 to 3 have a bucket each, then 62 powers of two have four.
const BUCKETS: usize = 4 + 62 * 4;
const SUM: usize = 252;
const MAX: usize = 253;

/// A distribution that one worker writes: an 8-byte handle, like [`Counter`](super::Counter).
pub struct Histogram(Held<[AtomicU64; WORDS]>);

impl Histogram {
    pub(super) fn new(words: Held<[AtomicU64; WORDS]>) -> Self {
        Self(words)
    }

    /// Counts one `value`. About two nanoseconds: three words in cache, no division.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let words = &*self.0;
        bump(&words[bucket(value)], 1);
        bump(&words[SUM], value);
        if value > words[MAX].load(Relaxed) {
            words[MAX].store(value, Relaxed);
        }
    }

    /// What has been recorded so far.
    pub fn distribution(&self) -> Distribution {
        Distribution::new(array::from_fn(|idx| self.0[idx].load(Relaxed)))
    }
}

/// A histogram as it was read. Quantiles err upwards, by a quarter of the value at most.
#[derive(Clone, PartialEq, Eq)]
pub struct Distribution {
    buckets: [u64; BUCKETS],
    sum: u64,
    max: u64,
}

impl Distribution {
    pub(super) fn new(words: [u64; WORDS]) -> Self {
        Self { buckets: array::from_fn(|idx| words[idx]), sum: words[SUM], max: words[MAX] }
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The highest value, exactly; zero where there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The arithmetic mean, exactly; zero where there is none.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// The value that `quantile` (0 to 1) of all values do not exceed: the end of its bucket, the maximum at most.
    /// `None` where nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count);
        let mut seen = 0u64;
        for (idx, in_bucket) in self.buckets.iter().enumerate() {
            seen = seen.saturating_add(*in_bucket);
            if seen >= rank {
                return Some(bucket_end(idx).min(self.max));
            }
        }
        Some(self.max)
    }

    /// What was recorded after `earlier` was read. The maximum stays that of the whole time.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            buckets: array::from_fn(|idx| self.buckets[idx].saturating_sub(earlier.buckets[idx])),
            sum: self.sum.saturating_sub(earlier.sum),
            max: self.max,
        }
    }
}

/// The bucket of `value`: the position of its highest bit and the two bits after it.
#[inline(always)]
fn bucket(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let top = value.ilog2() as usize;
    (top - 1) * 4 + (value >> (top - 2)) as usize % 4
}

/// The highest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let top = bucket / 4 + 1;
    let start = (4 + bucket as u64 % 4) << (top - 2);
    start + ((1 << (top - 2)) - 1)
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.distribution().fmt(f)
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantile = |q| self.quantile(q).unwrap_or(0);
        write!(f, "{} values, p50 {} p99 {} max {}", self.count(), quantile(0.5), quantile(0.99), self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(values: impl IntoIterator<Item = u64>) -> Distribution {
        let mut histogram = Histogram::new(Held::heap(WORDS).array(0));
        for value in values {
            histogram.record(value);
        }
        histogram.distribution()
    }

    #[test]
    fn empty_histogram_has_no_quantile() {
        let empty = recorded([]);
        assert_eq!((empty.count(), empty.quantile(0.5), empty.mean()), (0, None, 0.0));
    }

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        for idx in 0..BUCKETS - 1 {
            assert_eq!(bucket(bucket_end(idx)), idx);
            assert_eq!(bucket(bucket_end(idx) + 1), idx + 1);
        }
        assert_eq!(bucket_end(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn quantile_errs_upwards_by_a_quarter_at_most() {
        let spread = recorded(1..=1000);
        for (quantile, exact) in [(0.5, 500), (0.99, 990), (0.001, 1)] {
            let read = spread.quantile(quantile).unwrap();
            assert!(read >= exact && read <= exact + exact / 4, "{quantile}: {read}");
        }
        assert_eq!(spread.quantile(1.0), Some(1000));
        assert_eq!(spread.mean(), 500.5);
    }

    #[test]
    fn extreme_values_have_a_bucket() {
        let extremes = recorded([0, u64::MAX]);
        assert_eq!((extremes.count(), extremes.max()), (2, u64::MAX));
        assert_eq!((extremes.quantile(0.5), extremes.quantile(1.0)), (Some(0), Some(u64::MAX)));
    }

    #[test]
    fn difference_holds_what_came_after() {
        let (early, late) = (recorded([1, 1]), recorded([1, 1, 1, 100]));
        assert_eq!(late.since(&early).count(), 2);
    }
}
