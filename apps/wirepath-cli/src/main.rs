//! `wirepath`: the operator's tool. Each subcommand is a module with its options and a `run`.

mod audit;
mod broker;
mod capabilities;
mod capture;
mod dcb;
mod devices;
mod doctor;
mod ethtool;
mod guard;
mod interface;
mod library;
#[allow(unsafe_code)]
mod namespace;
mod obstacle;
mod ping;
mod program;
mod rdma;
mod root;
mod run;
mod sockets;
mod stats;
#[allow(unsafe_code)]
mod sys;
mod user;

use std::error::Error;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use wirepath::counters::printable;

/// Inspects the machine and running wirepath processes.
#[derive(Parser)]
#[command(name = "wirepath", version = env!("VERSION_AND_COMMIT"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Audit(audit::AuditOptions),
    Broker(broker::BrokerOptions),
    Capture(capture::CaptureOptions),
    Devices(devices::DevicesOptions),
    Doctor(doctor::DoctorOptions),
    Guard(guard::GuardOptions),
    Ping(ping::PingOptions),
    Rdma(rdma::RdmaOptions),
    Run(run::RunOptions),
    Sockets(sockets::SocketsOptions),
    Stats(stats::StatsOptions),
}

/// Exit code 0 when done, 1 for a failure in one sentence on standard error, 2 (by clap) for usage.
fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Audit(options) => audit::run(&options),
        Command::Broker(options) => broker::run(&options),
        Command::Capture(options) => capture::run(&options),
        Command::Devices(options) => devices::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Guard(options) => guard::run(&options),
        Command::Ping(options) => ping::run(&options),
        Command::Rdma(options) => rdma::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Sockets(options) => sockets::run(&options),
        Command::Stats(options) => stats::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // `wirepath stats | head` closes the pipe.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("wirepath: {}", printable(failure));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
