//! Generates docs/figures.md and its plots from docs/figures/history.jsonl, without measuring
//! anything.

use std::process::ExitCode;

use wirepath_benches::figures;

fn main() -> ExitCode {
    match figures::regenerate(&figures::docs()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("figures: {why}");
            ExitCode::FAILURE
        }
    }
}
