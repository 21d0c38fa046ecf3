//! `wirepath sockets` as an operator runs it, against the listings of this process.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sockets::listing::{Entry, Header, Listing, Place, State};

fn wirepath(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    command.arg("sockets").args(arguments).env("WIREPATH_SHM", directory);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> (Output, String, String) {
    let output = wirepath(directory, arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

fn listing(directory: &Path) -> Listing {
    let mut listing = Listing::create_in(directory, "engine", 16).unwrap();
    listing.header(&Header { program: "engine".into(), interface: "eth1".into(), turns: 5, ..Header::default() });
    listing.set(
        0,
        &Entry {
            fd: 6,
            state: State::Established,
            place: Place::Kernel,
            why: "rule 3 of trading.toml".into(),
            local: "192.0.2.1:5000".parse().unwrap(),
            remote: Some("192.0.2.2:80".parse().unwrap()),
            rx_bytes: 1_234,
            ..Entry::default()
        },
    );
    listing
}

#[test]
fn nobody_running_is_one_sentence_and_exit_1() {
    let directory = tempfile::tempdir().unwrap();
    let (output, out, err) = run(directory.path(), &[]);
    assert_eq!((output.status.code(), &*out), (Some(1), ""));
    let expected = format!("wirepath: no program lists its sockets in {}: start one", directory.path().display());
    assert!(err.starts_with(&expected) && err.lines().count() == 1, "{err}");
}

#[test]
fn sockets_are_shown_with_whose_they_are_and_why() {
    let directory = tempfile::tempdir().unwrap();
    let _listing = listing(directory.path());
    let (output, out, err) = run(directory.path(), &[]);
    assert_eq!((output.status.code(), &*err), (Some(0), ""));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with(&format!("engine  pid {}  on eth1  up ", std::process::id())), "{out}");
    let cells: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(
        cells[..11],
        ["6", "tcp", "established", "192.0.2.1:5000", "192.0.2.2:80", "kernel", "rule", "3", "of", "trading.toml", "0"]
    );
    assert!(lines[3].starts_with("turns 5 "), "{out}");
    let (_, _, err) = run(directory.path(), &["--pid", "1"]);
    assert_eq!(err, format!("wirepath: no such process has sockets of ours; these have: {}\n", std::process::id()));
}

#[test]
fn json_has_all_fields() {
    let directory = tempfile::tempdir().unwrap();
    let _listing = listing(directory.path());
    let (_, out, _) = run(directory.path(), &["--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let process = &report["processes"][0];
    assert_eq!(
        (&process["program"], &process["credible"], &process["user"]),
        (&"engine".into(), &true.into(), &Value::Null)
    );
    let socket = &process["sockets"][0];
    assert_eq!(
        (&socket["whose"], &socket["rx_bytes"], &socket["remote"]),
        (&"kernel".into(), &1_234.into(), &"192.0.2.2:80".into())
    );
}

#[test]
fn live_reports_follow_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let mut listing = listing(directory.path());
    let mut live = wirepath(directory.path(), &["--live", "0.01", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reports = BufReader::new(live.stdout.take().unwrap()).lines();
    let mut sockets = || {
        let report: Value = serde_json::from_str(&reports.next().unwrap().unwrap()).unwrap();
        report["processes"][0]["sockets"].as_array().unwrap().len()
    };
    assert_eq!(sockets(), 1);
    listing.clear(0);
    while sockets() > 0 {}
    // It ends with its program.
    drop(listing);
    assert_eq!(live.wait().unwrap().code(), Some(1));
}

#[test]
fn files_of_dead_processes_are_left_out_and_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let listing = listing(directory.path());
    let left = directory.path().join("gone.1.sockets");
    fs::copy(listing.path(), &left).unwrap();
    let (_, out, err) = run(directory.path(), &[]);
    assert_eq!((out.matches("engine  pid").count(), &*err), (1, ""), "{out}");
    assert!(left.exists());
}

#[test]
fn clean_of_stats_removes_them() {
    let directory = tempfile::tempdir().unwrap();
    let listing = listing(directory.path());
    let left = directory.path().join("gone.1.sockets");
    fs::copy(listing.path(), &left).unwrap();
    let mut clean = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    let output = clean.args(["stats", "--clean"]).env("WIREPATH_SHM", directory.path()).output().unwrap();
    assert_eq!(output.stdout, format!("removed {}\n", left.display()).into_bytes());
    assert!(listing.path().exists() && !left.exists());
}
