//! What a run says of itself: date, commit, machine.

use std::process::Command;
use std::{env, fs};

use super::{Machine, Run};
use crate::is_quick;

/// Whether this run shall be in the history: `RECORD=1`, as `make bench` says. `QUICK=1` takes too
/// few samples for that.
pub fn is_wanted() -> bool {
    env::var_os("RECORD").is_some_and(|value| value != "0") && !is_quick()
}

/// A run that begins now and has not measured anything. The error is a sentence, and comes before
/// an hour of measuring.
pub fn begin() -> Result<Run, String> {
    let date = says("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])?;
    Ok(Run { date, commit: commit()?, machine: machine(), figures: Vec::new() })
}

/// The processor's name, the number of cores, and the kernel.
pub fn machine() -> Machine {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    // Where the architecture's kernel gives no name, the figures are of an unknown one.
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
    let cpu = model.map_or("an unknown CPU", |model| model.trim_start_matches([' ', '\t', ':']).trim_end());
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    Machine { cpu: cpu.to_owned(), cores, kernel }
}

/// What was measured. What a run itself writes, history, page and plots, is no change of it.
fn commit() -> Result<String, String> {
    let commit = says("git", &["rev-parse", "--short=7", "HEAD"])?;
    let changes = ["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)docs"];
    let mark = if says("git", &changes)?.is_empty() { "" } else { "+" };
    Ok(format!("{commit}{mark}"))
}

/// What a program prints, in the folder of the benches.
fn says(program: &str, arguments: &[&str]) -> Result<String, String> {
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
