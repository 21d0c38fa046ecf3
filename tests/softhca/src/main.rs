//! `softhca`: starts any command where a ConnectX seems to be.
//!
//! Exit codes: that of the command (128 plus the signal's number where a signal ended it); 125
//! where we could not start it, 126 and 127 as shells use them; 2 (by clap) for usage.

mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A ConnectX made of software, under unmodified rdma-core.
#[derive(Parser)]
#[command(version = env!("VERSION_AND_COMMIT"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::RunOptions>),
}

fn main() -> ExitCode {
    let Command::Run(options) = Cli::parse().command;
    match run::run(&options) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("softhca: {}", failure.sentence);
            ExitCode::from(failure.exit_code)
        }
    }
}
