//! `wirepath`: the operator's tool. Each subcommand is a file with its options and a `run`.

mod stats;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Looks at running wirepath processes.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Stats(stats::Options),
}

/// Exit code 0 when done, 1 for a failure in one sentence on standard error, 2 (by clap) for usage.
fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Stats(options) => stats::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("wirepath: {failure}");
            ExitCode::FAILURE
        }
    }
}
