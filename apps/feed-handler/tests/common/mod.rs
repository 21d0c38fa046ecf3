//! Runs the binary as a user does, and reads its JSON summary.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod made;
pub(crate) mod network;
pub(crate) mod venue;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// `feed-handler` with these arguments.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feed-handler"));
    command.args(arguments);
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Replays with `flags` added and returns the summary. Not pinned, because tests share the cores.
pub(crate) fn replay(file: &Path, format: &str, flags: &[&str]) -> Value {
    let (summary, output) = replay_any(file, format, flags);
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(summary["failures"], Value::Array(Vec::new()));
    assert_eq!(summary["accounted"], true);
    summary
}

/// The same where it may fail.
pub(crate) fn replay_any(file: &Path, format: &str, flags: &[&str]) -> (Value, Output) {
    let mut arguments = vec!["replay", file.to_str().unwrap(), "--format", format];
    arguments.extend(["--cpu", "any", "--quiet", "--summary", "json"]);
    arguments.extend(flags);
    let output = run(&arguments);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "one object on standard output: {text:?} {output:?}");
    (serde_json::from_str(&text).unwrap(), output)
}

/// The part of a summary that must not depend on how the same packets came: everything but names,
/// times and the machine.
pub(crate) fn essence(summary: &Value) -> Value {
    let mut essence = summary.clone();
    let object = essence.as_object_mut().unwrap();
    for key in ["file", "format", "seconds", "packets_per_second", "messages_per_second", "latency_ns", "core"] {
        object.remove(key).unwrap();
    }
    for key in ["captured", "fault_seed", "truncated", "truncation"] {
        object.remove(key).unwrap();
    }
    essence
}

/// Numbers at these paths, such as `channels.0.gaps`.
pub(crate) fn numbers<const N: usize>(summary: &Value, paths: [&str; N]) -> [u64; N] {
    paths.map(|path| {
        let found = path.split('.').fold(summary, |value, key| match key.parse::<usize>() {
            Ok(idx) => &value[idx],
            Err(_) => &value[key],
        });
        found.as_u64().unwrap_or_else(|| panic!("{path} is {found} in {summary}"))
    })
}
