//! The generated program against the reference: the kernel runs it on frames without any traffic
//! (BPF_PROG_TEST_RUN).

use core::cell::Cell;
use core::net::Ipv4Addr;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use zerocopy::IntoBytes;

use super::{Rules, Source, XdpAction, generate};
use crate::device::af_xdp::program::bpf::{LoadOptions, Map, MapKind, Program};
use crate::device::af_xdp::program::metadata;
use crate::device::af_xdp::program::steering::{
    CONSTANTS_MAX, Depth, Key, Shape as Named, constants, shapes, tag_word,
};
use crate::device::steering::Rule;
use crate::mem::Pool;
use crate::wire::{EtherType, EthernetFrame, Ipv4Packet, MacAddr, Protocol};

/// A loaded program whose verdict for frames that match a rule is `Drop`, because no socket is
/// open.
struct Loaded {
    program: Program,
    _maps: [Map; 2],
}

/// The place of the rules.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    LookedUp,
    Compared,
}

/// The program that looks up rules, and, if the rules are few enough, the program that compares
/// frames with them.
fn load_both(rules: &[Rule], frags: bool) -> std::io::Result<Vec<Loaded>> {
    let few = !constants(rules.iter().map(|rule| (rule, 0)), 1).is_empty();
    let forms = if few { &[Form::LookedUp, Form::Compared][..] } else { &[Form::LookedUp] };
    forms.iter().map(|&form| load(rules, form, frags)).collect()
}

fn load(rules: &[Rule], form: Form, frags: bool) -> std::io::Result<Loaded> {
    let table = Map::create(MapKind::Hash, size_of::<Key>(), 4, rules.len().max(1) as u32)?;
    let sockets = Map::create(MapKind::Sockets, 4, 4, 1)?;
    // The oldest rule with the same key remains.
    for rule in rules.iter().rev() {
        table.update(Key::new(rule, 0).as_bytes(), tag_word(rule).as_bytes())?;
    }
    let constants = constants(rules.iter().map(|rule| (rule, 0)), 1);
    let insns = generate(&Source {
        shapes: &shapes(rules.iter()),
        rules: match form {
            Form::LookedUp => Rules::Table(table.raw_fd()),
            Form::Compared => Rules::Constants(&constants),
        },
        sockets_fd: sockets.raw_fd(),
        tags: rules.iter().any(|rule| rule.flow_tag.is_some()),
        kfuncs: [None; 3],
        frags,
        unclaimed: XdpAction::Drop,
    });
    let program = Program::load(&insns, LoadOptions { frags, bound_to: None }).map_err(|refused| {
        assert!(refused.log.is_empty(), "the verifier refuses {rules:?} {form:?}: {}", refused.log);
        refused.error
    })?;
    Ok(Loaded { program, _maps: [table, sockets] })
}

impl Loaded {
    fn names(&self, frame: &[u8]) -> bool {
        self.says(frame).is_some()
    }

    /// The flow tag that the frame gets, `None` if no rule matches.
    fn says(&self, frame: &[u8]) -> Option<Option<u32>> {
        let ran = self.program.test_run(frame, 1).unwrap();
        assert!([XdpAction::Drop as u32, XdpAction::Pass as u32].contains(&ran.verdict), "verdict {}", ran.verdict);
        if ran.verdict == XdpAction::Pass as u32 {
            return None;
        }
        let pool = Pool::heap(1).unwrap();
        let told_len = ran.bytes.len() - frame.len();
        let mut mbuf = pool.alloc_copy(&ran.bytes[..told_len + 14]).unwrap();
        mbuf.advance(told_len);
        let mbuf = metadata::read(mbuf);
        let tag = mbuf.rx_info().flow_tag;
        mbuf.free();
        Some(tag)
    }

    fn ns(&self, frame: &[u8]) -> u32 {
        self.program.test_run(frame, 100_000).unwrap().ns
    }
}

/// Whether the program redirects `frame` by this rule: no fragment of a datagram by a rule with
/// ports, because only the kernel can have all of them.
fn takes(rule: &Rule, frame: &[u8]) -> bool {
    let is_of_udp = |packet: &Ipv4Packet<'_>| packet.header.is_fragment() && packet.header.protocol() == Protocol::UDP;
    let has_ports = rule.source_port.is_some() || rule.destination_port.is_some();
    let packet = EthernetFrame::parse(frame).ok().and_then(|frame| Ipv4Packet::parse(frame.payload).ok());
    rule.matches(frame) && !(has_ports && packet.as_ref().is_some_and(is_of_udp))
}

/// The flow tags that `frame` may get: those of the most specific rules that match, and of equal
/// ones the oldest.
fn tags_that_may_be(rules: &[Rule], frame: &[u8]) -> Vec<Option<u32>> {
    let telling = |rule: &Rule| (Named::of(rule).depth(), Named::of(rule).byte().count_ones());
    let naming: Vec<&Rule> = rules.iter().filter(|rule| takes(rule, frame)).collect();
    let most = naming.iter().map(|rule| telling(rule)).max().unwrap_or((Depth::Any, 0));
    let best = naming.iter().filter(|rule| telling(rule) == most);
    let oldest = |rule: &Rule| naming.iter().find(|other| other.fields() == rule.fields()).unwrap().flow_tag;
    best.map(|rule| oldest(rule)).collect()
}

/// Whether the kernel lets us load programs; prints a message if not.
fn skipped(test: &str) -> bool {
    match load(&[Rule::ALL], Form::LookedUp, false) {
        Ok(_) => false,
        Err(error) => {
            println!("SKIPPED {test}: bpf(2) says {error}; run as root");
            true
        }
    }
}

/// Addresses, ports and other values come from small sets, so that rules often match frames.
fn address() -> impl Strategy<Value = Ipv4Addr> {
    prop::sample::select(vec![Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(239, 1, 2, 3), Ipv4Addr::UNSPECIFIED])
}

fn port() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![0u16, 9000, 0x2823])
}

fn mac() -> impl Strategy<Value = MacAddr> {
    prop::sample::select(vec![MacAddr::ZERO, MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 1, 2, 3])])
}

fn ethertype() -> impl Strategy<Value = EtherType> {
    prop::sample::select(vec![EtherType::IPV4, EtherType::IPV4, EtherType::ARP, EtherType(0x05ff), EtherType(0x0600)])
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop::sample::select(vec![Protocol::UDP, Protocol::TCP, Protocol::IGMP, Protocol(0)])
}

fn rule() -> impl Strategy<Value = Rule> {
    let link = (some(0.2, mac()), some(0.3, vlan()), some(0.8, ethertype()));
    let ports = (some(0.5, port()), some(0.5, port()), some(0.2, 0u32..1 << 24));
    (link, some(0.5, address()), some(0.5, address()), some(0.8, protocol()), ports).prop_map(
        |((destination_mac, vlan, ethertype), source, destination, protocol, (from, to, flow_tag))| {
            // Fields of headers that the rule does not lead to are left out.
            let ipv4 = ethertype == Some(EtherType::IPV4);
            let protocol = protocol.filter(|_| ipv4);
            let with_ports = matches!(protocol, Some(Protocol::UDP | Protocol::TCP));
            Rule {
                destination_mac,
                vlan,
                ethertype,
                source: source.filter(|_| ipv4),
                destination: destination.filter(|_| ipv4),
                protocol,
                source_port: from.filter(|_| with_ports),
                destination_port: to.filter(|_| with_ports),
                flow_tag,
            }
        },
    )
}

fn some<S: Strategy>(probability: f64, value: S) -> impl Strategy<Value = Option<S::Value>>
where
    S::Value: Clone,
{
    prop::option::weighted(probability, value)
}

fn vlan() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![0u16, 7, 4095])
}

/// A frame of any kind that steering must distinguish, with its possible defects.
#[derive(Clone, Debug)]
struct Shape {
    mac: MacAddr,
    tags: Vec<(bool, u16)>,
    ethertype: EtherType,
    version_ihl: u8,
    addresses: (Ipv4Addr, Ipv4Addr),
    protocol: Protocol,
    fragment: u16,
    ports: (u16, u16),
    total_len_off: i16,
    padding: usize,
    cut: Option<prop::sample::Index>,
}

fn frame() -> impl Strategy<Value = Shape> {
    let link = (mac(), prop::collection::vec((any::<bool>(), vlan()), 0..=3), ethertype());
    let version_ihl = prop::sample::select(vec![0x45u8, 0x45, 0x45, 0x46, 0x4f, 0x44, 0x40, 0x65]);
    let ip = (version_ihl, (address(), address()), protocol());
    let fragment = prop::sample::select(vec![0u16, 0, 0, 0x4000, 0x2000, 0xc000, 1, 0x2001, 0x1000, 0x1fff]);
    let lens = (
        prop::sample::select(vec![0i16, 0, 0, 0, 0, 0, 1, -1, -4, -5, -9, -30, 2000]),
        0usize..9,
        any::<Option<prop::sample::Index>>(),
    );
    (link, ip, fragment, (port(), port()), lens).prop_map(
        |(link, ip, fragment, ports, (total_len_off, padding, cut))| Shape {
            mac: link.0,
            tags: link.1,
            ethertype: link.2,
            version_ihl: ip.0,
            addresses: ip.1,
            protocol: ip.2,
            fragment,
            ports,
            total_len_off,
            padding,
            cut: cut.filter(|cut| cut.index(2) == 0),
        },
    )
}

impl Shape {
    /// The same with the values of `rule`, so that only the defects of the frame matter.
    fn meant_for(mut self, rule: &Rule) -> Self {
        self.mac = rule.destination_mac.unwrap_or(self.mac);
        if let (Some(vlan), Some(tag)) = (rule.vlan, self.tags.first_mut()) {
            tag.1 = vlan;
        }
        self.ethertype = rule.ethertype.unwrap_or(self.ethertype);
        self.addresses.0 = rule.source.unwrap_or(self.addresses.0);
        self.addresses.1 = rule.destination.unwrap_or(self.addresses.1);
        self.protocol = rule.protocol.unwrap_or(self.protocol);
        self.ports.0 = rule.source_port.unwrap_or(self.ports.0);
        self.ports.1 = rule.destination_port.unwrap_or(self.ports.1);
        self
    }
}

fn bytes(shape: &Shape) -> Vec<u8> {
    let mut frame = [shape.mac.0, [2, 0, 0, 0, 0, 1]].concat();
    for &(provider, vid) in &shape.tags {
        frame.extend_from_slice(if provider { &[0x88, 0xa8] } else { &[0x81, 0x00] });
        // Priority and drop eligible are not part of the identifier.
        frame.extend_from_slice(&(vid | 0xb000).to_be_bytes());
    }
    frame.extend_from_slice(&shape.ethertype.0.to_be_bytes());
    let header_len = usize::from(shape.version_ihl & 15) * 4;
    let total_len = (header_len.max(20) + 8) as i16 + shape.total_len_off;
    let mut header = vec![0; header_len.max(20)];
    header[0] = shape.version_ihl;
    header[2..4].copy_from_slice(&total_len.max(0).to_be_bytes());
    header[6..8].copy_from_slice(&shape.fragment.to_be_bytes());
    header[9] = shape.protocol.0;
    header[12..16].copy_from_slice(&shape.addresses.0.octets());
    header[16..20].copy_from_slice(&shape.addresses.1.octets());
    frame.extend_from_slice(&header);
    frame.extend_from_slice(&shape.ports.0.to_be_bytes());
    frame.extend_from_slice(&shape.ports.1.to_be_bytes());
    frame.extend_from_slice(&vec![0; 4 + shape.padding]);
    if let Some(cut) = shape.cut {
        frame.truncate(cut.index(frame.len()));
    }
    // The kernel runs no program on less than an Ethernet header.
    frame.resize(frame.len().max(14), 0);
    frame
}

#[test]
fn program_names_what_the_reference_names() {
    if skipped("program_names_what_the_reference_names") {
        return;
    }
    let (hits, compared) = (Cell::new(0), Cell::new([0; CONSTANTS_MAX + 3]));
    let rules = prop::collection::vec(rule(), 0..=CONSTANTS_MAX + 2);
    let cases = (rules, prop::collection::vec(frame(), 60), any::<bool>());
    TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() })
        .run(&cases, |(rules, shapes, frags)| {
            let loaded = load_both(&rules, frags).unwrap();
            compared.set(counted(compared.get(), rules.len(), loaded.len() > 1));
            for (idx, shape) in shapes.into_iter().enumerate() {
                let frame = bytes(&match rules.get(idx / 2 % rules.len().max(1)) {
                    Some(rule) if idx % 2 == 0 => shape.meant_for(rule),
                    _ => shape,
                });
                let expected = tags_that_may_be(&rules, &frame);
                let said: Vec<_> = loaded.iter().map(|program| program.says(&frame)).collect();
                hits.set(hits.get() + usize::from(!expected.is_empty()));
                let right = match said[0] {
                    None => expected.is_empty(),
                    Some(tag) => expected.contains(&tag),
                };
                let agree = said.iter().all(|one| *one == said[0]);
                prop_assert!(right && agree, "{said:?}, not {expected:?}: {frame:02x?} under {rules:?}");
            }
            Ok(())
        })
        .unwrap();
    println!("{} frames of 24,000 were named; compared, by the count of rules: {:?}", hits.get(), compared.get());
    assert!(hits.get() > 1_000, "only {hits:?} frames were named: the test no longer tries much");
    assert!(compared.get()[1..=CONSTANTS_MAX].iter().all(|&count| count > 0), "{compared:?}");
}

fn counted<const N: usize>(mut counts: [u32; N], idx: usize, more: bool) -> [u32; N] {
    counts[idx] += u32::from(more);
    counts
}

#[test]
fn every_cut_of_a_frame_is_judged_as_the_reference_does() {
    if skipped("every_cut_of_a_frame_is_judged_as_the_reference_does") {
        return;
    }
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let rules = [Rule::udp(group, 9000).on_vlan(7), Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL }];
    let whole = bytes(&Shape {
        mac: MacAddr::ZERO,
        tags: vec![(true, 7), (false, 1)],
        ethertype: EtherType::IPV4,
        version_ihl: 0x4f,
        addresses: (group, group),
        protocol: Protocol::UDP,
        fragment: 0x4000,
        ports: (1, 9000),
        total_len_off: 0,
        padding: 3,
        cut: None,
    });
    assert!(rules[0].matches(&whole));
    for rule in rules {
        for loaded in load_both(&[rule], false).unwrap() {
            for len in 14..=whole.len() {
                assert_eq!(loaded.names(&whole[..len]), rule.matches(&whole[..len]), "{len} bytes, {rule}");
            }
        }
    }
}

#[test]
fn frame_in_several_buffers_is_whole() {
    if skipped("frame_in_several_buffers_is_whole") {
        return;
    }
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let rule = Rule::udp(group, 9000);
    let loaded = load_both(&[rule], true).unwrap();
    for total_len in [8000i16, 8001] {
        let shape = Shape {
            mac: MacAddr::ZERO,
            tags: vec![(false, 7)],
            ethertype: EtherType::IPV4,
            version_ihl: 0x45,
            addresses: (group, group),
            protocol: Protocol::UDP,
            fragment: 0,
            ports: (1, 9000),
            total_len_off: total_len - 28,
            padding: 8000 - 28,
            cut: None,
        };
        let frame = bytes(&shape);
        assert_eq!((frame.len(), rule.matches(&frame)), (8018, total_len == 8000));
        assert!(loaded.iter().all(|loaded| loaded.names(&frame) == (total_len == 8000)), "{total_len}");
    }
}

#[test]
fn fragments_of_a_datagram_are_all_the_kernels_by_a_rule_with_ports_and_all_ours_by_one_without() {
    if skipped("fragments_of_a_datagram_are_all_the_kernels_by_a_rule_with_ports_and_all_ours_by_one_without") {
        return;
    }
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let by_port = Rule::udp(group, 9000);
    let by_address = Rule { destination_port: None, ..by_port };
    // The first of several, one in the middle, the last, and a datagram that is whole.
    for (fragment, is_whole) in [(0x2000, false), (0x2010, false), (0x0010, false), (0x4000, true)] {
        let mut frame = frame_of(&by_port);
        frame[20..22].copy_from_slice(&u16::to_be_bytes(fragment));
        for loaded in load_both(&[by_port], false).unwrap() {
            assert_eq!(loaded.names(&frame), is_whole, "{fragment:#x}");
        }
        for loaded in load_both(&[by_address], false).unwrap() {
            assert!(loaded.names(&frame), "{fragment:#x}");
        }
    }
    // The first of a segment of TCP stays ours: the kernel would answer with a reset.
    let rule = Rule::tcp(group, 9000);
    let mut frame = frame_of(&rule);
    frame[20] = 0x20;
    assert!(load_both(&[rule], false).unwrap().iter().all(|loaded| loaded.names(&frame)));
}

#[test]
fn hundreds_of_rules_cost_what_one_costs() {
    if skipped("hundreds_of_rules_cost_what_one_costs") {
        return;
    }
    let rules: Vec<Rule> = (0..800u32)
        .flat_map(|idx| {
            let group = Ipv4Addr::from_bits(0xef01_0000 | idx);
            [Rule::udp(group, 9000), Rule::udp(group, 9001).from(Ipv4Addr::new(10, 0, 0, 1)).on_vlan(7)]
        })
        .chain([Rule::arp(), Rule::igmp(), Rule::tcp(Ipv4Addr::new(10, 0, 0, 9), 22).tagged(5)])
        .collect();
    let loaded = load(&rules, Form::LookedUp, true).unwrap();
    for rule in rules.iter().step_by(97).chain(&rules[1_600..]) {
        let frame = frame_of(rule);
        assert!(rule.matches(&frame) && loaded.names(&frame), "{rule}");
    }
    let stranger = frame_of(&Rule::udp(Ipv4Addr::new(1, 1, 1, 1), 53));
    assert!(!loaded.names(&stranger));
    println!(
        "{} ns for a frame of the first shape, {} ns for one that no rule names",
        loaded.ns(&frame_of(&rules[1])),
        loaded.ns(&stranger)
    );
}

#[test]
fn catch_all_names_every_frame_with_and_without_a_tag() {
    if skipped("catch_all_names_every_frame_with_and_without_a_tag") {
        return;
    }
    for rule in [Rule::ALL, Rule::ALL.tagged(0), Rule::ALL.tagged(0xff_ffff)] {
        for loaded in load_both(&[rule, Rule::ALL.tagged(9)], true).unwrap() {
            for frame in [&[0; 14][..], &[0xff; 60], &frame_of(&Rule::arp()), &frame_of(&Rule::igmp())] {
                assert_eq!(loaded.says(frame), Some(rule.flow_tag), "{frame:02x?}");
            }
        }
    }
}

#[test]
fn rule_of_another_queue_is_not_for_this_one() {
    if skipped("rule_of_another_queue_is_not_for_this_one") {
        return;
    }
    let sockets = Map::create(MapKind::Sockets, 4, 4, 2).unwrap();
    let says = |rules: &[(Rule, u16)]| {
        let constants = constants(rules.iter().map(|(rule, queue)| (rule, *queue)), 2);
        let insns = generate(&Source {
            shapes: &shapes(rules.iter().map(|(rule, _)| rule)),
            rules: Rules::Constants(&constants),
            sockets_fd: sockets.raw_fd(),
            tags: false,
            kfuncs: [None; 3],
            frags: false,
            unclaimed: XdpAction::Drop,
        });
        // Test runs receive on queue 0.
        Program::load(&insns, LoadOptions::default()).unwrap().test_run(&frame_of(&Rule::arp()), 1).unwrap().verdict
    };
    let (named, passed) = (XdpAction::Drop as u32, XdpAction::Pass as u32);
    assert_eq!(says(&[(Rule::ALL, 1)]), passed);
    assert_eq!(says(&[(Rule::arp(), 1), (Rule::igmp(), 0)]), passed);
    assert_eq!(says(&[(Rule::arp(), 1), (Rule::arp(), 0)]), named);
    assert_eq!(says(&[(Rule::ALL, 0)]), named);
}

#[test]
fn few_rules_are_compared_with_what_they_say() {
    if skipped("few_rules_are_compared_with_what_they_say") {
        return;
    }
    let group = |idx: u32| Rule::udp(Ipv4Addr::from_bits(0xef01_0200 | idx), 9000);
    let groups: Vec<Rule> = (0..CONSTANTS_MAX as u32).map(group).collect();
    let host = [Rule::arp(), Rule::igmp(), group(0), group(1).from(Ipv4Addr::new(10, 0, 0, 1))];
    for rules in [&[Rule::ALL][..], &groups[..1], &groups, &host] {
        let loaded = load_both(rules, true).unwrap();
        let frames: Vec<_> = rules.iter().map(frame_of).chain([frame_of(&group(99))]).collect();
        let ns = |program: &Loaded| frames.iter().map(|frame| program.ns(frame)).collect::<Vec<_>>();
        println!("{} rules: ns {:?} looked up, {:?} compared", rules.len(), ns(&loaded[0]), ns(&loaded[1]));
        for (frame, program) in frames.iter().flat_map(|frame| loaded.iter().map(move |program| (frame, program))) {
            assert_eq!(program.names(frame), rules.iter().any(|rule| rule.matches(frame)), "{frame:02x?}");
        }
    }
}

fn frame_of(rule: &Rule) -> Vec<u8> {
    bytes(&Shape {
        mac: rule.destination_mac.unwrap_or(MacAddr::ZERO),
        tags: rule.vlan.map(|vid| (false, vid)).into_iter().collect(),
        ethertype: rule.ethertype.unwrap_or(EtherType::IPV4),
        version_ihl: 0x45,
        addresses: (rule.source.unwrap_or(Ipv4Addr::UNSPECIFIED), rule.destination.unwrap_or(Ipv4Addr::UNSPECIFIED)),
        protocol: rule.protocol.unwrap_or(Protocol::UDP),
        fragment: 0,
        ports: (rule.source_port.unwrap_or(0), rule.destination_port.unwrap_or(0)),
        total_len_off: 0,
        padding: 0,
        cut: None,
    })
}
