//! The broker's loop over a port that notes what it is told.

#![allow(clippy::unwrap_used)] // a panic here is the report

use core::cell::RefCell;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::rc::Rc;

use tempfile::TempDir;

use super::*;
use crate::device::DeviceError;
use crate::device::broker::message::{Flow, MESSAGE_LEN_MAX, Request, VERSION, Welcome};
use crate::device::broker::request::QueueRequest;
use crate::device::broker::rule_id;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::sys::process;
use crate::wire::Protocol;
use crate::worker::broker::closer::tests::lingering;
use crate::worker::broker::ended::REMOVED_A_TURN;
use crate::worker::broker::rights::{BrokerUser, ClientRights};
use crate::worker::broker::waiting::Lent;

const UID: u32 = 1_000;
const QUEUE: u16 = 3;

/// What the port was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    End(u16),
    Unsteer(RuleId),
}

#[derive(Default)]
struct NotedPort(Rc<RefCell<Vec<Call>>>);

impl LendingPort for NotedPort {
    fn interface(&self) -> &str {
        "none"
    }

    fn interface_idx(&self) -> u32 {
        0
    }

    fn describe(&self) -> String {
        "a port of a test".into()
    }

    fn queues(&self) -> u16 {
        8
    }

    fn rules_max(&self) -> usize {
        1_024
    }

    fn welcome(&self, forwards: bool) -> Welcome {
        Welcome { interface_idx: 0, native: false, has_rx_hints: false, forwards, steers: true, nic: None }
    }

    fn check(&self, _order: &QueueRequest, _memory_max: u64) -> Result<(), String> {
        Ok(())
    }

    fn lend(&mut self, _idx: u16, _order: &QueueRequest) -> Result<Option<Lent>, DeviceError> {
        Ok(None)
    }

    fn connect(&mut self, _idx: u16, _lent: &Lent) -> io::Result<()> {
        Ok(())
    }

    fn disconnect(&mut self, _idx: u16) {}

    fn end(&mut self, idx: u16) {
        self.0.borrow_mut().push(Call::End(idx));
    }

    fn steer(&mut self, _rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        Ok(rule_id(idx.into()))
    }

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        self.0.borrow_mut().push(Call::Unsteer(id));
        Ok(())
    }

    fn look_after(&mut self) {}

    fn why_ended(&self) -> Option<String> {
        None
    }
}

/// A broker of such a port, and what that is told.
fn broker() -> (Broker, Rc<RefCell<Vec<Call>>>, TempDir) {
    broker_of(BrokerConfig::new("none"))
}

fn broker_of(config: BrokerConfig) -> (Broker, Rc<RefCell<Vec<Call>>>, TempDir) {
    let (folder, port, block) = (tempfile::tempdir().unwrap(), NotedPort::default(), Block::heap());
    let icmp_errors = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    icmp_errors.set_nonblocking(true).unwrap();
    let parts = OpenParts {
        listener: Listener::open(&folder.path().join("socket")).unwrap(),
        mirror: Mirror::open(&block.scope("broker")).unwrap(),
        icmp_errors,
        forwarder: None,
        block,
        uncounted: None,
    };
    let told = Rc::clone(&port.0);
    (Broker::over(config, Box::new(port), parts), told, folder)
}

/// A client that has a queue and this many flows, with its end of the connection.
fn client(broker: &mut Broker, flows: u16) -> (ClientId, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = Peer { pid: 0, uid: UID, groups: Vec::new() };
    let rights = ClientRights::User(BrokerUser { uid: UID, low_ports: Vec::new() });
    broker.clients.add(ours.into(), peer, None, rights, Instant::now());
    let id = broker.clients.iter().next().unwrap().id;
    broker.clients.give(id, QUEUE);
    for idx in 0..flows {
        let destination = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 1_024 + idx);
        let flow = Flow { protocol: Protocol::UDP, destination, source: None, source_port: None, vlan: None };
        broker.flows.add(id, UID, flow, vec![rule_id(idx.into())]);
    }
    (id, theirs)
}

#[test]
fn rings_of_a_client_that_has_ended_are_reset_at_once_and_its_rules_go_some_a_turn() {
    let (mut broker, told, _folder) = broker();
    let (id, _theirs) = client(&mut broker, 200);
    broker.end_client(id, &mut |_| ());
    assert_eq!(*told.borrow(), [Call::End(QUEUE)]);
    let mut turns = 0;
    while !broker.ended.is_empty() {
        let before = told.borrow().len();
        // The queue is not lent while a rule of another client leads there.
        assert!(broker.ended.has_queue(QUEUE));
        broker.turn(&mut |_| ()).unwrap();
        let removed = told.borrow().len() - before;
        assert!((1..=REMOVED_A_TURN).contains(&removed), "{removed} in a turn");
        turns += 1;
    }
    let told = told.borrow();
    assert!((0..200).all(|idx| told.contains(&Call::Unsteer(rule_id(idx)))), "each is removed");
    assert_eq!((told.len(), turns), (1 + 200, 200_usize.div_ceil(REMOVED_A_TURN)));
    assert!(!broker.ended.has_queue(QUEUE));
}

/// Connects to a broker that serves this user, and does not accept the connection yet.
fn connect(broker: &mut Broker, folder: &TempDir) -> OwnedFd {
    let user = BrokerUser { uid: process::effective_user(), low_ports: Vec::new() };
    broker.rights = Rights::Users(vec![user]);
    sys::connect(&folder.path().join("socket"), Duration::from_secs(5)).unwrap()
}

/// Two connections that are accepted.
fn two(broker: &mut Broker, folder: &TempDir) -> (OwnedFd, OwnedFd) {
    let sockets = (connect(broker, folder), connect(broker, folder));
    broker.turn(&mut |_| ()).unwrap();
    sockets
}

/// The broker's reply to a request that it refuses, and that therefore has no effect.
fn assert_answers(broker: &mut Broker, socket: &OwnedFd) {
    sys::send(socket, &Request::Unsteer { id: 1 }.encode(), &[]).unwrap();
    broker.turn(&mut |_| ()).unwrap();
    let mut bytes = [0; MESSAGE_LEN_MAX];
    let len = sys::receive(socket, &mut bytes, None).unwrap();
    assert!(matches!(Reply::decode(&bytes[..len]), Some(Reply::Refused { .. })));
}

/// Runs `test` in a thread. A loop that waits for a peer that reads nothing never ends it.
fn within_patience(test: fn()) {
    let (done, ended) = std::sync::mpsc::channel();
    let run = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    if ended.recv_timeout(Duration::from_secs(30)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("the broker's loop waits");
    }
    run.join().unwrap();
}

fn claim() -> Vec<u8> {
    Request::Claim { protocol: Protocol::TCP, port: 80 }.encode()
}

#[test]
fn files_that_never_close_stop_no_loop_however_many_come_in_a_message() {
    within_patience(|| {
        let (mut broker, _told, folder) = broker();
        let (hostile, other) = two(&mut broker, &folder);
        let (lingers, _peer) = lingering();
        let file = fs::File::open("/dev/null").unwrap();
        let descriptors: Vec<_> = [file.as_fd(); 12].into_iter().chain([lingers.as_fd()]).collect();
        sys::send_many(&hostile, &claim(), &descriptors).unwrap();
        drop(lingers);
        broker.turn(&mut |_| ()).unwrap();
        assert_answers(&mut broker, &other);
        assert_eq!(broker.clients.iter().count(), 1, "it has too many");
    });
}

#[test]
fn files_in_the_queue_of_a_connection_that_ends_stop_no_loop() {
    within_patience(|| {
        let (mut broker, _told, folder) = broker();
        let (hostile, other) = two(&mut broker, &folder);
        let (lingers, _peer) = lingering();
        for _ in 0..3 {
            sys::send(&hostile, &claim(), &[lingers.as_fd()]).unwrap();
        }
        drop((lingers, hostile));
        broker.turn(&mut |_| ()).unwrap();
        assert_answers(&mut broker, &other);
        assert_eq!(broker.clients.iter().count(), 1);
    });
}

#[test]
fn files_in_the_queue_of_a_stranger_stop_no_loop() {
    within_patience(|| {
        // Root is served as anybody: so it is one connection too many.
        let config = BrokerConfig { user_connections_max: 1, ..BrokerConfig::new("none") };
        let (mut broker, _told, folder) = broker_of(config);
        let other = connect(&mut broker, &folder);
        broker.turn(&mut |_| ()).unwrap();
        let stranger = connect(&mut broker, &folder);
        let (lingers, _peer) = lingering();
        sys::send(&stranger, &[], &[]).unwrap();
        sys::send(&stranger, &[], &[lingers.as_fd()]).unwrap();
        drop(lingers);
        broker.turn(&mut |_| ()).unwrap();
        assert_answers(&mut broker, &other);
        let mut bytes = [0; MESSAGE_LEN_MAX];
        // Where the broker's end is closed already, with what it has not read, the kernel says that
        // once, before the refusal.
        let received = match sys::receive(&stranger, &mut bytes, None) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => sys::receive(&stranger, &mut bytes, None),
            received => received,
        };
        assert!(matches!(Reply::decode(&bytes[..received.unwrap()]), Some(Reply::Refused { .. })));
    });
}

#[test]
fn claims_of_a_user_whose_files_do_not_close_wait_and_other_requests_do_not() {
    within_patience(|| {
        let (mut broker, _told, folder) = broker();
        let (one, other) = two(&mut broker, &folder);
        let (lingers, mut peer) = lingering();
        let file = fs::File::open("/dev/null").unwrap();
        broker.closer.close(process::effective_user(), vec![lingers]);
        let files = [file.as_fd(); 7].map(|file| file.try_clone_to_owned().unwrap());
        broker.closer.close(process::effective_user(), files.into());
        sys::send(&one, &claim(), &[file.as_fd()]).unwrap();
        broker.turn(&mut |_| ()).unwrap();
        assert!(broker.clients.iter().any(|client| client.is_held));
        assert_answers(&mut broker, &other);
        // Its files are closed once the peer reads on.
        io::Read::read_to_end(&mut peer, &mut Vec::new()).unwrap();
        while broker.clients.iter().any(|client| client.is_held) {
            broker.turn(&mut |_| ()).unwrap();
        }
        broker.turn(&mut |_| ()).unwrap();
        let mut bytes = [0; MESSAGE_LEN_MAX];
        assert!(sys::receive(&one, &mut bytes, None).unwrap() > 0, "its claim is answered");
    });
}

#[test]
fn request_of_another_user_over_the_connection_of_root_takes_roots_rights() {
    let test = "request_of_another_user_over_the_connection_of_root_takes_roots_rights";
    let script = "import socket, sys; socket.socket(fileno=0).send(bytes.fromhex(sys.argv[1]))";
    if process::effective_user() != 0 || !std::path::Path::new("/usr/bin/python3").exists() {
        println!("SKIPPED {test}: run it as root, with python3");
        return;
    }
    let (mut broker, _told, folder) = broker();
    let (socket, other) = two(&mut broker, &folder);
    let hello = Request::Hello { version: VERSION }.encode();
    let (mut bytes, mut files) = ([0; MESSAGE_LEN_MAX], Vec::new());
    for socket in [&socket, &other] {
        sys::send(socket, &hello, &[]).unwrap();
        broker.turn(&mut |_| ()).unwrap();
        sys::receive(socket, &mut bytes, Some(&mut files)).unwrap();
    }
    let serve = Request::Serve { uid: 0 }.encode();
    let words: String = serve.iter().map(|byte| format!("{byte:02x}")).collect();
    let child = std::process::Command::new("/usr/bin/python3")
        .args(["-c", script, &words])
        .stdin(socket.try_clone().unwrap())
        .uid(65_534)
        .gid(65_534)
        .status();
    assert!(child.unwrap().success());
    broker.turn(&mut |_| ()).unwrap();
    let lowered: Vec<_> = broker.clients.iter().map(|client| (client.peer.uid, client.peer.groups.clone())).collect();
    assert!(lowered.contains(&(65_534, vec![65_534])) && lowered.iter().any(|(uid, _)| *uid == 0), "{lowered:?}");
    let len = sys::receive(&socket, &mut bytes, None).unwrap();
    assert!(matches!(Reply::decode(&bytes[..len]), Some(Reply::Refused { errno: libc::EPERM, .. })));
    // It does not have them back.
    sys::send(&socket, &serve, &[]).unwrap();
    broker.turn(&mut |_| ()).unwrap();
    let len = sys::receive(&socket, &mut bytes, None).unwrap();
    assert!(matches!(Reply::decode(&bytes[..len]), Some(Reply::Refused { errno: libc::EPERM, .. })));
}
