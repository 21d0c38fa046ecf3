//! Each operation, without loss.

use super::rig::{Cqe, Rig, operands, pattern, remote};
use crate::hca::Service;
use crate::hca::send::opcode;

const SENT: u8 = 0;
const WRITTEN_IMMEDIATE: u8 = 1;
const RECEIVED: u8 = 2;
const RECEIVED_IMMEDIATE: u8 = 3;

fn sent(wqe_opcode: u8, len: u32) -> Cqe {
    Cqe { opcode: SENT, wqe_opcode, syndrome: 0, len, immediate: 0 }
}

fn received(opcode: u8, len: u32, immediate: u32) -> Cqe {
    Cqe { opcode, wqe_opcode: 0, syndrome: 0, len, immediate }
}

#[test]
fn sends_of_every_length_arrive_whole() {
    for service in [Service::Rc, Service::Uc] {
        let mut rig = Rig::new(service);
        for len in [0, 1, 3, 255, 256, 257, 512, 1000, 5000] {
            let bytes = pattern(len, len);
            rig.here.memory.put(rig.here.buffer, &bytes);
            rig.there.post_receive(0x1000, 8192);
            let segments = if len == 0 { Vec::new() } else { rig.here.pointer(0, len as u32) };
            rig.here.post(opcode::SEND, 0, &segments);
            rig.settle();
            assert_eq!(rig.here.poll_all(), [sent(opcode::SEND, len as u32)], "{service:?}, {len} bytes");
            assert_eq!(rig.there.poll_all(), [received(RECEIVED, len as u32, 0)], "{service:?}, {len} bytes");
            assert_eq!(rig.there.memory.get(rig.there.buffer + 0x1000, len), bytes);
        }
    }
}

#[test]
fn writes_are_seen_by_the_peer_alone_with_an_immediate() {
    for service in [Service::Rc, Service::Uc] {
        let mut rig = Rig::new(service);
        let bytes = pattern(1500, 3);
        rig.here.memory.put(rig.here.buffer, &bytes);
        let segments = [remote(&rig.there, 0x40), rig.here.pointer(0, 1500)].concat();
        rig.here.post(opcode::WRITE, 0, &segments);
        rig.settle();
        assert_eq!(rig.here.poll_all(), [sent(opcode::WRITE, 1500)]);
        assert_eq!(rig.there.poll_all(), []);
        assert_eq!(rig.there.memory.get(rig.there.buffer + 0x40, 1500), bytes);

        rig.there.post_receive(0, 16);
        rig.here.post(opcode::WRITE_IMMEDIATE, 0x0102_0304, &segments);
        rig.settle();
        assert_eq!(rig.there.poll_all(), [received(WRITTEN_IMMEDIATE, 1500, 0x0102_0304)]);
    }
}

#[test]
fn immediate_comes_with_a_send() {
    let mut rig = Rig::new(Service::Rc);
    rig.there.post_receive(0, 1024);
    rig.here.post(opcode::SEND_IMMEDIATE, 7, &rig.here.pointer(0, 600));
    rig.settle();
    assert_eq!(rig.there.poll_all(), [received(RECEIVED_IMMEDIATE, 600, 7)]);
}

#[test]
fn read_brings_what_the_peer_has() {
    let mut rig = Rig::new(Service::Rc);
    for len in [1, 256, 700, 20_000] {
        let bytes = pattern(len, 9);
        rig.there.memory.put(rig.there.buffer + 0x123, &bytes);
        let segments = [remote(&rig.there, 0x123), rig.here.pointer(0x800, len as u32)].concat();
        rig.here.post(opcode::READ, 0, &segments);
        rig.settle();
        assert_eq!(rig.here.poll_all(), [sent(opcode::READ, len as u32)]);
        assert_eq!(rig.there.poll_all(), []);
        assert_eq!(rig.here.memory.get(rig.here.buffer + 0x800, len), bytes);
    }
}

#[test]
fn atomics_bring_the_value_that_was_there() {
    let mut rig = Rig::new(Service::Rc);
    let value = |rig: &Rig| u64::from_ne_bytes(rig.there.memory.get(rig.there.buffer + 8, 8).try_into().unwrap());
    rig.there.memory.put(rig.there.buffer + 8, &5_u64.to_ne_bytes());
    let cases = [
        (opcode::FETCH_ADD, operands(10, 0), 5, 15),
        (opcode::COMPARE_SWAP, operands(99, 15), 15, 99),
        (opcode::COMPARE_SWAP, operands(1, 15), 99, 99),
        (opcode::FETCH_ADD, operands(u64::MAX, 0), 99, 98),
    ];
    for (code, operands, before, after) in cases {
        rig.here.post(code, 0, &[remote(&rig.there, 8), operands, rig.here.pointer(0, 8)].concat());
        rig.settle();
        assert_eq!(rig.here.poll_all(), [sent(code, 8)]);
        let original = rig.here.memory.get(rig.here.buffer, 8);
        assert_eq!((u64::from_ne_bytes(original.try_into().unwrap()), value(&rig)), (before, after));
    }
}

#[test]
fn datagram_names_its_sender_and_has_room_for_a_header() {
    let mut rig = Rig::new(Service::Ud);
    let bytes = pattern(100, 1);
    rig.here.memory.put(rig.here.buffer, &bytes);
    rig.there.post_receive(0, 1024);
    let mac = rig.there.hca.config().mac;
    let gid = crate::hca::Gid::link_local(mac);
    let address = [
        &0x1111_u64.to_be_bytes()[4..],
        &[0; 4],
        &rig.there.number.to_be_bytes(),
        &[0; 4],
        &[0; 4],
        &mac,
        &[0, 64],
        &[0; 4],
        &gid.0,
    ]
    .concat();
    rig.here.post(opcode::SEND, 0, &[address, rig.here.pointer(0, 100)].concat());
    rig.settle();
    assert_eq!(rig.here.poll_all(), [sent(opcode::SEND, 100)]);
    assert_eq!(rig.there.poll_all(), [received(RECEIVED, 140, 0)]);
    assert_eq!(rig.there.memory.get(rig.there.buffer + 40, 100), bytes);
    let header = rig.there.memory.get(rig.there.buffer, 40);
    assert_eq!((header[0] >> 4, &header[24..]), (6, &gid.0[..]));
}

#[test]
fn message_is_acknowledged_though_who_sees_it_ends_its_queue_pair_at_once() {
    let mut rig = Rig::new(Service::Rc);
    rig.there.post_receive(0, 1024);
    rig.here.post(opcode::SEND, 0, &rig.here.pointer(0, 600));
    rig.here.settle(&rig.clock);
    while rig.there.poll().is_none() {
        assert!(rig.there.step(&rig.clock) > 0, "the message does not arrive");
    }
    rig.there.hca.destroy_qp(rig.there.qp).unwrap();
    rig.settle();
    assert_eq!(rig.here.poll_all(), [sent(opcode::SEND, 600)]);
}

#[test]
fn peer_without_a_receive_request_is_asked_again_until_it_has_one() {
    let mut rig = Rig::new(Service::Rc);
    rig.here.post(opcode::SEND, 0, &rig.here.pointer(0, 600));
    rig.pass_ms(5);
    assert_eq!(rig.here.poll_all(), []);
    assert!(rig.there.hca.counters().rdma_rnr_naks > 1);
    rig.there.post_receive(0, 1024);
    rig.pass_ms(5);
    assert_eq!(rig.here.poll_all(), [sent(opcode::SEND, 600)]);
    assert_eq!(rig.there.poll_all(), [received(RECEIVED, 600, 0)]);
}
