//! `wirepath stats` as an operator runs it, against real processes: this one, and a child that is
//! killed.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use wirepath::counters::{Block, Capacity, Counter, Unit};

const SMALL: Capacity = Capacity { entries: 16, values: 512 };

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn stats(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    command.arg("stats").args(arguments).env("WIREPATH_SHM", directory).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn counting(directory: &Path, app: &str, frames: u64) -> (Block, Counter) {
    let block = Block::create_in(directory, app, SMALL).unwrap();
    let ethernet = block.scope("worker0").scope("ethernet");
    let rx_frames = ethernet.counter("rx_frames", Unit::Frames);
    let _tx_frames = ethernet.counter("tx_frames", Unit::Frames);
    ethernet.text("device", "pcap");
    rx_frames.add(frames);
    (block, rx_frames)
}

/// Not a separate test: the second process of the tests below, which runs this until it is killed.
#[test]
fn child_counts_until_killed() {
    let Some(directory) = std::env::var_os("WIREPATH_TEST_CHILD") else { return };
    let (_block, _counter) = counting(Path::new(&directory), "child", 99);
    println!("\nchild counts");
    loop {
        std::thread::park();
    }
}

/// A second process that counts as `child`.
fn start_child(directory: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_counts_until_killed", "--nocapture"])
        .env("WIREPATH_TEST_CHILD", directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "child counts"));
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn nobody_running_is_one_sentence_and_exit_1() {
    let directory = directory();
    let output = stats(directory.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out(&output), "");
    let expected = format!("wirepath: no process counts in {}: start one", directory.path().display());
    assert!(err(&output).starts_with(&expected), "{}", err(&output));
    assert_eq!(err(&output).lines().count(), 1);
}

#[test]
fn usage_errors_exit_2() {
    let directory = directory();
    for wrong in [&["--colour"][..], &["--pid", "x"], &["--watch", "0"], &["--watch", "nan"], &["--clean", "--json"]] {
        assert_eq!(stats(directory.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
    let nothing = Command::new(env!("CARGO_BIN_EXE_wirepath")).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn table_hides_zeros_unless_asked() {
    let directory = directory();
    let _counting = counting(directory.path(), "app", 1_234);
    let table = out(&stats(directory.path(), &[]));
    assert!(table.contains("    rx_frames  1,234 frames     0/s\n"), "{table}");
    assert!(table.contains("    device     pcap\n"), "{table}");
    assert!(!table.contains("tx_frames"), "{table}");
    assert!(out(&stats(directory.path(), &["--all"])).contains("    tx_frames"));
}

#[test]
fn json_is_one_object_with_every_value() {
    let directory = directory();
    let _counting = counting(directory.path(), "app", 7);
    let text = out(&stats(directory.path(), &["--json"]));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let process = &report["processes"][0];
    assert_eq!(process["app"], "app");
    assert_eq!(process["pid"], std::process::id());
    let expected = serde_json::json!([
        { "kind": "counter", "name": "worker0/ethernet/rx_frames", "per_second": 0.0, "unit": "frames", "value": 7 },
        { "kind": "counter", "name": "worker0/ethernet/tx_frames", "per_second": 0.0, "unit": "frames", "value": 0 },
        { "kind": "text", "name": "worker0/ethernet/device", "unit": "", "value": "pcap" },
    ]);
    assert_eq!(process["values"], expected);
}

#[test]
fn rate_is_what_was_counted_meanwhile() {
    let directory = directory();
    let (_block, rx_frames) = counting(directory.path(), "app", 1);
    let done = std::sync::atomic::AtomicBool::new(false);
    let text = std::thread::scope(|threads| {
        let done = &done;
        threads.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                rx_frames.inc();
            }
        });
        let text = out(&stats(directory.path(), &["--json"]));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        text
    });
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(report["processes"][0]["values"][0]["per_second"].as_f64().unwrap() > 1_000.0, "{text}");
}

#[test]
fn two_processes_are_told_apart() {
    let directory = directory();
    let _counting = counting(directory.path(), "app", 1);
    let child = start_child(directory.path());

    let both = out(&stats(directory.path(), &[]));
    let one = out(&stats(directory.path(), &["--app", "child"]));
    let by_pid = out(&stats(directory.path(), &["--pid", &child.id().to_string()]));
    let neither = stats(directory.path(), &["--app", "nobody"]);
    let child_pid = child.id();
    kill(child);

    assert!(both.starts_with("app  pid ") && both.contains("\n\nchild  pid "), "{both}");
    assert!(one.starts_with("child  pid ") && by_pid.starts_with("child  pid "), "{one}{by_pid}");
    assert_eq!(neither.status.code(), Some(1));
    let expected = format!("these do: app (pid {}), child (pid {child_pid})", std::process::id());
    assert!(err(&neither).contains(&expected), "{}", err(&neither));
}

#[test]
fn killed_process_is_stale_until_cleaned() {
    let directory = directory();
    kill(start_child(directory.path()));

    let output = stats(directory.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("files of dead processes: 1;"), "{}", err(&output));

    let cleaned = stats(directory.path(), &["--clean"]);
    assert!(cleaned.status.success());
    assert!(out(&cleaned).starts_with("removed "), "{}", out(&cleaned));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert!(out(&stats(directory.path(), &["--clean"])).starts_with("no files of dead processes"));
}

#[test]
fn damaged_file_is_a_sentence_beside_the_others() {
    let directory = directory();
    let (block, _counter) = counting(directory.path(), "app", 5);
    let garbage = directory.path().join("garbage.1.counters");
    fs::write(&garbage, "garbage").unwrap();
    // A live process holds it, so it is not just stale.
    let held = fs::File::open(&garbage).unwrap();
    held.lock().unwrap();

    let output = stats(directory.path(), &[]);
    assert!(output.status.success());
    assert!(err(&output).contains("garbage.1.counters is not a wirepath counter file"), "{}", err(&output));
    assert!(out(&output).contains("rx_frames"));
    drop(block);
}

#[test]
fn watch_goes_on_until_the_process_ends() {
    let directory = directory();
    let child = start_child(directory.path());
    let mut watch = Command::new(env!("CARGO_BIN_EXE_wirepath"))
        .args(["stats", "--json", "--watch", "0.02"])
        .env("WIREPATH_SHM", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for line in lines.by_ref().take(3) {
        let report: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(report["processes"][0]["app"], "child");
    }
    kill(child);
    assert_eq!(watch.wait().unwrap().code(), Some(1));
}

/// The user who starts a program with file capabilities or setuid chooses its environment, but must
/// not choose the files that it reads and writes.
#[test]
fn program_whose_file_gives_it_rights_does_not_ask_the_environment() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let directory = tempfile::tempdir().unwrap();
    if fs::metadata(directory.path()).unwrap().uid() != 0 {
        return println!("SKIPPED: only root can make a file that makes root");
    }
    let _block = Block::create_in(directory.path(), "chosen-by-somebody", Capacity::default()).unwrap();
    let program = directory.path().join("wirepath");
    wirepath_tests::programs::copy(env!("CARGO_BIN_EXE_wirepath"), &program);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let shows = |mode| {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        let output =
            command.args(["stats", "--json"]).env("WIREPATH_SHM", directory.path()).uid(NOBODY).gid(NOBODY).output();
        String::from_utf8(output.unwrap().stdout).unwrap().contains("chosen-by-somebody")
    };
    assert_eq!([0o755, 0o4755, 0o755].map(shows), [true, false, true]);
}
