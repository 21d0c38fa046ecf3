//! Queue pairs: created, moved from state to state, queried and destroyed. The input is requests of
//! the kernel's driver; the output is a sending queue ([`Sq`]), a receiving queue
//! ([`rq`](super::receive)), or a spread of frames over several ([`tir`](super::steering)). RDMA
//! QPs have an endpoint beside ([`rdma`](super::rdma)), with rules of its own for their states.
//!
//! A raw packet QP is a pair only in name: each side has its own ring, number and state (Linux,
//! `mlx5/qp.c`, `create_raw_packet_qp` and `modify_raw_packet_qp`). The allowed transitions are
//! those that `ib_modify_qp_is_ok` allows this type, except those for which mlx5 has no command: to
//! SQD, and from SQE back to RTS. So a QP leaves an error by RESET, INIT, RTR, RTS.

use super::control::{Event, EventKind, QpAttributes, QpCapabilities, QpChange, QpCreated, QpKind, QpRequest, QpState};
use super::control::{RqRing, SqRing, WqRequest, WqState};
use super::send::{Sq, SqState};
use super::table::Table;
use super::{Errno, Hca, PORT};
use std::collections::VecDeque;

/// All QPs by handle, and their sending queues by slot.
#[derive(Default)]
pub(super) struct Qps {
    table: Table<Qp>,
    pub(super) sqs: Table<Sq>,
    /// How many sending queues there were: goes into their numbers.
    made: u32,
    /// Raised and not taken yet, each with the handle of its QP.
    events: VecDeque<(u32, Event)>,
}

/// One QP.
struct Qp {
    pd: u32,
    user_handle: u64,
    capabilities: QpCapabilities,
    state: QpState,
    /// Where `sqs` has its sending queue.
    sq: Option<u32>,
    receiver: Option<Receiver>,
    /// RDMA: the slot of its endpoint.
    endpoint: Option<u32>,
    /// Asynchronous events that were taken.
    told: u32,
    /// Flow rules that lead here.
    flows: u32,
}

/// Where frames for a QP go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiver {
    /// Into the ring of this number.
    Rq(u32),
    /// To the rings that this one spreads over.
    Tir(u32),
}

/// `IBV_QP_CREATE_SCATTER_FCS` and `IBV_QP_CREATE_CVLAN_STRIPPING`, with the flags of a WQ for the
/// same.
const CREATE_FLAGS_OF_RINGS: [(u32, u32); 2] = [(1 << 8, 1 << 1), (1 << 9, 1 << 0)];

/// IBV_QP_STATE, CUR_STATE, PORT and RATE_LIMIT: the attributes of raw packet QPs.
const RAW_ATTRIBUTES: u32 = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 25;

/// Sending queues at the same time: their slot has this many bits in their number.
const SLOT_BITS: u32 = 12;

/// The highest number stays below the `qp_tab_size` of mlx5.md 3.5, 131072.
const NUMBER_BITS: u32 = 17;

/// The largest ring: `max_send_wqebb` of mlx5.md 3.5. Positions have 16 bits, so larger rings would
/// be ambiguous.
const WQEBB_COUNT_MAX: u32 = 32768;

impl Qps {
    /// The slot of the sending queue of this number.
    pub(super) fn slot_of(&self, number: u32) -> Option<u32> {
        let slot = number & ((1 << SLOT_BITS) - 1);
        self.sqs.get(slot).filter(|sq| sq.number == number).map(|_| slot)
    }

    /// Tells the client what happened to a QP.
    pub(super) fn raise(&mut self, handle: u32, kind: EventKind) {
        if let Some(qp) = self.table.get(handle) {
            self.events.push_back((handle, Event { channel: None, element: qp.user_handle, kind }));
        }
    }

    /// RDMA: the slot of a QP's endpoint.
    pub(super) fn endpoint_of(&self, handle: u32) -> Option<u32> {
        self.table.get(handle)?.endpoint
    }

    /// The oldest event that was raised.
    pub(super) fn take_event(&mut self) -> Option<Event> {
        let (handle, event) = self.events.pop_front()?;
        if let Some(qp) = self.table.get_mut(handle) {
            qp.told += 1;
        }
        Some(event)
    }

    /// The number of a new QP: the slot in the low bits, above it a count from 1, so that no number
    /// returns soon.
    fn number(&mut self, slot: u32) -> u32 {
        self.made += 1;
        let parts = (1 << (NUMBER_BITS - SLOT_BITS)) - 1;
        (self.made % parts + 1) << SLOT_BITS | slot
    }
}

impl Hca {
    /// Makes a QP in state RESET. EINVAL where domain, CQ or ring is invalid.
    pub fn create_qp(&mut self, request: QpRequest) -> Result<QpCreated, Errno> {
        self.memory.hold_pd(request.pd)?;
        let made = match &request.kind {
            QpKind::RawPacket { send, receive } => {
                self.make_raw(&request, send.as_ref(), receive.as_ref()).map(|(sq, receiver)| (sq, receiver, None))
            }
            QpKind::Rss(rss) => self.add_tir(rss).map(|number| (None, Some(Receiver::Tir(number)), None)),
            QpKind::Rdma { .. } => self.make_endpoint(&request).map(|(sq, endpoint)| (Some(sq), None, Some(endpoint))),
        };
        let (sq, receiver, endpoint) = made.inspect_err(|_| self.memory.release_pd(request.pd))?;
        let qp = Qp {
            pd: request.pd,
            user_handle: request.user_handle,
            capabilities: granted(&request),
            state: QpState::Reset,
            sq,
            receiver,
            endpoint,
            told: 0,
            flows: 0,
        };
        let mut created = QpCreated { handle: self.qps.table.insert(qp), ..QpCreated::default() };
        if let Some(slot) = endpoint {
            self.name_endpoint(slot, created.handle);
        }
        match receiver {
            Some(Receiver::Rq(number)) => created.rq_number = number,
            Some(Receiver::Tir(number)) => created.tir_number = number,
            None => {}
        }
        if let Some(sq) = sq.and_then(|slot| self.qps.sqs.get_mut(slot)) {
            sq.qp = created.handle;
            created.sq_number = sq.number;
            // One port, one traffic class: one send interface for all.
            created.tis_number = 1;
        }
        created.number = if sq.is_some() { created.sq_number } else { created.rq_number };
        Ok(created)
    }

    /// Changes a QP's state or its pace. EINVAL for an impossible transition, and where the given
    /// current state is wrong.
    pub fn modify_qp(&mut self, handle: u32, change: &QpChange) -> Result<(), Errno> {
        let current = self.qp_state(handle).ok_or(Errno(libc::EINVAL))?;
        let qp = self.qps.table.get(handle).ok_or(Errno(libc::EINVAL))?;
        if matches!(qp.receiver, Some(Receiver::Tir(_))) {
            return Err(Errno(libc::EOPNOTSUPP)); // it has no states; mlx5.md 1.1 step 7
        }
        if change.current_state.is_some_and(|believed| believed != current) {
            return Err(Errno(libc::EINVAL));
        }
        if let Some(slot) = qp.endpoint {
            return self.modify_endpoint(slot, qp.sq, current, change);
        }
        let next = change.state.unwrap_or(current);
        if change.mask & !RAW_ATTRIBUTES != 0 {
            return Err(Errno(libc::EINVAL));
        }
        if !step_is_legal(current, next, change.port) {
            return Err(Errno(libc::EINVAL));
        }
        if let Some(rate) = change.rate_limit {
            self.check_rate(rate, next, qp.sq)?;
        }
        let (sq, receiver) = (qp.sq, qp.receiver);
        if let Some(qp) = self.qps.table.get_mut(handle) {
            qp.state = next;
        }
        if let Some(Receiver::Rq(number)) = receiver {
            self.move_rq(number, next);
        }
        if let Some(slot) = sq {
            self.move_sq(slot, next, change.rate_limit);
        }
        Ok(())
    }

    /// The state of a QP as the kernel puts it together from both sides, its limits, and RDMA's
    /// attributes.
    pub fn query_qp(&self, handle: u32) -> Result<(QpState, QpCapabilities, QpAttributes), Errno> {
        let state = self.qp_state(handle).ok_or(Errno(libc::EINVAL))?;
        let qp = self.qps.table.get(handle).ok_or(Errno(libc::EINVAL))?;
        let attributes = qp.endpoint.and_then(|slot| self.endpoint_state(slot)).unwrap_or_default().1;
        Ok((state, qp.capabilities, attributes))
    }

    /// Destroys a QP: after this the NIC accesses neither its rings nor its doorbell record, and
    /// writes no completion for it. Returns how many of its asynchronous events were taken; events
    /// that were only raised are dropped. EBUSY while flow rules lead to it.
    pub fn destroy_qp(&mut self, handle: u32) -> Result<u32, Errno> {
        match self.qps.table.get(handle) {
            None => return Err(Errno(libc::EINVAL)),
            Some(qp) if qp.flows > 0 => return Err(Errno(libc::EBUSY)),
            Some(_) => {}
        }
        let qp = self.qps.table.remove(handle).ok_or(Errno(libc::EINVAL))?;
        match qp.receiver {
            Some(Receiver::Rq(number)) => self.remove_rq(number),
            Some(Receiver::Tir(number)) => self.remove_tir(number),
            None => {}
        }
        if let Some(slot) = qp.endpoint {
            self.remove_endpoint(slot);
        }
        if let Some(sq) = qp.sq.and_then(|slot| self.qps.sqs.remove(slot)) {
            self.cqs.forget(sq.number);
            self.cqs.release(sq.cq);
            self.uars.release(sq.uar);
        }
        self.memory.release_pd(qp.pd);
        self.qps.events.retain(|(of, _)| *of != handle);
        Ok(qp.told)
    }

    /// A flow rule begins to lead to this QP: where its frames go. EINVAL where it receives
    /// nothing.
    pub(super) fn hold_qp(&mut self, handle: u32) -> Result<Receiver, Errno> {
        let qp = self.qps.table.get_mut(handle).ok_or(Errno(libc::EINVAL))?;
        let receiver = qp.receiver.ok_or(Errno(libc::EINVAL))?;
        qp.flows += 1;
        Ok(receiver)
    }

    /// A flow rule that led to this QP went.
    pub(super) fn release_qp(&mut self, handle: u32) {
        if let Some(qp) = self.qps.table.get_mut(handle) {
            qp.flows = qp.flows.saturating_sub(1);
        }
    }

    fn make_raw(
        &mut self,
        request: &QpRequest,
        send: Option<&SqRing>,
        receive: Option<&RqRing>,
    ) -> Result<(Option<u32>, Option<Receiver>), Errno> {
        let sq = send.map(|ring| self.add_sq(request, ring)).transpose()?;
        let rq = receive.map(|ring| self.add_rq(&rq_request(request, ring))).transpose();
        let rq = rq.inspect_err(|_| self.remove_sq(sq))?;
        if sq.is_none() && rq.is_none() {
            return Err(Errno(libc::EINVAL));
        }
        Ok((sq, rq.map(Receiver::Rq)))
    }

    pub(super) fn add_sq(&mut self, request: &QpRequest, ring: &SqRing) -> Result<u32, Errno> {
        // Only an RDMA QP has a sending side that cannot send, for its answers.
        let is_silent = ring.wqebb_count == 0 && matches!(request.kind, QpKind::Rdma { .. });
        let count_is_good = ring.wqebb_count.is_power_of_two() && ring.wqebb_count <= WQEBB_COUNT_MAX || is_silent;
        if !count_is_good || !ring.ring.is_multiple_of(64) || !ring.doorbell.is_multiple_of(4) {
            return Err(Errno(libc::EINVAL));
        }
        if self.qps.sqs.iter().count() >= 1 << SLOT_BITS {
            return Err(Errno(libc::ENOMEM));
        }
        self.cqs.hold(ring.cq)?;
        let uar = self.uars.hold(ring.uar);
        let slot = self.qps.sqs.insert(Sq::new(request, ring, uar));
        let number = self.qps.number(slot);
        if let Some(sq) = self.qps.sqs.get_mut(slot) {
            sq.number = number;
        }
        Ok(slot)
    }

    /// Makes the receiving ring of an RDMA QP, whose completions name the QP: its number.
    pub(super) fn add_message_rq(&mut self, request: &QpRequest, ring: &RqRing, qp: u32) -> Result<u32, Errno> {
        let number = self.add_rq(&rq_request(request, ring))?;
        if let Some(rq) = self.rqs.get_mut(number) {
            rq.reported = qp;
        }
        Ok(number)
    }

    /// Undoes [`Self::add_sq`].
    pub(super) fn remove_sq(&mut self, slot: Option<u32>) {
        if let Some(sq) = slot.and_then(|slot| self.qps.sqs.remove(slot)) {
            self.cqs.release(sq.cq);
            self.uars.release(sq.uar);
        }
    }

    /// The state that `ibv_query_qp` reports; as in Linux `sqrq_state_to_qp_state`, a QP without a
    /// receiving ring does not show that its sending side failed.
    fn qp_state(&self, handle: u32) -> Option<QpState> {
        let qp = self.qps.table.get(handle)?;
        let sq_failed = qp.sq.and_then(|slot| self.qps.sqs.get(slot)).is_some_and(|sq| sq.state == SqState::Error);
        let endpoint = qp.endpoint.and_then(|slot| self.endpoint_state(slot));
        let shown = match endpoint.map_or(qp.state, |(state, _)| state) {
            QpState::ReadyToSend if sq_failed && endpoint.is_some() => QpState::SendQueueError,
            QpState::ReadyToSend if sq_failed && qp.receiver.is_some() => QpState::SendQueueError,
            state => state,
        };
        Some(shown)
    }

    pub(super) fn move_rq(&mut self, number: u32, state: QpState) {
        match state {
            QpState::Reset => {
                self.set_rq_state(number, WqState::Reset);
                self.cqs.forget(number);
            }
            QpState::Init => {}
            QpState::ReadyToReceive | QpState::ReadyToSend => self.set_rq_state(number, WqState::Ready),
            _ => self.set_rq_state(number, WqState::Error),
        }
    }

    pub(super) fn move_sq(&mut self, slot: u32, state: QpState, rate: Option<u32>) {
        let Some(sq) = self.qps.sqs.get_mut(slot) else { return };
        match state {
            QpState::Reset => {
                sq.reset();
                self.cqs.forget(sq.number);
            }
            QpState::Init | QpState::ReadyToReceive => {}
            QpState::ReadyToSend => sq.state = if sq.state == SqState::Reset { SqState::Ready } else { sq.state },
            _ => sq.state = SqState::Error,
        }
        if let Some(rate) = rate {
            sq.pace.set_rate(rate);
        }
    }

    /// A pace needs a sending side that is going to send, and a NIC that can keep it.
    fn check_rate(&self, rate: u32, next: QpState, sq: Option<u32>) -> Result<(), Errno> {
        if next != QpState::ReadyToSend || sq.is_none() {
            return Err(Errno(libc::EINVAL));
        }
        match self.config.pacing {
            _ if rate == 0 => Ok(()),
            None => Err(Errno(libc::EOPNOTSUPP)),
            Some((min, max)) if (min..=max).contains(&rate) => Ok(()),
            Some(_) => Err(Errno(libc::EINVAL)),
        }
    }
}

/// Whether a raw packet QP may go from one state to the other; INIT needs the port.
fn step_is_legal(from: QpState, to: QpState, port: Option<u8>) -> bool {
    let port_is_good = port.is_none_or(|port| u64::from(port) == PORT);
    let step = match (from, to) {
        (_, QpState::Reset) => true,
        (QpState::Reset, QpState::Error) => false,
        (_, QpState::Error) => true,
        (QpState::Reset, QpState::Init) => port.is_some(),
        (QpState::Init, QpState::Init | QpState::ReadyToReceive) => true,
        (QpState::ReadyToReceive | QpState::ReadyToSend, QpState::ReadyToSend) => true,
        _ => false,
    };
    step && port_is_good
}

/// The limits as the kernel reports them: those of receive requests are the ring's, which may be
/// more than the client asked for (Linux, `mlx5/qp.c`, `set_rq_size`).
fn granted(request: &QpRequest) -> QpCapabilities {
    let (QpKind::RawPacket { receive, .. } | QpKind::Rdma { receive, .. }) = &request.kind else {
        return request.capabilities;
    };
    match receive {
        None => QpCapabilities { receive_wr_max: 0, receive_sge_max: 0, ..request.capabilities },
        Some(ring) => QpCapabilities {
            receive_wr_max: ring.wqe_count,
            receive_sge_max: 1_u32.checked_shl(ring.wqe_shift).unwrap_or(0) / POINTER_LEN,
            ..request.capabilities
        },
    }
}

/// Bytes of a pointer to data in a WQE.
const POINTER_LEN: u32 = 16;

/// A QP's receiving ring as a WQ.
fn rq_request(request: &QpRequest, ring: &RqRing) -> WqRequest {
    let flag = |(qp, wq)| if request.create_flags & qp != 0 { wq } else { 0 };
    WqRequest {
        pd: request.pd,
        ring: *ring,
        user_index: request.user_index,
        user_handle: request.user_handle,
        wr_max: request.capabilities.receive_wr_max,
        sge_max: request.capabilities.receive_sge_max,
        create_flags: CREATE_FLAGS_OF_RINGS.into_iter().map(flag).sum(),
    }
}

#[cfg(test)]
mod tests;
