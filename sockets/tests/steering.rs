//! A port that steers to the worker only the flows that its sockets name: which flows are added,
//! removed, and refused.

#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{at, errno, steered_wire};
use sockets::net::{TcpListener, TcpStream, UdpSocket};
use sockets::{Errno, Kind, Options, Ready, Steering};
use wirepath::proto::InterfaceId;
use wirepath::time::Duration;
use wirepath::worker::live::FlowSpec;

/// A port of which another program has the unicast flows.
#[derive(Clone, Default)]
struct Taken(Rules);

impl Steering for Taken {
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno> {
        if flow.destination.ip().is_multicast() { self.0.add_flow(flow) } else { Err(Errno::EADDRINUSE) }
    }

    fn remove_flow(&mut self, flow: &FlowSpec) {
        self.0.remove_flow(flow);
    }
}

/// The installed flows, and how many there may be.
#[derive(Clone)]
struct Rules(Rc<RefCell<(Vec<FlowSpec>, usize)>>);

impl Default for Rules {
    fn default() -> Self {
        Self::at_most(usize::MAX)
    }
}

impl Rules {
    fn at_most(max: usize) -> Self {
        Self(Rc::new(RefCell::new((Vec::new(), max))))
    }

    fn refuse(&self, refuses: bool) {
        self.0.borrow_mut().1 = if refuses { 0 } else { usize::MAX };
    }

    fn standing(&self) -> Vec<FlowSpec> {
        self.0.borrow().0.clone()
    }
}

/// A port whose broker takes flows back.
#[derive(Clone, Default)]
struct Lent {
    rules: Rules,
    lost: Rc<RefCell<Vec<(FlowSpec, Errno)>>>,
    is_any: Arc<AtomicBool>,
}

impl Lent {
    fn take_back(&self, error: Errno) {
        let flows = std::mem::take(&mut self.rules.0.borrow_mut().0);
        self.lost.borrow_mut().extend(flows.into_iter().map(|flow| (flow, error)));
        self.is_any.store(true, Ordering::Release);
    }
}

impl Steering for Lent {
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno> {
        self.rules.add_flow(flow)
    }

    fn remove_flow(&mut self, flow: &FlowSpec) {
        self.rules.remove_flow(flow);
    }

    fn lost_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_any)
    }

    fn take_lost_flows(&mut self) -> Vec<(FlowSpec, Errno)> {
        self.is_any.store(false, Ordering::Release);
        self.lost.take()
    }
}

impl Steering for Rules {
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno> {
        let (flows, max) = &mut *self.0.borrow_mut();
        if flows.len() >= *max {
            return Err(Errno::ENOBUFS);
        }
        flows.push(flow);
        Ok(())
    }

    fn remove_flow(&mut self, flow: &FlowSpec) {
        self.0.borrow_mut().0.retain(|other| other != flow);
    }
}

#[test]
fn bind_that_the_port_refuses_leaves_the_socket_unbound() {
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
    let bind = || wire.right.call(|sockets, cx| sockets.bind(id, at(2, 7), cx));
    rules.refuse(true);
    assert_eq!(bind(), Err(Errno::ENOBUFS));
    rules.refuse(false);
    assert_eq!((bind(), rules.standing()), (Ok(()), vec![FlowSpec::udp(Ipv4Addr::new(192, 0, 2, 2), 7)]));
}

#[test]
fn receiver_that_shares_a_port_with_another_program_has_its_groups_alone() {
    let port = Taken::default();
    let wire = steered_wire(port.clone());
    let (group, any) = (Ipv4Addr::new(239, 1, 1, 1), SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7));
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
    let bind = |local| wire.right.call(|sockets, cx| sockets.bind(id, local, cx));
    assert_eq!(bind(any), Err(Errno::EADDRINUSE), "it does not share");
    let shares = Options { reuse_address: true, ..wire.right.call(|sockets, _| sockets.options(id)).unwrap() };
    wire.right.call(|sockets, cx| sockets.set_options(id, &shares, cx)).unwrap();
    assert_eq!(bind(at(2, 7)), Err(Errno::EADDRINUSE), "it names the address");
    wire.right.call(|sockets, cx| sockets.join(id, group, InterfaceId::ANY, None, cx)).unwrap();
    assert_eq!(bind(any), Ok(()));
    assert_eq!(port.0.standing(), [FlowSpec::udp(group, 7)]);
    assert_eq!(wire.right.call(|sockets, _| sockets.has_groups_alone(id)), Ok(true));
    wire.right.call(|sockets, cx| sockets.close(id, cx)).unwrap();
    assert_eq!(port.0.standing(), []);
}

#[test]
fn receive_alone_reports_that_another_program_has_the_port_where_nothing_can_come() {
    let wire = steered_wire(Taken::default());
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7);
    let bound = || {
        let id = wire.right.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
        let shares = Options { reuse_address: true, ..wire.right.call(|sockets, _| sockets.options(id)).unwrap() };
        wire.right.call(|sockets, cx| sockets.set_options(id, &shares, cx)).unwrap();
        wire.right.call(|sockets, cx| sockets.bind(id, any, cx)).unwrap();
        id
    };
    let receive = |id| wire.right.call(|sockets, _| sockets.recv_from(id, &mut [0; 8])).map(|(count, _)| count);
    let is_ready = |id| !wire.right.call(|sockets, _| sockets.ready(id)).unwrap().among(Ready::IN).is_none();
    let id = bound();
    assert!(is_ready(id), "who waits wakes");
    // One that only sends is told nothing.
    assert_eq!(wire.right.call(|sockets, cx| sockets.send_to(id, b"word", at(1, 7), cx)), Ok(4));
    assert_eq!(wire.right.call(|sockets, _| sockets.take_error(id)), Ok(None));
    assert_eq!((receive(id), receive(id), is_ready(id)), (Err(Errno::EADDRINUSE), Err(Errno::EAGAIN), false));
    // One that connects receives from its peer.
    let id = bound();
    wire.right.call(|sockets, cx| sockets.connect(id, at(1, 7), cx)).unwrap();
    assert_eq!((is_ready(id), receive(id)), (false, Err(Errno::EAGAIN)));
    // One that joins a group receives that.
    let id = bound();
    wire.right.call(|sockets, cx| sockets.join(id, [239, 1, 1, 1].into(), InterfaceId::ANY, None, cx)).unwrap();
    assert_eq!((is_ready(id), receive(id)), (false, Err(Errno::EAGAIN)));
}

#[test]
fn socket_whose_flow_is_taken_back_says_so_once_and_sends_nothing_until_it_has_another() {
    let port = Lent::default();
    let wire = steered_wire(port.clone());
    let _far = TcpListener::bind(&wire.left, at(1, 80)).unwrap();
    let mut connected = TcpStream::connect(&wire.right, at(1, 80)).unwrap();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let datagrams = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    port.take_back(Errno::EADDRINUSE);
    // The next turn sees it, and who waits wakes.
    assert_eq!(errno(listener.accept()), Some(Errno::EADDRINUSE));
    assert_eq!(errno(connected.read(&mut [0; 8])), Some(Errno::EADDRINUSE));
    assert_eq!(connected.read(&mut [0; 8]).unwrap(), 0, "as after any end of a connection");
    assert_eq!(errno(datagrams.recv_from(&mut [0; 8])), Some(Errno::EADDRINUSE));
    (0..2).for_each(|_| assert_eq!(errno(datagrams.send_to(b"word", at(1, 7))), Some(Errno::EADDRINUSE)));
    drop((connected, listener, datagrams));
    assert_eq!(port.rules.standing(), []);
    let again = UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
    again.send_to(b"word", at(1, 7)).unwrap();
    assert_eq!(port.rules.standing().len(), 1);
}

#[test]
fn flow_that_is_taken_back_stays_with_its_next_holder_when_a_closed_connection_ends() {
    let port = Lent::default();
    let wire = steered_wire(port.clone());
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let mut far = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    drop(accepted);
    assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
    port.take_back(Errno::EADDRINUSE);
    wire.settle();
    drop(listener);
    let _next = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let standing = port.rules.standing();
    assert_eq!(standing.len(), 1);
    drop(far);
    for _ in 0..4 {
        wire.settle();
        wire.clock.advance(Duration::from_secs(60));
    }
    assert_eq!(port.rules.standing(), standing);
}

#[test]
fn group_that_is_taken_back_leaves_the_socket_its_port() {
    let port = Lent::default();
    let wire = steered_wire(port.clone());
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
    wire.right.call(|sockets, cx| sockets.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7), cx)).unwrap();
    let own = port.rules.standing();
    wire.right.call(|sockets, cx| sockets.join(id, Ipv4Addr::new(239, 1, 1, 1), InterfaceId::ANY, None, cx)).unwrap();
    port.rules.0.borrow_mut().0.retain(|flow| !own.contains(flow));
    port.take_back(Errno::EACCES);
    port.rules.0.borrow_mut().0.extend(own.clone());
    wire.settle();
    let error = || wire.right.call(|sockets, _| sockets.take_error(id)).unwrap();
    assert_eq!((error(), error()), (Some(Errno::EACCES), None));
    assert_eq!(wire.right.call(|sockets, _| sockets.taken_back(id)).unwrap(), None);
    assert_eq!(port.rules.standing(), own);
}

#[test]
fn listen_that_the_port_refuses_listens_nowhere() {
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    wire.right.call(|sockets, cx| sockets.bind(id, at(2, 80), cx)).unwrap();
    let listen = || wire.right.call(|sockets, cx| sockets.listen(id, 8, cx));
    rules.refuse(true);
    assert_eq!(listen(), Err(Errno::ENOBUFS));
    assert_eq!(errno(TcpStream::connect(&wire.left, at(2, 80))), Some(Errno::ECONNREFUSED));
    rules.refuse(false);
    assert_eq!((listen(), rules.standing().len()), (Ok(()), 1));
    TcpStream::connect(&wire.left, at(2, 80)).unwrap();
}

#[test]
fn connect_that_the_port_refuses_may_be_repeated() {
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let _listener = TcpListener::bind(&wire.left, at(1, 80)).unwrap();
    rules.refuse(true);
    assert_eq!(errno(TcpStream::connect(&wire.right, at(1, 80))), Some(Errno::ENOBUFS));
    rules.refuse(false);
    TcpStream::connect(&wire.right, at(1, 80)).unwrap();
}

#[test]
fn flow_of_a_call_that_failed_goes_and_its_port_with_it() {
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let id = wire.right.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    let call = || wire.right.call(|sockets, cx| sockets.connect(id, at(1, 9), cx));
    call().unwrap_err();
    wire.settle();
    assert_eq!(call(), Err(Errno::ECONNREFUSED));
    let local = wire.right.call(|sockets, _| sockets.local_addr(id)).unwrap();
    assert_eq!((local.port(), rules.standing()), (0, vec![]));
}

#[test]
fn flow_of_a_listener_stays_for_what_it_accepted() {
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    drop(listener);
    wire.settle();
    assert_eq!(rules.standing().len(), 1);
    drop((ours, theirs));
    // Both ends close at one time, so both are in TIME-WAIT.
    for time in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(61)] {
        assert_eq!(rules.standing().len(), 1);
        wire.clock.advance(time);
        wire.settle();
    }
    assert_eq!(rules.standing(), []);
}

/// The rules of a connection's end, some time after one end was closed and then the other.
fn standing_after(closes_first: bool, time: Duration) -> usize {
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let listener = TcpListener::bind(&wire.left, at(1, 80)).unwrap();
    let ours = TcpStream::connect(&wire.right, at(1, 80)).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    let [first, second] = if closes_first { [ours, theirs] } else { [theirs, ours] };
    drop(first);
    wire.settle();
    drop(second);
    wire.settle();
    for step in [Duration::from_millis(200), time] {
        wire.clock.advance(step);
        wire.settle();
    }
    rules.standing().len()
}

#[test]
fn flow_of_a_connection_that_its_peer_closed_first_goes_with_it() {
    assert_eq!(standing_after(false, Duration::ZERO), 1);
    assert_eq!(standing_after(false, Duration::from_millis(50)), 0);
}

#[test]
fn flow_of_a_connection_stays_while_it_is_in_time_wait() {
    assert_eq!(standing_after(true, Duration::from_secs(59)), 1);
    assert_eq!(standing_after(true, Duration::from_secs(61)), 0);
}

#[test]
fn client_that_closes_first_connects_more_often_than_there_are_rules() {
    let rules = Rules::at_most(4);
    let wire = steered_wire(rules.clone());
    let listener = TcpListener::bind(&wire.left, at(1, 80)).unwrap();
    let stays = TcpStream::connect(&wire.right, at(1, 80)).unwrap();
    listener.accept().unwrap();
    let flow = rules.standing();
    for _ in 0..12 {
        let mut ours = TcpStream::connect(&wire.right, at(1, 80)).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.write_all(b"?").unwrap();
        theirs.read_exact(&mut [0]).unwrap();
        drop(ours);
        wire.settle();
        drop(theirs);
        wire.settle();
    }
    assert!(rules.standing().len() == 4 && rules.standing().starts_with(&flow), "{:?}", rules.standing());
    // The rule of an open connection is no other's.
    let mut open = vec![stays];
    while open.len() < 4 {
        open.push(TcpStream::connect(&wire.right, at(1, 80)).unwrap());
    }
    assert_eq!(errno(TcpStream::connect(&wire.right, at(1, 80))), Some(Errno::ENOBUFS));
}

#[test]
fn flow_of_a_connection_goes_soon_after_its_peer_has_ended_it() {
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let listener = TcpListener::bind(&wire.left, at(1, 80)).unwrap();
    let ours = TcpStream::connect(&wire.right, at(1, 80)).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    drop(ours);
    wire.settle();
    wire.clock.advance(Duration::from_secs(1));
    wire.settle();
    assert_eq!(rules.standing().len(), 1, "the peer has not closed");
    let now = wire.left.call(|sockets, cx| sockets.setsockopt(theirs.id(), 1, 13, &[1, 0, 0, 0, 0, 0, 0, 0], cx));
    now.unwrap();
    drop(theirs);
    wire.settle();
    wire.clock.advance(Duration::from_millis(300));
    wire.settle();
    assert_eq!(rules.standing(), [], "the peer has reset it");
}

#[test]
fn flow_that_two_sockets_need_goes_with_the_second() {
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let bind = || {
        let id = wire.right.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
        let shared = |sockets: &mut sockets::Sockets, cx: &mut wirepath::pipeline::Cx<'_>| {
            let options = Options { reuse_address: true, ..sockets.options(id)? };
            sockets.set_options(id, &options, cx)?;
            sockets.bind(id, at(2, 7), cx)
        };
        wire.right.call(shared).unwrap();
        id
    };
    let close = |id| wire.right.call(|sockets, cx| sockets.close(id, cx)).unwrap();
    let [one, other] = [bind(), bind()];
    close(one);
    assert_eq!(rules.standing().len(), 1);
    close(other);
    assert_eq!(rules.standing(), []);
    UdpSocket::bind(&wire.right, at(2, 7)).unwrap();
}

/// Connections that the listener has accepted need its flow; new ones may be another program's.
#[test]
fn listener_that_ends_leaves_its_flow_to_its_connections_alone_and_the_next_takes_it_up() {
    #[derive(Clone, Default)]
    struct Told(Rc<RefCell<Vec<bool>>>);

    impl Steering for Told {
        fn add_flow(&mut self, _: FlowSpec) -> Result<(), Errno> {
            Ok(())
        }

        fn remove_flow(&mut self, _: &FlowSpec) {}

        fn set_listening(&mut self, flow: &FlowSpec, listening: bool) {
            assert_eq!(*flow, FlowSpec::tcp(Ipv4Addr::new(192, 0, 2, 2), 80));
            self.0.borrow_mut().push(listening);
        }
    }

    let told = Told::default();
    let wire = steered_wire(told.clone());
    drop(TcpListener::bind(&wire.right, at(2, 80)).unwrap());
    assert_eq!(*told.0.borrow(), [], "nobody is connected");
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let _ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    let _theirs = listener.accept().unwrap();
    drop(listener);
    assert_eq!(*told.0.borrow(), [false]);
    let _next = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    assert_eq!(*told.0.borrow(), [false, true]);
}

/// The requests of `IP_ADD_SOURCE_MEMBERSHIP` and its kin: group, interface, source.
fn source_request(group: Ipv4Addr, source: Ipv4Addr) -> Vec<u8> {
    [group.octets(), [0; 4], source.octets()].concat()
}

#[test]
fn source_that_is_dropped_from_a_membership_of_all_takes_its_rule_and_its_datagrams_away() {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let receiver = UdpSocket::bind(&wire.right, SocketAddrV4::new(GROUP, 9_000)).unwrap();
    receiver.set_nonblocking(true).unwrap();
    receiver.join_multicast_v4(GROUP).unwrap();
    let sender = UdpSocket::bind(&wire.left, at(1, 0)).unwrap();
    let hears = || {
        sender.send_to(b"x", SocketAddrV4::new(GROUP, 9_000)).unwrap();
        wire.settle();
        receiver.recv(&mut [0; 4]).is_ok()
    };
    assert_eq!((hears(), rules.standing().len()), (true, 1));
    let id = receiver.id();
    let set = |name, value: &[u8]| wire.right.call(|sockets, cx| sockets.setsockopt(id, 0, name, value, cx));
    // IP_DROP_SOURCE_MEMBERSHIP, IP_DROP_MEMBERSHIP.
    assert_eq!(set(40, &source_request(GROUP, [192, 0, 2, 1].into())), Err(Errno::EADDRNOTAVAIL));
    assert_eq!((hears(), rules.standing()), (false, vec![]), "including no source, as on Linux");
    assert_eq!(set(36, &source_request(GROUP, [0; 4].into())[..8]), Ok(()));
    receiver.join_multicast_v4(GROUP).unwrap();
    assert_eq!((hears(), rules.standing().len()), (true, 1));
}

#[test]
fn join_that_the_port_refuses_leaves_nothing_joined() {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
    let rules = Rules::default();
    let wire = steered_wire(rules.clone());
    let receiver = UdpSocket::bind(&wire.right, SocketAddrV4::new(GROUP, 9_000)).unwrap();
    receiver.set_nonblocking(true).unwrap();
    rules.refuse(true);
    assert_eq!(errno(receiver.join_multicast_v4(GROUP)), Some(Errno::ENOBUFS));
    let sender = UdpSocket::bind(&wire.left, at(1, 0)).unwrap();
    sender.send_to(b"x", SocketAddrV4::new(GROUP, 9_000)).unwrap();
    wire.settle();
    assert_eq!(errno(receiver.recv(&mut [0; 4])), Some(Errno::EAGAIN));
}
