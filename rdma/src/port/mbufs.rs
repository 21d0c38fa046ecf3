//! Mbufs as the memory of requests: sent from, and received into, without a copy.
//!
//! Invariants:
//! 1. The memory of a pool is initialized, and valid until the last `Arc` of its region is dropped.
//!    A [`Region`] made here keeps one.
//! 2. What a request owns here is an mbuf that [`Mbuf::into_raw`] made into a pointer on this
//!    thread, and is made into an mbuf again once, on the same thread.
//! 3. While a request owns an mbuf, nobody writes the bytes of its message: who has a second handle
//!    to them reads alone. An mbuf to receive into is one buffer, and its only handle.

use core::ptr::NonNull;

use wirepath::mem::{Mbuf, Pool};

use crate::provider::Provider;
use crate::provider::owning::Owning;
use crate::roce::owned::Owned;
use crate::roce::{
    CompletionKind, CqHandle, Data, DeviceError, PostError, QpHandle, Region, SGES_MAX, SendRequest, Sge, Status,
    WorkCompletion,
};

impl From<&Pool> for Region {
    /// The whole memory of a pool, to be registered with [`Access::LOCAL_READ`] or
    /// [`Access::LOCAL_WRITE`]. No piece of a request names it but by [`Mbufs`].
    ///
    /// [`Access::LOCAL_READ`]: crate::roce::Access::LOCAL_READ
    /// [`Access::LOCAL_WRITE`]: crate::roce::Access::LOCAL_WRITE
    fn from(pool: &Pool) -> Self {
        let memory = pool.region();
        // SAFETY: 1.
        unsafe { Self::of_pool(memory.base(), memory.len(), memory.clone()) }
    }
}

/// Requests whose memory is an mbuf, over either provider.
///
/// The pool is registered as one region, `register(pd, Region::from(&pool), Access::LOCAL_WRITE)`,
/// once in a domain.
/// A request owns its mbuf from the post to the completion, with which it comes back. An mbuf is
/// freed where nobody takes it: by [`Provider::poll_cq`], and when its queue pair is reset or
/// destroyed. Pool and mbufs belong to one thread. Where the provider is polled or dropped on
/// another one, what it owns is neither given back nor freed.
///
/// Peers have no right to a pool: between its packets is its own state, which nobody else may write
/// or learn.
///
/// ```
/// use rdma::port::{Mbufs, RoceNode, subscription};
/// use rdma::roce::{Access, DeviceConfig, QpOptions, Region};
/// use rdma::wire::opcode::Transport;
/// use wirepath::prelude::*;
///
/// let port = Port::open("memory:mbufs")?.address([192, 0, 2, 1], 24).log(|_| ());
/// let mut port = port.subscribe(subscription()).embed(RoceNode::new(&DeviceConfig::default()))?;
/// let qp = port.with_app(|node, cx| {
///     let device = node.device_mut();
///     let (pd, cq) = (device.create_pd()?, device.create_cq(128)?);
///     device.register(pd, Region::from(cx.pool), Access::LOCAL_WRITE)?;
///     let qp = device.create_qp(&QpOptions {
///         transport: Transport::Rc,
///         pd,
///         send_cq: cq,
///         recv_cq: cq,
///         send_depth: 64,
///         recv_depth: 64,
///         srq: None,
///         signals_all: true,
///     })?;
///     device.allow_mbufs(qp)?;
///     // In `on_datagram`, once `qp` is connected: sends the payload from where the NIC put it.
///     //     let mbuf = cx.pool.view(datagram.hold())?;
///     //     let send = SendRequest::new(1, SendOperation::Send, Data::Sges(&[]));
///     //     device.post_send_mbuf(qp, &send, mbuf)?;
///     Ok::<_, rdma::roce::DeviceError>(qp)
/// });
/// # qp.expect("a queue pair");
/// # wirepath::Result::<()>::Ok(())
/// ```
pub trait Mbufs: Provider {
    /// Makes room for mbufs of the requests of a new queue pair: as many as its two queues are
    /// long. The queue pair signals all its sends, and has no shared receive queue. This allocates;
    /// posts and polls do not. A place of the queue pair is free again when the completion of its
    /// request is polled.
    ///
    /// # Errors
    /// If there is none, or it is not so.
    fn allow_mbufs(&mut self, qp: QpHandle) -> Result<(), DeviceError>;

    /// Posts a send of an mbuf's bytes, behind the pieces of the request, of which there may be
    /// none. They are four together at most, and a chain or a view is as many as it has segments.
    ///
    /// # Errors
    /// [`PostError`], with the mbuf; nothing changed then. Only what sends bytes takes an mbuf: no
    /// READ, and no inline data.
    fn post_send_mbuf(&mut self, qp: QpHandle, request: &SendRequest<'_>, mbuf: Mbuf) -> Result<(), (PostError, Mbuf)>;

    /// Posts a receive of up to as many bytes as an mbuf has tailroom, behind those that it has.
    /// It comes back longer by what was received: of a datagram the first
    /// [`GRH_LEN`](crate::roce::GRH_LEN) bytes are a header.
    ///
    /// # Errors
    /// [`PostError`], with the mbuf; nothing changed then.
    fn post_recv_mbuf(&mut self, qp: QpHandle, wr_id: u64, mbuf: Mbuf) -> Result<(), (PostError, Mbuf)>;

    /// Takes the oldest completion, and the mbuf of its request.
    ///
    /// # Errors
    /// As of [`Provider::poll_cq`].
    fn poll_mbuf(&mut self, cq: CqHandle) -> Result<Option<(WorkCompletion, Option<Mbuf>)>, DeviceError>;
}

impl<P: Owning> Mbufs for P {
    fn allow_mbufs(&mut self, qp: QpHandle) -> Result<(), DeviceError> {
        self.allow_owned(qp)
    }

    #[inline]
    fn post_send_mbuf(&mut self, qp: QpHandle, request: &SendRequest<'_>, mbuf: Mbuf) -> Result<(), (PostError, Mbuf)> {
        let (sges, count) = match sges_of(self, qp, request, &mbuf) {
            Ok(sges) => sges,
            Err(error) => return Err((error, mbuf)),
        };
        let request = SendRequest { data: Data::Sges(&sges[..count]), ..*request };
        self.post_send_owned(qp, &request, owned(mbuf)).map_err(refused)
    }

    #[inline]
    fn post_recv_mbuf(&mut self, qp: QpHandle, wr_id: u64, mbuf: Mbuf) -> Result<(), (PostError, Mbuf)> {
        if !mbuf.is_writable() || !mbuf.is_linear() {
            return Err((PostError::SharedMbuf, mbuf));
        }
        let behind = mbuf.data_ptr() as u64 + mbuf.len() as u64;
        match self.pool_piece(qp, behind, mbuf.tailroom()) {
            Ok(sge) => self.post_recv_owned(qp, wr_id, &[sge], owned(mbuf)).map_err(refused),
            Err(error) => Err((error, mbuf)),
        }
    }

    #[inline]
    fn poll_mbuf(&mut self, cq: CqHandle) -> Result<Option<(WorkCompletion, Option<Mbuf>)>, DeviceError> {
        let Some((done, owned)) = self.poll_owned(cq)? else { return Ok(None) };
        let mut mbuf = owned.and_then(mbuf_of);
        if let Some(mbuf) = &mut mbuf
            && (done.status, done.kind) == (Status::Success, CompletionKind::Receive)
        {
            // A NIC that says more than there was room for is not believed.
            let _ = mbuf.append(done.byte_len as usize);
        }
        Ok(Some((done, mbuf)))
    }
}

/// The pieces of a send: its own, and those of the mbuf.
fn sges_of(
    provider: &impl Owning,
    qp: QpHandle,
    request: &SendRequest<'_>,
    mbuf: &Mbuf,
) -> Result<([Sge; SGES_MAX], usize), PostError> {
    let Data::Sges(first) = request.data else { return Err(PostError::Operation) };
    if request.operation.needs_response() || request.operation.is_local() {
        return Err(PostError::Operation);
    }
    provider.check_sges(first)?;
    let (mut sges, mut count) = ([Sge::default(); SGES_MAX], first.len());
    sges.get_mut(..count).ok_or(PostError::TooManySges)?.copy_from_slice(first);
    for segment in mbuf.segments().filter(|segment| !segment.is_empty()) {
        let place = sges.get_mut(count).ok_or(PostError::TooManySges)?;
        *place = provider.pool_piece(qp, segment.as_ptr() as u64, segment.len())?;
        count += 1;
    }
    Ok((sges, count))
}

fn owned(mbuf: Mbuf) -> Owned {
    // SAFETY: 2.
    unsafe { Owned::new(mbuf.into_raw(), free) }
}

/// The mbuf; `None` on another thread than its own.
fn mbuf_of(owned: Owned) -> Option<Mbuf> {
    // SAFETY: 2: all that is owned came from `owned`.
    owned.into_raw().map(|raw| unsafe { Mbuf::from_raw(raw) })
}

/// Frees what nobody takes.
///
/// # Safety
/// As of [`Mbuf::from_raw`].
unsafe fn free(raw: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { Mbuf::from_raw(raw) }.free();
}

fn refused((error, owned): (PostError, Owned)) -> (PostError, Mbuf) {
    (error, mbuf_of(owned).expect("an mbuf of this thread"))
}
