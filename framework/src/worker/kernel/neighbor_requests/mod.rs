//! The neighbors that a worker requests, and the schedule of requests to the kernel.
//!
//! When a worker requests an unknown neighbor, the kernel sends ARP requests. When it requests a
//! known one, the kernel learns that the neighbor is in use, and checks it if it is stale. Our
//! frames bypass the kernel, so it cannot see by itself that a neighbor is in use, and it keeps
//! only neighbors in use. So a worker repeats the request as long as it uses a neighbor;
//! [`Neighbors`](crate::proto::Neighbors) do so each 30 s.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::tables::{NeighborKnowledge, NeighborOrigin};
use crate::worker::spsc::lossless::Consumer;

/// Interval between two requests for one neighbor: RFC 1122 2.3.2.1 allows one per second.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a neighbor counts as wanted after a request: four times the interval at which a worker
/// repeats it.
const WANTED_FOR: Duration = Duration::from_secs(120);

pub(super) struct NeighborRequests {
    ring: Consumer<Ipv4Addr>,
    wanted: BTreeMap<Ipv4Addr, Wanted>,
    wanted_max: usize,
}

struct Wanted {
    requested_at: Instant,
    asked: Option<Instant>,
    /// The worker has requested it since the kernel was last asked.
    is_due: bool,
    /// The kernel was asked, and the result is not known yet.
    is_open: bool,
}

/// The result of reading the ring.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Collected {
    pub(super) requests: u64,
    /// Requests without room on the list: the worker may repeat them.
    pub(super) refused: u64,
}

impl NeighborRequests {
    /// For a host with room for `wanted_max` neighbors, which is also the maximum of requests per
    /// second.
    pub(super) fn new(wanted_max: usize, ring: Consumer<Ipv4Addr>) -> Self {
        Self { ring, wanted: BTreeMap::new(), wanted_max }
    }

    /// Collects the worker's new requests.
    pub(super) fn collect(&mut self, now: Instant) -> Collected {
        let Self { ring, wanted, wanted_max } = self;
        wanted.retain(|_, wanted| now.duration_since(wanted.requested_at) < WANTED_FOR);
        let mut collected = Collected::default();
        ring.pop_each(usize::MAX, |address| {
            collected.requests += 1;
            if let Some(wanted) = wanted.get_mut(&address) {
                (wanted.requested_at, wanted.is_due) = (now, true);
            } else if wanted.len() < *wanted_max || make_room(wanted, now) {
                wanted.insert(address, Wanted { requested_at: now, asked: None, is_due: true, is_open: false });
            } else {
                collected.refused += 1;
            }
        });
        collected
    }

    /// Whether the worker has made requests that are not collected yet.
    pub(super) fn are_waiting(&mut self) -> bool {
        !self.ring.is_empty()
    }

    /// Whether a request waits for its time.
    pub(super) fn are_waiting_for_time(&self, known: impl Fn(Ipv4Addr) -> NeighborKnowledge) -> bool {
        self.wanted.iter().any(|(address, wanted)| wanted.is_due && is_resolved_by_kernel(known(*address)))
    }

    /// Whether a neighbor was requested recently.
    pub(super) fn wants(&self, address: Ipv4Addr) -> bool {
        self.wanted.contains_key(&address)
    }

    /// The neighbors for which a request is due.
    pub(super) fn due(&self, now: Instant, known: impl Fn(Ipv4Addr) -> NeighborKnowledge) -> Vec<Ipv4Addr> {
        let is_due = |address: Ipv4Addr, wanted: &Wanted| {
            wanted.is_due && wanted.may_be_asked(now) && is_resolved_by_kernel(known(address))
        };
        let due = self.wanted.iter().filter(|(address, wanted)| is_due(**address, wanted));
        due.map(|(address, _)| *address).collect()
    }

    /// Records that the kernel was asked.
    pub(super) fn asked(&mut self, address: Ipv4Addr, now: Instant) {
        if let Some(wanted) = self.wanted.get_mut(&address) {
            (wanted.asked, wanted.is_due, wanted.is_open) = (Some(now), false, true);
        }
    }

    /// Counts the asked neighbors that turn out not to answer.
    pub(super) fn unanswered(&mut self, known: impl Fn(Ipv4Addr) -> NeighborKnowledge) -> u64 {
        let mut unanswered = 0;
        for (address, wanted) in self.wanted.iter_mut().filter(|(_, wanted)| wanted.is_open) {
            match known(*address) {
                NeighborKnowledge::Unknown | NeighborKnowledge::TablesState(_) => {}
                NeighborKnowledge::Silent => {
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

/// Whether the kernel may be asked for a neighbor: it would turn a static one into an ordinary one
/// (NEIGH_UPDATE_F_USE in net/core/neighbor.c).
fn is_resolved_by_kernel(known: NeighborKnowledge) -> bool {
    known != NeighborKnowledge::TablesState(NeighborOrigin::Configured)
}

/// Removes the neighbor with the oldest request. A neighbor that was just requested stays, so that
/// the kernel is not asked for it too often.
fn make_room(wanted: &mut BTreeMap<Ipv4Addr, Wanted>, now: Instant) -> bool {
    let idle = wanted.iter().filter(|(_, wanted)| !wanted.is_due && wanted.may_be_asked(now));
    let oldest = idle.min_by_key(|(_, wanted)| wanted.requested_at).map(|(address, _)| *address);
    oldest.and_then(|oldest| wanted.remove(&oldest)).is_some()
}

#[cfg(test)]
mod tests;
