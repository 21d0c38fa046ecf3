//! Rules in the program's form. Rules that set the same fields have one *shape*; all rules are in
//! one hash map whose key holds the fields of the shape, and zeros for the others. So the program
//! depends only on the shapes in use, a handful even with hundreds of rules: it makes one lookup
//! per shape, and most changes are one update of the map. If there are few rules
//! ([`CONSTANTS_MAX`]), they are also compiled into the program, which then makes no lookup and is
//! replaced at each change.
//!
//! If several rules match a frame, the one of the most specific shape decides the flow tag: ports
//! before addresses before link fields, and more fields before fewer.

use zerocopy::{Immutable, IntoBytes};

use super::metadata::HAS_FLOW_TAG;
use crate::device::steering::{Fields, Rule};

/// The set of fields of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape(pub(crate) Fields);

/// The headers that a frame must have for a lookup of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// None: the shape has no field.
    Any,
    /// An Ethernet header that parses.
    Ethernet,
    /// An IPv4 header that parses.
    Ipv4,
    /// Ports: no later fragment, and four bytes of payload.
    Ports,
}

/// Every field, and its bit of the shape's byte in the key.
pub(crate) const FIELDS: [Fields; 8] = [
    Fields::DESTINATION_MAC,
    Fields::VLAN,
    Fields::ETHERTYPE,
    Fields::SOURCE,
    Fields::DESTINATION,
    Fields::PROTOCOL,
    Fields::SOURCE_PORT,
    Fields::DESTINATION_PORT,
];

impl Shape {
    pub(crate) fn of(rule: &Rule) -> Self {
        Self(rule.fields())
    }

    pub(crate) fn has(self, fields: Fields) -> bool {
        self.0.contains(fields)
    }

    pub(crate) fn depth(self) -> Depth {
        let any_of = |fields: &[Fields]| fields.iter().any(|&field| self.has(field));
        if any_of(&[Fields::SOURCE_PORT, Fields::DESTINATION_PORT]) {
            Depth::Ports
        } else if any_of(&[Fields::SOURCE, Fields::DESTINATION, Fields::PROTOCOL]) {
            Depth::Ipv4
        } else if self.0 != Fields::NONE {
            Depth::Ethernet
        } else {
            Depth::Any
        }
    }

    /// The shape as the key's byte.
    pub(crate) fn byte(self) -> u8 {
        (0..8).filter(|&bit| self.has(FIELDS[bit])).fold(0, |byte, bit| byte | 1 << bit)
    }

    /// The order of lookups: the most specific first. The last number makes it deterministic.
    fn rank(self) -> impl Ord {
        core::cmp::Reverse((self.depth(), self.byte().count_ones(), self.byte()))
    }
}

/// The shapes of rules, in the order in which the program tries them.
#[cfg(test)]
pub(crate) fn shapes<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<Shape> {
    let mut shapes: Vec<Shape> = rules.map(Shape::of).collect();
    sort_shapes(&mut shapes, |shape| *shape);
    shapes.dedup();
    shapes
}

/// Sorts entries into the order in which the program tries their shapes.
pub(crate) fn sort_shapes<T>(entries: &mut [T], shape_of: impl Fn(&T) -> Shape) {
    entries.sort_by_key(|entry| shape_of(entry).rank());
}

/// A rule of one queue in the hash map's form. Addresses and ports are in network order, as in the
/// frame; values that the program computes are in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Key {
    pub(crate) destination_mac: [u8; 6],
    /// Identifier of the outermost tag; [`UNTAGGED`] in the key of an untagged frame.
    pub(crate) vlan: u16,
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    pub(crate) source_port: [u8; 2],
    pub(crate) destination_port: [u8; 2],
    pub(crate) ethertype: [u8; 2],
    pub(crate) protocol: u8,
    pub(crate) shape: u8,
    pub(crate) queue: u32,
}

/// A rule whose values stand in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Constant {
    pub(crate) key: Key,
    pub(crate) shape: Shape,
    /// The only queue of the rule; `None` for all queues of the interface.
    pub(crate) queue: Option<u16>,
    /// Its value in the map.
    pub(crate) word: u32,
}

/// Maximum number of rules in the program; a rule that is installed for all queues counts once. In
/// the worst case a frame is compared with each, so with many more rules the comparisons would cost
/// as much as lookups. Each change of rules needs a new program.
pub(crate) const CONSTANTS_MAX: usize = 8;

/// The rules and their queues in the program's order, if they fit in the program; otherwise none.
/// Of several rules with the same key only the first counts, as in the map. `queues` is the number
/// of queues of the interface.
pub(crate) fn constants<'a>(rules: impl ExactSizeIterator<Item = (&'a Rule, u16)>, queues: u16) -> Vec<Constant> {
    let mut constants: Vec<Constant> = Vec::new();
    // The work below is quadratic in this.
    if rules.len() > CONSTANTS_MAX * usize::from(queues) {
        return constants;
    }
    for (rule, queue) in rules {
        let key = Key::new(rule, queue);
        if constants.iter().all(|constant| constant.key != key) {
            constants.push(Constant { key, shape: Shape::of(rule), queue: Some(queue), word: tag_word(rule) });
        }
    }
    merge_queues(&mut constants, queues);
    if constants.len() > CONSTANTS_MAX {
        return Vec::new();
    }
    constants.sort_by_key(|constant| constant.shape.rank());
    constants
}

/// Merges constants that differ only in the queue, if every queue has one.
fn merge_queues(constants: &mut Vec<Constant>, queues: u16) {
    let on_queue_0 = |constant: &Constant| Constant { key: Key { queue: 0, ..constant.key }, queue: None, ..*constant };
    let all: Vec<Constant> = constants.iter().map(on_queue_0).collect();
    let everywhere = |one: &Constant| all.iter().filter(|&other| other == one).count() == usize::from(queues);
    for constant in &mut *constants {
        let merged = on_queue_0(constant);
        if everywhere(&merged) {
            *constant = merged;
        }
    }
    let mut kept: Vec<Constant> = Vec::new();
    constants.retain(|constant| {
        let first = !kept.contains(constant);
        kept.push(*constant);
        first
    });
}

/// A VLAN that no rule can set.
pub(crate) const UNTAGGED: u16 = 0xffff;

impl Key {
    pub(crate) fn new(rule: &Rule, queue: u16) -> Self {
        Self {
            destination_mac: rule.destination_mac.map_or([0; 6], |mac| mac.0),
            vlan: rule.vlan.unwrap_or(0),
            source: rule.source.map_or([0; 4], |address| address.octets()),
            destination: rule.destination.map_or([0; 4], |address| address.octets()),
            source_port: rule.source_port.unwrap_or(0).to_be_bytes(),
            destination_port: rule.destination_port.unwrap_or(0).to_be_bytes(),
            ethertype: rule.ethertype.map_or([0; 2], |ethertype| ethertype.0.to_be_bytes()),
            protocol: rule.protocol.map_or(0, |protocol| protocol.0),
            shape: Shape::of(rule).byte(),
            queue: queue.into(),
        }
    }
}

/// The map's value for a rule: the word of [`metadata`](super::metadata) with the
/// flow tag in it, or 0.
pub(crate) fn tag_word(rule: &Rule) -> u32 {
    rule.flow_tag.map_or(0, |tag| tag | HAS_FLOW_TAG)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    #[test]
    fn most_telling_shape_comes_first() {
        let rules = [
            Rule::ALL,
            Rule::arp(),
            Rule::igmp(),
            Rule::udp(GROUP, 1),
            Rule::udp(GROUP, 2).from(GROUP),
            Rule::udp(GROUP, 3),
        ];
        let depths: Vec<_> =
            shapes(rules.iter()).iter().map(|shape| (shape.depth(), shape.byte().count_ones())).collect();
        let expected = [(Depth::Ports, 5), (Depth::Ports, 4), (Depth::Ipv4, 2), (Depth::Ethernet, 1), (Depth::Any, 0)];
        assert_eq!(depths, expected);
    }

    #[test]
    fn keys_tell_a_zero_from_any_value() {
        let zero = Rule { vlan: Some(0), ..Rule::ALL };
        assert_ne!(Key::new(&zero, 0), Key::new(&Rule::ALL, 0));
        assert_ne!(Key::new(&Rule::arp(), 0), Key::new(&Rule::arp(), 1));
        assert_eq!(Key::new(&Rule::arp().tagged(5), 0), Key::new(&Rule::arp(), 0));
    }

    #[test]
    fn rule_on_every_queue_is_one_for_all() {
        let queues = |rules: &[(Rule, u16)], count| -> Vec<_> {
            let constants = constants(rules.iter().map(|(rule, queue)| (rule, *queue)), count);
            constants.iter().map(|constant| constant.queue).collect()
        };
        assert_eq!(queues(&[], 1), []);
        assert_eq!(queues(&[(Rule::ALL, 0)], 1), [None]);
        assert_eq!(queues(&[(Rule::ALL, 1), (Rule::ALL, 0)], 2), [None]);
        assert_eq!(queues(&[(Rule::ALL, 1), (Rule::ALL, 0)], 3), [Some(1), Some(0)]);
        // The same rule twice is no rule on another queue, and another tag is another rule.
        assert_eq!(queues(&[(Rule::ALL, 1), (Rule::ALL, 1)], 2), [Some(1)]);
        assert_eq!(queues(&[(Rule::ALL, 0), (Rule::ALL.tagged(1), 1)], 2), [Some(0), Some(1)]);
        assert_eq!(queues(&[(Rule::ALL, 0), (Rule::arp(), 0), (Rule::ALL, 1)], 2), [Some(0), None]);
    }

    #[test]
    fn oldest_of_equal_rules_counts_and_too_many_rules_are_none() {
        let with = |rules: &[Rule]| constants(rules.iter().map(|rule| (rule, 0)), 1);
        let tags: Vec<_> = with(&[Rule::arp().tagged(1), Rule::arp().tagged(2)]).iter().map(|it| it.word).collect();
        assert_eq!(tags, [HAS_FLOW_TAG | 1]);
        let rules: Vec<Rule> = (0..=CONSTANTS_MAX as u16).map(|port| Rule::udp(GROUP, port)).collect();
        assert_eq!(with(&rules[1..]).len(), CONSTANTS_MAX);
        assert_eq!(with(&rules), []);
    }

    #[test]
    fn absent_tag_is_not_tag_zero() {
        assert_eq!((tag_word(&Rule::ALL), tag_word(&Rule::ALL.tagged(0))), (0, HAS_FLOW_TAG));
    }
}
