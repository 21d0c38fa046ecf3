//! The NIC's own rules (ntuple, `ethtool -N`). On an interface of several queues the NIC spreads
//! frames over them by a hash, and AF_XDP cannot move a frame to another queue: a rule that one
//! queue has brings its frames there. A rule on several queues is left to the hash.
//!
//! A NIC need not have such rules (EOPNOTSUPP), may have them switched off (`ethtool -K IF ntuple
//! on`), takes some combinations of fields and not others, and has room for some thousand at most.
//! A rule that it refuses is counted, and receives what the hash brings. Once the NIC has no place
//! it is asked no more until a rule of ours has left it, except now and then: where the driver
//! chooses no place, each question looks at the whole table.
//!
//! The rules stay in the NIC when a process is killed; `ethtool -n IF` lists them. The next process
//! that wants the same finds them there (EEXIST), and leaves them, because they may be the
//! operator's: one that leads to the same queue serves as well, any other is counted.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::steering::Rule;
use crate::sys::interface::{Ethtool, FlowAction, FlowRule};
use crate::wire::{EtherType, Protocol};

/// A full NIC is asked again at each of so many rules: others may have removed theirs.
const ASKED_AGAIN_AT: u64 = 256;

/// Our rules in one NIC.
pub(super) struct NicRules<N: FlowClassifier = Ethtool> {
    nic: N,
    placed: Mutex<HashMap<Rule, Placed>>,
    /// Where the last rule was placed.
    last: AtomicU32,
    is_full: AtomicBool,
    refused: AtomicU64,
    elsewhere: AtomicU64,
}

/// A NIC that takes rules (receive flow classification, `rxnfc` in linux/ethtool.h).
pub(super) trait FlowClassifier {
    /// Inserts a rule; returns its location, best below `below`.
    fn insert(&self, rule: &FlowRule, below: u32) -> io::Result<u32>;

    /// What it does with the frames of a rule that it has; `None` where it shows none like that.
    fn action_of(&self, rule: &FlowRule) -> io::Result<Option<FlowAction>>;

    /// Removes the rule at a location.
    fn delete(&self, location: u32) -> io::Result<()>;
}

/// What stands for a rule.
#[derive(Default)]
struct Placed {
    /// The queue of each time that the rule was added.
    queues: Vec<u16>,
    /// In the NIC: the queue, and the location where the rule is ours to delete.
    in_nic: Option<(u16, Option<u32>)>,
}

impl NicRules {
    /// Of an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// The driver has no such rules.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let nic = Ethtool::open(interface)?;
        nic.flow_rules()?;
        Ok(Self::over(nic))
    }
}

impl<N: FlowClassifier> NicRules<N> {
    fn over(nic: N) -> Self {
        Self {
            nic,
            placed: Mutex::default(),
            last: AtomicU32::new(u32::MAX),
            is_full: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
        }
    }

    /// Steers the frames of a rule to a queue, unless the rule is on another queue as well. A
    /// system call, which a NIC may take a millisecond for.
    pub(super) fn add(&self, rule: &Rule, queue: u16) {
        let (mut placed, rule) = (self.placed(), key(rule));
        let entry = placed.entry(rule).or_default();
        entry.queues.push(queue);
        self.settle(&rule, entry);
    }

    /// Takes back one [`add`](Self::add).
    pub(super) fn remove(&self, rule: &Rule, queue: u16) {
        let (mut placed, rule) = (self.placed(), key(rule));
        let Some(entry) = placed.get_mut(&rule) else { return };
        if let Some(at) = entry.queues.iter().position(|other| *other == queue) {
            entry.queues.swap_remove(at);
        }
        self.settle(&rule, entry);
        if entry.queues.is_empty() {
            placed.remove(&rule);
        }
    }

    /// Rules that the NIC has not taken.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Rules whose frames the NIC sends elsewhere, because a rule of someone else says so.
    pub(super) fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    /// Has the NIC's rule where one queue alone has ours, and only then.
    fn settle(&self, rule: &Rule, entry: &mut Placed) {
        let first = entry.queues.first().copied();
        let wanted = first.filter(|queue| entry.queues.iter().all(|other| other == queue));
        if entry.in_nic.map(|(queue, _)| queue) == wanted {
            return;
        }
        if let Some((_, location)) = entry.in_nic.take() {
            self.delete(location);
        }
        let Some(flow) = wanted.and_then(|queue| flow_rule(rule, queue)) else { return };
        if self.is_full.load(Ordering::Relaxed) && !self.refused().is_multiple_of(ASKED_AGAIN_AT) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.nic.insert(&flow, self.last.load(Ordering::Relaxed)) {
            Ok(location) => {
                self.last.store(location, Ordering::Relaxed);
                entry.in_nic = Some((flow.queue, Some(location)));
            }
            // One that was killed, or the operator, has left it there.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => match self.nic.action_of(&flow) {
                Ok(Some(FlowAction::Queue(queue))) if queue == flow.queue => entry.in_nic = Some((queue, None)),
                Ok(Some(_)) => _ = self.elsewhere.fetch_add(1, Ordering::Relaxed),
                Ok(None) | Err(_) => _ = self.refused.fetch_add(1, Ordering::Relaxed),
            },
            Err(error) => {
                self.is_full.store(error.raw_os_error() == Some(libc::ENOSPC), Ordering::Relaxed);
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn delete(&self, location: Option<u32>) {
        if let Some(location) = location {
            // Where it is gone already, so is what it did.
            let _ = self.nic.delete(location);
            self.is_full.store(false, Ordering::Relaxed);
        }
    }

    fn placed(&self) -> MutexGuard<'_, HashMap<Rule, Placed>> {
        // Each entry agrees with the NIC after every statement that can panic.
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<N: FlowClassifier> Drop for NicRules<N> {
    fn drop(&mut self) {
        let placed = core::mem::take(&mut *self.placed());
        placed.into_values().filter_map(|entry| entry.in_nic).for_each(|(_, location)| self.delete(location));
    }
}

impl FlowClassifier for Ethtool {
    fn insert(&self, rule: &FlowRule, below: u32) -> io::Result<u32> {
        self.insert_flow_rule(rule, below)
    }

    fn action_of(&self, rule: &FlowRule) -> io::Result<Option<FlowAction>> {
        Ethtool::action_of(self, rule)
    }

    fn delete(&self, location: u32) -> io::Result<()> {
        self.delete_flow_rule(location)
    }
}

/// The NIC compares the same frames whatever their tag.
fn key(rule: &Rule) -> Rule {
    Rule { flow_tag: None, ..*rule }
}

/// The NIC's form of a rule of UDP or TCP; `None` for others, which the NIC cannot tell from the
/// kernel's (ARP, IGMP, all frames).
fn flow_rule(rule: &Rule, queue: u16) -> Option<FlowRule> {
    let is_ipv4 = rule.ethertype == Some(EtherType::IPV4) && rule.destination_mac.is_none();
    let is_tcp = match rule.protocol? {
        Protocol::TCP => true,
        Protocol::UDP => false,
        _ => return None,
    };
    is_ipv4.then_some(FlowRule {
        is_tcp,
        source: rule.source,
        destination: rule.destination,
        source_port: rule.source_port,
        destination_port: rule.destination_port,
        vlan: rule.vlan,
        queue,
    })
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};
    use core::net::Ipv4Addr;

    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    /// A NIC of some places.
    #[derive(Default)]
    struct Nic {
        rules: RefCell<Vec<Option<FlowRule>>>,
        refuses: Cell<i32>,
        stands: Cell<Option<FlowAction>>,
        asked: Cell<u64>,
    }

    impl FlowClassifier for &Nic {
        fn insert(&self, rule: &FlowRule, _: u32) -> io::Result<u32> {
            self.asked.set(self.asked.get() + 1);
            match self.refuses.get() {
                0 => {
                    let mut rules = self.rules.borrow_mut();
                    rules.push(Some(*rule));
                    Ok(rules.len() as u32 - 1)
                }
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }

        fn action_of(&self, _: &FlowRule) -> io::Result<Option<FlowAction>> {
            Ok(self.stands.get())
        }

        fn delete(&self, location: u32) -> io::Result<()> {
            self.rules.borrow_mut()[location as usize] = None;
            Ok(())
        }
    }

    impl Nic {
        fn queues(&self) -> Vec<u16> {
            self.rules.borrow().iter().flatten().map(|rule| rule.queue).collect()
        }
    }

    #[test]
    fn rule_is_in_the_nic_while_one_queue_alone_has_it() {
        let nic = Nic::default();
        let rules = NicRules::over(&nic);
        let rule = Rule::udp(GROUP, 9);
        rules.add(&rule.tagged(1), 2);
        rules.add(&rule.tagged(2), 2);
        assert_eq!(nic.queues(), [2]);
        rules.add(&rule, 3);
        assert_eq!(nic.queues(), [], "the hash spreads it over both");
        rules.remove(&rule, 2);
        rules.remove(&rule, 2);
        assert_eq!(nic.queues(), [3]);
        rules.remove(&rule, 3);
        assert_eq!((nic.queues().len(), rules.placed().len()), (0, 0));
        rules.add(&rule, 1);
        drop(rules);
        assert_eq!(nic.queues(), []);
    }

    #[test]
    fn rule_that_stands_in_the_nic_is_left_and_counts_by_where_it_leads() {
        let nic = Nic::default();
        let rules = NicRules::over(&nic);
        nic.refuses.set(libc::EEXIST);
        let count_with = |stands| {
            nic.stands.set(stands);
            rules.add(&Rule::udp(GROUP, 9), 2);
            let is_in_nic = rules.placed().values().all(|entry| entry.in_nic == Some((2, None)));
            rules.remove(&Rule::udp(GROUP, 9), 2);
            (is_in_nic, rules.elsewhere(), rules.refused())
        };
        assert_eq!(count_with(Some(FlowAction::Queue(2))), (true, 0, 0));
        assert_eq!(count_with(Some(FlowAction::Queue(3))), (false, 1, 0));
        assert_eq!(count_with(Some(FlowAction::Other)), (false, 2, 0));
        assert_eq!(count_with(None), (false, 2, 1), "which rule it has, it does not show");
    }

    #[test]
    fn refused_rule_is_counted_and_one_that_was_left_there_is_not_deleted() {
        let nic = Nic::default();
        let rules = NicRules::over(&nic);
        nic.refuses.set(libc::EINVAL);
        rules.add(&Rule::udp(GROUP, 9), 0);
        rules.remove(&Rule::udp(GROUP, 9), 0);
        assert_eq!(rules.refused(), 1);
        nic.refuses.set(libc::EEXIST);
        nic.stands.set(Some(FlowAction::Queue(0)));
        rules.add(&Rule::udp(GROUP, 9), 0);
        rules.remove(&Rule::udp(GROUP, 9), 0);
        assert_eq!((rules.refused(), nic.queues().len()), (1, 0));
    }

    #[test]
    fn full_nic_is_asked_again_when_a_rule_has_left_it_and_now_and_then() {
        let nic = Nic::default();
        let rules = NicRules::over(&nic);
        rules.add(&Rule::udp(GROUP, 1), 0);
        nic.refuses.set(libc::ENOSPC);
        (0..2 * ASKED_AGAIN_AT).for_each(|port| rules.add(&Rule::udp(GROUP, 100 + port as u16), 0));
        assert_eq!((nic.asked.get(), rules.refused()), (3, 2 * ASKED_AGAIN_AT));
        nic.refuses.set(0);
        rules.remove(&Rule::udp(GROUP, 1), 0);
        rules.add(&Rule::udp(GROUP, 2), 0);
        assert_eq!((nic.asked.get(), nic.queues().len()), (4, 1));
    }

    #[test]
    fn nic_is_not_asked_for_what_is_no_flow() {
        let nic = Nic::default();
        let rules = NicRules::over(&nic);
        [Rule::ALL, Rule::arp(), Rule::igmp()].iter().for_each(|rule| rules.add(rule, 0));
        assert_eq!((rules.refused(), nic.queues().len()), (0, 0));
    }
}
