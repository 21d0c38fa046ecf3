//! What a child of `fork` has of its parent's, and calls that take several steps.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use wirepath_tests::live::preload::{call, compile_with, counter_of, echo, run, start, text, wire};
use wirepath_tests::live::{OURS, THEIRS, Wire, wait_until};

use super::{plays_the_same, says_the_same};

#[test]
fn timeout_of_a_call_is_that_of_all_its_steps() {
    says_the_same("timeout_of_a_call_is_that_of_all_its_steps", "deadlines.c");
}

#[test]
fn child_has_the_parents_streams_and_none_of_its_signals() {
    let test = "child_has_the_parents_streams_and_none_of_its_signals";
    let folder = tempfile::tempdir().unwrap();
    let Some(early) = compile_with(test, "forking.c", folder.path(), &["-shared", "-fPIC"]) else { return };
    let program = compile_with(test, "forks.c", folder.path(), &[&early]).unwrap();
    plays_the_same(test, &program);
}

/// Calls the child of a server until it answers.
fn until_the_child_serves(wire: &Wire) {
    wait_until("the child serves", || {
        let Ok(mut caller) = call(&wire.far, 7_320) else { return false };
        caller.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        caller.read_exact(&mut [0; 5]).is_ok() && caller.write_all(b"e").is_ok()
    });
}

/// A server whose parent has a connection, and leaves its listener to its child.
const SERVER: &str = "
import os, socket, sys
kept = socket.create_connection((sys.argv[1], 7000))
server = socket.create_server(('0.0.0.0', 7320))
if os.fork() == 0:
    ends = b''
    while ends != b'e':
        caller, _ = server.accept()
        caller.sendall(b'child')
        ends = caller.recv(1)
    os._exit(0)
os.wait()
kept.sendall(b'echo')
print(kept.recv(4))
";

#[test]
fn child_serves_the_listener_of_a_parent_that_keeps_a_connection() {
    let test = "child_serves_the_listener_of_a_parent_that_keeps_a_connection";
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let server = start(&wire, "python3", &["-c", SERVER, &THEIRS.to_string()]);
    until_the_child_serves(&wire);
    let said = server.finish();
    assert!(said.starts_with("b'echo'\n"), "{said}");
}

/// A server that has another program serve each connection, as inetd and sshd do.
const GIVES: &str = "
import os, socket
server = socket.create_server(('0.0.0.0', 7322))
for each in range(2):
    stream, _ = server.accept()
    if os.fork() == 0:
        os.dup2(stream.fileno(), 0)
        os.dup2(0, 1)
        os.execv('/bin/true', ['true'])
    stream.close()
    os.wait()
";

#[test]
fn server_that_gives_connections_to_another_program_is_told_once_that_they_end() {
    let test = "server_that_gives_connections_to_another_program_is_told_once_that_they_end";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let server = start(&wire, "python3", &["-c", GIVES]);
    for _ in 0..2 {
        let mut called = None;
        wait_until("the server listens", || {
            called = call(&wire.far, 7_322).ok();
            called.is_some()
        });
        assert_eq!(called.unwrap().read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    let said = server.finish();
    assert_eq!(said.matches("gives a connection to another program by exec").count(), 1, "{said}");
}

/// A daemon that binds, joins a group, forks and ends, and whose child answers.
const DAEMON: &str = "
import os, select, socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('0.0.0.0', 7340))
group = socket.inet_aton('239.1.1.1') + socket.inet_aton(sys.argv[1])
server.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
waits = select.epoll()
waits.register(server, select.EPOLLIN)
if os.fork() != 0:
    os._exit(0)
said = b''
while said != b'end':
    waits.poll() if 'epoll' in sys.argv else None
    said, caller = server.recvfrom(64)
    server.sendto(said, caller)
";

#[test]
fn datagram_socket_of_a_daemon_is_its_childs() {
    let test = "datagram_socket_of_a_daemon_is_its_childs";
    for waits in ["recvfrom", "epoll"] {
        let Some(wire) = wire(test, &["python3"]) else { return };
        let daemon = start(&wire, "python3", &["-c", DAEMON, &OURS.to_string(), waits]);
        let caller = wire.far.run(|| UdpSocket::bind((THEIRS, 0)).unwrap());
        caller.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        wire.far.run(|| caller.set_multicast_ttl_v4(1).unwrap());
        let by_kernel = || counter_of(&wire.near, "Udp:", "InDatagrams");
        let answers = |word: &[u8], to: Ipv4Addr| {
            caller.send_to(word, (to, 7_340)).unwrap();
            let mut bytes = [0; 8];
            // The answer to an earlier one may come late.
            while let Ok(len) = caller.recv(&mut bytes) {
                if bytes[..len] == *word {
                    return true;
                }
            }
            false
        };
        // Until the child waits, the kernel receives for it.
        wait_until("the child answers by the interface", || {
            let before = by_kernel();
            answers(b"word", OURS) && answers(b"all", Ipv4Addr::new(239, 1, 1, 1)) && by_kernel() == before
        });
        assert!(answers(b"end", OURS), "{waits}");
        let said = daemon.finish();
        assert!(!said.contains("forked from one"), "{waits}: {said}");
    }
}

/// A process with datagrams that it has not read when it forks. Afterwards one of the two reads
/// until the end, and then the other one looks.
const HAS_UNREAD: &str = "
import os, select, socket, struct, sys
server, asked = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for each in range(2)]
server.bind(('0.0.0.0', 7341))
asked.bind(('0.0.0.0', 7342))
waits = select.epoll()
waits.register(server, select.EPOLLIN)
word = b''
while word != b'sent':
    word, caller = asked.recvfrom(64)
    asked.sendto(word, caller)
asked.close()
turn, token = os.pipe()
is_child = os.fork() == 0
if is_child != ('parent' in sys.argv):
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 20, 0))
    words = []
    while words[-1:] != [b'end']:
        waits.poll(20) if 'epoll' in sys.argv else None
        words.append(server.recv(64))
    print(words, flush=True)
    os.write(token, b'.')
else:
    os.read(turn, 1)
    try:
        print(server.recv(64, socket.MSG_DONTWAIT), flush=True)
    except BlockingIOError:
        print('none', flush=True)
os._exit(0) if is_child else os.wait()
";

#[test]
fn datagrams_that_nobody_had_read_at_a_fork_are_read_once_by_the_process_that_reads_first() {
    let test = "datagrams_that_nobody_had_read_at_a_fork_are_read_once_by_the_process_that_reads_first";
    for reads in ["child", "parent", "child epoll"] {
        let Some(wire) = wire(test, &["python3"]) else { return };
        let arguments: Vec<_> = ["-c", HAS_UNREAD].into_iter().chain(reads.split(' ')).collect();
        let server = start(&wire, "python3", &arguments);
        send_three(&wire, reads).send_to(b"end", (OURS, 7_341)).unwrap();
        // A child that comes second gets no queue, and its sentence follows.
        let said = server.finish();
        assert!(said.starts_with("[b'1', b'2', b'3', b'end']\nnone\n"), "{reads}: {said}");
    }
}

/// A process with datagrams that it has not read when it forks, and whose child gets no queue,
/// because it keeps the only one for another socket. The child looks first.
const KEEPS_THE_QUEUE: &str = "
import os, socket, struct
server, asked = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for each in range(2)]
server.bind(('0.0.0.0', 7341))
asked.bind(('0.0.0.0', 7342))
word = b''
while word != b'sent':
    word, caller = asked.recvfrom(64)
    asked.sendto(word, caller)
if os.fork() == 0:
    try:
        print(server.recv(64, socket.MSG_DONTWAIT), flush=True)
    except BlockingIOError:
        print('none', flush=True)
    os._exit(0)
os.wait()
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 20, 0))
print([server.recv(64) for each in range(3)], flush=True)
";

#[test]
fn datagrams_that_a_child_without_a_queue_does_not_get_are_its_parents_and_a_sentence_says_so() {
    let test = "datagrams_that_a_child_without_a_queue_does_not_get_are_its_parents_and_a_sentence_says_so";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let server = start(&wire, "python3", &["-c", KEEPS_THE_QUEUE]);
    send_three(&wire, "");
    let said = server.finish();
    assert!(said.starts_with("none\n[b'1', b'2', b'3']\n"), "{said}");
    assert!(said.contains("does not get the 3 datagrams that came for a socket before a fork"), "{said}");
}

/// Sends three datagrams to a server's port 7341, and returns once it has them; its port 7342
/// answers. The caller is returned.
fn send_three(wire: &Wire, what: &str) -> UdpSocket {
    let caller = wire.far.run(|| UdpSocket::bind((THEIRS, 0)).unwrap());
    caller.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let is_answered = |word: &[u8]| {
        caller.send_to(word, (OURS, 7_342)).unwrap();
        let mut bytes = [0; 8];
        caller.recv(&mut bytes).is_ok_and(|len| bytes[..len] == *word)
    };
    wait_until("it is bound", || is_answered(b"bound"));
    [b"1", b"2", b"3"].into_iter().for_each(|word| _ = caller.send_to(word, (OURS, 7_341)).unwrap());
    assert!(is_answered(b"sent"), "{what}");
    caller
}

/// A process that has used its datagram socket, and a child that uses it too.
const SHARES: &str = "
import os, socket, sys
used = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
used.sendto(b'echo', (sys.argv[1], 7000))
print(used.recv(4), flush=True)
if os.fork() == 0:
    used.sendto(b'from', (sys.argv[1], 7000))
    os._exit(0)
os.wait()
";

#[test]
fn datagram_socket_that_its_parent_has_used_is_the_kernels_in_a_child_and_the_sentence_says_so() {
    let test = "datagram_socket_that_its_parent_has_used_is_the_kernels_in_a_child_and_the_sentence_says_so";
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let before = counter_of(&wire.near, "Udp:", "OutDatagrams");
    let said = text(&run(&wire, "python3", &["-c", SHARES, &THEIRS.to_string()]));
    assert!(said.starts_with("b'echo'\n"), "{said}");
    assert!(said.contains("its datagram sockets send and receive by the kernel here"), "{said}");
    assert_eq!(counter_of(&wire.near, "Udp:", "OutDatagrams"), before + 1);
}

/// A server that is asked by loopback, and has a child answer.
const ASKED_BY_LOOPBACK: &str = "
import os, socket
server, asks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for each in range(2)]
server.bind(('0.0.0.0', 7343))
asks.sendto(b'ask', ('127.0.0.1', 7343))
word, caller = server.recvfrom(64)
if os.fork() == 0:
    server.sendto(word, caller)
    os._exit(0)
os.wait()
print(asks.recv(64), flush=True)
";

#[test]
fn datagram_socket_that_was_read_by_loopback_alone_stays_its_parents() {
    let test = "datagram_socket_that_was_read_by_loopback_alone_stays_its_parents";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let said = text(&run(&wire, "python3", &["-c", ASKED_BY_LOOPBACK]));
    assert!(said.starts_with("b'ask'\n"), "{said}");
    assert!(said.contains("its datagram sockets send and receive by the kernel here"), "{said}");
}

/// As a server that passes its listener on to the next program does.
const PASSES_ON: &str = "
import os, socket, sys
kept = socket.create_connection((sys.argv[1], 7000))
server = socket.create_server(('0.0.0.0', 7320))
server.set_inheritable(True)
serves = '''
import socket, sys
server, ends = socket.socket(fileno=int(sys.argv[1])), b''
while ends != b'e':
    caller, _ = server.accept()
    caller.sendall(b'child')
    ends = caller.recv(1)
'''
if os.fork() == 0:
    os.execvp('python3', ['python3', '-c', serves, str(server.fileno())])
print(os.wait()[1])
kept.sendall(b'echo')
print(kept.recv(4))
";

#[test]
fn listener_that_is_kept_over_exec_is_a_listener_of_the_kernel() {
    let test = "listener_that_is_kept_over_exec_is_a_listener_of_the_kernel";
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let server = start(&wire, "python3", &["-c", PASSES_ON, &THEIRS.to_string()]);
    until_the_child_serves(&wire);
    let said = server.finish();
    assert!(said.starts_with("0\nb'echo'\n"), "{said}");
}

#[test]
fn child_of_subprocess_leaves_the_sockets_of_its_parent_alone() {
    let test = "child_of_subprocess_leaves_the_sockets_of_its_parent_alone";
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let body = "import socket, subprocess, sys\n\
                kept = socket.create_connection((sys.argv[1], 7000))\n\
                for each in range(3):\n\
                \x20   subprocess.run(['true'], close_fds=True, check=True)\n\
                \x20   subprocess.run('true', shell=True, preexec_fn=lambda: None, check=True)\n\
                \x20   kept.sendall(b'echo'); print(kept.recv(4))\n";
    let said = text(&run(&wire, "python3", &["-c", body, &THEIRS.to_string()]));
    assert_eq!(said, "b'echo'\n".repeat(3));
}

#[test]
fn exec_that_fails_leaves_the_connections_as_they_were() {
    says_the_same("exec_that_fails_leaves_the_connections_as_they_were", "execs.c");
}

#[test]
fn what_a_program_wrote_before_it_became_another_arrives_by_each_form_of_exec() {
    let test = "what_a_program_wrote_before_it_became_another_arrives_by_each_form_of_exec";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile_with(test, "execs.c", folder.path(), &[]) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    let forms =
        ["execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat", "by number"];
    for form in forms {
        let listener = listener.try_clone().unwrap();
        let reader = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_to_end(&mut Vec::new()).ok()
        });
        let said = text(&run(&wire, &program, &[&THEIRS.to_string(), form, "7003"]));
        assert!(said.ends_with("told a b c d e\n"), "{form}: {said}");
        assert_eq!(reader.join().unwrap(), Some(300_000), "{form}");
    }
}

/// A server whose processes follow each other, and the process that answers.
struct Succession<'a> {
    wire: &'a Wire,
    port: u16,
}

impl Succession<'_> {
    /// The process that has answered a request from the far end, by its number.
    fn answering(&self) -> Option<u32> {
        let mut caller = call(&self.wire.far, self.port).ok()?;
        caller.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        caller.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        caller.read_to_string(&mut answer).ok()?;
        answer.rsplit_once("\r\n\r\n")?.1.trim().parse().ok()
    }

    /// Waits for an answer by another process than `before`.
    fn next(&self, before: Option<u32>) -> Option<u32> {
        let mut answering = None;
        wait_until("the next process answers", || {
            answering = self.answering();
            answering.is_some() && answering != before
        });
        answering
    }
}

/// The file that names a daemon, which ends with the test.
struct PidFile(PathBuf);

impl PidFile {
    fn process(&self) -> Option<u32> {
        std::fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(process) = self.process() {
            let _ = Command::new("kill").args(["-TERM", &process.to_string()]).status();
        }
    }
}

fn signal(number: &str, process: u32) {
    let sent = Command::new("kill").args([number, &process.to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn haproxy_with_a_master_serves_on_after_it_has_reloaded_twice() {
    let test = "haproxy_with_a_master_serves_on_after_it_has_reloaded_twice";
    let Some(wire) = wire(test, &["haproxy"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("haproxy.cfg");
    let configuration = "global\n nbthread 1\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n \
                         timeout server 5s\nfrontend all\n bind 0.0.0.0:7330\n \
                         http-request return status 200 content-type text/plain lf-string %pid\n";
    std::fs::write(&file, configuration).unwrap();
    let haproxy = start(&wire, "haproxy", &["-W", "-f", file.to_str().unwrap()]);
    let served = Succession { wire: &wire, port: 7_330 };
    let mut worker = served.next(None);
    for _ in 0..2 {
        signal("-USR2", haproxy.id());
        worker = served.next(worker);
    }
    haproxy.interrupt();
}

#[test]
fn nginx_that_another_nginx_replaces_serves_on() {
    let test = "nginx_that_another_nginx_replaces_serves_on";
    let Some(wire) = wire(test, &["nginx"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (name, file) = (folder.path().display(), folder.path().join("nginx.conf"));
    let configuration = format!(
        "user root;\nworker_processes 1;\npid {name}/pid;\nerror_log {name}/errors;\nevents {{ }}\n\
         http {{ access_log off; server {{ listen 7331; location / {{ return 200 \"$pid\"; }} }} }}\n"
    );
    std::fs::write(&file, configuration).unwrap();
    // It starts the next one by the path that it was started by.
    let path = text(&wire.near.command("which", &["nginx"]).unwrap());
    let _started = start(&wire, path.trim(), &["-c", file.to_str().unwrap()]);
    let served = Succession { wire: &wire, port: 7_331 };
    let (master, old) = (PidFile(folder.path().join("pid")), PidFile(folder.path().join("pid.oldbin")));
    let worker = served.next(None);
    let first = master.process().unwrap();
    signal("-USR2", first);
    wait_until("the next one has started", || master.process().is_some_and(|next| next != first));
    signal("-QUIT", first);
    wait_until("the first one has ended", || !old.0.exists());
    let next = served.next(worker);
    assert_eq!(served.answering(), next);
    signal("-QUIT", master.process().unwrap());
    wait_until("it ends", || !master.0.exists());
}
