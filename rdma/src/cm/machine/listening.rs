//! The passive side: listeners, and what peers ask them for.

use super::connection::{Connection, State};
use super::event::{CmEvent, ConnectRequest, ListenOptions, LocalQp};
use super::io::{CODE_MAX, nanos};
use super::slots::{CmId, ListenerId};
use super::{Cm, CmError, gids};
use crate::cm::message::{Req, ReqFields, SIDR_REP_DATA_LEN, SidrRep, SidrReq, emit};
use crate::cm::reason::{RejectReason, SidrStatus};
use crate::cm::service::{IpHeader, PortSpace};
use crate::roce::{Addresses, Mtu};
use crate::wire::bth::Bth;
use crate::wire::opcode::Transport;
use crate::wire::qpn::Qpn;

pub(super) struct Listeners(Vec<(u32, Option<ListenOptions>)>);

impl Listeners {
    pub(super) fn new(capacity: u32) -> Self {
        Self((0..capacity).map(|_| (0, None)).collect())
    }

    fn find(&self, space: PortSpace, port: u16) -> Option<(ListenerId, ListenOptions)> {
        (0..).zip(&self.0).find_map(|(idx, (generation, options))| {
            let options = options.filter(|options| options.space == space && options.port == port)?;
            Some((ListenerId { idx, generation: *generation }, options))
        })
    }
}

impl Cm {
    /// Takes requests for a port: each is a [`CmEvent::ConnectRequest`].
    ///
    /// # Errors
    /// [`CmError`].
    pub fn listen(&mut self, options: &ListenOptions) -> Result<ListenerId, CmError> {
        if self.listeners.find(options.space, options.port).is_some() {
            return Err(CmError::PortInUse);
        }
        let mut places = (0..).zip(&mut self.listeners.0);
        let (idx, place) = places.find(|(_, place)| place.1.is_none()).ok_or(CmError::Full("listeners"))?;
        place.1 = Some(*options);
        Ok(ListenerId { idx, generation: place.0 })
    }

    /// Takes no more requests. Those that were told stay.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn unlisten(&mut self, listener: ListenerId) -> Result<(), CmError> {
        let place = self.listeners.0.get_mut(listener.idx as usize).ok_or(CmError::Unknown)?;
        if place.0 != listener.generation || place.1.is_none() {
            return Err(CmError::Unknown);
        }
        *place = (place.0.wrapping_add(1), None);
        Ok(())
    }

    /// Tells a peer which queue pair takes the datagrams of the port that it has asked for, and
    /// their key; or why none does. The queue pair's way to the peer is the caller's.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn answer_datagrams(
        &mut self,
        now: u64,
        id: CmId,
        answer: Result<(Qpn, u32), SidrStatus>,
        data: &[u8],
    ) -> Result<(), CmError> {
        let (io, connection) = self.parts(id)?;
        if data.len() > SIDR_REP_DATA_LEN {
            return Err(CmError::PrivateData);
        }
        if connection.state != State::SidrReceived || connection.retries != 0 {
            return Err(CmError::State);
        }
        let request = (connection.transaction, connection.remote_comm_id, connection.service_id);
        let (status, (qpn, qkey)) = match answer {
            Ok(answer) => (SidrStatus::Success, answer),
            Err(status) => (status, (Qpn::new(0), 0)),
        };
        connection.sent = emit(&SidrRep::new(request, status, qpn, qkey, data));
        // From now on each request is answered at once, for a while.
        connection.retries = 1;
        connection.repeat(io, now);
        connection.wait_until(io, now.saturating_add(nanos(io.config.ack_timeout)));
        Ok(())
    }

    pub(super) fn take_req(&mut self, now: u64, addresses: Addresses, req: &Req) {
        let fields = req.fields();
        let is_it = |connection: &&mut Connection| {
            connection.listener.is_some()
                && connection.remote_comm_id == fields.local_comm_id
                && connection.transaction == fields.transaction
                && connection.agreed.addresses == addresses
        };
        if let Some(connection) = self.slots.iter_mut().find(is_it) {
            return connection.take_duplicate_req(&mut self.io, now);
        }
        if fields.qpn.get() < 2 {
            self.io.counters.malformed += 1;
            return;
        }
        if let Err(reason) = self.begin_request(now, addresses, req, &fields) {
            self.io.refuse(now, addresses, (fields.transaction, fields.local_comm_id), reason);
        }
    }

    fn begin_request(
        &mut self,
        now: u64,
        addresses: Addresses,
        req: &Req,
        fields: &ReqFields,
    ) -> Result<(), RejectReason> {
        let listening = PortSpace::of_service(fields.service_id)
            .filter(|(space, _)| *space == PortSpace::Tcp)
            .and_then(|(space, port)| self.listeners.find(space, port));
        let (listener, options) = listening.ok_or(RejectReason::InvalidServiceId)?;
        let (transport, mtu) = check(addresses, fields)?;
        let ip = IpHeader::parse(req.private_data()).ok_or(RejectReason::Unsupported)?;
        self.end_stale(now, addresses, fields.qpn)?;
        self.check_backlog(listener, &options)?;
        let id = self.insert(State::ReqReceived, addresses, LocalQp::NONE).map_err(|_| RejectReason::NoResources)?;
        let (io, connection) = self.parts(id).map_err(|_| RejectReason::NoResources)?;
        connection.learn(fields, listener, (transport, mtu), io.config.ack_timeout);
        connection.keep_data(&req.private_data()[IpHeader::LEN..]);
        connection.wait_until(io, now.saturating_add(io.config.accept_ns));
        io.tell(CmEvent::ConnectRequest(ConnectRequest {
            id,
            listener,
            addresses,
            peer_port: ip.port(),
            transport,
            responder_resources: fields.responder_resources,
            initiator_depth: fields.initiator_depth,
            mtu,
        }));
        Ok(())
    }

    /// A peer that has forgotten a connection uses its queue pair's number again: the old one ends,
    /// and the peer asks once more (InfiniBand 12.9.8.3.1).
    fn end_stale(&mut self, now: u64, addresses: Addresses, qpn: Qpn) -> Result<(), RejectReason> {
        let is_stale = |connection: &&mut Connection| {
            let is_live = matches!(connection.state, State::Established | State::RepSent | State::RepWait);
            is_live && connection.agreed.qpn == qpn && connection.agreed.addresses == addresses
        };
        let Some(connection) = self.slots.iter_mut().find(is_stale) else { return Ok(()) };
        // One of these states can be left.
        let _ = connection.disconnect(&mut self.io, now);
        Err(RejectReason::StaleConnection)
    }

    fn check_backlog(&self, listener: ListenerId, options: &ListenOptions) -> Result<(), RejectReason> {
        let is_waiting = |connection: &&Connection| {
            let is_open = match connection.state {
                State::ReqReceived => true,
                State::SidrReceived => connection.retries == 0,
                _ => false,
            };
            is_open && !connection.is_orphan && connection.listener == Some(listener)
        };
        let waiting = self.slots.iter().filter(is_waiting).count();
        if waiting < options.backlog as usize { Ok(()) } else { Err(RejectReason::NoResources) }
    }

    pub(super) fn take_sidr_req(&mut self, now: u64, addresses: Addresses, request: &SidrReq) {
        let is_it = |connection: &&mut Connection| {
            connection.state == State::SidrReceived
                && connection.remote_comm_id == request.request_id()
                && connection.transaction == request.transaction()
                && connection.agreed.addresses == addresses
        };
        if let Some(connection) = self.slots.iter_mut().find(is_it) {
            self.io.counters.duplicates += 1;
            if connection.retries != 0 {
                connection.repeat(&mut self.io, now);
            }
            return;
        }
        if let Err(status) = self.begin_sidr(now, addresses, request) {
            self.io.counters.rejected += 1;
            let request = (request.transaction(), request.request_id(), request.service_id());
            self.io.answer(now, addresses, emit(&SidrRep::new(request, status, Qpn::new(0), 0, &[])));
        }
    }

    fn begin_sidr(&mut self, now: u64, addresses: Addresses, request: &SidrReq) -> Result<(), SidrStatus> {
        let listening = PortSpace::of_service(request.service_id())
            .filter(|(space, _)| *space == PortSpace::Udp)
            .and_then(|(space, port)| self.listeners.find(space, port));
        let (listener, options) = listening.ok_or(SidrStatus::Unsupported)?;
        let ip = IpHeader::parse(request.private_data()).ok_or(SidrStatus::UnsupportedVersion)?;
        self.check_backlog(listener, &options).map_err(|_| SidrStatus::NoQp)?;
        let id = self.insert(State::SidrReceived, addresses, LocalQp::NONE).map_err(|_| SidrStatus::NoQp)?;
        let (io, connection) = self.parts(id).map_err(|_| SidrStatus::NoQp)?;
        (connection.listener, connection.remote_comm_id) = (Some(listener), request.request_id());
        (connection.transaction, connection.service_id) = (request.transaction(), request.service_id());
        connection.retries = 0;
        connection.keep_data(&request.private_data()[IpHeader::LEN..]);
        connection.wait_until(io, now.saturating_add(io.config.accept_ns));
        io.tell(CmEvent::ConnectRequest(ConnectRequest {
            id,
            listener,
            addresses,
            peer_port: ip.port(),
            transport: Transport::Ud,
            responder_resources: 0,
            initiator_depth: 0,
            mtu: Mtu::B256,
        }));
        Ok(())
    }
}

/// The service and the payload of a REQ, if it asks for what there is.
fn check(addresses: Addresses, fields: &ReqFields) -> Result<(Transport, Mtu), RejectReason> {
    let transport = match fields.transport {
        0 => Transport::Rc,
        1 => Transport::Uc,
        _ => return Err(RejectReason::InvalidTransport),
    };
    // The gateway of an address translation would make these differ; RoCE does not pass one,
    // because the ICRC covers the addresses.
    if (fields.remote_gid, fields.local_gid) != gids(addresses) {
        return Err(RejectReason::InvalidGid);
    }
    if (fields.pkey ^ Bth::DEFAULT_PKEY) & 0x7fff != 0 {
        return Err(RejectReason::Unsupported);
    }
    let mtu = Mtu::from_code(fields.mtu).ok_or(RejectReason::InvalidMtu)?;
    Ok((transport, mtu))
}

impl Connection {
    /// Takes over what a REQ says.
    fn learn(&mut self, fields: &ReqFields, listener: ListenerId, (transport, mtu): (Transport, Mtu), own_timeout: u8) {
        (self.listener, self.remote_comm_id) = (Some(listener), fields.local_comm_id);
        (self.transaction, self.service_id) = (fields.transaction, fields.service_id);
        self.retries = fields.cm_retries;
        self.response_ns = nanos(fields.local_response_timeout).saturating_add(nanos(fields.ack_timeout));
        let agreed = &mut self.agreed;
        (agreed.transport, agreed.mtu) = (transport, mtu);
        (agreed.qpn, agreed.sq_psn) = (fields.qpn, fields.psn);
        // Ours answers what the peer asks for, and the other way round.
        agreed.max_dest_rd_atomic = fields.initiator_depth;
        agreed.max_rd_atomic = fields.responder_resources;
        (agreed.retry_cnt, agreed.rnr_retry) = (fields.retry_cnt, fields.rnr_retry);
        // 0 is no timeout at all, and a peer that dies must not hold our requests for ever.
        agreed.timeout = if fields.ack_timeout == 0 { own_timeout } else { fields.ack_timeout.min(CODE_MAX) };
        agreed.traffic_class = fields.traffic_class;
    }
}
