//! Random scripts from seeds: `SEED=n` plays one again, `SCRIPTS=n` plays so many, from seed
//! `FIRST=n` on.

use std::env;

/// Numbers from a seed (xorshift).
pub(crate) struct Random(u64);

impl Random {
    /// Those of one script.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Plays a script for each seed, `count` of them unless the environment sets the number. An error
/// shows where the two sides differ; the shortest script that fails is reported.
pub(crate) fn play_all(count: u64, play: impl FnMut(u64) -> Result<(), String>) {
    let number =
        |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("SEED, FIRST and SCRIPTS are numbers"));
    let first = number("FIRST").unwrap_or(0);
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number("SCRIPTS").unwrap_or(count),
    };
    let count = seeds.end - seeds.start;
    let report = |parted: &String| eprintln!("{parted}");
    let parted: Vec<String> = seeds.map(play).filter_map(Result::err).inspect(report).collect();
    let shortest = parted.iter().min_by_key(|parted| parted.len());
    assert!(parted.is_empty(), "{} of {count} scripts part; the shortest:\n{}", parted.len(), shortest.unwrap());
}
