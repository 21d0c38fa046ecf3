//! Keyed hashes of the tables in `proto`: what a stranger sends must not choose where it lands.
//!
//! Two strengths. [`HashSeed::fold`] is one 64x64 multiplication for tables whose keys we insert ourselves (flows,
//! groups): a peer can look up what it likes but never adds an entry. [`HashSeed::sip`] is SipHash-2-4 for tables
//! whose keys come from the network (fragments) and for ephemeral ports, where RFC 6056 3.3.3 asks for a hash that
//! an observer cannot invert.

/// A secret drawn once at start by whoever may do I/O. The simulator and tests give a constant, which makes every
/// table of a run lay out the same way.
#[derive(Clone, Copy)]
pub struct HashSeed {
    k0: u64,
    k1: u64,
    add: u64,
    multiply: u64,
}

impl HashSeed {
    /// A seed from 128 bits of randomness.
    pub const fn new(k0: u64, k1: u64) -> Self {
        // The folded multiplication wants dense words even where a test gives 0 and 1.
        Self { k0, k1, add: split_mix(k0), multiply: split_mix(k1 ^ 0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// Folded multiplication of one word: about 1.5 ns. Each output bit depends on all of the input, so a mask of the
    /// low ones will do.
    #[inline]
    pub(crate) const fn fold(&self, word: u64) -> u64 {
        fold(word ^ self.add, self.multiply)
    }

    /// Folded multiplication of two words.
    #[inline]
    pub(crate) const fn fold_pair(&self, first: u64, second: u64) -> u64 {
        fold(fold(first ^ self.add, self.multiply) ^ second, self.multiply)
    }

    /// SipHash-2-4 of `words` as little-endian bytes: about 10 ns for two words.
    pub(crate) fn sip(&self, words: &[u64]) -> u64 {
        let mut state = SipState::new(self.k0, self.k1);
        for word in words {
            state.absorb(*word);
        }
        // The last block holds the length in bytes modulo 256 in its top byte and no rest: we only hash whole words.
        state.absorb((words.len() as u64 * 8) << 56);
        state.finish()
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

/// Aumasson, Bernstein: "SipHash: a fast short-input PRF" (2012), section 2.
struct SipState {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl SipState {
    fn new(k0: u64, k1: u64) -> Self {
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    fn finish(mut self) -> u64 {
        self.v2 ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key 00 01 .. 0f of the reference vectors.
    fn reference_seed() -> HashSeed {
        HashSeed::new(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908)
    }

    #[test]
    fn sip_agrees_with_the_reference_vectors() {
        // vectors_sip64 of the reference implementation for inputs of 0, 8 and 16 bytes 00 01 02 ..
        assert_eq!(reference_seed().sip(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(reference_seed().sip(&[0x0706_0504_0302_0100]), 0x93f5_f579_9a93_2462);
        assert_eq!(reference_seed().sip(&[0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]), 0x3f2a_cc7f_57c2_9bdb);
    }

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
        assert_eq!(format!("{:?}", reference_seed()), "HashSeed(secret)");
    }
}
