//! The source of the protocols' secrets: drawn once at start, because the floors below the worker
//! make no system calls.

use std::hash::{BuildHasher, RandomState};

use crate::proto::HashSeed;

/// A seed that a peer cannot guess, from the system's random numbers (the standard library derives
/// its hash keys from them). A reproducible run passes a constant to [`HashSeed::new`] instead.
pub fn random_seed() -> HashSeed {
    let draw = |salt: u64| RandomState::new().hash_one(salt);
    HashSeed::new(draw(0), draw(1))
}
