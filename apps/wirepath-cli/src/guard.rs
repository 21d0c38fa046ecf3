//! `wirepath guard`: waits while a process runs, and when the process dies, resets the TCP
//! connections that it leaves open.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use wirepath::counters::default_directory;
use wirepath::worker::guard::{Guardian, Target};

/// Waits for a process to exit or crash, and resets the TCP connections that it left open.
#[derive(Args)]
pub(crate) struct GuardOptions {
    /// The process, by its id or its application's name; may be omitted if only one process has
    /// connections to guard
    #[arg(value_name = "PID|NAME")]
    process: Option<String>,
    /// The directory of its shared files, if neither WIREPATH_SHM nor /dev/shm/wirepath
    #[arg(long, value_name = "DIRECTORY", alias = "run-dir")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand: until the process has ended and its peers know.
pub(crate) fn run(options: &GuardOptions) -> Result<(), Box<dyn Error>> {
    let directory = options.dir.clone().unwrap_or_else(default_directory);
    let guardian = Guardian::new(&directory, &target(options.process.as_deref()))?;
    let (pid, workers) = (guardian.pid(), guardian.rosters());
    eprintln!("wirepath: guarding process {pid}, workers with TCP so far: {workers}");
    guardian.watch(|report| println!("{report}"))?;
    Ok(())
}

fn target(process: Option<&str>) -> Target {
    match process {
        None => Target::Only,
        Some(process) => process.parse().map_or_else(|_| Target::App(process.to_owned()), Target::Pid),
    }
}
