//! Multicast groups, and the queue pairs that are attached to them.

use core::net::Ipv6Addr;

use super::handle::QpHandle;

/// Pairs of a group and a queue pair, in the order in which they were attached.
pub(super) struct Groups {
    attached: Vec<(Ipv6Addr, QpHandle)>,
    capacity: usize,
}

impl Groups {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self { attached: Vec::with_capacity(capacity), capacity }
    }

    /// False if there is no room. To attach twice is to attach once.
    pub(super) fn attach(&mut self, group: Ipv6Addr, qp: QpHandle) -> bool {
        if self.attached.contains(&(group, qp)) {
            return true;
        }
        let has_room = self.attached.len() < self.capacity;
        if has_room {
            self.attached.push((group, qp));
        }
        has_room
    }

    /// False if it was not attached.
    pub(super) fn detach(&mut self, group: Ipv6Addr, qp: QpHandle) -> bool {
        let before = self.attached.len();
        self.attached.retain(|attached| *attached != (group, qp));
        self.attached.len() < before
    }

    /// Forgets a queue pair.
    pub(super) fn forget(&mut self, qp: QpHandle) {
        self.attached.retain(|(_, attached)| *attached != qp);
    }

    /// The first queue pair from a place on that is attached to the group, and the place behind it.
    pub(super) fn next_member(&self, group: Ipv6Addr, from: usize) -> Option<(QpHandle, usize)> {
        let rest = self.attached.get(from..)?;
        let at = rest.iter().position(|(attached, _)| *attached == group)?;
        Some((rest[at].1, from + at + 1))
    }
}
