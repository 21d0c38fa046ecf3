//! The command line as a user sees it: which input is refused, with which words and which exit
//! code.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use exchange_sim::{Truth, read_truth};
use tempfile::tempdir;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_exchange-sim")).args(arguments).output().unwrap()
}

/// Runs `generate` with `flags` added; expects the exit code, and an error that contains all of
/// `words`.
fn refused(flags: &[&str], code: i32, words: &[&str]) {
    let directory = tempdir().unwrap();
    let out = directory.path().join("day.pcap");
    let mut arguments = vec!["generate", "--out", out.to_str().unwrap()];
    arguments.extend(flags);
    let output = run(&arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{flags:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{flags:?} should say '{word}': {error}");
    }
    assert!(!out.exists(), "{flags:?} left a file");
}

#[test]
fn control_characters_of_file_names_do_not_reach_the_terminal() {
    let directory = tempdir().unwrap();
    let clean = |output: Output| {
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(text.contains("\\x1b[2J"), "{text:?}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    };
    let out = directory.path().join("\u{1b}[2Jday.pcap");
    clean(run(&["generate", "--messages", "2k", "--out", out.to_str().unwrap()]));
    clean(run(&["generate", "--messages", "2k", "--out", "/nowhere/\u{1b}[2J/day.pcap"]));
}

#[test]
fn bad_flags_are_usage_errors_that_say_what_to_do() {
    refused(&["--group-a", "10.0.0.1"], 2, &["--group-a", "not a multicast address", "for example"]);
    refused(&["--group-b", "224.0.0.1"], 2, &["--group-b", "routing protocols"]);
    refused(&["--group-a", "239.1.1.1", "--group-b", "239.1.1.1"], 2, &["both 239.1.1.1", "its own group"]);
    refused(&["--loss", "120%"], 2, &["--loss", "outside of 0 to 1", "0.1%"]);
    refused(&["--loss-a", "some"], 2, &["--loss-a", "not a number"]);
    refused(&["--loss", "1%", "--loss-b", "1%"], 2, &["cannot be used with"]);
    refused(&["--messages", "100"], 2, &["--messages 100", "1806 or more"]);
    refused(&["--messages", "many"], 2, &["--messages", "whole number"]);
    refused(&["--symbols", "0"], 2, &["--symbols 0", "1 to 10000"]);
    refused(&["--rate", "0"], 2, &["--rate 0"]);
    refused(&["--rate", "1"], 2, &["midnight", "rate of 20"]);
    refused(&["--burst", "1000@1000"], 2, &["--burst 1000@1000", "above --rate 100000"]);
    refused(&["--burst", "big"], 2, &["SIZE@PER_SECOND"]);
    refused(&["--session", "MUCH TOO LONG"], 2, &["1 to 10 visible"]);
    refused(&["--port", "0"], 2, &["--port 0"]);
    refused(&["--port", "70000"], 2, &["--port"]);
    refused(&["--mtu", "60"], 2, &["--mtu 60", "94 to 9216"]);
    refused(&["--ttl", "0"], 2, &["--ttl 0"]);
    refused(&["--sede", "1"], 2, &["--seed"]);
}

#[test]
fn no_command_and_no_output_are_usage_errors() {
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["generate"]).status.code(), Some(2));
    assert_eq!(run(&["publish", "--interface", "0.0.0.0"]).status.code(), Some(2));
}

#[test]
fn publish_without_an_interface_sends_nothing_and_says_where_it_would() {
    let directory = tempdir().unwrap();
    let truth = directory.path().join("truth.json");
    for flags in [&[][..], &["--group-a", "239.1.2.3", "--truth", truth.to_str().unwrap()]] {
        let output = run(&[&["publish"], flags].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{error}");
        let group = if flags.is_empty() { "233.252.0.1:26477" } else { "239.1.2.3:26477" };
        assert!(error.contains("nothing was sent") && error.contains(group), "{error}");
        assert!(error.contains("--interface lo"), "{error}");
    }
    assert!(!truth.exists());
}

#[test]
fn missing_directory_is_a_failure_that_names_it() {
    let output = run(&["generate", "--messages", "2000", "--out", "/nowhere/at/all/day.pcap"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no directory /nowhere/at/all") && error.contains("create it"), "{error}");
}

#[test]
fn output_that_is_a_directory_is_a_failure() {
    let directory = tempdir().unwrap();
    let output = run(&["generate", "--messages", "2000", "--out", directory.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn full_disk_is_a_failure() {
    if !Path::new("/dev/full").exists() {
        println!("SKIPPED full_disk_is_a_failure: there is no /dev/full");
        return;
    }
    let output = run(&["generate", "--messages", "2000", "--out", "/dev/full"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("/dev/full"), "{error}");
    assert!(!Path::new("/dev/full.truth.json").exists());
}

#[test]
fn capture_and_its_truth_lie_side_by_side() {
    let directory = tempdir().unwrap();
    let out = directory.path().join("day.pcap");
    let flags = ["--messages", "5k", "--symbols", "20", "--loss", "10%", "--seed", "7"];
    let output = run(&[&["generate", "--out", out.to_str().unwrap()], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let truth = read_truth(&Truth::path_beside(&out)).unwrap();
    assert_eq!((truth.messages, truth.settings.seed), (5000, 7));
    assert!(std::fs::metadata(&out).unwrap().len() > 24);
}

#[test]
fn failed_run_leaves_no_older_truth() {
    let directory = tempdir().unwrap();
    // A directory cannot be overwritten by a capture.
    let out = directory.path().join("day.pcap");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(Truth::path_beside(&out), "old").unwrap();
    assert_eq!(run(&["generate", "--messages", "2000", "--out", out.to_str().unwrap()]).status.code(), Some(1));
    assert!(!Truth::path_beside(&out).exists());
}

#[test]
fn truth_that_is_missing_or_damaged_is_told() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("x.truth.json");
    assert!(read_truth(&path).unwrap_err().to_string().contains("cannot read"));
    std::fs::write(&path, "{}").unwrap();
    assert!(read_truth(&path).unwrap_err().to_string().contains("not a truth file"));
}

/// Joins a group of the loopback interface.
fn listen(group: Ipv4Addr, port: u16) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((group, port))?;
    socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(socket)
}

/// Messages of all packets until the end of the session.
fn receive(socket: &UdpSocket) -> u64 {
    let mut buffer = [0; 2048];
    let mut messages = 0;
    loop {
        let len = socket.recv(&mut buffer).expect("the session ends before the line falls silent");
        assert!(len >= 20);
        match u16::from_be_bytes([buffer[18], buffer[19]]) {
            0xffff => return messages,
            count => messages += u64::from(count),
        }
    }
}

#[test]
fn published_day_arrives_on_loopback() {
    let groups = [Ipv4Addr::new(233, 252, 0, 77), Ipv4Addr::new(233, 252, 0, 78)];
    let sockets = match [listen(groups[0], 26478), listen(groups[1], 26478)] {
        [Ok(a), Ok(b)] => [a, b],
        [Err(error), _] | [_, Err(error)] => {
            println!("SKIPPED published_day_arrives_on_loopback: cannot join a group on loopback: {error}");
            return;
        }
    };
    let directory = tempdir().unwrap();
    let truth_path = directory.path().join("live.truth.json");
    let receivers = sockets.map(|socket| std::thread::spawn(move || receive(&socket)));
    let [group_a, group_b] = groups.map(|group| group.to_string());
    let flags = ["--messages", "1000", "--symbols", "10", "--rate", "5k", "--loss-b", "20%", "--port", "26478"];
    let lines =
        ["--interface", "lo", "--group-a", &group_a, "--group-b", &group_b, "--truth", truth_path.to_str().unwrap()];
    let output = run(&[&["publish"], &flags[..], &lines[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let truth = read_truth(&truth_path).unwrap();
    let received = receivers.map(|receiver| receiver.join().unwrap());
    assert_eq!(received, [truth.lines[0].sent.messages, truth.lines[1].sent.messages]);
    assert_eq!(received[0], 1000);
    assert!(received[1] < 1000);
}

#[test]
fn truth_that_cannot_be_replaced_says_what_to_look_at() {
    let directory = tempdir().unwrap();
    let out = directory.path().join("day.pcap");
    std::fs::create_dir(Truth::path_beside(&out)).unwrap();
    let output = run(&["generate", "--messages", "2000", "--out", out.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("day.pcap.truth.json") && error.contains("check the folder"), "{error}");
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn script_and_standard_input_command_the_exchange_and_each_answer_is_printed() {
    let directory = tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, "# at once\n0s halt all\n0s cross all\n").unwrap();
    let flags = ["--orders", "127.0.0.1:26492", "--interface", "lo", "--port", "26490", "--symbols", "1", "--control"];
    let exchange = Command::new(env!("CARGO_BIN_EXE_exchange-sim"))
        .arg("serve")
        .args(flags)
        .args(["--script", script.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut exchange = Ended(exchange);
    let mut lines = BufReader::new(exchange.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = |words: &str| lines.find(|line| line.contains(words)).unwrap();
    assert_eq!(said("halt all"), "halt all: done");
    assert_eq!(said("cross all"), "cross all: refused: no instrument is in a state for it");
    let mut input = exchange.0.stdin.take().unwrap();
    input.write_all(b"stop \x1b[2J\n").unwrap();
    assert!(said("refused:").contains("is no command"));
    input.write_all(b"\nquote all\nbreak 1\n").unwrap();
    assert_eq!(said("quote all"), "quote all: done");
    assert!(said("break 1").contains("no trade has the number 1"));
    drop(exchange);
    std::fs::write(&script, "1s halt all\nhalt all\n").unwrap();
    let output = run(&["serve", "--interface", "lo", "--script", script.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("line 2: "), "{error}");
}
