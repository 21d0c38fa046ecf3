//! What other programs see of a run: valgrind counts instructions, strace counts system calls. They look at binaries that send
//! packets through a measured path: `packets`, and `connectx` on software NICs.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// Why a figure is missing, with what to install.
pub type Missing = String;

/// A binary that is looked at. It is told a path and a number of rounds, measures in functions whose names begin with `measured`, and says
/// at its end `packets` and how many.
pub struct Subject {
    /// What starts it, and whoever looks at it.
    launcher: Vec<OsString>,
    binary: OsString,
    /// A system call of somebody else's in the same process.
    uncounted: Option<&'static str>,
}

impl Subject {
    /// A binary that is started as it is.
    pub fn new(binary: impl AsRef<OsStr>) -> Self {
        Self { launcher: Vec::new(), binary: binary.as_ref().to_owned(), uncounted: None }
    }

    /// The same, started by `launcher`, which gets a command line as its last arguments.
    pub fn started_by(self, launcher: &Command) -> Self {
        let words = [launcher.get_program()].into_iter().chain(launcher.get_args());
        Self { launcher: words.map(OsStr::to_owned).collect(), ..self }
    }

    /// The same, when `call` is what something else in its process does now and then.
    pub fn without_counting(self, call: &'static str) -> Self {
        Self { uncounted: Some(call), ..self }
    }

    /// Instructions a packet in its measured functions, counted by callgrind. The same on every run, whatever else the machine
    /// does.
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

    /// System calls a packet: those of a long run minus those of a short one, so that the set-up does not count.
    pub fn system_calls(&self, path: &str) -> Result<f64, Missing> {
        let long = self.traced(path, "4000")?;
        let short = self.traced(path, "4")?;
        Ok((long.0 - short.0) / (long.1 - short.1))
    }

    /// System calls and packets of one run. What is not counted is not stopped at either.
    fn traced(&self, path: &str, rounds: &str) -> Result<(f64, f64), Missing> {
        let filter = self.uncounted.map(|call| format!("trace=!{call}"));
        let mut strace = vec!["strace", "-f", "-c", "-U", "calls,name"];
        strace.extend(filter.iter().flat_map(|filter| ["--seccomp-bpf", "-e", filter]));
        let output = self.run(&strace, path, rounds)?;
        let total = output.lines().find(|line| line.trim_end().ends_with("total"));
        let calls = parse(total.and_then(|line| line.split_whitespace().next()), "strace printed no total")?;
        Ok((calls, numbers(&output, "packets")?[0]))
    }

    /// What it says by itself: the lines of a run on its own.
    pub fn says(&self, path: &str, rounds: &str) -> Result<String, Missing> {
        self.run(&[], path, rounds)
    }

    /// Both streams of a run that has succeeded, under a program that looks at it.
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

/// How launchers tell that there is no such program, as shells do.
const NOT_FOUND: i32 = 127;

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
