//! Writes the seeds of every fuzz target into its corpus:
//! `cargo run -p wirepath-tests --bin fuzz_seeds`. Existing files stay; a fuzzer's finds are beside
//! the seeds.

use std::fs;

use wirepath_tests::corpus;
use wirepath_tests::fuzz::TARGETS;

fn main() -> std::io::Result<()> {
    for target in TARGETS {
        let folder = corpus::folder(target);
        fs::create_dir_all(&folder)?;
        let seeds = (target.seeds)();
        for (idx, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{idx:02}")), seed)?;
        }
        println!("{:>4} seeds in {}", seeds.len(), folder.display());
    }
    Ok(())
}
