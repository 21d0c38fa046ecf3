//! Requests that own their memory: the mbufs of a packet pool, from a post to its completion.
//!
//! The memory of a pool is one region, and its bytes belong to the owners of its mbufs. So no piece
//! of a request names the region's key, as it would that of other regions. A request is given an
//! mbuf, and keeps it here until its completion is polled, or until it is forgotten with its queue.
//! A queue pair whose requests may own mbufs signals all of them, so that each has a completion,
//! and completions come in the order of the posts, for each of its two queues.

use std::collections::VecDeque;

pub(crate) use super::memory::Owned;

use super::handle::{MrHandle, PdHandle};
use super::keys::{Access, Mr};
use super::memory::Region;
use super::work::{PostError, Sge};
use super::{DeviceError, QpOptions};

/// The regions of pools.
#[derive(Default)]
pub(crate) struct PoolRegions(Vec<PoolRegion>);

struct PoolRegion {
    pd: PdHandle,
    mr: Mr,
}

/// A queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Send,
    Receive,
}

/// What the requests of a queue pair own that are not complete, or whose completions were not
/// polled. The memory for all of them is taken when it is made.
pub(crate) struct OwnedRequests {
    sends: Ring,
    receives: Ring,
}

/// Requests in the order of their posts.
struct Ring {
    requests: VecDeque<Request>,
    depth: usize,
    /// How many came before the first.
    before: u64,
}

struct Request {
    wr_id: u64,
    owned: Option<Owned>,
}

impl PoolRegions {
    /// Refuses to register the memory of a pool by another address, or with rights of peers: the
    /// pool's own state is between the packets.
    pub(crate) fn check_region(region: &Region, address: u64, access: Access) -> Result<(), DeviceError> {
        let is_local = access == Access::LOCAL_READ || access == Access::LOCAL_WRITE;
        match region.is_pool() {
            true if !is_local => Err(DeviceError::Value("rights of peers, or windows, to the memory of a packet pool")),
            true if address != region.address() => {
                Err(DeviceError::Value("another address than its own for the memory of a packet pool"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses to register a pool once more in a domain: of which registration, and so with which
    /// rights, a request is would be chance.
    pub(crate) fn check_only(&self, pd: PdHandle, region: &Region) -> Result<(), DeviceError> {
        let is_it = |pool: &PoolRegion| pool.pd == pd && pool.mr.address == region.address();
        match region.is_pool() && self.0.iter().any(is_it) {
            true => Err(DeviceError::Value("a second registration of a packet pool in one domain")),
            false => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, pd: PdHandle, mr: Mr) {
        self.0.push(PoolRegion { pd, mr });
    }

    pub(crate) fn remove(&mut self, handle: MrHandle) {
        self.0.retain(|pool| pool.mr.handle != handle);
    }

    /// Refuses pieces that name the memory of a pool.
    pub(crate) fn check(&self, sges: &[Sge]) -> Result<(), PostError> {
        let is_pool = |sge: &Sge| self.0.iter().any(|pool| pool.mr.key == sge.lkey);
        if sges.iter().any(is_pool) { Err(PostError::PoolMemory) } else { Ok(()) }
    }

    /// The piece for bytes of an mbuf, by a request of this domain.
    pub(crate) fn piece(&self, pd: PdHandle, address: u64, len: usize) -> Result<Sge, PostError> {
        let has = |pool: &&PoolRegion| {
            let end = address.checked_add(len as u64);
            pool.pd == pd && pool.mr.address <= address && end.is_some_and(|end| end <= pool.mr.address + pool.mr.len)
        };
        let pool = self.0.iter().find(has).ok_or(PostError::ForeignMbuf)?;
        Ok(Sge { address, len: len.try_into().map_err(|_| PostError::Length)?, lkey: pool.mr.key })
    }
}

impl OwnedRequests {
    /// For a new queue pair of these options.
    pub(crate) fn new(options: &QpOptions) -> Result<Self, DeviceError> {
        if !options.signals_all {
            return Err(DeviceError::Value("mbufs for a queue pair without signals_all"));
        }
        if options.srq.is_some() {
            return Err(DeviceError::Value("mbufs for a queue pair with a shared receive queue"));
        }
        Ok(Self { sends: Ring::new(options.send_depth), receives: Ring::new(options.recv_depth) })
    }

    /// A place is free again when the completion is polled.
    pub(crate) fn check_room(&self, queue: Queue) -> Result<(), PostError> {
        let ring = self.ring(queue);
        if ring.requests.len() < ring.depth { Ok(()) } else { Err(PostError::QueueFull) }
    }

    /// Keeps what a request owns that was posted; there is room.
    pub(crate) fn push(&mut self, queue: Queue, wr_id: u64, owned: Option<Owned>) {
        self.ring_mut(queue).requests.push_back(Request { wr_id, owned });
    }

    /// Returns what the oldest request of a queue owned, whose completion has this number.
    pub(crate) fn pop(&mut self, queue: Queue, wr_id: u64) -> Option<Owned> {
        let ring = self.ring_mut(queue);
        let is_it = ring.requests.front().is_some_and(|request| request.wr_id == wr_id);
        debug_assert!(is_it, "a completion out of order");
        // What is not the oldest stays here, for as long as the queue pair lives.
        if is_it { ring.pop()?.owned } else { None }
    }

    /// Forgets the last requests of a queue, which have no completions.
    pub(crate) fn drop_last(&mut self, queue: Queue, count: usize) {
        let requests = &mut self.ring_mut(queue).requests;
        requests.truncate(requests.len().saturating_sub(count));
    }

    fn ring(&self, queue: Queue) -> &Ring {
        match queue {
            Queue::Send => &self.sends,
            Queue::Receive => &self.receives,
        }
    }

    fn ring_mut(&mut self, queue: Queue) -> &mut Ring {
        match queue {
            Queue::Send => &mut self.sends,
            Queue::Receive => &mut self.receives,
        }
    }
}

/// For a NIC, of whose failed requests only their numbers are known.
#[cfg(feature = "rdma-core")]
impl OwnedRequests {
    /// The number for the NIC of the next request of a queue.
    pub(crate) fn number(&self, queue: Queue) -> u64 {
        let ring = self.ring(queue);
        (ring.before + ring.requests.len() as u64) << 1 | u64::from(queue == Queue::Receive)
    }

    /// The program's number of a request and what it owned, by its number for the NIC. Those of its
    /// queue before it are complete too, and are released. `None` for a number that is not under
    /// way.
    pub(crate) fn take(&mut self, number: u64) -> Option<(u64, Option<Owned>)> {
        let ring = self.ring_mut(if number & 1 == 0 { Queue::Send } else { Queue::Receive });
        let older = (number >> 1).checked_sub(ring.before).filter(|idx| *idx < ring.requests.len() as u64)?;
        (0..older).for_each(|_| drop(ring.pop()));
        let request = ring.pop()?;
        Some((request.wr_id, request.owned))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sends.requests.is_empty() && self.receives.requests.is_empty()
    }

    /// Releases all: none of the requests has a completion.
    pub(crate) fn clear(&mut self) {
        for ring in [&mut self.sends, &mut self.receives] {
            while ring.pop().is_some() {}
        }
    }
}

impl Ring {
    fn new(depth: u32) -> Self {
        let depth = depth as usize;
        Self { requests: VecDeque::with_capacity(depth), depth, before: 0 }
    }

    fn pop(&mut self) -> Option<Request> {
        let request = self.requests.pop_front()?;
        self.before += 1;
        Some(request)
    }
}
