//! What a connection manager tells, and what it is told.

use super::slots::{CmId, ListenerId};
use crate::cm::reason::{RejectReason, SidrStatus};
use crate::cm::service::PortSpace;
use crate::roce::{Addresses, ModifyError, Mtu};
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// Something happened to a connection. Names are those of rdmacm (`rdma_get_cm_event.3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmEvent {
    /// A peer asks a listener: accept or reject it.
    ConnectRequest(ConnectRequest),
    /// The peer grants a connection, and its queue pair is to be led to RTS. A
    /// [`Manager`](crate::cm::Manager) does that, and does not hand on this event.
    ConnectResponse(CmId),
    /// The connection can be used by both ends.
    Established(CmId),
    /// The peer, or its connection manager, refuses.
    Rejected(CmId, RejectReason),
    /// The peer has not answered, after all retries.
    Unreachable(CmId),
    /// The queue pair did not take what was agreed on; the peer was refused.
    ConnectError(CmId, ModifyError),
    /// The connection has ended, by either end. Its queue pair is in ERR.
    Disconnected(CmId),
    /// Nothing late can come any more: the queue pair's number can be used again.
    TimewaitExit(CmId),
    /// The queue pair that takes a service's datagrams, and their key.
    Resolved(CmId, Qpn, u32),
    /// No queue pair takes the service's datagrams.
    NotResolved(CmId, SidrStatus),
}

/// A peer asks a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The connection.
    pub id: CmId,
    /// Who was asked.
    pub listener: ListenerId,
    /// From our address to the peer's.
    pub addresses: Addresses,
    /// The peer's port.
    pub peer_port: u16,
    /// The service that the queue pair needs.
    pub transport: Transport,
    /// READs and atomic operations that the peer answers at once.
    pub responder_resources: u8,
    /// READs and atomic operations that the peer wants to have under way at once.
    pub initiator_depth: u8,
    /// The largest payload that the peer proposes: of a connection it is the one.
    pub mtu: Mtu,
}

/// What a connection is asked for with.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions<'a> {
    /// From our address to the peer's.
    pub addresses: Addresses,
    /// The peer's port, of [`PortSpace::Tcp`].
    pub port: u16,
    /// Our queue pair.
    pub qp: LocalQp,
    /// [`Transport::Rc`] or [`Transport::Uc`].
    pub transport: Transport,
    /// The largest payload of a packet.
    pub mtu: Mtu,
    /// Times that either end sends a packet again, below 8.
    pub retry_cnt: u8,
    /// For the peer's program, up to 56 bytes.
    pub private_data: &'a [u8],
}

/// What an end says of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalQp {
    /// Its number.
    pub qpn: Qpn,
    /// The number of the first packet that it takes: the peer begins with it.
    pub psn: Psn,
    /// READs and atomic operations that it answers at once.
    pub responder_resources: u8,
    /// READs and atomic operations that it has under way at once.
    pub initiator_depth: u8,
    /// Times that the peer sends again where it finds no receive, below 8; 7 is for ever.
    pub rnr_retry: u8,
    /// Its receives come from a shared queue.
    pub srq: bool,
}

/// What both ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnParam {
    /// The service.
    pub transport: Transport,
    /// From our address to the peer's.
    pub addresses: Addresses,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The number of the peer's first packet, which we have named.
    pub rq_psn: Psn,
    /// The number of our first packet, which the peer has named.
    pub sq_psn: Psn,
    /// The largest payload of a packet.
    pub mtu: Mtu,
    /// READs and atomic operations of the peer at once.
    pub max_dest_rd_atomic: u8,
    /// READs and atomic operations of ours at once.
    pub max_rd_atomic: u8,
    /// Times that we send a packet again.
    pub retry_cnt: u8,
    /// Times that we send again where the peer has no receive.
    pub rnr_retry: u8,
    /// The time to an acknowledgment, 4.096 µs · 2ⁿ.
    pub timeout: u8,
    /// DSCP and ECN of our packets.
    pub traffic_class: u8,
}

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections, or datagrams.
    pub space: PortSpace,
    /// The port.
    pub port: u16,
    /// Requests that wait for our program at once; further ones are rejected for lack of resources.
    pub backlog: u32,
}
