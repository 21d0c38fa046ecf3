//! What the requests of queue pairs own that a NIC serves.
//!
//! A NIC says of a request that failed its number alone, and not of which queue it was. So such a
//! queue pair's requests have numbers of ours, which completions have back in the program's.

use rdma_core_sys::verbs::{QpChange, QpState as RawState};

use super::{QP, Qp, RdmaCore, memory_and_queues};
use crate::provider::owning::{Owning, Refused, refused};
use crate::roce::owned::{Owned, OwnedRequests, Queue};
use crate::roce::{CqHandle, DeviceError, PostError, QpHandle, SendRequest, Sge, WorkCompletion};
use crate::wire::qpn::Qpn;

impl RdmaCore {
    pub(super) fn post_send_with(
        &mut self,
        qp: QpHandle,
        request: &SendRequest<'_>,
        owned: Option<Owned>,
    ) -> Result<(), (PostError, Option<Owned>)> {
        let put = |nic: &Self, wr_id| nic.put_send(qp, &SendRequest { wr_id, ..*request });
        self.post(qp, Queue::Send, request.wr_id, owned, put)
    }

    pub(super) fn post_recv_with(
        &mut self,
        qp: QpHandle,
        wr_id: u64,
        sges: &[Sge],
        owned: Option<Owned>,
    ) -> Result<(), (PostError, Option<Owned>)> {
        let put = |nic: &Self, wr_id| nic.put_recv(qp, wr_id, sges);
        self.post(qp, Queue::Receive, wr_id, owned, put)
    }

    fn post(
        &mut self,
        handle: QpHandle,
        queue: Queue,
        wr_id: u64,
        owned: Option<Owned>,
        put: impl FnOnce(&Self, u64) -> Result<(), PostError>,
    ) -> Result<(), (PostError, Option<Owned>)> {
        let number = match self.qps.get(handle).map(|qp| &qp.owned) {
            None => Err(PostError::UnknownQp),
            Some(Some(requests)) => requests.check_room(queue).map(|()| requests.number(queue)),
            Some(None) if owned.is_some() => Err(PostError::MbufsNotAllowed),
            Some(None) => Ok(wr_id),
        };
        if let Err(error) = number.and_then(|number| put(self, number)) {
            return Err((error, owned));
        }
        if let Some(requests) = self.qps.get_mut(handle).and_then(|qp| qp.owned.as_mut()) {
            requests.push(queue, wr_id, owned);
        }
        Ok(())
    }

    pub(super) fn poll_with(&mut self, cq: CqHandle) -> Result<Option<(WorkCompletion, Option<Owned>)>, DeviceError> {
        while let Some(done) = memory_and_queues::poll(self.cq(cq)?)? {
            let Some(requests) = self.owned_of(done.qpn) else { return Ok(Some((done, None))) };
            // One that was forgotten when its queue pair was reset is passed over.
            if let Some((wr_id, owned)) = requests.take(done.wr_id) {
                return Ok(Some((WorkCompletion { wr_id, ..done }, owned)));
            }
        }
        Ok(None)
    }

    fn owned_of(&mut self, qpn: Qpn) -> Option<&mut OwnedRequests> {
        if self.owners.is_empty() {
            return None;
        }
        self.qps.get_mut(*self.owners.get(&qpn)?)?.owned.as_mut()
    }
}

impl Owning for RdmaCore {
    fn allow_owned(&mut self, handle: QpHandle) -> Result<(), DeviceError> {
        let qp = self.qps.get_mut(handle).ok_or(DeviceError::Unknown(QP))?;
        if !qp.is_new {
            return Err(DeviceError::Value("mbufs for a queue pair that is not new"));
        }
        qp.owned = Some(OwnedRequests::new(&qp.options)?);
        self.owners.insert(Qpn::new(qp.queues.number()), handle);
        Ok(())
    }

    fn check_sges(&self, sges: &[Sge]) -> Result<(), PostError> {
        self.pools.check(sges)
    }

    fn pool_piece(&self, qp: QpHandle, address: u64, len: usize) -> Result<Sge, PostError> {
        self.pools.piece(self.qps.get(qp).ok_or(PostError::UnknownQp)?.options.pd, address, len)
    }

    fn post_send_owned(&mut self, qp: QpHandle, request: &SendRequest<'_>, owned: Owned) -> Result<(), Refused> {
        self.post_send_with(qp, request, Some(owned)).map_err(refused)
    }

    fn post_recv_owned(&mut self, qp: QpHandle, wr_id: u64, sges: &[Sge], owned: Owned) -> Result<(), Refused> {
        self.post_recv_with(qp, wr_id, sges, Some(owned)).map_err(refused)
    }

    fn poll_owned(&mut self, cq: CqHandle) -> Result<Option<(WorkCompletion, Option<Owned>)>, DeviceError> {
        self.poll_with(cq)
    }
}

impl Drop for Qp {
    /// What its requests own is released when the NIC no longer reaches for it: where it will not
    /// reset the queue pair, that is never.
    fn drop(&mut self) {
        if let Some(requests) = self.owned.take_if(|requests| !requests.is_empty())
            && self.queues.modify(&QpChange { state: Some(RawState::Reset), ..QpChange::default() }).is_err()
        {
            core::mem::forget(requests);
        }
    }
}
