//! The program without a server.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn program(ring: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_market-gateway-nats"));
    command.arg(ring).stderr(Stdio::piped());
    command
}

#[test]
fn ring_that_is_missing_is_waited_for_aloud() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let mut waiting = program(path.to_str().unwrap()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let expected = format!("{}: there is no ring; start its publisher, then open it; waiting\n", path.display());
    assert_eq!(line, format!("market-gateway-nats: {expected}"));
}

#[test]
fn file_that_is_no_ring_ends_the_program_with_a_sentence() {
    let output = program("/dev/null").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/dev/null: this is no ring of wirepath") && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(1));
}
