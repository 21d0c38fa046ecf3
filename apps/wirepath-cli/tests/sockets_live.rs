//! `wirepath sockets` of a program that runs under the library, beside a kernel at the other end of
//! a wire: each kind of socket, its owner, the reason, its queues and what it has carried.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use wirepath_tests::live::preload::library;
use wirepath_tests::live::{NEAR, OURS, THEIRS, TIMEOUT, Wire, has_program, wait_until};

const RULES: &str = r#"
[[rules]]
use = "os"
traffic = "tcp-server"
local = "*:9100"
[[rules]]
use = "refuse"
traffic = "tcp-client"
remote = "*:6666"
"#;

/// Sockets of each kind. It sleeps while nothing comes, reads a connection's bytes, answers them,
/// and reads one datagram of three.
const PROGRAM: &str = r#"
import select, socket, sys
def listener(port, backlog, family=socket.AF_INET, only=False):
    made = socket.socket(family)
    if only: made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.bind(('::' if only else '0.0.0.0', port))
    made.listen(backlog)
    return made
ours, kept = listener(7100, 5), listener(9100, 7)
six = listener(7300, 1, socket.AF_INET6, True)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('0.0.0.0', 7200))
client = socket.create_connection(('127.0.0.1', 9100))
served, _ = kept.accept()
client.sendall(b'k' * 500)
unused, refused = socket.socket(), socket.socket()
try: refused.connect((sys.argv[1], 6666))
except PermissionError: pass
epoll = select.epoll()
epoll.register(udp, select.EPOLLIN)
epoll.register(ours, select.EPOLLIN)
epoll.poll(0.2)
print('ready', flush=True)
connection, _ = ours.accept()
count = 0
while count < 1000: count += len(connection.recv(4096))
connection.sendall(b'x' * 3000)
udp.recv(100)
print('served', flush=True)
sys.stdin.readline()
"#;

struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn until_it_says(&mut self, word: &str) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        if line.trim_end() != word {
            let _ = self.child.kill();
            let mut said = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{word:?} was expected, not {line:?}: {said}");
        }
    }

    /// Lets it end; returns what it and the library wrote on standard error.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        self.child.wait().unwrap();
        said
    }
}

/// `wirepath run` with the rules, whose listings and counters are in the folder.
fn run(wire: &Wire, folder: &TempDir, more: &[&str], program: &[&str]) -> Running {
    let rules = folder.path().join("trading.toml");
    fs::write(&rules, RULES).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    command.args(["run", "--interface", NEAR, "--rules"]).arg(&rules).args(more).arg("--").args(program);
    command.env("WIREPATH_PRELOAD", library()).env("WIREPATH_SHM", folder.path().join("shm"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = wire.near.run(|| command.spawn()).unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    Running { child, out }
}

fn wirepath(shm: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    let output = command.args(arguments).env("WIREPATH_SHM", shm).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The process in the listing.
fn process(shm: &Path) -> Option<Value> {
    let report: Value = serde_json::from_str(&wirepath(shm, &["sockets", "--json"])).ok()?;
    report["processes"].get(0).cloned()
}

fn socket(shm: &Path, fits: impl Fn(&Value) -> bool) -> Value {
    let process = process(shm).unwrap_or_default();
    let sockets = process["sockets"].as_array().cloned().unwrap_or_default();
    sockets.into_iter().find(fits).unwrap_or_default()
}

/// The program, which has answered a connection and read a datagram, and the listing then.
struct Served {
    running: Running,
    peer: TcpStream,
    listed: Value,
    folder: TempDir,
    _wire: Wire,
}

impl Served {
    fn new(test: &str) -> Option<Self> {
        if !has_program(test, "python3") {
            return None;
        }
        let wire = Wire::new(test)?;
        wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let shm = folder.path().join("shm");
        let mut running = run(&wire, &folder, &[], &["python3", "-c", PROGRAM, &THEIRS.to_string()]);
        running.until_it_says("ready");
        let mut peer = wire.far.run(|| TcpStream::connect((OURS, 7_100))).unwrap();
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        peer.write_all(&[7; 1_000]).unwrap();
        peer.read_exact(&mut [0; 3_000]).unwrap();
        let sender = wire.far.run(|| UdpSocket::bind((THEIRS, 7_201))).unwrap();
        (0..3).for_each(|_| _ = sender.send_to(&[1; 40], (OURS, 7_200)).unwrap());
        running.until_it_says("served");
        wait_until("the listing has the datagrams", || socket(&shm, |socket| is_at(socket, 7_200))["rx_packets"] == 3);
        let listed = process(&shm).unwrap();
        Some(Self { running, peer, listed, folder, _wire: wire })
    }

    fn shm(&self) -> PathBuf {
        self.folder.path().join("shm")
    }

    /// The only socket that fits.
    fn found(&self, what: &str, fits: impl Fn(&Value) -> bool) -> &Value {
        let all = || serde_json::to_string_pretty(&self.listed).unwrap();
        let mut found = self.listed["sockets"].as_array().unwrap().iter().filter(|socket| fits(socket));
        let first = found.next().unwrap_or_else(|| panic!("no {what} in {}", all()));
        assert!(found.next().is_none(), "several of {what}: {}", all());
        first
    }

    fn at(&self, port: u16, state: &str) -> &Value {
        self.found(&format!("{state} at {port}"), |socket| is_at(socket, port) && socket["state"] == *state)
    }
}

fn is_at(socket: &Value, port: u16) -> bool {
    socket["local"].as_str().unwrap().ends_with(&format!(":{port}"))
}

fn check(socket: &Value, fields: &[(&str, Value)]) {
    for (name, value) in fields {
        assert_eq!(&socket[*name], value, "{name} of {socket}");
    }
}

#[test]
fn each_socket_of_a_program_is_listed_with_its_owner_and_the_reason() {
    let Some(served) = Served::new("each_socket_of_a_program_is_listed_with_its_owner_and_the_reason") else { return };
    let owned = |socket: &Value, whose: &str, why: &str| check(socket, &[("whose", whose.into()), ("why", why.into())]);
    owned(served.at(7_100, "listen"), "both", "no rule of trading.toml fits");
    check(served.at(7_100, "established"), &[("whose", "wirepath".into())]);
    check(served.at(7_200, "bound"), &[("whose", "both".into())]);
    owned(served.at(9_100, "listen"), "kernel", "rule 1 of trading.toml");
    owned(served.at(9_100, "established"), "kernel", "rule 1 of trading.toml");
    let client = served.found("client", |socket| socket["remote"] == "127.0.0.1:9100");
    owned(client, "kernel", "loopback or broadcast");
    let six = served.found("listener of IPv6", |socket| socket["why"].as_str().unwrap().contains("IPv6"));
    check(six, &[("whose", "kernel".into()), ("state", "listen".into()), ("local", "[::]:7300".into())]);
    owned(served.found("refused one", |socket| socket["whose"] == "refused"), "refused", "rule 2 of trading.toml");
    served.found("unused one", |socket| socket["whose"] == "undecided" && socket["why"] == "not used yet");
    served.running.end();
}

#[test]
fn listener_is_listed_with_its_queue_and_its_epoll_sets() {
    let Some(served) = Served::new("listener_is_listed_with_its_queue_and_its_epoll_sets") else { return };
    let queue = [("receive_queue", 0.into()), ("receive_limit", 5.into())];
    check(served.at(7_100, "listen"), &queue);
    check(served.at(7_100, "listen"), &[("epoll_sets", 1.into()), ("remote", Value::Null)]);
    check(served.at(9_100, "listen"), &[("receive_limit", 7.into())]);
    served.running.end();
}

#[test]
fn connection_is_listed_with_what_it_has_carried() {
    let Some(served) = Served::new("connection_is_listed_with_what_it_has_carried") else { return };
    let connection = served.at(7_100, "established");
    check(connection, &[("remote", served.peer.local_addr().unwrap().to_string().into())]);
    check(connection, &[("rx_bytes", 1_000.into()), ("tx_bytes", 3_000.into())]);
    check(connection, &[("retransmits", 0.into()), ("send_queue", 0.into())]);
    assert!(connection["rx_packets"].as_u64() > Some(1) && connection["tx_packets"].as_u64() > Some(1), "{connection}");
    served.running.end();
}

#[test]
fn connection_of_the_kernel_is_listed_with_what_it_has_carried() {
    let Some(served) = Served::new("connection_of_the_kernel_is_listed_with_what_it_has_carried") else { return };
    check(served.at(9_100, "established"), &[("rx_bytes", 500.into()), ("receive_queue", 500.into())]);
    let client = served.found("client", |socket| socket["remote"] == "127.0.0.1:9100");
    check(client, &[("tx_bytes", 500.into())]);
    served.running.end();
}

#[test]
fn datagrams_that_wait_are_listed() {
    let Some(served) = Served::new("datagrams_that_wait_are_listed") else { return };
    let datagrams = served.at(7_200, "bound");
    check(datagrams, &[("rx_packets", 3.into()), ("rx_bytes", 120.into()), ("epoll_sets", 1.into())]);
    check(datagrams, &[("receive_queue", 80.into()), ("drops", 0.into())]);
    let [active, opened] = ["active_unix_seconds", "opened_unix_seconds"].map(|name| datagrams[name].as_f64().unwrap());
    assert!(active >= opened, "{datagrams}");
    served.running.end();
}

#[test]
fn program_is_listed_with_its_interface_and_system_calls() {
    let Some(served) = Served::new("program_is_listed_with_its_interface_and_system_calls") else { return };
    check(&served.listed, &[("program", "python3".into()), ("interface", NEAR.into())]);
    for cause in ["device", "sleep", "twin", "port"] {
        let calls = &served.listed["system_calls"];
        assert!(calls[cause].as_u64().unwrap() > 0, "{cause}: {calls}");
    }
    served.running.end();
}

#[test]
fn table_of_sockets_has_a_row_for_each() {
    let Some(served) = Served::new("table_of_sockets_has_a_row_for_each") else { return };
    let table = wirepath(&served.shm(), &["sockets"]);
    let row = |words: &[&str]| {
        let mut rows = table.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        assert!(rows.next().is_some(), "no row of {words:?} in\n{table}");
    };
    row(&["tcp", "listen", "0.0.0.0:7100", "both", "no rule of trading.toml fits", "0/5"]);
    row(&["tcp", "established", "10.9.0.1:7100", "wirepath", "1,000", "3,000"]);
    row(&["tcp", "listen", "0.0.0.0:9100", "kernel", "rule 1 of trading.toml", "0/7"]);
    row(&["turns", "system calls: device", "twin"]);
    served.running.end();
}

#[test]
fn each_reason_to_stay_with_the_kernel_is_said_once() {
    let Some(served) = Served::new("each_reason_to_stay_with_the_kernel_is_said_once") else { return };
    let said = served.running.end();
    let lines: Vec<&str> = said.lines().collect();
    for why in ["rule 1 of trading.toml", "loopback or broadcast", "IPv6"] {
        let count = lines.iter().filter(|line| line.contains("stays with the kernel") && line.contains(why)).count();
        assert_eq!(count, 1, "{why}: {said}");
    }
    assert_eq!(lines.len(), 3, "{said}");
}

#[test]
fn listing_ends_with_its_program() {
    let Some(served) = Served::new("listing_ends_with_its_program") else { return };
    let shm = served.shm();
    served.running.end();
    assert!(process(&shm).is_none(), "the listing outlives its program");
}

#[test]
fn retransmissions_are_listed_where_the_peer_has_gone() {
    let test = "retransmissions_are_listed_where_the_peer_has_gone";
    if !has_program(test, "python3") {
        return;
    }
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shm = folder.path().join("shm");
    let program = "import socket, sys\n\
                   made = socket.socket()\n\
                   made.bind(('0.0.0.0', 7100))\n\
                   made.listen()\n\
                   print('ready', flush=True)\n\
                   peer, _ = made.accept()\n\
                   sys.stdin.readline()\n\
                   peer.sendall(b'y' * 700)\n\
                   print('sent', flush=True)\n\
                   sys.stdin.readline()\n";
    let mut running = run(&wire, &folder, &["--policy", "quiet"], &["python3", "-c", program]);
    running.until_it_says("ready");
    let _peer = wire.far.run(|| TcpStream::connect((OURS, 7_100))).unwrap();
    wire.far.ip(&["addr", "flush", "dev", "veth1"]).unwrap();
    running.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    running.until_it_says("sent");
    let connection = || socket(&shm, |socket| socket["state"] == "established");
    wait_until("segments are sent again", || connection()["retransmits"].as_u64() > Some(0));
    assert_eq!(connection()["send_queue"], 700);
    assert_eq!(running.end(), "");
}

#[test]
fn frames_of_a_program_are_captured_on_its_queue() {
    let test = "frames_of_a_program_are_captured_on_its_queue";
    if !has_program(test, "python3") {
        return;
    }
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shm = folder.path().join("shm");
    let program = "import socket, sys\n\
                   made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                   made.bind(('0.0.0.0', 7200))\n\
                   print('ready', flush=True)\n\
                   for each in range(3):\n\
                   \x20   words, sender = made.recvfrom(100)\n\
                   \x20   made.sendto(words * 2, sender)\n\
                   sys.stdin.readline()\n";
    let mut running = run(&wire, &folder, &["--policy", "refuse"], &["python3", "-c", program]);
    running.until_it_says("ready");
    wait_until("the program is listed", || process(&shm).is_some());
    let pid = process(&shm).unwrap()["pid"].to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    command.args(["capture", &pid, "--filter", "udp port 7200", "--count", "6"]).env("WIREPATH_SHM", &shm);
    let mut capture = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(capture.stderr.take().unwrap());
    let mut begun = String::new();
    said.read_line(&mut begun).unwrap();
    assert!(begun.contains("veth0"), "{begun}");
    let socket = wire.socket((THEIRS, 7_201));
    for _ in 0..3 {
        socket.send_to(&[1; 40], (OURS, 7_200)).unwrap();
        socket.recv(&mut [0; 100]).unwrap();
    }
    let mut text = String::new();
    capture.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(capture.wait().unwrap().success());
    let (asked, answered) = (
        "veth0.0 In  IP 10.9.0.2.7201 > 10.9.0.1.7200: UDP, length 40",
        "veth0.0 Out IP 10.9.0.1.7200 > 10.9.0.2.7201: UDP, length 80",
    );
    let frames: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(frames, [asked, answered].repeat(3));
    assert_eq!(running.end(), "");
}

/// The table of figures in the demo's output: what was measured, and its six numbers.
fn figures(said: &str) -> Vec<(String, Vec<f64>)> {
    let rows = said.lines().filter(|line| line.starts_with("SET ") || line.starts_with("GET "));
    rows.map(|row| {
        let words: Vec<&str> = row.split_whitespace().collect();
        (words[..3].join(" "), words[3..].iter().map(|word| word.parse().unwrap()).collect())
    })
    .collect()
}

#[test]
fn demo_ends_with_both_figures_and_the_sockets_of_a_server_that_is_asked() {
    let test = "demo_ends_with_both_figures_and_the_sockets_of_a_server_that_is_asked";
    if !["redis-server", "redis-benchmark"].iter().all(|program| has_program(test, program)) {
        return;
    }
    // It says what this machine lacks for a wire; the demo makes its own.
    if Wire::new(test).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for program in [Path::new(env!("CARGO_BIN_EXE_wirepath")), library()] {
        std::os::unix::fs::symlink(program, folder.path().join(program.file_name().unwrap())).unwrap();
    }
    let mut demo = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo-sockets"));
    let output = demo.arg(folder.path()).arg("500").env("WIREPATH_SHM", folder.path().join("shm")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));

    let figures = figures(&said);
    let measured: Vec<&str> = figures.iter().map(|(measured, _)| measured.as_str()).collect();
    assert_eq!(measured, ["SET 1 1", "GET 1 1", "SET 50 1", "GET 50 1", "SET 50 16", "GET 50 16"], "{said}");
    for (measured, numbers) in &figures {
        let [rate, rate_of_kernel, ratio] = numbers[..3] else { panic!("{measured}: {said}") };
        assert!(numbers.len() == 6 && (ratio - rate / rate_of_kernel).abs() < 0.02, "{measured}: {said}");
    }
    let whose = |state: &str, owner: &str| {
        said.lines().filter(|line| line.contains(&format!(" {state} ")) && line.contains(&format!(" {owner} "))).count()
    };
    assert_eq!((whose("listen", "both"), whose("established", "wirepath")), (1, 5), "{said}");
}
