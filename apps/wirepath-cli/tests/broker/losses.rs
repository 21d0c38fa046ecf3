//! Flows that a broker takes back while their program runs: the program's sockets say so.

use std::fs::{self, Permissions};
use std::io::{BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use wirepath_tests::live::{NEAR, OURS, THEIRS, has_program, wait_until};

use super::{Ended, Rig, SERVED, STRANGER, echo, next_line};

/// Has a connection from one port and datagrams at another one, waits for both, and says how each
/// receive ends.
const HOLDER: &str = "\
import errno, os, socket, sys, threading
theirs, ours = sys.argv[1], sys.argv[2]
stream = socket.create_connection((theirs, 7000), source_address=(ours, 7031))
stream.sendall(b'echo')
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
datagrams.bind((ours, 7030))
datagrams.sendto(b'echo', (theirs, 7000))
print(len(stream.recv(4)) + len(datagrams.recv(4)), flush=True)
def ends(call):
    try: return len(call())
    except OSError as error: return errno.errorcode[error.errno]
def say(what, call): print(what, ends(call), flush=True)
say('datagrams', lambda: datagrams.recv(4))
say('sent', lambda: datagrams.sendto(b'echo', (theirs, 7000)))
sys.stdin.readline()
say('stream', lambda: stream.recv(4))
sys.stdin.readline()
";

/// Such a program once both are answered.
fn holder(rig: &Rig) -> (Ended, impl FnMut() -> String) {
    echo(&rig.wire);
    let program = ["python3", "-c", HOLDER, &THEIRS.to_string(), &OURS.to_string()];
    let mut child = rig.start(SERVED, &program);
    let mut said = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(next_line(&mut said), "8\n");
    (Ended(child), move || next_line(&mut said).trim_end().to_owned())
}

/// Waits until `wirepath sockets` lists a socket with these words.
fn until_listed(rig: &Rig, words: &[&str]) {
    let mut tool = Command::new(rig.folder.path().join("wirepath"));
    tool.arg("sockets").env("WIREPATH_SHM", rig.folder.path().join("shm"));
    wait_until("the list says so", || {
        let listed = String::from_utf8(tool.output().unwrap().stdout).unwrap();
        listed.lines().any(|line| words.iter().all(|word| line.contains(word)))
    });
}

#[test]
fn broker_whose_counters_have_no_file_says_so_and_serves() {
    let test = "broker_whose_counters_have_no_file_says_so_and_serves";
    let Some(mut rig) = Rig::new(test) else { return };
    rig.broker.kill().unwrap();
    rig.broker.wait().unwrap();
    // No folder can be made there.
    let shm = rig.folder.path().join("shm");
    fs::remove_dir_all(&shm).unwrap();
    let mut broker = Command::new(rig.folder.path().join("wirepath"));
    broker.args(["broker", "--interface", NEAR, "--uid", &SERVED.to_string(), "--socket"]);
    broker.arg(rig.folder.path().join("socket")).env("WIREPATH_SHM", "/proc/none").stderr(Stdio::piped());
    rig.broker = rig.wire.near.run(|| broker.spawn()).unwrap();
    let mut said = BufReader::new(rig.broker.stderr.take().unwrap());
    let first = next_line(&mut said);
    assert!(first.contains("; `wirepath stats` does not show its counters ("), "{first}");
    fs::create_dir(&shm).unwrap();
    fs::set_permissions(&shm, Permissions::from_mode(0o1777)).unwrap();
    echo(&rig.wire);
    assert_eq!(rig.talk(&["socat", "-", &format!("UDP:{THEIRS}:7000")], "by udp"), "by udp");
}

#[test]
fn sockets_whose_flows_new_rules_do_not_give_report_eacces_and_are_listed_so() {
    let test = "sockets_whose_flows_new_rules_do_not_give_report_eacces_and_are_listed_so";
    if !has_program(test, "python3") {
        return;
    }
    for options in [&[][..], &["--forward"]] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.toml");
        let rule = |ports: &str| fs::write(&file, format!("[[allow]]\nuser = {SERVED}\nports = {ports}\n")).unwrap();
        rule("['udp 7030', 'tcp 7031']");
        let Some(rig) = Rig::with(test, &[&["--rules", file.to_str().unwrap()], options].concat()) else { return };
        let (mut program, mut says) = holder(&rig);
        let hang_up = |ports: &str| {
            rule(ports);
            let broker = rig.broker.id().to_string();
            assert!(Command::new("kill").args(["-HUP", &broker]).status().unwrap().success());
        };
        // It sleeps in its receive.
        hang_up("'tcp 7031'");
        assert_eq!([says(), says()], ["datagrams EACCES", "sent EACCES"], "{options:?}");
        until_listed(&rig, &["udp", ":7030", "kernel", "taken back by the broker: its rules do not give it any more"]);
        until_listed(&rig, &["tcp", ":7031", "established", "wirepath"]);
        hang_up("'tcp 9'");
        until_listed(&rig, &["tcp", ":7031", "kernel", "taken back by the broker: its rules do not give it any more"]);
        writeln!(program.0.stdin.as_mut().unwrap()).unwrap();
        assert_eq!(says(), "stream EACCES", "{options:?}");
    }
}

/// Binds so many ports that their rules are not removed in one turn of the broker's loop.
const MANY: &str = "\
import socket, sys
made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(300)]
for port, one in enumerate(made, 20000): one.bind((sys.argv[2], port))
made[-1].sendto(b'echo', (sys.argv[1], 7000))
print(len(made[-1].recv(4)), flush=True)
sys.stdin.readline()
";

#[test]
fn killed_program_of_many_flows_leaves_its_queue_and_all_ports_to_the_next() {
    let test = "killed_program_of_many_flows_leaves_its_queue_and_all_ports_to_the_next";
    if !has_program(test, "python3") {
        return;
    }
    for options in [&[][..], &["--forward"]] {
        let Some(rig) = Rig::with(test, options) else { return };
        echo(&rig.wire);
        for _ in 0..3 {
            let mut child = rig.start(SERVED, &["python3", "-c", MANY, &THEIRS.to_string(), &OURS.to_string()]);
            let line = next_line(&mut BufReader::new(child.stdout.take().unwrap()));
            // SIGKILL, and at once the next.
            let said = super::end(child).stderr;
            assert_eq!(line, "4\n", "{options:?}: {}", String::from_utf8_lossy(&said));
        }
        assert_eq!(super::received_by_kernel(&rig.wire, "Udp:", "InDatagrams"), 0, "{options:?}");
    }
}

/// A member of a group, which says what it receives.
const MEMBER: &str = "\
import socket, sys
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
made.bind((sys.argv[2], 7033))
group = socket.inet_aton('239.1.1.1') + socket.inet_aton(sys.argv[1])
made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
print('member', flush=True)
print(made.recv(8).decode(), flush=True)
sys.stdin.readline()
";

#[test]
fn members_of_two_users_each_receive_the_datagrams_of_a_group_where_frames_are_passed_on() {
    let test = "members_of_two_users_each_receive_the_datagrams_of_a_group_where_frames_are_passed_on";
    if !has_program(test, "python3") {
        return;
    }
    for bound in ["239.1.1.1", "0.0.0.0"] {
        let Some(rig) = Rig::with(test, &["--forward", "--uid", &STRANGER.to_string()]) else { return };
        each_member_receives(&rig, bound);
    }
}

fn each_member_receives(rig: &Rig, bound: &str) {
    let mut members: Vec<_> = [SERVED, STRANGER]
        .iter()
        .map(|&uid| {
            let mut child = rig.start(uid, &["python3", "-c", MEMBER, &OURS.to_string(), bound]);
            let mut said = BufReader::new(child.stdout.take().unwrap());
            let line = next_line(&mut said);
            assert!(line == "member\n", "{bound} {uid}: {}", String::from_utf8_lossy(&super::end(child).stderr));
            (Ended(child), said)
        })
        .collect();
    let sender = rig.wire.far.run(|| UdpSocket::bind((THEIRS, 0)).unwrap());
    sender.send_to(b"to all", ("239.1.1.1", 7_033)).unwrap();
    for (_, said) in &mut members {
        assert_eq!(next_line(said), "to all\n");
    }
    assert_eq!(super::received_by_kernel(&rig.wire, "Udp:", "InDatagrams"), 0);
}
