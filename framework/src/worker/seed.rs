//! Where the machines' secrets come from: drawn once at start, as nothing below the worker may ask
//! the system.

use std::hash::{BuildHasher, RandomState};

use crate::proto::HashSeed;

/// A seed that a peer cannot guess, from the system's random numbers (the standard library's hash
/// keys are drawn from them). A run that must repeat itself gives a constant to [`HashSeed::new`]
/// instead.
pub fn random_seed() -> HashSeed {
    let draw = |salt: u64| RandomState::new().hash_one(salt);
    HashSeed::new(draw(0), draw(1))
}
