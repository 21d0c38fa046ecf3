//! The broker's loop over a port that notes what it is told.

#![allow(clippy::unwrap_used)] // a panic here is the report

use core::cell::RefCell;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use tempfile::TempDir;

use super::*;
use crate::device::DeviceError;
use crate::device::broker::message::{Flow, Welcome};
use crate::device::broker::request::QueueRequest;
use crate::device::broker::rule_id;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::wire::Protocol;
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
        Welcome { interface_idx: 0, native: false, has_rx_hints: false, forwards, nic: None }
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
    (Broker::over(BrokerConfig::new("none"), Box::new(port), parts), told, folder)
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
