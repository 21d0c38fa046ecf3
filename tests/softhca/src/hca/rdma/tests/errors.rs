//! What goes wrong, and the completion and event that say so.

use super::rig::{ALL_RIGHTS, Rig, remote};
use crate::hca::rdma::mask;
use crate::hca::send::opcode;
use crate::hca::{AccessFlags, Config, EventKind, QpChange, QpState, Service};

fn remote_with_key(rig: &Rig, key: u32) -> Vec<u8> {
    [&rig.there.buffer.to_be_bytes()[..], &key.to_be_bytes(), &[0; 4]].concat()
}

/// Posts one WQE and a second one behind it; the syndromes of their completions, and the events of
/// the peer.
fn fail(rig: &mut Rig, code: u8, segments: &[u8]) -> (Vec<u8>, Vec<EventKind>) {
    rig.here.post(code, 0, segments);
    rig.here.post(opcode::SEND, 0, &rig.here.pointer(0, 8));
    rig.settle();
    let syndromes = rig.here.poll_all().iter().map(|cqe| cqe.syndrome).collect();
    let events = std::iter::from_fn(|| rig.there.hca.take_event()).map(|event| event.kind).collect();
    assert_eq!(rig.here.hca.query_qp(rig.here.qp).unwrap().0, QpState::Error);
    (syndromes, events)
}

const FLUSHED: u8 = 5;

#[test]
fn wrong_key_reads_and_writes_nothing() {
    for code in [opcode::WRITE, opcode::READ] {
        let mut rig = Rig::new(Service::Rc);
        rig.here.memory.put(rig.here.buffer, &[0x55; 64]);
        let segments = [remote_with_key(&rig, rig.there.key ^ 1), rig.here.pointer(0, 64)].concat();
        assert_eq!(fail(&mut rig, code, &segments), (vec![0x13, FLUSHED], vec![EventKind::QpAccessError]));
        assert_eq!(rig.there.memory.get(rig.there.buffer, 64), [0; 64]);
        assert_eq!(rig.here.memory.get(rig.here.buffer, 64), [0x55; 64]);
    }
}

#[test]
fn region_without_the_right_is_out_of_reach() {
    for (code, rights) in [(opcode::WRITE, ALL_RIGHTS & !2), (opcode::READ, ALL_RIGHTS & !4)] {
        let mut rig = Rig::new(Service::Rc);
        let key = rig.there.register(rights).rkey;
        let segments = [remote_with_key(&rig, key), rig.here.pointer(0, 64)].concat();
        assert_eq!(fail(&mut rig, code, &segments), (vec![0x13, FLUSHED], vec![EventKind::QpAccessError]));
    }
}

#[test]
fn queue_pair_without_the_right_refuses() {
    for (code, rights) in [(opcode::WRITE, ALL_RIGHTS & !2), (opcode::READ, ALL_RIGHTS & !4)] {
        let configs = [Config::default(), Config::default()];
        let mut rig = Rig::with(Service::Rc, configs, |attributes| attributes.access = AccessFlags(rights));
        let segments = [remote(&rig.there, 0), rig.here.pointer(0, 64)].concat();
        assert_eq!(fail(&mut rig, code, &segments), (vec![0x12, FLUSHED], vec![EventKind::QpRequestError]));
    }
}

#[test]
fn atomic_that_is_not_aligned_is_refused() {
    let mut rig = Rig::new(Service::Rc);
    let segments = [remote(&rig.there, 4), super::rig::operands(1, 2), rig.here.pointer(0, 8)].concat();
    assert_eq!(fail(&mut rig, opcode::FETCH_ADD, &segments), (vec![0x12, FLUSHED], vec![EventKind::QpRequestError]));
}

#[test]
fn message_longer_than_its_receive_request_fails_on_both_sides() {
    let mut rig = Rig::new(Service::Rc);
    rig.there.post_receive(0, 300);
    rig.there.post_receive(0, 300);
    let segments = rig.here.pointer(0, 600);
    assert_eq!(fail(&mut rig, opcode::SEND, &segments), (vec![0x12, FLUSHED], vec![EventKind::QpRequestError]));
    let syndromes: Vec<u8> = rig.there.poll_all().iter().map(|cqe| cqe.syndrome).collect();
    assert_eq!(syndromes, [0x01, FLUSHED]);
}

#[test]
fn silent_peer_ends_in_the_retry_syndrome_after_its_time() {
    let mut rig = Rig::new(Service::Rc);
    rig.there
        .hca
        .modify_qp(rig.there.qp, &QpChange { state: Some(QpState::Reset), mask: mask::STATE, ..QpChange::default() })
        .unwrap();
    rig.here.post(opcode::SEND, 0, &rig.here.pointer(0, 8));
    // Eight times, each between once and four times 67 ms.
    rig.pass_ms(8 * 67);
    assert_eq!(rig.here.poll_all(), []);
    rig.pass_ms(3 * 8 * 67);
    assert_eq!(rig.here.poll_all().iter().map(|cqe| cqe.syndrome).collect::<Vec<_>>(), [0x15]);
    assert_eq!(rig.here.hca.counters().rdma_timeouts, 8);
}

#[test]
fn peer_that_never_has_a_receive_request_ends_in_its_own_syndrome() {
    let configs = [Config::default(), Config::default()];
    let mut rig = Rig::with(Service::Rc, configs, |attributes| attributes.rnr_retry = 3);
    rig.here.post(opcode::SEND, 0, &rig.here.pointer(0, 8));
    rig.pass_ms(10);
    assert_eq!(rig.here.poll_all().iter().map(|cqe| cqe.syndrome).collect::<Vec<_>>(), [0x16]);
    assert_eq!(rig.there.hca.counters().rdma_rnr_naks, 4);
}

#[test]
fn local_mistake_fails_in_its_turn() {
    let mut rig = Rig::new(Service::Rc);
    rig.there.post_receive(0, 64);
    rig.here.post(opcode::SEND, 0, &rig.here.pointer(0, 64));
    let mut wrong = rig.here.pointer(0, 64);
    wrong[4..8].copy_from_slice(&0xdead_u32.to_be_bytes());
    rig.here.post(opcode::SEND, 0, &wrong);
    rig.settle();
    assert_eq!(rig.here.poll_all().iter().map(|cqe| cqe.syndrome).collect::<Vec<_>>(), [0, 0x04]);
}

#[test]
fn queue_pair_moved_to_error_gives_everything_back() {
    let mut rig = Rig::new(Service::Rc);
    rig.here.post_receive(0, 64);
    rig.here.post(opcode::SEND, 0, &rig.here.pointer(0, 64));
    rig.settle();
    let change = QpChange { state: Some(QpState::Error), mask: mask::STATE, ..QpChange::default() };
    rig.here.hca.modify_qp(rig.here.qp, &change).unwrap();
    rig.settle();
    let mut flushed: Vec<(u8, u8)> = rig.here.poll_all().iter().map(|cqe| (cqe.opcode, cqe.syndrome)).collect();
    flushed.sort_unstable();
    assert_eq!(flushed, [(13, FLUSHED), (14, FLUSHED)]);
}
