//! Packet pools of a device, and the mbufs that its requests own.

use super::{Device, DeviceError};
use crate::roce::handle::{CqHandle, QpHandle};
use crate::roce::owned::{Owned, OwnedRequests, PoolRegions, Queue};
use crate::roce::qp::QpState;
use crate::roce::work::{Data, PostError, SendRequest, Sge, WorkCompletion};

/// Of a device with a packet pool.
#[derive(Default)]
pub(super) struct Ownership {
    pub(super) pools: PoolRegions,
    /// By the places of queue pairs: of those whose requests may own mbufs.
    requests: Vec<Option<OwnedRequests>>,
}

impl Device {
    pub(super) fn ownership_mut(&mut self) -> &mut Ownership {
        self.ownership.get_or_insert_default()
    }

    /// Makes room for what the requests of a new queue pair own.
    pub(crate) fn allow_owned(&mut self, handle: QpHandle) -> Result<(), DeviceError> {
        let qp = self.qps.get(handle).ok_or(DeviceError::Unknown("queue pair"))?;
        let has_completion = |cq| self.tables.cqs.get(cq).is_some_and(|cq| cq.has_of(qp.qpn()));
        if qp.state() != QpState::Reset || qp.cqs().into_iter().any(has_completion) {
            return Err(DeviceError::Value("mbufs for a queue pair that is not new"));
        }
        let requests = OwnedRequests::new(&qp.options(&self.tables))?;
        let places = self.config.qps as usize;
        let all = &mut self.ownership_mut().requests;
        all.resize_with(places, || None);
        if let Some(place) = all.get_mut(handle.idx() as usize) {
            *place = Some(requests);
        }
        Ok(())
    }

    /// The piece for bytes of an mbuf.
    pub(crate) fn pool_piece(&self, handle: QpHandle, address: u64, len: usize) -> Result<Sge, PostError> {
        let qp = self.qps.get(handle).ok_or(PostError::UnknownQp)?;
        self.ownership.as_ref().ok_or(PostError::ForeignMbuf)?.pools.piece(qp.pd(), address, len)
    }

    /// Refuses pieces that name the memory of a pool.
    #[inline]
    pub(crate) fn check_sges(&self, sges: &[Sge]) -> Result<(), PostError> {
        self.ownership.as_ref().map_or(Ok(()), |ownership| ownership.pools.check(sges))
    }

    pub(super) fn post_send_beside_pools(
        &mut self,
        handle: QpHandle,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        if let Data::Sges(sges) = request.data {
            self.check_sges(sges)?;
        }
        self.post_send_owned(handle, request, None).map_err(|(error, _)| error)
    }

    pub(super) fn post_recv_beside_pools(
        &mut self,
        handle: QpHandle,
        wr_id: u64,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        self.check_sges(sges)?;
        self.post_recv_owned(handle, wr_id, sges, None).map_err(|(error, _)| error)
    }

    /// Posts a send that owns something.
    pub(crate) fn post_send_owned(
        &mut self,
        handle: QpHandle,
        request: &SendRequest<'_>,
        owned: Option<Owned>,
    ) -> Result<(), (PostError, Option<Owned>)> {
        let put = |device: &mut Self| device.put_send(handle, request);
        self.post_owned(handle, Queue::Send, request.wr_id, owned, put)
    }

    /// Posts a receive that owns something.
    pub(crate) fn post_recv_owned(
        &mut self,
        handle: QpHandle,
        wr_id: u64,
        sges: &[Sge],
        owned: Option<Owned>,
    ) -> Result<(), (PostError, Option<Owned>)> {
        let put = |device: &mut Self| device.put_recv(handle, wr_id, sges);
        self.post_owned(handle, Queue::Receive, wr_id, owned, put)
    }

    fn post_owned(
        &mut self,
        handle: QpHandle,
        queue: Queue,
        wr_id: u64,
        owned: Option<Owned>,
        put: impl FnOnce(&mut Self) -> Result<(), PostError>,
    ) -> Result<(), (PostError, Option<Owned>)> {
        let is_there = self.qps.get(handle).is_some();
        let room = match self.requests_at(handle.idx()) {
            _ if !is_there => Err(PostError::UnknownQp),
            Some(requests) => requests.check_room(queue),
            None if owned.is_some() => Err(PostError::MbufsNotAllowed),
            None => Ok(()),
        };
        if let Err(error) = room.and_then(|()| put(self)) {
            return Err((error, owned));
        }
        if let Some(requests) = self.requests_at(handle.idx()) {
            requests.push(queue, wr_id, owned);
        }
        Ok(())
    }

    /// Takes the oldest completion, and what its request owned.
    #[inline]
    pub(crate) fn poll_owned(&mut self, cq: CqHandle) -> Option<(WorkCompletion, Option<Owned>)> {
        let completion = self.take_completion(cq)?;
        let owned = if self.ownership.is_some() { self.disown(&completion) } else { None };
        Some((completion, owned))
    }

    fn disown(&mut self, completion: &WorkCompletion) -> Option<Owned> {
        let idx = self.place(completion.qpn);
        // Another queue pair may have the place by now.
        self.qps.at(idx).filter(|qp| qp.qpn() == completion.qpn)?;
        let queue = if completion.kind.is_receive() { Queue::Receive } else { Queue::Send };
        self.requests_at(idx)?.pop(queue, completion.wr_id)
    }

    /// A queue pair was reset, which had so many requests in its two queues: they have no
    /// completions.
    pub(super) fn disown_last(&mut self, handle: QpHandle, [sends, receives]: [usize; 2]) {
        if let Some(requests) = self.requests_at(handle.idx()) {
            requests.drop_last(Queue::Send, sends);
            requests.drop_last(Queue::Receive, receives);
        }
    }

    /// A queue pair is destroyed, and all that its requests own is released.
    pub(super) fn disown_all(&mut self, handle: QpHandle) {
        let ownership = self.ownership.as_mut();
        if let Some(place) = ownership.and_then(|ownership| ownership.requests.get_mut(handle.idx() as usize)) {
            *place = None;
        }
    }

    fn requests_at(&mut self, idx: u32) -> Option<&mut OwnedRequests> {
        self.ownership.as_mut()?.requests.get_mut(idx as usize)?.as_mut()
    }
}
