//! Several sockets, threads, programs and users that want the same port or group of one ConnectX.

use std::net::Ipv4Addr;

use super::*;

/// Receives datagrams of a group, one line each.
const MEMBER: &str = "\
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
own.bind(('239.1.1.1', 9000))
own.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.1.1.1') + socket.inet_aton(sys.argv[1]))
print('ready', flush=True)
while True: print(own.recv(2048).decode(), flush=True)
";

#[test]
fn two_programs_of_two_users_receive_one_group_by_a_queue_each_of_a_connectx() {
    let test = "two_programs_of_two_users_receive_one_group_by_a_queue_each_of_a_connectx";
    let Some(rig) = connectx_for(test, &["--uid", &STRANGER.to_string()]) else { return };
    let mut members = [SERVED, STRANGER].map(|uid| {
        let command = rig.command(uid, &["python3", "-c", MEMBER, &OURS.to_string()]);
        let (child, said) = started(&rig, command, "ready\n");
        (Ended(child), said)
    });
    let sender = rig.wire.socket((THEIRS, 0));
    for round in ["first", "second"] {
        sender.send_to(round.as_bytes(), (Ipv4Addr::new(239, 1, 1, 1), 9_000)).unwrap();
        members.iter_mut().for_each(|(_, said)| assert_eq!(next_line(said), format!("{round}\n")));
    }
    assert_eq!(received_by_kernel(&rig.wire, "Udp:", "InDatagrams"), 0, "datagrams that the kernel got");
    // One leaves, and the other still receives.
    let [leaves, (_stays, mut said)] = members;
    drop(leaves);
    rig.until_logged(FREE);
    sender.send_to(b"third", (Ipv4Addr::new(239, 1, 1, 1), 9_000)).unwrap();
    assert_eq!(next_line(&mut said), "third\n");
}

/// Two listeners at one port by `SO_REUSEPORT`, a thread for each, that say which of them answers.
const TWO_LISTENERS: &str = "\
import socket, sys, threading
def listener():
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(('', 7005)); made.listen(64)
    return made
def serve(made, name):
    while True:
        stream, _ = made.accept()
        with stream: stream.sendall(name)
made = [listener(), listener()]
print('ready', flush=True)
for name, own in zip([b'first\\n', b'other\\n'], made): threading.Thread(target=serve, args=(own, name)).start()
";

/// Who answers a call of the far end.
fn answer(rig: &Rig) -> String {
    let stream = rig.wire.far.run(|| TcpStream::connect((OURS, 7_005))).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    next_line(&mut BufReader::new(stream))
}

#[test]
fn each_call_to_two_listeners_of_one_program_at_one_port_is_answered() {
    let test = "each_call_to_two_listeners_of_one_program_at_one_port_is_answered";
    let Some(rig) = connectx(test) else { return };
    let (child, _said) = started(&rig, rig.command(SERVED, &["python3", "-c", TWO_LISTENERS]), "ready\n");
    let _program = Ended(child);
    let answers: BTreeSet<String> = (0..32).map(|_| answer(&rig)).collect();
    assert!(answers.iter().all(|line| ["first\n", "other\n"].contains(&line.as_str())), "{answers:?}");
    assert_eq!(received_by_kernel(&rig.wire, "Tcp:", "PassiveOpens"), 0, "connections that the kernel got");
}

/// A listener with `SO_REUSEPORT` that says its name to each caller.
const LISTENER: &str = "\
import socket, sys
made = socket.socket()
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
made.bind(('', 7005)); made.listen(64)
print('ready', flush=True)
while True:
    stream, _ = made.accept()
    with stream: stream.sendall(sys.argv[1].encode() + b'\\n')
";

#[test]
fn second_program_at_a_port_of_a_connectx_is_refused_until_the_first_has_ended() {
    let test = "second_program_at_a_port_of_a_connectx_is_refused_until_the_first_has_ended";
    let Some(rig) = connectx(test) else { return };
    let (first, _said) = started(&rig, rig.command(SERVED, &["python3", "-c", LISTENER, "first"]), "ready\n");
    let first = Ended(first);
    // The NIC brings the frames of a port to one queue, so this one would wait for ever.
    let second = rig.start(SERVED, &["python3", "-c", LISTENER, "second"]).wait_with_output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && said.contains("Address already in use"), "{said}");
    (0..8).for_each(|_| assert_eq!(answer(&rig), "first\n"));
    drop(first);
    let mut next = None;
    wait_until("the port is free", || {
        let mut child = rig.start(SERVED, &["python3", "-c", LISTENER, "next"]);
        let listens = next_line(&mut BufReader::new(child.stdout.take().unwrap())) == "ready\n";
        next = Some(Ended(child));
        listens
    });
    assert_eq!(answer(&rig), "next\n");
}

/// Echoes datagrams at a port that it would share. It never forks, as that gives the queue back for
/// a moment.
const SHARING: &str = "\
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
own.bind((sys.argv[1], int(sys.argv[2])))
print('ready', flush=True)
while True: own.sendto(*own.recvfrom(2048))
";

#[test]
fn port_of_another_users_program_is_refused_on_a_connectx_and_stays_with_who_has_it() {
    let test = "port_of_another_users_program_is_refused_on_a_connectx_and_stays_with_who_has_it";
    let Some(rig) = connectx_for(test, &["--uid", &STRANGER.to_string()]) else { return };
    // The kernel lets both have it, because both ask for that.
    let (first, _) =
        started(&rig, rig.command(SERVED, &["python3", "-c", SHARING, &OURS.to_string(), "7006"]), "ready\n");
    let _first = Ended(first);
    datagram(&rig, 7_006);
    let receiver = format!("UDP-RECV:7006,bind={OURS},reuseaddr");
    let second = rig.start(STRANGER, &["socat", "-u", &receiver, "-"]).wait_with_output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && said.contains("Address already in use"), "{said}");
    rig.until_logged(&format!("of user {STRANGER} is refused: another client, of user {SERVED}, has `UDP to"));
    datagram(&rig, 7_006);
}

/// Two threads that echo datagrams at a port each.
const TWO_THREADS: &str = "\
import socket, threading
def serve(port, there):
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(('', port))
    there.set()
    while True:
        data, peer = own.recvfrom(2048)
        own.sendto(data, peer)
for port in 7005, 7006:
    there = threading.Event()
    threading.Thread(target=serve, args=(port, there)).start()
    there.wait()
print('ready', flush=True)
";

#[test]
fn each_engine_of_a_program_has_a_queue_of_its_own_on_a_connectx() {
    let test = "each_engine_of_a_program_has_a_queue_of_its_own_on_a_connectx";
    let Some(rig) = connectx(test) else { return };
    let mut command = rig.command(SERVED, &["python3", "-c", TWO_THREADS]);
    command.env("WIREPATH_ENGINES", "2");
    let (child, _said) = started(&rig, command, "ready\n");
    let program = Ended(child);
    [7_005, 7_006].iter().for_each(|port| datagram(&rig, *port));
    let mappings = fs::read_to_string(format!("/proc/{}/maps", program.0.id())).unwrap();
    assert_eq!(mappings.matches("infiniband/uverbs").count(), 2, "registers of queues");
    // The program writes its listing twice a second.
    let lent = || -> BTreeSet<Option<u64>> {
        let report = report(&rig, "sockets");
        let queues = report["processes"][0]["lent_queues"].as_array().cloned().unwrap_or_default();
        queues.iter().flat_map(|queue| [&queue["send"], &queue["receive"]].map(serde_json::Value::as_u64)).collect()
    };
    wait_until("both are listed", || lent().len() == 4);
    let numbers = lent();
    assert!(!numbers.contains(&Some(0)) && !numbers.contains(&None), "{numbers:?}");
    assert_eq!(received_by_kernel(&rig.wire, "Udp:", "InDatagrams"), 0, "datagrams that the kernel got");
}
