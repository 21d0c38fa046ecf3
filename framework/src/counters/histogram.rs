//! Latencies as counts in log-linear buckets, as in HdrHistogram: written with plain stores,
//! quantiles computed by the reader.
//!
//! Values below 128 have a bucket each. From there each power of two has [`STEPS`], so a bucket is
//! at most 1/64 of its value wide (1.6 %). The buckets in use occupy few cache lines: values of 300
//! to 800 ns are 104 words.

use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::counter::bump;
use super::memory::WordsHandle;

/// Bits of a value that are kept below its highest set bit.
const STEP_BITS: u32 = 6;
/// Buckets per power of two.
const STEPS: usize = 1 << STEP_BITS;
/// Values of at least 2^40 share the last bucket, whose end is the maximum: as nanoseconds 18
/// minutes, more than any latency. Each further power of two would take 512 bytes in every
/// histogram.
const VALUE_BITS: u32 = 40;
const BUCKETS: usize = ((VALUE_BITS - STEP_BITS + 1) as usize) * STEPS;
const SUM: usize = BUCKETS;
const MAX: usize = BUCKETS + 1;
/// Words of one histogram: 17.6 KiB, in whole pairs of cache lines.
pub(super) const WORDS: usize = BUCKETS + 16;

/// A distribution that one worker writes: an 8-byte handle, like [`Counter`](super::Counter).
pub struct Histogram(WordsHandle<[AtomicU64; WORDS]>);

impl Histogram {
    pub(super) fn new(words: WordsHandle<[AtomicU64; WORDS]>) -> Self {
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

    /// The distribution recorded so far.
    pub fn distribution(&self) -> Distribution {
        let words: Vec<u64> = self.0.iter().map(|word| word.load(Relaxed)).collect();
        Distribution::new(words.first_chunk().expect("as many words as were read"))
    }
}

/// A histogram snapshot. Quantiles err upwards, by at most 1/64 of the value (1.6 %).
#[derive(Clone, PartialEq, Eq)]
pub struct Distribution {
    buckets: Box<[u64]>,
    sum: u64,
    max: u64,
}

impl Distribution {
    pub(super) fn new(words: &[u64; WORDS]) -> Self {
        Self { buckets: words[..BUCKETS].into(), sum: words[SUM], max: words[MAX] }
    }

    /// Number of recorded values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The highest value, exact; zero if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The arithmetic mean, exact; zero if there is none.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// The value that a share `quantile` (0 to 1) of all values does not exceed: the end of its
    /// bucket, at most the maximum. `None` if nothing was recorded.
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

    /// The values recorded after `earlier`. The maximum remains that of the whole time.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Self {
            buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
            max: self.max,
        }
    }
}

/// The bucket of `value`: the position of its highest set bit and the six bits after it.
/// Branchless: a value below 128 is shifted by zero.
#[inline(always)]
fn bucket(value: u64) -> usize {
    let value = value.min((1 << VALUE_BITS) - 1);
    let shift = (value | STEPS as u64).ilog2() - STEP_BITS;
    shift as usize * STEPS + (value >> shift) as usize
}

/// The highest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let shift = (bucket / STEPS).saturating_sub(1);
    let step = (bucket - shift * STEPS) as u64;
    ((step + 1) << shift) - 1
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
        let mut histogram = Histogram::new(WordsHandle::heap(WORDS).array(0));
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
    fn quantile_errs_upwards_by_a_64th_at_most() {
        let spread = recorded(1..=1000);
        for (quantile, exact) in [(0.5, 500), (0.99, 990), (0.001, 1)] {
            let read = spread.quantile(quantile).unwrap();
            assert!(read >= exact && read <= exact + exact / 64, "{quantile}: {read}");
        }
        assert_eq!(spread.quantile(1.0), Some(1000));
        assert_eq!(spread.mean(), 500.5);
    }

    #[test]
    fn median_is_read_within_three_percent_up_to_minutes() {
        for bit in 0..VALUE_BITS - 1 {
            for value in [1 << bit, (1 << bit) + 1, (3 << bit) / 2, (2 << bit) - 1u64] {
                let read = recorded([value, value, 1 << 50]).quantile(0.5).unwrap();
                assert!(read >= value && (read - value) * 100 <= 3 * value, "{value} is read as {read}");
            }
        }
    }

    #[test]
    fn values_beyond_the_last_bucket_are_read_as_the_maximum() {
        let late = recorded([1 << 40, 1 << 50]);
        assert_eq!((late.quantile(0.5), late.max(), late.count()), (Some(1 << 50), 1 << 50, 2));
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
