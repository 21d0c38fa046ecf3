//! `wirepath guard`: waits while a process runs, and when the process dies, resets the TCP
//! connections that it leaves open.

use std::env::current_exe;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use wirepath::counters::default_directory;
use wirepath::worker::guard::{Guardian, Target};

use crate::sys;

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
    /// Return once it guards the process. It goes on, and reports on standard error
    #[arg(long, requires = "process")]
    background: bool,
    /// It was started in the background
    #[arg(long, hide = true)]
    spawned: bool,
}

/// What a guardian in the background writes once it guards the process.
const READY: &str = "guarding";

/// Runs the subcommand: until the process has ended and its peers know.
pub(crate) fn run(options: &GuardOptions) -> Result<(), Box<dyn Error>> {
    let directory = options.dir.clone().unwrap_or_else(default_directory);
    if let (true, Some(process)) = (options.background, &options.process) {
        return start(process, &std::path::absolute(&directory)?);
    }
    if options.spawned {
        sys::ignore_requests_to_end();
    }
    let guardian = Guardian::new(&directory, &target(options.process.as_deref()))?;
    if options.spawned {
        // Whoever waits for this line reads no further one.
        writeln!(std::io::stdout(), "{READY}")?;
        guardian.watch(|report| eprintln!("wirepath: {report}"))?;
        return Ok(());
    }
    let (pid, workers) = (guardian.pid(), guardian.rosters());
    eprintln!("wirepath: guarding process {pid}, workers with TCP so far: {workers}");
    guardian.watch(|report| println!("{report}"))?;
    Ok(())
}

/// Starts a guardian that goes on when this process has ended: init adopts it then. It has none of
/// the caller's descriptors but standard error, nor his folder. Its end is that of the process, so
/// a pipe at standard error is closed a moment later than by the process itself.
fn start(process: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    sys::keep_descriptors_from_programs()?;
    let mut command = Command::new(current_exe()?);
    command.args(["guard", process, "--spawned", "--dir"]).arg(directory).current_dir("/").process_group(0);
    let mut guardian = command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(pipe) = guardian.stdout.take() {
        BufReader::new(pipe).read_line(&mut line)?;
    }
    if line.trim_end() == READY { Ok(()) } else { Err("no guardian was started, as the line before says".into()) }
}

/// Starts a guardian for this process and for the program that it becomes, as no child of it: a
/// program does not expect children that it did not make.
pub(crate) fn start_for_this_process() -> Result<(), String> {
    if std::process::id() == 1 {
        return Err("no guardian outlives the first process of a container: the kernel ends them together; start \
                    `wirepath guard` outside of it, or begin the container with another init, such as tini"
            .to_owned());
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(["guard", &std::process::id().to_string(), "--background"]);
    match command.stdin(Stdio::null()).stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("no guardian could be started, as the lines before say: run this as root, or omit --guard".into()),
        Err(error) => Err(format!("no guardian could be started ({error}): omit --guard")),
    }
}

fn target(process: Option<&str>) -> Target {
    match process {
        None => Target::Only,
        Some(process) => process.parse().map_or_else(|_| Target::App(process.to_owned()), Target::Pid),
    }
}
