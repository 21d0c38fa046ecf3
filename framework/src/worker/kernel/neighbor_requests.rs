//! Whose MAC addresses a worker wants to be known, and when the kernel is asked for them.
//!
//! A wish is one request. For a neighbor that the kernel does not know it sends its ARP requests;
//! of one that it knows it hears that somebody uses it, and checks it if it is stale. It cannot see
//! that by itself, as our frames do not pass it, and what it does not see used it neither checks
//! nor keeps. So a worker repeats a wish for as long as it uses a neighbor;
//! [`Neighbors`](crate::proto::Neighbors) do so each 30 s.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::tables::{Knowledge, Trust};
use crate::worker::spsc::lossless::Consumer;

/// Between two requests for one neighbor: RFC 1122 2.3.2.1 allows one a second.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// For how long a neighbor counts as wanted: four times as long as a worker waits before it repeats
/// a wish.
const WANTED_FOR: Duration = Duration::from_secs(120);

pub(super) struct NeighborRequests {
    ring: Consumer<Ipv4Addr>,
    wanted: BTreeMap<Ipv4Addr, Wanted>,
    wanted_max: usize,
}

struct Wanted {
    wished: Instant,
    asked: Option<Instant>,
    /// It was wished for since it was asked for.
    is_due: bool,
    /// It was asked for, and what came of it is not known yet.
    is_open: bool,
}

/// What was in the ring.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Collected {
    pub(super) requests: u64,
    /// Of them without room on the list: the worker may wish again.
    pub(super) refused: u64,
}

impl NeighborRequests {
    /// For a host with room for `wanted_max` neighbors. No more than so many requests are asked in
    /// a second.
    pub(super) fn new(wanted_max: usize, ring: Consumer<Ipv4Addr>) -> Self {
        Self { ring, wanted: BTreeMap::new(), wanted_max }
    }

    /// Takes what the worker has wished meanwhile.
    pub(super) fn collect(&mut self, now: Instant) -> Collected {
        let Self { ring, wanted, wanted_max } = self;
        wanted.retain(|_, wanted| now.duration_since(wanted.wished) < WANTED_FOR);
        let mut collected = Collected::default();
        ring.pop_each(usize::MAX, |address| {
            collected.requests += 1;
            if let Some(wanted) = wanted.get_mut(&address) {
                (wanted.wished, wanted.is_due) = (now, true);
            } else if wanted.len() < *wanted_max || make_room(wanted, now) {
                wanted.insert(address, Wanted { wished: now, asked: None, is_due: true, is_open: false });
            } else {
                collected.refused += 1;
            }
        });
        collected
    }

    /// Whether a neighbor was wished for lately.
    pub(super) fn wants(&self, address: Ipv4Addr) -> bool {
        self.wanted.contains_key(&address)
    }

    /// The neighbors that are due to be asked for.
    pub(super) fn due(&self, now: Instant, known: impl Fn(Ipv4Addr) -> Knowledge) -> Vec<Ipv4Addr> {
        let is_due = |address: Ipv4Addr, wanted: &Wanted| {
            // Of a configured neighbor the kernel would make an ordinary one (NEIGH_UPDATE_F_USE in
            // net/core/neighbor.c).
            wanted.is_due && wanted.may_be_asked(now) && known(address) != Knowledge::Known(Trust::Configured)
        };
        let due = self.wanted.iter().filter(|(address, wanted)| is_due(**address, wanted));
        due.map(|(address, _)| *address).collect()
    }

    /// The kernel was asked.
    pub(super) fn asked(&mut self, address: Ipv4Addr, now: Instant) {
        if let Some(wanted) = self.wanted.get_mut(&address) {
            (wanted.asked, wanted.is_due, wanted.is_open) = (Some(now), false, true);
        }
    }

    /// How many of those that were asked for turn out not to answer.
    pub(super) fn unanswered(&mut self, known: impl Fn(Ipv4Addr) -> Knowledge) -> u64 {
        let mut unanswered = 0;
        for (address, wanted) in self.wanted.iter_mut().filter(|(_, wanted)| wanted.is_open) {
            match known(*address) {
                Knowledge::Unknown | Knowledge::Known(_) => {}
                Knowledge::Silent => {
                    wanted.is_open = false;
                    unanswered += 1;
                }
            }
        }
        unanswered
    }
}

impl Wanted {
    fn may_be_asked(&self, now: Instant) -> bool {
        self.asked.is_none_or(|asked| now.duration_since(asked) >= ASK_INTERVAL)
    }
}

/// Lets the neighbor go that was wished for longest ago. One that was just asked for stays, so that
/// nobody is asked for too often.
fn make_room(wanted: &mut BTreeMap<Ipv4Addr, Wanted>, now: Instant) -> bool {
    let idle = wanted.iter().filter(|(_, wanted)| !wanted.is_due && wanted.may_be_asked(now));
    let oldest = idle.min_by_key(|(_, wanted)| wanted.wished).map(|(address, _)| *address);
    oldest.and_then(|oldest| wanted.remove(&oldest)).is_some()
}
