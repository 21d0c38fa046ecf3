//! libmlx5's calls for each burst, on requests that were written beforehand: only the library is
//! measured. And the model's step.
//!
//! Invariants:
//! 1. Requests and their entries are in boxes, which do not move as long as the rings exist; they
//!    name registered memory that the region keeps. The queue pair is the previous field and has no
//!    other clone, so it is dropped first.
//! 2. Requests are plain C data: zeroes are a valid value of each. The library reads them and does
//!    not keep their addresses.
//! 3. Only the library drives these rings: `rings` is never called.
//! 4. The symbol `softhca_step` found by dlsym(3) is the preload library's function, with that
//!    signature.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::{from_mut, null_mut};

use rdma_core_sys::bindings::{
    IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WR_SEND, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
};
use rdma_core_sys::inline;
use rdma_core_sys::verbs::{CompletionQueue, Flow, MemoryRegion, QueuePair};

use super::{BURST, RING};

/// The verbs objects for one direction.
pub(super) struct Objects {
    /// The flow that steers to the queue pair.
    pub(super) flow: Option<Flow>,
    /// The owner of the rings.
    pub(super) qp: QueuePair,
    /// The completion queue of its requests.
    pub(super) cq: CompletionQueue,
    /// The memory of its buffers.
    pub(super) _region: MemoryRegion,
}

/// A ring with as many requests as fit, in lists of a burst each.
pub(super) struct Ring<Request> {
    objects: Objects,
    requests: Box<[Request]>,
    _entries: Box<[ibv_sge]>,
    /// The next request to post.
    next: usize,
    completions: Box<[ibv_wc; BURST]>,
}

impl<Request> Ring<Request> {
    /// `write` gets a zeroed request, its index, its scatter-gather entry, and the next request of
    /// its list.
    fn new(
        objects: Objects,
        mut entries: Box<[ibv_sge]>,
        write: impl Fn(&mut Request, usize, *mut ibv_sge, *mut Request),
    ) -> Self {
        assert_eq!(entries.len(), RING, "each request has a buffer of its own");
        // SAFETY: 2.
        let mut requests: Box<[Request]> = (0..RING).map(|_| unsafe { zeroed() }).collect();
        for at in 0..RING {
            let next = if (at + 1).is_multiple_of(BURST) { null_mut() } else { from_mut(&mut requests[at + 1]) };
            write(&mut requests[at], at, &raw mut entries[at], next);
        }
        // SAFETY: 2.
        let completions = Box::new([unsafe { zeroed() }; BURST]);
        Self { objects, requests, _entries: entries, next: 0, completions }
    }

    /// The next list to post.
    #[inline(always)]
    fn list(&mut self) -> *mut Request {
        let first = &raw mut self.requests[self.next];
        self.next = (self.next + BURST) % RING;
        first
    }

    /// Polls completions; returns their number.
    #[inline(always)]
    fn poll(&mut self) -> usize {
        // SAFETY: 3; room for a burst.
        let count =
            unsafe { inline::ibv_poll_cq(self.objects.cq.as_ptr(), BURST as c_int, self.completions.as_mut_ptr()) };
        usize::try_from(count).expect("the queue is not in error")
    }

    /// The status of the first failure among the last `count` completions.
    pub(super) fn failure(&self, count: usize) -> Option<u32> {
        self.completions[..count].iter().map(|completion| completion.status).find(|status| *status != IBV_WC_SUCCESS)
    }
}

impl Ring<ibv_send_wr> {
    /// Each request is a frame from a buffer; the last of a list is signaled.
    pub(super) fn of_frames(objects: Objects, entries: Box<[ibv_sge]>) -> Self {
        Self::new(objects, entries, |request, at, entry, next| {
            (request.wr_id, request.next, request.sg_list, request.num_sge) = (at as u64, next, entry, 1);
            request.opcode = IBV_WR_SEND;
            request.send_flags = if next.is_null() { IBV_SEND_SIGNALED } else { 0 };
        })
    }

    /// Polls completions, and posts a burst; returns the number of completions.
    #[inline(always)]
    pub(super) fn send(&mut self) -> usize {
        let (list, mut refused) = (self.list(), null_mut());
        let completed = self.poll();
        // SAFETY: 1, 2, 3.
        let error = unsafe { inline::ibv_post_send(self.objects.qp.as_ptr(), list, &raw mut refused) };
        assert_eq!(error, 0, "the ring has room for a burst");
        completed
    }
}

impl Ring<ibv_recv_wr> {
    /// Each request is a buffer. All are posted.
    pub(super) fn of_buffers(objects: Objects, entries: Box<[ibv_sge]>) -> Self {
        let mut ring = Self::new(objects, entries, |request: &mut ibv_recv_wr, at, entry, next| {
            (request.wr_id, request.next, request.sg_list, request.num_sge) = (at as u64, next, entry, 1);
        });
        (0..RING / BURST).for_each(|_| ring.post());
        ring
    }

    /// Receives a burst if there is one, and posts its buffers again; returns the number of frames.
    #[inline(always)]
    pub(super) fn receive(&mut self) -> usize {
        let received = self.poll();
        if received == BURST {
            self.post();
        }
        received
    }

    #[inline(always)]
    fn post(&mut self) {
        let (list, mut refused) = (self.list(), null_mut());
        // SAFETY: 1, 2, 3.
        let error = unsafe { inline::ibv_post_recv(self.objects.qp.as_ptr(), list, &raw mut refused) };
        assert_eq!(error, 0, "the ring has room for a burst");
    }
}

/// The NICs of `softhca run --manual`, which advance only when they are stepped.
pub struct Model(Step);

type Step = unsafe extern "C" fn(usize) -> usize;

impl Model {
    /// `None` where this process does not run on software ConnectXs.
    pub fn find() -> Option<Self> {
        // SAFETY: a C string.
        let step = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softhca_step".as_ptr()) };
        // SAFETY: 4.
        (!step.is_null()).then(|| Self(unsafe { core::mem::transmute::<*mut c_void, Step>(step) }))
    }

    /// Steps the NICs until they have nothing left to do.
    pub fn settle(&self) {
        // SAFETY: 4.
        while unsafe { (self.0)(RING) } > 0 {}
    }
}
