/// SplitMix64 (Steele, Lea, Flood 2014): every seed is a good one.
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`, which is not zero.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// True in `per_mille` of 1000 cases.
    pub(super) const fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}
