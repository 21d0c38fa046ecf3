//! The keyed hash of the tables in `proto`: one 64x64 multiplication.
//!
//! It is for tables whose keys we insert ourselves (flows, groups): a peer can look up what it likes but never adds
//! an entry.

/// A secret drawn once at start by whoever may do I/O. The simulator and tests give a constant, which makes every
/// table of a run lay out the same way.
#[derive(Clone, Copy)]
pub struct HashSeed {
    add: u64,
    multiply: u64,
}

impl HashSeed {
    /// A seed from 128 bits of randomness.
    pub const fn new(k0: u64, k1: u64) -> Self {
        // The folded multiplication wants dense words even where a test gives 0 and 1.
        Self { add: split_mix(k0), multiply: split_mix(k1 ^ 0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// Folded multiplication of one word: about 1.5 ns. Every output bit depends on every input bit, so a mask of the low ones will do.
    #[inline]
    pub(crate) const fn fold(&self, word: u64) -> u64 {
        fold(word ^ self.add, self.multiply)
    }

    /// Folded multiplication of two words.
    #[inline]
    pub(crate) const fn fold_pair(&self, first: u64, second: u64) -> u64 {
        fold(fold(first ^ self.add, self.multiply) ^ second, self.multiply)
    }
}

impl core::fmt::Debug for HashSeed {
    /// Prints no digits: a seed in a log is a seed that a peer may know.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashSeed(secret)")
    }
}

const fn fold(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    product as u64 ^ (product >> 64) as u64
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): spreads a poor seed over all bits.
const fn split_mix(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_words_spread_even_under_a_zero_seed() {
        let seed = HashSeed::new(0, 0);
        let mut hits = [0u32; 256];
        for word in 0..25_600u64 {
            hits[(seed.fold(word << 16) & 255) as usize] += 1;
        }
        // 100 expected a bucket; 6 standard deviations either way.
        assert!(hits.iter().all(|count| (40..160).contains(count)), "{hits:?}");
    }

    #[test]
    fn debug_does_not_tell_the_secret() {
        assert_eq!(format!("{:?}", HashSeed::new(1, 2)), "HashSeed(secret)");
    }
}
