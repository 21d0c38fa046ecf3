//! A queue pair of RC, UC or UD: made, moved from state to state, stepped.

use std::collections::HashSet;

use super::attributes::{is_legal, mask};
use super::path::Path;
use super::receive_wqe::Source;
use super::requester::Requester;
use super::responder::{Responder, Terms};
use super::srq::Srqs;
use crate::hca::control::{
    Errno, EventKind, Gid, QpAttributes, QpChange, QpKind, QpRequest, QpState, Service, WqState,
};
use crate::hca::receive::Rqs;
use crate::hca::send::{Sq, SqState, Transmitter};
use crate::hca::table::Table;
use crate::hca::work::Work;
use crate::hca::{Config, Hca};

/// All endpoints by slot.
#[derive(Default)]
pub(in crate::hca) struct Endpoints {
    pub(super) table: Table<Endpoint>,
    /// Multicast groups, each with an endpoint that has joined it.
    pub(super) groups: HashSet<(Gid, u32)>,
}

/// One of them.
pub(in crate::hca) struct Endpoint {
    /// The handle of its QP.
    pub(super) qp: u32,
    pub(super) state: QpState,
    pub(super) attributes: QpAttributes,
    pub(super) number: u32,
    pub(super) service: Service,
    /// Its receiving ring, by number.
    pub(super) rq: Option<u32>,
    /// The shared receive queue that it uses instead.
    pub(super) srq: Option<u32>,
    pd: u32,
    user_index: u32,
    receive_cq: u32,
    requester: Requester,
    pub(super) responder: Responder,
    /// The peer has sent before this side was ready to send, and the client knows.
    is_established: bool,
}

/// The parts of the NIC that receive for an endpoint.
pub(in crate::hca) struct Receivers<'a> {
    pub(in crate::hca) rqs: &'a mut Rqs,
    pub(in crate::hca) srqs: &'a mut Srqs,
}

impl Endpoints {
    pub(in crate::hca) fn get_mut(&mut self, slot: u32) -> Option<&mut Endpoint> {
        self.table.get_mut(slot)
    }

    /// Whether there is any, and so RoCE packets are not the raw queues'.
    pub(in crate::hca) fn is_in_use(&self) -> bool {
        self.table.iter().next().is_some()
    }
}

impl Config {
    /// The GIDs of the port, by index.
    pub fn gids(&self) -> Vec<Gid> {
        [Gid::link_local(self.mac)].into_iter().chain(self.address.map(Gid::from_ipv4)).collect()
    }

    /// The largest payload of an RDMA packet, as `enum ibv_mtu`: with its headers it fits the
    /// port's MTU.
    pub fn rdma_mtu(&self) -> u8 {
        /// IPv6, UDP, BTH, the longest extension headers, ICRC, rounded up as Linux does for IPv4.
        const HEADERS: u16 = 68;
        match self.mtu.saturating_sub(HEADERS) {
            4096.. => 5,
            2048.. => 4,
            1024.. => 3,
            512.. => 2,
            _ => 1,
        }
    }
}

/// Bytes of an `enum ibv_mtu`.
fn mtu_len(code: u8) -> u32 {
    128 << code.clamp(1, 5)
}

impl Endpoint {
    pub(in crate::hca) fn new(request: &QpRequest, service: Service, receive_cq: u32) -> Self {
        Self {
            qp: 0,
            state: QpState::Reset,
            attributes: QpAttributes::default(),
            number: 0,
            service,
            rq: None,
            srq: None,
            pd: request.pd,
            user_index: request.user_index,
            receive_cq,
            requester: Requester::new(service, request.pd),
            responder: Responder::new(),
            is_established: false,
        }
    }

    /// Answers the peer, fetches what was posted, sends. Returns how much it was.
    pub(in crate::hca) fn run(
        &mut self,
        budget: usize,
        sq: &mut Sq,
        receivers: &mut Receivers<'_>,
        transmitter: &mut Transmitter,
        work: &mut Work<'_, '_>,
    ) -> usize {
        if self.state == QpState::Reset {
            return 0;
        }
        let gids = work.config.gids();
        let mac = work.config.mac;
        let path = self.path(&gids, mac);
        let mut done = self.responder.answers.send((self.pd, self.mtu(work.config)), &path, budget, transmitter, work);
        if self.state == QpState::Error {
            let terms = self.terms(work.config);
            self.responder.flush(&terms, work);
        }
        if matches!(self.state, QpState::ReadyToSend | QpState::Error) {
            if sq.state == SqState::Error {
                done += self.requester.flush(sq, work);
            }
            done += sq.run(budget, Some(&mut self.requester), transmitter, work);
            done += self.requester.transmit(&path, budget, sq, transmitter, work);
            self.follow(sq, receivers, work);
        }
        done
    }

    /// The peer answered, or asks: see [`Requester::take_answer`].
    pub(super) fn requester(&mut self) -> &mut Requester {
        &mut self.requester
    }

    /// A reliable connection whose sending side failed is in error as a whole.
    pub(super) fn follow(&mut self, sq: &mut Sq, receivers: &mut Receivers<'_>, work: &mut Work<'_, '_>) {
        if sq.state == SqState::Error && self.service == Service::Rc && self.state == QpState::ReadyToSend {
            self.enter_error(sq, receivers, work);
        }
    }

    /// Everything that is posted comes back flushed.
    pub(super) fn enter_error(&mut self, sq: &mut Sq, receivers: &mut Receivers<'_>, work: &mut Work<'_, '_>) {
        self.state = QpState::Error;
        sq.state = SqState::Error;
        if let Some(rq) = self.rq.and_then(|number| receivers.rqs.get_mut(number)) {
            rq.state = WqState::Error;
        }
        if self.srq.is_some() {
            work.qp_events.push((self.qp, EventKind::LastWqe));
        }
    }

    /// The first request of the peer, while this side is not ready to send, tells the client that
    /// the connection stands.
    pub(super) fn establish(&mut self, work: &mut Work<'_, '_>) {
        if self.state == QpState::ReadyToReceive && self.service != Service::Ud && !self.is_established {
            self.is_established = true;
            work.qp_events.push((self.qp, EventKind::CommunicationEstablished));
        }
    }

    /// Where its receive WQEs come from.
    pub(super) fn source<'a>(&self, receivers: &'a mut Receivers<'_>) -> Source<'a> {
        match (self.srq, self.rq) {
            (Some(handle), _) => receivers.srqs.get_mut(handle).map_or(Source::Nothing, Source::Srq),
            (None, Some(number)) => receivers.rqs.get_mut(number).map_or(Source::Nothing, Source::Rq),
            (None, None) => Source::Nothing,
        }
    }

    /// See [`Terms`].
    pub(super) fn terms(&self, config: &Config) -> Terms {
        Terms {
            service: self.service,
            pd: self.pd,
            number: self.number,
            user_index: self.user_index,
            receive_cq: self.receive_cq,
            access: self.attributes.access,
            qkey: self.attributes.qkey,
            mtu: self.mtu(config),
            read_max: self.attributes.peer_read_max,
            rnr_timer: self.attributes.rnr_timer,
            is_patient: !config.lossy,
        }
    }

    /// Bytes of a packet's payload: of the path, or of the port for datagrams.
    fn mtu(&self, config: &Config) -> u32 {
        mtu_len(if self.service == Service::Ud { config.rdma_mtu() } else { self.attributes.path_mtu })
    }

    fn path<'a>(&self, gids: &'a [Gid], mac: [u8; 6]) -> Path<'a> {
        Path {
            number: self.number,
            destination: self.attributes.destination_qp,
            address: self.attributes.address,
            qkey: self.attributes.qkey,
            mac,
            gids,
        }
    }

    /// Takes over the attributes that a change names.
    fn set(&mut self, change: &QpChange, config: &Config) {
        let new = &change.attributes;
        let own = &mut self.attributes;
        let named = |bit: u32| change.mask & bit != 0;
        macro_rules! take {
            ($($bit:ident $field:ident),*) => { $(if named(mask::$bit) { own.$field = new.$field; })* };
        }
        take!(PKEY_INDEX pkey_index, ACCESS access, QKEY qkey, ADDRESS address, PATH_MTU path_mtu);
        take!(DESTINATION_QP destination_qp, RECEIVE_PSN receive_psn, SEND_PSN send_psn, READ_MAX read_max);
        take!(PEER_READ_MAX peer_read_max, RNR_TIMER rnr_timer, TIMEOUT timeout, RETRY_COUNT retry_count);
        take!(RNR_RETRY rnr_retry);
        if named(mask::RECEIVE_PSN) {
            self.responder.begin(self.attributes.receive_psn);
        }
        if named(mask::SEND_PSN) {
            self.requester.begin(self.attributes.send_psn);
        }
        let mtu = self.mtu(config);
        self.requester.configure(&self.attributes, mtu);
    }

    fn reset(&mut self) {
        self.attributes = QpAttributes::default();
        self.requester.reset();
        self.responder = Responder::new();
        self.is_established = false;
    }
}

impl Hca {
    /// Makes the parts of an RDMA QP: the slots of its sending queue and of its endpoint.
    pub(in crate::hca) fn make_endpoint(&mut self, request: &QpRequest) -> Result<(u32, u32), Errno> {
        let QpKind::Rdma { service, send, receive, srq, receive_cq } = &request.kind else {
            return Err(Errno(libc::EINVAL));
        };
        let sq = self.add_sq(request, send)?;
        let number = self.qps.sqs.get(sq).map_or(0, |sq| sq.number);
        let rq = receive.as_ref().map(|ring| self.add_message_rq(request, ring, number)).transpose();
        let rq = rq.inspect_err(|_| self.remove_sq(Some(sq)))?;
        let held = srq.map_or(Ok(()), |srq| self.srqs.hold(srq)).and_then(|()| self.cqs.hold(*receive_cq));
        if let Err(refused) = held {
            if let Some(rq) = rq {
                self.remove_rq(rq);
            }
            self.remove_sq(Some(sq));
            return Err(refused);
        }
        let endpoint = Endpoint { number, rq, srq: *srq, ..Endpoint::new(request, *service, *receive_cq) };
        let slot = self.endpoints.table.insert(endpoint);
        if let Some(sq) = self.qps.sqs.get_mut(sq) {
            sq.endpoint = Some(slot);
        }
        Ok((sq, slot))
    }

    /// Notes the handle of an endpoint's QP.
    pub(in crate::hca) fn name_endpoint(&mut self, slot: u32, qp: u32) {
        if let Some(endpoint) = self.endpoints.table.get_mut(slot) {
            endpoint.qp = qp;
        }
    }

    /// Destroys an endpoint; its sending queue is the QP's to remove.
    pub(in crate::hca) fn remove_endpoint(&mut self, slot: u32) {
        let Some(endpoint) = self.endpoints.table.remove(slot) else { return };
        if let Some(rq) = endpoint.rq {
            self.remove_rq(rq);
        }
        if let Some(srq) = endpoint.srq {
            self.srqs.release(srq);
        }
        self.cqs.release(endpoint.receive_cq);
        self.endpoints.groups.retain(|(_, of)| *of != slot);
    }

    /// Changes the state or attributes of an RDMA QP, whose state is `current`.
    pub(in crate::hca) fn modify_endpoint(
        &mut self,
        slot: u32,
        sq: Option<u32>,
        current: QpState,
        change: &QpChange,
    ) -> Result<(), Errno> {
        let next = change.state.unwrap_or(current);
        let endpoint = self.endpoints.table.get_mut(slot).ok_or(Errno(libc::EINVAL))?;
        if !is_legal(endpoint.service, current, next, change.mask) || !is_possible(change, &self.config) {
            return Err(Errno(libc::EINVAL));
        }
        endpoint.state = next;
        if next == QpState::Reset {
            endpoint.reset();
        } else {
            endpoint.set(change, &self.config);
        }
        let (rq, qp, was_fed) = (endpoint.rq, endpoint.qp, endpoint.srq.is_some() && current != QpState::Error);
        if next == QpState::Error && was_fed {
            self.qps.raise(qp, EventKind::LastWqe);
        }
        if let Some(number) = rq {
            self.move_rq(number, next);
        }
        if let Some(slot) = sq {
            self.move_sq(slot, next, change.rate_limit);
            if let Some(sq) = self.qps.sqs.get_mut(slot).filter(|_| current == QpState::SendQueueError) {
                sq.recover(next);
            }
        }
        Ok(())
    }

    /// An RDMA QP's state and attributes.
    pub(in crate::hca) fn endpoint_state(&self, slot: u32) -> Option<(QpState, QpAttributes)> {
        let endpoint = self.endpoints.table.get(slot)?;
        Some((endpoint.state, endpoint.attributes))
    }

    /// Lets a UD QP receive what is sent to a multicast group. EINVAL for other QPs and addresses.
    pub fn attach_multicast(&mut self, qp: u32, group: Gid) -> Result<(), Errno> {
        let slot = self.qps.endpoint_of(qp).ok_or(Errno(libc::EINVAL))?;
        let is_ud = self.endpoints.table.get(slot).is_some_and(|endpoint| endpoint.service == Service::Ud);
        if !is_ud || group.multicast_mac().is_none() {
            return Err(Errno(libc::EINVAL));
        }
        self.endpoints.groups.insert((group, slot));
        Ok(())
    }

    /// Ends [`Self::attach_multicast`]. EINVAL where it was not attached.
    pub fn detach_multicast(&mut self, qp: u32, group: Gid) -> Result<(), Errno> {
        let slot = self.qps.endpoint_of(qp).ok_or(Errno(libc::EINVAL))?;
        if self.endpoints.groups.remove(&(group, slot)) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }
}

/// Whether the values that a change names can be.
fn is_possible(change: &QpChange, config: &Config) -> bool {
    let new = &change.attributes;
    let check = |bit: u32, is_possible: bool| change.mask & bit == 0 || is_possible;
    check(mask::PORT, change.port == Some(1))
        && check(mask::PKEY_INDEX, new.pkey_index == 0)
        && check(mask::PATH_MTU, (1..=config.rdma_mtu()).contains(&new.path_mtu))
        && check(mask::ADDRESS, usize::from(new.address.source_index) < config.gids().len())
        && check(mask::RECEIVE_PSN, new.receive_psn < 1 << 24)
        && check(mask::SEND_PSN, new.send_psn < 1 << 24)
        && check(mask::DESTINATION_QP, new.destination_qp < 1 << 24)
        && check(mask::READ_MAX, new.read_max <= Config::READS_MAX)
        && check(mask::PEER_READ_MAX, new.peer_read_max <= Config::READS_MAX)
        && check(mask::RNR_TIMER, new.rnr_timer < 32)
        && check(mask::TIMEOUT, new.timeout < 32)
        && check(mask::RETRY_COUNT, new.retry_count < 8)
        && check(mask::RNR_RETRY, new.rnr_retry < 8)
}

impl Config {
    /// READs and atomics that a QP may have outstanding, and those of its peer.
    pub const READS_MAX: u8 = 16;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_mtu_leaves_room_for_its_headers() {
        let code = |mtu| Config { mtu, ..Config::default() }.rdma_mtu();
        assert_eq!([256, 1500, 4096, 4200, 9000].map(code), [1, 3, 4, 5, 5]);
    }
}
