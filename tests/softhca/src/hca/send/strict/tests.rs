#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::hca::send::rig::{Rig, ethernet, frame, inline};
use crate::hca::{Config, QpState};

fn strict() -> Config {
    Config { strict: true, ..Config::default() }
}

fn rig() -> Rig {
    Rig::new(strict())
}

#[track_caller]
fn check_punished(rig: &mut Rig, vendor: u8, counter: impl Fn(&Rig) -> u64, sentence: &str) {
    let cqe = rig.cqe().unwrap();
    assert_eq!((cqe.opcode, cqe.syndrome, cqe.vendor), (13, 0x02, vendor));
    assert_eq!(counter(rig), 1);
    let diagnosis = rig.hca.take_diagnosis().unwrap();
    assert!(diagnosis.contains(sentence), "{diagnosis}");
    assert_eq!(rig.frames().len(), 0);
}

#[test]
fn a_driver_that_forgets_to_ring_sends_nothing() {
    let mut rig = rig();
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    assert_eq!(rig.step(), 0);
    assert_eq!(rig.frames().len(), 0);
    rig.ring(0);
    rig.step();
    assert_eq!(rig.frames().len(), 1);
}

#[test]
fn without_strictness_the_record_is_enough() {
    let mut rig = Rig::new(Config::default());
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    rig.step();
    assert_eq!(rig.frames().len(), 1);
}

#[test]
fn what_is_posted_and_recorded_after_the_ring_waits_for_the_next() {
    let mut rig = rig();
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    rig.ring(0);
    rig.post(&rig.send_wqe(&frame(65)));
    rig.record();
    rig.step();
    assert_eq!(rig.frames().len(), 1, "the driver has begun with its next post");
    rig.ring(1);
    rig.step();
    assert_eq!(rig.frames().len(), 1);
    assert_eq!(rig.hca.take_diagnosis(), None);
}

#[test]
fn one_ring_with_the_last_wqe_releases_the_whole_burst() {
    let mut rig = rig();
    for _ in 0..32 {
        rig.post(&rig.send_wqe(&frame(64)));
    }
    rig.record();
    rig.ring(0);
    rig.step();
    assert_eq!(rig.frames().len(), 32);
}

#[test]
fn a_register_written_before_the_record_is_punished() {
    let mut rig = rig();
    rig.post(&rig.send_wqe(&frame(64)));
    rig.ring(0);
    rig.step();
    check_punished(&mut rig, 0x80, |rig| rig.hca.counters().strict_record_late, "the doorbell record still said 0");
}

#[test]
fn a_register_that_names_another_index_is_punished() {
    let mut rig = rig();
    let wqe = rig.send_wqe(&frame(64));
    rig.post(&wqe);
    rig.record();
    let mut other = wqe;
    other[3] = 0; // a NOP, where a SEND was posted
    rig.memory.put(rig.uar + 0x800, &other[..8]);
    rig.step();
    check_punished(&mut rig, 0x81, |rig| rig.hca.counters().strict_register_wrong, "the register was written with");
}

#[test]
fn a_register_far_from_the_ring_is_punished() {
    let mut rig = rig();
    let mut wqe = rig.send_wqe(&frame(64));
    rig.post(&wqe);
    rig.record();
    wqe[1] = 0x40;
    rig.memory.put(rig.uar + 0x800, &wqe[..8]);
    rig.step();
    check_punished(&mut rig, 0x81, |rig| rig.hca.counters().strict_register_wrong, "the register was written with");
}

#[test]
fn a_register_that_names_no_queue_is_counted() {
    let mut rig = rig();
    rig.memory.put_be64(rig.uar + 0x800, 0x0000_000a_0000_0403);
    rig.step();
    assert_eq!(rig.hca.counters().strict_register_wrong, 1);
    assert!(rig.hca.take_diagnosis().unwrap().contains("send queue 0x4, which there is not"));
}

#[test]
fn a_queue_rung_on_another_page_is_counted_and_waits() {
    let mut rig = rig();
    let page = rig.memory.reserve(4096, 4096);
    rig.hca.map_uar(9, page).unwrap();
    let hold = rig.hca.uars.hold(9); // another queue's page
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    rig.uar = page;
    rig.ring(0);
    rig.step();
    assert_eq!((rig.frames().len(), rig.hca.counters().strict_register_wrong), (0, 1));
    assert!(rig.hca.take_diagnosis().unwrap().contains("not its own"));
    rig.hca.uars.release(hold);
}

#[test]
fn a_queue_rung_before_it_is_ready_is_counted() {
    let mut rig = Rig::in_reset(strict(), 64);
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    rig.ring(0);
    rig.step();
    assert_eq!(rig.hca.counters().strict_register_wrong, 1);
    assert!(rig.hca.take_diagnosis().unwrap().contains("before its QP was ready to send"));
}

#[test]
fn a_ring_that_was_seen_late_is_no_mistake() {
    let mut rig = rig();
    rig.submit(&rig.send_wqe(&frame(64)));
    rig.ring(1);
    rig.step();
    assert_eq!(rig.hca.counters().doorbells_late, 1);
    assert_eq!((rig.cqes().len(), rig.hca.take_diagnosis()), (1, None));
}

#[test]
fn two_rings_of_one_half_between_two_looks_release_both_posts() {
    let mut rig = rig();
    for _ in 0..2 {
        rig.post(&rig.send_wqe(&frame(64)));
        rig.record();
        rig.ring(0);
    }
    rig.step();
    assert_eq!(rig.frames().len(), 2);
}

#[test]
fn blueflame_that_carries_the_wqe_is_seen_as_such() {
    let mut rig = rig();
    for turn in 0..50_u64 {
        rig.post(&rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(100))]));
        rig.record();
        rig.blueflame(turn % 2);
        rig.step();
    }
    assert_eq!(rig.frames().len(), 50, "around the end of the ring twice");
    assert_eq!((rig.hca.counters().doorbells_blueflame, rig.hca.take_diagnosis()), (50, None));
}

#[test]
fn blueflame_with_other_bytes_is_punished() {
    for at in [8, 20, 60, 127] {
        let mut rig = rig();
        rig.post(&rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(90))]));
        rig.record();
        rig.blueflame(1);
        let mut bytes = rig.memory.get(rig.uar + 0x900 + at, 1);
        bytes[0] ^= 0x55;
        rig.memory.put(rig.uar + 0x900 + at, &bytes);
        rig.step();
        let sentence = format!("at offset {} of", at / 8 * 8);
        check_punished(&mut rig, 0x82, |rig| rig.hca.counters().strict_blueflame_differs, &sentence);
    }
}

#[test]
fn blueflame_that_went_past_the_ring_instead_of_around_is_punished() {
    let mut rig = Rig::with_ring(strict(), 4);
    for _ in 0..3 {
        rig.submit(&rig.send_wqe(&frame(64)));
    }
    rig.frames();
    rig.cqes();
    let wqe = rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(90))]);
    rig.post(&wqe);
    rig.record();
    let mut wrong = wqe;
    wrong[64..].fill(0xee);
    rig.memory.put(rig.uar + 0x900, &wrong);
    rig.step();
    check_punished(&mut rig, 0x82, |rig| rig.hca.counters().strict_blueflame_differs, "at offset 64");
}

#[test]
fn bytes_left_over_from_an_unseen_blueflame_are_no_mistake() {
    let mut rig = rig();
    // Half 0 by BlueFlame, half 1 plainly, half 0 plainly: the engine looked only now.
    rig.post(&rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(90))]));
    rig.record();
    rig.blueflame(0);
    for half in [1, 0] {
        rig.post(&rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(70))]));
        rig.record();
        rig.ring(half);
    }
    rig.step();
    assert_eq!((rig.frames().len(), rig.hca.take_diagnosis()), (3, None));
    // None of its bytes are left for the next doorbell.
    rig.post(&rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(80))]));
    rig.record();
    rig.ring(0);
    rig.step();
    assert_eq!((rig.frames().len(), rig.hca.take_diagnosis()), (1, None));
}

#[test]
fn the_rest_of_a_blueflame_that_was_taken_half_written_is_no_mistake() {
    let mut rig = rig();
    let wqe = rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(90))]);
    rig.post(&wqe);
    rig.record();
    rig.memory.put(rig.uar + 0x800, &wqe[..32]);
    rig.step();
    rig.memory.put(rig.uar + 0x820, &wqe[32..]); // the driver's other stores, after the look
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!((rig.frames().len(), rig.hca.take_diagnosis()), (2, None));
}

/// A second queue on the rig's page; the rig drives it from now on. Returns the values with which
/// to drive the first one.
fn second_queue(rig: &mut Rig) -> (u32, u32, u64, u64, u16) {
    let first = (rig.qp, rig.number, rig.ring, rig.doorbell, rig.pi);
    let mut request = rig.request();
    let other_ring = rig.memory.reserve(4096, 4096);
    let other_doorbell = rig.memory.reserve(4, 64);
    if let crate::hca::QpKind::RawPacket { send: Some(send), .. } = &mut request.kind {
        (send.ring, send.doorbell) = (other_ring, other_doorbell);
    }
    let created = rig.hca.create_qp(request).unwrap();
    (rig.qp, rig.number, rig.ring, rig.doorbell) = (created.handle, created.number, other_ring, other_doorbell);
    rig.make_ready();
    first
}

#[test]
fn a_ring_hidden_by_another_queues_is_no_mistake() {
    let mut rig = rig();
    rig.post(&rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(90))]));
    rig.record();
    rig.blueflame(0);
    second_queue(&mut rig);
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    rig.ring(0); // over the other one's
    rig.step();
    assert_eq!((rig.frames().len(), rig.hca.take_diagnosis()), (2, None));
}

#[test]
fn a_queue_that_rings_elsewhere_is_not_let_go_by_its_neighbor() {
    let mut rig = rig();
    rig.submit(&rig.send_wqe(&frame(64))); // register 0
    let first = second_queue(&mut rig);
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    rig.ring(2); // register 1
    rig.step();
    assert_eq!(rig.frames().len(), 2);
    let control = rig.memory.get(rig.ring, 8);

    (rig.qp, rig.number, rig.ring, rig.doorbell, rig.pi) = first;
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record(); // and forgets to ring
    rig.memory.put(rig.uar + 0x800 + 512, &control); // the second one's, again
    rig.step();
    assert_eq!((rig.frames().len(), rig.hca.counters().doorbells_late), (0, 1));
}

#[test]
fn what_was_rung_before_a_reset_is_not_held_against_the_queue() {
    let mut rig = rig();
    for _ in 0..3 {
        rig.post(&rig.send_wqe(&frame(64)));
    }
    rig.record();
    rig.ring(0);
    rig.make_ready(); // before anybody looked
    rig.step();
    assert_eq!((rig.cqes().len(), rig.hca.take_diagnosis()), (0, None));
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!(rig.frames().len(), 1);
}

#[test]
fn a_mistake_at_the_doorbell_is_overcome_by_reset() {
    let mut rig = rig();
    rig.post(&rig.send_wqe(&frame(64)));
    rig.ring(0);
    rig.step();
    assert_eq!(rig.cqes().len(), 1);
    assert_eq!(rig.state(), QpState::ReadyToSend, "the kernel does not show it without a receiving ring");
    rig.make_ready();
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!((rig.frames().len(), rig.cqes()[0].opcode), (1, 0));
}
