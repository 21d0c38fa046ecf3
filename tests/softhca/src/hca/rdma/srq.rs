//! Shared receive queues: a list of WQEs through a ring. Each WQE begins with the place of the next
//! one, which the driver chose when it posted; mlx5.md 2.8.

use std::collections::VecDeque;

use super::receive_wqe::ReceiveWqe;
use crate::hca::Hca;
use crate::hca::control::{Errno, Event, EventKind, SrqCreated, SrqRequest};
use crate::hca::environment::Dma;
use crate::hca::receive::RqFault;
use crate::hca::table::Table;

/// All shared receive queues by handle.
#[derive(Default)]
pub(in crate::hca) struct Srqs {
    table: Table<Srq>,
    /// Raised and not taken yet, each with the handle of its queue.
    events: VecDeque<(u32, Event)>,
}

/// See the module.
pub(super) struct Srq {
    request: SrqRequest,
    wqe_count: u32,
    wqe_len: u64,
    /// The place of the next WQE.
    head: u16,
    /// WQEs that were taken.
    taken: u16,
    /// The limit was passed, and the event is not raised yet.
    is_low: bool,
    /// QPs that receive from it.
    users: u32,
    /// Asynchronous events that were taken.
    told: u32,
}

/// Bytes in front of a WQE's pointers; the place of the next WQE stands at 2.
const NEXT_LEN: u64 = 16;
const NEXT_AT: u64 = 2;

/// Bytes of the shortest WQE.
const WQE_LEN_MIN: u64 = 32;

/// The longest ring and the most segments of a WQE; mlx5.md 3.5.
const WR_MAX: u32 = 32_767;
const SGE_MAX: u32 = 31;

/// The numbers of shared receive queues have this bit, those of other queues do not.
const NUMBER_BASE: u32 = 1 << 21;

impl Srqs {
    pub(super) fn get_mut(&mut self, handle: u32) -> Option<&mut Srq> {
        self.table.get_mut(handle)
    }

    /// A QP begins to receive from it. EINVAL where there is none.
    pub(super) fn hold(&mut self, handle: u32) -> Result<(), Errno> {
        self.table.get_mut(handle).ok_or(Errno(libc::EINVAL))?.users += 1;
        Ok(())
    }

    /// A QP that received from it went.
    pub(super) fn release(&mut self, handle: u32) {
        if let Some(srq) = self.table.get_mut(handle) {
            srq.users = srq.users.saturating_sub(1);
        }
    }

    /// Raises the event of queues that have become low.
    pub(super) fn look_at_limits(&mut self) {
        for (handle, srq) in self.table.iter_mut() {
            if std::mem::take(&mut srq.is_low) {
                srq.request.limit = 0; // once; 9.7.5.2.11 of the specification has it armed again
                let element = srq.request.user_handle;
                self.events.push_back((handle, Event { channel: None, element, kind: EventKind::SrqLimit }));
            }
        }
    }

    /// The oldest event that was raised.
    pub(in crate::hca) fn take_event(&mut self) -> Option<Event> {
        let (handle, event) = self.events.pop_front()?;
        if let Some(srq) = self.table.get_mut(handle) {
            srq.told += 1;
        }
        Some(event)
    }
}

impl Srq {
    /// The next WQE, where one is posted.
    pub(super) fn take(&mut self, dma: &dyn Dma) -> Result<Option<ReceiveWqe>, RqFault> {
        let posted = (dma.load_be32(self.request.doorbell)? as u16).wrapping_sub(self.taken);
        if posted == 0 {
            return Ok(None);
        }
        if u32::from(posted) > self.wqe_count {
            return Err(RqFault::BeyondRing { posted, wqe_count: self.wqe_count as u16 });
        }
        let address = self.request.ring + u64::from(self.head) * self.wqe_len;
        let mut next = [0; 2];
        dma.read(address + NEXT_AT, &mut next)?;
        let wqe = ReceiveWqe::fetch(self.head, address + NEXT_LEN, self.wqe_len - NEXT_LEN, dma)?;
        self.head = u16::from_be_bytes(next) & (self.wqe_count - 1) as u16;
        self.taken = self.taken.wrapping_add(1);
        self.is_low |= u32::from(posted - 1) < self.request.limit;
        Ok(Some(wqe))
    }
}

impl Hca {
    /// Makes a shared receive queue. EINVAL where domain or geometry is invalid.
    pub fn create_srq(&mut self, request: &SrqRequest) -> Result<SrqCreated, Errno> {
        let SrqRequest { ring, doorbell, wr_max, sge_max, limit, .. } = *request;
        let is_possible = wr_max <= WR_MAX && sge_max <= SGE_MAX && limit <= wr_max;
        if !is_possible || !ring.is_multiple_of(64) || !doorbell.is_multiple_of(4) {
            return Err(Errno(libc::EINVAL));
        }
        self.memory.hold_pd(request.pd)?;
        let handle = self.srqs.table.insert(Srq {
            request: *request,
            // As Linux' mlx5_ib and libmlx5 both compute them.
            wqe_count: (wr_max + 1).next_power_of_two(),
            wqe_len: (NEXT_LEN + u64::from(sge_max) * 16).next_power_of_two().max(WQE_LEN_MIN),
            head: 0,
            taken: 0,
            is_low: false,
            users: 0,
            told: 0,
        });
        Ok(SrqCreated { handle, number: NUMBER_BASE | handle })
    }

    /// Arms the event for fewer requests than `limit`. EINVAL where the queue is smaller.
    pub fn modify_srq(&mut self, handle: u32, limit: u32) -> Result<(), Errno> {
        let srq = self.srqs.table.get_mut(handle).ok_or(Errno(libc::EINVAL))?;
        if limit > srq.request.wr_max {
            return Err(Errno(libc::EINVAL));
        }
        srq.request.limit = limit;
        Ok(())
    }

    /// The requests and segments that a shared receive queue holds, and its limit.
    pub fn query_srq(&self, handle: u32) -> Result<(u32, u32, u32), Errno> {
        let srq = self.srqs.table.get(handle).ok_or(Errno(libc::EINVAL))?;
        Ok((srq.request.wr_max, srq.request.sge_max, srq.request.limit))
    }

    /// Destroys a shared receive queue. Returns how many of its events were taken. EBUSY while a QP
    /// receives from it.
    pub fn destroy_srq(&mut self, handle: u32) -> Result<u32, Errno> {
        match self.srqs.table.get(handle) {
            None => return Err(Errno(libc::EINVAL)),
            Some(srq) if srq.users > 0 => return Err(Errno(libc::EBUSY)),
            Some(_) => {}
        }
        let srq = self.srqs.table.remove(handle).ok_or(Errno(libc::EINVAL))?;
        self.memory.release_pd(srq.request.pd);
        self.srqs.events.retain(|(of, _)| *of != handle);
        Ok(srq.told)
    }
}
