//! `make soak`: 100 million frames (SOAK_FRAMES) through a veth pair, AF_XDP on both ends, and a
//! balance that is exact to the frame. The exit code is 1 if the sums do not match, and 2 if the
//! program cannot run.

use std::process::ExitCode;
use std::time::Duration;

use wirepath::device::af_xdp::Mode;
use wirepath_tests::netns::Namespace;
use wirepath_tests::soak::{Soak, run};

fn main() -> ExitCode {
    let asked = std::env::var("SOAK_FRAMES").unwrap_or_else(|_| "100_000_000".into());
    let Ok(frames) = asked.replace(['_', ','], "").parse() else {
        eprintln!("soak: SOAK_FRAMES is {asked}: use a number, such as 1_000_000");
        return ExitCode::from(2);
    };
    if let Err(why) = Namespace::new() {
        eprintln!("soak: no network namespace can be made ({why}): run it as root");
        return ExitCode::from(2);
    }
    let soak = Soak { frames, mode: Mode::Native, progress_every: Duration::from_secs(5) };
    match run(&soak, &mut |line| println!("soak: {line}")) {
        Ok(balance) => {
            println!("soak: {balance}");
            if balance.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("soak: {why}");
            ExitCode::from(2)
        }
    }
}
