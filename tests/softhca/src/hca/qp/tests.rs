#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::hca::send::Rig;
use crate::hca::{Config, Errno, QpCapabilities, QpChange, QpKind, QpState, RqRing, SqRing};
use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained, SendQueueError};

const INVALID: Result<(), Errno> = Err(Errno(libc::EINVAL));
const STATES: [QpState; 7] = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Error];

fn change(state: QpState) -> QpChange {
    QpChange { state: Some(state), port: (state == Init).then_some(1), ..QpChange::default() }
}

/// Brings a QP into a state that it can be brought into.
fn in_state(state: QpState) -> Rig {
    let mut rig = Rig::in_reset(Config::default(), 64);
    let path: &[QpState] = match state {
        Reset => &[],
        Init => &[Init],
        ReadyToReceive => &[Init, ReadyToReceive],
        ReadyToSend => &[Init, ReadyToReceive, ReadyToSend],
        _ => &[Init, Error],
    };
    for step in path {
        rig.hca.modify_qp(rig.qp, &change(*step)).unwrap();
    }
    assert_eq!(rig.state(), state);
    rig
}

#[test]
fn only_the_steps_of_a_raw_packet_qp_are_possible() {
    let possible = [
        (Reset, &[Reset, Init][..]),
        (Init, &[Reset, Init, ReadyToReceive, Error]),
        (ReadyToReceive, &[Reset, ReadyToSend, Error]),
        (ReadyToSend, &[Reset, ReadyToSend, Error]),
        (Error, &[Reset, Error]),
    ];
    for (from, to) in possible {
        for state in STATES {
            let mut rig = in_state(from);
            let expected = if to.contains(&state) { Ok(()) } else { INVALID };
            assert_eq!(rig.hca.modify_qp(rig.qp, &change(state)), expected, "{from:?} to {state:?}");
            assert_eq!(rig.state(), if expected.is_ok() { state } else { from });
        }
    }
}

#[test]
fn init_needs_the_only_port() {
    let mut rig = in_state(Reset);
    for port in [None, Some(0), Some(2)] {
        let init = QpChange { state: Some(Init), port, ..QpChange::default() };
        assert_eq!(rig.hca.modify_qp(rig.qp, &init), INVALID, "port {port:?}");
    }
}

#[test]
fn a_client_that_believes_in_another_state_is_refused() {
    let mut rig = in_state(Init);
    let wrong = QpChange { current_state: Some(Reset), ..change(ReadyToReceive) };
    assert_eq!(rig.hca.modify_qp(rig.qp, &wrong), INVALID);
    let right = QpChange { current_state: Some(Init), ..wrong };
    assert_eq!(rig.hca.modify_qp(rig.qp, &right), Ok(()));
}

#[test]
fn a_pace_needs_a_queue_that_sends_and_a_rate_that_is_possible() {
    let pace = |rate| QpChange { rate_limit: Some(rate), ..QpChange::default() };
    let mut rig = in_state(ReadyToReceive);
    assert_eq!(rig.hca.modify_qp(rig.qp, &pace(5_000)), INVALID, "not ready to send");
    let on_the_way = QpChange { rate_limit: Some(5_000), ..change(ReadyToSend) };
    assert_eq!(rig.hca.modify_qp(rig.qp, &on_the_way), Ok(()));
    assert_eq!(rig.hca.modify_qp(rig.qp, &pace(999)), INVALID);
    assert_eq!(rig.hca.modify_qp(rig.qp, &pace(100_000_001)), INVALID);
    assert_eq!(rig.hca.modify_qp(rig.qp, &pace(0)), Ok(()));

    let mut rig = Rig::new(Config { pacing: None, ..Config::default() });
    assert_eq!(rig.hca.modify_qp(rig.qp, &pace(5_000)), Err(Errno(libc::EOPNOTSUPP)));
}

fn receiving_ring(rig: &mut Rig, wqe_count: u32, wqe_shift: u32) -> RqRing {
    let (ring, doorbell) = (rig.memory.reserve(4096, 4096), rig.memory.reserve(4, 64));
    RqRing { ring, wqe_count, wqe_shift, doorbell, cq: rig.cq, striding: None }
}

#[test]
fn a_failed_sending_side_shows_only_beside_a_receiving_one() {
    let mut rig = Rig::in_reset(Config::default(), 64);
    rig.hca.destroy_qp(rig.qp).unwrap();
    let mut request = rig.request();
    let ring = receiving_ring(&mut rig, 64, 4);
    if let QpKind::RawPacket { receive, .. } = &mut request.kind {
        *receive = Some(ring);
    }
    let created = rig.hca.create_qp(request).unwrap();
    assert_eq!(created.number, created.sq_number, "the number of the sending side");
    assert_ne!(created.sq_number, created.rq_number);
    (rig.qp, rig.number) = (created.handle, created.number);
    rig.make_ready();
    rig.memory.put_be32(rig.doorbell, 1); // a WQE of zeros, of queue 0
    rig.step();
    assert_eq!(rig.state(), SendQueueError);
    assert_eq!(rig.hca.modify_qp(rig.qp, &change(ReadyToSend)), INVALID, "mlx5 has no command for it");
    assert_eq!(rig.hca.modify_qp(rig.qp, &change(Reset)), Ok(()));
}

#[test]
fn capabilities_of_sending_come_back_as_they_were_asked_for() {
    let rig = in_state(Reset);
    let expected = QpCapabilities { send_wr_max: 64, ..QpCapabilities::default() };
    assert_eq!(rig.hca.query_qp(rig.qp), Ok((Reset, expected, crate::hca::QpAttributes::default())));
}

/// libmlx5 compares the requests posted with its ring, and a client reads the ring's length here.
#[test]
fn capabilities_of_receiving_are_those_of_the_ring() {
    let mut rig = in_state(Reset);
    let ring = receiving_ring(&mut rig, 8, 6);
    let mut request = rig.request();
    request.capabilities.receive_wr_max = 5;
    request.capabilities.receive_sge_max = 3;
    let asked = request.capabilities;
    if let QpKind::RawPacket { receive, .. } = &mut request.kind {
        *receive = Some(ring);
    }
    let created = rig.hca.create_qp(request).unwrap();
    let (_, granted, _) = rig.hca.query_qp(created.handle).unwrap();
    assert_eq!(granted, QpCapabilities { receive_wr_max: 8, receive_sge_max: 4, ..asked });
}

#[test]
fn a_ring_that_cannot_be_is_refused_and_leaves_nothing() {
    let spoil: [fn(&mut SqRing); 6] = [
        |ring| ring.wqebb_count = 0,
        |ring| ring.wqebb_count = 48,
        |ring| ring.wqebb_count = 65_536,
        |ring| ring.ring += 32,
        |ring| ring.doorbell += 2,
        |ring| ring.cq = 99,
    ];
    for (nth, spoil) in spoil.iter().enumerate() {
        let mut rig = in_state(Reset);
        let mut request = rig.request();
        if let QpKind::RawPacket { send: Some(ring), .. } = &mut request.kind {
            spoil(ring);
        }
        assert_eq!(rig.hca.create_qp(request), Err(Errno(libc::EINVAL)), "case {nth}");
        rig.hca.destroy_qp(rig.qp).unwrap();
        assert!(rig.hca.destroy_cq(rig.cq).is_ok(), "case {nth} holds the CQ");
    }
    let mut rig = in_state(Reset);
    let neither = QpKind::RawPacket { send: None, receive: None };
    let request = crate::hca::QpRequest { kind: neither, ..rig.request() };
    assert_eq!(rig.hca.create_qp(request), Err(Errno(libc::EINVAL)));
    let request = crate::hca::QpRequest { pd: 99, ..rig.request() };
    assert_eq!(rig.hca.create_qp(request), Err(Errno(libc::EINVAL)));
}

#[test]
fn what_a_qp_uses_stays_until_it_goes() {
    let mut rig = in_state(Reset);
    assert!(rig.hca.destroy_cq(rig.cq).is_err());
    rig.hca.destroy_qp(rig.qp).unwrap();
    assert_eq!(rig.hca.destroy_qp(rig.qp), Err(Errno(libc::EINVAL)), "twice");
    assert!(rig.hca.destroy_cq(rig.cq).is_ok());
}

#[test]
fn a_number_is_not_used_again_at_once() {
    let mut rig = in_state(Reset);
    let mut numbers = vec![rig.number];
    for _ in 0..10 {
        rig.hca.destroy_qp(rig.qp).unwrap();
        let created = rig.hca.create_qp(rig.request()).unwrap();
        assert!(created.number < 131_072, "beyond qp_tab_size");
        assert!(!numbers.contains(&created.number), "{numbers:x?}");
        numbers.push(created.number);
        rig.qp = created.handle;
    }
}
