//! `wirepath stats`: the counters of running processes, as a table or as JSON, once or repeatedly.
//! It also shows the counters of the kernel and the driver for each interface that a process polls,
//! because they count the frames that never reached us.

mod json;
mod nic;
mod table;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use wirepath::counters::{Listing, Snapshot, default_directory, printable};

pub(crate) use table::{grouped, uptime};

/// Interval between the two snapshots of a single report: long enough for a rate, short enough for
/// a user.
const RATE_SPAN: Duration = Duration::from_millis(250);
/// Moves the cursor to the top left and clears the screen below it.
pub(crate) const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";

/// Shows the counters of running processes, with rates.
#[derive(Args)]
pub(crate) struct StatsOptions {
    /// Only the process with this id
    #[arg(long)]
    pid: Option<u32>,
    /// Only processes of this application
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// One JSON object with all values; with --watch one a line
    #[arg(long)]
    json: bool,
    /// Repeat every SECONDS until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    watch: Option<Duration>,
    /// Show zeros too (JSON always does)
    #[arg(long)]
    all: bool,
    /// Remove the files of processes that have died, and show nothing
    #[arg(long, conflicts_with_all = ["pid", "app", "json", "watch", "all"])]
    clean: bool,
    /// The directory of the counter files, if neither WIREPATH_SHM nor /dev/shm/wirepath
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &StatsOptions) -> Result<(), Box<dyn Error>> {
    match (options.clean, options.watch) {
        (true, _) => options.clean(),
        (false, None) => options.report_once(),
        (false, Some(every)) => options.watch(every),
    }
}

/// One process now, and its earlier snapshot.
struct Process {
    now: Snapshot,
    before: Snapshot,
}

impl StatsOptions {
    fn report_once(&self) -> Result<(), Box<dyn Error>> {
        let before = self.select(Warn::Print)?;
        sleep(RATE_SPAN);
        let now = self.select(Warn::Skip)?;
        self.report(&pair(now, &before), "")
    }

    fn watch(&self, every: Duration) -> Result<(), Box<dyn Error>> {
        let clear = if io::stdout().is_terminal() && !self.json { CLEAR_SCREEN } else { "" };
        let mut before = self.select(Warn::Print)?;
        sleep(RATE_SPAN.min(every));
        loop {
            let now = self.select(Warn::Skip)?;
            let processes = pair(now, &before);
            self.report(&processes, clear)?;
            before = processes.into_iter().map(|process| process.now).collect();
            sleep(every);
        }
    }

    fn report(&self, processes: &[Process], clear: &str) -> Result<(), Box<dyn Error>> {
        let text = if self.json { json::render(processes) } else { table::render(processes, self.all) };
        let mut out = io::stdout().lock();
        write!(out, "{clear}{text}")?;
        Ok(out.flush()?)
    }

    fn clean(&self) -> Result<(), Box<dyn Error>> {
        let removed = Snapshot::clean(&self.directory())?;
        let mut out = io::stdout().lock();
        for path in &removed {
            writeln!(out, "removed {}", printable(path.display()))?;
        }
        if removed.is_empty() {
            writeln!(out, "no files of dead processes in {}", printable(self.directory().display()))?;
        }
        Ok(())
    }

    /// The requested running processes: at least one.
    fn select(&self, warn: Warn) -> Result<Vec<Snapshot>, Box<dyn Error>> {
        let listing = Snapshot::list(&self.directory())?;
        if warn == Warn::Print {
            warn_of(&listing);
        }
        let running = listing.running.iter().map(|process| format!("{} (pid {})", process.app, process.pid));
        let running = running.collect::<Vec<_>>().join(", ");
        let mut selected: Vec<_> = listing.running.into_iter().filter(|process| self.selects(process)).collect();
        if !selected.is_empty() {
            selected.iter_mut().for_each(nic::add);
            return Ok(selected);
        }
        if running.is_empty() {
            let directory = self.directory();
            return Err(format!(
                "no process counts in {}: start one, or name another directory with --dir or WIREPATH_SHM",
                printable(directory.display())
            )
            .into());
        }
        Err(format!("no such process counts; these do: {running}").into())
    }

    fn selects(&self, process: &Snapshot) -> bool {
        self.pid.is_none_or(|pid| pid == process.pid) && self.app.as_ref().is_none_or(|app| *app == process.app)
    }

    fn directory(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(default_directory)
    }
}

/// Whether unusable files are mentioned: once, not with every report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Warn {
    Print,
    Skip,
}

fn warn_of(listing: &Listing) {
    for error in &listing.unreadable {
        eprintln!("wirepath: {error}");
    }
    if !listing.stale.is_empty() {
        let count = listing.stale.len();
        eprintln!("wirepath: files of dead processes: {count}; `wirepath stats --clean` removes them");
    }
}

/// Each process with its earlier snapshot. A new process is paired with itself, so it has no rate
/// yet.
fn pair(now: Vec<Snapshot>, before: &[Snapshot]) -> Vec<Process> {
    let pair = |now: Snapshot| {
        let same = |other: &&Snapshot| {
            (other.pid, other.user, other.started) == (now.pid, now.user, now.started) && other.app == now.app
        };
        let before = before.iter().find(same).unwrap_or(&now).clone();
        Process { now, before }
    };
    now.into_iter().map(pair).collect()
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    // Less than a hundredth is a busy loop, more than a day most likely a mistake.
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err("give 0.01 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
