//! Measurements by other programs: valgrind counts instructions, strace counts system calls. They
//! run binaries that send packets through a measured path: `packets`, and `connectx` on software
//! NICs.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::Command;

/// The reason why a figure is missing, with the package to install.
pub type Missing = String;

/// A binary that is measured. Its arguments are a path and a number of rounds; it measures in
/// functions whose names begin with `measured`, and prints at its end `packets` and their number.
pub struct Subject {
    /// The command that starts it, also under another program.
    launcher: Vec<OsString>,
    binary: OsString,
}

impl Subject {
    /// A binary that is started directly.
    pub fn new(binary: impl AsRef<OsStr>) -> Self {
        Self { launcher: Vec::new(), binary: binary.as_ref().to_owned() }
    }

    /// The same, started by `launcher`, which gets a command line as its last arguments.
    pub fn started_by(self, launcher: &Command) -> Self {
        let words = [launcher.get_program()].into_iter().chain(launcher.get_args());
        Self { launcher: words.map(OsStr::to_owned).collect(), ..self }
    }

    /// Instructions per packet in its measured functions, counted by callgrind. Other load on the
    /// machine does not change them.
    pub fn instructions(&self, path: &str) -> Result<f64, Missing> {
        const ROUNDS: &str = "40";
        let name = Path::new(&self.binary).file_name().unwrap_or_default().display();
        // As Rust names them, and as C does.
        let toggles = ["", &format!("{name}::")].map(|module| format!("--toggle-collect={module}measured*"));
        let mut valgrind =
            vec!["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"];
        valgrind.extend(toggles.iter().map(String::as_str));
        let output = self.run(&valgrind, path, ROUNDS)?;
        let collected = output.lines().find_map(|line| line.split("Collected :").nth(1));
        let instructions: f64 = parse(collected, "valgrind printed no count")?;
        Ok(instructions / numbers(&output, "packets")?[0])
    }

    /// System calls a packet, of the thread that runs [`between_marks`] and between its marks:
    /// calls of the set-up, the harness and other threads do not count.
    pub fn system_calls(&self, path: &str) -> Result<f64, Missing> {
        self.system_calls_of(path, ROUNDS_OF_A_MILLION)
    }

    /// As above, of a number of rounds.
    pub fn system_calls_of(&self, path: &str, rounds: &str) -> Result<f64, Missing> {
        let output = self.run(&["strace", "-f", "-o", "/dev/stderr"], path, rounds)?;
        Ok(calls_between_marks(&output)? as f64 / numbers(&output, "packets")?[0])
    }

    /// Its output without another program: the lines of a plain run.
    pub fn run_output(&self, path: &str, rounds: &str) -> Result<String, Missing> {
        self.run(&[], path, rounds)
    }

    /// Both streams of a successful run, under another program.
    fn run(&self, onlooker: &[&str], path: &str, rounds: &str) -> Result<String, Missing> {
        let words = self.launcher.iter().map(OsString::as_os_str).chain(onlooker.iter().map(OsStr::new));
        let mut words = words.chain([self.binary.as_os_str(), OsStr::new(path), OsStr::new(rounds)]);
        let program = words.next().unwrap_or_default();
        let package = onlooker.first().map_or_else(|| program.display().to_string(), |&package| package.to_owned());
        let output = match Command::new(program).args(words).output() {
            Ok(output) if output.status.code() != Some(NOT_FOUND) => output,
            Ok(_) => return Err(format!("{package} does not start: apt-get install {package}")),
            Err(error) => return Err(format!("{package} does not start ({error}): apt-get install {package}")),
        };
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
        if !output.status.success() {
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
            return Err(format!("{package} ended with {}: {last}", output.status));
        }
        Ok(text)
    }
}

/// A million packets in rounds of [`ROUND`](crate::receiver::ROUND) packets each.
pub const ROUNDS_OF_A_MILLION: &str = "4000";

/// The exit code by which launchers, like shells, report a missing program.
const NOT_FOUND: i32 = 127;

/// Runs the measured part between two marks that [`Subject::system_calls`] finds in strace's
/// output. The mark is a system call that changes nothing and that nothing else in these programs
/// makes.
pub fn between_marks<T>(run: impl FnOnce() -> T) -> T {
    let _ = parent_id();
    IS_MEASURED.set(true);
    let result = run();
    IS_MEASURED.set(false);
    let _ = parent_id();
    result
}

/// Runs what does not count within [`between_marks`]: a pair of marks around it ends the measured
/// part, and begins it again.
pub fn outside_marks<T>(run: impl FnOnce() -> T) -> T {
    if !IS_MEASURED.get() {
        return run();
    }
    let _ = parent_id();
    let result = run();
    let _ = parent_id();
    result
}

thread_local! {
    static IS_MEASURED: Cell<bool> = const { Cell::new(false) };
}

/// The number of calls that a thread makes between its first and second mark, its third and fourth,
/// and so on. `output` is the output of strace, each line of which begins with the thread's id.
fn calls_between_marks(output: &str) -> Result<usize, Missing> {
    const MARK: &str = "getppid(";
    let (mut marker, mut is_measured, mut count) = (None, false, 0);
    for (thread, call) in output.lines().filter_map(|line| line.split_once(' ')) {
        let call = call.trim_start();
        if call.starts_with(MARK) {
            marker = Some(thread);
            is_measured = !is_measured;
        } else if is_measured && marker == Some(thread) {
            // An interrupted call has a second line, and signals begin with a dash.
            count += usize::from(!call.starts_with("<...") && !call.starts_with('-'));
        }
    }
    if is_measured || marker.is_none() { Err("strace printed no marks".to_owned()) } else { Ok(count) }
}

/// The output of a command; where it fails, the remedy.
pub fn output(command: &mut Command, remedy: &str) -> Result<String, Missing> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name} does not start ({error}): {remedy}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{name}: {}: {remedy}", said.lines().next().unwrap_or("failed")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The numbers behind `name` at the beginning of a line, at least one.
pub fn numbers(output: &str, name: &str) -> Result<Vec<f64>, Missing> {
    let text = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let numbers: Option<Vec<f64>> =
        text.and_then(|text| text.split_whitespace().map(|word| word.parse().ok()).collect());
    numbers.filter(|numbers| !numbers.is_empty()).ok_or_else(|| format!("no {name} was printed"))
}

fn parse(text: Option<&str>, missing: &str) -> Result<f64, Missing> {
    text.and_then(|text| text.trim().parse().ok()).ok_or_else(|| missing.to_owned())
}
