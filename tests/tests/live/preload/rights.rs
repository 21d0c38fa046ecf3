//! Servers that root starts and that give up its rights before they wait for connections, without a
//! broker: the user and the file system are others by then, and the queue is theirs.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use wirepath_tests::live::preload::{call, counter_of, echo, is_listening, start, until_it_listens, wire};
use wirepath_tests::live::{THEIRS, Wire, wait_until};

/// A folder that every user may read.
fn folder() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap()
}

/// The connections that the near kernel has accepted and made.
fn opened_by_kernel(wire: &Wire) -> [u64; 2] {
    ["PassiveOpens", "ActiveOpens"].map(|name| counter_of(&wire.near, "Tcp:", name))
}

/// Whether a process is of the user `nobody`.
fn is_nobodys(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().any(|line| line == "Uid:\t65534\t65534\t65534\t65534")
}

/// The answer to a request, without its head.
fn get(wire: &Wire, port: u16) -> Option<String> {
    let mut stream = call(&wire.far, port).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    Some(page.rsplit_once("\r\n\r\n")?.1.trim().to_owned())
}

#[test]
fn memcached_that_becomes_another_user_before_it_listens_is_the_kernels_and_says_so() {
    let test = "memcached_that_becomes_another_user_before_it_listens_is_the_kernels_and_says_so";
    let Some(wire) = wire(test, &["memcached"]) else { return };
    let memcached = start(&wire, "memcached", &["-u", "nobody", "-p", "11311", "-t", "4", "-l", "0.0.0.0"]);
    until_it_listens(&wire, 11_311);
    assert!(is_nobodys(memcached.id()));
    let mut socket = call(&wire.far, 11_311).unwrap();
    socket.write_all(b"set key 0 0 5\r\nvalue\r\nget key\r\n").unwrap();
    let expected = b"STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n";
    let mut got = vec![0; expected.len()];
    socket.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(expected));
    let said = memcached.interrupt();
    assert!(said.contains("the program runs on the kernel"), "{said}");
}

#[test]
fn worker_of_nginx_that_becomes_another_user_is_past_the_kernel() {
    let test = "worker_of_nginx_that_becomes_another_user_is_past_the_kernel";
    let Some(wire) = wire(test, &["nginx"]) else { return };
    let folder = folder();
    let (name, file) = (folder.path().display(), folder.path().join("nginx.conf"));
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|what| format!("{what}_temp_path {name}/{what};")).concat();
    let configuration = format!(
        "user nobody nogroup;\nworker_processes 1;\ndaemon off;\npid {name}/pid;\nerror_log {name}/errors;\n\
         events {{ }}\nhttp {{ access_log off; {temporary} server {{ listen 8080; location / {{ return 200 \"$pid\"; \
         }} }} }}\n"
    );
    std::fs::write(&file, configuration).unwrap();
    let nginx = start(&wire, "nginx", &["-c", file.to_str().unwrap()]);
    let mut worker = None;
    wait_until("its worker serves", || {
        worker = get(&wire, 8_080);
        worker.is_some()
    });
    assert!(is_nobodys(worker.unwrap().parse().unwrap()));
    assert_eq!(opened_by_kernel(&wire), [0, 0]);
    nginx.interrupt();
}

#[test]
fn haproxy_in_a_chroot_and_as_another_user_has_its_callers_past_the_kernel() {
    let test = "haproxy_in_a_chroot_and_as_another_user_has_its_callers_past_the_kernel";
    let Some(wire) = wire(test, &["haproxy"]) else { return };
    echo(&wire);
    let (folder, empty) = (folder(), folder());
    let file = folder.path().join("haproxy.cfg");
    let configuration = format!(
        "global\n nbthread 2\n chroot {}\n user nobody\n group nogroup\ndefaults\n timeout connect 5s\n \
         timeout client 5s\n timeout server 5s\nlisten name\n mode http\n bind 0.0.0.0:7330\n \
         http-request return status 200 content-type text/plain lf-string %pid\nlisten echo\n mode tcp\n \
         bind 0.0.0.0:7331\n server far {THEIRS}:7000\n",
        empty.path().display()
    );
    std::fs::write(&file, configuration).unwrap();
    let haproxy = start(&wire, "haproxy", &["-W", "-f", file.to_str().unwrap()]);
    let mut worker = None;
    wait_until("its worker serves", || {
        worker = get(&wire, 7_330);
        worker.is_some()
    });
    let worker = worker.unwrap();
    assert!(is_nobodys(worker.parse().unwrap()));
    assert_eq!(std::fs::read_link(format!("/proc/{worker}/root")).unwrap(), empty.path());
    let mut stream = call(&wire.far, 7_331).unwrap();
    stream.write_all(b"there and back").unwrap();
    let mut echoed = [0; 14];
    stream.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"there and back");
    // Its own calls are of the time after it has given up its rights.
    assert_eq!(opened_by_kernel(&wire), [0, 1]);
    let said = haproxy.interrupt();
    assert!(said.contains("made after the program has given up root's rights"), "{said}");
}

/// Listens, becomes `nobody` or drops its capabilities, and connects to the far end for each
/// caller.
const CALLS_OUT: &str = "
import ctypes, os, socket, sys
server = socket.create_server(('0.0.0.0', 7332))
if sys.argv[2] == 'setuid': os.setuid(65534)
else: assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
while True:
    caller, _ = server.accept()
    far = socket.socket()
    far.connect((sys.argv[1], 7000))
    far.sendall(caller.recv(100))
    caller.sendall(far.recv(100))
    caller.close()
    far.close()
";

#[test]
fn program_that_has_given_up_its_rights_keeps_its_listener_and_connects_by_the_kernel() {
    keeps_its_listener("program_that_has_given_up_its_rights_keeps_its_listener_and_connects_by_the_kernel", "setuid");
}

#[test]
fn program_that_has_dropped_its_capabilities_keeps_its_listener_and_connects_by_the_kernel() {
    keeps_its_listener(
        "program_that_has_dropped_its_capabilities_keeps_its_listener_and_connects_by_the_kernel",
        "capset",
    );
}

fn keeps_its_listener(test: &str, gives_up_by: &str) {
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let _server = start(&wire, "python3", &["-c", CALLS_OUT, &THEIRS.to_string(), gives_up_by]);
    wait_until("it listens", || is_listening(&wire.near, 7_332));
    let mut stream = call(&wire.far, 7_332).unwrap();
    stream.write_all(b"there and back").unwrap();
    let mut echoed = [0; 14];
    stream.read_exact(&mut echoed).unwrap();
    assert_eq!((&echoed, opened_by_kernel(&wire)), (b"there and back", [0, 1]));
}

/// Listens, becomes `nobody`, and has two children accept, each one connection after another.
const FORKS_WORKERS: &str = "
import os, socket
server = socket.create_server(('0.0.0.0', 7333))
os.setuid(65534)
for worker in range(2):
    if os.fork() == 0:
        while True:
            caller, _ = server.accept()
            caller.sendall(b'%d' % os.getppid())
            caller.close()
os.wait()
";

#[test]
fn workers_that_a_program_forks_after_it_has_given_up_its_rights_have_its_callers() {
    let test = "workers_that_a_program_forks_after_it_has_given_up_its_rights_have_its_callers";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let server = start(&wire, "python3", &["-c", FORKS_WORKERS]);
    // Who connects before the forks is reset, as the listener is given up for the workers.
    let answer = || {
        let mut parent = String::new();
        call(&wire.far, 7_333)?.read_to_string(&mut parent)?;
        io::Result::Ok(parent)
    };
    wait_until("a worker answers", || answer().is_ok_and(|parent| !parent.is_empty()));
    (0..8).for_each(|_| assert_eq!(answer().unwrap(), server.id().to_string()));
}

/// Listens, forks a helper that becomes `nobody` and waits, and accepts. The helper ends once the
/// caller has been answered.
const HAS_A_HELPER: &str = "
import os, socket
server = socket.create_server(('0.0.0.0', 7334))
became, done = os.pipe(), os.pipe()
if os.fork() == 0:
    os.setuid(65534)
    os.write(became[1], b'1')
    os.read(done[0], 1)
    os.execlp('true', 'true')
os.read(became[0], 1)
caller, _ = server.accept()
caller.sendall(b'%d' % os.getpid())
caller.close()
os.write(done[1], b'1')
os.wait()
";

#[test]
fn helper_of_another_user_leaves_its_parents_listener_alone() {
    let test = "helper_of_another_user_leaves_its_parents_listener_alone";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let server = start(&wire, "python3", &["-c", HAS_A_HELPER]);
    let mut process = String::new();
    // Who connects just before the fork is reset; the next one is answered.
    wait_until("it answers", || {
        call(&wire.far, 7_334).is_ok_and(|mut stream| stream.read_to_string(&mut process).is_ok_and(|len| len > 0))
    });
    assert_eq!((process, opened_by_kernel(&wire)), (server.id().to_string(), [0, 0]));
}
