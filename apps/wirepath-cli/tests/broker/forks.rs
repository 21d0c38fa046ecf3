//! Children of a program that has sockets on wirepath, on an interface whose queues are shared.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use wirepath_tests::live::{OURS, THEIRS, has_program, wait_until};

use super::{Ended, Rig, SERVED, echo, received_by_kernel};

/// The child serves its parent's listener, and then connects itself; the parent keeps a connection.
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
    own = socket.create_connection((sys.argv[1], 7300))
    own.sendall(b'mine')
    os._exit(0)
os.wait()
kept.sendall(b'echo')
print(kept.recv(4), flush=True)
";

#[test]
fn child_has_an_engine_of_its_own_beside_that_of_its_parent() {
    let test = "child_has_an_engine_of_its_own_beside_that_of_its_parent";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    echo(&rig.wire);
    let listener = rig.wire.far.run(|| TcpListener::bind((THEIRS, 7_300)).unwrap());
    let mut server = Ended(rig.start(SERVED, &["python3", "-c", SERVER, &THEIRS.to_string()]));
    let mut said = BufReader::new(server.0.stdout.take().unwrap());
    wait_until("the child serves", || {
        let Ok(mut caller) = rig.wire.far.run(|| TcpStream::connect((OURS, 7_320))) else { return false };
        caller.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        caller.read_exact(&mut [0; 5]).is_ok() && caller.write_all(b"e").is_ok()
    });
    let mut received = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"mine");
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "b'echo'\n");
    let opened = ["PassiveOpens", "ActiveOpens"].map(|name| received_by_kernel(&rig.wire, "Tcp:", name));
    assert_eq!(opened, [0, 0], "connections of the kernel");
}
