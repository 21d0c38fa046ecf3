//! What befalls a program under the preload library: it is killed and starts again, debuggers
//! attach to it, another library is preloaded beside ours, it closes what it does not know, it
//! becomes a daemon, all its threads use one socket.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use wirepath_tests::live::preload::{
    call, compile, echo, library, run, segments_received, start, text, under_library, until_it_listens, wire,
};
use wirepath_tests::live::{OURS, Program, THEIRS, Wire, wait_until};

const PORT: u16 = 11_311;

fn memcached(wire: &Wire) -> Program {
    let memcached = start(wire, "memcached", &["-u", "root", "-p", "11311", "-t", "4", "-l", "0.0.0.0"]);
    until_it_listens(wire, PORT);
    memcached
}

/// Connections that memcached has answered once.
fn connections(wire: &Wire, count: usize) -> Vec<BufReader<TcpStream>> {
    let mut all: Vec<_> = (0..count).map(|_| BufReader::new(call(&wire.far, PORT).unwrap())).collect();
    all.iter_mut().for_each(answers);
    all
}

fn answers(socket: &mut BufReader<TcpStream>) {
    let mut line = String::new();
    socket.get_mut().write_all(b"version\r\n").unwrap();
    socket.read_line(&mut line).unwrap();
    assert!(line.starts_with("VERSION"), "{line}");
}

#[test]
fn killed_server_starts_again_at_once_and_its_peers_are_reset() {
    let test = "killed_server_starts_again_at_once_and_its_peers_are_reset";
    let Some(wire) = wire(test, &["memcached"]) else { return };
    let mut dead = Vec::new();
    for _ in 0..3 {
        // Dropped, it is killed.
        let killed = memcached(&wire);
        dead.extend(connections(&wire, 20));
        drop(killed);
    }
    let _memcached = memcached(&wire);
    let before = segments_received(&wire.near);
    connections(&wire, 20).iter_mut().for_each(answers);
    for socket in &mut dead {
        let mut byte = [0];
        let sent = socket.get_mut().write_all(b"version\r\n");
        assert!(sent.and_then(|()| socket.get_mut().read_exact(&mut byte)).is_err(), "a dead server answers");
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

#[test]
fn server_answers_while_gdb_attaches_and_after_it() {
    let test = "server_answers_while_gdb_attaches_and_after_it";
    let Some(wire) = wire(test, &["memcached", "gdb"]) else { return };
    let memcached = memcached(&wire);
    let mut sockets = connections(&wire, 10);
    let before = segments_received(&wire.near);
    let process = memcached.id().to_string();
    for _ in 0..3 {
        let looked = Command::new("gdb")
            .args(["--batch", "-nx", "-p", &process, "-ex", "thread apply all backtrace 3", "-ex", "detach"])
            .env_remove("DEBUGINFOD_URLS")
            .output()
            .unwrap();
        let said = text(&looked);
        if said.contains("ptrace: Operation not permitted") {
            println!("SKIPPED {test}: gdb may not attach here");
            return;
        }
        assert!(said.contains("Thread "), "{said}");
        sockets.iter_mut().for_each(answers);
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

#[test]
fn server_answers_while_strace_follows_its_calls() {
    let test = "server_answers_while_strace_follows_its_calls";
    let Some(wire) = wire(test, &["memcached", "strace"]) else { return };
    let memcached = memcached(&wire);
    let mut sockets = connections(&wire, 10);
    let before = segments_received(&wire.near);
    let folder = tempfile::tempdir().unwrap();
    let (trace, process) = (folder.path().join("trace"), memcached.id().to_string());
    let is_traced = || {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        !status.lines().any(|line| line.trim_end() == "TracerPid:\t0")
    };
    for _ in 0..3 {
        let mut strace = Command::new("strace");
        let mut strace = strace.args(["-q", "-f", "-p", &process, "-o", trace.to_str().unwrap()]).spawn().unwrap();
        wait_until("strace has attached", || {
            if let Some(status) = strace.try_wait().unwrap() {
                panic!("strace ended: {status}");
            }
            is_traced()
        });
        sockets.iter_mut().for_each(answers);
        connections(&wire, 5).iter_mut().for_each(answers);
        let ended = Command::new("kill").args(["-INT", &strace.id().to_string()]).status();
        assert!(ended.unwrap().success());
        strace.wait().unwrap();
        assert!(!is_traced());
        sockets.iter_mut().for_each(answers);
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

/// The library of Debian's libjemalloc2.
fn jemalloc(test: &str) -> Option<String> {
    let known =
        Command::new("ldconfig").arg("-p").output().or_else(|_| Command::new("/sbin/ldconfig").arg("-p").output());
    let known = text(&known.unwrap());
    let path =
        known.lines().find_map(|line| line.trim().starts_with("libjemalloc.so.2").then(|| line.split("=> ").nth(1))?);
    if path.is_none() {
        println!("SKIPPED {test}: there is no libjemalloc.so.2 here");
    }
    path.map(str::to_owned)
}

#[test]
fn jemalloc_before_or_behind_the_library_changes_nothing() {
    let test = "jemalloc_before_or_behind_the_library_changes_nothing";
    let Some(jemalloc) = jemalloc(test) else { return };
    let Some(wire) = wire(test, &["memcached"]) else { return };
    let ours = library().display().to_string();
    for preload in [format!("{jemalloc}:{ours}"), format!("{ours}:{jemalloc}")] {
        let mut line = under_library("memcached", &["-u", "root", "-p", "11311", "-t", "4", "-l", "0.0.0.0"]);
        line[1] = format!("LD_PRELOAD={preload}");
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let memcached = Program::start(&wire.near, line[0], &line[1..]);
        until_it_listens(&wire, PORT);
        let before = segments_received(&wire.near);
        connections(&wire, 50).iter_mut().for_each(answers);
        assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", memcached.id())).unwrap();
        assert!(maps.contains("libjemalloc") && maps.contains("libwirepath_preload"), "{preload}");
    }
}

/// Runs a mode of the C program on the kernel's sockets and under the library: both say the same.
fn plays_alike(test: &str, mode: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "faults.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let peer = THEIRS.to_string();
    let arguments = [&mode[..1], &[&peer], &mode[1..]].concat();
    let kernel = text(&wire.near.command(&program, &arguments).unwrap());
    let before = segments_received(&wire.near);
    let ours = text(&run(&wire, &program, &arguments));
    assert_eq!(ours, kernel, "ours (left) and the kernel's (right)");
    // Its peer says some last words once it has ended.
    assert!(segments_received(&wire.near) < before + 10, "the kernel got its segments");
}

#[test]
fn program_that_closes_all_descriptors_from_3_up_goes_on() {
    plays_alike("program_that_closes_all_descriptors_from_3_up_goes_on", &["closes"]);
}

#[test]
fn program_that_may_have_few_descriptors_closes_all_and_goes_on() {
    // The library's own are among them: they are above 900 where that is allowed.
    plays_alike("program_that_may_have_few_descriptors_closes_all_and_goes_on", &["closes", "256"]);
}

#[test]
fn hundred_threads_share_one_socket() {
    plays_alike("hundred_threads_share_one_socket", &["threads"]);
}

#[test]
fn port_of_a_connection_that_has_just_ended_is_not_taken_for_the_next() {
    plays_alike("port_of_a_connection_that_has_just_ended_is_not_taken_for_the_next", &["churn", "400"]);
}

#[test]
fn daemon_serves_whether_it_listened_before_or_after_it_became_one() {
    let test = "daemon_serves_whether_it_listened_before_or_after_it_became_one";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "faults.c", folder.path()) else { return };
    for mode in ["daemon-early", "daemon-late"] {
        let Some(wire) = wire(test, &[]) else { return };
        let parent = run(&wire, &program, &[mode, &OURS.to_string()]);
        assert!(parent.status.success(), "{mode}: {}", text(&parent));
        until_it_listens(&wire, 7_100);
        let before = segments_received(&wire.near);
        for _ in 0..3 {
            let mut socket = call(&wire.far, 7_100).unwrap();
            let (sent, mut echoed) = (vec![7; 20_000], vec![0; 20_000]);
            socket.write_all(&sent).unwrap();
            socket.read_exact(&mut echoed).unwrap();
            assert!(sent == echoed, "{mode}: other bytes");
        }
        assert_eq!(segments_received(&wire.near), before, "{mode}: segments that the kernel got");
        wire.near.end_processes();
    }
}

#[test]
fn stopped_server_goes_on() {
    let test = "stopped_server_goes_on";
    let Some(wire) = wire(test, &["memcached"]) else { return };
    let memcached = memcached(&wire);
    let mut sockets = connections(&wire, 10);
    let before = segments_received(&wire.near);
    for signal in ["-STOP", "-CONT"].repeat(5) {
        let sent = Command::new("kill").args([signal, &memcached.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
    sockets.iter_mut().for_each(answers);
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}
