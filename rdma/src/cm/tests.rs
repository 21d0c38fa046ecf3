//! Two managers with their devices on a wire without time, of which each test says what it loses.

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::roce::{
    Access, Addresses, Data, Device, DeviceConfig, Link, MAD_LEN, Mtu, Path, QpAttributes, QpHandle, QpOptions,
    QpState, Remote, RoceFrame, SendOperation, SendRequest,
};
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

const PORT: u16 = 7174;
const MS: u64 = 1_000_000;

struct End {
    device: Device,
    manager: Manager,
    qp: QpHandle,
}

struct Pair {
    ends: [End; 2],
    now: u64,
    /// Messages of the wire by their attributes, the lost ones too.
    seen: Vec<u16>,
    /// Their traffic classes.
    classes: Vec<u8>,
}

fn addresses(end: usize) -> Addresses {
    let address = |end: usize| Ipv4Addr::new(10, 0, 0, 1 + end as u8);
    Addresses::Ipv4 { source: address(end), destination: address(1 - end) }
}

fn resolve(addresses: Addresses) -> Resolved {
    let link = Link { destination: [2; 6], source: [4; 6], vlan: None };
    Resolved::Known(Path::new(link, addresses))
}

fn local(device: &Device, qp: QpHandle) -> LocalQp {
    LocalQp {
        qpn: device.qpn(qp).unwrap(),
        // Another one at each end.
        psn: Psn::new(77 + device.counters().packets_rx as u32),
        responder_resources: 4,
        initiator_depth: 2,
        rnr_retry: 6,
        srq: false,
    }
}

impl End {
    fn new(seed: u64, traffic_class: u8) -> Self {
        Self::with(&CmConfig { seed, connections: 4, traffic_class, ..CmConfig::default() })
    }

    fn with(config: &CmConfig) -> Self {
        let mut device = Device::new(&DeviceConfig::default());
        let (pd, cq) = (device.create_pd().unwrap(), device.create_cq(16).unwrap());
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 4,
            recv_depth: 4,
            srq: None,
            signals_all: true,
        };
        let qp = device.create_qp(&options).unwrap();
        device.modify_qp(qp, &QpAttributes::init(Access::REMOTE_READ)).unwrap();
        Self { device, manager: Manager::new(config), qp }
    }

    fn events(&mut self) -> Vec<CmEvent> {
        core::iter::from_fn(|| self.manager.next_event()).collect()
    }
}

impl Pair {
    fn new() -> Self {
        Self::of_classes([0; 2])
    }

    /// Ends that were made for these traffic classes.
    fn of_classes([near, far]: [u8; 2]) -> Self {
        let mut ends = [End::new(1, near), End::new(2, far)];
        let listen = ListenOptions { space: PortSpace::Tcp, port: PORT, backlog: 2 };
        ends[1].manager.cm_mut().listen(&listen).unwrap();
        Self { ends, now: 0, seen: Vec::new(), classes: Vec::new() }
    }

    fn connect(&mut self, private_data: &[u8]) -> CmId {
        self.connect_by(Mtu::B1024, private_data)
    }

    fn connect_by(&mut self, mtu: Mtu, private_data: &[u8]) -> CmId {
        let End { device, manager, qp } = &mut self.ends[0];
        let options = ConnectOptions {
            addresses: addresses(0),
            port: PORT,
            qp: local(device, *qp),
            transport: Transport::Rc,
            mtu,
            retry_cnt: 5,
            private_data,
        };
        manager.connect(self.now, *qp, &options).unwrap()
    }

    /// Carries all that is under way, except the messages that `is_lost`.
    fn carry(&mut self, mut is_lost: impl FnMut(u16) -> bool) {
        let mut frame = [0; 2048];
        loop {
            self.ends.iter_mut().for_each(|end| end.manager.poll(self.now, &mut end.device, resolve));
            let mut moved = false;
            for from in 0..2 {
                while let Some(len) = self.ends[from].device.transmit(self.now, &mut frame) {
                    moved = true;
                    // Ethernet, IPv4, UDP, BTH and DETH, and the attribute in the datagram.
                    let attribute = u16::from_be_bytes([frame[42 + 20 + 16], frame[42 + 20 + 17]]);
                    self.seen.push(attribute);
                    self.classes.push(frame[15]);
                    if !is_lost(attribute) {
                        let frame = RoceFrame::parse(&frame[..len]).unwrap();
                        self.ends[1 - from].device.receive(self.now, frame.network, frame.roce);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Goes on to the next timer.
    fn wait(&mut self) {
        let next = self.ends.iter().filter_map(|end| end.manager.next_timer()).min();
        self.now = next.expect("a timer");
    }

    fn request(&mut self) -> ConnectRequest {
        match self.ends[1].events()[..] {
            [CmEvent::ConnectRequest(request)] => request,
            ref others => panic!("no request: {others:?}"),
        }
    }

    fn accept(&mut self, id: CmId) {
        let End { device, manager, qp } = &mut self.ends[1];
        manager.accept(id, *qp, &local(device, *qp), b"granted").unwrap();
    }

    /// A connection that both ends have.
    fn established() -> (Self, [CmId; 2]) {
        let mut pair = Self::new();
        let near = pair.connect(b"");
        pair.carry(|_| false);
        let far = pair.request().id;
        pair.accept(far);
        pair.carry(|_| false);
        let events = pair.ends.each_mut().map(End::events);
        assert_eq!(events, [[CmEvent::Established(near)], [CmEvent::Established(far)]]);
        (pair, [near, far])
    }

    fn states(&self) -> [QpState; 2] {
        self.ends.each_ref().map(|end| end.device.qp_state(end.qp).unwrap())
    }
}

#[test]
fn connection_leads_both_queue_pairs_to_what_was_agreed_on() {
    let mut pair = Pair::new();
    let near = pair.connect(b"asked");
    pair.carry(|_| false);
    let request = pair.request();
    assert_eq!((request.addresses, request.mtu), (addresses(1), Mtu::B1024));
    let data = pair.ends[1].manager.cm().private_data(request.id).unwrap();
    assert!(data.starts_with(b"asked") && data.len() == 56);
    pair.accept(request.id);
    pair.carry(|_| false);
    assert_eq!(pair.states(), [QpState::Rts; 2]);
    assert!(pair.ends[0].manager.cm().private_data(near).unwrap().starts_with(b"granted"));
    let [near, far] = [(0, near), (1, request.id)].map(|(end, id)| pair.ends[end].manager.cm().agreed(id).unwrap());
    // Each has at most as many under way as the other answers.
    assert_eq!([near, far].map(|agreed| (agreed.max_rd_atomic, agreed.max_dest_rd_atomic)), [(2, 2); 2]);
    assert_eq!([near, far].map(|agreed| (agreed.retry_cnt, agreed.rnr_retry, agreed.mtu)), [(5, 6, Mtu::B1024); 2]);
    // Each begins with the number that the other has named.
    assert_eq!((near.sq_psn, near.rq_psn), (far.rq_psn, far.sq_psn));
    assert_eq!(near.rq_psn, Psn::new(77));
    assert_eq!(pair.seen, [Req::ATTRIBUTE, Rep::ATTRIBUTE, Rtu::ATTRIBUTE]);
}

/// A READ leaves on the connection, and returns its traffic class.
fn class_of_read(end: &mut End, now: u64) -> u8 {
    let remote = Remote { address: 0, rkey: 0 };
    let request = SendRequest::new(1, SendOperation::Read(remote), Data::Sges(&[]));
    end.device.post_send(end.qp, &request).unwrap();
    let mut frame = [0; 2048];
    end.device.transmit(now, &mut frame).expect("the request");
    frame[15]
}

#[test]
fn packets_of_both_ends_have_the_traffic_class_of_who_asks_unless_the_other_has_its_own() {
    for (classes, expected) in [([106, 0], [106, 106]), ([106, 8], [106, 8]), ([0, 8], [0, 8]), ([0, 0], [0, 0])] {
        let mut pair = Pair::of_classes(classes);
        pair.connect(b"");
        pair.carry(|_| false);
        let request = pair.request().id;
        pair.accept(request);
        pair.carry(|_| false);
        // REQ, REP and RTU, which no ECN slows down.
        assert_eq!(pair.classes, [classes[0], classes[1], classes[0]].map(|class| class & !3));
        let now = pair.now;
        assert_eq!(pair.ends.each_mut().map(|end| class_of_read(end, now)), expected, "{classes:?}");
    }
}

#[test]
fn each_lost_message_is_sent_again() {
    for lost in [Req::ATTRIBUTE, Rep::ATTRIBUTE, Rtu::ATTRIBUTE] {
        let (mut pair, mut losses) = (Pair::new(), 1);
        pair.connect(b"");
        let mut accepted = false;
        for _ in 0..6 {
            pair.carry(|attribute| attribute == lost && core::mem::take(&mut losses) == 1);
            if !accepted && let Some(CmEvent::ConnectRequest(request)) = pair.ends[1].manager.next_event() {
                accepted = true;
                pair.accept(request.id);
                pair.carry(|attribute| attribute == lost && core::mem::take(&mut losses) == 1);
            }
            if pair.ends.iter().any(|end| end.manager.next_timer().is_some()) {
                pair.wait();
            }
        }
        let events = pair.ends.each_mut().map(End::events);
        assert!(events.iter().all(|events| matches!(events[..], [CmEvent::Established(_)])), "{lost:#x}: {events:?}");
    }
}

/// An RTU that is lost is asked for again by the REP, seconds later.
#[test]
fn first_packet_of_the_peer_establishes_a_connection_whose_rtu_was_lost() {
    let mut pair = Pair::new();
    let near = pair.connect(b"");
    pair.carry(|_| false);
    let far = pair.request().id;
    pair.accept(far);
    pair.carry(|attribute| attribute == Rtu::ATTRIBUTE);
    assert_eq!(pair.ends.each_mut().map(End::events), [vec![CmEvent::Established(near)], vec![]]);
    let End { device, qp, .. } = &mut pair.ends[0];
    device.post_send(*qp, &SendRequest::new(1, SendOperation::Send, Data::Inline(b"first"))).unwrap();
    let mut frame = [0; 2048];
    let len = device.transmit(pair.now, &mut frame).unwrap();
    let frame = RoceFrame::parse(&frame[..len]).unwrap();
    pair.ends[1].device.receive(pair.now, frame.network, frame.roce);
    let End { device, manager, .. } = &mut pair.ends[1];
    manager.poll(pair.now, device, resolve);
    assert_eq!(pair.ends[1].events(), [CmEvent::Established(far)]);
    // What comes twice establishes nothing twice.
    pair.carry(|_| false);
    assert_eq!(pair.ends[1].events(), []);
}

/// A queue pair of the other end's address sends what the granted one does not expect.
fn send_stray_to_the_far_end(pair: &mut Pair) {
    let qpn = pair.ends[1].device.qpn(pair.ends[1].qp).unwrap();
    let Resolved::Known(path) = resolve(addresses(0)) else { unreachable!() };
    let mut stray = End::new(3, 0);
    let connection = QpAttributes { sq_psn: Some(Psn::new(1)), ..QpAttributes::connection(path, qpn) };
    for step in &connection.steps(Transport::Rc)[1..] {
        stray.device.modify_qp(stray.qp, step).unwrap();
    }
    stray.device.post_send(stray.qp, &SendRequest::new(1, SendOperation::Send, Data::Inline(b"stray"))).unwrap();
    let mut frame = [0; 2048];
    let len = stray.device.transmit(pair.now, &mut frame).expect("the message");
    let frame = RoceFrame::parse(&frame[..len]).unwrap();
    pair.ends[1].device.receive(pair.now, frame.network, frame.roce);
}

/// A late packet of a connection before, whose queue pair had the same number, is none of this
/// one: the peer lacks the REP still.
#[test]
fn packet_that_is_not_expected_does_not_establish_a_connection_whose_rep_was_lost() {
    let mut pair = Pair::new();
    let near = pair.connect(b"");
    pair.carry(|_| false);
    let far = pair.request().id;
    pair.accept(far);
    pair.carry(|attribute| attribute == Rep::ATTRIBUTE);
    send_stray_to_the_far_end(&mut pair);
    let End { device, qp, .. } = &pair.ends[1];
    assert_eq!(device.qp_counters(*qp).unwrap().packets_rx, 1);
    // The NAK finds nobody, who asks again or is answered again.
    pair.carry(|attribute| attribute == Rep::ATTRIBUTE);
    assert_eq!(pair.ends.each_mut().map(End::events), [vec![], vec![]]);
    for _ in 0..2 {
        pair.wait();
        pair.carry(|_| false);
    }
    let events = pair.ends.each_mut().map(End::events);
    assert_eq!(events, [[CmEvent::Established(near)], [CmEvent::Established(far)]]);
}

#[test]
fn queue_pair_that_is_destroyed_before_the_rtu_establishes_nothing() {
    let mut pair = Pair::new();
    pair.connect(b"");
    pair.carry(|_| false);
    let far = pair.request().id;
    pair.accept(far);
    pair.carry(|attribute| attribute == Rep::ATTRIBUTE);
    let End { device, qp, .. } = &mut pair.ends[1];
    device.destroy_qp(*qp).unwrap();
    pair.carry(|_| false);
    assert_eq!(pair.ends[1].events(), []);
}

/// By mistake a program connects a queue pair that serves a connection: that one goes on.
#[test]
fn connection_that_fails_leaves_the_queue_pair_of_another_alone() {
    let (mut pair, [near, far]) = Pair::established();
    let End { device, manager, qp } = &mut pair.ends[0];
    let options = ConnectOptions {
        addresses: addresses(0),
        port: PORT + 1,
        qp: local(device, *qp),
        transport: Transport::Rc,
        mtu: Mtu::B1024,
        retry_cnt: 5,
        private_data: b"",
    };
    let second = manager.connect(pair.now, *qp, &options).unwrap();
    pair.carry(|_| false);
    let rejected = CmEvent::Rejected(second, RejectReason::InvalidServiceId);
    assert_eq!(pair.ends.each_mut().map(End::events), [vec![rejected], vec![]]);
    assert_eq!(pair.states(), [QpState::Rts; 2]);
    // The first still has it, and fails it.
    let End { device, manager, .. } = &mut pair.ends[0];
    manager.disconnect(pair.now, device, near).unwrap();
    pair.carry(|_| false);
    assert_eq!(pair.ends.each_mut().map(End::events), [near, far].map(|id| vec![CmEvent::Disconnected(id)]));
    assert_eq!(pair.states(), [QpState::Err; 2]);
}

/// A program may refuse what it has granted, as long as the way to the peer is not known.
#[test]
fn connection_that_its_program_rejects_leads_no_queue_pair() {
    let mut pair = Pair::new();
    pair.connect(b"");
    pair.carry(|_| false);
    let far = pair.request().id;
    pair.accept(far);
    pair.ends[1].manager.cm_mut().reject(0, far, RejectReason::ConsumerDefined, b"").unwrap();
    pair.carry(|_| false);
    assert_eq!(pair.states(), [QpState::Err; 2]);
}

/// Without a way to the peer, or with packets longer than our link's, nothing comes of an accepted
/// connection: its receives must come back.
#[test]
fn queue_pair_that_is_not_connected_gives_its_receives_back() {
    for is_unreachable in [true, false] {
        let mut pair = Pair::new();
        pair.connect_by(if is_unreachable { Mtu::B1024 } else { Mtu::B4096 }, b"");
        pair.carry(|_| false);
        let far = pair.request().id;
        let End { device, manager, qp } = &mut pair.ends[1];
        device.post_recv(*qp, 1, &[]).unwrap();
        manager.accept(far, *qp, &local(device, *qp), b"").unwrap();
        manager.poll(pair.now, device, |addresses| if is_unreachable { Resolved::Never } else { resolve(addresses) });
        assert_eq!(device.qp_state(*qp), Some(QpState::Err), "{:?}", manager.next_event());
    }
}

#[test]
fn port_without_a_listener_is_named_by_the_reason() {
    let mut pair = Pair::new();
    pair.ends[1] = End::new(2, 0);
    let id = pair.connect(b"");
    pair.carry(|_| false);
    assert_eq!(pair.ends[0].events(), [CmEvent::Rejected(id, RejectReason::InvalidServiceId)]);
    assert_eq!(pair.states()[0], QpState::Err);
}

#[test]
fn silent_peer_is_unreachable_after_all_retries() {
    let mut pair = Pair::new();
    let id = pair.connect(b"");
    pair.carry(|_| true);
    for _ in 0..16 {
        assert_eq!(pair.ends[0].events(), []);
        pair.wait();
        pair.carry(|_| true);
    }
    assert_eq!(pair.ends[0].events(), [CmEvent::Unreachable(id)]);
    assert_eq!(pair.seen.iter().filter(|attribute| **attribute == Req::ATTRIBUTE).count(), 16);
}

#[test]
fn rejection_carries_the_words_of_the_program_also_when_it_is_lost() {
    let mut pair = Pair::new();
    let near = pair.connect(b"");
    pair.carry(|_| false);
    let far = pair.request().id;
    let End { device, manager, .. } = &mut pair.ends[1];
    manager.cm_mut().reject(0, far, RejectReason::ConsumerDefined, b"full").unwrap();
    manager.destroy(0, device, far).unwrap();
    pair.carry(|attribute| attribute == Rej::ATTRIBUTE);
    pair.wait();
    pair.wait();
    pair.carry(|_| false);
    assert_eq!(pair.seen, [Req::ATTRIBUTE, Rej::ATTRIBUTE, Req::ATTRIBUTE, Rej::ATTRIBUTE]);
    assert_eq!(pair.ends[0].events(), [CmEvent::Rejected(near, RejectReason::ConsumerDefined)]);
    assert!(pair.ends[0].manager.cm().private_data(near).unwrap().starts_with(b"full"));
}

#[test]
fn program_that_takes_its_time_is_announced_to_who_asks_again() {
    let mut pair = Pair::new();
    pair.connect(b"");
    pair.carry(|_| false);
    pair.wait();
    pair.carry(|_| false);
    assert_eq!(pair.seen, [Req::ATTRIBUTE, Req::ATTRIBUTE, Mra::ATTRIBUTE]);
    while pair.ends[0].manager.next_timer().unwrap() < 4000 * MS {
        pair.wait();
        pair.carry(|_| false);
    }
    assert_eq!(pair.seen.len(), 3, "nobody asks again meanwhile");
    let far = pair.request().id;
    pair.accept(far);
    pair.carry(|_| false);
    assert_eq!(pair.states(), [QpState::Rts; 2]);
}

#[test]
fn end_of_a_connection_reaches_both_and_frees_its_places() {
    let (mut pair, ids) = Pair::established();
    let End { device, manager, .. } = &mut pair.ends[0];
    manager.disconnect(pair.now, device, ids[0]).unwrap();
    pair.carry(|_| false);
    assert_eq!(pair.states(), [QpState::Err; 2]);
    for (end, id) in pair.ends.iter_mut().zip(ids) {
        assert_eq!(end.events(), [CmEvent::Disconnected(id)]);
    }
    pair.wait();
    pair.carry(|_| false);
    for (end, id) in pair.ends.iter_mut().zip(ids) {
        assert_eq!(end.events(), [CmEvent::TimewaitExit(id)]);
        end.manager.destroy(pair.now, &mut end.device, id).unwrap();
        assert_eq!(end.manager.cm().connections(), 0);
    }
}

#[test]
fn both_ends_may_disconnect_at_once() {
    let (mut pair, ids) = Pair::established();
    for (end, id) in pair.ends.iter_mut().zip(ids) {
        end.manager.disconnect(pair.now, &mut end.device, id).unwrap();
    }
    pair.carry(|_| false);
    for (end, id) in pair.ends.iter_mut().zip(ids) {
        assert_eq!(end.events(), [CmEvent::Disconnected(id)]);
    }
}

#[test]
fn peer_that_is_gone_ends_the_connection_after_all_retries() {
    let (mut pair, ids) = Pair::established();
    let End { device, manager, .. } = &mut pair.ends[0];
    manager.disconnect(pair.now, device, ids[0]).unwrap();
    for _ in 0..17 {
        pair.carry(|_| true);
        pair.wait();
    }
    assert_eq!(pair.ends[0].events(), [CmEvent::Disconnected(ids[0])]);
}

#[test]
fn requests_beyond_the_backlog_lack_resources() {
    let mut pair = Pair::new();
    let ids: Vec<_> = (0..3).map(|_| pair.connect(b"")).collect();
    pair.carry(|_| false);
    assert_eq!(pair.ends[0].events(), [CmEvent::Rejected(ids[2], RejectReason::NoResources)]);
}

/// The message that a connection manager sends next.
fn sent_by(cm: &mut Cm) -> [u8; MAD_LEN] {
    let mut sent = None;
    cm.transmit(0, |_, mad| {
        sent = Some(*mad);
        Delivery::Sent
    });
    sent.expect("a message")
}

#[test]
fn refusals_of_requests_from_addresses_to_which_no_way_leads_leave_room_for_a_connection() {
    let mut pair = Pair::new();
    pair.connect(b"");
    answers_leave_room_for_a_connection(&sent_by(pair.ends[0].manager.cm_mut()));
}

#[test]
fn answers_to_unknown_services_of_datagrams_leave_room_for_a_connection() {
    let mut pair = Pair::new();
    let cm = pair.ends[0].manager.cm_mut();
    cm.resolve(0, addresses(0), PORT, b"").unwrap();
    answers_leave_room_for_a_connection(&sent_by(cm));
}

#[test]
fn answers_to_ends_of_unknown_connections_leave_room_for_a_connection() {
    let (mut pair, ids) = Pair::established();
    let cm = pair.ends[0].manager.cm_mut();
    cm.disconnect(0, ids[0]).unwrap();
    answers_leave_room_for_a_connection(&sent_by(cm));
}

/// A request comes from 256 addresses to which no way leads.
fn answers_leave_room_for_a_connection(request: &[u8; MAD_LEN]) {
    let pair = Pair::new();
    let mut cm = Cm::new(&CmConfig::default());
    let stranger =
        |number| Addresses::Ipv4 { source: Ipv4Addr::new(10, 0, 0, 2), destination: Ipv4Addr::new(10, 0, 1, number) };
    (0..=u8::MAX).for_each(|number| cm.receive(0, stranger(number), request));
    let options = ConnectOptions {
        addresses: addresses(1),
        port: PORT,
        qp: local(&pair.ends[1].device, pair.ends[1].qp),
        transport: Transport::Rc,
        mtu: Mtu::B1024,
        retry_cnt: 5,
        private_data: b"",
    };
    cm.connect(0, &options).unwrap();
    let mut sent = 0;
    cm.transmit(0, |way, _| {
        let is_known = way == addresses(1);
        sent += usize::from(is_known);
        if is_known { Delivery::Sent } else { Delivery::Wait }
    });
    assert_eq!(sent, 1);
}

#[test]
fn queue_pair_of_a_peer_that_names_no_timeout_has_our_own() {
    let mut pair = Pair::new();
    pair.ends[0] = End::with(&CmConfig { seed: 1, connections: 4, ack_timeout: 0, ..CmConfig::default() });
    pair.connect(b"");
    pair.carry(|_| false);
    let request = pair.request().id;
    let agreed = pair.ends[1].manager.cm_mut().agreed(request).unwrap();
    assert_eq!(agreed.timeout, CmConfig::default().ack_timeout);
}

#[test]
fn connection_takes_the_place_of_one_whose_end_the_peer_does_not_confirm() {
    let (mut pair, ids) = Pair::established();
    let cm = pair.ends[0].manager.cm_mut();
    cm.destroy(0, ids[0]).unwrap();
    (0..4).for_each(|_| {
        pair.connect(b"");
    });
}

#[test]
fn connection_takes_the_place_of_one_that_was_refused() {
    let mut pair = Pair::new();
    for _ in 0..5 {
        pair.connect(b"");
        pair.carry(|_| false);
        let refused = pair.request().id;
        let manager = pair.ends[1].manager.cm_mut();
        manager.destroy(0, refused).unwrap();
        pair.carry(|_| false);
        let [CmEvent::Rejected(id, RejectReason::ConsumerDefined)] = pair.ends[0].events()[..] else {
            panic!("it was not refused by the program")
        };
        pair.ends[0].manager.cm_mut().destroy(0, id).unwrap();
    }
}

#[test]
fn queue_pair_number_that_comes_again_ends_the_stale_connection() {
    let (mut pair, ids) = Pair::established();
    // The peer has forgotten all, and its queue pair has the same number again.
    pair.ends[0] = End::new(9, 0);
    let id = pair.connect(b"");
    pair.carry(|_| false);
    assert_eq!(pair.ends[0].events(), [CmEvent::Rejected(id, RejectReason::StaleConnection)]);
    assert_eq!(pair.ends[1].events(), [CmEvent::Disconnected(ids[1])]);
}

#[test]
fn service_of_datagrams_is_resolved() {
    let mut pair = Pair::new();
    let listen = ListenOptions { space: PortSpace::Udp, port: PORT, backlog: 2 };
    pair.ends[1].manager.cm_mut().listen(&listen).unwrap();
    let near = pair.ends[0].manager.cm_mut().resolve(0, addresses(0), PORT, b"who").unwrap();
    let nobody = pair.ends[0].manager.cm_mut().resolve(0, addresses(0), PORT + 1, b"").unwrap();
    pair.carry(|_| false);
    assert_eq!(pair.ends[0].events(), [CmEvent::NotResolved(nobody, SidrStatus::Unsupported)]);
    let request = pair.request();
    assert_eq!(request.transport, Transport::Ud);
    let manager = pair.ends[1].manager.cm_mut();
    manager.answer_datagrams(0, request.id, Ok((Qpn::new(0x22), 0x0123_4567)), b"").unwrap();
    pair.carry(|_| false);
    assert_eq!(pair.ends[0].events(), [CmEvent::Resolved(near, Qpn::new(0x22), 0x0123_4567)]);
}

#[test]
fn message_from_another_address_than_the_peers_changes_nothing() {
    let (mut pair, ids) = Pair::established();
    let qpn = pair.ends[1].device.qpn(pair.ends[1].qp).unwrap();
    let dreq = Dreq::new(1, ids[0].get(), ids[1].get(), qpn);
    let stranger = Addresses::Ipv4 { source: Ipv4Addr::new(10, 0, 0, 2), destination: Ipv4Addr::new(10, 0, 0, 7) };
    pair.ends[1].manager.cm_mut().receive(0, stranger, dreq.as_bytes());
    assert_eq!(pair.ends[1].manager.cm().counters().wrong_address, 1);
    pair.carry(|_| false);
    assert_eq!(pair.states(), [QpState::Rts; 2]);
}

#[test]
fn datagram_without_the_key_of_queue_pair_1_is_dropped() {
    let mut pair = Pair::new();
    pair.connect(b"");
    pair.ends[0].manager.poll(0, &mut pair.ends[0].device, resolve);
    let mut frame = [0; 2048];
    let len = pair.ends[0].device.transmit(0, &mut frame).unwrap();
    // The Q_Key, and the ICRC of the packet as it is then.
    frame[42 + 12] ^= 1;
    let roce = &frame[42..len - 4];
    let network = RoceFrame::parse(&frame[..len]).unwrap().network;
    let sum = crate::wire::icrc::icrc(network, roce).to_le_bytes();
    frame[len - 4..len].copy_from_slice(&sum);
    let read = RoceFrame::parse(&frame[..len]).unwrap();
    pair.ends[1].device.receive(0, read.network, read.roce);
    let counters = pair.ends[1].device.counters();
    assert_eq!((counters.qkey_violations, counters.mads_rx), (1, 0));
}

#[test]
fn header_of_addresses_is_that_of_the_annex() {
    let four = |last| Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped();
    let header = IpHeader::new(0x1234, four(1), four(2));
    let mut bytes = [0; 36];
    bytes[..4].copy_from_slice(&[0, 0x40, 0x12, 0x34]);
    bytes[16..20].copy_from_slice(&[10, 0, 0, 1]);
    bytes[32..].copy_from_slice(&[10, 0, 0, 2]);
    assert_eq!(header.as_bytes(), bytes);
    let read = IpHeader::parse(&bytes).unwrap();
    assert_eq!((read.port(), read.source(), read.destination()), (0x1234, four(1), four(2)));
    bytes[0] = 1;
    assert_eq!(IpHeader::parse(&bytes), None, "another version");
}

#[test]
fn service_ids_are_those_of_rdmacm() {
    assert_eq!(PortSpace::Tcp.service_id(7174), 0x0106_1c06);
    assert_eq!(PortSpace::of_service(0x0111_1c06), Some((PortSpace::Udp, 7174)));
    assert_eq!(PortSpace::of_service(0x1_0106_1c06), None);
}

proptest! {
    #[test]
    fn written_requests_read_the_same(words: [u32; 5], low: [u8; 10], srq: bool, gids: [u128; 2], long: [u64; 3]) {
        let fields = ReqFields {
            transaction: long[0],
            local_comm_id: words[0],
            service_id: long[1],
            ca_guid: long[2],
            qpn: Qpn::new(words[1]),
            responder_resources: low[0],
            initiator_depth: low[1],
            remote_response_timeout: low[2] & 31,
            transport: low[3] & 3,
            psn: Psn::new(words[2]),
            local_response_timeout: low[4] & 31,
            retry_cnt: low[5] & 7,
            pkey: words[3] as u16,
            mtu: low[6] & 15,
            rnr_retry: low[6] >> 5,
            cm_retries: low[7] & 15,
            srq,
            local_gid: Ipv6Addr::from_bits(gids[0]),
            remote_gid: Ipv6Addr::from_bits(gids[1]),
            traffic_class: low[8],
            hop_limit: low[9],
            ack_timeout: low[7] >> 3,
        };
        let req = Req::new(&fields, b"data");
        let Ok(Message::Req(read)) = Message::parse(req.as_bytes()) else { panic!("no REQ") };
        prop_assert_eq!(read.fields(), fields);
        prop_assert!(read.private_data().starts_with(b"data\0"));
    }

    #[test]
    fn bytes_of_any_kind_leave_the_machine_whole(mads in proptest::collection::vec((any::<u8>(), any::<[u8; 32]>()), 1..40)) {
        let mut cm = Cm::new(&CmConfig { connections: 4, ..CmConfig::default() });
        cm.listen(&ListenOptions { space: PortSpace::Tcp, port: 1, backlog: 2 }).unwrap();
        for (kind, bytes) in mads {
            let header = MadHeader::new(0x10 + u16::from(kind % 9), 1);
            let mut mad = [0; MAD_LEN];
            mad[..MadHeader::LEN].copy_from_slice(header.as_bytes());
            mad[MadHeader::LEN..][..32].copy_from_slice(&bytes);
            cm.receive(0, addresses(0), &mad);
        }
        prop_assert!(cm.connections() <= 4);
    }
}
