#![allow(clippy::unwrap_used)] // a panic here is the report
use crate::hca::receive::fcs;
use crate::hca::receive::frames::Frame;
use crate::hca::receive::ingress::STALL_NS_MAX;
use crate::hca::receive::rig::{RxCqe, RxRig, to_mac, to_udp};
use crate::hca::testing::PlainMemory;
use crate::hca::{
    Config, Environment, Errno, EventKind, FlowSpec, Hostility, LinkState, QpCapabilities, QpKind, QpRequest, QpState,
    RssRequest, Wire, WqChange, WqState,
};
use proptest::prelude::*;

const MAC: [u8; 6] = [0x02, 0, 0, 0, 0x5c, 0];

/// One queue that gets everything, with `posted` WQEs.
fn rig_with(config: Config, posted: u16) -> RxRig {
    let mut rig = RxRig::new(config);
    let qp = rig.qp(posted);
    rig.flow(qp, &[]);
    rig
}

fn rig(posted: u16) -> RxRig {
    rig_with(Config::default(), posted)
}

/// A frame that carries its number.
fn numbered(number: u16) -> Vec<u8> {
    Frame { src_port: number, ..Frame::default() }.bytes()
}

fn number_of(cqe: &RxCqe) -> u16 {
    u16::from_be_bytes([cqe.frame[34], cqe.frame[35]])
}

/// The numbers of the frames that queue 0 received.
fn numbers(rig: &mut RxRig) -> Vec<u16> {
    rig.poll(0).iter().map(number_of).collect()
}

#[test]
fn a_frame_arrives_with_what_was_found_out() {
    let mut rig = rig(4);
    let frame = Frame::default().bytes();
    rig.arrive(&frame);
    let expected = RxCqe { opcode: 2, verdicts: 7, types: 0x28, frame: frame.clone(), ..RxCqe::default() };
    assert_eq!(rig.poll(0), [expected]);
    assert_eq!(rig.hca.counters().rx_frames, 1);
    assert_eq!(rig.hca.counters().rx_bytes, frame.len() as u64);
}

#[test]
fn a_queue_is_silent_before_rtr_and_receives_in_it() {
    let mut rig = RxRig::new(Config::default());
    let qp = rig.qp_in_reset(0);
    rig.flow(qp, &[]);
    rig.post(qp, 4);
    rig.arrive(&numbered(1));
    rig.go(qp, &[QpState::Init]);
    rig.arrive(&numbered(2));
    rig.go(qp, &[QpState::ReadyToReceive]);
    rig.arrive(&numbered(3));
    assert_eq!(numbers(&mut rig), [3]);
    assert_eq!(rig.hca.counters().rx_not_ready, 2);
}

#[test]
fn an_empty_queue_makes_frames_wait() {
    let mut rig = rig(1);
    for number in 0..4 {
        rig.there.send(&numbered(number));
    }
    assert!(rig.step() > 0);
    assert_eq!(rig.step(), 0, "nothing to be done until a WQE is posted");
    assert_eq!(numbers(&mut rig), [0]);
    rig.post(0, 2);
    rig.step();
    assert_eq!(numbers(&mut rig), [1, 2]);
    rig.post(0, 2);
    rig.step();
    assert_eq!(numbers(&mut rig), [3]);
    assert_eq!(rig.hca.counters().rx_out_of_buffer, 0);
}

/// As `a_queue_that_goes_does_not_keep_others_waiting`, and its program is only stopped.
#[test]
fn a_queue_that_is_not_served_keeps_others_waiting_for_a_while_and_then_loses_its_frames() {
    let mut rig = RxRig::new(Config::default());
    let (stopped, served) = (rig.qp(1), rig.qp(16));
    rig.flow(stopped, &[to_udp(1)]);
    rig.flow(served, &[to_udp(2)]);
    let send = |rig: &mut RxRig, dst_port| assert!(rig.there.send(&Frame { dst_port, ..Frame::default() }.bytes()));
    let step = |rig: &mut RxRig| while rig.step() > 0 {};
    [1, 1, 2].iter().for_each(|port| send(&mut rig, *port));
    step(&mut rig);
    rig.clock.advance(STALL_NS_MAX - 1);
    step(&mut rig);
    assert_eq!((rig.tags(), rig.hca.counters().rx_out_of_buffer), (vec![vec![0], vec![]], 0));
    rig.clock.advance(1);
    step(&mut rig);
    assert_eq!((rig.tags(), rig.hca.counters().rx_out_of_buffer), (vec![vec![], vec![0]], 1));
    // From then on its frames stop nobody.
    [1, 1, 2].iter().for_each(|port| send(&mut rig, *port));
    step(&mut rig);
    assert_eq!((rig.tags(), rig.hca.counters().rx_out_of_buffer), (vec![vec![], vec![0]], 3));
    // Until it is served again: then they wait as before.
    rig.post(stopped, 1);
    [1, 1, 2].iter().for_each(|port| send(&mut rig, *port));
    step(&mut rig);
    assert_eq!((rig.tags(), rig.hca.counters().rx_out_of_buffer), (vec![vec![0], vec![]], 3));
    rig.post(stopped, 1);
    step(&mut rig);
    assert_eq!((rig.tags(), rig.hca.counters().rx_out_of_buffer), (vec![vec![0], vec![0]], 3));
}

#[test]
fn a_lossy_nic_drops_and_counts() {
    let mut rig = rig_with(Config { lossy: true, ..Config::default() }, 1);
    for number in 0..4 {
        rig.there.send(&numbered(number));
    }
    rig.step();
    rig.post(0, 2);
    rig.arrive(&numbered(9));
    assert_eq!(numbers(&mut rig), [0, 9]);
    assert_eq!(rig.hca.counters().rx_out_of_buffer, 3);
}

#[test]
fn a_copy_that_waits_does_not_repeat_those_before_it() {
    let mut rig = RxRig::new(Config::default());
    for posted in [4, 0, 4] {
        let qp = rig.qp(posted);
        rig.flow(qp, &[to_mac([1, 0, 0, 0, 0, 1])]);
    }
    let frame = Frame { dst_mac: [1, 0, 0, 0, 0, 1], ..Frame::default() }.bytes();
    rig.arrive(&frame);
    rig.step();
    assert_eq!(rig.tags(), [vec![0], vec![], vec![]]);
    rig.post(1, 1);
    rig.step();
    assert_eq!(rig.tags(), [vec![], vec![0], vec![0]]);
}

#[test]
fn a_queue_that_goes_does_not_keep_others_waiting() {
    let mut rig = RxRig::new(Config::default());
    let (abandoned, served) = (rig.qp(0), rig.qp(4));
    let flow = rig.flow(abandoned, &[to_udp(1)]);
    rig.flow(served, &[to_udp(2)]);
    for dst_port in [1, 2] {
        rig.there.send(&Frame { dst_port, ..Frame::default() }.bytes());
    }
    rig.step();
    assert_eq!(rig.tags()[1], []);
    rig.hca.destroy_flow(flow).unwrap();
    rig.hca.destroy_qp(rig.queues[abandoned].handle).unwrap();
    rig.step();
    assert_eq!(rig.tags()[1], [0]);
}

#[test]
fn the_budget_is_kept() {
    let mut rig = rig(64);
    for number in 0..10 {
        rig.there.send(&numbered(number));
    }
    rig.step_with(3);
    assert_eq!(numbers(&mut rig), [0, 1, 2]);
}

#[test]
fn a_tag_is_taken_out_where_that_was_asked_for() {
    let mut rig = RxRig::new(Config::default());
    let qp = rig.qp_in_reset(1 << 9);
    rig.go(qp, &[QpState::Init, QpState::ReadyToReceive]);
    rig.post(qp, 4);
    rig.flow(qp, &[]);
    let tagged = Frame { vlan: Some(0x6064), ..Frame::default() };
    rig.arrive(&tagged.bytes());
    rig.arrive(&Frame::default().bytes());
    rig.arrive(&Frame { service_vlan: Some(5), ..tagged }.bytes());
    let received = rig.poll(qp);
    let stripped = RxCqe { opcode: 2, verdicts: 7, types: 0x29, vlan: 0x6064, ..RxCqe::default() };
    assert_eq!(received[0], RxCqe { frame: Frame::default().bytes(), ..stripped });
    assert_eq!((received[1].types, received[1].vlan), (0x28, 0));
    assert_eq!((received[2].types, received[2].vlan), (0x28, 0), "a service tag stays");
}

#[test]
fn without_stripping_a_tag_stays() {
    let mut rig = rig(4);
    let frame = Frame { vlan: Some(5), ..Frame::default() }.bytes();
    rig.arrive(&frame);
    let received = rig.poll(0);
    assert_eq!((&received[0].frame, received[0].types, received[0].vlan), (&frame, 0x28, 0));
}

#[test]
fn the_frame_check_sequence_is_delivered_where_that_was_asked_for() {
    let mut rig = RxRig::new(Config::default());
    let qp = rig.qp_in_reset(1 << 8);
    rig.go(qp, &[QpState::Init, QpState::ReadyToReceive]);
    rig.post(qp, 4);
    rig.flow(qp, &[]);
    let frame = numbered(1);
    rig.arrive(&frame);
    assert_eq!(rig.poll(qp)[0].frame, [&frame[..], &fcs::crc32(&frame)].concat());
}

#[test]
fn a_frame_too_long_puts_the_queue_into_error_and_flushes_the_rest() {
    let mut rig = rig(3);
    rig.arrive(&numbered(1));
    rig.arrive(&[2; 2049]);
    rig.arrive(&numbered(3));
    let failed = |syndrome, wqe_counter| RxCqe { opcode: 14, syndrome, wqe_counter, ..RxCqe::default() };
    assert_eq!(rig.poll(0)[1..], [failed(1, 1), failed(5, 2)]);
    let counters = rig.hca.counters();
    assert_eq!((counters.rx_errors, counters.rx_flushed, counters.rx_not_ready), (1, 1, 1));
    let diagnosis = rig.hca.take_diagnosis().unwrap();
    assert!(diagnosis.contains("2049 bytes is longer than the buffers"), "{diagnosis}");
}

#[test]
fn a_queue_in_error_comes_back_through_reset() {
    let mut rig = rig(1);
    rig.arrive(&[2; 2049]);
    assert_eq!(rig.poll(0).len(), 1);
    rig.go(0, &[QpState::Reset]);
    rig.queues[0].posted = 0;
    rig.post(0, 2);
    rig.go(0, &[QpState::Init, QpState::ReadyToReceive]);
    rig.arrive(&numbered(7));
    assert_eq!(numbers(&mut rig), [7]);
}

#[test]
fn a_wqe_of_any_bytes_is_an_error_and_not_the_end() {
    let mut rig = rig(1);
    rig.spoil(0, 0, &[0xff; 16]);
    rig.arrive(&numbered(1));
    assert_eq!(rig.poll(0)[0].opcode, 14);
}

#[test]
fn a_record_beyond_the_ring_is_told_by_an_event() {
    let mut rig = rig(0);
    rig.post(0, 65);
    rig.arrive(&numbered(1));
    assert_eq!(rig.poll(0), []);
    let event = rig.hca.take_event().unwrap();
    assert_eq!((event.kind, event.element), (EventKind::QpFatal, 0x99));
    assert_eq!(rig.hca.take_event(), None);
}

#[test]
fn no_frame_passes_while_the_port_is_down() {
    let mut rig = rig(4);
    rig.there.set_link(LinkState::Down);
    rig.arrive(&numbered(1));
    assert_eq!(numbers(&mut rig), []);
    rig.there.set_link(LinkState::Up);
    rig.step();
    assert_eq!(numbers(&mut rig), [1]);
}

#[test]
fn what_is_no_frame_is_counted() {
    let mut rig = rig(4);
    rig.arrive(&[0; 13]);
    rig.arrive(&[]);
    assert_eq!(rig.hca.counters().rx_runts, 2);
    assert!(rig.here.kernel.is_empty());
}

/// Four WQs behind a table of as many places, and an RSS QP over UDP ports with a rule for
/// everything.
fn rss_rig() -> (RxRig, u32) {
    let mut rig = RxRig::new(Config::default());
    let wqs = [(); 4].map(|()| rig.wq()).map(|wq| rig.queues[wq].handle);
    let table = rig.hca.create_table(&wqs).unwrap();
    let rss = RssRequest { table, fields: 0x03 | 0xc0, function: 1, key: (0..40).collect() };
    let request = QpRequest {
        pd: rig.pd,
        kind: QpKind::Rss(rss),
        user_handle: 0,
        user_index: 0,
        capabilities: QpCapabilities::default(),
        create_flags: 0,
        signal_all: false,
    };
    let qp = rig.hca.create_qp(request).unwrap().handle;
    let flow = crate::hca::receive::rig::flow_request(qp, &[]);
    rig.hca.create_flow(&flow).unwrap();
    (rig, qp)
}

#[test]
fn a_flow_keeps_its_queue_and_the_hash_names_it() {
    let (mut rig, _) = rss_rig();
    for round in 0..2 {
        for number in 0..64 {
            rig.arrive(&numbered(number));
        }
        let mut queues_used = 0;
        for queue in 0..4 {
            let received = rig.poll(queue);
            assert!(received.iter().all(|cqe| cqe.hash & 3 == queue as u32 && cqe.hash_type == 0x48));
            queues_used += usize::from(!received.is_empty());
            rig.post(queue, received.len() as u16);
        }
        assert_eq!(queues_used, 4, "round {round}");
    }
}

#[test]
fn a_frame_without_the_hashed_fields_goes_to_the_first_queue() {
    let (mut rig, _) = rss_rig();
    rig.arrive(&[&[2; 12][..], &[0x08, 0x06], &[1; 46]].concat());
    let received = rig.poll(0);
    assert_eq!((received[0].hash, received[0].hash_type), (0, 0));
}

#[test]
fn an_rss_qp_outlives_its_rules_only() {
    let (mut rig, qp) = rss_rig();
    assert_eq!(rig.hca.destroy_qp(qp), Err(Errno(libc::EBUSY)));
    assert_eq!(rig.hca.destroy_wq(rig.queues[0].handle), Err(Errno(libc::EBUSY)));
}

#[test]
fn a_wq_that_cannot_complete_tells_by_an_event() {
    let (mut rig, _) = rss_rig();
    for queue in 0..4 {
        rig.post(queue, 1); // one more than the ring has
    }
    rig.arrive(&numbered(1));
    let event = rig.hca.take_event().unwrap();
    assert_eq!((event.kind, event.element), (EventKind::WqFatal, 0x88));
    assert_eq!(rig.hca.take_event(), None);
}

#[test]
fn a_wq_in_error_flushes_and_keeps_silent() {
    let (mut rig, _) = rss_rig();
    let change = WqChange { state: Some(WqState::Error), ..WqChange::default() };
    rig.hca.modify_wq(rig.queues[2].handle, &change).unwrap();
    rig.step();
    assert!(rig.poll(2).iter().all(|cqe| cqe.syndrome == 5));
    assert_eq!(rig.hca.counters().rx_flushed, 64);
}

fn hostile(change: impl FnOnce(&mut Hostility)) -> RxRig {
    let mut hostility = Hostility { seed: 11, ..Hostility::default() };
    change(&mut hostility);
    rig_with(Config { hostility: Some(hostility), ..Config::default() }, 60)
}

/// The numbers that arrive of 50 frames, some in each step.
fn fifty(rig: &mut RxRig) -> Vec<u16> {
    for number in 0..50 {
        rig.there.send(&numbered(number));
        if number % 5 == 4 {
            rig.step();
        }
    }
    while rig.step() > 0 {}
    numbers(rig)
}

#[test]
fn a_hostile_wire_loses_some() {
    let mut rig = hostile(|hostility| hostility.loss = 200);
    let received = fifty(&mut rig);
    assert_eq!(received.len() as u64, 50 - rig.hca.counters().rx_lost);
    assert!((1..50).contains(&received.len()));
    assert!(received.is_sorted());
}

#[test]
fn a_hostile_wire_lets_neighbors_change_places_and_loses_none() {
    let mut rig = hostile(|hostility| hostility.reordering = 300);
    let mut received = fifty(&mut rig);
    assert!(!received.is_sorted());
    assert!(received.iter().enumerate().all(|(at, &number)| at.abs_diff(usize::from(number)) <= 1), "{received:?}");
    received.sort_unstable();
    assert_eq!(received, (0..50).collect::<Vec<_>>());
}

#[test]
fn hostile_errors_look_like_real_ones() {
    let mut rig = hostile(|hostility| hostility.receive_errors = 1000);
    rig.arrive(&numbered(1));
    rig.step();
    let received = rig.poll(0);
    assert_eq!((received[0].opcode, received[0].syndrome), (14, 4));
    assert!(received[1..].iter().all(|cqe| cqe.syndrome == 5));
    assert_eq!((received.len(), rig.hca.counters().rx_hostile_errors), (60, 1));
    assert_eq!(rig.hca.take_diagnosis(), None, "nobody made a mistake");
}

#[test]
fn memory_that_is_gone_ends_in_an_event() {
    let mut rig = rig(4);
    rig.there.send(&numbered(1));
    let nowhere = PlainMemory::new(0, 0);
    let mut environment = Environment { dma: &nowhere, wire: &mut rig.here, clock: &rig.clock };
    rig.hca.step(10, &mut environment);
    assert!(rig.hca.take_event().is_some());
}

#[test]
fn what_the_kernel_wants_is_not_for_a_default_rule() {
    /// A cable whose port has an address.
    struct Port(crate::hca::testing::CableEnd);
    impl Wire for Port {
        fn send(&mut self, frame: &[u8]) -> bool {
            self.0.send(frame)
        }
        fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
            self.0.receive(frame)
        }
        fn to_kernel(&mut self, frame: &[u8]) {
            self.0.to_kernel(frame);
        }
        fn kernel_wants(&self, frame: &[u8]) -> bool {
            frame[..6] == MAC
        }
        fn link(&self) -> LinkState {
            LinkState::Up
        }
    }
    let mut rig = RxRig::new(Config::default());
    let qp = rig.qp(4);
    let default = crate::hca::FlowKind::AllDefault;
    rig.flow_with(qp, &[] as &[FlowSpec], |request| request.kind = default);
    for dst_mac in [MAC, [2, 0, 0, 0, 0, 9]] {
        rig.there.send(&Frame { dst_mac, ..Frame::default() }.bytes());
    }
    let (here, _) = crate::hca::testing::CableEnd::pair();
    let mut port = Port(std::mem::replace(&mut rig.here, here));
    rig.hca.step(10, &mut Environment { dma: &rig.memory, wire: &mut port, clock: &rig.clock });
    assert_eq!(port.0.kernel.len(), 1);
    assert_eq!(rig.poll(qp)[0].frame[..6], [2, 0, 0, 0, 0, 9]);
}

/// The actions of a driver and its peer in one turn.
#[derive(Clone, Debug)]
enum Turn {
    Arrive(u8),
    Post(u8),
    Step(u8),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        (1..20_u8).prop_map(Turn::Arrive),
        (1..20_u8).prop_map(Turn::Post),
        (1..40_u8).prop_map(Turn::Step),
    ];
    proptest::collection::vec(turn, 1..60)
}

/// A driver that posts, polls, and recovers its queue from errors, with its counts.
struct Driver {
    rig: RxRig,
    arrived: u64,
    received: u64,
    failed: u64,
    /// WQEs that are posted and did not complete.
    posted: u16,
}

impl Driver {
    fn turn(&mut self, turn: &Turn) {
        match *turn {
            Turn::Arrive(count) => {
                for _ in 0..count {
                    self.rig.there.send(&numbered(0));
                    self.arrived += 1;
                }
            }
            Turn::Post(count) => {
                let count = u16::from(count).min(64 - self.posted);
                self.rig.post(0, count);
                self.posted += count;
            }
            Turn::Step(budget) => {
                self.rig.step_with(usize::from(budget));
                self.poll();
            }
        }
    }

    /// Each completion is of the WQE that was posted next, with any result.
    fn poll(&mut self) {
        let mut counter = self.rig.queues[0].posted.wrapping_sub(self.posted);
        for cqe in self.rig.poll(0) {
            assert_eq!(cqe.wqe_counter, counter);
            counter = counter.wrapping_add(1);
            self.posted -= 1;
            match cqe.syndrome {
                0 => self.received += 1,
                5 => {}
                _ => self.failed += 1,
            }
        }
    }

    /// Waits until all that was posted came back, and begins anew.
    fn recover(&mut self) {
        for _ in 0..1000 {
            self.rig.step();
            self.poll();
        }
        assert_eq!(self.posted, 0, "WQEs never came back");
        self.rig.go(0, &[QpState::Reset]);
        self.rig.queues[0].posted = 0;
        self.rig.post(0, 0);
        self.rig.go(0, &[QpState::Init, QpState::ReadyToReceive]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a hostile NIC does: each frame is received or counted, and each WQE completes once,
    /// in order.
    #[test]
    fn no_frame_and_no_wqe_is_unaccounted_for(
        turns in turns(),
        seed in any::<u64>(),
        chances in (0..200_u32, 0..300_u32, 0..60_u32, 0..6_u32),
        lossy in any::<bool>(),
    ) {
        let (loss, reordering, receive_errors, completion_delay_max) = chances;
        let hostility =
            Hostility { seed, loss, reordering, receive_errors, completion_delay_max, ..Hostility::default() };
        let rig = rig_with(Config { lossy, hostility: Some(hostility), ..Config::default() }, 0);
        let mut driver = Driver { rig, arrived: 0, received: 0, failed: 0, posted: 0 };
        for turn in &turns {
            let failed = driver.failed;
            driver.turn(turn);
            if driver.failed > failed {
                driver.recover();
            }
        }
        // At last all there is comes in: some 1200 frames, a good many steps each where completions
        // wait.
        for round in 0.. {
            prop_assert!(round < 10_000, "no end");
            driver.turn(&Turn::Post(64));
            let failed = driver.failed;
            let moved = driver.rig.step();
            driver.poll();
            if driver.failed > failed {
                driver.recover();
            } else if moved == 0 {
                break;
            }
        }
        let counters = driver.rig.hca.counters();
        prop_assert_eq!(driver.arrived, counters.rx_lost + counters.rx_frames);
        let gone = counters.rx_not_ready + counters.rx_out_of_buffer + counters.rx_errors;
        prop_assert_eq!(counters.rx_frames, driver.received + gone);
        prop_assert_eq!(driver.failed, counters.rx_errors);
        if !lossy {
            prop_assert_eq!(counters.rx_out_of_buffer, 0);
        }
    }
}
