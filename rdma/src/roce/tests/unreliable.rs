//! Connections and datagrams without acknowledgments, and shared receive queues.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::pair::{End, Pair, attributes, seal};
use crate::provider::Provider;
use crate::roce::*;
use crate::wire::aeth::{Aeth, NO_CREDITS, Syndrome};
use crate::wire::opcode::Transport;
use crate::wire::packet::Body;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

const QKEY: u32 = 0x1111_1111;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|idx| (idx * 7 + idx / 256 + 1) as u8).collect()
}

/// The steps of an unreliable connection.
pub(super) fn connect_uc(end: &mut End, all: &QpAttributes) {
    end.device.connect_qp(end.qp, Transport::Uc, all).unwrap();
}

fn uc() -> Pair {
    let config = DeviceConfig::default();
    let [mut a, mut b] = [0, 0].map(|srq| End::with(&config, Transport::Uc, srq));
    let (of_a, of_b) = (attributes(1, 2, &b), attributes(2, 1, &a));
    connect_uc(&mut a, &of_a);
    connect_uc(&mut b, &of_b);
    Pair { a, b, now: 1_000_000 }
}

/// Leads a queue pair of datagrams to RTS.
fn start_ud(end: &mut End) {
    let all = QpAttributes { sq_psn: Some(Psn::new(5)), ..QpAttributes::datagrams(QKEY) };
    end.device.connect_qp(end.qp, Transport::Ud, &all).unwrap();
}

fn ud() -> Pair {
    let config = DeviceConfig::default();
    let [mut a, mut b] = [0, 0].map(|srq| End::with(&config, Transport::Ud, srq));
    start_ud(&mut a);
    start_ud(&mut b);
    Pair { a, b, now: 1_000_000 }
}

/// A handle for the way from the first end.
fn ah(end: &mut End, to: Ipv4Addr) -> AhHandle {
    let link = Link { destination: [2; 6], source: [1; 6], vlan: None };
    let addresses = Addresses::Ipv4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: to };
    end.device.create_ah(end.pd, &Path::new(link, addresses)).unwrap()
}

fn to_b(pair: &mut Pair, qkey: u32) -> Destination {
    let qpn = pair.b.device.qpn(pair.b.qp).unwrap();
    Destination { ah: ah(&mut pair.a, Ipv4Addr::new(10, 0, 0, 2)), qpn, qkey }
}

fn send(end: &mut End, len: u32, destination: Destination) -> Result<(), PostError> {
    let sges = [end.sge(0, len)];
    let request = SendRequest::new(1, SendOperation::SendImm([1, 2, 3, 4]), Data::Sges(&sges));
    end.device.post_send(end.qp, &request.to(destination))
}

#[test]
fn unreliable_message_completes_when_it_is_sent_and_arrives_without_an_answer() {
    let mut pair = uc();
    pair.a.memory.write(0, &pattern(3000));
    pair.b.post_recv(7, 100, 3000);
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(8192));
    pair.a.post(1, SendOperation::Send, sge);
    pair.a.post(2, SendOperation::Write(remote), sge);
    let mut answers = 0;
    pair.run_with(|from_a, packet| {
        answers += usize::from(!from_a);
        assert!(!packet.bth.ack_request());
        true
    });
    assert_eq!((answers, pair.a.completions()), (0, vec![(1, Status::Success), (2, Status::Success)]));
    assert_eq!((pair.b.bytes(100, 3000), pair.b.bytes(8192, 3000)), (pattern(3000), pattern(3000)));
    assert_eq!(pair.b.completions(), [(7, Status::Success)]);
    assert!(!pair.tick(), "no timer runs");
}

#[test]
fn unreliable_message_that_lacks_a_part_is_dropped_and_its_receive_takes_the_next() {
    for lost in 0..3 {
        let mut pair = uc();
        pair.b.post_recv(7, 0, 3000);
        let sge = pair.a.sge(0, 3000);
        pair.a.post(1, SendOperation::SendImm([1; 4]), sge);
        pair.a.post(2, SendOperation::SendImm([2; 4]), sge);
        let mut count = 0;
        pair.run_with(|_, _| {
            count += 1;
            count != lost + 1
        });
        let done = pair.b.device.poll_cq(pair.b.cq).unwrap();
        assert_eq!((done.wr_id, done.imm, done.status), (7, Some([2; 4]), Status::Success), "packet {lost} lost");
        assert_eq!((pair.b.completions(), pair.b.state()), (vec![], QpState::Rts));
        assert!(pair.b.counters().out_of_sequence > 0);
    }
}

#[test]
fn unreliable_message_without_receive_or_right_is_dropped_and_the_connection_lives() {
    let mut pair = uc();
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
    pair.a.post(1, SendOperation::Send, sge);
    let wrong = Remote { rkey: remote.rkey ^ 1, ..remote };
    pair.a.memory.write(0, &[9; 3000]);
    pair.a.post(2, SendOperation::Write(wrong), sge);
    pair.run();
    assert_eq!(pair.b.bytes(0, 3000), [0; 3000]);
    assert_eq!((pair.b.counters().dropped, pair.b.state()), (2, QpState::Rts));
    pair.b.post_recv(7, 0, 3000);
    pair.a.post(3, SendOperation::Send, sge);
    pair.run();
    assert_eq!(pair.b.completions(), [(7, Status::Success)]);
}

#[test]
fn sixteenth_message_with_a_wrong_key_ends_an_unreliable_connection() {
    let mut pair = uc();
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
    pair.a.memory.write(0, &[9; 3000]);
    pair.b.post_recv(7, 8192, 3000);
    for number in 1..=17 {
        let wrong = Remote { rkey: remote.rkey ^ number << 8, ..remote };
        pair.a.post(number.into(), SendOperation::Write(wrong), sge);
        pair.run();
        let expected = if number < 16 { QpState::Rts } else { QpState::Err };
        let counted = u64::from(number.min(16));
        assert_eq!((pair.b.state(), pair.b.counters().access_violations), (expected, counted), "WRITE {number}");
        assert_eq!(pair.b.counters().dropped, counted);
    }
    assert_eq!(pair.b.device.next_event(), Some(Event::QpAccessError(pair.b.qp)));
    assert_eq!(pair.b.completions(), [(7, Status::Flushed)]);
    pair.a.post(18, SendOperation::Write(remote), sge);
    pair.run();
    assert_eq!(pair.b.bytes(0, 3000), [0; 3000], "neither by wrong keys, nor by the right one behind them");
    assert_eq!(pair.b.device.counters().qp_state, 8, "what is left of the sixteenth, and two messages");
}

#[test]
fn unreliable_connection_has_no_reads_nor_atomics() {
    let mut pair = uc();
    let (sges, remote) = ([pair.a.sge(0, 8)], pair.b.remote(0));
    for operation in [SendOperation::Read(remote), SendOperation::FetchAdd { remote, add: 1 }] {
        let request = SendRequest::new(1, operation, Data::Sges(&sges));
        assert_eq!(pair.a.device.post_send(pair.a.qp, &request), Err(PostError::Operation));
    }
}

#[test]
fn send_of_memory_without_right_stops_sends_alone() {
    let mut pair = uc();
    let sge = Sge { lkey: 0xdead_0001, ..pair.a.sge(0, 8) };
    pair.a.post_recv(9, 0, 8);
    pair.a.post(1, SendOperation::Send, sge);
    pair.run();
    assert_eq!((pair.a.completions(), pair.a.state()), (vec![(1, Status::LocalProtection)], QpState::Sqe));
    let sge = pair.b.sge(0, 8);
    pair.b.post(2, SendOperation::Send, sge);
    pair.run();
    assert_eq!(pair.a.completions(), [(9, Status::Success)], "receives go on");
    pair.a.device.modify_qp(pair.a.qp, &QpAttributes::to(QpState::Rts)).unwrap();
    pair.b.post_recv(3, 0, 8);
    let sge = pair.a.sge(0, 8);
    pair.a.post(4, SendOperation::Send, sge);
    pair.run();
    assert_eq!(pair.a.completions(), [(4, Status::Success)]);
}

#[test]
fn datagram_arrives_behind_its_header_with_its_sender() {
    let mut pair = ud();
    pair.a.memory.write(0, &pattern(1024));
    pair.b.post_recv(7, 0, 2000);
    let destination = to_b(&mut pair, QKEY);
    send(&mut pair.a, 1024, destination).unwrap();
    pair.run();
    let done = pair.b.device.poll_cq(pair.b.cq).unwrap();
    assert_eq!((done.wr_id, done.byte_len, done.status), (7, 1064, Status::Success));
    assert_eq!((done.source, done.imm), (pair.a.device.qpn(pair.a.qp), Some([1, 2, 3, 4])));
    let header = pair.b.bytes(0, GRH_LEN);
    assert_eq!((header[20], &header[32..40]), (0x45, &[10, 0, 0, 1, 10, 0, 0, 2][..]));
    assert_eq!(pair.b.bytes(GRH_LEN, 1024), pattern(1024));
    assert_eq!(pair.a.completions(), [(1, Status::Success)]);
}

/// Other queue pairs may want it, and this one may never get another message.
#[test]
fn receive_of_a_shared_queue_that_a_dropped_message_had_is_there_for_the_next_of_any_queue_pair() {
    let mut pair = shared(Transport::Ud);
    let srq = pair.b.srq.unwrap();
    let sges = [pair.b.sge(0, 103)];
    (7..11).for_each(|wr_id| pair.b.device.post_srq_recv(srq, wr_id, &sges).unwrap());
    let destination = to_b(&mut pair, QKEY);
    send(&mut pair.a, 64, destination).unwrap();
    pair.run();
    assert_eq!((pair.b.counters().dropped, pair.b.device.srq_len(srq)), (1, Some(4)));
    send(&mut pair.a, 63, destination).unwrap();
    pair.run();
    assert_eq!(pair.b.completions(), [(7, Status::Success)], "in the order of their posts");

    for (lost, refused) in [(2, 0), (3, 0), (0, 1)] {
        let mut pair = shared(Transport::Uc);
        let srq = pair.b.srq.unwrap();
        let sges = [pair.b.sge(0, 3000 - refused)];
        (7..11).for_each(|wr_id| pair.b.device.post_srq_recv(srq, wr_id, &sges).unwrap());
        let (long, short) = (pair.a.sge(0, 3000), pair.a.sge(0, 8));
        pair.a.post(1, SendOperation::Send, long);
        // Tells the other end that a packet is missing, and takes no receive.
        let remote = pair.b.remote(0);
        pair.a.post(2, SendOperation::Write(remote), short);
        let mut count = 0;
        pair.run_with(|_, _| {
            count += 1;
            count != lost
        });
        assert_eq!((pair.b.counters().dropped, pair.b.device.srq_len(srq)), (1, Some(4)), "packet {lost} lost");
        pair.a.post(3, SendOperation::Send, short);
        pair.run();
        assert_eq!(pair.b.completions(), [(7, Status::Success)]);
    }
}

/// Its place in the shared queue may be another receive's by then.
#[test]
fn receive_of_a_shared_queue_that_is_full_again_is_for_the_next_message_of_its_queue_pair() {
    let mut pair = shared(Transport::Uc);
    let srq = pair.b.srq.unwrap();
    let sges = [pair.b.sge(0, 3000)];
    (7..11).for_each(|wr_id| pair.b.device.post_srq_recv(srq, wr_id, &sges).unwrap());
    let (long, short) = (pair.a.sge(0, 3000), pair.a.sge(0, 8));
    pair.a.post(1, SendOperation::Send, long);
    let mut count = 0;
    pair.run_with(|_, _| {
        count += 1;
        count == 1
    });
    pair.b.device.post_srq_recv(srq, 11, &sges).unwrap();
    pair.a.post(2, SendOperation::Send, short);
    pair.a.post(3, SendOperation::Send, short);
    pair.run();
    assert_eq!(pair.b.completions(), [(7, Status::Success), (8, Status::Success)]);
    assert_eq!(pair.b.device.srq_len(srq), Some(3));
}

#[test]
fn datagram_of_another_key_or_without_room_is_dropped() {
    let mut pair = ud();
    pair.b.post_recv(7, 0, 103);
    let destination = to_b(&mut pair, QKEY);
    send(&mut pair.a, 63, Destination { qkey: QKEY + 1, ..destination }).unwrap();
    send(&mut pair.a, 64, destination).unwrap();
    pair.run();
    assert_eq!((pair.b.device.counters().qkey_violations, pair.b.counters().dropped), (1, 1));
    assert_eq!((pair.b.completions(), pair.b.bytes(0, 103)), (vec![], vec![0; 103]));
    // The highest bit asks for the sender's own key.
    send(&mut pair.a, 63, Destination { qkey: 1 << 31, ..destination }).unwrap();
    pair.run();
    assert_eq!(pair.b.completions(), [(7, Status::Success)]);
}

#[test]
fn request_that_is_no_datagram_or_ought_to_be_none_is_refused() {
    let mut pair = ud();
    let destination = to_b(&mut pair, QKEY);
    assert_eq!(send(&mut pair.a, 1025, destination), Err(PostError::Length), "longer than a packet");
    let (sges, remote) = ([pair.a.sge(0, 8)], pair.b.remote(0));
    let request = SendRequest::new(1, SendOperation::Send, Data::Sges(&sges));
    assert_eq!(pair.a.device.post_send(pair.a.qp, &request), Err(PostError::Destination), "to nobody");
    let write = SendRequest::new(1, SendOperation::Write(remote), Data::Sges(&sges)).to(destination);
    assert_eq!(pair.a.device.post_send(pair.a.qp, &write), Err(PostError::Operation));
    pair.a.device.destroy_ah(destination.ah).unwrap();
    assert_eq!(send(&mut pair.a, 8, destination), Err(PostError::Destination), "a handle that was destroyed");
    let mut connection = Pair::new();
    let ah = ah(&mut connection.a, Ipv4Addr::new(10, 0, 0, 2));
    let sges = [connection.a.sge(0, 8)];
    let request = SendRequest::new(1, SendOperation::Send, Data::Sges(&sges)).to(Destination { ah, ..destination });
    assert_eq!(connection.a.device.post_send(connection.a.qp, &request), Err(PostError::Destination));
}

#[test]
fn datagram_to_a_group_reaches_all_that_are_attached() {
    let mut pair = ud();
    let second = pair.b.device.create_qp(&pair.b.options).unwrap();
    let group = GROUP.to_ipv6_mapped();
    let first = pair.b.qp;
    for (qp, at) in [(first, 0), (second, 4096)] {
        pair.b.qp = qp;
        if qp == second {
            start_ud(&mut pair.b);
        }
        pair.b.post_recv(at as u64, at, 200);
        pair.b.device.attach_multicast(qp, group).unwrap();
    }
    let destination = Destination { ah: ah(&mut pair.a, GROUP), qpn: Qpn::MULTICAST, qkey: QKEY };
    send(&mut pair.a, 100, destination).unwrap();
    pair.run();
    assert_eq!(pair.b.completions(), [(0, Status::Success), (4096, Status::Success)]);
    pair.b.device.detach_multicast(first, group).unwrap();
    pair.b.device.destroy_qp(second).unwrap();
    send(&mut pair.a, 100, destination).unwrap();
    pair.run();
    assert_eq!((pair.b.completions(), pair.b.device.counters().unknown_groups), (vec![], 1));
    assert!(pair.b.device.attach_multicast(first, Ipv6Addr::LOCALHOST).is_err(), "no group");
}

#[test]
fn datagram_to_a_group_or_to_all_reaches_no_queue_pair_by_its_own_number() {
    let mut pair = ud();
    pair.b.post_recv(1, 0, 200);
    let destination = to_b(&mut pair, QKEY);
    send(&mut pair.a, 100, destination).unwrap();
    let mut frame = pair.a.frame(pair.now).unwrap();
    for address in [GROUP, Ipv4Addr::BROADCAST] {
        seal(&mut frame, |frame| frame[30..34].copy_from_slice(&address.octets()));
        pair.b.receive(pair.now, &frame);
    }
    assert_eq!((pair.b.completions(), pair.b.device.counters().wrong_address), (vec![], 2));
}

#[test]
fn packets_to_a_group_never_reach_a_connection() {
    let mut pair = Pair::new();
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, SendOperation::Send, sge);
    let mut frame = pair.a.frame(pair.now).unwrap();
    seal(&mut frame, |frame| frame[47..50].fill(0xff));
    pair.b.receive(pair.now, &frame);
    assert_eq!((pair.b.device.counters().unknown_groups, pair.b.counters().packets_rx), (1, 0));
    assert!(pair.b.device.attach_multicast(pair.b.qp, GROUP.to_ipv6_mapped()).is_err());
}

/// A pair whose second end takes receives from a shared queue.
pub(super) fn shared(transport: Transport) -> Pair {
    let config = DeviceConfig::default();
    let (mut a, mut b) = (End::with(&config, transport, 0), End::with(&config, transport, 4));
    let (of_a, of_b) = (attributes(1, 2, &b), attributes(2, 1, &a));
    for (end, attributes) in [(&mut a, &of_a), (&mut b, &of_b)] {
        match transport {
            Transport::Rc => end.connect(attributes),
            Transport::Uc => connect_uc(end, attributes),
            Transport::Ud => start_ud(end),
        }
    }
    Pair { a, b, now: 1_000_000 }
}

fn post_shared(end: &mut End, wr_id: u64, len: u32) {
    let (srq, sge) = (end.srq.unwrap(), end.sge(wr_id as usize * 4096, len));
    end.device.post_srq_recv(srq, wr_id, &[sge]).unwrap();
}

#[test]
fn messages_take_the_receives_of_a_shared_queue_in_order() {
    let mut pair = shared(Transport::Rc);
    for wr_id in 0..3 {
        post_shared(&mut pair.b, wr_id, 4096);
    }
    assert_eq!(pair.b.device.post_recv(pair.b.qp, 9, &[]), Err(PostError::Operation), "it has no queue of its own");
    let sge = pair.a.sge(0, 3000);
    pair.a.post(1, SendOperation::Send, sge);
    pair.a.post(2, SendOperation::Send, sge);
    pair.run_with(|from_a, packet| {
        if !from_a {
            let Body::Message(message) = packet.body else { panic!("{packet}") };
            assert_eq!(message.aeth.map(Aeth::syndrome), Some(Syndrome::Ack(NO_CREDITS)));
        }
        true
    });
    assert_eq!(pair.b.completions(), [(0, Status::Success), (1, Status::Success)]);
    assert_eq!(pair.b.device.srq_len(pair.b.srq.unwrap()), Some(1));
}

#[test]
fn empty_shared_queue_is_an_rnr_nak_and_a_receive_later_serves() {
    let mut pair = shared(Transport::Rc);
    let sge = pair.a.sge(0, 100);
    pair.a.post(1, SendOperation::Send, sge);
    pair.run();
    assert_eq!((pair.a.counters().rnr_naks_rx, pair.b.completions()), (1, vec![]));
    post_shared(&mut pair.b, 3, 4096);
    pair.finish();
    assert_eq!((pair.a.completions(), pair.b.completions()), (vec![(1, Status::Success)], vec![(3, Status::Success)]));
}

#[test]
fn limit_of_a_shared_queue_is_said_once() {
    let mut pair = shared(Transport::Rc);
    let srq = pair.b.srq.unwrap();
    (0..4).for_each(|wr_id| post_shared(&mut pair.b, wr_id, 4096));
    pair.b.device.arm_srq(srq, 3).unwrap();
    let sge = pair.a.sge(0, 100);
    let events = |end: &mut End| core::iter::from_fn(|| end.device.next_event()).collect::<Vec<_>>();
    for expected in [vec![], vec![Event::SrqLimitReached(srq)], vec![]] {
        pair.a.post(1, SendOperation::Send, sge);
        pair.run();
        assert_eq!(events(&mut pair.b), expected);
    }
}

#[test]
fn failed_queue_pair_takes_no_more_of_a_shared_queue_which_keeps_its_receives() {
    let mut pair = shared(Transport::Rc);
    let srq = pair.b.srq.unwrap();
    (0..2).for_each(|wr_id| post_shared(&mut pair.b, wr_id, 4096));
    pair.b.device.modify_qp(pair.b.qp, &QpAttributes::to(QpState::Err)).unwrap();
    assert_eq!((pair.b.completions(), pair.b.device.srq_len(srq)), (vec![], Some(2)));
    assert_eq!(pair.b.device.next_event(), Some(Event::LastWqeReached(pair.b.qp)));
    assert!(pair.b.device.destroy_srq(srq).is_err(), "in use");
    pair.b.device.destroy_qp(pair.b.qp).unwrap();
    pair.b.device.destroy_srq(srq).unwrap();
}
