//! The connection manager as a machine without I/O and clock.

mod config;
mod connection;
mod event;
mod io;
mod listening;
mod slots;

pub use config::{CmConfig, CmCounters, CmError};
pub use event::{CmEvent, ConnParam, ConnectOptions, ConnectRequest, ListenOptions, LocalQp};
pub use io::Delivery;
pub use slots::{CmId, ListenerId};

use self::connection::{Connection, State};
use self::io::{Io, NEVER, nanos};
use self::listening::Listeners;
use self::slots::Slots;
use super::mad::MAD_LEN;
use super::message::{About, Drep, Dreq, Message, Rej, RejFields, Rep, RepFields, Req, ReqFields, SidrReq, emit};
use super::message::{REJ_DATA_LEN, REP_DATA_LEN, REQ_DATA_LEN, SIDR_REQ_DATA_LEN};
use super::reason::RejectReason;
use super::service::{IpHeader, PortSpace};
use crate::roce::Addresses;
use crate::wire::bth::Bth;
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// The connection manager of a port. It knows no device: whoever carries it gives it the datagrams
/// of queue pair 1 ([`Cm::receive`]), sends those that it hands out ([`Cm::transmit`]), calls
/// [`Cm::on_timer`] when [`Cm::next_timer`] is reached, leads queue pairs to their states, and says
/// so ([`Cm::ready`]). A [`Manager`](crate::cm::Manager) does all of that.
///
/// All tables are made once. A message costs a look at each connection where it begins one, and
/// else none; a timer costs a look at each.
pub struct Cm {
    slots: Slots,
    listeners: Listeners,
    io: Io,
}

impl Cm {
    /// A connection manager with room for what the configuration says.
    ///
    /// # Panics
    /// With more than 2²⁴ connections.
    pub fn new(config: &CmConfig) -> Self {
        assert!(config.connections <= 1 << 24, "more connections than a number of 32 bits names again and again");
        Self {
            slots: Slots::new(config.connections, config.seed),
            listeners: Listeners::new(config.listeners),
            io: Io::new(config),
        }
    }

    /// Asks a peer for a connection. [`CmEvent::ConnectResponse`], `Rejected` or `Unreachable`
    /// follows.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn connect(&mut self, now: u64, options: &ConnectOptions<'_>) -> Result<CmId, CmError> {
        if options.private_data.len() > REQ_DATA_LEN - IpHeader::LEN {
            return Err(CmError::PrivateData);
        }
        let service_id = PortSpace::Tcp.service_id(options.port);
        let id = self.insert(State::ReqSent, options.addresses, options.qp)?;
        let (io, connection) = self.parts(id)?;
        let (local_gid, remote_gid) = gids(options.addresses);
        let config = io.config;
        let fields = ReqFields {
            transaction: io.next_transaction(),
            local_comm_id: id.get(),
            service_id,
            ca_guid: config.ca_guid,
            qpn: options.qp.qpn,
            responder_resources: options.qp.responder_resources,
            initiator_depth: options.qp.initiator_depth,
            remote_response_timeout: config.response_timeout,
            transport: if options.transport == Transport::Uc { 1 } else { 0 },
            psn: options.qp.psn,
            local_response_timeout: config.response_timeout,
            retry_cnt: options.retry_cnt,
            pkey: Bth::DEFAULT_PKEY,
            mtu: options.mtu as u8,
            rnr_retry: options.qp.rnr_retry,
            cm_retries: config.retries,
            srq: options.qp.srq,
            local_gid,
            remote_gid,
            traffic_class: config.traffic_class,
            hop_limit: HOP_LIMIT,
            ack_timeout: config.ack_timeout,
        };
        let mad = emit(&Req::new(&fields, &addressed::<REQ_DATA_LEN>(id, options.addresses, options.private_data)));
        (connection.transaction, connection.service_id) = (fields.transaction, service_id);
        connection.agreed.transport = options.transport;
        (connection.agreed.mtu, connection.agreed.retry_cnt) = (options.mtu, options.retry_cnt);
        (connection.agreed.timeout, connection.agreed.traffic_class) = (config.ack_timeout, config.traffic_class);
        connection.begin(io, now, State::ReqSent, mad);
        Ok(id)
    }

    /// Asks which queue pair takes the datagrams of a peer's port. [`CmEvent::Resolved`],
    /// `NotResolved` or `Unreachable` follows.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn resolve(&mut self, now: u64, addresses: Addresses, port: u16, data: &[u8]) -> Result<CmId, CmError> {
        if data.len() > SIDR_REQ_DATA_LEN - IpHeader::LEN {
            return Err(CmError::PrivateData);
        }
        let service_id = PortSpace::Udp.service_id(port);
        let id = self.insert(State::SidrSent, addresses, LocalQp::NONE)?;
        let (io, connection) = self.parts(id)?;
        let data = addressed::<SIDR_REQ_DATA_LEN>(id, addresses, data);
        let request = SidrReq::new(io.next_transaction(), id.get(), Bth::DEFAULT_PKEY, service_id, &data);
        (connection.transaction, connection.service_id) = (request.transaction(), service_id);
        connection.begin(io, now, State::SidrSent, emit(&request));
        Ok(id)
    }

    /// Grants a connection that a peer has asked for: the REP is sent when its queue pair is
    /// [`ready`](Self::ready). More READs and atomic operations than the peer's are cut.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn accept(&mut self, id: CmId, qp: &LocalQp, data: &[u8]) -> Result<(), CmError> {
        let (io, connection) = self.parts(id)?;
        if data.len() > REP_DATA_LEN {
            return Err(CmError::PrivateData);
        }
        if connection.state != State::ReqReceived {
            return Err(CmError::State);
        }
        let agreed = &mut connection.agreed;
        agreed.max_dest_rd_atomic = agreed.max_dest_rd_atomic.min(qp.responder_resources);
        agreed.max_rd_atomic = agreed.max_rd_atomic.min(qp.initiator_depth);
        agreed.rq_psn = qp.psn;
        let fields = RepFields {
            transaction: connection.transaction,
            local_comm_id: id.get(),
            remote_comm_id: connection.remote_comm_id,
            qpn: qp.qpn,
            psn: qp.psn,
            responder_resources: agreed.max_dest_rd_atomic,
            initiator_depth: agreed.max_rd_atomic,
            ack_delay: 0,
            rnr_retry: qp.rnr_retry,
            srq: qp.srq,
            ca_guid: io.config.ca_guid,
        };
        (connection.local, connection.state) = (*qp, State::RepReady);
        connection.sent = emit(&Rep::new(&fields, data));
        Ok(())
    }

    /// The queue pair of a connection is in RTS: REP or RTU is sent.
    ///
    /// # Errors
    /// [`CmError`]: the peer may have given up meanwhile.
    pub fn ready(&mut self, now: u64, id: CmId) -> Result<(), CmError> {
        let (io, connection) = self.parts(id)?;
        connection.ready(io, now)
    }

    /// The first packet came over a connection: its RTU was lost, and it is established anyway.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn notify_established(&mut self, id: CmId) -> Result<(), CmError> {
        let (io, connection) = self.parts(id)?;
        if !matches!(connection.state, State::RepSent | State::RepWait) {
            return Err(CmError::State);
        }
        connection.establish(io);
        Ok(())
    }

    /// Refuses a connection that a peer has asked for, or granted.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn reject(&mut self, now: u64, id: CmId, reason: RejectReason, data: &[u8]) -> Result<(), CmError> {
        let (io, connection) = self.parts(id)?;
        if data.len() > REJ_DATA_LEN {
            return Err(CmError::PrivateData);
        }
        if !matches!(connection.state, State::ReqReceived | State::RepReady | State::RepReceived) {
            return Err(CmError::State);
        }
        connection.reject(io, now, reason, data)
    }

    /// Ends a connection. [`CmEvent::Disconnected`] follows, and `TimewaitExit` later.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn disconnect(&mut self, now: u64, id: CmId) -> Result<(), CmError> {
        let (io, connection) = self.parts(id)?;
        connection.disconnect(io, now)
    }

    /// Forgets a connection, as `rdma_destroy_id` does: what is under way is taken back, an
    /// established one is ended, and its place is free when nothing late can come. No event of it
    /// follows.
    ///
    /// # Errors
    /// If there is none.
    pub fn destroy(&mut self, now: u64, id: CmId) -> Result<(), CmError> {
        let (io, connection) = self.parts(id)?;
        connection.is_orphan = true;
        io.forget(id);
        // Each is a verb of its state.
        let _ = match connection.state {
            State::Established => connection.disconnect(io, now),
            State::ReqSent | State::ReqWait | State::RepSent | State::RepWait => {
                connection.reject(io, now, RejectReason::Timeout, &[])
            }
            State::ReqReceived | State::RepReady | State::RepReceived => {
                connection.reject(io, now, RejectReason::ConsumerDefined, &[])
            }
            _ => Ok(()),
        };
        match connection.state {
            State::DreqSent | State::TimeWait => {}
            State::Idle if connection.has_refused() => {
                connection.state = State::Refused;
                let wait = connection.response_ns.saturating_mul(2).min(REFUSED_NS);
                connection.wait_until(io, now.saturating_add(wait));
            }
            State::SidrReceived if connection.deadline != NEVER => {}
            _ => self.slots.remove(id),
        }
        Ok(())
    }

    /// What both ends of a connection have agreed on, once the peer has asked or answered.
    pub fn agreed(&self, id: CmId) -> Option<ConnParam> {
        self.slots.get(id).map(|connection| connection.agreed)
    }

    /// What the peer's program has said last: with its request, its answer or its refusal. Zeros
    /// fill it up to the length of the message.
    pub fn private_data(&self, id: CmId) -> Option<&[u8]> {
        self.slots.get(id).map(|connection| &connection.data[..connection.data_len.into()])
    }

    /// The connections that have a place, those that were destroyed and wait included.
    pub fn connections(&self) -> usize {
        self.slots.iter().count()
    }

    /// Takes the oldest event.
    pub fn next_event(&mut self) -> Option<CmEvent> {
        self.io.next_event()
    }

    /// What was counted.
    pub fn counters(&self) -> CmCounters {
        self.io.counters
    }

    /// True if [`Cm::transmit`] has something to hand out.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.io.has_outgoing()
    }

    /// Hands out each message that waits, once; one whose way is not known yet waits on, for three
    /// seconds.
    pub fn transmit(&mut self, now: u64, deliver: impl FnMut(Addresses, &[u8; MAD_LEN]) -> Delivery) {
        self.io.transmit(now, deliver);
    }

    /// When [`Cm::on_timer`] is to be called.
    #[inline]
    pub fn next_timer(&self) -> Option<u64> {
        (self.io.next_at != NEVER).then_some(self.io.next_at)
    }

    /// Looks at the timers of all connections, if one is reached.
    pub fn on_timer(&mut self, now: u64) {
        if now < self.io.next_at {
            return;
        }
        self.io.next_at = NEVER;
        let (mut is_any_gone, mut next) = (false, NEVER);
        for connection in self.slots.iter_mut() {
            if connection.deadline <= now {
                connection.on_timer(&mut self.io, now);
            }
            next = next.min(connection.deadline);
            is_any_gone |= connection.is_gone();
        }
        self.io.next_at = next;
        if is_any_gone {
            self.slots.remove_if(Connection::is_gone);
        }
    }

    /// Takes a datagram that came to queue pair 1; `addresses` are from ours to the sender's.
    pub fn receive(&mut self, now: u64, addresses: Addresses, mad: &[u8]) {
        self.io.counters.received += 1;
        let Ok(message) = Message::parse(mad) else {
            self.io.counters.malformed += 1;
            return;
        };
        let named = match message {
            Message::Req(req) => return self.take_req(now, addresses, req),
            Message::SidrReq(request) => return self.take_sidr_req(now, addresses, request),
            Message::Rej(rej) => return self.take_rej(now, addresses, rej),
            Message::Mra(mra) => mra.remote_comm_id(),
            Message::Rep(rep) => rep.fields().remote_comm_id,
            Message::Rtu(rtu) => rtu.remote_comm_id(),
            Message::Dreq(dreq) => dreq.remote_comm_id(),
            Message::Drep(drep) => drep.remote_comm_id(),
            Message::SidrRep(rep) => rep.request_id(),
        };
        let io = &mut self.io;
        let Some(connection) = self.slots.get_mut(CmId(named)) else {
            return io.answer_unknown(now, addresses, &message);
        };
        if connection.agreed.addresses != addresses {
            io.counters.wrong_address += 1;
            return;
        }
        let names_both = |local: u32| connection.remote_comm_id == local;
        match message {
            Message::Mra(mra) => connection.take_mra(io, now, mra),
            Message::Rep(rep) => connection.take_rep(io, now, rep),
            Message::Rtu(rtu) if names_both(rtu.local_comm_id()) => connection.take_rtu(io),
            Message::Dreq(dreq) => connection.take_dreq(io, now, dreq),
            Message::Drep(drep) if names_both(drep.local_comm_id()) => connection.take_drep(io, now),
            Message::SidrRep(rep) => connection.take_sidr_rep(io, rep),
            _ => io.counters.unknown += 1,
        }
    }

    fn take_rej(&mut self, now: u64, addresses: Addresses, rej: &Rej) {
        let fields = rej.fields();
        let is_it = |connection: &&mut Connection| {
            let by_ours = fields.remote_comm_id == connection.id.get();
            // The peer has not heard our name of it: it takes back its REQ.
            let by_theirs = fields.remote_comm_id == 0
                && connection.listener.is_some()
                && fields.local_comm_id == connection.remote_comm_id;
            (by_ours || by_theirs) && connection.agreed.addresses == addresses
        };
        let found = match fields.remote_comm_id {
            0 => self.slots.iter_mut().find(is_it),
            id => self.slots.get_mut(CmId(id)).filter(is_it),
        };
        match found {
            Some(connection) => connection.take_rej(&mut self.io, now, rej),
            None => self.io.counters.unknown += 1,
        }
    }

    fn insert(&mut self, state: State, addresses: Addresses, qp: LocalQp) -> Result<CmId, CmError> {
        let config = self.io.config;
        if self.slots.is_full() {
            // One that our program has refused answers a peer who asks again, and one that it has
            // destroyed waits for the answer to its DREQ as long as the peer said: both are worth
            // less.
            self.slots.remove_one(|connection| {
                connection.state == State::Refused || connection.is_orphan && connection.state == State::DreqSent
            });
        }
        let made = self.slots.insert_with(|id| {
            let mut connection = Connection::new(id, state, addresses, qp);
            connection.response_ns = nanos(config.response_timeout).saturating_add(nanos(config.ack_timeout));
            connection.retries = config.retries;
            connection
        });
        made.ok_or(CmError::Full("connections"))
    }

    fn parts(&mut self, id: CmId) -> Result<(&mut Io, &mut Connection), CmError> {
        let connection = self.slots.get_mut(id).filter(|connection| !connection.is_orphan).ok_or(CmError::Unknown)?;
        Ok((&mut self.io, connection))
    }
}

/// How long one that was refused answers who asks again, if the peer does not wait less.
const REFUSED_NS: u64 = 10_000_000_000;
/// As far as a path of packets goes, by default.
const HOP_LIMIT: u8 = 64;

impl LocalQp {
    const NONE: Self = Self {
        qpn: Qpn::new(0),
        psn: Psn::new(0),
        responder_resources: 0,
        initiator_depth: 0,
        rnr_retry: 0,
        srq: false,
    };
}

impl Connection {
    fn is_gone(&self) -> bool {
        self.is_orphan && self.state == State::Idle
    }
}

impl Io {
    /// A message names no connection of ours. Who waits for an answer gets one, so that it does not
    /// wait for all its retries.
    fn answer_unknown(&mut self, now: u64, addresses: Addresses, message: &Message<'_>) {
        self.counters.unknown += 1;
        match message {
            Message::Rep(rep) => {
                let fields = rep.fields();
                let rej = RejFields {
                    transaction: fields.transaction,
                    local_comm_id: fields.remote_comm_id,
                    remote_comm_id: fields.local_comm_id,
                    about: About::Rep,
                    reason: RejectReason::InvalidCommId,
                };
                self.reject(now, addresses, &rej);
            }
            Message::Dreq(dreq) => self.answer(now, addresses, emit(&drep_of(dreq))),
            _ => {}
        }
    }
}

const fn drep_of(dreq: &Dreq) -> Drep {
    Drep::new(dreq.transaction(), dreq.remote_comm_id(), dreq.local_comm_id())
}

/// Our GID and the peer's.
const fn gids(addresses: Addresses) -> (core::net::Ipv6Addr, core::net::Ipv6Addr) {
    (addresses.own(), addresses.peer())
}

/// Private data behind the header of addresses.
fn addressed<const N: usize>(id: CmId, addresses: Addresses, data: &[u8]) -> [u8; N] {
    // A port of those that nobody listens at; it only names us.
    const FIRST_PORT: u32 = 49_152;
    let (source, destination) = gids(addresses);
    let header = IpHeader::new((FIRST_PORT + id.get() % (1 << 14)) as u16, source, destination);
    let mut bytes = [0; N];
    bytes[..IpHeader::LEN].copy_from_slice(zerocopy::IntoBytes::as_bytes(&header));
    bytes[IpHeader::LEN..][..data.len()].copy_from_slice(data);
    bytes
}
