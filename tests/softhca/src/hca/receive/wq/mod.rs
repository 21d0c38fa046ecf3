//! Work queues and indirection tables, over which receive-side scaling spreads frames. A WQ is a
//! receiving ring with a handle. A table is a list of WQs whose length is a power of two; a WQ may
//! be in it several times.

use crate::hca::Hca;
use crate::hca::control::{Errno, Event, EventKind, WqChange, WqCreated, WqRequest, WqState};
use crate::hca::table::Table;

/// All work queues and indirection tables by handle.
#[derive(Default)]
pub(in crate::hca) struct Wqs {
    wqs: Table<Wq>,
    tables: Table<IndirectionTable>,
}

struct Wq {
    /// The number of its ring.
    rq: u32,
    pd: u32,
    user_handle: u64,
    /// Places in tables.
    users: u32,
    /// Asynchronous events that it raised.
    events: u32,
}

/// A list of receiving rings.
pub(in crate::hca) struct IndirectionTable {
    /// Their numbers.
    pub(in crate::hca) rqs: Box<[u32]>,
    wqs: Box<[u32]>,
    /// Transport interfaces that look here.
    users: u32,
}

/// `rss_caps.max_rwq_indirection_table_size`; mlx5.md 1.4.
const TABLE_LEN_MAX: usize = 512;

impl Wqs {
    #[inline]
    pub(in crate::hca) fn table(&self, handle: u32) -> Option<&IndirectionTable> {
        self.tables.get(handle)
    }

    /// A transport interface begins to look into this table. EINVAL where there is none.
    pub(in crate::hca) fn hold_table(&mut self, handle: u32) -> Result<usize, Errno> {
        let table = self.tables.get_mut(handle).ok_or(Errno(libc::EINVAL))?;
        table.users += 1;
        Ok(table.rqs.len())
    }

    /// A transport interface that looked into this table went.
    pub(in crate::hca) fn release_table(&mut self, handle: u32) {
        if let Some(table) = self.tables.get_mut(handle) {
            table.users = table.users.saturating_sub(1);
        }
    }

    /// The event for the client when the ring of this number cannot go on, if it is the ring of a
    /// WQ.
    pub(in crate::hca) fn fatal_event(&mut self, rq: u32) -> Option<Event> {
        let (_, wq) = self.wqs.iter_mut().find(|(_, wq)| wq.rq == rq)?;
        wq.events += 1;
        Some(Event { channel: None, element: wq.user_handle, kind: EventKind::WqFatal })
    }
}

impl Hca {
    /// Makes a work queue in state reset. EINVAL where domain, CQ or geometry is invalid.
    pub fn create_wq(&mut self, request: &WqRequest) -> Result<WqCreated, Errno> {
        self.memory.hold_pd(request.pd)?;
        let number = self.add_rq(request).inspect_err(|_| self.memory.release_pd(request.pd))?;
        let WqRequest { pd, user_handle, .. } = *request;
        let handle = self.wqs.wqs.insert(Wq { rq: number, pd, user_handle, users: 0, events: 0 });
        Ok(WqCreated { handle, number })
    }

    /// Changes a work queue's state, or whether it strips tags. EINVAL for a step that there is
    /// not: out of an error leads only a reset, and into one only from ready.
    pub fn modify_wq(&mut self, handle: u32, change: &WqChange) -> Result<(), Errno> {
        let number = self.wqs.wqs.get(handle).ok_or(Errno(libc::EINVAL))?.rq;
        let rq = self.rqs.get_mut(number).ok_or(Errno(libc::EINVAL))?;
        let current = change.current_state.unwrap_or(rq.state);
        let next = change.state.unwrap_or(rq.state);
        let step_is_legal = match (rq.state, next) {
            (WqState::Error, WqState::Ready) | (WqState::Reset, WqState::Error) => false,
            (_, WqState::Reset | WqState::Ready | WqState::Error) => true,
        };
        // The client may believe that the WQ is ready although the NIC has put it into error
        // meanwhile. That is no reason to refuse the change.
        let belief_is_possible = current == rq.state || (current == WqState::Ready && rq.state == WqState::Error);
        if !step_is_legal || !belief_is_possible {
            return Err(Errno(libc::EINVAL));
        }
        if let Some(strips) = change.vlan_stripping {
            rq.strips_vlan = strips;
        }
        if change.state.is_some() {
            self.set_rq_state(number, next);
        }
        Ok(())
    }

    /// Destroys a work queue: its memory is no longer accessed. Returns how many asynchronous
    /// events it raised. EBUSY while it is in a table.
    pub fn destroy_wq(&mut self, handle: u32) -> Result<u32, Errno> {
        match self.wqs.wqs.get(handle) {
            None => return Err(Errno(libc::EINVAL)),
            Some(wq) if wq.users > 0 => return Err(Errno(libc::EBUSY)),
            Some(_) => {}
        }
        let wq = self.wqs.wqs.remove(handle).ok_or(Errno(libc::EINVAL))?;
        self.remove_rq(wq.rq);
        self.memory.release_pd(wq.pd);
        let before = self.events.len();
        self.events.retain(|event| event.kind != EventKind::WqFatal || event.element != wq.user_handle);
        // Events that the client did not read are dropped: destroying waits only for those that
        // were delivered.
        Ok(wq.events - (before - self.events.len()) as u32)
    }

    /// Makes an indirection table of these WQs. EINVAL for an unknown one or a number of them that
    /// cannot be.
    pub fn create_table(&mut self, wqs: &[u32]) -> Result<u32, Errno> {
        if !wqs.len().is_power_of_two() || wqs.len() > TABLE_LEN_MAX {
            return Err(Errno(libc::EINVAL));
        }
        let rqs = wqs.iter().map(|&wq| self.wqs.wqs.get(wq).map(|wq| wq.rq)).collect::<Option<Box<[u32]>>>();
        let rqs = rqs.ok_or(Errno(libc::EINVAL))?;
        for &wq in wqs {
            if let Some(wq) = self.wqs.wqs.get_mut(wq) {
                wq.users += 1;
            }
        }
        Ok(self.wqs.tables.insert(IndirectionTable { rqs, wqs: wqs.into(), users: 0 }))
    }

    /// Destroys an indirection table. EBUSY while a QP spreads over it.
    pub fn destroy_table(&mut self, handle: u32) -> Result<(), Errno> {
        match self.wqs.tables.get(handle) {
            None => return Err(Errno(libc::EINVAL)),
            Some(table) if table.users > 0 => return Err(Errno(libc::EBUSY)),
            Some(_) => {}
        }
        let table = self.wqs.tables.remove(handle).ok_or(Errno(libc::EINVAL))?;
        for wq in table.wqs {
            if let Some(wq) = self.wqs.wqs.get_mut(wq) {
                wq.users = wq.users.saturating_sub(1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
