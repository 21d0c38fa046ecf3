//! libFuzzer's driver for any of the targets in `wirepath_tests::fuzz`: `TARGET` in the environment
//! says which.
//!
//! ```text
//! make fuzz FUZZ_SECONDS=60                            every target
//! make fuzz TARGETS="pipeline tcp"                      these
//! make fuzz TARGETS=pipeline FUZZ_SANITIZER=none        without the address sanitizer, twice as fast
//! ```
//! Finds go to `fuzz/finds`, which git ignores. Add to the corpus only small ones that reach new
//! code: run `cargo fuzz run any` as `scripts/fuzz` does, with `-merge=1` and `corpus/TARGET`
//! first. An input that fails is written to `fuzz/artifacts`: put it into the corpus under a name
//! that describes the failure, then fix the code.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use wirepath_tests::fuzz::{self, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("TARGET").unwrap_or_default();
    let names = || fuzz::TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(" ");
    fuzz::target(&name).unwrap_or_else(|| panic!("TARGET is {name:?}: set it to one of {}", names()))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
