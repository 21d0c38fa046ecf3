//! What goes wrong around a broker: its log has no room, it stalls, another user wants the port,
//! workers share a listener.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wirepath_tests::live::{NEAR, OURS, THEIRS, TIMEOUT, has_program, wait_until};

use super::{Ended, Rig, SERVED, STRANGER, echo, next_line, received_by_kernel, say, server};

/// A program at the near end, beside wirepath, of a user.
fn beside(rig: &Rig, uid: u32, program: &str, arguments: &[&str]) -> (Ended, String) {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("python3");
    command
        .args(["-c", program])
        .args(arguments)
        .uid(uid)
        .gid(uid)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = rig.wire.near.run(|| command.spawn()).unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    (Ended(child), said)
}

#[test]
fn listener_of_ipv6_alone_takes_no_flow_from_another_user() {
    let test = "listener_of_ipv6_alone_takes_no_flow_from_another_user";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::new(test) else { return };
    let (_server, mut stream) = server(&rig, SERVED, 7_030);
    let program = "import socket, sys\n\
                   made = socket.socket(socket.AF_INET6)\n\
                   made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)\n\
                   made.bind(('::', 7030)); made.listen(); print('listens', flush=True)\n\
                   sys.stdin.read()\n";
    let (_stranger, said) = beside(&rig, STRANGER, program, &[]);
    assert_eq!(said, "listens\n");
    // The broker compares its flows with the kernel's sockets every two seconds.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        say(&mut stream, b"still there");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn connection_that_another_user_has_bound_to_the_interface_is_not_given_away() {
    let test = "connection_that_another_user_has_bound_to_the_interface_is_not_given_away";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::new(test) else { return };
    echo(&rig.wire);
    let program = "import socket, sys\n\
                   near, ours, theirs = sys.argv[1:]\n\
                   made = socket.socket()\n\
                   made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, near.encode())\n\
                   made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
                   made.bind((ours, 7035)); made.connect((theirs, 7000))\n\
                   print('connected', flush=True); sys.stdin.read()\n";
    let (_stranger, said) = beside(&rig, STRANGER, program, &[NEAR, &OURS.to_string(), &THEIRS.to_string()]);
    assert_eq!(said, "connected\n");
    let same = format!("TCP:{THEIRS}:7000,bind={OURS}:7035,reuseaddr");
    let _served = Ended(rig.start(SERVED, &["socat", "-", &same]));
    rig.until_logged(&format!("is refused: port {OURS}:7035 is user {STRANGER}'s in the kernel"));
}

#[test]
fn broker_serves_though_its_log_has_no_room() {
    let test = "broker_serves_though_its_log_has_no_room";
    let Some(mut rig) = Rig::new(test) else { return };
    rig.broker.kill().unwrap();
    rig.broker.wait().unwrap();
    let path = |name: &str| rig.folder.path().join(name);
    let mut command = Command::new(path("wirepath"));
    command.args(["broker", "--interface", NEAR, "--uid", &SERVED.to_string(), "--socket"]).arg(path("socket"));
    command.env("WIREPATH_SHM", path("shm")).stderr(OpenOptions::new().write(true).open("/dev/full").unwrap());
    rig.broker = rig.wire.near.run(|| command.spawn()).unwrap();
    let ends = |uid: u32| rig.start(uid, &["true"]).wait_with_output().unwrap().status.success();
    wait_until("the broker serves", || ends(SERVED));
    assert!(!ends(STRANGER));
    assert!(ends(SERVED), "the refusal of another has a line");
}

/// Keeps duplicates of the AF_XDP sockets of a process until its input ends.
const KEEPER: &str = "\
import ctypes, os, socket, sys
process, kept = int(sys.argv[1]), []
pidfd = os.pidfd_open(process)
for name in os.listdir(f'/proc/{process}/fd'):
    fd = ctypes.CDLL(None).syscall(438, pidfd, int(name), 0)  # pidfd_getfd
    if fd < 0: continue
    try: domain = socket.socket(44, 3, 0, fileno=os.dup(fd)).getsockopt(socket.SOL_SOCKET, 39)
    except OSError: domain = 0
    if domain == 44: kept.append(fd)
    else: os.close(fd)
print(len(kept), flush=True)
sys.stdin.read()
";

#[test]
fn queue_whose_socket_is_kept_is_passed_over_and_lent_again_once_it_is_free() {
    let test = "queue_whose_socket_is_kept_is_passed_over_and_lent_again_once_it_is_free";
    if !["python3", "ethtool"].iter().all(|program| has_program(test, program)) {
        return;
    }
    let Some(mut rig) = Rig::new(test) else { return };
    echo(&rig.wire);
    rig.broker.kill().unwrap();
    rig.broker.wait().unwrap();
    if !rig.wire.near.command("ethtool", &["-L", NEAR, "rx", "2", "tx", "2"]).unwrap().status.success() {
        println!("SKIPPED {test}: a veth of this kernel has one queue");
        return;
    }
    (rig.broker, rig.log) = super::start_broker(&rig.wire, &rig.folder, NEAR, &[]);
    let has_queue = || rig.start(SERVED, &["true"]).wait_with_output().unwrap();
    let with_queue = || {
        let mut program = rig.start(SERVED, &["socat", "-", &format!("UDP:{THEIRS}:7000")]);
        writeln!(program.stdin.as_mut().unwrap(), "line").unwrap();
        assert_eq!(next_line(&mut BufReader::new(program.stdout.take().unwrap())), "line\n");
        program
    };
    let mut first = with_queue();
    let keep = |process: u32| beside(&rig, 0, KEEPER, &[&process.to_string()]);
    let (keeper, kept) = keep(first.id());
    assert_eq!(kept, "1\n");
    first.kill().unwrap();
    first.wait().unwrap();
    rig.until_logged("has ended, and its queue is free");
    // The other queue, at once; and again once its program has ended.
    for _ in 0..2 {
        let output = has_queue();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let second = Ended(with_queue());
    let (_other, kept) = keep(second.0.id());
    assert_eq!(kept, "1\n");
    let said = String::from_utf8(has_queue().stderr).unwrap();
    assert!(said.contains("which earlier clients had: end them"), "{said}");
    drop(keeper);
    wait_until("the first queue is free", || has_queue().status.success());
}

/// Connects, and waits for a line; then its next socket is the first that needs the broker.
const NEEDS_THE_BROKER: &str = "\
import errno, socket, sys
theirs, what = sys.argv[1:]
first = socket.create_connection((theirs, 7000))
print('connected', flush=True)
sys.stdin.readline()
def answer(made):
    made.settimeout(10)
    made.sendto(b'echo', (theirs, 7000))
    return made.recv(4)
try:
    if what == 'listen':
        made = socket.socket(); made.bind(('0.0.0.0', 7050)); made.listen()
        print('listens', flush=True)
        made.accept()[0].sendall(b'word')
    else:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if what == 'bind': made.bind(('0.0.0.0', 0))
        print(answer(made), flush=True)
except OSError as error: print(errno.errorcode.get(error.errno, error), flush=True)
";

#[test]
fn socket_is_the_kernels_whose_broker_does_not_answer_its_first_call() {
    let test = "socket_is_the_kernels_whose_broker_does_not_answer_its_first_call";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    echo(&rig.wire);
    let theirs = THEIRS.to_string();
    let mut programs = ["bind", "send", "listen"].map(|what| {
        let mut child = rig.start(SERVED, &["python3", "-c", NEEDS_THE_BROKER, &theirs, what]);
        let mut said = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(next_line(&mut said), "connected\n");
        (child, said)
    });
    let signal = |name: &str| Command::new("kill").args([name, &rig.broker.id().to_string()]).status().unwrap();
    assert!(signal("-STOP").success());
    programs.iter_mut().for_each(|(child, _)| writeln!(child.stdin.as_mut().unwrap(), "go").unwrap());
    let answers = programs.each_mut().map(|(_, said)| next_line(said));
    assert_eq!(answers, ["b'echo'\n", "b'echo'\n", "listens\n"]);
    let mut word = String::new();
    rig.wire.far.run(|| TcpStream::connect((OURS, 7_050))).unwrap().read_to_string(&mut word).unwrap();
    assert_eq!(word, "word");
    for (child, _) in programs {
        let said = String::from_utf8(super::end(child).stderr).unwrap();
        assert!(said.contains(&format!("the broker of {NEAR} does not answer")), "{said}");
    }
}

/// Two workers that share a listener which blocks; each tells its callers who it is.
const WORKERS: &str = "\
import ctypes, os, socket
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', 7060)); listener.listen(64)
for _ in range(2):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 9)  # it ends with its parent
        while True:
            stream, _ = listener.accept()
            with stream: stream.sendall(b'%d\\n' % os.getpid())
os.wait()
";

/// The worker that answers a call.
fn worker(stream: std::io::Result<TcpStream>) -> Option<String> {
    let stream = stream.ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.ends_with('\n'), "a worker accepts, and says nothing");
    Some(line)
}

#[test]
fn workers_that_share_a_blocking_listener_answer_callers_of_both_sides() {
    let test = "workers_that_share_a_blocking_listener_answer_callers_of_both_sides";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    let _workers = Ended(rig.start(SERVED, &["python3", "-c", WORKERS]));
    let by_wire = || worker(rig.wire.far.run(|| TcpStream::connect((OURS, 7_060))));
    let two_answer = || {
        let mut found = std::collections::BTreeSet::new();
        wait_until("two workers answer", || {
            found.extend(by_wire());
            found.len() == 2
        });
    };
    two_answer();
    let accepted = received_by_kernel(&rig.wire, "Tcp:", "PassiveOpens");
    // The kernel wakes both for each, and one of them finds it gone.
    for _ in 0..200 {
        let called = rig.wire.near.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, 7_060)));
        assert!(worker(called).is_some());
    }
    assert_eq!(received_by_kernel(&rig.wire, "Tcp:", "PassiveOpens"), accepted + 200);
    two_answer();
}

#[test]
fn program_waits_for_a_broker_that_has_no_descriptors_for_all_that_it_gets() {
    let test = "program_waits_for_a_broker_that_has_no_descriptors_for_all_that_it_gets";
    if !has_program(test, "prlimit") {
        return;
    }
    let Some(rig) = Rig::new(test) else { return };
    let broker = rig.broker.id();
    let limit = |count: usize| {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &broker.to_string(), &format!("--nofile={count}:20000")]);
        assert!(command.status().unwrap().success(), "{command:?}");
    };
    let open = fs::read_dir(format!("/proc/{broker}/fd")).unwrap().count();
    // One connection takes several: each program would have got a part of them.
    for free in [0, 1, 2, 4, 6] {
        limit(open + free);
        let waits = rig.start(SERVED, &["true"]);
        rig.until_logged("connections wait for descriptors: raise the broker's limit of open files");
        limit(20_000);
        let output = waits.wait_with_output().unwrap();
        assert!(output.status.success(), "{free}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
