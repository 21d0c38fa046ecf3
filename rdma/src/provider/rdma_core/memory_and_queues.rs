//! What moves bytes by a NIC: regions, posts and polls.
//!
//! Invariants:
//! 1. The bytes of a [`Region`] are valid until it is dropped, and nobody reaches them but by
//!    atomic accesses ([`crate::roce::Region`], invariants of its own file). A registration owns
//!    its region, and is the only source of keys for posts: a NIC refuses any other. A region whose
//!    registration cannot be ended stays with it, and is never dropped. Of a packet pool's region
//!    the pieces of requests name what they own until they are complete, and peers have no right.
//! 2. The queues of a provider are its own: nobody drives their rings by their addresses.

use std::sync::Arc;

use rdma_core_sys::verbs::{
    Access as LocalAccess, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, ReceiveWork, SendError,
    SendKind, SendWork, SharedReceiveQueue, VerbsError,
};

use super::{convert, refused};
use crate::roce::{Access, Data, DeviceError, PostError, Region, SGES_MAX, SendRequest, Sge, WorkCompletion};

/// Bytes of the smallest page.
const PAGE: u64 = 4096;

/// Registers a region, whose first byte requests name by `address`, for as long as the registration
/// lives.
pub(super) fn register(
    pd: &ProtectionDomain,
    region: Region,
    address: u64,
    access: Access,
) -> Result<MemoryRegion, DeviceError> {
    let (start, len, is_own) = (region.start(), region.len(), region.address() == address);
    if region.address() % PAGE != address % PAGE {
        return Err(DeviceError::Value("address with another place in its page than the memory, over a NIC"));
    }
    let mr = if access.has(Access::LOCAL_WRITE) {
        let (remote, region) = (convert::remote_access(access), Arc::new(region));
        if is_own {
            // SAFETY: 1.
            unsafe { MemoryRegion::register_for_peers(pd, start, len, remote, region) }
        } else {
            // SAFETY: 1.
            unsafe { MemoryRegion::register_for_peers_as(pd, start, len, address, remote, region) }
        }
    } else if access.has_remote() || access.has(Access::MW_BIND) {
        return Err(DeviceError::Value("remote rights or windows without LOCAL_WRITE through rdma-core"));
    } else {
        let local = LocalAccess { local_write: false, ..LocalAccess::default() };
        if is_own {
            MemoryRegion::register(pd, start, len, local, Arc::new(region))
        } else {
            MemoryRegion::register_as(pd, start, len, address, local, Arc::new(region))
        }
    };
    mr.map_err(|error| refused(&error))
}

pub(super) fn post_send(
    qp: &QueuePair,
    request: &SendRequest<'_>,
    kind: SendKind<'_>,
    imm: Option<[u8; 4]>,
) -> Result<(), PostError> {
    let (sges, inline) = match request.data {
        Data::Sges(sges) => (sges, None),
        Data::Inline(bytes) => (&[][..], Some(bytes)),
    };
    let pieces = pieces(sges)?;
    let send = SendWork {
        wr_id: request.wr_id,
        kind,
        sges: &pieces[..sges.len()],
        inline,
        imm,
        signaled: request.signaled,
        solicited: request.solicited,
        fence: request.fence,
    };
    // SAFETY: 1, 2.
    unsafe { qp.post_send(&send) }.map_err(|error| match error {
        SendError::Destination => PostError::Destination,
        SendError::Operation => PostError::Operation,
        SendError::Call(error) => not_posted(&error),
    })
}

pub(super) fn post_receive(qp: &QueuePair, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
    let pieces = pieces(sges)?;
    let receive = ReceiveWork { wr_id, sges: &pieces[..sges.len()] };
    // SAFETY: 1, 2.
    unsafe { qp.post_receive(&receive) }.map_err(|error| not_posted(&error))
}

pub(super) fn post_shared_receive(srq: &SharedReceiveQueue, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
    let pieces = pieces(sges)?;
    let receive = ReceiveWork { wr_id, sges: &pieces[..sges.len()] };
    // SAFETY: 1, 2.
    unsafe { srq.post_receive(&receive) }.map_err(|error| not_posted(&error))
}

/// Asks for an event at the next completion.
pub(super) fn arm(cq: &CompletionQueue, solicited_only: bool) -> Result<(), DeviceError> {
    // SAFETY: 2.
    unsafe { cq.arm(solicited_only) }.map_err(|error| refused(&error))
}

/// The next completion, if there is one.
pub(super) fn poll(cq: &CompletionQueue) -> Result<Option<WorkCompletion>, DeviceError> {
    // SAFETY: 2.
    let done = unsafe { cq.poll() }.map_err(|error| refused(&error))?;
    Ok(done.as_ref().map(convert::completion))
}

type Pieces = [rdma_core_sys::verbs::Sge; SGES_MAX];

fn pieces(sges: &[Sge]) -> Result<Pieces, PostError> {
    let mut pieces = Pieces::default();
    let places = pieces.get_mut(..sges.len()).ok_or(PostError::TooManySges)?;
    for (place, sge) in places.iter_mut().zip(sges) {
        (place.address, place.len, place.lkey) = (sge.address, sge.len, sge.lkey);
    }
    Ok(pieces)
}

const fn not_posted(error: &VerbsError) -> PostError {
    // ENOMEM, as ibv_post_send(3) says of a full queue.
    if error.errno() == 12 { PostError::QueueFull } else { PostError::Call(error.errno()) }
}
