//! A broker that is killed and started again: what its programs lose, and what is theirs again.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);

/// Waits for datagrams of a group and of a port, for callers, and for the end of a connection of
/// its own. A line says what has come.
const TRADER: &str = "\
import errno, selectors, socket, sys
ours, theirs = sys.argv[1:]
feed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
feed.bind(('239.1.1.1', 9000))
feed.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.1.1.1') + socket.inet_aton(ours))
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(('', 7006))
listener = socket.create_server(('', 7005))
def called():
    stream = socket.create_connection((theirs, 7000))
    stream.sendall(b'echo')
    stream.recv(4)
    return stream
stream = called()
waits = selectors.DefaultSelector()
for made in (feed, own, listener, stream): waits.register(made, selectors.EVENT_READ)
print('ready', flush=True)
while True:
    for key, _ in waits.select():
        made = key.fileobj
        try:
            if made is listener: made.accept()[0].sendall(b'served')
            else:
                said = made.recv(2048).decode()
                print(said, flush=True)
                if said == 'call': called(); print('called', flush=True)
        except OSError as error:
            print(errno.errorcode[error.errno], flush=True)
            if made is stream: waits.unregister(made); made.close()
";

#[test]
fn sockets_of_a_program_are_on_wirepath_again_once_its_af_xdp_broker_is_there_again() {
    let test = "sockets_of_a_program_are_on_wirepath_again_once_its_af_xdp_broker_is_there_again";
    if has_program(test, "python3")
        && let Some(rig) = Rig::new(test)
    {
        comes_back(rig, &[]);
    }
}

#[test]
fn sockets_of_a_program_are_on_wirepath_again_once_a_broker_passes_frames_on_again() {
    let test = "sockets_of_a_program_are_on_wirepath_again_once_a_broker_passes_frames_on_again";
    if has_program(test, "python3")
        && let Some(rig) = Rig::with(test, &["--forward"])
    {
        comes_back(rig, &["--forward"]);
    }
}

#[test]
fn sockets_of_a_program_are_on_wirepath_again_once_the_broker_of_its_connectx_is_there_again() {
    let test = "sockets_of_a_program_are_on_wirepath_again_once_the_broker_of_its_connectx_is_there_again";
    if let Some(rig) = connectx::connectx(test) {
        comes_back(rig, &[]);
    }
}

/// Two processes that share a listener, each until its standard input ends: each answers a caller
/// with its number, echoes what it sends, and echoes datagrams to a port of its own.
const WORKERS: &str = "\
import os, selectors, socket, sys
listener = socket.create_server(('', 7005))
listener.setblocking(False)
number = 1 if os.fork() else 2
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(('', 7010 + number))
waits = selectors.DefaultSelector()
for made in (listener, own, sys.stdin): waits.register(made, selectors.EVENT_READ)
print('ready', flush=True)
while True:
    for key, _ in waits.select():
        made = key.fileobj
        if made is sys.stdin: os._exit(0)
        try:
            if made is listener:
                stream, _ = listener.accept()
                stream.sendall(bytes([number]))
                waits.register(stream, selectors.EVENT_READ)
            elif made is own: own.sendto(*own.recvfrom(2048))
            else:
                said = made.recv(2048)
                if said: made.sendall(said)
                else: waits.unregister(made); made.close()
        except OSError: pass
";

#[test]
fn kernels_connection_of_a_process_outlives_the_return_of_another_that_shares_the_listener() {
    let test = "kernels_connection_of_a_process_outlives_the_return_of_another_that_shares_the_listener";
    if !has_program(test, "python3") {
        return;
    }
    let Some(mut rig) = Rig::with(test, &["--forward"]) else { return };
    let mut program = rig.start(SERVED, &["python3", "-c", WORKERS]);
    let mut said = BufReader::new(program.stdout.take().unwrap());
    (0..2).for_each(|_| assert_eq!(next_line(&mut said), "ready\n"));
    drop(served(&rig));
    assert_eq!(by_kernel(&rig), (0, 0, 0));

    rig.kill_broker();
    let (number, mut stream) = served(&rig);
    assert_eq!(by_kernel(&rig), (0, 1, 0));
    (rig.broker, rig.log) = start_broker(&rig.wire, &rig.folder, &rig.port, &["--forward"]);
    // The one without the connection first: the other one looks for its own anyway.
    for number in [3 - number, number] {
        echoes_on_wirepath(&rig, 7_010 + u16::from(number));
    }
    stream.write_all(b"still here").unwrap();
    let mut echoed = [0; 10];
    stream.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"still here");
    drop(served(&rig));
    drop(end(program));
}

/// The connection of a caller, and the number of the process that has accepted it.
fn served(rig: &Rig) -> (u8, TcpStream) {
    let mut stream = rig.wire.far.run(|| TcpStream::connect((OURS, 7_005))).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut number = [0];
    stream.read_exact(&mut number).unwrap();
    (number[0], stream)
}

/// Waits until the process of this port receives by wirepath, and sends: before, sends fail.
fn echoes_on_wirepath(rig: &Rig, port: u16) {
    let socket = rig.wire.socket((THEIRS, 0));
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    wait_until("datagrams are echoed past the kernel", || {
        let before = by_kernel(rig).0;
        socket.send_to(b"again", (OURS, port)).unwrap();
        socket.recv(&mut [0; 16]).is_ok() && by_kernel(rig).0 == before
    });
}

#[test]
fn program_whose_interface_is_made_anew_without_a_broker_says_so_and_stays_the_kernels() {
    let test = "program_whose_interface_is_made_anew_without_a_broker_says_so_and_stays_the_kernels";
    if !has_program(test, "python3") {
        return;
    }
    let Some(mut rig) = Rig::new(test) else { return };
    echo(&rig.wire);
    let (mut program, mut said) = trader(&rig);
    let told = told_by(&mut program);
    rig.kill_broker();
    (0..3).for_each(|_| assert_eq!(next_line(&mut said), "ENETDOWN\n"));

    let ip = |args: &str| _ = rig.wire.near.command("ip", &args.split(' ').collect::<Vec<_>>()).unwrap();
    ip(&format!("link del {NEAR}"));
    ip(&format!("link add {NEAR} type veth peer name elsewhere"));
    ip(&format!("addr add {OURS}/24 dev {NEAR}"));
    ip(&format!("link set {NEAR} up"));
    ip("link set elsewhere up");
    ip("link set lo up");
    (rig.broker, rig.log) = start_broker(&rig.wire, &rig.folder, &rig.port, &[]);
    let sender = rig.wire.near.run(|| UdpSocket::bind((OURS, 0))).unwrap();
    wait_until("the program says that it is to be started again", || {
        sender.send_to(b"look", (OURS, 7_006)).unwrap();
        assert_eq!(next_line(&mut said), "look\n");
        told.lock().unwrap().contains(&format!("{NEAR} has been made anew: start the program again"))
    });
    assert!(!told.lock().unwrap().contains("is there again"), "{}", told.lock().unwrap());
    drop(end(program));
}

/// Four threads, each of which sleeps in its call until there is something: one that answers
/// callers, and three that echo datagrams of a port each. A line says which error one has had.
const SLEEPERS: &str = "\
import errno, os, select, socket, threading
def told(line): os.write(1, line.encode() + b'\\n')
def bound(port):
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(('', port))
    return own
def echo(own, sleep):
    while True:
        sleep()
        try: own.sendto(*own.recvfrom(2048))
        except OSError as error: told(errno.errorcode[error.errno])
listener = socket.create_server(('', 7005))
by_poll, by_epoll = select.poll(), select.epoll()
receives, polls, epolls = bound(7006), bound(7007), bound(7008)
by_poll.register(polls, select.POLLIN)
by_epoll.register(epolls, select.EPOLLIN)
for own, sleep in (receives, lambda: None), (polls, by_poll.poll), (epolls, by_epoll.poll):
    threading.Thread(target=echo, args=(own, sleep)).start()
told('ready')
while True: listener.accept()[0].sendall(b'served')
";

#[test]
fn threads_that_sleep_in_calls_are_on_wirepath_again_once_their_broker_is_there_again() {
    let test = "threads_that_sleep_in_calls_are_on_wirepath_again_once_their_broker_is_there_again";
    if !has_program(test, "python3") {
        return;
    }
    let Some(mut rig) = Rig::new(test) else { return };
    let mut program = rig.start(SERVED, &["python3", "-c", SLEEPERS]);
    let told = told_by(&mut program);
    let mut said = BufReader::new(program.stdout.take().unwrap());
    assert_eq!(next_line(&mut said), "ready\n");
    let all_serve = |rig: &Rig| {
        serves(rig);
        [7_006, 7_007, 7_008].into_iter().for_each(|port| echoes_on_wirepath(rig, port));
    };
    all_serve(&rig);
    let before = by_kernel(&rig);

    rig.kill_broker();
    (0..3).for_each(|_| assert_eq!(next_line(&mut said), "ENETDOWN\n"));
    (rig.broker, rig.log) = start_broker(&rig.wire, &rig.folder, &rig.port, &[]);
    // Nothing comes for the program meanwhile, which would end one of the calls.
    wait_until("a thread that sleeps has found the broker", || {
        told.lock().unwrap().contains(&format!("the broker of {NEAR} is there again"))
    });
    all_serve(&rig);
    assert_eq!(by_kernel(&rig), before, "datagrams, callers and calls that the kernel has had");
    drop(end(program));
}

/// What a program writes to standard error, as it comes.
fn told_by(program: &mut Child) -> Arc<Mutex<String>> {
    let told = Arc::new(Mutex::new(String::new()));
    let (lines, so_far) = (BufReader::new(program.stderr.take().unwrap()).lines(), told.clone());
    thread::spawn(move || lines.map_while(Result::ok).for_each(|line| so_far.lock().unwrap().push_str(&(line + "\n"))));
    told
}

/// The broker of a program is killed and started again. Meanwhile the kernel receives for it.
fn comes_back(mut rig: Rig, options: &[&str]) {
    echo(&rig.wire);
    let (program, mut said) = trader(&rig);
    let sender = rig.wire.socket((THEIRS, 0));
    let send = |bytes: &str, to: (Ipv4Addr, u16)| _ = sender.send_to(bytes.as_bytes(), to).unwrap();
    send("first", (GROUP, 9_000));
    assert_eq!(next_line(&mut said), "first\n");
    serves(&rig);
    assert_eq!(by_kernel(&rig), (0, 0, 0));

    rig.kill_broker();
    // The connection, and each datagram socket once.
    (0..3).for_each(|_| assert_eq!(next_line(&mut said), "ENETDOWN\n"));
    send("meanwhile", (GROUP, 9_000));
    send("here too", (OURS, 7_006));
    let lines: BTreeSet<String> = (0..2).map(|_| next_line(&mut said)).collect();
    assert!(lines.contains("meanwhile\n") && lines.contains("here too\n"), "{lines:?}");
    serves(&rig);
    assert_eq!(by_kernel(&rig), (2, 1, 0), "datagrams, callers and calls that the kernel has had");

    (rig.broker, rig.log) = start_broker(&rig.wire, &rig.folder, &rig.port, options);
    let mut before = by_kernel(&rig);
    wait_until("the kernel gets no datagram more", || {
        send("again", (OURS, 7_006));
        assert_eq!(next_line(&mut said), "again\n");
        let now = by_kernel(&rig);
        core::mem::replace(&mut before, now) == now
    });
    send("last", (GROUP, 9_000));
    assert_eq!(next_line(&mut said), "last\n");
    serves(&rig);
    send("call", (OURS, 7_006));
    assert_eq!((next_line(&mut said), next_line(&mut said)), ("call\n".into(), "called\n".into()));
    assert_eq!(by_kernel(&rig), before, "datagrams, callers and calls that the kernel has had");
    let told = String::from_utf8(end(program).stderr).unwrap();
    assert!(told.contains(&format!("the broker of {NEAR} is there again")), "{told}");
}

/// The program, once it waits.
fn trader(rig: &Rig) -> (Child, BufReader<ChildStdout>) {
    let mut child = rig.start(SERVED, &["python3", "-c", TRADER, &OURS.to_string(), &THEIRS.to_string()]);
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let first = next_line(&mut said);
    assert!(first == "ready\n", "{first:?}: {}", String::from_utf8_lossy(&end(child).stderr));
    (child, said)
}

/// A caller of the program is served.
fn serves(rig: &Rig) {
    let mut stream = rig.wire.far.run(|| TcpStream::connect((OURS, 7_005))).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "served");
}

/// What the near kernel has had: datagrams, callers, calls.
fn by_kernel(rig: &Rig) -> (u64, u64, u64) {
    let count = |protocol: &str, name: &str| received_by_kernel(&rig.wire, protocol, name);
    (count("Udp:", "InDatagrams"), count("Tcp:", "PassiveOpens"), count("Tcp:", "ActiveOpens"))
}
