//! The corpus: small inputs that together reach all code that a target can reach, in
//! `tests/corpus/<target>/`.
//!
//! `cargo run -p wirepath-tests --bin fuzz_seeds` writes the seeds; a fuzzer adds what it finds,
//! minimized (`cargo fuzz cmin`), and each input that has ever failed stays.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use crate::fuzz::Target;

/// The folder of a target.
pub fn folder(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The inputs of a target with the names of their files, in the order of the names.
pub fn read(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("a folder that was opened can be listed");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("the corpus can be read"))
        })
        .collect();
    files.sort();
    files
}

/// Runs a target on an input. If it fails, the sentence names the `origin` of the input, and the
/// input in hexadecimal.
pub fn check(target: &Target, input: &[u8], origin: &str) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| {
        let digits: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} failed on {origin}, {} bytes: {digits}", target.name, input.len())
    })
}
