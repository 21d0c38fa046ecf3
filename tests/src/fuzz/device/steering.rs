//! Steering rules compared with a byte by byte evaluation of the same rule.

use wirepath::device::steering::{Fields, Rule};
use wirepath::wire::{EtherType, MacAddr, Protocol};

use crate::fuzz::Input;

/// A rule from the first bytes, a frame from the others.
pub(in crate::fuzz) fn rule(data: &[u8]) {
    let mut input = Input::new(data);
    let rule = read_rule(&mut input);
    let frame = input.rest();
    assert!(!rule.to_string().is_empty());
    assert!(Rule::ALL.matches(frame), "a rule without a field names every frame");
    match rule.check() {
        Ok(()) => assert_eq!(rule.matches(frame), matches(&rule, frame), "{rule} on {frame:02x?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for (field, without) in [
        (Fields::VLAN, Rule { vlan: None, ..rule }),
        (Fields::SOURCE_PORT, Rule { source_port: None, ..rule }),
        (Fields::DESTINATION, Rule { destination: None, ..rule }),
    ] {
        assert!(!without.fields().contains(field) && rule.fields().contains(without.fields()));
        assert!(!rule.matches(frame) || without.matches(frame), "a field less names more frames");
    }
}

fn read_rule(input: &mut Input<'_>) -> Rule {
    let named = input.u8();
    let has = |bit: u8| named & 1 << bit != 0;
    Rule {
        destination_mac: has(0).then(|| {
            let mut mac = [0; 6];
            mac.fill_with(|| input.u8());
            MacAddr(mac)
        }),
        vlan: has(1).then(|| input.u16()),
        ethertype: has(2).then(|| input.pick(&[EtherType::IPV4, EtherType::IPV4, EtherType::ARP, EtherType::IPV6])),
        source: has(3).then(|| input.u32().into()),
        destination: has(4).then(|| input.u32().into()),
        protocol: has(5).then(|| input.pick(&[Protocol::UDP, Protocol::TCP, Protocol::IGMP, Protocol(200)])),
        source_port: has(6).then(|| input.u16()),
        destination_port: has(7).then(|| input.u16()),
        flow_tag: Some(input.u32() >> 7).filter(|tag| tag % 2 == 0),
    }
}

/// The rule's meaning: fields at their places. A rule that names nothing names everything; all
/// others want a frame that can be taken apart as far as the field.
fn matches(rule: &Rule, frame: &[u8]) -> bool {
    if rule.fields() == Fields::NONE {
        return true;
    }
    let Some((tags, ethertype, packet)) = link(frame) else { return false };
    let wrong_link = rule.destination_mac.is_some_and(|mac| mac.0 != frame[..6])
        || rule.vlan.is_some_and(|vlan| tags.first() != Some(&vlan))
        || rule.ethertype.is_some_and(|wanted| wanted.0 != ethertype);
    if wrong_link {
        return false;
    }
    if rule.source.is_none() && rule.destination.is_none() && rule.protocol.is_none() {
        return true;
    }
    let Some(header_len) = ipv4_header_len(packet) else { return false };
    let wrong_network = rule.source.is_some_and(|source| source.octets() != packet[12..16])
        || rule.destination.is_some_and(|destination| destination.octets() != packet[16..20])
        || rule.protocol.is_some_and(|protocol| protocol.0 != packet[9]);
    if wrong_network {
        return false;
    }
    if rule.source_port.is_none() && rule.destination_port.is_none() {
        return true;
    }
    let is_later_fragment = u16_at(packet, 6).is_none_or(|word| word & 0x1fff != 0);
    let payload = &packet[header_len..usize::from(u16_at(packet, 2).unwrap_or(0))];
    !is_later_fragment
        && payload.len() >= 4
        && rule.source_port.is_none_or(|port| u16_at(payload, 0) == Some(port))
        && rule.destination_port.is_none_or(|port| u16_at(payload, 2) == Some(port))
}

/// The VLANs, the EtherType after the tags, and the rest of the frame.
fn link(frame: &[u8]) -> Option<(Vec<u16>, u16, &[u8])> {
    let (mut at, mut vlans) = (12, Vec::new());
    while matches!(u16_at(frame, at)?, 0x8100 | 0x88a8) {
        vlans.push(u16_at(frame, at + 2)? & 0x0fff);
        at += 4;
    }
    let ethertype = u16_at(frame, at)?;
    (vlans.len() <= 2 && ethertype >= 0x0600).then(|| (vlans, ethertype, &frame[at + 2..]))
}

fn ipv4_header_len(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let (header_len, total_len) = (usize::from(first & 0xf) * 4, usize::from(u16_at(packet, 2)?));
    (first >> 4 == 4 && header_len >= 20 && total_len >= header_len && packet.len() >= total_len.max(20))
        .then_some(header_len)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]))
}
