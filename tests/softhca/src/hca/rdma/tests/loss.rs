//! Frames are lost and overtaken, by a seed: whatever is posted arrives once and in order.

use super::rig::{Rig, operands, pattern, remote};
use crate::hca::send::opcode;
use crate::hca::{Config, Hostility, Service, Wire};

fn lossy(seed: u64, loss: u32, reordering: u32) -> [Config; 2] {
    [seed, seed + 1000].map(|seed| Config {
        hostility: Some(Hostility { seed, loss, reordering, ..Hostility::default() }),
        ..Config::default()
    })
}

/// Posts messages of all kinds one after the other, and waits for each.
fn run(seed: u64, loss: u32, reordering: u32) -> Rig {
    let mut rig = Rig::with(Service::Rc, lossy(seed, loss, reordering), |_| {});
    let counter = 0x7_0000;
    let mut expected = 0_u64;
    for round in 0..40_usize {
        let len = 1 + (round * 577 + seed as usize * 131) % 6000;
        let bytes = pattern(len, round);
        match round % 4 {
            0 => {
                rig.here.memory.put(rig.here.buffer, &bytes);
                rig.there.post_receive(0x1_0000, 8192);
                rig.here.post(opcode::SEND, 0, &rig.here.pointer(0, len as u32));
            }
            1 => {
                rig.here.memory.put(rig.here.buffer, &bytes);
                let segments = [remote(&rig.there, 0x1_0000), rig.here.pointer(0, len as u32)].concat();
                rig.here.post(opcode::WRITE, 0, &segments);
            }
            2 => {
                rig.there.memory.put(rig.there.buffer + 0x1_0000, &bytes);
                let segments = [remote(&rig.there, 0x1_0000), rig.here.pointer(0, len as u32)].concat();
                rig.here.post(opcode::READ, 0, &segments);
            }
            _ => {
                let segments = [remote(&rig.there, counter), operands(3, 0), rig.here.pointer(0, 8)].concat();
                rig.here.post(opcode::FETCH_ADD, 0, &segments);
            }
        }
        let cqe = (0..60).find_map(|_| {
            rig.pass_ms(20);
            rig.here.poll()
        });
        assert_eq!(cqe.map(|cqe| cqe.syndrome), Some(0), "seed {seed}, round {round}: {:#?}", rig.here.hca.counters());
        let seen = match round % 4 {
            0 | 1 => rig.there.memory.get(rig.there.buffer + 0x1_0000, len),
            2 => rig.here.memory.get(rig.here.buffer, len),
            _ => {
                assert_eq!(rig.here.memory.get(rig.here.buffer, 8), expected.to_ne_bytes(), "seed {seed}");
                expected += 3;
                continue;
            }
        };
        assert!(seen == bytes, "seed {seed}, round {round}: other bytes");
    }
    assert_eq!(rig.there.poll_all().len(), 10, "each SEND once");
    assert_eq!(rig.there.memory.get(rig.there.buffer + counter, 8), expected.to_ne_bytes(), "atomics once");
    rig
}

#[test]
fn nothing_is_lost_and_nothing_is_executed_twice() {
    for seed in 0..20 {
        let rig = run(seed, 80, 30);
        assert!(rig.here.hca.counters().rdma_retransmitted > 0, "seed {seed}");
    }
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    let rig = run(1, 0, 0);
    for side in [&rig.here, &rig.there] {
        let counters = side.hca.counters();
        assert_eq!((counters.rdma_retransmitted, counters.rdma_timeouts, counters.rdma_naks), (0, 0, 0));
    }
}

/// The opcode and the number of a packet over IPv6.
fn opcode_and_number(frame: &[u8]) -> (u8, u32) {
    let header = &frame[14 + 40 + 8..];
    (header[0], u32::from_be_bytes([0, header[9], header[10], header[11]]))
}

/// Linux rxe takes an acknowledgment of a READ's number for the READ's answer, and completes the
/// READ without a byte.
#[test]
fn acknowledgment_of_a_duplicate_names_no_read() {
    const ONLY_WRITE: u8 = 0x0a;
    const READ_REQUEST: u8 = 0x0c;
    const ACKNOWLEDGE: u8 = 0x11;
    let mut rig = Rig::new(Service::Rc);
    let Rig { here, there, clock } = &mut rig;
    for code in [opcode::WRITE, opcode::READ] {
        here.post(code, 0, &[remote(there, 0x1_0000), here.pointer(0, 8)].concat());
    }
    here.settle(clock);
    there.settle(clock);
    // The acknowledgment and the answer are lost, and of both that come again the READ.
    let answers: Vec<_> = std::iter::from_fn(|| here.wire.take()).map(|frame| opcode_and_number(&frame).0).collect();
    assert!(answers.len() == 2 && answers[0] == ACKNOWLEDGE, "{answers:x?}");
    clock.advance(400_000_000);
    here.settle(clock);
    let again: Vec<_> = std::iter::from_fn(|| there.wire.take()).collect();
    let [write, read] = &again[..] else { panic!("{} packets again", again.len()) };
    let (code, number) = opcode_and_number(write);
    assert_eq!((code, opcode_and_number(read).0), (ONLY_WRITE, READ_REQUEST));
    assert!(here.wire.send(write));
    there.settle(clock);
    let said = here.wire.take().map(|frame| opcode_and_number(&frame));
    assert_eq!((said, here.wire.take()), (Some((ACKNOWLEDGE, number)), None));
}
