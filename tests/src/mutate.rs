//! Inputs from a seed: the mutations that a fuzzer applies to its corpus, without a fuzzer. The
//! same seed gives the same inputs on every machine.

/// Longest input that mutations make.
const LEN_MAX: usize = 4_096;
/// Bytes and words at which parsers decide.
const INTERESTING: [u8; 12] = [0, 1, 2, 7, 8, 0x14, 0x45, 0x7f, 0x80, 0x81, 0xfe, 0xff];

/// SplitMix64 (Steele, Lea, Flood 2014): every seed is a good one.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers from `seed` on.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        finish(self.0)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.draw() as u8).collect()
    }
}

/// What SplitMix64 adds for each number.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The end of SplitMix64: a number of its sequence out of the sum of its steps.
pub const fn finish(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// An input near one of `corpus`: one to eight changes, now and then with a piece of another one.
pub fn mutate(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if corpus.is_empty() {
        let len = random.below(256);
        return random.bytes(len);
    }
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(8) {
        change(&mut input, corpus, random);
    }
    input.truncate(LEN_MAX);
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(8) {
        0 => input.truncate(at),
        1 => {
            let len = random.below(9);
            input.splice(at..at, random.bytes(len));
        }
        2 => {
            let end = (at + random.below(9)).min(input.len());
            input.drain(at..end);
        }
        3 => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        4 => {
            let end = (at + random.below(64)).min(input.len());
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        kind => {
            let Some(byte) = input.get_mut(at) else { return };
            *byte = match kind {
                5 => *byte ^ 1 << random.below(8),
                6 => INTERESTING[random.below(INTERESTING.len())],
                _ => byte.wrapping_add(random.below(17) as u8).wrapping_sub(8),
            };
        }
    }
}
