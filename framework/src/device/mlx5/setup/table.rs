//! The rules of a device: those installed, and those that wait for their queue.
//!
//! A rule may be set before the worker has opened the queue. Until then the rule must not be in the
//! NIC, because its frames would go to a ring without buffers instead of to the kernel, which could
//! process them. So the rules of a queue are installed when the queue is ready, and removed before
//! it ends. If queues share rules (a hash spreads over them), they have one *target*.
//!
//! The same rule set twice for a target is installed once, until both are removed. If the NIC
//! cannot serve two rules at the same time, the second is refused when it is set, even if their
//! queues are not open yet. Otherwise a feed would stop on the day when both are open.

use super::steering::{exclude, priority};
use crate::device::mlx5::error::CAPABILITIES;
use crate::device::steering::{Rule, RuleId, SteerError};

/// The target of rules.
pub(crate) trait Target {
    /// A rule that is installed until this is dropped.
    type InstalledRule;

    /// Installs a rule that steers to this target. An error is the system's error number.
    fn install(&self, rule: &Rule) -> Result<Self::InstalledRule, i32>;
}

/// The rules of a device.
pub(crate) struct Table<T: Target> {
    entries: Vec<RuleEntry>,
    // Before the targets: rules are dropped before their destinations.
    standing: Vec<InstalledRule<T>>,
    targets: Vec<Option<T>>,
    next_id: u32,
    rules_max: usize,
}

/// A rule that was set.
struct RuleEntry {
    id: RuleId,
    rule: Rule,
    target: usize,
}

/// An installed rule.
struct InstalledRule<T: Target> {
    rule: Rule,
    target: usize,
    _flow: T::InstalledRule,
}

impl<T: Target> Table<T> {
    /// A table without rules, for `targets` targets that are not open.
    pub(crate) fn new(targets: usize, rules_max: usize) -> Self {
        let targets = (0..targets).map(|_| None).collect();
        Self { entries: Vec::new(), standing: Vec::new(), targets, next_id: 0, rules_max }
    }

    /// Adds a rule, which passed [`Rule::check`]. If its target is open the rule is installed when
    /// this returns.
    pub(crate) fn add(&mut self, rule: &Rule, target: usize) -> Result<RuleId, SteerError> {
        if self.entries.len() >= self.rules_max {
            return Err(SteerError::TableFull { rules_max: self.rules_max });
        }
        if let Some(other) = self.excluded_by(rule, target) {
            return Err(SteerError::Overlaps { other });
        }
        self.install(rule, target)?;
        let id = RuleId(self.next_id);
        self.next_id += 1;
        self.entries.push(RuleEntry { id, rule: *rule, target });
        Ok(id)
    }

    /// Removes a rule, and returns it.
    pub(crate) fn remove(&mut self, id: RuleId) -> Result<Rule, SteerError> {
        let place = self.entries.iter().position(|entry| entry.id == id).ok_or(SteerError::NoRule { id })?;
        let RuleEntry { rule, target, .. } = self.entries.remove(place);
        if !self.entries.iter().any(|entry| entry.rule == rule && entry.target == target) {
            self.standing.retain(|standing| standing.rule != rule || standing.target != target);
        }
        Ok(rule)
    }

    /// Installs the rules that wait for `target`. If one fails all are removed again, and the
    /// target stays closed.
    pub(crate) fn open(&mut self, target: usize, opened: T) -> Result<(), (Rule, SteerError)> {
        self.targets[target] = Some(opened);
        let mut waiting: Vec<Rule> = self.of(target).map(|entry| entry.rule).collect();
        // If no priority counts, the first entry with a set of fields determines when that set is
        // tested.
        waiting.sort_by_key(priority);
        for rule in waiting {
            if let Err(error) = self.install(&rule, target) {
                self.close(target);
                return Err((rule, error));
            }
        }
        Ok(())
    }

    /// Removes the rules of `target` from the device; they wait again.
    pub(crate) fn close(&mut self, target: usize) {
        self.standing.retain(|standing| standing.target != target);
        self.targets[target] = None;
    }

    /// An existing rule beside which the NIC cannot serve this one.
    fn excluded_by(&self, rule: &Rule, target: usize) -> Option<Rule> {
        let elsewhere = |entry: &&RuleEntry| entry.target != target || entry.rule.flow_tag != rule.flow_tag;
        self.entries.iter().filter(elsewhere).map(|entry| entry.rule).find(|other| exclude(rule, other))
    }

    fn of(&self, target: usize) -> impl Iterator<Item = &RuleEntry> {
        self.entries.iter().filter(move |entry| entry.target == target)
    }

    fn install(&mut self, rule: &Rule, target: usize) -> Result<(), SteerError> {
        let Some(open) = &self.targets[target] else { return Ok(()) };
        if self.standing.iter().any(|standing| standing.rule == *rule && standing.target == target) {
            return Ok(());
        }
        match open.install(rule) {
            Ok(flow) => self.standing.push(InstalledRule { rule: *rule, target, _flow: flow }),
            Err(errno) => return Err(refused(errno, rule, self.standing.len())),
        }
        Ok(())
    }
}

/// Maps the system's error number of `ibv_create_flow` (mlx5.md 1.3; linux
/// drivers/infiniband/hw/mlx5/fs.c).
fn refused(errno: i32, rule: &Rule, standing: usize) -> SteerError {
    match errno {
        libc::ENOSPC | libc::ENOMEM => SteerError::TableFull { rules_max: standing },
        libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT => SteerError::Unsupported { fields: rule.fields() },
        libc::EPERM | libc::EACCES => SteerError::NoPermission { capabilities: CAPABILITIES },
        errno => SteerError::Refused { errno },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use core::cell::{Cell, RefCell};
    use core::net::Ipv4Addr;
    use std::rc::Rc;

    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    /// A fake device that records its rules, with room for the given number.
    #[derive(Clone, Default)]
    struct Fake(Rc<Device>);

    struct Device {
        standing: RefCell<Vec<(usize, Rule)>>,
        fits: Cell<usize>,
        errno: Cell<i32>,
    }

    impl Default for Device {
        fn default() -> Self {
            Self { standing: RefCell::default(), fits: Cell::new(usize::MAX), errno: Cell::new(libc::ENOSPC) }
        }
    }

    struct FakeTarget(usize, Fake);

    struct FakeFlow(usize, Rule, Fake);

    impl Target for FakeTarget {
        type InstalledRule = FakeFlow;

        fn install(&self, rule: &Rule) -> Result<FakeFlow, i32> {
            let Self(target, fake) = self;
            let mut standing = fake.0.standing.borrow_mut();
            if standing.len() >= fake.0.fits.get() {
                return Err(fake.0.errno.get());
            }
            standing.push((*target, *rule));
            Ok(FakeFlow(*target, *rule, fake.clone()))
        }
    }

    impl Drop for FakeFlow {
        fn drop(&mut self) {
            let mut standing = self.2.0.standing.borrow_mut();
            let place = standing.iter().position(|flow| *flow == (self.0, self.1)).unwrap();
            standing.remove(place);
        }
    }

    impl Fake {
        fn target(&self, target: usize) -> FakeTarget {
            FakeTarget(target, self.clone())
        }

        fn standing(&self) -> Vec<(usize, Rule)> {
            self.0.standing.borrow().clone()
        }
    }

    fn table() -> (Table<FakeTarget>, Fake) {
        (Table::new(2, 8), Fake::default())
    }

    fn rule(port: u16) -> Rule {
        Rule::udp(GROUP, port)
    }

    #[test]
    fn rules_wait_until_their_queue_is_open_and_wait_again_when_it_goes() {
        let (mut table, device) = table();
        table.add(&rule(1), 0).unwrap();
        table.add(&rule(2), 1).unwrap();
        assert_eq!(device.standing(), []);
        table.open(0, device.target(0)).unwrap();
        assert_eq!(device.standing(), [(0, rule(1))]);
        table.add(&rule(3), 0).unwrap();
        table.open(1, device.target(1)).unwrap();
        assert_eq!(device.standing(), [(0, rule(1)), (0, rule(3)), (1, rule(2))]);
        table.close(0);
        assert_eq!(device.standing(), [(1, rule(2))]);
        table.open(0, device.target(0)).unwrap();
        assert_eq!(device.standing().len(), 3);
    }

    #[test]
    fn refused_rule_leaves_the_others_in_place() {
        let (mut table, device) = table();
        table.open(0, device.target(0)).unwrap();
        table.add(&rule(1), 0).unwrap();
        device.0.fits.set(1);
        assert_eq!(table.add(&rule(2), 0), Err(SteerError::TableFull { rules_max: 1 }));
        device.0.errno.set(libc::EOPNOTSUPP);
        assert_eq!(table.add(&rule(2), 0), Err(SteerError::Unsupported { fields: rule(2).fields() }));
        device.0.errno.set(libc::EEXIST);
        assert_eq!(table.add(&rule(2), 0), Err(SteerError::Refused { errno: libc::EEXIST }));
        assert_eq!(device.standing(), [(0, rule(1))]);
        device.0.fits.set(2);
        table.add(&rule(2), 0).unwrap();
    }

    #[test]
    fn rules_that_the_device_cannot_both_serve_are_refused_though_their_queues_wait() {
        let (mut table, device) = table();
        let id = table.add(&rule(1), 0).unwrap();
        let source_specific = rule(1).from(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(table.add(&source_specific, 1), Err(SteerError::Overlaps { other: rule(1) }));
        assert_eq!(table.add(&rule(1).tagged(5), 0), Err(SteerError::Overlaps { other: rule(1) }));
        // On one queue and with one tag it does not matter which of them takes a frame.
        table.add(&source_specific, 0).unwrap();
        // The group itself goes to both.
        table.add(&rule(2), 0).unwrap();
        table.add(&rule(2), 1).unwrap();
        table.open(0, device.target(0)).unwrap();
        assert_eq!(device.standing(), [(0, source_specific), (0, rule(1)), (0, rule(2))], "not the more telling first");
        table.remove(id).unwrap();
        assert_eq!(table.add(&rule(1), 1), Err(SteerError::Overlaps { other: source_specific }));
    }

    #[test]
    fn queue_whose_rules_do_not_fit_stays_closed() {
        let (mut table, device) = table();
        table.open(1, device.target(1)).unwrap();
        table.add(&rule(9), 1).unwrap();
        table.add(&rule(1), 0).unwrap();
        table.add(&rule(2), 0).unwrap();
        device.0.fits.set(2);
        assert_eq!(table.open(0, device.target(0)), Err((rule(2), SteerError::TableFull { rules_max: 2 })));
        assert_eq!(device.standing(), [(1, rule(9))]);
        assert!(table.targets[0].is_none());
    }

    #[test]
    fn rule_that_was_given_twice_stands_once_until_both_are_taken_back() {
        let (mut table, device) = table();
        table.open(0, device.target(0)).unwrap();
        let (one, two) = (table.add(&rule(1), 0).unwrap(), table.add(&rule(1), 0).unwrap());
        assert_eq!(device.standing().len(), 1);
        table.remove(one).unwrap();
        assert_eq!(device.standing().len(), 1);
        table.remove(two).unwrap();
        assert_eq!(device.standing(), []);
        assert_eq!(table.remove(two), Err(SteerError::NoRule { id: two }));
    }

    #[test]
    fn rule_of_a_closed_queue_can_be_taken_back() {
        let (mut table, device) = table();
        let id = table.add(&rule(1), 0).unwrap();
        table.remove(id).unwrap();
        table.open(0, device.target(0)).unwrap();
        assert_eq!(device.standing(), []);
    }

    #[test]
    fn more_rules_than_were_asked_for_are_refused() {
        let (mut table, _device) = table();
        (0..8).for_each(|port| _ = table.add(&rule(port), 0).unwrap());
        assert_eq!(table.add(&rule(8), 0), Err(SteerError::TableFull { rules_max: 8 }));
    }

    #[test]
    fn table_that_goes_takes_its_rules_along() {
        let (mut table, device) = table();
        table.open(0, device.target(0)).unwrap();
        table.add(&rule(1), 0).unwrap();
        drop(table);
        assert_eq!(device.standing(), []);
    }

    #[test]
    fn refusal_for_lack_of_rights_names_the_capabilities() {
        for errno in [libc::EPERM, libc::EACCES] {
            let said = refused(errno, &Rule::ALL, 0).to_string();
            assert!(said.contains("`setcap cap_net_raw,"), "{said}");
        }
    }
}
