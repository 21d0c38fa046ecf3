//! Connections that come and go, ten thousand a second for a minute, to the kernel and to ours, and
//! then from ours. Descriptors, ports and packet buffers are counted at the end. Many more
//! connections are made than there are connections, chunks of their data and packet buffers at a
//! time, so one that each left behind would be missed before.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::process::Output;

use wirepath::counters::Snapshot;
use wirepath_tests::live::preload::{
    LAST_WORDS, compile, descriptors, is_listening, run, segments_received, start, text, until_it_listens, wire,
};
use wirepath_tests::live::{OURS, Program, THEIRS, Wire, wait_until};

const SECONDS: u64 = 60;
/// Connections a second, at most.
const RATE: u64 = 10_000;
/// More than there are chunks (32,768), connections (16,384), descriptors and packet buffers at a
/// time.
const ENOUGH: u64 = 40_000;
/// Threads of the caller.
const THREADS: u64 = 16;

/// TCP sockets of the near kernel that have a port.
fn ports_taken(wire: &Wire) -> usize {
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/thread-self/net/{table}"));
    wire.near
        .run(|| tables.iter().map(|table| std::fs::read_to_string(table).unwrap_or_default().lines().count()).sum())
}

/// Lets the ports of connections that have ended be used again a second later: the caller closes
/// three of four first.
fn use_ports_again() {
    std::fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1").unwrap();
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535").unwrap();
}

/// A caller's arguments: for so long, to a server of that address.
fn caller(host: std::net::Ipv4Addr, seconds: u64) -> [String; 5] {
    ["call".to_owned(), host.to_string(), seconds.to_string(), THREADS.to_string(), RATE.to_string()]
}

/// How many connections a caller has made, all of them well, and how many a second.
fn made(output: &Output) -> (u64, f64) {
    let said = text(output);
    let line = said.lines().find(|line| line.ends_with(" a second; 0 failed"));
    let words: Vec<&str> = line.unwrap_or_else(|| panic!("{said}")).split(' ').collect();
    (words[0].parse().unwrap(), words[2].parse().unwrap())
}

/// The far kernel calls the server for so long.
fn call(wire: &Wire, program: &str, seconds: u64) -> (u64, f64) {
    let arguments = caller(OURS, seconds);
    let arguments = [vec!["900", program], arguments.iter().map(String::as_str).collect()].concat();
    made(&wire.far.command("timeout", &arguments).unwrap())
}

#[test]
#[ignore = "it takes two minutes, and a quiet machine; make soak runs it"]
fn ten_thousand_connections_a_second_for_a_minute_leave_nothing_behind() {
    let test = "ten_thousand_connections_a_second_for_a_minute_leave_nothing_behind";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "churn.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    wire.far.run(use_ports_again);
    let kernel = Program::start(&wire.near, &program, &["serve"]);
    until_it_listens(&wire, 7_100);
    // What the machine and the caller can do.
    let (_, floor) = call(&wire, &program, SECONDS);
    drop(kernel);

    let counters = folder.path().join("counters");
    std::fs::create_dir(&counters).unwrap();
    let server = start(&wire, "env", &[&format!("WIREPATH_SHM={}", counters.display()), &program, "serve"]);
    until_it_listens(&wire, 7_100);
    call(&wire, &program, 1);
    let buffers = || {
        let running = Snapshot::list(&counters).unwrap().running;
        running.iter().filter_map(|process| process.count("worker0/pool/in_use")).sum::<u64>()
    };
    // What the kernel has of the calls before is over.
    wait_until("all are closed", || descriptors(server.id()) < 40);
    wait_until("the rx ring has its buffers", || buffers() > 0);
    let before = (segments_received(&wire.near), descriptors(server.id()), ports_taken(&wire), buffers());
    let (count, rate) = call(&wire, &program, SECONDS);
    println!("to the kernel {floor} a second, to ours {rate}");
    wait_until("all are closed", || descriptors(server.id()) <= before.1);
    wait_until("all packet buffers are back", || buffers() <= before.3);
    assert_eq!(segments_received(&wire.near), before.0, "segments that the kernel got");
    assert!(ports_taken(&wire) <= before.2, "ports that twins have: {}, {} before", ports_taken(&wire), before.2);
    assert!(count > ENOUGH, "{count} connections are too few to tell: measure on a quiet machine");
    assert!(rate > 0.95 * floor, "{rate} connections a second, {floor} to the kernel");
    call(&wire, &program, 1);
}

#[test]
#[ignore = "it takes a minute; make soak runs it"]
fn program_that_calls_for_a_minute_always_has_a_connection_and_a_port() {
    let test = "program_that_calls_for_a_minute_always_has_a_connection_and_a_port";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "churn.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    wire.near.run(use_ports_again);
    let _server = Program::start(&wire.far, &program, &["serve"]);
    wait_until("the server listens", || is_listening(&wire.far, 7_100));
    let before = segments_received(&wire.near);
    let arguments = caller(THEIRS, SECONDS);
    let (count, rate) = made(&run(&wire, &program, &arguments.each_ref().map(String::as_str)));
    println!("from ours {rate} a second");
    assert!(segments_received(&wire.near) < before + LAST_WORDS, "the kernel got its segments");
    assert!(count > ENOUGH, "{count} connections are too few to tell: measure on a quiet machine");
}
