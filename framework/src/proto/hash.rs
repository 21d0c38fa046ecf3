//! Keyed hashes of the tables in `proto`: a remote host must not be able to choose the bucket of
//! its packets.
//!
//! Three strengths. [`HashSeed::fold`] is one 64x64 multiplication for tables whose keys we insert
//! ourselves (sockets, groups): a peer causes lookups but never adds an entry.
//! [`HashSeed::sip_flow`] is SipHash-1-3 for the table of TCP's flows, whose keys the peers choose
//! and which each segment looks up. [`HashSeed::sip`] is SipHash-2-4 for other tables whose keys
//! come from the network (fragments, neighbors), and for numbers that an observer sees and must not
//! invert: sequence numbers, cookies, and ports (RFC 6056 3.3.3 asks for it).
//!
//! No hash reveals the key of another: SipHash derives the key of the multiplication, so timing the
//! lookups of one table reveals nothing else, and code that needs several secrets
//! [derives](HashSeed::derive) them.

/// A secret drawn once at start by code that may do I/O. The simulator and tests pass a constant,
/// which gives every table of a run the same layout.
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
        let seed = Self { k0, k1, add: 0, multiply: 1 };
        // Full-width words even where a test passes 0 and 1, and the key cannot be recovered from
        // them.
        Self { add: seed.sip(&[FOLD]), multiply: seed.sip(&[FOLD, 1]) | 1, ..seed }
    }

    /// A seed for one purpose. An attacker who knows it, or all results of its use, learns nothing
    /// about this seed or the seed of another purpose. A purpose is a number that is unique within
    /// this seed.
    pub(crate) fn derive(&self, purpose: u64) -> Self {
        let word = |half| self.sip(&[DERIVE, purpose, half]);
        Self::new(word(0), word(1))
    }

    /// Folded multiplication of one word: about 1.5 ns. Each output bit depends on all of the
    /// input, so a mask of the low ones is enough.
    #[inline]
    pub(crate) const fn fold(&self, word: u64) -> u64 {
        fold(word ^ self.add, self.multiply)
    }

    /// Folded multiplication of two words.
    #[inline]
    pub(crate) const fn fold_pair(&self, first: u64, second: u64) -> u64 {
        fold(fold(first ^ self.add, self.multiply) ^ second, self.multiply)
    }

    /// SipHash-1-3 of both ends in 96 bits: some 80 instructions. The result is never visible,
    /// because it only chooses a slot in a table; so the number of rounds that Rust's own tables
    /// and Linux's `hsiphash` use is enough.
    #[inline]
    pub(crate) fn sip_flow(&self, addresses: u64, ports: u32) -> u64 {
        const LEN: u64 = 12;
        let mut state = SipState::new(self.k0, self.k1);
        for word in [addresses, LEN << 56 | ports as u64] {
            state.v3 ^= word;
            state.round();
            state.v0 ^= word;
        }
        state.v2 ^= 0xff;
        (0..3).for_each(|_| state.round());
        state.v0 ^ state.v1 ^ state.v2 ^ state.v3
    }

    /// SipHash-2-4 of `words` as little-endian bytes: about 10 ns for two words.
    pub(crate) const fn sip(&self, words: &[u64]) -> u64 {
        let mut state = SipState::new(self.k0, self.k1);
        let mut idx = 0;
        while idx < words.len() {
            state.absorb(words[idx]);
            idx += 1;
        }
        // The last block holds the length in bytes modulo 256 in its top byte, and no remaining
        // bytes: only whole words are hashed.
        state.absorb((words.len() as u64 * 8) << 56);
        state.finish()
    }
}

/// First word of the input that derives keys: no table's keys begin with it.
const FOLD: u64 = u64::MAX;
const DERIVE: u64 = u64::MAX - 1;

impl core::fmt::Debug for HashSeed {
    /// Prints no digits: a seed in a log may become known to a peer.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashSeed(secret)")
    }
}

const fn fold(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Aumasson, Bernstein: "SipHash: a fast short-input PRF" (2012), section 2.
struct SipState {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl SipState {
    const fn new(k0: u64, k1: u64) -> Self {
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    const fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    const fn finish(mut self) -> u64 {
        self.v2 ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline(always)]
    const fn round(&mut self) {
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
    fn hash_of_flows_agrees_with_the_reference_vectors() {
        // SipHash-1-3 of 12 bytes 00 01 02 ..
        let hash = reference_seed().sip_flow(0x0706_0504_0302_0100, 0x0b0a_0908);
        assert_eq!(hash, 0x78a3_84b1_57b4_d9a2);
    }

    #[test]
    fn derived_seeds_differ_by_purpose_and_from_their_own() {
        let hashes = [reference_seed(), reference_seed().derive(1), reference_seed().derive(2)];
        let hashes = hashes.map(|seed| [seed.sip(&[1]), seed.fold(1), seed.sip_flow(1, 1)]);
        let all: std::collections::HashSet<_> = hashes.into_iter().flatten().collect();
        assert_eq!(all.len(), 9);
    }

    #[test]
    fn neighboring_words_spread_even_under_a_zero_seed() {
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
