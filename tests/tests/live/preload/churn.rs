//! Connections that come and go for a minute, ten thousand a second where the machine is as fast,
//! to the kernel and to ours. Descriptors and ports are counted at the end. More connections are
//! made than there are connections, chunks of their data and packet buffers at a time, so one that
//! each left behind would be missed before.
#![allow(clippy::unwrap_used)] // a panic here is the report

use wirepath_tests::live::preload::{compile, descriptors, segments_received, start, text, until_it_listens, wire};
use wirepath_tests::live::{OURS, Program, Wire, wait_until};

const SECONDS: u64 = 60;
const RATE: u64 = 10_000;
/// More than there are chunks (32,768), connections (16,384) and packet buffers at a time.
const ENOUGH: u64 = 40_000;
/// Threads of the caller.
const THREADS: u64 = 16;

/// TCP sockets of the near kernel that have a port.
fn ports_taken(wire: &Wire) -> usize {
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/thread-self/net/{table}"));
    wire.near
        .run(|| tables.iter().map(|table| std::fs::read_to_string(table).unwrap_or_default().lines().count()).sum())
}

/// Calls the server for so long; what the caller says.
fn call(wire: &Wire, program: &str, seconds: u64) -> String {
    let [seconds, threads, rate] = [seconds, THREADS, RATE].map(|number| number.to_string());
    let arguments = ["900", program, "call", &OURS.to_string(), &seconds, &threads, &rate];
    let output = wire.far.command("timeout", &arguments).unwrap();
    assert!(output.status.success(), "{}", text(&output));
    text(&output).trim().to_owned()
}

#[test]
#[ignore = "it takes two minutes, and a quiet machine; make soak runs it"]
fn connections_of_a_minute_leave_nothing_behind() {
    let test = "connections_of_a_minute_leave_nothing_behind";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "churn.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    // The caller closes three of four first, and may use their ports again a second later.
    wire.far.run(|| {
        std::fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535").unwrap();
    });
    let kernel = Program::start(&wire.near, &program, &["serve"]);
    until_it_listens(&wire, 7_100);
    println!("to the kernel: {}", call(&wire, &program, SECONDS));
    drop(kernel);

    let server = start(&wire, &program, &["serve"]);
    until_it_listens(&wire, 7_100);
    call(&wire, &program, 1);
    // What the kernel has of the calls before is over.
    wait_until("all are closed", || descriptors(server.id()) < 40);
    let before = (segments_received(&wire.near), descriptors(server.id()), ports_taken(&wire));
    let said = call(&wire, &program, SECONDS);
    println!("to ours: {said}");
    wait_until("all are closed", || descriptors(server.id()) <= before.1);
    assert_eq!(segments_received(&wire.near), before.0, "segments that the kernel got");
    assert!(ports_taken(&wire) <= before.2, "ports that twins have: {}, {} before", ports_taken(&wire), before.2);
    let count: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!(count > ENOUGH, "{count} connections are too few to tell: measure on a quiet machine");
    call(&wire, &program, 1);
}
