//! What waits for its turn loses nothing by it.

use super::pair::{End, Pair, attributes};
use crate::provider::Provider;
use crate::roce::*;
use crate::wire::opcode::{Operation, Transport};
use crate::wire::packet::{Body, Packet};

/// READs that are always under way, of all memory each, and what they are called.
const READS: u64 = 4;
const READ: u64 = 100;

fn is(operation: Operation, packet: &Packet<'_>) -> bool {
    matches!(packet.body, Body::Message(message) if message.operation == operation)
}

/// Packets of 256 bytes, so that a READ has many answers.
fn pair() -> Pair {
    Pair::with(|attributes| attributes.mtu = Some(Mtu::B256))
}

fn read_all(end: &mut End, of: &End) {
    let (remote, sge) = (of.remote(0), end.sge(0, super::pair::MEMORY as u32));
    end.post(READ, SendOperation::Read(remote), sge);
}

#[test]
fn requests_leave_between_the_answers_to_a_peer_that_never_stops_reading() {
    let mut pair = pair();
    (0..READS).for_each(|_| read_all(&mut pair.b, &pair.a));
    while let Some(request) = pair.b.frame(pair.now) {
        pair.a.receive(pair.now, &request);
    }
    assert!(pair.a.frame(pair.now).is_some(), "an answer");
    let (remote, sge) = (pair.b.remote(0), pair.a.sge(0, 64));
    pair.a.post(1, SendOperation::Write(remote), sge);
    let left = (0..2).any(|_| {
        let frame = pair.a.frame(pair.now).unwrap();
        is(Operation::WriteOnly, &Packet::parse(RoceFrame::parse(&frame).unwrap().roce).unwrap())
    });
    assert!(left, "the WRITE is among the next two frames");
}

#[test]
fn request_that_was_lost_is_sent_again_while_answers_leave_slowly() {
    let mut pair = pair();
    let (remote, sge) = (pair.b.remote(0), pair.a.sge(0, 64));
    pair.a.post(1, SendOperation::Write(remote), sge);
    read_all(&mut pair.b, &pair.a);
    let mut is_lost = false;
    // Each frame takes 3 ms: the answers to the READ are under way for longer than all retries.
    loop {
        pair.now += 3_000_000;
        pair.a.device.on_timer(pair.now);
        pair.b.device.on_timer(pair.now);
        let (from_a, from_b) = (pair.a.frame(pair.now), pair.b.frame(pair.now));
        if from_a.is_none() && from_b.is_none() {
            break;
        }
        if let Some(frame) = from_a {
            let is_write = is(Operation::WriteOnly, &Packet::parse(RoceFrame::parse(&frame).unwrap().roce).unwrap());
            if !is_write || core::mem::replace(&mut is_lost, true) {
                pair.b.receive(pair.now, &frame);
            }
        }
        if let Some(frame) = from_b {
            pair.a.receive(pair.now, &frame);
        }
    }
    assert_eq!(
        (pair.a.completions(), pair.b.completions()),
        (vec![(1, Status::Success)], vec![(READ, Status::Success)])
    );
}

/// Queue pairs that take turns, a frame in a microsecond: a turn takes longer than all retries.
#[test]
fn queue_pair_that_waits_for_its_turn_uses_up_no_retry() {
    const COUNT: u32 = 1_500;
    let config = DeviceConfig { qps: COUNT + 1, ..DeviceConfig::default() };
    let (mut a, mut b) = (End::new(&config), End::new(&config));
    let sge = a.sge(0, 1_500);
    for _ in 0..COUNT {
        (a.qp, b.qp) = (a.device.create_qp(&a.options).unwrap(), b.device.create_qp(&b.options).unwrap());
        let (of_a, of_b) = (attributes(1, 2, &b), attributes(2, 1, &a));
        for (end, mut attributes) in [(&mut a, of_a), (&mut b, of_b)] {
            // 131 µs.
            attributes.timeout = Some(5);
            end.device.connect_qp(end.qp, Transport::Rc, &attributes).unwrap();
        }
        let remote = b.remote(0);
        a.post(1, SendOperation::Write(remote), sge);
    }
    let (mut now, mut done) = (1_000_000, Vec::new());
    while done.len() < COUNT as usize {
        now += 1_000;
        a.device.on_timer(now);
        b.device.on_timer(now);
        if let Some(frame) = a.frame(now) {
            b.receive(now, &frame);
        }
        if let Some(frame) = b.frame(now) {
            a.receive(now, &frame);
        }
        done.extend(a.completions());
    }
    assert!(done.iter().all(|(_, status)| *status == Status::Success), "{done:?}");
}

#[test]
fn answers_that_a_peer_may_ask_for_again_survive_a_change_of_their_number() {
    let mut pair = Pair::new();
    let (remote, sge) = (pair.b.remote(0), pair.a.sge(8, 8));
    pair.a.post(1, SendOperation::FetchAdd { remote, add: 5 }, sge);
    pair.run_with(|from_a, _| from_a);
    pair.b.device.modify_qp(pair.b.qp, &QpAttributes::to(QpState::Sqd)).unwrap();
    for count in [8, 2] {
        let change = QpAttributes { max_dest_rd_atomic: Some(count), ..QpAttributes::to(QpState::Sqd) };
        pair.b.device.modify_qp(pair.b.qp, &change).unwrap();
    }
    pair.finish();
    assert_eq!((pair.a.completions(), pair.b.memory.load_u64(0)), (vec![(1, Status::Success)], 5));
}

#[test]
fn reads_that_are_queued_keep_the_right_to_be_sent() {
    let mut pair = Pair::new();
    pair.a.device.modify_qp(pair.a.qp, &QpAttributes::to(QpState::Sqd)).unwrap();
    read_all(&mut pair.a, &pair.b);
    let none = QpAttributes { max_rd_atomic: Some(0), ..QpAttributes::to(QpState::Sqd) };
    assert_eq!(pair.a.device.modify_qp(pair.a.qp, &none), Err(ModifyError::Value("MAX_QP_RD_ATOMIC")));
    pair.a.device.modify_qp(pair.a.qp, &QpAttributes::to(QpState::Rts)).unwrap();
    pair.finish();
    assert_eq!(pair.a.completions(), [(READ, Status::Success)]);
}
