#![allow(clippy::unwrap_used)] // a panic here is the report
use crate::hca::receive::rig::{flow_request, to_ip, to_mac, to_udp};
use crate::hca::receive::{Frame, RxRig, TCP};
use crate::hca::{Config, Errno, FlowAction, FlowKind, FlowRequest, FlowSpec, Hca, QpCapabilities, QpKind, QpRequest};
use proptest::prelude::*;

const MAC: [u8; 6] = [0x02, 0, 0, 0, 0x5c, 0];
const GROUP_MAC: [u8; 6] = [0x01, 0, 0x5e, 1, 2, 3];
const GROUP: [u8; 4] = [239, 1, 2, 3];

fn unicast() -> Frame {
    Frame::default()
}

fn multicast() -> Frame {
    Frame { dst_mac: GROUP_MAC, dst: "239.1.2.3", ..Frame::default() }
}

/// Queues that all receive.
fn rig(queues: usize) -> RxRig {
    let mut rig = RxRig::new(Config::default());
    for _ in 0..queues {
        rig.qp(64);
    }
    rig
}

/// A rule that marks its frames.
fn tagged(rig: &mut RxRig, qp: usize, priority: u16, tag: u32, specs: &[FlowSpec]) -> u32 {
    rig.flow_with(qp, specs, |request| {
        request.priority = priority;
        request.actions = vec![FlowAction::Tag(tag)];
    })
}

fn of_kind(kind: FlowKind) -> impl FnOnce(&mut FlowRequest) {
    move |request| request.kind = kind
}

fn from_ip(address: [u8; 4]) -> FlowSpec {
    let (mut value, mut mask) = ([0; 12], [0; 12]);
    value[..4].copy_from_slice(&address);
    mask[..4].fill(0xff);
    FlowSpec::Ipv4 { value, mask }
}

/// Whether a rule with these specs takes the frame.
#[track_caller]
fn check(specs: &[FlowSpec], frame: &Frame, expected: bool) {
    let mut rig = rig(1);
    rig.flow(0, specs);
    rig.arrive(&frame.bytes());
    assert_eq!(rig.tags()[0].len(), usize::from(expected), "{specs:?} on {frame:?}");
    assert_eq!(rig.here.kernel.len(), usize::from(!expected), "what no rule names is the kernel's");
}

#[test]
fn what_no_rule_names_is_the_kernels_as_it_came() {
    let mut rig = rig(1);
    let frame = Frame { vlan: Some(7), ..unicast() }.bytes();
    rig.arrive(&frame);
    assert_eq!(rig.here.kernel, [frame]);
    assert_eq!(rig.tags(), [vec![]]);
}

#[test]
fn unicast_goes_to_one_rule_the_lowest_priority_number() {
    let mut rig = rig(2);
    tagged(&mut rig, 0, 2, 20, &[to_mac(MAC), to_ip([10, 0, 0, 2]), to_udp(2000)]);
    tagged(&mut rig, 1, 1, 10, &[to_mac(MAC)]);
    rig.arrive(&unicast().bytes());
    assert_eq!(rig.tags(), [vec![], vec![10]]);
}

#[test]
fn of_equal_rules_the_one_that_names_more_wins_then_the_older() {
    let mut rig = rig(3);
    tagged(&mut rig, 0, 1, 1, &[to_mac(MAC)]);
    tagged(&mut rig, 1, 1, 2, &[to_mac(MAC), to_ip([10, 0, 0, 2])]);
    tagged(&mut rig, 2, 1, 3, &[to_mac(MAC), from_ip([10, 0, 0, 1])]);
    rig.arrive(&unicast().bytes());
    assert_eq!(rig.tags(), [vec![], vec![2], vec![]]);
}

#[test]
fn rules_for_the_same_frames_are_one_entry_and_each_queue_gets_a_copy() {
    for (specs, frame) in [(&[to_mac(MAC)][..], unicast()), (&[to_mac(GROUP_MAC), to_ip(GROUP)], multicast())] {
        let mut rig = rig(4);
        let flows = [0, 1, 2, 2].map(|qp| rig.flow(qp, specs));
        // In a table behind.
        rig.flow_with(3, specs, |request| request.priority = 7);
        rig.arrive(&frame.bytes());
        let is_multicast = specs.len() == 2;
        let last = if is_multicast { vec![0] } else { vec![] };
        assert_eq!(rig.tags(), [vec![0], vec![0], vec![0], last.clone()], "rules for groups have one table");
        rig.hca.destroy_flow(flows[0]).unwrap();
        rig.arrive(&frame.bytes());
        assert_eq!(rig.tags(), [vec![], vec![0], vec![0], last]);
        assert!(rig.here.kernel.is_empty());
    }
}

#[test]
fn a_rule_for_the_same_frames_takes_their_tag_and_may_want_no_other() {
    let mut rig = rig(2);
    tagged(&mut rig, 0, 0, 7, &[to_mac(MAC)]);
    let mut request = FlowRequest { priority: 0, ..flow_request(rig.queues[1].handle, &[to_mac(MAC)]) };
    for action in [FlowAction::Tag(8), FlowAction::Drop] {
        request.actions = vec![action];
        assert_eq!(rig.hca.create_flow(&request), Err(Errno(libc::EEXIST)));
    }
    // Of another priority it is another entry.
    rig.hca.create_flow(&FlowRequest { priority: 1, ..request.clone() }).unwrap();
    request.actions.clear();
    rig.hca.create_flow(&request).unwrap();
    rig.arrive(&unicast().bytes());
    assert_eq!(rig.tags(), [vec![7], vec![7]]);
}

#[test]
fn of_rules_for_groups_that_differ_one_gets_the_frame_whatever_their_priority() {
    let mut rig = rig(3);
    tagged(&mut rig, 0, 1, 1, &[to_ip(GROUP)]);
    tagged(&mut rig, 1, 5, 2, &[to_mac(GROUP_MAC), to_ip(GROUP), to_udp(2000)]);
    tagged(&mut rig, 2, 1, 4, &[to_ip(GROUP), to_udp(2001)]);
    rig.arrive(&multicast().bytes());
    assert_eq!(rig.tags(), [vec![], vec![2], vec![]]);
    assert!(rig.here.kernel.is_empty());
}

#[test]
fn a_rule_that_names_no_group_goes_before_those_that_do() {
    let mut rig = rig(2);
    tagged(&mut rig, 0, 0, 1, &[to_mac(GROUP_MAC), to_ip(GROUP), to_udp(2000)]);
    tagged(&mut rig, 1, 15, 2, &[to_udp(2000)]);
    rig.arrive(&multicast().bytes());
    assert_eq!(rig.tags(), [vec![], vec![2]]);
}

#[test]
fn a_rule_that_drops_ends_the_walk() {
    let mut rig = rig(2);
    tagged(&mut rig, 0, 1, 1, &[to_ip([10, 0, 0, 2])]);
    rig.flow_with(0, &[to_mac(MAC)], |request| {
        request.priority = 2;
        request.actions = vec![FlowAction::Drop];
    });
    tagged(&mut rig, 1, 3, 3, &[to_udp(2000)]);
    rig.arrive(&unicast().bytes());
    assert_eq!((rig.tags(), rig.hca.counters().rx_dropped), (vec![vec![1], vec![]], 0));
    rig.arrive(&Frame { dst: "10.9.9.9", ..unicast() }.bytes());
    assert_eq!((rig.tags(), rig.here.kernel.len()), (vec![vec![], vec![]], 0));
    assert_eq!(rig.hca.counters().rx_dropped, 1);
}

#[test]
fn dont_trap_takes_a_copy_and_lets_the_frame_go_on() {
    let mut rig = rig(2);
    let copy = |request: &mut FlowRequest| {
        request.priority = 0;
        request.flags = FlowRequest::DONT_TRAP;
    };
    rig.flow_with(0, &[to_mac(MAC)], copy);
    rig.arrive(&unicast().bytes());
    assert_eq!((rig.tags(), rig.here.kernel.len()), (vec![vec![0], vec![]], 1));
    tagged(&mut rig, 1, 1, 5, &[to_mac(MAC)]);
    rig.arrive(&unicast().bytes());
    assert_eq!((rig.tags(), rig.here.kernel.len()), (vec![vec![0], vec![5]], 1));
}

#[test]
fn a_default_rule_takes_what_is_left() {
    let mut rig = rig(3);
    rig.flow(0, &[to_ip([10, 0, 0, 2])]);
    rig.flow_with(1, &[], of_kind(FlowKind::AllDefault));
    rig.flow_with(2, &[], of_kind(FlowKind::MulticastDefault));
    rig.arrive(&unicast().bytes());
    assert_eq!(rig.tags(), [vec![0], vec![], vec![]]);
    rig.arrive(&Frame { dst: "10.0.0.3", ..unicast() }.bytes());
    assert_eq!(rig.tags(), [vec![], vec![0], vec![]]);
    rig.arrive(&multicast().bytes());
    assert_eq!(rig.tags(), [vec![], vec![0], vec![0]]);
    assert!(rig.here.kernel.is_empty());
}

#[test]
fn defaults_of_two_queues_are_one_entry() {
    let mut rig = rig(2);
    for qp in 0..2 {
        rig.flow_with(qp, &[], of_kind(FlowKind::AllDefault));
    }
    rig.arrive(&unicast().bytes());
    assert_eq!(rig.tags(), [vec![0], vec![0]]);
}

#[test]
fn a_default_for_multicast_leaves_unicast_to_the_kernel() {
    let mut rig = rig(1);
    rig.flow_with(0, &[], of_kind(FlowKind::MulticastDefault));
    rig.arrive(&unicast().bytes());
    assert_eq!((rig.tags(), rig.here.kernel.len()), (vec![vec![]], 1));
}

#[test]
fn a_sniffer_gets_a_copy_of_everything_and_keeps_it_from_nobody() {
    let mut rig = rig(2);
    rig.flow_with(0, &[], of_kind(FlowKind::Sniffer));
    rig.flow(1, &[to_ip([10, 0, 0, 2])]);
    rig.arrive(&unicast().bytes());
    rig.arrive(&multicast().bytes());
    assert_eq!((rig.tags(), rig.here.kernel.len()), (vec![vec![0, 0], vec![0]], 1));
}

#[test]
fn a_rule_that_went_works_no_more() {
    let mut rig = rig(1);
    let flows = [[to_mac(MAC)].as_slice(), &[to_mac(MAC)], &[to_udp(2000)]].map(|specs| rig.flow(0, specs));
    for flow in flows {
        rig.arrive(&unicast().bytes());
        assert_eq!(rig.tags(), [vec![0]]);
        rig.hca.destroy_flow(flow).unwrap();
        assert_eq!(rig.hca.destroy_flow(flow), Err(Errno(libc::EINVAL)));
    }
    rig.arrive(&unicast().bytes());
    assert_eq!(rig.tags(), [vec![]]);
}

#[test]
fn a_qp_with_rules_stays() {
    let mut rig = rig(1);
    let flow = rig.flow(0, &[to_mac(MAC)]);
    let qp = rig.queues[0].handle;
    assert_eq!(rig.hca.destroy_qp(qp), Err(Errno(libc::EBUSY)));
    rig.hca.destroy_flow(flow).unwrap();
    assert_eq!(rig.hca.destroy_qp(qp), Ok(0));
}

#[test]
fn a_full_table_refuses_one_more_and_leaves_the_others() {
    let mut rig = RxRig::new(Config { flows_max: 2, ..Config::default() });
    rig.qp(64);
    let flow = rig.flow(0, &[to_udp(1)]);
    rig.flow(0, &[to_udp(2000)]);
    let one_more = flow_request(rig.queues[0].handle, &[to_udp(3)]);
    assert_eq!(rig.hca.create_flow(&one_more), Err(Errno(libc::ENOSPC)));
    rig.arrive(&unicast().bytes());
    assert_eq!(rig.tags(), [vec![0]]);
    rig.hca.destroy_flow(flow).unwrap();
    assert!(rig.hca.create_flow(&one_more).is_ok());
}

#[test]
fn what_the_kernels_driver_refuses_is_refused() {
    let mut rig = rig(1);
    let qp = rig.queues[0].handle;
    let refused = |hca: &mut Hca, change: fn(&mut FlowRequest)| {
        let mut request = flow_request(qp, &[to_mac(MAC)]);
        change(&mut request);
        hca.create_flow(&request).unwrap_err().0
    };
    let hca = &mut rig.hca;
    assert_eq!(refused(hca, |request| request.qp = 99), libc::EINVAL);
    assert_eq!(refused(hca, |request| request.priority = 16), libc::ENOMEM);
    assert_eq!(refused(hca, |request| request.flags = FlowRequest::EGRESS), libc::EOPNOTSUPP);
    assert_eq!(refused(hca, |request| request.flags = 1), libc::EINVAL);
    assert_eq!(refused(hca, |request| request.actions = vec![FlowAction::Tag(1 << 24)]), libc::EINVAL);
    let tag_on_default = |request: &mut FlowRequest| {
        request.kind = FlowKind::AllDefault;
        request.actions = vec![FlowAction::Tag(1)];
    };
    assert_eq!(refused(hca, tag_on_default), libc::EINVAL);
    let by_ttl = |request: &mut FlowRequest| {
        request.specs = vec![FlowSpec::Ipv4 { value: [0; 12], mask: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0] }];
    };
    assert_eq!(refused(hca, by_ttl), libc::EOPNOTSUPP);
    let tcp_and_udp =
        |request: &mut FlowRequest| request.specs = vec![FlowSpec::Tcp { value: [0; 4], mask: [0; 4] }, to_udp(1)];
    assert_eq!(refused(hca, tcp_and_udp), libc::EINVAL);
    let wrong_ether_type = |request: &mut FlowRequest| {
        let (mut value, mut mask) = ([0; 16], [0; 16]);
        value[12..14].copy_from_slice(&[0x86, 0xdd]);
        mask[12..14].fill(0xff);
        request.specs = vec![FlowSpec::Ethernet { value, mask }, to_ip(GROUP)];
    };
    assert_eq!(refused(hca, wrong_ether_type), libc::EINVAL);
}

#[test]
fn a_qp_that_only_sends_gets_no_rule() {
    let mut rig = rig(1);
    let send = crate::hca::SqRing {
        ring: rig.memory.reserve(64 * 64, 64),
        wqebb_count: 64,
        doorbell: rig.memory.reserve(4, 4),
        cq: rig.queues[0].cq,
        uar: 0,
    };
    let request = QpRequest {
        pd: rig.pd,
        kind: QpKind::RawPacket { send: Some(send), receive: None },
        user_handle: 0,
        user_index: 0,
        capabilities: QpCapabilities::default(),
        create_flags: 0,
        signal_all: false,
    };
    let uar = rig.memory.reserve(4096, 4096);
    rig.hca.map_uar(0, uar).unwrap();
    let qp = rig.hca.create_qp(request).unwrap().handle;
    assert_eq!(rig.hca.create_flow(&flow_request(qp, &[])), Err(Errno(libc::EINVAL)));
}

#[test]
fn no_spec_matches_everything() {
    check(&[], &unicast(), true);
    check(&[FlowSpec::Ethernet { value: [0xff; 16], mask: [0; 16] }], &unicast(), true);
}

#[test]
fn only_masked_bits_count() {
    let net = |value: [u8; 4]| {
        let (mut all, mut mask) = ([0; 12], [0; 12]);
        all[..4].copy_from_slice(&value);
        mask[..3].fill(0xff);
        FlowSpec::Ipv4 { value: all, mask }
    };
    check(&[net([10, 0, 0, 99])], &unicast(), true);
    check(&[net([10, 0, 1, 1])], &unicast(), false);
}

#[test]
fn ports_are_of_their_protocol() {
    check(&[to_udp(2000)], &unicast(), true);
    check(&[to_udp(2001)], &unicast(), false);
    check(&[to_udp(2000)], &Frame { protocol: TCP, ..unicast() }, false);
    let from = |port: u16| FlowSpec::Tcp { value: [0, 0, (port >> 8) as u8, port as u8], mask: [0, 0, 0xff, 0xff] };
    check(&[from(1000)], &Frame { protocol: TCP, ..unicast() }, true);
    check(&[from(1001)], &Frame { protocol: TCP, ..unicast() }, false);
}

#[test]
fn ports_are_found_whatever_length_ip_names() {
    let mut long = unicast().bytes();
    long[16..18].copy_from_slice(&9000_u16.to_be_bytes());
    let mut rig = rig(1);
    rig.flow(0, &[to_udp(2000)]);
    rig.arrive(&long);
    assert_eq!((rig.tags(), rig.here.kernel.len()), (vec![vec![0]], 0));
    let mut long = Frame { src: "2001:db8::1", dst: "2001:db8::2", ..unicast() }.bytes();
    long[18..20].copy_from_slice(&9000_u16.to_be_bytes());
    rig.arrive(&long);
    assert_eq!((rig.tags(), rig.here.kernel.len()), (vec![vec![0]], 0));
}

#[test]
fn a_fragment_has_no_ports() {
    let first = Frame { fragment: 0x2000, ..unicast() };
    check(&[to_ip([10, 0, 0, 2]), to_udp(2000)], &first, false);
    check(&[to_ip([10, 0, 0, 2])], &first, true);
    check(&[FlowSpec::Udp { value: [0; 4], mask: [0; 4] }], &first, true); // the protocol alone
}

#[test]
fn the_protocol_and_the_traffic_class_may_be_named() {
    let by = |place: usize, value: u8| {
        let (mut all, mut mask) = ([0; 12], [0; 12]);
        (all[place], mask[place]) = (value, 0xff);
        FlowSpec::Ipv4 { value: all, mask }
    };
    check(&[by(8, 17)], &unicast(), true);
    check(&[by(8, TCP)], &unicast(), false);
    check(&[by(9, 0xb8)], &unicast(), true);
    check(&[by(9, 0)], &unicast(), false);
}

#[test]
fn tags_are_matched_and_looked_behind() {
    let of_vlan = |tag: u16| {
        let (mut value, mut mask) = ([0; 16], [0; 16]);
        value[14..].copy_from_slice(&tag.to_be_bytes());
        mask[14..].copy_from_slice(&0x0fff_u16.to_be_bytes());
        FlowSpec::Ethernet { value, mask }
    };
    let frame = Frame { vlan: Some(0x6064), ..unicast() };
    check(&[of_vlan(0x064), to_udp(2000)], &frame, true);
    check(&[of_vlan(0x065)], &frame, false);
    check(&[of_vlan(0)], &unicast(), false); // no tag is not tag 0
    check(&[to_udp(2000)], &frame, true);
}

#[test]
fn ipv6_is_matched_by_its_own_spec() {
    let frame = Frame { src: "2001:db8::1", dst: "2001:db8::2", ..Frame::default() };
    let by = |place: usize, bytes: &[u8]| {
        let (mut value, mut mask) = ([0; 40], [0; 40]);
        value[place..place + bytes.len()].copy_from_slice(bytes);
        mask[place..place + bytes.len()].fill(0xff);
        FlowSpec::Ipv6 { value, mask }
    };
    check(&[by(0, &[0x20, 0x01, 0x0d, 0xb8])], &frame, true);
    check(&[by(31, &[2])], &frame, true);
    check(&[by(31, &[3])], &frame, false);
    check(&[by(32, &[0, 0x0a, 0xbc, 0xde])], &frame, true); // the flow label
    check(&[by(36, &[17]), to_udp(2000)], &frame, true);
    check(&[by(37, &[0xb8])], &frame, true); // the traffic class
    check(&[by(0, &[])], &unicast(), false);
    check(&[to_ip([0x20, 0x01, 0x0d, 0xb8])], &frame, false);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A few groups, any of which may be added and removed: each frame finds its own queues.
    #[test]
    fn the_table_finds_what_a_walk_over_all_rules_would(
        steps in proptest::collection::vec((any::<bool>(), 0..12_u8, 0..3_usize, 0..3_u16), 1..60),
        probe in 0..12_u8,
    ) {
        let mut rig = rig(3);
        let mut rules: Vec<(u32, u8, usize)> = Vec::new();
        for (adds, group, qp, port) in steps {
            if adds {
                let specs = [to_ip([239, 0, 0, group]), to_udp(2000 + port)];
                let named = if port == 0 { &specs[..1] } else { &specs[..] };
                let flow = rig.flow(qp, named);
                // Only port 0 (any) and 2000 would match; the others must not.
                rules.push((flow, if port == 0 { group } else { u8::MAX }, qp));
            } else if let Some((flow, ..)) = rules.pop() {
                rig.hca.destroy_flow(flow).unwrap();
            }
        }
        let dst = ["239.0.0.0", "239.0.0.1", "239.0.0.2", "239.0.0.3", "239.0.0.4", "239.0.0.5", "239.0.0.6",
            "239.0.0.7", "239.0.0.8", "239.0.0.9", "239.0.0.10", "239.0.0.11"][usize::from(probe)];
        rig.arrive(&Frame { dst, ..multicast() }.bytes());
        let expected = (0..3).map(|qp| rules.iter().any(|&(_, group, of)| group == probe && of == qp));
        let got = rig.tags().into_iter().map(|tags| tags.len() == 1).collect::<Vec<_>>();
        prop_assert_eq!(got, expected.collect::<Vec<_>>());
    }
}
