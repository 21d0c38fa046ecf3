//! What a child of `fork` has of its parent's, and calls that take several steps.

use std::io::{Read, Write};
use std::time::Duration;

use wirepath_tests::live::preload::{call, compile_with, echo, run, start, text, wire};
use wirepath_tests::live::{THEIRS, Wire, wait_until};

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
