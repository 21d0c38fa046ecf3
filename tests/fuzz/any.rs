//! libFuzzer's driver for any of the targets in `wirepath_tests::fuzz`: `TARGET` in the environment says which.
//!
//! ```text
//! cargo install cargo-fuzz
//! make fuzz FUZZ_SECONDS=60                                              every target, one after the other
//! cd tests && TARGET=pipeline RUSTC_BOOTSTRAP=1 cargo fuzz run any -s none fuzz/finds/pipeline corpus/pipeline
//! ```
//! `RUSTC_BOOTSTRAP` lets a stable compiler do it; with a nightly one `-s none` may go, and the address sanitizer comes.
//! Finds go to the first folder, which git does not see. The corpus takes those that reach something new and are small:
//! add `-- -merge=1` with `corpus/pipeline` first. An input that fails is written to `fuzz/artifacts`: put it into the
//! corpus under a name that says what failed, then mend the code.
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
