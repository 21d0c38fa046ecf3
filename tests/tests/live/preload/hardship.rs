//! Hardship of a program under the preload library: its interface vanishes, descriptors run out,
//! a rule shares its sockets with the kernel.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;

use wirepath_tests::live::preload::{call, compile, echo, is_listening, run, said, start, wire};
use wirepath_tests::live::{NEAR, OURS, Program, THEIRS, TIMEOUT, Wire, set, wait_until};
use wirepath_tests::netns::Namespace;

const NAMES: &str = "\
import errno, socket, sys
def tells(what, act):
    try: print(what, act(), flush=True)
    except OSError as error: print(what, errno.errorcode.get(error.errno, str(error)), flush=True)
";

fn python(body: &str) -> String {
    format!("{NAMES}{body}")
}

#[test]
fn sockets_of_an_interface_that_vanishes_end_with_enetdown() {
    let test = "sockets_of_an_interface_that_vanishes_end_with_enetdown";
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let body = python(
        "import threading\n\
         theirs = sys.argv[1]\n\
         stream = socket.create_connection((theirs, 7000))\n\
         stream.sendall(b'echo'); stream.recv(4)\n\
         datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         datagrams.connect((theirs, 7000))\n\
         listener = socket.socket(); listener.bind(('0.0.0.0', 7100)); listener.listen()\n\
         lines = []\n\
         def wait(name, act):\n\
         \x20   try: lines.append((name, len(act())))\n\
         \x20   except OSError as error: lines.append((name, errno.errorcode[error.errno]))\n\
         threads = [threading.Thread(target=wait, args=('recv', lambda: stream.recv(4))),\n\
         \x20          threading.Thread(target=wait, args=('datagram', lambda: datagrams.recv(4)))]\n\
         [thread.start() for thread in threads]\n\
         [thread.join() for thread in threads]\n\
         for line in sorted(lines): print(*line, flush=True)\n\
         tells('again', lambda: len(stream.recv(4)))\n\
         tells('send', lambda: stream.send(b'more'))\n\
         tells('send datagram', lambda: datagrams.send(b'more'))\n\
         tells('new', lambda: socket.create_connection((theirs, 7000)))\n\
         client = socket.create_connection(('127.0.0.1', 7100))\n\
         tells('loopback', lambda: len(listener.accept()))\n",
    );
    let theirs = THEIRS.to_string();
    let program = start(&wire, "env", &["WIREPATH_POLICY=warn", "python3", "-c", &body, &theirs]);
    wait_until("the program listens", || is_listening(&wire.near, 7_100));
    wire.near.ip(&["link", "del", NEAR]).unwrap();
    let text = program.finish();
    let expected = "datagram ENETDOWN\nrecv ENETDOWN\nagain 0\nsend EPIPE\nsend datagram ENETDOWN\n\
                    new ENETUNREACH\nloopback 2\n";
    assert!(text.starts_with(expected), "{text}");
    let gone: Vec<&str> = text.lines().filter(|line| line.contains("is gone: start the program again")).collect();
    assert_eq!(gone.len(), 1, "{text}");
}

/// Plays `exits.c` some times; returns for each how many bytes its peer has received by the end of
/// the stream, `None` where it was reset, and what it has printed. The peer begins to read when the
/// process is over, or at once.
fn exits(test: &str, what: &str, times: usize, reads_at_once: bool) -> Vec<(Option<usize>, String)> {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "exits.c", folder.path()) else { return Vec::new() };
    let Some(wire) = wire(test, &[]) else { return Vec::new() };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_300)).unwrap());
    let play = |_| {
        let process = start(&wire, &program, &[&THEIRS.to_string(), what]);
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut read = || stream.read_to_end(&mut Vec::new()).ok();
        if reads_at_once {
            let received = read();
            (received, process.finish())
        } else {
            let said = process.finish();
            (read(), said)
        }
    };
    (0..times).map(play).collect()
}

#[test]
fn what_was_sent_arrives_though_a_thread_is_in_a_call_when_the_process_ends() {
    let test = "what_was_sent_arrives_though_a_thread_is_in_a_call_when_the_process_ends";
    for ended in exits(test, "looks", 10, true) {
        assert_eq!(ended, (Some(400_000), String::new()));
    }
}

#[test]
fn threads_wait_on_in_their_calls_while_the_process_ends() {
    let test = "threads_wait_on_in_their_calls_while_the_process_ends";
    for (_, said) in exits(test, "waits", 1, false) {
        assert_eq!(said, "");
    }
}

#[test]
fn text_in_a_stream_of_stdio_leaves_when_the_process_ends() {
    let test = "text_in_a_stream_of_stdio_leaves_when_the_process_ends";
    for ended in exits(test, "prints", 1, true) {
        assert_eq!(ended, (Some(14), String::new()));
    }
}

#[test]
fn what_a_closed_stream_has_sent_arrives_though_the_process_forks() {
    let test = "what_a_closed_stream_has_sent_arrives_though_the_process_forks";
    for ended in exits(test, "forks", 5, true) {
        assert_eq!(ended, (Some(400_000), String::new()));
    }
}

#[test]
fn what_was_sent_arrives_by_whatever_call_the_process_ends() {
    let test = "what_was_sent_arrives_by_whatever_call_the_process_ends";
    for what in ["_exit", "_Exit", "quick_exit", "exit_group"] {
        for ended in exits(test, what, 3, true) {
            assert_eq!(ended, (Some(400_000), String::new()), "{what}");
        }
    }
}

#[test]
fn what_was_sent_arrives_though_the_process_becomes_another_program() {
    let test = "what_was_sent_arrives_though_the_process_becomes_another_program";
    for ended in exits(test, "execv", 3, true) {
        assert_eq!(ended, (Some(400_004), String::new()));
    }
}

#[test]
fn what_was_sent_arrives_though_a_filter_refuses_execveat() {
    let test = "what_was_sent_arrives_though_a_filter_refuses_execveat";
    for ended in exits(test, "filtered", 3, true) {
        assert_eq!(ended, (Some(400_000), String::new()));
    }
}

#[test]
fn child_of_vfork_leaves_the_sockets_of_its_parent_alone() {
    let test = "child_of_vfork_leaves_the_sockets_of_its_parent_alone";
    for ended in exits(test, "vforks", 1, true) {
        assert_eq!(ended, (Some(400_000), String::new()));
    }
}

#[test]
fn thread_sleeps_where_no_descriptor_is_left() {
    let test = "thread_sleeps_where_no_descriptor_is_left";
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let body = python(
        "import os, threading\n\
         theirs = sys.argv[1]\n\
         stream = socket.create_connection((theirs, 7000))\n\
         stream.settimeout(0.3)\n\
         def fill():\n\
         \x20   try:\n\
         \x20       while True: os.open('/dev/null', os.O_RDONLY)\n\
         \x20   except OSError as error: return errno.errorcode[error.errno]\n\
         tells('open', fill)\n\
         import struct\n\
         stream.setblocking(True)\n\
         limit = struct.pack('ll', 0, 300000)\n\
         stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)\n\
         def rest():\n\
         \x20   tells('no data', lambda: stream.recv(4))\n\
         \x20   stream.sendall(b'echo')\n\
         \x20   tells('data', lambda: stream.recv(4))\n\
         thread = threading.Thread(target=rest)\n\
         thread.start(); thread.join()\n",
    );
    let text = said(&run(&wire, "python3", &["-c", &body, &THEIRS.to_string()]));
    let (sentence, rest) = lines_with("wirepath: no descriptor is left (EMFILE)", &text);
    assert_eq!((sentence, rest.as_str()), (1, "open EMFILE\nno data EAGAIN\ndata b'echo'\n"), "{text}");
}

/// How many lines begin so, and all others.
fn lines_with(begin: &str, text: &str) -> (usize, String) {
    let (these, others): (Vec<&str>, Vec<&str>) = text.split_inclusive('\n').partition(|line| line.starts_with(begin));
    (these.len(), others.concat())
}

const NO_ROOM: &str = "wirepath: there is no room for another connection";

#[test]
fn listener_without_room_for_a_connection_says_so_once() {
    let test = "listener_without_room_for_a_connection_says_so_once";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    let body = python(
        "listener = socket.socket(); listener.bind(('0.0.0.0', 7100)); listener.listen()\n\
         stream, _ = listener.accept()\n\
         while True: stream.recv(4)\n",
    );
    let said = folder.path().join("said");
    let line = format!("exec python3 -c \"$0\" 2> {}", said.display());
    let program = start(&wire, "env", &["WIREPATH_CONNECTIONS=1", "sh", "-c", &line, &body]);
    wait_until("the program listens", || is_listening(&wire.near, 7_100));
    let kept = call(&wire.far, 7_100).unwrap();
    let refused = std::thread::scope(|scope| {
        let call = scope.spawn(|| wire.far.run(|| TcpStream::connect_timeout(&(OURS, 7_100).into(), TIMEOUT / 4)));
        wait_until("it has said so", || lines_with(NO_ROOM, &std::fs::read_to_string(&said).unwrap()).0 == 1);
        call.join().unwrap()
    });
    assert!(refused.is_err(), "there was room for one");
    assert_eq!(lines_with(NO_ROOM, &std::fs::read_to_string(&said).unwrap()).0, 1);
    drop((kept, program));
}

/// Fills sixteen connections whose peer reads nothing, and then listens at 300 ports.
const FILLS: &str = "\
theirs, all = sys.argv[1], []
def fill():
    made = socket.create_connection((theirs, 7003))
    made.setblocking(False)
    all.append(made)
    sent = 0
    while True:
        try: sent += made.send(bytes(1 << 16))
        except BlockingIOError: return sent
sent = sum(fill() for each in range(16))
print('much' if sent > 4 << 20 else 'little', flush=True)
def listens(port):
    made = socket.socket(); all.append(made)
    made.bind(('0.0.0.0', port))
    made.listen()
if sys.argv[2] == 'listen': tells('listen', lambda: [listens(port) for port in range(20000, 20300)] and 300)
import time
time.sleep(1.5)
";

#[test]
fn limits_are_those_that_the_user_names_and_each_is_said_when_it_is_reached() {
    const NO_BUFFER: &str = "wirepath: all packet buffers are taken";
    const NO_LISTENER: &str = "wirepath: there is no room for another listener";
    let test = "limits_are_those_that_the_user_names_and_each_is_said_when_it_is_reached";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let _silent = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    let (body, theirs) = (python(FILLS), THEIRS.to_string());
    let fill = |settings: &[&str], what| {
        let line = [settings, &["python3", "-c", &body, &theirs, what]].concat();
        said(&run(&wire, "env", &line))
    };
    let fresh = fill(&[], "listen");
    assert!(fresh.starts_with("much\n") && fresh.contains("listen ENOBUFS\n"), "{fresh}");
    assert_eq!((lines_with(NO_LISTENER, &fresh).0, lines_with(NO_BUFFER, &fresh).0), (1, 0), "{fresh}");
    let few = fill(&["WIREPATH_BUFFERS=512"], "send");
    assert!(few.contains("little\n"), "{few}");
    let many = fill(&["WIREPATH_CONNECTIONS=20000"], "listen");
    assert!(many.contains("listen 300\n"), "{many}");
    for wrong in ["WIREPATH_BUFFERS=511", "WIREPATH_CONNECTIONS=0", "WIREPATH_CONNECTIONS=x"] {
        let said = fill(&[wrong, "WIREPATH_POLICY=refuse"], "send");
        assert!(said.contains("set it to a number from "), "{wrong}: {said}");
    }
}

fn rules(folder: &Path, role: &str) -> String {
    let path = folder.join("rules.toml");
    std::fs::write(&path, format!("[[rules]]\nuse = \"{role}\"\n")).unwrap();
    format!("WIREPATH_RULES={}", path.display())
}

#[test]
fn connect_of_both_goes_to_the_kernel_where_ours_has_no_room() {
    let test = "connect_of_both_goes_to_the_kernel_where_ours_has_no_room";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let body = python(
        "theirs, all = sys.argv[1], []\n\
         def talk():\n\
         \x20   all.append(socket.create_connection((theirs, 7000)))\n\
         \x20   all[-1].sendall(b'echo')\n\
         \x20   return all[-1].recv(4)\n\
         for each in range(3): tells('connect', talk)\n",
    );
    let theirs = THEIRS.to_string();
    let play = |role: &str| {
        let rules = rules(folder.path(), role);
        said(&run(&wire, "env", &[&rules, "WIREPATH_CONNECTIONS=1", "python3", "-c", &body, &theirs]))
    };
    let offloaded = play("offload");
    assert!(offloaded.starts_with("connect b'echo'\nconnect E"), "{offloaded}");
    assert_eq!(lines_with(NO_ROOM, &offloaded).0, 1, "{offloaded}");
    let both = play("both");
    assert!(both.starts_with("connect b'echo'\nconnect b'echo'\nconnect b'echo'\n"), "{both}");
    assert_eq!(lines_with(NO_ROOM, &both).0, 0, "{both}");
    assert!(both.contains("stays with the kernel") && both.contains("ours did not reach its peer"), "{both}");
}

#[test]
fn listener_of_both_takes_the_kernels_connections_in_turn() {
    let test = "listener_of_both_takes_the_kernels_connections_in_turn";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    let body = python(
        "listener, control = socket.socket(), socket.socket()\n\
         for made, port in (listener, 7100), (control, 7101):\n\
         \x20   made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
         \x20   made.bind(('0.0.0.0', port)); made.listen(128)\n\
         first, _ = control.accept()\n\
         first.recv(1)\n\
         client = socket.create_connection(('127.0.0.1', 7100))\n\
         peers = [listener.accept()[1][0] for each in range(41)]\n\
         print(peers.index('127.0.0.1'), flush=True)\n",
    );
    let place = |role: &str| -> usize {
        let rules = rules(folder.path(), role);
        let program = start(&wire, "env", &["WIREPATH_POLICY=quiet", &rules, "python3", "-c", &body]);
        wait_until("the program listens", || is_listening(&wire.near, 7_101));
        let waiting: Vec<TcpStream> = (0..40).map(|_| call(&wire.far, 7_100).unwrap()).collect();
        let mut control = call(&wire.far, 7_101).unwrap();
        std::io::Write::write_all(&mut control, b"g").unwrap();
        let text = program.finish();
        drop(waiting);
        text.trim_end().parse().unwrap_or_else(|_| panic!("{text}"))
    };
    assert!(place("both") < 16);
    assert_eq!(place("offload"), 40);
}

#[test]
fn connected_datagrams_hear_their_peer_by_another_interface() {
    let test = "connected_datagrams_hear_their_peer_by_another_interface";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    // Another way from the peer, whose address it has there as well.
    let other = Namespace::new().unwrap();
    wire.near.veth("second0", &other, "second1").unwrap();
    wire.near.ip(&["addr", "add", "10.9.1.1/24", "dev", "second0"]).unwrap();
    other.ip(&["addr", "add", "10.9.1.2/24", "dev", "second1"]).unwrap();
    other.ip(&["addr", "add", &format!("{THEIRS}/32"), "dev", "lo"]).unwrap();
    other.ip(&["route", "add", &format!("{OURS}/32"), "via", "10.9.1.1"]).unwrap();
    for interface in ["all", "second0"] {
        set(&wire.near, &format!("conf/{interface}/rp_filter"), "0");
    }
    let sender = other.run(|| UdpSocket::bind((THEIRS, 7_000)).unwrap());
    let body = python(
        "import struct\n\
         made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         made.connect((sys.argv[1], 7000))\n\
         made.send(b'by ours')\n\
         tells('first', lambda: made.recv(20))\n\
         control = socket.create_connection((sys.argv[1], 7003))\n\
         control.sendall(struct.pack('!H', made.getsockname()[1]))\n\
         control.recv(1)\n\
         made.settimeout(0.2)\n\
         try: print('second', made.recv(20))\n\
         except TimeoutError: print('second never')\n",
    );
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    let play = |role: &str| {
        let rules = rules(folder.path(), role);
        let words = ["WIREPATH_POLICY=quiet", &rules, "python3", "-c", &body, &THEIRS.to_string()];
        let program: Program = start(&wire, "env", &words);
        let (mut control, _) = listener.accept().unwrap();
        let mut port = [0; 2];
        control.read_exact(&mut port).unwrap();
        sender.send_to(b"by the other", (OURS, u16::from_be_bytes(port))).unwrap();
        let port = u16::from_be_bytes(port);
        wait_until("the datagram has come", || has_queued(&wire, port));
        std::io::Write::write_all(&mut control, b"g").unwrap();
        program.finish()
    };
    assert_eq!(play("both"), "first b'by ours'\nsecond b'by the other'\n");
    // Fragments come by the twin, so it is heard under each rule, as on the kernel's own sockets.
    assert_eq!(play("offload"), "first b'by ours'\nsecond b'by the other'\n");
}

/// Whether datagrams wait in the near kernel's socket of a port.
fn has_queued(wire: &Wire, port: u16) -> bool {
    let table = wire.near.run(|| std::fs::read_to_string("/proc/thread-self/net/udp").unwrap());
    let mut lines = table.lines().filter(|line| line.contains(&format!(":{port:04X} ")));
    lines.any(|line| line.split_whitespace().nth(4).is_some_and(|queues| !queues.ends_with(":00000000")))
}
