//! Servers that root starts and whose workers run as another user: the listeners are root's in the
//! kernel, and the workers have them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use wirepath_tests::live::{OURS, THEIRS, TIMEOUT, has_program, wait_until};

use super::{Ended, Rig, echo, received_by_kernel, reload_moves_no_connection, two_workers, worker};

/// The broker compares flows with the kernel's sockets every two seconds.
const THREE_REVIEWS: Duration = Duration::from_secs(7);

/// The configuration of an nginx whose files are all in the rig's folder.
pub(super) fn nginx_as_nobody(rig: &Rig, workers: usize, listen: &str) -> String {
    let folder = rig.folder.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name};"))
        .concat();
    format!(
        "daemon off; user nobody nogroup; worker_processes {workers}; pid {folder}/nginx.pid;\n\
         error_log {folder}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; keepalive_timeout 600; {temporary}\n\
         server {{ listen {listen}; location / {{ return 200 \"$pid\\n\"; }} }} }}\n"
    )
}

/// Whether a process is of the user `nobody`.
fn is_nobodys(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().any(|line| line == "Uid:\t65534\t65534\t65534\t65534")
}

fn serves_as_nobody(test: &str, listen: &str) {
    if !has_program(test, "nginx") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward", "--uid", "nobody"]) else { return };
    let config = rig.folder.path().join("nginx.conf");
    fs::write(&config, nginx_as_nobody(&rig, 2, listen)).unwrap();
    let mut nginx = Ended(rig.start(0, &["nginx", "-c", config.to_str().unwrap()]));
    let workers = two_workers(&rig, &BTreeSet::new());
    assert!(workers.iter().all(|worker| is_nobodys(worker)), "{workers:?}");
    reload_moves_no_connection(&rig, &mut nginx, &workers, || {
        let began = Instant::now();
        while began.elapsed() < THREE_REVIEWS {
            assert!(worker(&rig).is_some_and(|worker| workers.contains(&worker)));
        }
    });
}

#[test]
fn workers_of_another_user_keep_a_listener_that_root_has_made_also_after_a_reload() {
    serves_as_nobody("workers_of_another_user_keep_a_listener_that_root_has_made_also_after_a_reload", "7080");
}

#[test]
fn workers_of_another_user_have_each_a_listener_that_root_has_made_for_it() {
    serves_as_nobody("workers_of_another_user_have_each_a_listener_that_root_has_made_for_it", "7080 reuseport");
}

#[test]
fn haproxy_in_a_chroot_and_as_another_user_is_past_the_kernel_on_both_sides() {
    let test = "haproxy_in_a_chroot_and_as_another_user_is_past_the_kernel_on_both_sides";
    if !has_program(test, "haproxy") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward", "--uid", "nobody"]) else { return };
    echo(&rig.wire);
    let (file, empty) = (rig.folder.path().join("haproxy.cfg"), rig.folder.path().join("empty"));
    fs::create_dir(&empty).unwrap();
    let words = format!(
        "global\n  nbthread 1\n  chroot {}\n  user nobody\n  group nogroup\n\
         defaults\n  timeout connect 30s\n  timeout client 60s\n  timeout server 60s\n\
         listen echo\n  mode tcp\n  bind :7100\n  server far {THEIRS}:7000\n",
        empty.display()
    );
    fs::write(&file, words).unwrap();
    let _haproxy = Ended(rig.start(0, &["haproxy", "-W", "-f", file.to_str().unwrap()]));
    let echoes = || {
        let mut stream = rig.wire.far.run(|| TcpStream::connect((OURS, 7_100))).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut echoed = [0; 5];
        stream.write_all(b"there").and_then(|()| stream.read_exact(&mut echoed)).ok()?;
        Some(echoed == *b"there")
    };
    wait_until("it serves", || echoes() == Some(true));
    let began = Instant::now();
    while began.elapsed() < THREE_REVIEWS {
        assert_eq!(echoes(), Some(true));
    }
    let opened = ["PassiveOpens", "ActiveOpens"].map(|name| received_by_kernel(&rig.wire, "Tcp:", name));
    assert_eq!(opened, [0, 0], "connections of the kernel");
}

/// Echoes datagrams: the parent those to a port that it binds as root and to one that it binds as
/// `nobody`, with the queue that it has got as root; a child, which is `nobody`, those to a port
/// that root has bound.
const DATAGRAMS: &str = "
import os, select, socket
def bound(port):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(('0.0.0.0', port))
    return made
def become_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
def echo(*sockets):
    while True:
        for ready in select.select(sockets, [], [])[0]:
            ready.sendto(*ready.recvfrom(100))
of_child = bound(7330)
if os.fork() == 0:
    become_nobody()
    echo(of_child)
of_child.close()
of_root = bound(7331)
become_nobody()
of_nobody = bound(7332)
echo(of_root, of_nobody)
";

#[test]
fn datagrams_come_to_a_process_of_another_user_than_the_sockets_also_after_reviews() {
    let test = "datagrams_come_to_a_process_of_another_user_than_the_sockets_also_after_reviews";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward", "--uid", "nobody"]) else { return };
    let _server = Ended(rig.start(0, &["python3", "-c", DATAGRAMS]));
    let socket = rig.wire.far.run(|| UdpSocket::bind((THEIRS, 0)).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut count = 0_u32;
    // A datagram may be lost, and an echo come late: what the kernel has got is the judge.
    let mut echoes = |port: u16| {
        count += 1;
        socket.send_to(&count.to_ne_bytes(), (OURS, port)).unwrap();
        let mut bytes = [0; 4];
        while socket.recv(&mut bytes).is_ok() {
            if bytes == count.to_ne_bytes() {
                return true;
            }
        }
        false
    };
    for port in [7_330, 7_331, 7_332] {
        wait_until("it echoes", || echoes(port));
    }
    let (began, before) = (Instant::now(), received_by_kernel(&rig.wire, "Udp:", "InDatagrams"));
    while began.elapsed() < THREE_REVIEWS {
        for port in [7_330, 7_331, 7_332] {
            wait_until("it echoes again", || echoes(port));
        }
    }
    assert_eq!(received_by_kernel(&rig.wire, "Udp:", "InDatagrams"), before, "datagrams that the kernel got");
}
