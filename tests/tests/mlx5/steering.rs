//! Which frames come to which queue of the mlx5 device, on a strict software ConnectX connected to
//! another: exactly those that a rule matches; the kernel gets the others. Each test starts itself
//! again under `softhca run`.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use softhca::testing::is_inside;
use wirepath::device::Device;
use wirepath::device::mlx5::{Mlx5Config, Mlx5Device, RssConfig, RssFields, RxDistribution};
use wirepath::device::steering::{Rule, SteerError};
use wirepath::mem::Mbuf;
use wirepath::wire::{EtherType, Protocol, VlanTag, VlanTags};
use wirepath_tests::connectx::{End, config, open};
use wirepath_tests::frames::Frame;
use wirepath_tests::nic;
use wirepath_tests::rig::{OURS, PEER};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// Turns after which nothing more comes.
const DRY: usize = 8;

/// Whether this is the test itself, under `softhca run` with two strict NICs that move when they
/// are turned.
fn inside(test: &str) -> bool {
    is_inside(test, &["--strict", "--devices", "2", "--manual"])
}

/// A datagram of `seed` bytes of payload, which distinguishes it from the others.
fn udp(source: SocketAddrV4, destination: SocketAddrV4, seed: usize) -> Vec<u8> {
    Frame { source, ..Frame::to(*destination.ip(), destination.port(), &vec![seed as u8; 20 + seed]) }.emit()
}

fn from(address: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(address, 7_000)
}

fn tagged(vlan: u16, frame: &Frame) -> Vec<u8> {
    Frame { tags: VlanTags::single(VlanTag::new(vlan)), ..frame.clone() }.emit()
}

/// Frames that differ in everything that a rule may match: addresses, ports, tags, protocols.
fn zoo() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for destination in [GROUP, OURS] {
        for source in [PEER, OTHER] {
            for port in [9000, 9001] {
                frames.push(udp(from(source), SocketAddrV4::new(destination, port), frames.len()));
            }
        }
    }
    let plain = Frame::to(GROUP, 9000, &[1; 30]);
    frames.extend([tagged(7, &plain), tagged(8, &plain)]);
    frames.push(plain.link(EtherType::ARP, &[0; 46]));
    frames.push(Frame::to(OURS, 1, &[]).link(EtherType(0x88b5), &[3; 46]));
    // An IPv4 packet of IGMP: the checksums do not matter to a rule.
    let mut igmp = plain.emit();
    igmp[14 + 9] = Protocol::IGMP.0;
    frames.push(igmp);
    frames
}

/// Sends all these frames; those that the rules match come, in order, and the kernel gets the
/// others.
fn check(rules: &[Rule]) {
    let (_far_device, mut far) = End::alone(&config("mlx5_1"), rules);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let kernel_before = nic::counter("mlx5_1.rx_to_kernel").unwrap();
    let frames = zoo();
    near.send(&frames);
    let (ours, others): (Vec<_>, Vec<_>) =
        frames.into_iter().partition(|frame| rules.iter().any(|rule| rule.matches(frame)));
    assert_eq!(far.receive_all(DRY), ours, "{rules:?}");
    assert_eq!(nic::counter("mlx5_1.rx_to_kernel").unwrap() - kernel_before, others.len() as u64, "{rules:?}");
    near.close();
    far.close();
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}

#[test]
fn rules_take_what_they_name_and_the_kernel_keeps_the_rest() {
    if !inside("rules_take_what_they_name_and_the_kernel_keeps_the_rest") {
        return;
    }
    check(&[]);
    let five_tuple = Rule { source_port: Some(7_000), ..Rule::udp(OURS, 9000) }.from(PEER);
    for rule in [
        Rule::ALL,
        Rule::arp(),
        Rule::igmp(),
        Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL },
        Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL },
        Rule::protocol(Protocol::UDP),
        Rule::protocol(Protocol::TCP),
        // A group with and without its source, with and without the port.
        Rule::udp(GROUP, 9000),
        Rule::udp(GROUP, 9001).from(OTHER),
        Rule::protocol(Protocol::UDP).to(GROUP),
        Rule::protocol(Protocol::UDP).to(GROUP).from(PEER),
        // Unicast by three and by five.
        Rule::udp(OURS, 9001),
        five_tuple,
        Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL }.to(OURS),
        Rule::udp(GROUP, 9000).on_vlan(7),
        Rule::ALL.on_vlan(8),
        Rule { destination_mac: Some(wirepath::wire::MacAddr::multicast_ipv4(GROUP)), ..Rule::ALL },
    ] {
        check(&[rule]);
    }
    check(&[Rule::arp(), Rule::udp(GROUP, 9000), Rule::udp(OURS, 9001), Rule::udp(OURS, 9001)]);
}

#[test]
fn tags_come_with_the_frames_of_their_rule() {
    if !inside("tags_come_with_the_frames_of_their_rule") {
        return;
    }
    let rules = [
        Rule::udp(GROUP, 9000).tagged(5),
        Rule::udp(OURS, 9001).tagged(0xff_fffe),
        Rule::igmp().tagged(0),
        Rule::arp(),
    ];
    let (mut far_device, mut far) = End::alone(&config("mlx5_1"), &rules);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let frames = zoo();
    near.send(&frames);
    let mut tags = Vec::new();
    for _ in 0..DRY {
        for mbuf in far.burst().drain(..) {
            tags.push(mbuf.flow_tag());
            mbuf.free();
        }
    }
    let tag_of = |frame: &Vec<u8>| rules.iter().find(|rule| rule.matches(frame)).map(|rule| rule.flow_tag);
    let expected: Vec<_> = frames.iter().filter_map(tag_of).collect();
    assert_eq!(tags, expected);
    assert_eq!(far_device.steer(&Rule::arp().tagged(0xff_ffff), 0), Err(SteerError::FlowTag(0xff_ffff)));
}

#[test]
fn rules_change_under_traffic_and_no_frame_of_another_is_lost() {
    if !inside("rules_change_under_traffic_and_no_frame_of_another_is_lost") {
        return;
    }
    let (mut device, mut far) = End::alone(&config("mlx5_1"), &[Rule::udp(GROUP, 9000)]);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let lasting = udp(from(PEER), SocketAddrV4::new(GROUP, 9000), 1);
    let passing = udp(from(PEER), SocketAddrV4::new(GROUP, 9001), 2);
    for _ in 0..200 {
        let id = device.steer(&Rule::udp(GROUP, 9001), 0).unwrap();
        near.send([&lasting, &passing]);
        assert_eq!(far.receive_all(DRY), [lasting.clone(), passing.clone()]);
        near.send([&lasting]);
        device.unsteer(id).unwrap();
        near.send([&passing]);
        assert_eq!(far.receive_all(DRY), std::slice::from_ref(&lasting));
    }
}

#[test]
fn rule_that_the_device_cannot_match_is_told_and_the_others_go_on() {
    let test = "rule_that_the_device_cannot_match_is_told_and_the_others_go_on";
    if !is_inside(test, &["--strict", "--devices", "2", "--manual", "--abi", "write"]) {
        return;
    }
    let lasting = Rule::udp(GROUP, 9000);
    let (mut device, mut far) = End::alone(&config("mlx5_1"), &[lasting]);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let (other, before) = (Rule::udp(OURS, 9001), nic::objects());
    for (errno, expected) in [
        (libc::EOPNOTSUPP, SteerError::Unsupported { fields: other.fields() }),
        (libc::ENOSPC, SteerError::TableFull { rules_max: 1 }),
        (libc::EINVAL, SteerError::Refused { errno: libc::EINVAL }),
    ] {
        // CREATE_FLOW (mlx5.md 3.4).
        nic::refuse(Some(0x8000_0032), 0, errno);
        assert_eq!(device.steer(&other, 0), Err(expected));
        assert_eq!(nic::objects(), before);
        let frames =
            [udp(from(PEER), SocketAddrV4::new(GROUP, 9000), 1), udp(from(PEER), SocketAddrV4::new(OURS, 9001), 2)];
        near.send(&frames);
        assert_eq!(far.receive_all(DRY), frames[..1]);
    }
    device.steer(&other, 0).unwrap();
    near.close();
    far.close();
}

#[test]
fn rule_is_for_its_queue_and_the_more_telling_one_decides() {
    if !inside("rule_is_for_its_queue_and_the_more_telling_one_decides") {
        return;
    }
    let mut device = open(&Mlx5Config { queues: 3, ..config("mlx5_1") });
    device.steer(&Rule::ALL, 0).unwrap();
    device.steer(&Rule::protocol(Protocol::UDP).to(OURS), 1).unwrap();
    device.steer(&Rule::udp(OURS, 9001), 2).unwrap();
    let mut queues = queues(&mut device, 3);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let to = |port, seed| udp(from(PEER), SocketAddrV4::new(OURS, port), seed);
    let arp = Frame::to(OURS, 1, &[]).link(EtherType::ARP, &[0; 46]);
    near.send(&[to(9000, 1), to(9001, 2), arp.clone()]);
    let received: Vec<_> = queues.iter_mut().map(|queue| queue.receive_all(DRY)).collect();
    assert_eq!(received, [vec![arp], vec![to(9000, 1)], vec![to(9001, 2)]]);
}

#[test]
fn group_comes_to_each_queue_that_a_rule_names() {
    if !inside("group_comes_to_each_queue_that_a_rule_names") {
        return;
    }
    let mut device = open(&Mlx5Config { queues: 2, ..config("mlx5_1") });
    (0..2).for_each(|idx| _ = device.steer(&Rule::udp(GROUP, 9000), idx).unwrap());
    let mut queues = queues(&mut device, 2);
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let frame = udp(from(PEER), SocketAddrV4::new(GROUP, 9000), 1);
    near.send([&frame]);
    queues.iter_mut().for_each(|queue| assert_eq!(queue.receive_all(DRY), std::slice::from_ref(&frame)));
}

fn queues(device: &mut Mlx5Device, count: u16) -> Vec<End> {
    (0..count).map(|idx| End::open(device, idx)).collect()
}

/// Sends 256 flows, each of 4 frames, to queues that share; how many flows each got. A flow stays
/// on its queue and in order.
fn spread(count: u16, by: RssFields) -> Vec<usize> {
    let rx_distribution = RxDistribution::Rss(RssConfig { by, ..RssConfig::default() });
    let mut device = open(&Mlx5Config { queues: count, rx_distribution, rx_ring_len: 1024, ..config("mlx5_1") });
    let rule = Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL };
    device.steer(&rule, 0).unwrap();
    let mut queues: Vec<_> = (0..count)
        .map(|idx| End::with_pool(&mut device, idx, wirepath_tests::connectx::pool(2048, 1518)).unwrap())
        .collect();
    let (_near_device, mut near) = End::alone(&config("mlx5_0"), &[]);
    let flow = |flow: u16, seed| {
        let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, (flow / 16) as u8), 5_000 + flow % 16);
        udp(source, SocketAddrV4::new(OURS, 9000), seed)
    };
    for seed in 0..4 {
        let frames: Vec<_> = (0..256).map(|idx| flow(idx, seed)).collect();
        near.send(&frames);
    }
    let mut shares = Vec::new();
    for queue in &mut queues {
        let mut flows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut dry = 0;
        while dry < DRY {
            let mut burst = queue.burst();
            dry = if burst.is_empty() { dry + 1 } else { 0 };
            for mbuf in burst.drain(..) {
                assert!(mbuf.rx_info().hash.is_some(), "a frame without its hash");
                let bytes = mbuf.bytes();
                flows.entry(bytes[26..36].to_vec()).or_default().push(bytes[42]);
                Mbuf::free(mbuf);
            }
        }
        assert!(flows.values().all(|seeds| *seeds == [0, 1, 2, 3]), "a flow was split, or out of order");
        shares.push(flows.len());
    }
    assert_eq!(shares.iter().sum::<usize>(), 256);
    queues.into_iter().for_each(End::close);
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
    shares
}

#[test]
fn queues_that_share_get_flows_whole_and_each_its_part() {
    if !inside("queues_that_share_get_flows_whole_and_each_its_part") {
        return;
    }
    for count in [1, 2, 3, 4] {
        let shares = spread(count, RssFields::Ports);
        let least = 256 / usize::from(count) / 4;
        assert!(shares.iter().all(|share| *share >= least), "{count} queues: {shares:?}");
    }
    // 16 addresses, with any ports.
    let shares = spread(4, RssFields::Addresses);
    assert!(shares.iter().all(|share| share.is_multiple_of(16)), "{shares:?}");
}

/// The answers to their requests would go to the kernel, which gets the frames of the rules until
/// all queues are open.
#[test]
fn queues_that_share_send_nothing_before_their_rules_stand() {
    if !inside("queues_that_share_send_nothing_before_their_rules_stand") {
        return;
    }
    let rx_distribution = RxDistribution::Rss(RssConfig::default());
    let mut device = open(&Mlx5Config { queues: 2, rx_distribution, ..config("mlx5_1") });
    device.steer(&Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL }, 0).unwrap();
    let (_peer_device, mut peer) = End::alone(&config("mlx5_0"), &[Rule::ALL]);
    let question = udp(from(OURS), SocketAddrV4::new(PEER, 9000), 1);
    let mut first = End::open(&mut device, 0);
    assert!(!first.post(&question));
    first.receive();
    assert_eq!((first.count("tx/refused_before_ready"), peer.receive_all(DRY)), (1, vec![]));
    let mut second = End::open(&mut device, 1);
    let mut heard = 0;
    for queue in [&mut first, &mut second] {
        assert!(queue.post(&question), "from now on it hears the answer, without a turn in between");
        heard += queue.receive().len();
        assert_eq!(peer.receive_all(DRY), std::slice::from_ref(&question));
        peer.send([&udp(from(PEER), SocketAddrV4::new(OURS, 7_000), 2)]);
    }
    heard += first.receive_all(DRY).len() + second.receive_all(DRY).len();
    assert_eq!(heard, 2);
    [first, second, peer].into_iter().for_each(End::close);
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}
