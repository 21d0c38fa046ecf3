//! `wirepath sockets`: lists the sockets of programs under the preload library, as ss(8) lists
//! those of the kernel: the owner of each and the reason, its queues, its drops. It reads shared
//! memory, so the programs do not notice.

mod json;
mod table;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use sockets::listing::{Process, Processes};
use wirepath::counters::{default_directory, printable};

use crate::stats::{CLEAR_SCREEN, parse_seconds};

/// Shows the sockets of programs that `wirepath run` started: offloaded or the kernel's, and why.
#[derive(Args)]
pub(crate) struct SocketsOptions {
    /// Only the process with this id
    #[arg(long)]
    pid: Option<u32>,
    /// One JSON object; with --live one a line
    #[arg(long)]
    json: bool,
    /// Repeat every SECONDS until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    live: Option<Duration>,
    /// The directory of the files, if neither WIREPATH_SHM nor /dev/shm/wirepath
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &SocketsOptions) -> Result<(), Box<dyn Error>> {
    let processes = options.select()?;
    for error in &processes.unreadable {
        eprintln!("wirepath: {error}");
    }
    let Some(every) = options.live else { return options.report(&processes.running, "") };
    let clear = if io::stdout().is_terminal() && !options.json { CLEAR_SCREEN } else { "" };
    options.report(&processes.running, clear)?;
    loop {
        sleep(every);
        options.report(&options.select()?.running, clear)?;
    }
}

impl SocketsOptions {
    fn report(&self, processes: &[Process], clear: &str) -> Result<(), Box<dyn Error>> {
        let text = if self.json { json::render(processes) } else { table::render(processes) };
        let mut out = io::stdout().lock();
        write!(out, "{clear}{text}")?;
        Ok(out.flush()?)
    }

    /// The requested running processes: at least one.
    fn select(&self) -> Result<Processes, Box<dyn Error>> {
        let directory = self.dir.clone().unwrap_or_else(default_directory);
        let mut processes = Processes::list(&directory)?;
        let all: Vec<String> = processes.running.iter().map(|process| process.pid.to_string()).collect();
        processes.running.retain(|process| self.pid.is_none_or(|pid| pid == process.pid));
        if !processes.running.is_empty() {
            return Ok(processes);
        }
        if !all.is_empty() {
            return Err(format!("no such process has sockets of ours; these have: {}", all.join(", ")).into());
        }
        Err(format!(
            "no program lists its sockets in {}: start one with `wirepath run`, or name another directory with --dir or \
             WIREPATH_SHM",
            printable(directory.display())
        )
        .into())
    }
}
