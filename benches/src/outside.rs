//! What other programs see of a run: valgrind counts instructions, strace counts system calls. Both look at the binary
//! `packets`, which sends packets through the measured paths.

use std::process::Command;

/// Why a figure is missing, with what to install.
pub type Missing = String;

/// Instructions a packet between the device and the app, counted by callgrind in the function `measured` of `packets`.
/// The same on every run, whatever else the machine does.
pub fn instructions(packets_binary: &str, path: &str) -> Result<f64, Missing> {
    const ROUNDS: &str = "40";
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(["--toggle-collect=packets::measured*", packets_binary, path, ROUNDS]);
    let output = run(&mut command, "valgrind")?;
    let collected = output.lines().find_map(|line| line.split("Collected :").nth(1));
    let instructions: f64 = parse(collected, "valgrind printed no count")?;
    Ok(instructions / packets(&output)?)
}

/// System calls a packet: those of a long run minus those of an empty one, so that the set-up does not count.
pub fn system_calls(packets_binary: &str, path: &str) -> Result<f64, Missing> {
    let long = traced(packets_binary, path, "4000")?;
    let empty = traced(packets_binary, path, "0")?;
    Ok((long.0 - empty.0) / (long.1 - empty.1))
}

/// System calls and packets of one run.
fn traced(packets_binary: &str, path: &str, rounds: &str) -> Result<(f64, f64), Missing> {
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-U", "calls,name", packets_binary, path, rounds]);
    let output = run(&mut command, "strace")?;
    let total = output.lines().find(|line| line.trim_end().ends_with("total"));
    let calls = parse(total.and_then(|line| line.split_whitespace().next()), "strace printed no total")?;
    Ok((calls, packets(&output)?))
}

/// `packets` says on its last line how many packets it has measured.
fn packets(output: &str) -> Result<f64, Missing> {
    parse(output.lines().find_map(|line| line.strip_prefix("packets ")), "`packets` printed no count")
}

fn parse(text: Option<&str>, missing: &str) -> Result<f64, Missing> {
    text.and_then(|text| text.trim().parse().ok()).ok_or_else(|| missing.to_owned())
}

/// Both streams of a program that has succeeded.
fn run(command: &mut Command, package: &str) -> Result<String, Missing> {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Err(format!("{package} does not start ({error}): apt-get install {package}")),
    };
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
    if !output.status.success() {
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
        return Err(format!("{package} ended with {}: {last}", output.status));
    }
    Ok(text)
}
