#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::hca::send::rig::{Rig, SendCqe, USER_INDEX, ethernet, ethernet_inline, frame, inline};
use crate::hca::{Config, Environment, EventKind, Hostility, LinkState, QpChange, QpState, Wire};

fn sent(wqe_counter: u16, wqe_opcode: u8) -> SendCqe {
    SendCqe { opcode: 0, wqe_counter, syndrome: 0, vendor: 0, wqe_opcode, user_index: USER_INDEX }
}

#[test]
fn a_frame_goes_out_and_its_cqe_names_the_user_index() {
    let mut rig = Rig::new(Config::default());
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!(rig.frames(), [frame(64)]);
    assert_eq!(rig.cqes(), [sent(0, 0x0a)]);
    assert_eq!(rig.hca.take_diagnosis(), None);
}

#[test]
fn nothing_is_fetched_before_the_queue_is_ready_to_send() {
    let mut rig = Rig::in_reset(Config::default(), 64);
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!((rig.frames().len(), rig.cqes().len()), (0, 0));
}

#[test]
fn upper_bits_of_the_doorbell_record_do_not_count() {
    let mut rig = Rig::new(Config::default());
    rig.post(&rig.send_wqe(&frame(64)));
    rig.memory.put_be32(rig.doorbell, 0xfff_0001);
    rig.step();
    assert_eq!(rig.frames().len(), 1);
}

#[test]
fn a_wqe_that_wraps_at_the_end_of_the_ring_is_one_frame() {
    // Three WQEBBs each in a ring of four: each starts at another place, and wraps within headers,
    // inline data or pointers.
    let mut rig = Rig::with_ring(Config::default(), 4);
    for turn in 0..8_u16 {
        let (headers, data) = (frame(18), frame(80));
        let wqe = rig.wqe(0x0a, &[&ethernet_inline(0, 0, &headers), &inline(&data), &rig.pointer(0, 40)]);
        assert_eq!(wqe.len().div_ceil(64), 3);
        rig.memory.put(rig.buffer, &[turn as u8; 40]);
        rig.submit(&wqe);
        assert_eq!(rig.frames(), [[headers, data, vec![turn as u8; 40]].concat()], "turn {turn}");
        assert_eq!(rig.cqes(), [sent(turn * 3, 0x0a)]);
    }
}

#[test]
fn ds_0_is_64_units() {
    let mut rig = Rig::new(Config::default());
    let data = frame(62 * 16 - 4);
    let wqe = rig.wqe(0x0a, &[&ethernet(0), &inline(&data)]);
    assert_eq!((wqe.len(), wqe[7]), (1024, 0));
    rig.submit(&wqe);
    assert_eq!(rig.frames(), [data]);
}

#[test]
fn positions_pass_65535() {
    let mut rig = Rig::with_ring(Config::default(), 32768);
    let mut count = 0;
    while count < 70_000 {
        for _ in 0..100 {
            rig.post(&rig.send_wqe(&frame(64)));
            count += 1;
        }
        rig.record();
        while rig.step() > 0 {}
        assert_eq!(rig.frames().len(), 100);
        let cqes = rig.cqes();
        assert_eq!(cqes.last().unwrap().wqe_counter, rig.pi.wrapping_sub(1));
    }
}

#[test]
fn a_wqe_completes_as_its_mode_says() {
    let mut rig = Rig::new(Config::default());
    for (mode, cqes) in [(0x00, 0), (0x04, 0), (0x08, 1), (0x0c, 1)] {
        let mut wqe = rig.send_wqe(&frame(64));
        wqe[11] = mode;
        rig.submit(&wqe);
        assert_eq!(rig.cqes().len(), cqes, "mode {mode:#x}");
    }
    assert_eq!(rig.frames().len(), 4);
}

#[test]
fn a_queue_that_signals_all_completes_every_wqe() {
    let mut rig = Rig::in_reset(Config::default(), 64);
    rig.hca.destroy_qp(rig.qp).unwrap();
    let mut request = rig.request();
    request.signal_all = true;
    let created = rig.hca.create_qp(request).unwrap();
    (rig.qp, rig.number) = (created.handle, created.number);
    rig.make_ready();
    let mut wqe = rig.send_wqe(&frame(64));
    wqe[11] = 0;
    rig.submit(&wqe);
    assert_eq!(rig.cqes().len(), 1);
}

#[test]
fn a_nop_completes_and_sends_nothing() {
    let mut rig = Rig::new(Config::default());
    rig.submit(&rig.wqe(0, &[]));
    assert_eq!(rig.frames().len(), 0);
    assert_eq!(rig.cqes(), [sent(0, 0)]);
}

#[test]
fn after_an_error_everything_posted_is_flushed() {
    let mut rig = Rig::new(Config::default());
    let mut bad = rig.send_wqe(&frame(64));
    bad[3] = 0x10; // RDMA read
    rig.post(&bad);
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    rig.step();
    let mut first_error_only = rig.send_wqe(&frame(64));
    first_error_only[11] = 0x04;
    rig.submit(&first_error_only);
    rig.submit(&rig.send_wqe(&frame(64)));
    let cqes: Vec<_> = rig.cqes().iter().map(|cqe| (cqe.opcode, cqe.syndrome, cqe.wqe_counter)).collect();
    assert_eq!(cqes, [(13, 0x02, 0), (13, 0x05, 1), (13, 0x05, 3)], "the one of mode 1 is silent");
    assert_eq!(rig.frames().len(), 0);
    assert_eq!((rig.hca.counters().tx_errors, rig.hca.counters().tx_flushed), (1, 3));
    assert!(rig.hca.take_diagnosis().unwrap().contains("opcode 0x10"));
}

#[test]
fn a_queue_recovers_by_reset_and_up_again() {
    let mut rig = Rig::new(Config::default());
    let mut bad = rig.send_wqe(&frame(64));
    bad[0] = 1;
    rig.submit(&bad);
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!(rig.cqes().len(), 2);
    rig.make_ready();
    rig.submit(&rig.send_wqe(&frame(65)));
    assert_eq!(rig.cqes(), [sent(0, 0x0a)], "indices begin at zero");
    assert_eq!(rig.frames(), [frame(65)]);
}

#[test]
fn a_driver_that_moves_the_qp_to_error_gets_its_wqes_back() {
    let mut rig = Rig::new(Config::default());
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    rig.hca.modify_qp(rig.qp, &QpChange { state: Some(QpState::Error), ..QpChange::default() }).unwrap();
    rig.step();
    assert_eq!(rig.cqes().iter().map(|cqe| cqe.syndrome).collect::<Vec<_>>(), [0x05]);
    assert_eq!(rig.state(), QpState::Error);
}

#[test]
fn a_record_beyond_the_ring_is_an_error() {
    let mut rig = Rig::new(Config::default());
    rig.memory.put_be32(rig.doorbell, 65);
    rig.step();
    let cqe = rig.cqe().unwrap();
    assert_eq!((cqe.opcode, cqe.syndrome, cqe.wqe_counter), (13, 0x02, 0));
    assert_eq!(rig.cqe(), None);
    assert!(rig.hca.take_diagnosis().unwrap().contains("65 WQEBBs ahead"));
}

#[test]
fn a_ring_that_is_gone_is_told_as_an_event_where_no_cqe_can_be_had() {
    let mut rig = Rig::in_reset(Config::default(), 64);
    rig.hca.destroy_qp(rig.qp).unwrap();
    rig.doorbell = 0x1000; // not in memory
    let created = rig.hca.create_qp(rig.request()).unwrap();
    rig.qp = created.handle;
    for (state, port) in [(QpState::Init, Some(1)), (QpState::ReadyToReceive, None), (QpState::ReadyToSend, None)] {
        rig.hca.modify_qp(rig.qp, &QpChange { state: Some(state), port, ..QpChange::default() }).unwrap();
    }
    rig.step();
    let event = rig.hca.take_event().unwrap();
    assert_eq!((event.kind, event.element), (EventKind::QpFatal, 0x77));
    assert_eq!(rig.hca.destroy_qp(rig.qp), Ok(1), "the event that was taken is to be acknowledged");
}

#[test]
fn a_busy_wire_delays_and_loses_nothing() {
    let mut rig = Rig::new(Config::default());
    rig.here.frames_max = 1;
    for len in 64..74 {
        rig.post(&rig.wqe(0x0a, &[&ethernet(0), &inline(&frame(len))]));
    }
    rig.record();
    for len in 64..74 {
        rig.step();
        assert_eq!(rig.frames(), [frame(len)]);
    }
    rig.step();
    assert_eq!(rig.cqes().len(), 10);
    assert_eq!(rig.hca.counters().tx_frames, 10);
}

#[test]
fn while_the_port_is_down_frames_complete_and_are_lost() {
    let mut rig = Rig::new(Config::default());
    rig.there.set_link(LinkState::Down);
    rig.submit(&rig.send_wqe(&frame(64)));
    assert_eq!((rig.frames().len(), rig.cqes().len()), (0, 1));
    assert_eq!(rig.hca.counters().tx_link_down, 1);
}

#[test]
fn a_frame_longer_than_the_port_carries_is_dropped_and_counted() {
    let mut rig = Rig::new(Config::default());
    rig.submit(&rig.send_wqe(&frame(1519)));
    assert_eq!((rig.frames().len(), rig.cqes().len()), (0, 1), "its WQE completes as if it had gone");
    assert_eq!(rig.hca.counters().tx_oversize, 1);
    rig.submit(&rig.send_wqe(&frame(1518)));
    assert_eq!(rig.frames().len(), 1);
}

#[test]
fn a_short_frame_is_padded_with_zeros() {
    let mut rig = Rig::new(Config::default());
    rig.submit(&rig.send_wqe(&frame(14)));
    assert_eq!(rig.frames(), [[frame(14), vec![0; 46]].concat()]);
}

#[test]
fn a_step_keeps_to_its_budget_and_queues_take_turns() {
    let mut rig = Rig::new(Config::default());
    for _ in 0..10 {
        rig.post(&rig.send_wqe(&frame(64)));
    }
    rig.record();
    for _ in 0..5 {
        rig.step_with(2);
        assert_eq!(rig.frames().len(), 2);
    }
}

#[test]
fn a_destroyed_queue_is_silent_though_its_memory_lives_on() {
    let mut rig = Rig::new(Config::default());
    rig.post(&rig.send_wqe(&frame(64)));
    rig.record();
    assert_eq!(rig.hca.destroy_qp(rig.qp), Ok(0));
    rig.ring(0);
    rig.step();
    assert_eq!((rig.frames().len(), rig.cqes().len()), (0, 0));
}

#[test]
fn a_paced_queue_sends_by_the_clock() {
    let mut rig = Rig::new(Config::default());
    rig.hca.modify_qp(rig.qp, &QpChange { rate_limit: Some(8_000), ..QpChange::default() }).unwrap();
    for _ in 0..3 {
        rig.post(&rig.send_wqe(&frame(1000)));
    }
    rig.record();
    for _ in 0..3 {
        rig.step();
        assert_eq!(rig.frames().len(), 1, "1000 bytes are a millisecond at 8 Mbit/s");
        rig.clock.advance(1_000_000);
    }
}

#[test]
fn a_hostile_nic_fails_wqes_and_a_driver_that_recovers_gets_through() {
    let hostility = Hostility { seed: 3, send_errors: 100, ..Hostility::default() };
    let mut rig = Rig::new(Config { hostility: Some(hostility), ..Config::default() });
    let (mut failed, mut good) = (0, 0);
    while good < 100 {
        rig.submit(&rig.send_wqe(&frame(64)));
        match rig.cqe().unwrap().opcode {
            0 => good += 1,
            _ => {
                failed += 1;
                rig.make_ready();
            }
        }
    }
    assert_eq!(rig.frames().len(), good);
    assert!(failed > 0);
    assert_eq!(rig.hca.take_diagnosis(), None, "bad luck is nobody's mistake");
}

/// A wire that only counts, for speed.
struct Sink(u64);

impl Wire for Sink {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.0 += frame.len() as u64;
        true
    }

    fn receive(&mut self, _: &mut Vec<u8>) -> bool {
        false
    }

    fn link(&self) -> LinkState {
        LinkState::Up
    }
}

/// Not a test: `cargo test --release -p softhca --lib -- --ignored --nocapture frames_a_second`
/// prints the figures.
#[test]
#[ignore = "a measurement"]
fn frames_a_second() {
    for strict in [false, true] {
        let mut rig = Rig::with_ring(Config { strict, ..Config::default() }, 1024);
        let mut wire = Sink(0);
        let start = std::time::Instant::now();
        let mut count = 0_u32;
        while count < 5_000_000 {
            post_burst(&mut rig, count < 1024);
            count += 32;
            let mut environment = Environment { dma: &rig.memory, wire: &mut wire, clock: &rig.clock };
            assert!(rig.hca.step(64, &mut environment) >= 32);
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{:.2} M frames/s of 64 bytes, one thread, strict: {strict}", f64::from(count) / seconds / 1e6);
    }
}

/// 32 WQEs and a ring. After the first round they lie in the ring already, and only their indices
/// are new.
fn post_burst(rig: &mut Rig, first_round: bool) {
    for _ in 0..32 {
        if first_round {
            let mut wqe = rig.send_wqe(&frame(64));
            wqe[11] = 0;
            rig.post(&wqe);
        } else {
            let index = rig.pi.to_be_bytes();
            rig.memory.put(rig.ring + u64::from(rig.pi % 1024) * 64 + 1, &index);
            rig.pi = rig.pi.wrapping_add(1);
        }
    }
    rig.record();
    let last = rig.ring + u64::from(rig.pi.wrapping_sub(1) % 1024) * 64;
    rig.memory.put(rig.uar + 0x800, &rig.memory.get(last, 8));
}
