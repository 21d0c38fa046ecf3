//! The one source of randomness: the same seed gives the same draws on every machine.
//!
//! Only integer operations and the basic float operations that IEEE 754 rounds exactly are used.
//! `ln` and `exp` differ in the last bit between C libraries, and then the same seed would not give
//! the same capture.

/// xoshiro256++ (Blackman and Vigna, 2019), seeded through splitmix64 as its authors advise.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream number `stream` of `seed`. Streams are independent, so that more loss on one line
    /// does not change the orders of the day.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut x = seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// 64 uniform bits.
    pub(crate) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let drawn = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        drawn
    }

    /// Uniform in `0..n`; 0 for an `n` of 0. The bias of one multiplication is below n / 2^64.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// How many times in a row a chance of 1 in 2 came true, at most 63.
    pub(crate) fn geometric(&mut self) -> u32 {
        (self.bits() | 1 << 63).trailing_zeros()
    }

    /// Exponential with mean 1: the gap of a Poisson process. Von Neumann's method: a descending
    /// run of uniform draws has odd length with probability exp(-first draw); a run of even length
    /// adds 1 and starts again.
    pub(crate) fn exponential(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            let first = self.unit();
            let mut last = first;
            let mut odd = true;
            loop {
                let next = self.unit();
                if next >= last {
                    break;
                }
                last = next;
                odd = !odd;
            }
            if odd {
                return whole + first;
            }
            whole += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draws = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(draws(1, 0), draws(1, 0));
        assert_ne!(draws(1, 0), draws(1, 1));
        assert_ne!(draws(1, 0), draws(2, 0));
    }

    #[test]
    fn below_zero_is_zero_and_below_n_stays_below() {
        let mut random = Random::new(7, 0);
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }

    #[test]
    fn chance_of_zero_never_comes_true_and_of_one_always_does() {
        let mut random = Random::new(7, 0);
        assert!((0..1000).all(|_| !random.chance(0.0) && random.chance(1.0)));
    }

    #[test]
    fn exponential_has_mean_and_variance_one() {
        let mut random = Random::new(42, 0);
        let draws: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
    }
}
