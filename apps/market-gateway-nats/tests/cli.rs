//! The program without a server.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use common::{Ring, Server, record};

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

#[test]
fn program_that_is_interrupted_prints_its_counts_and_says_what_is_not_acknowledged() {
    let ring = Ring::new(64);
    let mut child = program(ring.path().to_str().unwrap());
    // Nobody listens there.
    let mut child = child.args(["--server", "127.0.0.1:1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("refused"), "{line}");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("0 records in 0 batches") && output.status.success(), "{printed}");
}

#[test]
fn batches_that_were_read_are_acknowledged_before_an_interrupted_program_ends() {
    let test = "batches_that_were_read_are_acknowledged_before_an_interrupted_program_ends";
    let Some(server) = Server::start(test) else { return };
    let mut ring = Ring::new(1 << 12);
    (0..1_000).for_each(|number| _ = ring.writer.publish(&record(number)));
    let mut child = program(ring.path().to_str().unwrap());
    let server = server.address();
    let mut child = child.args(["--stream-mib", "16", "--server", &server]).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    assert!(said.lines().any(|line| line.unwrap().ends_with("connected")), "it ended");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.starts_with("1000 records in 6 batches") && printed.contains("6 batches acknowledged"),
        "{printed}"
    );
    assert!(output.status.success());
}

#[test]
fn secret_that_others_can_read_is_refused() {
    let ring = Ring::new(64);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "t0ken\n").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let output = program(ring.path().to_str().unwrap()).arg("--token-file").arg(&path).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("others can read it (mode 644): chmod 600") && !said.contains("t0ken"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}
