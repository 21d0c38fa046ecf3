//! `wirepath ping` as an operator runs it, against the kernel at the other end of a cable.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use wirepath_tests::live::{FAR, NEAR, OURS, THEIRS, Wire, has_program, set};
use wirepath_tests::netns::Namespace;

const WIREPATH: &str = env!("CARGO_BIN_EXE_wirepath");
/// A neighbor that does not exist.
const NOBODY: &str = "10.9.0.77";
/// The options of every ping by an address of our own.
const OWN: [&str; 4] = ["--via", NEAR, "--local", "10.9.0.1/24"];
/// Fast, with a timeout for a machine whose cores are busy.
const BRISK: [&str; 4] = ["--interval", "5ms", "--timeout", "5s"];

fn ping(namespace: Option<&Namespace>, arguments: &[&str]) -> Output {
    command(namespace, arguments).output().unwrap()
}

fn command(namespace: Option<&Namespace>, arguments: &[&str]) -> Command {
    let mut command = match namespace {
        None => Command::new(WIREPATH),
        Some(namespace) => {
            let mut inside = Command::new("ip");
            inside.args(["netns", "exec", namespace.name(), WIREPATH]);
            inside
        }
    };
    // Tests of other subcommands read all counters of this machine.
    command.arg("ping").args(arguments).env("WIREPATH_SHM", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// The numbers of a ping that got replies.
fn measured(namespace: &Namespace, target: &str, arguments: &[&[&str]]) -> Value {
    let output = ping(Some(namespace), &[&[target, "--json"], &BRISK[..], &arguments.concat()].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// All answered, each once, with round trips that are in order.
fn check_all_answered(path: &Value, via: &str, count: u64) {
    assert_eq!(path["via"], via);
    let counts = ["sent", "received", "lost", "late", "duplicates", "damaged", "unsent"];
    let expected = [count, count, 0, 0, 0, 0, 0];
    assert_eq!(counts.map(|name| path[name].as_u64().unwrap()), expected, "{path}");
    let names = ["min", "p50", "p90", "p99", "p999", "max"];
    let round_trips = names.map(|name| path["round_trip_ns"][name].as_u64().unwrap());
    assert!(round_trips[0] > 0 && round_trips.is_sorted(), "{path}");
    let rows: u64 = path["histogram"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(rows, count);
}

/// A kernel socket that sends datagrams back until it is dropped.
struct Echo {
    port: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(wire: &Wire) -> Self {
        Self::answering(wire, |socket, bytes, source| {
            socket.send_to(bytes, source).unwrap();
        })
    }

    fn answering(wire: &Wire, answer: impl Fn(&UdpSocket, &[u8], SocketAddr) + Send + 'static) -> Self {
        let socket = wire.socket((THEIRS, 0));
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let port = socket.local_addr().unwrap().port().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 65_507];
            while !asked.load(Ordering::Relaxed) {
                if let Ok((len, source)) = socket.recv_from(&mut bytes) {
                    answer(&socket, &bytes[..len], source);
                }
            }
        });
        Self { port, stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A `wirepath ping` that runs until it is stopped.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    fn start(namespace: &Namespace, arguments: &[&str]) -> Self {
        // `ip` replaces itself with the program, so that a signal reaches it.
        let mut command = command(Some(namespace), arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// Sends Ctrl-C; returns its standard output, and its exit code.
    fn interrupt(mut self) -> (String, Option<i32>) {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        (text, self.child.wait().unwrap().code())
    }
}

/// Reads up to a line that contains these words.
fn until(reader: &mut impl BufRead, words: &str) -> String {
    let mut text = String::new();
    while !text.contains(words) {
        assert!(reader.read_line(&mut text).unwrap() > 0, "it ended before it said {words}:\n{text}");
    }
    text
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives our end the address that the kernel of a shared interface has.
fn share(wire: &Wire) {
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
}

#[test]
fn bad_command_line_is_a_sentence_and_exit_2() {
    for (arguments, says) in [
        (&["10.0.0.1", "--via", "eth9"][..], "ICMP answers go to the kernel"),
        (&["10.0.0.1", "--local", "10.0.0.9/24"], "name it with --via"),
        (&["10.0.0.1", "--udp", "7", "--compare"], "name it with --via"),
        (&["10.0.0.1", "--via", "eth9", "--local", "10.0.0.9"], "length of its network's prefix"),
        (&["10.0.0.1", "--size", "7"], "8 to 65507 bytes"),
        (&["10.0.0.1", "--interval", "5m"], "units are ns, us, ms and s"),
        (&["10.0.0.1", "--interval", "1s", "--flood"], "cannot be used with"),
        (&["10.0.0.1", "--count", "0"], "0 is not in 1.."),
        (&["example"], "invalid value 'example'"),
        (&["--serve", "10.0.0.1"], "cannot be used with"),
        (&[], "required"),
    ] {
        let output = ping(None, arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
        assert!(said(&output).contains(says), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn way_that_is_not_there_is_a_sentence_and_exit_1() {
    let Some(wire) = Wire::new("way_that_is_not_there_is_a_sentence_and_exit_1") else { return };
    let failed = |arguments: &[&str], says: &str| {
        let output = ping(Some(&wire.near), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = said(&output);
        assert!(said.contains(says) && said.lines().count() == 1, "{arguments:?}: {said}");
    };
    failed(&["10.9.0.2", "--udp", "7", "--via", "eth9"], "there is no interface eth9");
    failed(&[&["172.16.0.1"], &OWN[..]].concat(), "no route leads to 172.16.0.1");
    failed(&[&["10.9.0.1"], &OWN[..]].concat(), "is this host itself");
    failed(&["172.16.0.1", "--count", "1"], "the kernel has no route to 172.16.0.1");
    share(&wire);
    failed(&[&["10.9.0.2"], &OWN[..]].concat(), "leave --local away");
    failed(&["10.9.0.2", "--udp", "7", "--via", NEAR, "--size", "1473"], "take --size 1472 or less");
}

#[test]
fn kernel_answers_icmp_to_an_address_of_our_own() {
    let Some(wire) = Wire::new("kernel_answers_icmp_to_an_address_of_our_own") else { return };
    for size in ["8", "56", "1472", "4000"] {
        let report = measured(&wire.near, "10.9.0.2", &[&OWN, &["--count", "20", "--size", size]]);
        assert_eq!((&report["protocol"], &report["port"]), (&"icmp".into(), &Value::Null));
        check_all_answered(&report["paths"][0], NEAR, 20);
    }
}

#[test]
fn kernel_answers_icmp_of_the_kernel() {
    let Some(wire) = Wire::new("kernel_answers_icmp_of_the_kernel") else { return };
    let report = measured(&wire.far, "10.9.0.2", &[&["--count", "5"]]);
    check_all_answered(&report["paths"][0], "kernel", 5);
}

#[test]
fn socket_of_the_kernel_answers_udp_on_a_shared_port_and_on_our_own() {
    let Some(wire) = Wire::new("socket_of_the_kernel_answers_udp_on_a_shared_port_and_on_our_own") else { return };
    let echo = Echo::start(&wire);
    let port = ["--udp", &echo.port, "--flood", "--count", "200", "--timeout", "5s", "--json"];
    let flood = |arguments: &[&str]| -> Value {
        let output = ping(Some(&wire.near), &[&["10.9.0.2"], &port[..], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    check_all_answered(&flood(&[&OWN[..], &["--size", "9000"]].concat())["paths"][0], NEAR, 200);
    share(&wire);
    let report = flood(&["--via", NEAR, "--compare"]);
    check_all_answered(&report["paths"][0], NEAR, 200);
    check_all_answered(&report["paths"][1], "kernel", 200);
}

#[test]
fn answers_that_are_late_twice_or_damaged_are_counted_as_such() {
    let Some(wire) = Wire::new("answers_that_are_late_twice_or_damaged_are_counted_as_such") else { return };
    let echo = Echo::answering(&wire, |socket, bytes, source| {
        let send = |bytes: &[u8]| assert_eq!(socket.send_to(bytes, source).unwrap(), bytes.len());
        match bytes[7] {
            0 => {
                std::thread::sleep(Duration::from_millis(450));
                send(bytes);
            }
            1 => [bytes, bytes].into_iter().for_each(send),
            2 => {}
            _ => send(&[&bytes[..bytes.len() - 1], b"?"].concat()),
        }
    });
    share(&wire);
    for via in [NEAR, "kernel"] {
        let arguments = ["10.9.0.2", "--udp", &echo.port, "--via", via, "--count", "4", "--json"];
        let pace = ["--interval", "600ms", "--timeout", "300ms"];
        let output = ping(Some(&wire.near), &[&arguments[..], &pace].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let path = &report["paths"][0];
        let counts = ["sent", "received", "lost", "late", "duplicates", "damaged"];
        assert_eq!(counts.map(|name| path[name].as_u64().unwrap()), [4, 1, 2, 1, 1, 1], "{path}");
    }
}

#[test]
fn nobody_answers_and_the_exit_code_is_1() {
    let Some(wire) = Wire::new("nobody_answers_and_the_exit_code_is_1") else { return };
    // By default the kernel reports six closed ports to one host at once, and then one a second.
    set(&wire.far, "icmp_ratelimit", "0");
    let brief = ["--count", "3", "--interval", "10ms", "--timeout", "100ms"];
    let check = |arguments: &[&str], says: &str| {
        let output = ping(Some(&wire.near), &[arguments, &brief].concat());
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("3 sent, 0 received, 3 lost (100.0 %)"), "{text}");
        assert!(said(&output).contains(says), "{}", said(&output));
    };
    check(&[&[NOBODY], &OWN[..]].concat(), &format!("no ICMP echo of {NOBODY} came back (3 sent)"));
    check(&[&["10.9.0.2", "--udp", "9"], &OWN[..]].concat(), "no program listens there");
    share(&wire);
    check(&["10.9.0.2", "--udp", "9", "--via", NEAR], "no program listens there");
    check(&["10.9.0.2", "--udp", "9"], "no program listens there");
}

#[test]
fn server_on_a_queue_answers_kernel_sockets_and_unmodified_ping() {
    const TEST: &str = "server_on_a_queue_answers_kernel_sockets_and_unmodified_ping";
    let Some(wire) = Wire::new(TEST) else { return };
    let mut server = Running::start(&wire.near, &[&["--serve", "--udp", "7000"], &OWN[..]].concat());
    until(&mut server.stderr, "sending back what comes to UDP port 7000");
    let client = wire.socket((THEIRS, 0));
    client.connect((OURS, 7000)).unwrap();
    for len in [0, 1, 1472, 9000] {
        let bytes = vec![len as u8; len];
        client.send(&bytes).unwrap();
        let mut answer = [0; 65_507];
        let answered = client.recv(&mut answer).unwrap();
        assert!(answer[..answered] == bytes[..], "{len} bytes came back as {answered}");
    }
    // Another echo server would reply for ever.
    wire.socket((THEIRS, 7000)).send_to(b"echo", (OURS, 7000)).unwrap();
    let report = measured(&wire.far, "10.9.0.1", &[&["--udp", "7000", "--count", "20"]]);
    check_all_answered(&report["paths"][0], "kernel", 20);
    if has_program(TEST, "ping") {
        let output = wire.far.command("ping", &["-c", "5", "-i", "0.01", "10.9.0.1"]).unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("5 received"), "{output:?}");
    }
    assert_eq!(server.interrupt(), ("24 datagrams sent back, 1 not\n".to_owned(), Some(0)));
}

#[test]
fn two_queues_measure_each_other() {
    let Some(wire) = Wire::new("two_queues_measure_each_other") else { return };
    share(&wire);
    let mut server = Running::start(&wire.far, &["--serve", "--via", FAR]);
    until(&mut server.stderr, "sending back what comes to UDP port 7");
    let report = measured(&wire.near, "10.9.0.2", &[&["--udp", "7", "--via", NEAR, "--count", "50"]]);
    check_all_answered(&report["paths"][0], NEAR, 50);
    assert_eq!(server.interrupt(), ("50 datagrams sent back, 0 not\n".to_owned(), Some(0)));
}

#[test]
fn interrupt_prints_the_summary_so_far() {
    let Some(wire) = Wire::new("interrupt_prints_the_summary_so_far") else { return };
    let mut running = Running::start(&wire.near, &[&["10.9.0.2", "--interval", "100ms"], &OWN[..]].concat());
    let begin = until(&mut running.stdout, "seq=1 ttl=64");
    assert!(begin.starts_with("ICMP echo of 10.9.0.2, 56 bytes, timed by ") && begin.contains("seq=0"), "{begin}");
    let (summary, code) = running.interrupt();
    assert_eq!(code, Some(0), "{summary}");
    for part in [" received, ", "round trip: min ", "###"] {
        assert!(summary.contains(part), "{part} is not in:\n{summary}");
    }
}
