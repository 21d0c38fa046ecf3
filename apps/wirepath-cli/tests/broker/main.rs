//! `wirepath broker` and `wirepath run` by a user without capabilities: programs of the
//! distribution, against the kernel at the other end of a wire.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

mod connectx;
mod faults;
mod forks;
mod handovers;
mod losses;
mod returns;
mod rights;
mod starts;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use tempfile::TempDir;
use wirepath_tests::live::preload::{counter_of, library};
use wirepath_tests::live::programs::serve_pages;
use wirepath_tests::live::{FAR, NEAR, OURS, Program, THEIRS, TIMEOUT, Wire, has_program, wait_until};

/// A user that is served, and one that is not; no machine gives them a name.
const SERVED: u32 = 64_321;
const STRANGER: u32 = 64_322;

/// A wire, and a broker for its near end.
struct Rig {
    wire: Wire,
    /// The tool and the library, where every user may read them.
    folder: TempDir,
    /// As programs name it.
    port: String,
    broker: Child,
    log: Receiver<String>,
}

impl Rig {
    fn new(test: &str) -> Option<Self> {
        Self::with(test, &[])
    }

    /// With more options of the broker.
    fn with(test: &str, options: &[&str]) -> Option<Self> {
        Self::on(test, NEAR, &[], options)
    }

    /// On a port of this name at the near end: a ConnectX is one of software, with options of its
    /// own.
    fn on(test: &str, port: &str, of_nic: &[&str], options: &[&str]) -> Option<Self> {
        if !has_program(test, "socat") {
            return None;
        }
        let wire = Wire::new(test)?;
        wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        // By another process: a child that another test forks meanwhile would have the copy open
        // for writing until it is another program, and the kernel starts no such file (ETXTBSY).
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_wirepath")).arg(library()).arg(folder.path());
        assert!(copy.status().unwrap().success(), "{copy:?}");
        let (broker, log) = start_broker_on(&wire, &folder, port, of_nic, options);
        Some(Self { wire, folder, port: port.into(), broker, log })
    }

    /// `wirepath run` of a program by a user.
    fn command(&self, uid: u32, program: &[&str]) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(path("wirepath"));
        command
            .args(["run", "--interface", &self.port, "--policy", "refuse", "--broker"])
            .arg(path("socket"))
            .arg("--");
        command.args(program).uid(uid).gid(uid).current_dir("/").env("WIREPATH_SHM", path("shm"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, uid: u32, program: &[&str]) -> Child {
        let mut command = self.command(uid, program);
        self.wire.near.run(|| command.spawn()).unwrap()
    }

    /// Starts a program, and gives it a line to send.
    fn talk(&self, program: &[&str], line: &str) -> String {
        let mut child = self.start(SERVED, program);
        writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
        let output = end(child);
        assert!(answer.ends_with('\n'), "no answer: {}", String::from_utf8_lossy(&output.stderr));
        answer.trim_end().to_owned()
    }

    /// Kills the broker, and waits until nobody listens: over a ConnectX of software the killed
    /// process is the parent of the broker, which the kernel then kills as well.
    fn kill_broker(&mut self) {
        self.broker.kill().unwrap();
        self.broker.wait().unwrap();
        let socket = self.folder.path().join("socket");
        wait_until("nobody listens at the broker's socket", || {
            let sockets = self.wire.near.run(|| fs::read_to_string("/proc/thread-self/net/unix")).unwrap();
            !sockets.contains(socket.to_str().unwrap())
        });
    }

    /// Waits until the broker's log has these words.
    fn until_logged(&self, words: &str) {
        let mut others = Vec::new();
        while let Ok(line) = self.log.recv_timeout(TIMEOUT) {
            if line.contains(words) {
                return;
            }
            others.push(line);
        }
        panic!("the broker's log has no {words:?} in {others:#?}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}

/// A broker that listens.
fn start_broker(wire: &Wire, folder: &TempDir, port: &str, options: &[&str]) -> (Child, Receiver<String>) {
    start_broker_on(wire, folder, port, &[], options)
}

/// The same on a ConnectX with options of its own.
fn start_broker_on(
    wire: &Wire,
    folder: &TempDir,
    port: &str,
    of_nic: &[&str],
    options: &[&str],
) -> (Child, Receiver<String>) {
    let shm = folder.path().join("shm");
    fs::create_dir_all(&shm).unwrap();
    fs::set_permissions(&shm, Permissions::from_mode(0o1777)).unwrap();
    let wirepath = folder.path().join("wirepath");
    let mut command = match port.starts_with("mlx5:") {
        true => softhca::testing::command(&[&["--wire", NEAR], of_nic].concat()).unwrap(),
        false => Command::new(&wirepath),
    };
    command.args(port.starts_with("mlx5:").then_some(wirepath));
    command.args(["broker", "--interface", port]).args(options);
    if !options.contains(&"--rules") {
        command.args(["--uid", &SERVED.to_string()]);
    }
    command.arg("--socket").arg(folder.path().join("socket")).env("WIREPATH_SHM", shm).stderr(Stdio::piped());
    let mut broker = wire.near.run(|| command.spawn()).unwrap();
    let (lines, log) = channel();
    let said = BufReader::new(broker.stderr.take().unwrap());
    thread::spawn(move || said.lines().map_while(Result::ok).all(|line| lines.send(line).is_ok()));
    let first = log.recv_timeout(TIMEOUT).unwrap();
    assert!(first.contains(&format!("{NEAR}, mtu 1500")) || first.contains(&format!("interface {NEAR}")), "{first}");
    (broker, log)
}

/// Ends a program that is still there.
fn end(mut child: Child) -> Output {
    drop(child.stdin.take());
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// Echoes at the far end: TCP and UDP port 7000.
fn echo(wire: &Wire) {
    let (listener, socket) =
        wire.far.run(|| (TcpListener::bind((THEIRS, 7_000)).unwrap(), UdpSocket::bind((THEIRS, 7_000)).unwrap()));
    thread::spawn(move || {
        // Side by side: a connection whose other end is gone without a word stays.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 256];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    stream.write_all(&bytes[..len]).unwrap();
                }
            });
        }
    });
    thread::spawn(move || {
        let mut bytes = [0; 256];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..len], from);
        }
    });
}

/// Segments and datagrams that the near kernel has received.
fn received_by_kernel(wire: &Wire, protocol: &str, name: &str) -> u64 {
    let tables = wire.near.run(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap();
    let mut lines = tables.lines().filter(|line| line.starts_with(protocol)).map(str::split_whitespace);
    let (mut names, mut values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.position(|found| found == name).unwrap();
    values.nth(place).unwrap().parse().unwrap()
}

#[test]
fn program_without_capabilities_talks_tcp_and_udp_past_the_kernel() {
    let test = "program_without_capabilities_talks_tcp_and_udp_past_the_kernel";
    let Some(rig) = Rig::new(test) else { return };
    echo(&rig.wire);
    assert_eq!(rig.talk(&["socat", "-", &format!("TCP:{THEIRS}:7000")], "by tcp"), "by tcp");
    assert_eq!(rig.talk(&["socat", "-", &format!("UDP:{THEIRS}:7000")], "by udp"), "by udp");
    let server = rig.start(SERVED, &["socat", "TCP-LISTEN:7005,reuseaddr", "PIPE"]);
    let mut called = None;
    wait_until("the server listens", || {
        called = rig.wire.far.run(|| TcpStream::connect((OURS, 7_005))).ok();
        called.is_some()
    });
    let mut stream = called.unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"from afar").unwrap();
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"from afar");
    end(server);
    assert_eq!(received_by_kernel(&rig.wire, "Udp:", "InDatagrams"), 0, "datagrams that the kernel got");
}

#[test]
fn killed_program_leaves_its_queue_and_its_port_to_the_next() {
    let test = "killed_program_leaves_its_queue_and_its_port_to_the_next";
    let Some(rig) = Rig::new(test) else { return };
    echo(&rig.wire);
    let talk = |port: u16, line: &str| {
        let peer = format!("UDP:{THEIRS}:7000,bind={OURS}:{port}");
        let mut child = rig.start(SERVED, &["socat", "-", &peer]);
        writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), line);
        child
    };
    let mut first = talk(7_010, "first");
    let second = rig.start(SERVED, &["socat", "-", &format!("UDP:{THEIRS}:7000")]);
    let said = String::from_utf8(second.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains(&format!("all queues of {NEAR} are lent, 1 in number, to process ")), "{said}");
    // SIGKILL, and at once the next.
    first.kill().unwrap();
    first.wait().unwrap();
    end(talk(7_010, "next"));
    rig.until_logged("has ended, and its queue is free");
}

#[test]
fn user_that_is_not_served_is_refused_in_a_sentence() {
    let test = "user_that_is_not_served_is_refused_in_a_sentence";
    let Some(rig) = Rig::new(test) else { return };
    let output = rig.start(STRANGER, &["true"]).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let refusal = format!("wirepath: the broker does not serve user {STRANGER}: start it with --uid {STRANGER}");
    assert!(said.starts_with(&refusal) && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(1));
    rig.until_logged(&format!("of user {STRANGER} is refused"));
}

#[test]
fn low_port_is_refused_and_port_of_another_user_gives_groups_alone() {
    let test = "low_port_is_refused_and_port_of_another_user_gives_groups_alone";
    let Some(rig) = Rig::new(test) else { return };
    // The kernel lets any user of this namespace bind it; the broker does not.
    rig.wire.near.run(|| fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0").unwrap());
    refused(&rig, "UDP-RECV:700");
    rig.until_logged(&format!("port 700 is not for user {SERVED}: start the broker with --uid {SERVED}:700"));
    // Root's socket, which shares its port with every user's that asks for it.
    let _root = rig.wire.near.run(|| {
        let mut command = Command::new("socat");
        command.args(["-u", "UDP-RECV:7020,reuseaddr", "-"]).stdout(Stdio::null());
        Ended(command.spawn().unwrap())
    });
    let is_bound = || {
        let table = rig.wire.near.run(|| fs::read_to_string("/proc/thread-self/net/udp")).unwrap();
        table.contains(&format!(":{:04X} ", 7_020))
    };
    wait_until("root has bound its port", is_bound);
    // The kernel lets it bind beside the other, for their groups. What is sent to the port itself
    // stays the other's, and the second one is told so.
    let mut second = Ended(rig.start(SERVED, &["socat", "-u", "UDP-RECV:7020,reuseaddr", "-"]));
    let mut said = BufReader::new(second.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("its groups alone")), "the second receiver has ended without the sentence");
    rig.until_logged(&format!("is refused: port {OURS}:7020 is user 0's in the kernel"));
}

/// A program that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A receiver whose `bind` fails.
fn refused(rig: &Rig, receiver: &str) {
    let output = rig.start(SERVED, &["socat", "-u", receiver, "-"]).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("bind("), "{said}");
}

#[test]
fn program_is_told_where_there_is_no_broker() {
    let test = "program_is_told_where_there_is_no_broker";
    let Some(mut rig) = Rig::new(test) else { return };
    rig.broker.kill().unwrap();
    rig.broker.wait().unwrap();
    let output = rig.start(SERVED, &["true"]).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("has ended: start `wirepath broker"), "{said}");
    // Another takes the place of one that was killed.
    (rig.broker, rig.log) = start_broker(&rig.wire, &rig.folder, NEAR, &[]);
    assert!(rig.start(SERVED, &["true"]).wait_with_output().unwrap().status.success());
    rig.broker.kill().unwrap();
    rig.broker.wait().unwrap();
    fs::remove_file(rig.folder.path().join("socket")).unwrap();
    let output = rig.start(SERVED, &["true"]).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no broker listens at"), "{said}");
}

/// Calls the echo, and again for each line that it reads; says how each receive ends.
const CALLS_AGAIN: &str = "\
import errno, socket, sys
def call():
    stream = socket.create_connection((sys.argv[1], 7000))
    stream.sendall(b'echo')
    print(len(stream.recv(4)), flush=True)
    return stream
stream = call()
for line in sys.stdin:
    call()
try: print(len(stream.recv(4)))
except OSError as error: print(errno.errorcode[error.errno], flush=True)
call()
";

/// Such a program once it is connected, and what it says.
fn caller(rig: &Rig) -> (Child, BufReader<ChildStdout>) {
    echo(&rig.wire);
    let mut child = rig.start(SERVED, &["python3", "-c", CALLS_AGAIN, &THEIRS.to_string()]);
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let first = next_line(&mut said);
    assert!(first == "4\n", "{first:?}: {}", String::from_utf8_lossy(&end(child).stderr));
    (child, said)
}

fn next_line(said: &mut BufReader<impl Read>) -> String {
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    line
}

#[test]
fn connections_end_and_new_ones_are_the_kernels_when_the_broker_ends() {
    let test = "connections_end_and_new_ones_are_the_kernels_when_the_broker_ends";
    if !has_program(test, "python3") {
        return;
    }
    let Some(mut rig) = Rig::new(test) else { return };
    let (mut child, mut said) = caller(&rig);
    drop(child.stdin.take());
    rig.broker.kill().unwrap();
    rig.broker.wait().unwrap();
    assert_eq!((next_line(&mut said), next_line(&mut said)), ("ENETDOWN\n".into(), "4\n".into()));
    let output = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(output.contains(&format!("the broker of {NEAR} has ended, and its program with it")), "{output}");
}

#[test]
fn connection_is_the_kernels_where_the_broker_does_not_answer() {
    let test = "connection_is_the_kernels_where_the_broker_does_not_answer";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::new(test) else { return };
    let (mut child, mut said) = caller(&rig);
    let stop = Command::new("kill").args(["-STOP", &rig.broker.id().to_string()]).status();
    assert!(stop.unwrap().success());
    writeln!(child.stdin.as_mut().unwrap(), "again").unwrap();
    assert_eq!(next_line(&mut said), "4\n");
    drop(child.stdin.take());
    assert_eq!((next_line(&mut said), next_line(&mut said)), ("ENETDOWN\n".into(), "4\n".into()));
    let output = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(output.contains(&format!("the broker of {NEAR} does not answer")), "{output}");
}

#[test]
fn workers_connect_to_one_peer_while_connections_of_each_other_end() {
    let test = "workers_connect_to_one_peer_while_connections_of_each_other_end";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    echo(&rig.wire);
    // Few ports for the kernel to choose from, of which the first program leaves one: its others
    // are those of connections that it has closed, and are free in the kernel.
    rig.wire.near.run(|| fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003").unwrap());
    let program = "import socket, sys\n\
                   for _ in range(int(sys.argv[2])):\n\
                   \x20   with socket.create_connection((sys.argv[1], 7000)) as stream:\n\
                   \x20       stream.sendall(b'echo'); print(len(stream.recv(4)), flush=True)\n\
                   sys.stdin.read()\n";
    let start = |count: &str| {
        let mut child = rig.start(SERVED, &["python3", "-c", program, &THEIRS.to_string(), count]);
        let said = BufReader::new(child.stdout.take().unwrap());
        (Ended(child), said)
    };
    let (_first, mut said) = start("3");
    (0..3).for_each(|_| assert_eq!(next_line(&mut said), "4\n"));
    let (_second, mut said) = start("1");
    assert_eq!(next_line(&mut said), "4\n");
}

/// An echo server of TCP, once the far end reaches it.
fn server(rig: &Rig, uid: u32, port: u16) -> (Ended, TcpStream) {
    let server = Ended(rig.start(uid, &["socat", &format!("TCP-LISTEN:{port},reuseaddr"), "PIPE"]));
    let mut called = None;
    wait_until("the server listens", || {
        called = rig.wire.far.run(|| TcpStream::connect((OURS, port))).ok();
        called.is_some()
    });
    let stream = called.unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    (server, stream)
}

fn say(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).unwrap();
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, words);
}

#[test]
fn programs_of_two_users_share_one_queue_and_the_end_of_one_disturbs_no_other() {
    let test = "programs_of_two_users_share_one_queue_and_the_end_of_one_disturbs_no_other";
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    echo(&rig.wire);
    let (mut first, mut to_first) = server(&rig, SERVED, 7_030);
    let (_second, mut to_second) = server(&rig, 0, 7_031);
    say(&mut to_first, b"first");
    say(&mut to_second, b"second");
    assert_eq!(rig.talk(&["socat", "-", &format!("UDP:{THEIRS}:7000")], "a third"), "a third");
    // It is killed while frames for it are on the way.
    to_first.write_all(&[7; 100_000]).unwrap();
    first.0.kill().unwrap();
    for _ in 0..100 {
        say(&mut to_second, &[9; 5_000]);
    }
    rig.until_logged("has ended, and its queue is free");
    // Its port is free for the next, and what the kernel would have answered, it did not.
    let (_third, mut to_third) = server(&rig, SERVED, 7_030);
    say(&mut to_third, b"third");
    assert_eq!(received_by_kernel(&rig.wire, "Tcp:", "PassiveOpens"), 0);
}

#[test]
fn rules_of_a_file_decide_who_may_have_what_and_are_read_again_at_a_hangup() {
    let test = "rules_of_a_file_decide_who_may_have_what_and_are_read_again_at_a_hangup";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let socat = Command::new("sh").args(["-c", "readlink -f \"$(command -v socat)\""]).output().unwrap().stdout;
    let socat = String::from_utf8(socat).unwrap();
    let rule = |ports: &str| {
        let who = format!("user = {SERVED}\nprogram = '{}'\ninterface = '{NEAR}'", socat.trim());
        fs::write(&file, format!("[[allow]]\n{who}\nports = '{ports}'\nqueues = 1\n")).unwrap();
    };
    rule("udp 7030-7039");
    let Some(rig) = Rig::with(test, &["--forward", "--rules", file.to_str().unwrap()]) else { return };
    let hang_up = || {
        let broker = rig.broker.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &broker]).status().unwrap().success());
    };
    let until_answered = |port: u16| {
        // One for each port: under load the last one's answers come late.
        let socket = rig.wire.far.run(|| UdpSocket::bind((THEIRS, 0)).unwrap());
        socket.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        wait_until("the server answers", || {
            socket.send_to(b"word", (OURS, port)).is_ok() && socket.recv(&mut [0; 8]).is_ok()
        });
        // While it is open: an answer to a word of before finds no closed port, which would end the
        // server by ECONNREFUSED.
        socket
    };

    // Another program of the same user, and another user.
    let said = rig.start(SERVED, &["true"]).wait_with_output().unwrap().stderr;
    let says = format!("the broker does not serve user {SERVED} in /usr/bin/");
    assert!(String::from_utf8_lossy(&said).contains(&says), "{}", String::from_utf8_lossy(&said));
    rig.until_logged(&says);
    let said = rig.start(STRANGER, &["true"]).wait_with_output().unwrap().stderr;
    assert!(String::from_utf8_lossy(&said).contains("does not serve user"), "{}", String::from_utf8_lossy(&said));
    refused(&rig, "UDP-RECV:7040");
    rig.until_logged("rule 1 of rules.toml gives no UDP port 7040: add it there to `ports`, and reload");
    let first = rig.start(SERVED, &["socat", "UDP-LISTEN:7030", "PIPE"]);
    let _first_caller = until_answered(7_030);
    let second = rig.start(SERVED, &["socat", "-u", "UDP-RECV:7031", "-"]).wait_with_output().unwrap();
    assert!(!second.status.success());
    rig.until_logged("rule 1 of rules.toml gives 1 queues at a time, and they are lent to process ");

    rule("udp 7040-7049");
    hang_up();
    rig.until_logged("`: rule 1 of rules.toml gives no UDP port 7030");
    rig.until_logged("the new rules are in force");
    // Its socket says so once, which ends a socat; and only then there is a queue for the next.
    let name = format!("process {} of user {SERVED}", first.id());
    let ended = first.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("Permission denied"), "{said}");
    rig.until_logged(&format!("{name} has ended, and its queue is free"));
    let next = Ended(rig.start(SERVED, &["socat", "UDP-LISTEN:7040", "PIPE"]));
    let _next_caller = until_answered(7_040);
    fs::write(&file, "[[allow]]\nuser = 1\nports = 'udp'\n").unwrap();
    hang_up();
    rig.until_logged("rules.toml line 3, column 9: expected a port or a range");
    fs::write(&file, "").unwrap();
    hang_up();
    rig.until_logged("is served no longer: the broker does not serve user");
    drop(next);
}

#[test]
fn stopped_program_disturbs_no_other() {
    let test = "stopped_program_disturbs_no_other";
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    let first = Ended(rig.start(SERVED, &["socat", "-u", "UDP-RECV:7032", "-"]));
    wait_until("it has its port", || {
        let table = rig.wire.near.run(|| fs::read_to_string("/proc/thread-self/net/udp")).unwrap();
        table.contains(&format!(":{:04X} ", 7_032))
    });
    let (_second, mut to_second) = server(&rig, SERVED, 7_033);
    let stop = |signal: &str| {
        assert!(Command::new("kill").args([signal, &first.0.id().to_string()]).status().unwrap().success());
    };
    stop("-STOP");
    let socket = rig.wire.far.run(|| UdpSocket::bind((THEIRS, 0)).unwrap());
    for _ in 0..100 {
        // More, all in all, than its rings hold.
        (0..50).for_each(|_| _ = socket.send_to(&[7; 100], (OURS, 7_032)));
        say(&mut to_second, &[9; 5_000]);
    }
    stop("-CONT");
}

/// The worker that answers a request.
fn worker_of(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let (mut head, mut lines) = (String::new(), BufReader::new(stream));
    while !head.ends_with("\r\n\r\n") {
        lines.read_line(&mut head).ok().filter(|len| *len > 0)?;
    }
    let mut pid = String::new();
    lines.read_line(&mut pid).ok()?;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    Some(pid.trim().to_owned())
}

/// The worker that answers a new connection.
fn worker(rig: &Rig) -> Option<String> {
    let address = (OURS, 7_080).into();
    rig.wire
        .far
        .run(|| TcpStream::connect_timeout(&address, TIMEOUT))
        .ok()
        .and_then(|mut stream| worker_of(&mut stream))
}

/// Waits until two workers that are not in `others` have answered.
fn two_workers(rig: &Rig, others: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    wait_until("two workers answer", || {
        found.extend(worker(rig).filter(|worker| !others.contains(worker)));
        found.len() == 2
    });
    found
}

#[test]
fn two_workers_of_nginx_each_serve_their_share_past_the_kernel_also_after_a_reload() {
    let test = "two_workers_of_nginx_each_serve_their_share_past_the_kernel_also_after_a_reload";
    if !has_program(test, "nginx") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    let (folder, config) = (rig.folder.path().display(), rig.folder.path().join("nginx.conf"));
    let words = format!(
        "daemon off; user root; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; sendfile on; keepalive_timeout 600; upstream far {{ server {THEIRS}:8081; keepalive 4; }}\n\
         server {{ listen 7080; location / {{ return 200 \"$pid\\n\"; }} location /file {{ root {folder}; }}\n\
         location /far {{ proxy_pass http://far; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n"
    );
    fs::write(&config, words).unwrap();
    fs::write(rig.folder.path().join("file"), vec![b'f'; 300_000]).unwrap();
    serve_pages(&rig.wire, 8_081, 50_000);
    let mut nginx = Ended(rig.start(0, &["nginx", "-c", config.to_str().unwrap()]));
    // The parent listens until it forks, and then nobody does until a worker waits.
    let workers = two_workers(&rig, &BTreeSet::new());
    reload_moves_no_connection(&rig, &mut nginx, &workers, || connections_stay_open(&rig));
}

/// By one connection to nginx, which sends a file and hands requests on: by one of its own, which
/// it keeps, past the kernel.
fn connections_stay_open(rig: &Rig) {
    let opened = || {
        let count = |namespace, name| counter_of(namespace, "Tcp:", name);
        (count(&rig.wire.near, "ActiveOpens"), count(&rig.wire.far, "PassiveOpens"))
    };
    let mut stream = rig.wire.far.run(|| TcpStream::connect((OURS, 7_080))).unwrap();
    let (by_kernel, accepted) = opened();
    for _ in 0..4 {
        assert!(page(&mut stream, "/file") == [b'f'; 300_000], "other bytes of a file");
        assert!(page(&mut stream, "/far") == [b'x'; 50_000], "other bytes of the server behind nginx");
    }
    assert_eq!(
        opened(),
        (by_kernel, accepted + 1),
        "connections that the kernel opened, and those that the far end took"
    );
}

/// The body of a page, by a connection that stays open.
fn page(stream: &mut TcpStream, path: &str) -> Vec<u8> {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (mut head, mut lines) = (String::new(), BufReader::new(stream));
    while !head.ends_with("\r\n\r\n") {
        assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    let mut body = vec![0; len.unwrap_or_else(|| panic!("{head}"))];
    lines.read_exact(&mut body).unwrap();
    body
}

/// Connections of before, held while `hold` runs and over a reload of nginx, stay with their
/// worker; new ones are the new workers', and the kernel accepts none. Ends nginx.
fn reload_moves_no_connection(rig: &Rig, nginx: &mut Ended, workers: &BTreeSet<String>, hold: impl FnOnce()) {
    let mut kept: Vec<TcpStream> =
        (0..8).map(|_| rig.wire.far.run(|| TcpStream::connect((OURS, 7_080))).unwrap()).collect();
    let before: Vec<Option<String>> = kept.iter_mut().map(worker_of).collect();
    hold();
    for (stream, worker) in kept.iter_mut().zip(&before) {
        assert!(worker.is_some() && worker_of(stream) == *worker, "a connection stays where it is");
    }
    assert!(Command::new("kill").args(["-HUP", &nginx.0.id().to_string()]).status().unwrap().success());
    let next = two_workers(rig, workers);
    for _ in 0..40 {
        assert!(worker(rig).is_some_and(|worker| next.contains(&worker)));
    }
    assert_eq!(received_by_kernel(&rig.wire, "Tcp:", "PassiveOpens"), 0, "connections that the kernel accepted");
    assert_eq!(Command::new("kill").args(["-QUIT", &nginx.0.id().to_string()]).status().unwrap().code(), Some(0));
    drop(kept);
    wait_until("nginx ends", || nginx.0.try_wait().unwrap().is_some());
}

/// A program that `wirepath run` starts as root at the near end, with more options.
fn start_of_root(wire: &Wire, folder: &TempDir, options: &[&str], program: &[&str]) -> Child {
    let mut command = command_of_root(folder, options, program);
    wire.near.run(|| command.spawn()).unwrap()
}

fn command_of_root(folder: &TempDir, options: &[&str], program: &[&str]) -> Command {
    let path = |name: &str| folder.path().join(name);
    let mut command = Command::new(path("wirepath"));
    command.args(["run", "--interface", NEAR, "--policy", "refuse"]).args(options);
    command.arg("--broker").arg(path("socket")).arg("--").args(program);
    command.current_dir("/").env("WIREPATH_SHM", path("shm"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A sender that `wirepath run --share` starts as root, with more options.
fn sharer(rig: &Rig, options: &[&str]) -> Ended {
    let options = [&["--share"], options].concat();
    let program = start_of_root(&rig.wire, &rig.folder, &options, &["socat", "-", &format!("UDP:{THEIRS}:7000")]);
    Ended(program)
}

/// Has it send a line, which the far end answers.
fn talks(program: &mut Ended, line: &str) {
    writeln!(program.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    let mut answer = String::new();
    BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    if answer.trim_end() != line {
        let mut said = String::new();
        program.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("no answer to {line}, but {said}");
    }
}

/// The operator's broker ends; what follows has only what `wirepath run` starts.
fn without_the_operators_broker(rig: &mut Rig) {
    assert!(Command::new("kill").arg(rig.broker.id().to_string()).status().unwrap().success());
    wait_until("the operator's broker has ended", || rig.broker.try_wait().unwrap().is_some());
    assert!(!rig.folder.path().join("socket").exists());
}

#[test]
fn run_starts_a_broker_for_programs_that_share_and_it_ends_after_the_last() {
    let test = "run_starts_a_broker_for_programs_that_share_and_it_ends_after_the_last";
    let Some(mut rig) = Rig::new(test) else { return };
    echo(&rig.wire);
    without_the_operators_broker(&mut rig);
    let user = SERVED.to_string();
    let (mut first, mut second) = (sharer(&rig, &["--user", &user]), sharer(&rig, &[]));
    talks(&mut first, "first");
    talks(&mut second, "second");
    let status = fs::read_to_string(format!("/proc/{}/status", first.0.id())).unwrap();
    assert!(status.contains(&format!("Uid:\t{user}\t{user}\t{user}")), "{status}");
    assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    drop((first, second));
    wait_until("the broker has ended", || !rig.folder.path().join("socket").exists());
}

#[test]
fn broker_that_run_has_started_serves_the_users_of_later_programs() {
    let test = "broker_that_run_has_started_serves_the_users_of_later_programs";
    let Some(mut rig) = Rig::new(test) else { return };
    echo(&rig.wire);
    without_the_operators_broker(&mut rig);
    let mut programs = Vec::new();
    for options in [&[][..], &["--user", &SERVED.to_string()], &["--user", &STRANGER.to_string()]] {
        let mut program = sharer(&rig, options);
        talks(&mut program, "a line");
        programs.push(program);
    }
}

#[test]
fn operators_broker_serves_no_user_that_run_names() {
    let test = "operators_broker_serves_no_user_that_run_names";
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    let stranger = STRANGER.to_string();
    let refused = start_of_root(&rig.wire, &rig.folder, &["--share", "--user", &stranger], &["true"]);
    let output = refused.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let says = format!("wirepath: the broker does not serve user {stranger}: start it with --uid {stranger}");
    assert!(said.starts_with(&says) && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(1));
}

/// An haproxy that hands a port on, and names itself at another. It gives its listeners to who asks
/// at a socket of its name.
fn haproxy(rig: &Rig, name: &str, arguments: &[&str]) -> Ended {
    let config = rig.folder.path().join(name);
    let words = format!(
        "global\n  nbthread 1\n  stats socket {}.sock level admin expose-fd listeners\n\
         defaults\n  timeout connect 30s\n  timeout client 60s\n  timeout server 60s\n\
         listen echo\n  mode tcp\n  bind :7100\n  server far {THEIRS}:7000\n\
         listen name\n  mode http\n  bind :7080\n  \
         http-request return status 200 content-type text/plain string {name}\n",
        config.display()
    );
    fs::write(&config, words).unwrap();
    Ended(rig.start(0, &[&["haproxy", "-db", "-f", config.to_str().unwrap()], arguments].concat()))
}

/// The name that an haproxy says.
fn name_of_haproxy(rig: &Rig) -> Option<String> {
    let mut stream = rig.wire.far.run(|| TcpStream::connect((OURS, 7_080))).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    Some(page.rsplit_once("\r\n\r\n")?.1.to_owned())
}

#[test]
fn haproxy_that_gets_the_listeners_of_another_serves_their_ports_and_loses_no_request() {
    let test = "haproxy_that_gets_the_listeners_of_another_serves_their_ports_and_loses_no_request";
    if !has_program(test, "haproxy") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    let mut first = haproxy(&rig, "first", &[]);
    wait_until("the first answers", || name_of_haproxy(&rig).as_deref() == Some("first"));
    let socket = rig.folder.path().join("first.sock").display().to_string();
    let _second = haproxy(&rig, "second", &["-x", &socket, "-sf", &first.0.id().to_string()]);
    let mut in_a_row = 0;
    wait_until("the second alone answers", || {
        let name = name_of_haproxy(&rig).expect("one of both answers");
        in_a_row = if name == "second" { in_a_row + 1 } else { 0 };
        in_a_row == 20
    });
    wait_until("the first ends", || first.0.try_wait().unwrap().is_some());
    assert_eq!(name_of_haproxy(&rig).as_deref(), Some("second"));
    assert_eq!(received_by_kernel(&rig.wire, "Tcp:", "PassiveOpens"), 0, "connections that the kernel accepted");
}

#[test]
fn haproxy_that_replaces_another_takes_its_ports_and_leaves_it_its_connections() {
    let test = "haproxy_that_replaces_another_takes_its_ports_and_leaves_it_its_connections";
    if !has_program(test, "haproxy") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    echo(&rig.wire);
    let ask = || name_of_haproxy(&rig);
    let mut first = haproxy(&rig, "first", &[]);
    wait_until("the first answers", || ask().as_deref() == Some("first"));
    let mut kept = rig.wire.far.run(|| TcpStream::connect((OURS, 7_100))).unwrap();
    kept.set_read_timeout(Some(TIMEOUT)).unwrap();
    let say = |kept: &mut TcpStream, words: &[u8]| {
        let mut echoed = vec![0; words.len()];
        kept.write_all(words).and_then(|()| kept.read_exact(&mut echoed)).unwrap();
        assert_eq!(echoed, words);
    };
    say(&mut kept, b"before");
    let _second = haproxy(&rig, "second", &["-sf", &first.0.id().to_string()]);
    // Both listen for a moment; then the first has stopped to.
    wait_until("the second alone answers", || (0..20).all(|_| ask().as_deref() == Some("second")));
    say(&mut kept, b"after");
    assert!(first.0.try_wait().unwrap().is_none(), "the first ended before its connection");
    drop(kept);
    wait_until("the first ends", || first.0.try_wait().unwrap().is_some());
    assert_eq!(received_by_kernel(&rig.wire, "Tcp:", "PassiveOpens"), 0, "connections that the kernel accepted");
}

#[test]
fn nginx_that_reloads_again_and_again_loses_no_request() {
    let test = "nginx_that_reloads_again_and_again_loses_no_request";
    if !has_program(test, "nginx") || !has_program(test, "ab") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    let (folder, config) = (rig.folder.path().display(), rig.folder.path().join("nginx.conf"));
    let words = format!(
        "daemon off; user root; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; server {{ listen 7080; location / {{ return 200 \"$pid\\n\"; }}\n\
         location /page {{ return 200 \"the same for all\\n\"; }} }} }}\n"
    );
    fs::write(&config, words).unwrap();
    let mut nginx = Ended(rig.start(0, &["nginx", "-c", config.to_str().unwrap()]));
    let mut workers = two_workers(&rig, &BTreeSet::new());
    let url = format!("http://{OURS}:7080/page");
    let ab = Program::start(&rig.wire.far, "ab", &["-q", "-r", "-t", "60", "-n", "1000000", "-c", "10", &url]);
    for _ in 0..3 {
        let reload = ["-s", "reload", "-c", config.to_str().unwrap()];
        assert!(rig.wire.near.command("nginx", &reload).unwrap().status.success());
        workers = two_workers(&rig, &workers);
    }
    let said = ab.interrupt();
    let count = |name: &str| -> Option<u64> {
        let line = said.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().last()?.parse().ok()
    };
    let (complete, failed) = (count("Complete requests:"), count("Failed requests:"));
    assert!(complete > Some(10) && failed == Some(0), "{complete:?} complete, {failed:?} failed\n{said}");
    assert_eq!(received_by_kernel(&rig.wire, "Tcp:", "PassiveOpens"), 0, "connections that the kernel accepted");
    assert_eq!(Command::new("kill").args(["-QUIT", &nginx.0.id().to_string()]).status().unwrap().code(), Some(0));
    wait_until("nginx ends", || nginx.0.try_wait().unwrap().is_some());
}
