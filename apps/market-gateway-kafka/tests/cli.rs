//! The program.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use common::{Cluster, Ring, record};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn program_that_is_interrupted_says_why_there_is_no_broker_and_prints_its_counts() {
    let ring = Ring::new(64);
    let mut program = Command::new(env!("CARGO_BIN_EXE_market-gateway-kafka"));
    // Nobody listens there.
    program.arg(ring.path()).args(["--servers", "127.0.0.1:1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    // Open to the end: it may say more.
    let (mut said, mut line) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    said.read_line(&mut line).unwrap();
    let why = r#"error connecting to broker "127.0.0.1:1": IO Error: Connection refused (os error 111)"#;
    assert_eq!(line, format!("market-gateway-kafka: {why}\n"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("0 records in 0 batches") && output.status.success(), "{printed}");
}

#[test]
fn server_without_a_port_is_refused_with_an_example() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_market-gateway-kafka"));
    let output = program.args(["/dev/null", "--servers", "kafka1:9092,kafka2"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("'kafka2'") && said.contains("use HOST:PORT, as kafka1:9092"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn ring_that_ends_ends_the_program_when_all_is_acknowledged() {
    let Some(cluster) = Cluster::start("ring_that_ends_ends_the_program_when_all_is_acknowledged") else { return };
    let mut ring = Ring::new(1 << 12);
    (0..1_000).for_each(|number| _ = ring.writer.publish(&record(number)));
    let mut program = Command::new(env!("CARGO_BIN_EXE_market-gateway-kafka"));
    program.arg(ring.path()).args(["--servers", &cluster.servers().join(","), "--venue", "xnas"]);
    let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut line) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "market-gateway-kafka: connected\n");
    drop(ring);
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    // Four full batches or three and one of each channel, and the last one of each channel.
    assert!(printed.starts_with("1000 records in ") && output.status.success(), "{printed}");
}
