//! libFuzzer's driver for any of the targets in `wirepath_tests::fuzz`: `TARGET` in the environment says which.
//!
//! ```text
//! cargo install cargo-fuzz                                    # once; wants a nightly compiler, or RUSTC_BOOTSTRAP=1
//! cd tests && TARGET=pipeline cargo fuzz run any -s none corpus/pipeline -- -max_total_time=60
//! cd tests && TARGET=pipeline cargo fuzz cmin any -s none corpus/pipeline
//! ```
//! The first run writes its finds into the folder it is given; keep those that `cmin` leaves, small ones before all. An
//! input that fails is written to `fuzz/artifacts`: put it into the corpus, then mend the code.
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
