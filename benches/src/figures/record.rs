//! A run's own data: date, commit, machine.

use std::process::Command;
use std::{env, fs};

use super::{Machine, Run};
use crate::is_quick;

/// Whether this run shall be in the history: `RECORD=1`, as `make bench` sets. `QUICK=1` takes too
/// few samples for that.
pub fn is_wanted() -> bool {
    env::var_os("RECORD").is_some_and(|value| value != "0") && !is_quick()
}

/// A run that begins now and has no figures yet. The error is a sentence, and comes before an hour
/// of measuring.
pub fn begin() -> Result<Run, String> {
    let date = output_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])?;
    Ok(Run { date, commit: commit()?, machine: machine(), figures: Vec::new() })
}

/// The processor's name, the number of cores, and the kernel.
pub fn machine() -> Machine {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    // Where the kernel of an architecture gives no name, the processor is unknown.
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
    let cpu = model.map_or("an unknown CPU", |model| model.trim_start_matches([' ', '\t', ':']).trim_end());
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    Machine { cpu: cpu.to_owned(), cores, kernel }
}

/// The measured commit. The files that a run itself writes, history, page and plots, do not count
/// as changes.
fn commit() -> Result<String, String> {
    let commit = output_of("git", &["rev-parse", "--short=7", "HEAD"])?;
    let changes = ["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)docs"];
    let mark = if output_of("git", &changes)?.is_empty() { "" } else { "+" };
    Ok(format!("{commit}{mark}"))
}

/// The output of a program that runs in the folder of the benches.
fn output_of(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().replace(char::is_control, " ");
            Err(format!("`{program} {}` ended with {}: {why}", arguments.join(" "), output.status))
        }
        Err(error) => Err(format!("{program} does not start ({error}): install it")),
    }
}
