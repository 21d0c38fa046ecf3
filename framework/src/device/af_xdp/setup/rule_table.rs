//! The rules in place, so that one more or one less costs the same however many there are: a
//! program with sockets adds one for each connection, and has ten thousand.
//!
//! ```text
//!   insert, remove ──▶ rules by id, ids by key ──▶ shapes, tags, constants: what the program must hold
//! ```

use std::collections::{BTreeMap, HashMap};

use crate::device::af_xdp::program::steering::{CONSTANTS_MAX, Constant, Key, Shape, constants, sort_shapes};
use crate::device::steering::{Fields, Rule, RuleId};

/// Rules with their queues.
#[derive(Default)]
pub(super) struct RuleTable {
    /// By the number of the id, so the oldest first.
    rules: BTreeMap<u32, (Rule, u16)>,
    /// The rules of a key, the oldest first: the map has one entry for all of them.
    ids: HashMap<Key, Vec<u32>>,
    /// The shapes in use in the program's order, and how many rules have each.
    shapes: Vec<(Shape, usize)>,
    /// Rules with a tag.
    tags: usize,
    /// A connection had a rule of its own.
    had_connections: bool,
    next_id: u32,
}

impl RuleTable {
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.ids.contains_key(key)
    }

    /// Adds a rule.
    pub(super) fn insert(&mut self, rule: &Rule, queue: u16) -> RuleId {
        let (id, shape) = (self.next_id, Shape::of(rule));
        self.next_id += 1;
        self.rules.insert(id, (*rule, queue));
        self.ids.entry(Key::new(rule, queue)).or_default().push(id);
        match self.shapes.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, count)) => *count += 1,
            None => {
                self.shapes.push((shape, 1));
                sort_shapes(&mut self.shapes, |(shape, _)| *shape);
            }
        }
        self.tags += usize::from(rule.flow_tag.is_some());
        self.had_connections |= is_of_a_connection(shape);
        RuleId(id)
    }

    /// Removes a rule; `None` where there is none of this id.
    pub(super) fn remove(&mut self, id: RuleId) -> Option<(Rule, u16)> {
        let (rule, queue) = self.rules.remove(&id.0)?;
        let (key, shape) = (Key::new(&rule, queue), Shape::of(&rule));
        if let Some(ids) = self.ids.get_mut(&key) {
            ids.retain(|other| *other != id.0);
            if ids.is_empty() {
                self.ids.remove(&key);
            }
        }
        if let Some((_, count)) = self.shapes.iter_mut().find(|(known, _)| *known == shape) {
            *count -= 1;
        }
        self.shapes.retain(|(_, count)| *count > 0);
        self.tags -= usize::from(rule.flow_tag.is_some());
        Some((rule, queue))
    }

    /// The oldest rule with this key.
    pub(super) fn oldest_with(&self, key: &Key) -> Option<&Rule> {
        let id = self.ids.get(key)?.first()?;
        self.rules.get(id).map(|(rule, _)| rule)
    }

    /// The shapes in use, in the order in which the program tries them.
    pub(super) fn shapes(&self) -> Vec<Shape> {
        self.shapes.iter().map(|(shape, _)| *shape).collect()
    }

    /// Whether a rule has a tag.
    pub(super) fn has_tags(&self) -> bool {
        self.tags > 0
    }

    /// The rules that the program compares by itself, if they are few. Once a connection has had a
    /// rule, all are looked up: a program with rules in it is exchanged at each change, which takes
    /// the kernel 12 ms, and the next connection is a change.
    pub(super) fn constants(&self, queues: u16) -> Vec<Constant> {
        if self.had_connections || self.len() > CONSTANTS_MAX * usize::from(queues) {
            return Vec::new();
        }
        constants(self.rules.values().map(|(rule, queue)| (rule, *queue)), queues)
    }
}

/// Whether rules of this shape name both ends of a connection.
fn is_of_a_connection(shape: Shape) -> bool {
    [Fields::SOURCE, Fields::SOURCE_PORT, Fields::DESTINATION, Fields::DESTINATION_PORT, Fields::PROTOCOL]
        .iter()
        .all(|&field| shape.has(field))
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::device::af_xdp::program::steering::tag_word;

    const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    fn connection(port: u16) -> Rule {
        Rule { source: Some(PEER), source_port: Some(5_000), ..Rule::tcp(Ipv4Addr::new(192, 0, 2, 2), port) }
    }

    #[test]
    fn map_entry_stays_with_the_oldest_of_equal_rules() {
        let mut table = RuleTable::default();
        let (first, second) = (Rule::udp(GROUP, 1).tagged(1), Rule::udp(GROUP, 1).tagged(2));
        let ids = [&first, &second, &second].map(|rule| table.insert(rule, 0));
        let key = Key::new(&first, 0);
        let word = |table: &RuleTable| table.oldest_with(&key).map(tag_word);
        assert_eq!(word(&table), Some(tag_word(&first)));
        assert_eq!(table.remove(ids[0]), Some((first, 0)));
        assert_eq!(word(&table), Some(tag_word(&second)));
        assert_eq!(table.remove(ids[0]), None);
        ids[1..].iter().for_each(|id| _ = table.remove(*id));
        assert_eq!((word(&table), table.has(&key), table.has_tags(), table.len()), (None, false, false, 0));
    }

    #[test]
    fn shape_is_in_use_until_its_last_rule_goes() {
        let mut table = RuleTable::default();
        let [arp, one, two] =
            [Rule::arp(), Rule::udp(GROUP, 1), Rule::udp(GROUP, 2)].map(|rule| table.insert(&rule, 0));
        let both = [Shape::of(&Rule::udp(GROUP, 1)), Shape::of(&Rule::arp())];
        assert_eq!(table.shapes(), both);
        table.remove(one);
        assert_eq!(table.shapes(), both);
        table.remove(two);
        assert_eq!(table.shapes(), both[1..]);
        table.remove(arp);
        assert_eq!(table.shapes(), []);
    }

    #[test]
    fn connections_are_looked_up_from_the_first_on() {
        let mut table = RuleTable::default();
        table.insert(&Rule::udp(GROUP, 1), 0);
        assert_eq!(table.constants(1).len(), 1);
        let id = table.insert(&connection(40_000), 0);
        assert_eq!(table.constants(1), []);
        table.remove(id);
        assert_eq!(table.constants(1), []);
    }
}
