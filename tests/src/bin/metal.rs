//! `make metal DEV=mlx5_0 PEER=mlx5_1`: the conformance suite and figures of the wire, on two ports
//! of ConnectX NICs that a cable connects. The exit code is 1 if a fact does not hold, and 2 if the
//! program cannot run. docs/hardware.md explains the use.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use wirepath_tests::metal::{Lab, run};

/// Tries the mlx5 device on two ports that a cable joins, and measures them.
#[derive(Parser)]
struct Cli {
    /// A port: verbs name (mlx5_0), PCI address (3b:00.0) or interface (eth1)
    #[arg(long)]
    device: String,
    /// The port at the other end of its cable
    #[arg(long)]
    peer: String,
    /// Seconds that each figure is measured
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A core for each end, both on the NIC's NUMA node: 2,3
    #[arg(long, value_parser = cores)]
    cores: Option<(usize, usize)>,
    /// Only the drive modes whose names begin with this
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    let Cli { device, peer, seconds, cores, only } = Cli::parse();
    let Ok(each) = Duration::try_from_secs_f64(seconds) else {
        eprintln!("metal: {seconds} seconds cannot be waited: use a number such as 2");
        return ExitCode::from(2);
    };
    match run(&Lab { device, peer, each, cores, only }, &mut std::io::stdout()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("metal: {why}");
            ExitCode::from(2)
        }
    }
}

fn cores(text: &str) -> Result<(usize, usize), String> {
    let parsed = text.split_once(',').and_then(|(near, far)| Some((near.parse().ok()?, far.parse().ok()?)));
    parsed.ok_or_else(|| "name two cores: 2,3".into())
}
