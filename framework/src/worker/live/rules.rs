//! The steering rules: exactly the configured flows on an interface of the kernel, everything that
//! a host needs on one of our own.

use core::net::Ipv4Addr;

use super::config::{CaptureMode, FlowSpec, IgmpMode, LiveConfig, Owner};
use crate::device::steering::Rule;
use crate::proto::Ipv4Prefix;
use crate::wire::{EtherType, Protocol};

/// The rules of queue `idx` of an interface with `addresses`, each once.
pub(super) fn rules(config: &LiveConfig, addresses: &[Ipv4Prefix], idx: u16) -> Vec<Rule> {
    let mut rules = match &config.owner {
        Owner::Shared => wanted(config, addresses, idx),
        Owner::Dedicated(own) => match own.takes {
            CaptureMode::Everything => vec![Rule::ALL],
            CaptureMode::Needed => needed(config, addresses, idx),
        },
    };
    if !rules.contains(&Rule::ALL) {
        rules.extend((config.igmp == IgmpMode::Worker).then(Rule::igmp));
        rules.extend(config.ethertypes.iter().map(|&ethertype| all_of(ethertype)));
    }
    on_vlan(config, &mut rules);
    let mut unique: Vec<Rule> = Vec::new();
    for rule in rules {
        if !unique.contains(&rule) {
            unique.push(rule);
        }
    }
    unique
}

fn on_vlan(config: &LiveConfig, rules: &mut [Rule]) {
    if let Some(tag) = config.vlan.outer() {
        // A rule compares the outer tag; the Ethernet node then checks the inner one.
        rules.iter_mut().for_each(|rule| rule.vlan = Some(tag.vid()));
    }
}

/// One rule per group or address, port and sender: the kernel receives all other frames, including
/// those to other ports of the same group and from other senders.
fn wanted(config: &LiveConfig, addresses: &[Ipv4Prefix], idx: u16) -> Vec<Rule> {
    let here = config.flows.iter().filter(|flow| flow.is_on(idx));
    let each = |flow| destinations(flow, addresses).into_iter().flat_map(move |destination| exact(flow, destination));
    here.flat_map(each).collect()
}

fn exact(flow: &FlowSpec, destination: Ipv4Addr) -> Vec<Rule> {
    let port = flow.destination.port();
    let rule = Rule {
        vlan: flow.vlan,
        source_port: flow.source_port,
        destination_port: (port != 0).then_some(port),
        ..Rule::protocol(flow.protocol).to(destination)
    };
    match &flow.sources[..] {
        [] => vec![rule],
        sources => sources.iter().map(|source| rule.from(*source)).collect(),
    }
}

/// ARP, and all IPv4 to our addresses and to the groups. Without ports, so that later fragments
/// match too.
fn needed(config: &LiveConfig, addresses: &[Ipv4Prefix], idx: u16) -> Vec<Rule> {
    let mut rules = vec![Rule::arp()];
    rules.extend(addresses.iter().map(|own| all_to(own.address())));
    rules.extend(config.flows.iter().filter(|flow| flow.is_group() && flow.is_on(idx)).map(whole_group));
    rules
}

fn whole_group(flow: &FlowSpec) -> Rule {
    Rule { vlan: flow.vlan, protocol: Some(Protocol::UDP), ..all_to(*flow.destination.ip()) }
}

fn all_to(destination: Ipv4Addr) -> Rule {
    all_of(EtherType::IPV4).to(destination)
}

fn all_of(ethertype: EtherType) -> Rule {
    Rule { ethertype: Some(ethertype), ..Rule::ALL }
}

fn destinations(flow: &FlowSpec, addresses: &[Ipv4Prefix]) -> Vec<Ipv4Addr> {
    match *flow.destination.ip() {
        Ipv4Addr::UNSPECIFIED => addresses.iter().map(|own| own.address()).collect(),
        destination => vec![destination],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{VlanTag, VlanTags};
    use crate::worker::live::DedicatedHost;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
    const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn check(config: &LiveConfig, idx: u16, expected: &[&str]) {
        let rules = rules(config, &["10.0.0.2/24".parse().unwrap()], idx);
        assert!(rules.iter().all(|rule| rule.check().is_ok()), "{rules:?}");
        assert_eq!(rules.iter().map(|rule| rule.to_string().to_lowercase()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn kernel_keeps_what_nobody_asked_for() {
        check(&LiveConfig::new("eth1"), 0, &[]);
        let config = LiveConfig::new("eth1")
            .flow(FlowSpec::udp(GROUP, 9000))
            .flow(FlowSpec::udp(GROUP, 9001).from(&[SENDER]))
            .flow(FlowSpec::udp(Ipv4Addr::UNSPECIFIED, 5000));
        let expected = ["udp to 239.1.1.1:9000", "udp from 10.0.0.1 to 239.1.1.1:9001", "udp to 10.0.0.2:5000"];
        check(&config, 0, &expected);
    }

    #[test]
    fn connections_come_to_us_and_those_of_the_kernel_to_the_kernel() {
        let exchange = "10.0.0.9:4000".parse().unwrap();
        let config = LiveConfig::new("eth1")
            .flow(FlowSpec::tcp(Ipv4Addr::UNSPECIFIED, 80))
            .flow(FlowSpec::tcp_from(exchange))
            .flow(FlowSpec::tcp_from(exchange).to_port(5000));
        let expected =
            ["tcp to 10.0.0.2:80", "tcp from 10.0.0.9:4000 to 10.0.0.2", "tcp from 10.0.0.9:4000 to 10.0.0.2:5000"];
        check(&config, 0, &expected);
    }

    #[test]
    fn igmp_comes_to_us_where_we_speak_it() {
        let config = LiveConfig { igmp: IgmpMode::Worker, ..LiveConfig::new("eth1") };
        check(&config, 0, &["igmp"]);
    }

    #[test]
    fn protocol_beside_ipv4_comes_to_us_where_it_is_asked_for() {
        let config = LiveConfig { ethertypes: vec![EtherType(0x8915)], ..LiveConfig::new("eth1") };
        check(&config, 0, &["0x8915"]);
        let all = DedicatedHost { takes: CaptureMode::Everything, ..DedicatedHost::default() };
        check(&config.dedicated(all), 0, &["all frames"]);
    }

    #[test]
    fn want_of_one_queue_is_no_rule_of_another() {
        let flow = FlowSpec { queue: Some(1), ..FlowSpec::udp(GROUP, 9000) };
        let config = LiveConfig { queues: vec![0, 1], ..LiveConfig::new("eth1").flow(flow) };
        check(&config, 0, &[]);
        check(&config, 1, &["udp to 239.1.1.1:9000"]);
    }

    #[test]
    fn host_of_our_own_gets_what_it_needs() {
        let config = LiveConfig::new("eth1")
            .flow(FlowSpec::udp(GROUP, 1))
            .flow(FlowSpec::udp(GROUP, 2))
            .dedicated(DedicatedHost::default());
        check(&config, 0, &["arp", "ipv4 to 10.0.0.2", "udp to 239.1.1.1", "igmp"]);
        let all = DedicatedHost { takes: CaptureMode::Everything, ..DedicatedHost::default() };
        check(&config.dedicated(all), 0, &["all frames"]);
    }

    #[test]
    fn outer_tag_of_an_own_host_is_on_every_rule() {
        let vlan = VlanTags::double([VlanTag::from_tci(EtherType::QINQ, 100), VlanTag::new(5)]);
        let flow = FlowSpec { vlan: Some(5), ..FlowSpec::udp(GROUP, 1) };
        let config = LiveConfig { vlan, ..LiveConfig::new("eth1").flow(flow).dedicated(DedicatedHost::default()) };
        check(&config, 0, &["arp vlan 100", "ipv4 to 10.0.0.2 vlan 100", "udp to 239.1.1.1 vlan 100", "igmp vlan 100"]);
    }
}
