//! The groups that have members on this host, as the kernel says: a datagram to such a group is for
//! them as well (`IP_MULTICAST_LOOP`). The kernel tells of no change, so the background thread
//! reads its table again and again, and no send waits for that: only the first one reads it, and
//! one after this process has joined a group.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Engine;
use crate::{background, config};

/// Time between two reads while datagrams go to groups; otherwise the table is read as often as the
/// listing is written. A member of another program that joins within this time misses what is sent
/// before it is over.
const READ_EVERY: Duration = Duration::from_millis(100);

/// Counts the groups that this process has joined or left: what was read before says less.
static JOINS: AtomicU64 = AtomicU64::new(0);

/// The kernel has taken an option of a membership.
pub(crate) fn note_join() {
    JOINS.fetch_add(1, Ordering::Release);
}

/// A datagram has gone to a group, at all and since the table was last read.
static HAS_SENT: AtomicBool = AtomicBool::new(false);
static SENDS: AtomicBool = AtomicBool::new(false);

/// What the background thread has read, and how often: the engines take it without waiting.
static LATEST: Mutex<Option<GroupMembers>> = Mutex::new(None);
static READS: AtomicU64 = AtomicU64::new(0);

/// The groups with members on our interface.
#[derive(Clone, Debug)]
pub(crate) struct GroupMembers {
    /// In ascending order. `None`: the table could not be read, and each may have some.
    groups: Option<Arc<[Ipv4Addr]>>,
    joins: u64,
    at: Instant,
    /// The reads of the background thread that it is as new as.
    reads: u64,
}

impl GroupMembers {
    /// Reads the kernel's table. A few system calls.
    fn read() -> Self {
        let reads = READS.load(Ordering::Acquire);
        // Before the table, which then has at least as many.
        let joins = JOINS.load(Ordering::Acquire);
        let table = fs::read_to_string("/proc/thread-self/net/igmp").ok();
        let groups = table.map(|table| listed(&table, config::system().interface_idx).into());
        Self { groups, joins, at: Instant::now(), reads }
    }

    fn is_current(&self) -> bool {
        // A child of `fork` may have no background thread.
        self.joins == JOINS.load(Ordering::Acquire) && (background::is_running() || self.at.elapsed() < READ_EVERY)
    }

    fn has(&self, group: Ipv4Addr) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.binary_search(&group).is_ok())
    }
}

/// Whether the background thread is to read the table: `since` the last time, or where the listing
/// `is_due`.
pub(crate) fn is_to_be_read(since: Option<Instant>, is_due: bool) -> bool {
    match (HAS_SENT.load(Ordering::Relaxed), SENDS.load(Ordering::Relaxed)) {
        (false, _) => false,
        (true, false) => is_due,
        (true, true) => since.is_none_or(|at| at.elapsed() >= READ_EVERY),
    }
}

/// Reads the table for all engines. The background thread alone calls this, within none of them.
pub(crate) fn read_for_all() {
    SENDS.store(false, Ordering::Relaxed);
    let members = GroupMembers::read();
    // A child may have been forked while it was locked.
    if let Ok(mut latest) = LATEST.try_lock() {
        *latest = Some(members);
        READS.fetch_add(1, Ordering::Release);
    }
}

impl Engine {
    /// Whether a group has members on this host, of this program or of others.
    pub(crate) fn has_members(&mut self, group: Ipv4Addr) -> bool {
        if !SENDS.load(Ordering::Relaxed) {
            HAS_SENT.store(true, Ordering::Relaxed);
            SENDS.store(true, Ordering::Relaxed);
        }
        let reads = READS.load(Ordering::Acquire);
        if let Some(known) = self.group_members.as_mut().filter(|known| known.reads != reads)
            // The background thread may just store another one.
            && let Ok(latest) = LATEST.try_lock()
            && let Some(latest) = &*latest
        {
            if latest.joins >= known.joins {
                known.clone_from(latest);
            }
            known.reads = reads;
        }
        let members = match &mut self.group_members {
            Some(members) if members.is_current() => members,
            members => members.insert(GroupMembers::read()),
        };
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
