//! Filters: an operator's words become steering rules, one of which must match a frame.
//!
//! A word that means either end (`host`, `port`) doubles the rules, and a port without a protocol
//! means UDP or TCP.

use std::net::Ipv4Addr;

use wirepath::device::steering::Rule;
use wirepath::wire::{EtherType, Protocol};

/// The frames that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// Alternatives: 8 at most.
    rules: Vec<Rule>,
}

/// The end of a packet that a word is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

impl Filter {
    /// From words such as `udp group 239.1.2.3:9000 vlan 7`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut filter = Self { rules: vec![Rule::ALL] };
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("something is missing behind \"{word}\""));
            match word {
                "udp" => filter.protocol(Protocol::UDP)?,
                "tcp" => filter.protocol(Protocol::TCP)?,
                "icmp" => filter.protocol(Protocol::ICMP)?,
                "igmp" => filter.protocol(Protocol::IGMP)?,
                "arp" => filter.each(|rule| set(&mut rule.ethertype, EtherType::ARP, "EtherType"))?,
                "host" => filter.endpoint(value()?, &[End::Source, End::Destination])?,
                "to" | "group" => filter.endpoint(value()?, &[End::Destination])?,
                "from" => filter.endpoint(value()?, &[End::Source])?,
                "port" => filter.port(value()?, &[End::Source, End::Destination])?,
                "vlan" => {
                    let vlan = number(value()?)?;
                    filter.each(|rule| set(&mut rule.vlan, vlan, "VLAN"))?;
                }
                endpoint if endpoint.starts_with(|c: char| c.is_ascii_digit()) => {
                    filter.endpoint(endpoint, &[End::Source, End::Destination])?;
                }
                other => {
                    return Err(format!(
                        "\"{other}\" is no word of a filter: use udp, tcp, icmp, igmp, arp, host, from, to, group, port, vlan"
                    ));
                }
            }
        }
        filter.name_protocols();
        match filter.rules.iter().find_map(|rule| rule.check().err()) {
            None if filter.rules[0] == Rule::ALL => Err("an empty filter: leave it out".to_owned()),
            None => Ok(filter),
            Some(error) => Err(error.to_string()),
        }
    }

    /// Whether a rule matches the frame.
    pub(super) fn matches(&self, frame: &[u8]) -> bool {
        self.rules.iter().any(|rule| rule.matches(frame))
    }

    fn protocol(&mut self, protocol: Protocol) -> Result<(), String> {
        self.each(|rule| {
            set(&mut rule.ethertype, EtherType::IPV4, "EtherType")?;
            set(&mut rule.protocol, protocol, "protocol")
        })
    }

    /// `ADDRESS` or `ADDRESS:PORT` of one of `ends`.
    fn endpoint(&mut self, text: &str, ends: &[End]) -> Result<(), String> {
        let (address, port) = text.split_once(':').map_or((text, None), |(address, port)| (address, Some(port)));
        let address: Ipv4Addr = address.parse().map_err(|_| format!("\"{address}\" is not an IPv4 address"))?;
        let port = port.map(number).transpose()?;
        self.either(ends, |rule, end| {
            set(&mut rule.ethertype, EtherType::IPV4, "EtherType")?;
            let (own_address, own_port) = match end {
                End::Source => (&mut rule.source, &mut rule.source_port),
                End::Destination => (&mut rule.destination, &mut rule.destination_port),
            };
            set(own_address, address, "address")?;
            port.map_or(Ok(()), |port| set(own_port, port, "port"))
        })
    }

    fn port(&mut self, text: &str, ends: &[End]) -> Result<(), String> {
        let port = number(text)?;
        self.either(ends, |rule, end| {
            set(&mut rule.ethertype, EtherType::IPV4, "EtherType")?;
            let own_port = if end == End::Source { &mut rule.source_port } else { &mut rule.destination_port };
            set(own_port, port, "port")
        })
    }

    fn each(&mut self, change: impl Fn(&mut Rule) -> Result<(), String>) -> Result<(), String> {
        self.rules.iter_mut().try_for_each(change)
    }

    /// The alternatives of all rules so far with each of `ends`. Where one contradicts itself
    /// (`from A host B` leaves `to B`), the others stay.
    fn either(&mut self, ends: &[End], change: impl Fn(&mut Rule, End) -> Result<(), String>) -> Result<(), String> {
        let (mut rules, mut contradiction) = (Vec::new(), None);
        for rule in &self.rules {
            for &end in ends {
                let mut changed = *rule;
                match change(&mut changed, end) {
                    Ok(()) => rules.push(changed),
                    Err(error) => contradiction = Some(error),
                }
            }
        }
        self.rules = rules;
        contradiction.filter(|_| self.rules.is_empty()).map_or(Ok(()), Err)
    }

    /// A port without a protocol means both that have ports.
    fn name_protocols(&mut self) {
        let bare =
            |rule: &Rule| rule.protocol.is_none() && (rule.source_port.is_some() || rule.destination_port.is_some());
        if !self.rules.iter().any(bare) {
            return;
        }
        let with = |protocol| move |rule: &Rule| Rule { protocol: Some(protocol), ..*rule };
        self.rules = [Protocol::UDP, Protocol::TCP]
            .into_iter()
            .flat_map(|protocol| self.rules.iter().map(with(protocol)).collect::<Vec<_>>())
            .collect();
    }
}

/// Sets a field, which may be set once; the same value again changes nothing.
fn set<T: Copy + PartialEq>(field: &mut Option<T>, value: T, name: &str) -> Result<(), String> {
    match *field {
        Some(other) if other != value => Err(format!("no frame has two values of its {name}")),
        _ => {
            *field = Some(value);
            Ok(())
        }
    }
}

fn number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not a number of 0 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const G: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    fn refused(text: &str, expected: &str) {
        let error = Filter::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[test]
    fn words_that_make_no_filter_are_answered() {
        refused("", "empty");
        refused("sctp", "no word of a filter");
        refused("host", "missing behind \"host\"");
        refused("host 10.0.0", "not an IPv4 address");
        refused("host 10.0.0.1:x", "not a number");
        refused("port 65536", "not a number");
        refused("udp tcp", "two values of its protocol");
        refused("arp udp", "two values of its EtherType");
        refused("from 10.0.0.1 from 10.0.0.2", "two values of its address");
        refused("vlan 4096", "no VLAN 4096");
        refused("igmp port 5", "neither UDP nor TCP");
    }

    #[test]
    fn words_become_rules() {
        let check = |text: &str, rules: &[Rule]| assert_eq!(Filter::parse(text).unwrap().rules, rules, "{text}");
        check("udp group 239.1.2.3:9000", &[Rule::udp(G, 9000)]);
        check("to 239.1.2.3:9000 from 10.0.0.1 udp vlan 7", &[Rule::udp(G, 9000).from(A).on_vlan(7)]);
        check("icmp", &[Rule::protocol(Protocol::ICMP)]);
        check("arp vlan 3", &[Rule::arp().on_vlan(3)]);
        check("to 239.1.2.3:9000", &[Rule::udp(G, 9000), Rule::tcp(G, 9000)]);
        let ipv4 = Rule { ethertype: Some(EtherType::IPV4), ..Rule::ALL };
        check("host 10.0.0.1", &[ipv4.from(A), ipv4.to(A)]);
        check("10.0.0.1", &[ipv4.from(A), ipv4.to(A)]);
        check("from 10.0.0.1 host 239.1.2.3", &[ipv4.from(A).to(G)]);
        let udp = Rule::protocol(Protocol::UDP);
        check("udp port 5", &[Rule { source_port: Some(5), ..udp }, Rule { destination_port: Some(5), ..udp }]);
        assert_eq!(Filter::parse("host 10.0.0.1 port 5").unwrap().rules.len(), 8);
    }
}
