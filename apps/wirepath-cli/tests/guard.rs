//! The messages of `wirepath guard` where there is no process to guard.
//! `tests/tests/live/guard` tests its work.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use wirepath_tests::live::preload::{library, wire};
use wirepath_tests::live::{NEAR, THEIRS, TIMEOUT};

fn refused(arguments: &[&str], says: &str) {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_wirepath"))
        .arg("guard")
        .args(arguments)
        .env("WIREPATH_SHM", directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(says), "{said}");
}

#[test]
fn nobody_to_guard_is_told_with_the_next_step() {
    refused(&[], "name one by its pid");
    refused(&["oms"], "name one by its pid");
    // More than the kernel's PID_MAX_LIMIT.
    refused(&["4294967"], "it must run before its guardian starts");
}

#[test]
fn guardian_that_may_not_send_says_so_at_once() {
    let mut sleeper = Command::new("sleep").arg("30").spawn().unwrap();
    let pid = sleeper.id().to_string();
    // A user other than root is refused anyway.
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = match is_root {
        true => Command::new("setpriv"),
        false => Command::new(env!("CARGO_BIN_EXE_wirepath")),
    };
    if is_root {
        command.args(["--bounding-set", "-net_raw", env!("CARGO_BIN_EXE_wirepath")]);
    }
    let directory = tempfile::tempdir().unwrap();
    let output = command.args(["guard", "--dir", directory.path().to_str().unwrap(), &pid]).output();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => return println!("SKIPPED: no setpriv here"),
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("CAP_NET_RAW"), "{said}");
}

#[test]
fn process_without_a_roster_is_guarded_until_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let mut guard = Command::new(env!("CARGO_BIN_EXE_wirepath"))
        .args(["guard", "--dir", directory.path().to_str().unwrap(), &pid])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stderr, mut said) = (BufReader::new(guard.stderr.take().unwrap()), String::new());
    stderr.read_line(&mut said).unwrap();
    let is_guarded = guard.try_wait().unwrap().is_none();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let output = guard.wait_with_output().unwrap();
    if said.contains("CAP_NET_RAW") {
        return println!("SKIPPED: {said}");
    }
    assert!(is_guarded && output.status.success() && output.stdout.is_empty(), "{said}");
    assert!(said.contains(&format!("guarding process {pid}")), "{said}");
}

/// Connects, and sleeps. It has no handler of signals, and no children.
const SLEEPER: &str = "
import os, signal, socket, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
kept = socket.create_connection((sys.argv[1], 7300))
try: os.wait()
except ChildProcessError: kept.sendall(b'alone')
signal.pause()
";

#[test]
fn peer_of_a_program_that_a_signal_ends_is_reset_by_its_guardian() {
    let test = "peer_of_a_program_that_a_signal_ends_is_reset_by_its_guardian";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_300)).unwrap());
    for signal in ["-KILL", "-TERM", "-INT"] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_wirepath"));
        run.args(["run", "--interface", NEAR, "--policy", "refuse", "--guard", "--", "python3", "-c", SLEEPER]);
        run.arg(THEIRS.to_string()).env("WIREPATH_PRELOAD", library()).env("WIREPATH_SHM", folder.path());
        let mut program = wire.near.run(|| run.stderr(Stdio::piped()).spawn()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut words = [0; 5];
        peer.read_exact(&mut words).unwrap();
        assert_eq!(&words, b"alone", "the program has no child of ours");
        assert!(Command::new("kill").args([signal, &program.id().to_string()]).status().unwrap().success());
        program.wait().unwrap();
        let end = peer.read(&mut words).map_err(|error| error.kind());
        let mut said = String::new();
        program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(end, Err(ErrorKind::ConnectionReset), "{signal}: {said}");
        assert!(said.contains("1 connection"), "{said}");
    }
}
