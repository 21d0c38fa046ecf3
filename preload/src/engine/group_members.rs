//! The groups that have members on this host, as the kernel says: a datagram to such a group is for
//! them as well (`IP_MULTICAST_LOOP`). The kernel tells of no change, so the background thread
//! reads its table again and again, and no send waits for that: only the first one reads it, and
//! one after this process has joined a group.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::fs;
use std::time::Duration;

use super::Engine;
use crate::{background, config};

/// Time between two reads while datagrams go to groups; otherwise the table is read as often as the
/// listing is written. A member of another program that joins within this time misses what is sent
/// before it is over.
pub(crate) const READ_EVERY: Duration = Duration::from_millis(100);

/// Counts the groups that this process has joined or left: what was read before says less.
static JOINS: AtomicU64 = AtomicU64::new(0);

/// The kernel has taken an option of a membership.
pub(crate) fn note_join() {
    JOINS.fetch_add(1, Ordering::Release);
}

/// The groups with members on our interface.
#[derive(Clone, Debug)]
pub(crate) struct GroupMembers {
    /// In ascending order. `None`: the table could not be read, and each may have some.
    groups: Option<Vec<Ipv4Addr>>,
    joins: u64,
    /// A datagram has gone to a group since they were read.
    pub(crate) is_used: bool,
}

impl GroupMembers {
    /// Reads the kernel's table. A few system calls.
    pub(crate) fn read() -> Self {
        // Before the table, which then has at least as many.
        let joins = JOINS.load(Ordering::Acquire);
        let table = fs::read_to_string("/proc/thread-self/net/igmp").ok();
        let groups = table.map(|table| listed(&table, config::system().interface_idx));
        Self { groups, joins, is_used: false }
    }

    fn is_current(&self) -> bool {
        self.joins == JOINS.load(Ordering::Acquire)
    }

    fn has(&self, group: Ipv4Addr) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.binary_search(&group).is_ok())
    }
}

impl Engine {
    /// Whether a group has members on this host, of this program or of others.
    pub(crate) fn has_members(&mut self, group: Ipv4Addr) -> bool {
        let members = match &mut self.group_members {
            Some(members) if members.is_current() && background::is_running() => members,
            members => members.insert(GroupMembers::read()),
        };
        members.is_used = true;
        members.has(group)
    }
}

/// The groups of an interface in `/proc/net/igmp`, in ascending order: a line for each interface,
/// and below it an indented line for each group.
fn listed(table: &str, interface_idx: u32) -> Vec<Ipv4Addr> {
    let mut is_on_interface = false;
    let mut groups = Vec::new();
    for line in table.lines().skip(1) {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if !line.starts_with('\t') {
            is_on_interface = first.parse() == Ok(interface_idx);
        } else if is_on_interface && let Ok(word) = u32::from_str_radix(first, 16) {
            // In the order of the network.
            groups.push(Ipv4Addr::from(word.to_ne_bytes()));
        }
    }
    groups.sort_unstable();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_a_member_on_its_own_interface_alone() {
        let table = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
                     1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
                     7\tveth0     :     2      V3\n\t\t\t\t010101EF     2 0:00000000\t\t0\n\
                     \t\t\t\t010000E0     1 0:00000000\t\t0\n";
        assert_eq!(listed(table, 7), [Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::new(239, 1, 1, 1)]);
        assert_eq!(listed(table, 1), [Ipv4Addr::new(224, 0, 0, 1)]);
        assert!(listed(table, 3).is_empty());
    }
}
