//! Sockets that a program is started with, as systemd starts it (`LISTEN_FDS`).

use std::io::{PipeReader, pipe};
use std::net::UdpSocket;
use std::process::{Child, Command};

use wirepath_tests::live::TIMEOUT;

use super::*;

/// Starts a program with a listener and a datagram socket: ADDRESS WHEN BODY. With `called` it
/// waits for a caller before, as systemd does; with `kept` the program just has them.
const ACTIVATES: &str = "\
import fcntl, os, select, socket, sys
listener = socket.create_server((sys.argv[1], 7300))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((sys.argv[1], 7301))
given = [fcntl.fcntl(made, fcntl.F_DUPFD, 10) for made in (listener, datagrams)]
for number, fd in enumerate(given): os.dup2(fd, 3 + number)
if sys.argv[2] == 'called':
    print('listens', flush=True)
    select.select([3], [], [])
settings = {} if sys.argv[2] == 'kept' else {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '2'}
os.closerange(5, 100)
os.execvpe('env', ['env', *sys.argv[3].split(' '), 'python3', '-c', sys.argv[4]], {**os.environ, **settings})
";

/// Looks once for what waits for its sockets, and then serves: it tells a caller whether the
/// listener keeps connections alive, and echoes a datagram.
const SERVES: &str = "\
import socket
listener, datagrams = socket.socket(fileno=3), socket.socket(fileno=4)
def look(made, what):
    made.setblocking(False)
    try: return what()
    except BlockingIOError: return None
    finally: made.setblocking(True)
caller, sent = look(listener, listener.accept), look(datagrams, lambda: datagrams.recvfrom(100))
print('ready', flush=True)
stream, _ = caller or listener.accept()
stream.sendall(bytes([listener.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]))
datagrams.sendto(*(sent or datagrams.recvfrom(100)))
print('served', flush=True)
";

#[test]
fn listener_and_datagram_socket_that_systemd_gives_are_ours_from_their_first_use() {
    let test = "listener_and_datagram_socket_that_systemd_gives_are_ours_from_their_first_use";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let mut program = Activated::start(&wire, "uncalled");
    assert_eq!(program.next_line(), "ready\n");
    let of = |protocol: &str, counter: &str| counter_of(&wire.near, protocol, counter);
    let by_kernel = || (of("Tcp:", "PassiveOpens"), of("Udp:", "InDatagrams"));
    let before = by_kernel();
    is_served(&wire);
    assert_eq!(program.next_line(), "served\n");
    assert_eq!(by_kernel(), before, "callers and datagrams that the kernel has had");
}

#[test]
fn listener_that_systemd_gives_with_a_caller_stays_the_kernels_in_a_sentence() {
    let test = "listener_that_systemd_gives_with_a_caller_stays_the_kernels_in_a_sentence";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let mut program = Activated::start(&wire, "called");
    assert_eq!(program.next_line(), "listens\n");
    is_served(&wire);
    let mut lines = String::new();
    program.said.read_to_string(&mut lines).unwrap();
    let why = "it was there when the program began, and the kernel has connections at its port";
    assert!(lines.contains(why) && lines.contains("served\n"), "{lines}");
}

/// A supervisor starts several workers with one listener, and without a broker one of them would
/// have all callers.
#[test]
fn listener_that_nobody_has_given_stays_the_kernels_without_a_broker() {
    let test = "listener_that_nobody_has_given_stays_the_kernels_without_a_broker";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let mut program = Activated::start(&wire, "kept");
    assert_eq!(program.next_line(), "ready\n");
    is_served(&wire);
    let mut lines = String::new();
    program.said.read_to_string(&mut lines).unwrap();
    let why = format!("{OURS}:7300: it was there when the program began (systemd, inetd or exec)");
    assert!(lines.contains(&why) && lines.contains("served\n"), "{lines}");
}

/// The program that serves. Dropped, it is killed.
struct Activated {
    child: Child,
    said: BufReader<PipeReader>,
}

impl Activated {
    fn start(wire: &Wire, when: &str) -> Self {
        // The words of `env` between its name and the program's.
        let settings = under_library("", &[])[1..3].join(" ");
        let (said, writer) = pipe().unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", ACTIVATES, &OURS.to_string(), when, &settings, SERVES]);
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        Self { child: wire.near.run(|| command.spawn()).unwrap(), said: BufReader::new(said) }
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A caller and a datagram from afar are answered.
fn is_served(wire: &Wire) {
    let mut stream = call(&wire.far, 7_300).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [1], "the option that was set before");
    let socket = wire.far.run(|| UdpSocket::bind((THEIRS, 0))).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.send_to(b"echo", (OURS, 7_301)).unwrap();
    let mut echoed = [0; 4];
    assert_eq!((socket.recv(&mut echoed).unwrap(), &echoed), (4, b"echo"));
}
