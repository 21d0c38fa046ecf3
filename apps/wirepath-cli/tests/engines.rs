//! Programs of several threads under `wirepath run --engines`: each thread's sockets live on an
//! engine of its own, and what threads share works as on the kernel.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
use wirepath_tests::live::preload::{call, compile, counter_of, echo, library, text, until_it_listens, wire};
use wirepath_tests::live::{FAR, NEAR, OURS, THEIRS, TIMEOUT, Wire, has_program, wait_until};

/// A wire, and the folder of a broker's socket and of the listings.
struct Rig {
    wire: Wire,
    folder: TempDir,
}

impl Rig {
    fn new(test: &str) -> Option<Self> {
        let wire = wire(test, &[])?;
        echo(&wire);
        Some(Self { wire, folder: tempfile::tempdir().unwrap() })
    }

    /// The same over a cable of two queues in each direction. Its far end chooses the queue of a
    /// connection by a hash of its own, and by another one after a timeout, which no NIC does.
    fn of_two_queues(test: &str) -> Option<Self> {
        let wire = Wire::new(test)?;
        let queues = "numtxqueues 2 numrxqueues 2";
        wire.near.ip(&["link", "del", NEAR]).unwrap();
        let pair = format!("link add {NEAR} {queues} type veth peer name {FAR} netns {} {queues}", wire.far.name());
        wire.near.ip(&pair.split(' ').collect::<Vec<_>>()).unwrap();
        for (end, name, address) in [(&wire.near, NEAR, OURS), (&wire.far, FAR, THEIRS)] {
            end.ip(&["link", "set", name, "up"]).unwrap();
            end.ip(&["addr", "add", &format!("{address}/24"), "dev", name]).unwrap();
        }
        wire.far.run(|| fs::write("/proc/sys/net/core/txrehash", "0")).unwrap();
        echo(&wire);
        Some(Self { wire, folder: tempfile::tempdir().unwrap() })
    }

    /// A broker at the path of [`command`](Self::command) that lends the queues of the NIC.
    fn lend(&self) -> Ended {
        let (socket, shm) = (self.folder.path().join("socket"), self.folder.path().join("shm"));
        fs::create_dir_all(&shm).unwrap();
        // One that was killed has left it.
        let _ = fs::remove_file(&socket);
        let mut broker = Command::new(env!("CARGO_BIN_EXE_wirepath"));
        broker.args(["broker", "--interface", NEAR, "--uid", "0", "--socket"]).arg(&socket);
        broker.env("WIREPATH_SHM", shm).stderr(Stdio::null());
        let broker = Ended(self.wire.near.run(|| broker.spawn()).unwrap());
        wait_until("the broker listens", || socket.exists());
        broker
    }

    /// `wirepath run` of a program with so many engines.
    fn command(&self, engines: u32, program: &[&str]) -> Command {
        self.command_with(["--engines", &engines.to_string()], program)
    }

    fn command_with(&self, option: [&str; 2], program: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
        command.args(["run", "--interface", NEAR, "--policy", "refuse"]).args(option);
        command.arg("--broker").arg(self.folder.path().join("socket")).arg("--").args(program);
        command.env("WIREPATH_PRELOAD", library()).env("WIREPATH_SHM", self.folder.path().join("shm"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, engines: u32, program: &[&str]) -> Ended {
        let mut command = self.command(engines, program);
        Ended(self.wire.near.run(|| command.spawn()).unwrap())
    }

    /// The offloaded TCP sockets of the one program that is listed.
    fn streams(&self) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
        command.args(["sockets", "--json"]).env("WIREPATH_SHM", self.folder.path().join("shm"));
        let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap_or_default();
        let sockets = report["processes"][0]["sockets"].as_array().cloned().unwrap_or_default();
        sockets.into_iter().filter(|socket| socket["protocol"] == "tcp" && !socket["engine"].is_null()).collect()
    }

    /// Waits until a server listens on four engines, one after the other.
    fn until_it_listens(&self, port: u16) {
        until_it_listens(&self.wire, port);
        wait_until("each engine listens", || self.engines_of("listen") == (0..4).collect());
    }

    /// The engines of those in a state.
    fn engines_of(&self, state: &str) -> BTreeSet<u64> {
        let streams = self.streams().into_iter().filter(|socket| socket["state"] == state);
        streams.filter_map(|socket| socket["engine"].as_u64()).collect()
    }
}

/// A program that is killed when the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Plays a program on the kernel's sockets, and with four engines. It prints the same.
fn says_the_same(test: &str, source: &str) {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, source, directory.path()) else { return };
    let Some(rig) = Rig::new(test) else { return };
    let peer = THEIRS.to_string();
    let kernel = rig.wire.near.command(&program, &[&peer]).unwrap();
    let mut command = rig.command(4, &["timeout", "--kill-after=5", "240", &program, &peer]);
    command.stdin(Stdio::null());
    let before = counter_of(&rig.wire.near, "Tcp:", "InSegs");
    let ours: Output = rig.wire.near.run(|| command.output()).unwrap();
    let by_kernel = counter_of(&rig.wire.near, "Tcp:", "InSegs") - before;
    assert_eq!(text(&kernel), text(&ours), "the kernel's (left) and ours (right)");
    assert!(by_kernel < 30, "{by_kernel} segments went by the kernel");
}

/// Forty callers, whose words come back to each.
fn served(wire: &Wire, port: u16) -> Vec<TcpStream> {
    let mut sockets: Vec<TcpStream> = (0..40).map(|_| call(&wire.far, port).unwrap()).collect();
    for round in 0..3 {
        sockets.iter_mut().enumerate().for_each(|(number, socket)| write!(socket, "{number:02} {round}").unwrap());
        for (number, socket) in sockets.iter_mut().enumerate() {
            let mut bytes = [0; 4];
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, format!("{number:02} {round}").as_bytes());
        }
    }
    sockets
}

#[test]
fn sockets_of_four_threads_in_one_set_and_one_poll_answer_as_on_the_kernel() {
    says_the_same("sockets_of_four_threads_in_one_set_and_one_poll_answer_as_on_the_kernel", "threads.c");
}

#[test]
fn waits_of_threads_and_sets_end_as_on_the_kernel_with_four_engines() {
    says_the_same("waits_of_threads_and_sets_end_as_on_the_kernel_with_four_engines", "waits.c");
}

#[test]
fn calls_return_what_they_return_on_the_kernels_sockets_with_four_engines() {
    says_the_same("calls_return_what_they_return_on_the_kernels_sockets_with_four_engines", "calls.c");
}

/// Threads that share a listener serve each connection, wherever it lives.
fn shared_listener_serves(test: &str, part: &str) {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "threads.c", directory.path()) else { return };
    let Some(rig) = Rig::new(test) else { return };
    let _program = rig.start(4, &[&program, &THEIRS.to_string(), part]);
    rig.until_it_listens(7_100);
    // Callers of a listener that serves them one by one come and go.
    if part == "accepts" {
        for _ in 0..40 {
            let mut socket = call(&rig.wire.far, 7_100).unwrap();
            let mut bytes = [0; 4];
            socket.write_all(b"word").unwrap();
            socket.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"word");
        }
    } else {
        let sockets = served(&rig.wire, 7_100);
        wait_until("connections live on all engines", || rig.engines_of("established") == (0..4).collect());
        drop(sockets);
    }
    assert_eq!(counter_of(&rig.wire.near, "Tcp:", "PassiveOpens"), 0, "connections that the kernel accepted");
}

#[test]
fn threads_that_accept_on_one_listener_serve_the_connections_of_all_engines() {
    shared_listener_serves("threads_that_accept_on_one_listener_serve_the_connections_of_all_engines", "accepts");
}

#[test]
fn listener_in_the_sets_of_four_threads_has_connections_on_four_engines() {
    shared_listener_serves("listener_in_the_sets_of_four_threads_has_connections_on_four_engines", "sets");
}

/// Two threads echo datagrams, each at a port of its own.
const TWO_RECEIVERS: &str = "\
import socket, sys, threading
def serve(port):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(('', port))
    bound.wait()
    while True: made.sendto(*made.recvfrom(100))
bound = threading.Barrier(3)
for port in 7301, 7302: threading.Thread(target=serve, args=(port,), daemon=True).start()
bound.wait()
print('ready', flush=True)
sys.stdin.read()
";

#[test]
fn frames_of_all_engines_are_captured_where_a_broker_passes_them_on() {
    let test = "frames_of_all_engines_are_captured_where_a_broker_passes_them_on";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::new(test) else { return };
    let mut program = rig.start(2, &["python3", "-c", TWO_RECEIVERS]);
    let mut said = BufReader::new(program.0.stdout.take().unwrap());
    let mut ready = String::new();
    said.read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let shm = rig.folder.path().join("shm");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirepath"));
    command.args(["capture", "python3", "--filter", "udp"]).env("WIREPATH_SHM", &shm);
    let mut capture = Ended(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let lines = BufReader::new(capture.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let reader = {
        let seen = Arc::clone(&seen);
        thread::spawn(move || lines.for_each(|line| _ = seen.lock().unwrap().insert(without_time(&line))))
    };
    let socket = rig.wire.socket((THEIRS, 7_300));
    let ports = [7_301, 7_302];
    let expected: BTreeSet<String> = ports
        .iter()
        .flat_map(|port| {
            let (asked, answered) =
                (format!("{THEIRS}.7300 > {OURS}.{port}"), format!("{OURS}.{port} > {THEIRS}.7300"));
            [format!("{NEAR}.0 In  IP {asked}: UDP, length 9"), format!("{NEAR}.0 Out IP {answered}: UDP, length 9")]
        })
        .collect();
    wait_until("the frames of both engines are seen", || {
        ports.iter().for_each(|port| _ = socket.send_to(b"both ways", (OURS, *port)).unwrap());
        expected.is_subset(&seen.lock().unwrap())
    });
    drop(capture);
    reader.join().unwrap();
}

/// A line of `wirepath capture` without its time.
fn without_time(line: &str) -> String {
    line.split_once(' ').map_or(line, |(_, rest)| rest).to_owned()
}

#[test]
fn file_of_rules_gives_a_program_its_engines() {
    let test = "file_of_rules_gives_a_program_its_engines";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "threads.c", directory.path()) else { return };
    let Some(rig) = Rig::new(test) else { return };
    let rules = rig.folder.path().join("rules.toml");
    fs::write(&rules, "engines = 2\n[[programs]]\nname = \"thr*\"\nengines = 4\n").unwrap();
    let mut command = rig.command_with(["--rules", rules.to_str().unwrap()], &[&program, &THEIRS.to_string(), "sets"]);
    let _program = Ended(rig.wire.near.run(|| command.spawn()).unwrap());
    rig.until_it_listens(7_100);
}

#[test]
fn program_behind_env_and_a_shell_has_the_engines_of_its_own_name() {
    let test = "program_behind_env_and_a_shell_has_the_engines_of_its_own_name";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "threads.c", directory.path()) else { return };
    let Some(rig) = Rig::new(test) else { return };
    let rules = rig.folder.path().join("rules.toml");
    fs::write(&rules, "[[programs]]\nname = \"threads\"\nengines = 4\n").unwrap();
    let words = ["env", "WORD=1", "sh", "-c", "exec \"$0\" \"$@\"", &program, &THEIRS.to_string(), "sets"];
    let mut command = rig.command_with(["--rules", rules.to_str().unwrap()], &words);
    let _program = Ended(rig.wire.near.run(|| command.spawn()).unwrap());
    rig.until_it_listens(7_100);
}

#[test]
fn memcached_with_four_threads_and_engines_answers_forty_connections() {
    let test = "memcached_with_four_threads_and_engines_answers_forty_connections";
    if !has_program(test, "memcached") {
        return;
    }
    let Some(rig) = Rig::new(test) else { return };
    let options = ["memcached", "-u", "root", "-p", "11311", "-t", "4", "-l", "0.0.0.0"];
    let _memcached = rig.start(4, &options);
    rig.until_it_listens(11_311);
    let mut sockets: Vec<TcpStream> = (0..40).map(|_| call(&rig.wire.far, 11_311).unwrap()).collect();
    for (number, socket) in sockets.iter_mut().enumerate() {
        write!(socket, "set key{number} 0 0 3\r\n{number:03}\r\n").unwrap();
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let mut stored = [0; 8];
        socket.read_exact(&mut stored).unwrap();
        assert_eq!(&stored, b"STORED\r\n");
        write!(socket, "get key{number}\r\n").unwrap();
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let expected = format!("VALUE key{number} 0 3\r\n{number:03}\r\nEND\r\n");
        let mut got = vec![0; expected.len()];
        socket.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), expected);
    }
    wait_until("connections live on all engines", || rig.engines_of("established") == (0..4).collect());
    assert_eq!(counter_of(&rig.wire.near, "Tcp:", "PassiveOpens"), 0, "connections that the kernel accepted");
}

#[test]
fn listener_has_callers_on_each_queue_that_a_broker_lends_to_its_engines() {
    let test = "listener_has_callers_on_each_queue_that_a_broker_lends_to_its_engines";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "threads.c", directory.path()) else { return };
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::of_two_queues(test) else { return };
    let broker = rig.lend();
    let server = rig.start(2, &[&program, &THEIRS.to_string(), "sets"]);
    until_it_listens(&rig.wire, 7_100);
    wait_until("each engine listens", || rig.engines_of("listen") == (0..2).collect());
    let sockets = served(&rig.wire, 7_100);
    wait_until("connections live on both engines", || rig.engines_of("established") == (0..2).collect());
    drop(sockets);
    assert_eq!(counter_of(&rig.wire.near, "Tcp:", "PassiveOpens"), 0, "connections that the kernel accepted");
    let said = ended(server);
    let sentence =
        "spreads frames over its queues, and the NIC steers none: each engine has the connections and datagrams";
    assert_eq!(said.matches(sentence).count(), 1, "{said}");

    // A broker takes queues back some time after their program has ended; a new one has them all.
    drop(broker);
    let _broker = rig.lend();
    two_listeners_at_one_port(&rig);
}

/// Two threads listen at one port, and join one group at one port, before they bind it and after:
/// the second one's calls fail, because the frames come to one queue. Before, the program has
/// connected to the far end, whose answers come on either queue.
const TWO_LISTENERS: &str = "\
import socket, sys, threading
receivers = []
one_at_a_time = threading.Lock()
def receives(port, joins_first):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receivers.append(made)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    group = socket.inet_aton('239.1.1.1') + socket.inet_aton(sys.argv[2])
    join = lambda: made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
    steps = [join, lambda: made.bind(('', port))]
    try: [step() for step in (steps if joins_first else steps[::-1])]
    except OSError as error: return error.errno
    return 0
def serve():
    with one_at_a_time: print(receives(7201, False), receives(7202, True), flush=True)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(('', 7200))
    listener.listen(64)
    listen.wait()
    while True: listener.accept()[0].sendall(b'word')
listen = threading.Barrier(3)
for number in range(8):
    stream = socket.create_connection((sys.argv[1], 7000))
    stream.sendall(b'word')
    print(stream.recv(4).decode(), flush=True)
for number in range(2): threading.Thread(target=serve, daemon=True).start()
listen.wait()
print('ready', flush=True)
sys.stdin.read()
";

fn two_listeners_at_one_port(rig: &Rig) {
    let addresses = [THEIRS.to_string(), OURS.to_string()];
    let mut program = rig.start(2, &["python3", "-c", TWO_LISTENERS, &addresses[0], &addresses[1]]);
    let said = BufReader::new(program.0.stdout.take().unwrap());
    let lines: Vec<String> = said.lines().map_while(Result::ok).take(11).collect();
    assert_eq!(lines, [&["word"; 8][..], &["0 0", "98 98", "ready"]].concat());
    wait_until("each engine listens", || rig.engines_of("listen") == (0..2).collect());
    for _ in 0..20 {
        let mut word = [0; 4];
        call(&rig.wire.far, 7_200).unwrap().read_exact(&mut word).unwrap();
        assert_eq!(&word, b"word");
    }
    assert_eq!(counter_of(&rig.wire.near, "Tcp:", "PassiveOpens"), 0, "connections that the kernel accepted");
    let said = ended(program);
    for sentence in [
        "its answers may come to another engine's queue: the NIC steers none",
        "and nothing copies its frames: join it in one thread, or start a broker with --forward",
    ] {
        assert_eq!(said.matches(sentence).count(), 1, "{said}");
    }
}

/// What a program has said on standard error, which ends with its standard input.
fn ended(mut program: Ended) -> String {
    let mut said = String::new();
    drop(program.0.stdin.take());
    program.0.wait().unwrap();
    program.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

#[test]
fn engines_without_a_queue_each_are_refused_in_a_sentence() {
    let test = "engines_without_a_queue_each_are_refused_in_a_sentence";
    let Some(rig) = Rig::new(test) else { return };
    // No broker at all.
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", library()).env("WIREPATH_INTERFACE", NEAR).env("WIREPATH_ENGINES", "4");
    command.env("WIREPATH_POLICY", "refuse");
    let said = text(&rig.wire.near.run(|| command.output()).unwrap());
    assert!(said.contains("each engine needs a queue of a broker: start the program by"), "{said}");
    let rules = rig.folder.path().join("rules.toml");
    fs::write(&rules, "engines = 3\n").unwrap();
    let mut by_rules = Command::new("true");
    by_rules.env("LD_PRELOAD", library()).env("WIREPATH_INTERFACE", NEAR).env("WIREPATH_RULES", &rules);
    by_rules.env("WIREPATH_POLICY", "refuse");
    let said = text(&rig.wire.near.run(|| by_rules.output()).unwrap());
    assert!(said.contains("engines in the file of rules is 3, and each engine needs a queue"), "{said}");
    // One that lends the queues of the NIC, which has one.
    let _broker = rig.lend();
    let socket = rig.folder.path().join("socket");
    let said = text(&rig.wire.near.run(|| command.env("WIREPATH_BROKER", &socket).output()).unwrap());
    assert!(said.contains("start the broker with --forward, or have the NIC use more queues"), "{said}");
}
