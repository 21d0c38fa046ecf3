//! `hugepage-setup`: shows the hugepages that a machine has, compares them with the target, and
//! reserves the missing ones.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong command line.

mod report;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use hugepages::{
    Bound, Machine, MapRequest, Mapping, ONE_GIB, Outcome, PageChoice, Persistence, ReserveError, Roots, Step, TWO_MIB,
    Target,
};

/// Hugepages: the present state, the wanted state, and the steps between. Never takes pages that
/// are in use.
#[derive(Parser)]
#[command(name = "hugepage-setup", version = env!("VERSION_AND_COMMIT"))]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// Read and write /sys, /proc and /etc below this directory (a copy of another machine's, or a
    /// test's)
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    root: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Print the present state, the wanted state and the steps of apply; change nothing
    Plan(Change),
    /// Reserve the missing pages
    Apply(Change),
    /// Exit with 0 if the machine has the requested pages and can map them, otherwise with 1
    Check(Amount),
}

#[derive(Args)]
struct Amount {
    /// The total number of pages, including those in use
    #[arg(long, value_name = "N", conflicts_with = "size")]
    pages: Option<u64>,
    /// The total in bytes, rounded up to whole pages: 512M, 4G
    #[arg(long, value_name = "SIZE", value_parser = hugepages::parse_size)]
    size: Option<u64>,
    /// 2M or 1G
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = parse_page_size)]
    page_size: u64,
    /// On this NUMA node; without it the kernel spreads the pages over all nodes
    #[arg(long, value_name = "N")]
    node: Option<u32>,
}

#[derive(Args)]
struct Change {
    #[command(flatten)]
    amount: Amount,
    /// Print the steps and the files; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep the pages after a reboot: by a file in /etc/sysctl.d, or print the parameters for the
    /// kernel command line (1 GiB pages, one node)
    #[arg(long)]
    persist: bool,
    /// Release the pages beyond the number, but only if none of them is in use
    #[arg(long)]
    shrink: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let roots = cli.root.as_deref().map_or_else(Roots::default, Roots::below);
    let result = match &cli.verb {
        Verb::Plan(change) => plan(&roots, change),
        Verb::Apply(change) => match change.target() {
            None => usage("apply needs --pages N or --size SIZE"),
            Some(_) if change.dry_run => plan(&roots, change),
            Some(target) => apply(&roots, change, &target),
        },
        Verb::Check(_) if cli.root.is_some() => usage("check maps a page of this machine, so it takes no --root"),
        Verb::Check(amount) if amount.count() == Some(0) => usage("check needs at least one page to map"),
        Verb::Check(amount) => check(&roots, amount),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // If even standard error is closed, only the exit code remains.
            let _ = writeln!(io::stderr(), "hugepage-setup: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the table and the planned step. Fails if applying would be refused.
fn plan(roots: &Roots, change: &Change) -> Result<(), String> {
    let machine = discover(roots)?;
    print(&report::machine(&machine))?;
    let Some(target) = change.target() else {
        print(&report::table(&machine, None))?;
        return Ok(());
    };
    let step = hugepages::decide(&machine, &target);
    print(&report::table(&machine, Some((&target, &step))))?;
    let step = step.map_err(|error| error.to_string())?;
    if change.persist {
        let persistence = Persistence::plan(roots, &machine, &target).map_err(|error| error.to_string())?;
        print(&report::persistence(&persistence, "would write"))?;
    }
    match step {
        Step::Nothing => print("Nothing to reserve.\n"),
        Step::Raise(_) | Step::Lower(_) => {
            print(&format!("Nothing was changed. To do it: {}\n", change.command(&target)))
        }
    }
}

/// Prints the table, performs the step, prints the outcome, and makes it persistent on request.
fn apply(roots: &Roots, change: &Change, target: &Target) -> Result<(), String> {
    let refused = |error| match error {
        ReserveError::NotRoot(_) => format!("{error}; run: sudo {}", change.command(target)),
        error => error.to_string(),
    };
    let machine = discover(roots)?;
    print(&report::table(&machine, Some((target, &hugepages::decide(&machine, target)))))?;
    let outcome = hugepages::reserve(roots, target).map_err(refused)?;
    print(&report::outcome(target, &outcome))?;
    if change.persist {
        let persistence = Persistence::plan(roots, &machine, target).map_err(|error| error.to_string())?;
        persistence.write().map_err(refused)?;
        print(&report::persistence(&persistence, "wrote"))?;
    }
    match outcome {
        Outcome::Partial { asked, granted, .. } => Err(format!("half done: {granted} of {asked} pages are reserved")),
        Outcome::Kept { asked, now, .. } => Err(format!("half done: {now} pages remain instead of {asked}")),
        Outcome::Unchanged { .. } | Outcome::Done { .. } => Ok(()),
    }
}

/// Counts, then maps one page and touches it: the count alone does not show a cgroup's limit or
/// that all pages are in use.
fn check(roots: &Roots, amount: &Amount) -> Result<(), String> {
    let machine = discover(roots)?;
    let target = amount.of(amount.count().unwrap_or(1), Bound::AtLeast);
    let pool = machine.pool(target.page_size, target.node).copied().unwrap_or_default();
    if pool.total < target.pages {
        // A missing page size or node is the better explanation.
        hugepages::decide(&machine, &target).map_err(|error| error.to_string())?;
        let (total, command) = (pool.total, target.command());
        return Err(format!("{target} asked for, {total} reserved; reserve them with: {command}"));
    }
    let page = if target.page_size == ONE_GIB { PageChoice::OneGiB } else { PageChoice::TwoMiB };
    let mut mapping = Mapping::map(&MapRequest { page, node: target.node, ..MapRequest::new(1) })
        .map_err(|error| error.to_string())?;
    mapping.as_mut_slice()[0] = 1;
    print(&report::checked(&target, &pool))?;
    Ok(())
}

impl Change {
    fn target(&self) -> Option<Target> {
        let bound = if self.shrink { Bound::Exactly } else { Bound::AtLeast };
        self.amount.count().map(|pages| self.amount.of(pages, bound))
    }

    /// The command line that performs it.
    fn command(&self, target: &Target) -> String {
        target.command() + if self.persist { " --persist" } else { "" }
    }
}

impl Amount {
    fn count(&self) -> Option<u64> {
        self.pages.or(self.size.map(|size| size.div_ceil(self.page_size)))
    }

    fn of(&self, pages: u64, bound: Bound) -> Target {
        Target { page_size: self.page_size, node: self.node, pages, bound }
    }
}

fn parse_page_size(text: &str) -> Result<u64, String> {
    match hugepages::parse_size(text) {
        Ok(size @ (TWO_MIB | ONE_GIB)) => Ok(size),
        Ok(_) | Err(_) => Err("a page size is 2M or 1G".to_owned()),
    }
}

fn usage(why: &str) -> ! {
    Cli::command().error(ErrorKind::MissingRequiredArgument, why).exit()
}

fn discover(roots: &Roots) -> Result<Machine, String> {
    Machine::discover(roots).map_err(|error| error.to_string())
}

/// A reader that has exited (`| head`) is no failure; a full disk is.
fn print(text: &str) -> Result<(), String> {
    // Names of mounts and control groups are untrusted, and a terminal interprets control
    // characters.
    let text = text.replace(|letter: char| letter.is_control() && letter != '\n', "?");
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}; give it a place with room"))
        }
        _ => Ok(()),
    }
}
