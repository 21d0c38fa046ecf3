//! A TCP socket: the state of its connection, and the bytes that wait to be read. The bytes stay in
//! their packet buffers, and are copied once, to the caller, unless buffers are scarce.

use core::net::SocketAddrV4;
use std::collections::VecDeque;
use std::io::IoSliceMut;

use wirepath::pipeline::tcp::{ConnectionId, TcpInfo};
use wirepath::time::{Instant, UnixTime};

use super::{BUFFER_CHARGE, Payload, UNBOUND};
use crate::errno::Errno;
use crate::ready::Ready;
use crate::table::SocketId;

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no connection, either not yet or no longer. Data that came earlier can still be
    /// read.
    Closed,
    /// The SYN has left.
    Connecting,
    /// The handshake is done.
    Open,
}

/// The state by which `connect` is answered, as Linux's `socket_state`. It outlives the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketState {
    /// No result yet, or a failure: `connect` may be called.
    Unconnected,
    /// `EINPROGRESS`: the handshake has begun.
    Connecting,
    /// Success: `connect` returns `EISCONN` from now on.
    Connected,
    /// `shutdown` after a handshake that failed: `connect` may not be called again.
    Disconnecting,
}

/// A TCP socket that does not listen.
pub(crate) struct Stream {
    pub(crate) phase: Phase,
    pub(crate) socket_state: SocketState,
    pub(crate) connection: Option<ConnectionId>,
    /// The last connection, also after its end, when it may be in TIME-WAIT.
    pub(crate) last_connection: Option<ConnectionId>,
    /// `getpeername`.
    pub(crate) remote: SocketAddrV4,
    received: VecDeque<Payload>,
    /// When the last of these arrived, one for each, where the socket asks for times.
    arrivals: VecDeque<ReceiveTime>,
    /// Bytes of the first buffer that were read.
    offset: usize,
    /// Bytes that wait.
    len: usize,
    /// The most that has waited, as `SO_RCVBUF` counts it.
    pub(crate) charge_max: usize,
    /// The peer's FIN has come.
    pub(crate) is_peer_closed: bool,
    pub(crate) is_read_shut: bool,
    pub(crate) is_write_shut: bool,
    /// The connection sends its FIN behind `pending`. One of a socket that was shut before it
    /// connected does not.
    pub(crate) sends_fin: bool,
    /// The last send was complete, or there is room again.
    pub(crate) is_writable: bool,
    /// Bytes that wait for further bytes, or for room, before they are sent.
    pub(crate) pending: Vec<u8>,
    /// The time until which a cork keeps them.
    pub(crate) corked_until: Option<Instant>,
    /// The unsent bytes are above `TCP_NOTSENT_LOWAT`: there may be room, but no more is taken.
    pub(crate) is_throttled: bool,
    /// The listener that gives it out with the first data (`TCP_DEFER_ACCEPT`).
    pub(crate) deferred_by: Option<SocketId>,
    /// The connection when it ended, for `TCP_INFO`.
    pub(crate) last_info: Option<Box<TcpInfo>>,
    /// The receive buffer is full, so the TCP machine keeps arriving data.
    pub(crate) is_paused: bool,
    /// The ICMP error that ends the attempt to connect.
    pub(crate) failure: Option<Errno>,
    /// When the last segment of which bytes were read arrived.
    pub(crate) last_read: Option<ReceiveTime>,
}

/// When bytes arrived: in which turn, and by the NIC's clock.
pub(crate) type ReceiveTime = (Instant, Option<UnixTime>);

impl Stream {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Closed,
            socket_state: SocketState::Unconnected,
            connection: None,
            last_connection: None,
            remote: UNBOUND,
            received: VecDeque::new(),
            arrivals: VecDeque::new(),
            offset: 0,
            len: 0,
            charge_max: 0,
            is_peer_closed: false,
            is_read_shut: false,
            is_write_shut: false,
            sends_fin: false,
            is_writable: false,
            pending: Vec::new(),
            corked_until: None,
            is_throttled: false,
            deferred_by: None,
            last_info: None,
            is_paused: false,
            failure: None,
            last_read: None,
        }
    }

    /// The connection's SYN has left. A direction that was shut before stays shut, as on Linux.
    pub(crate) fn call(&mut self, connection: ConnectionId, remote: SocketAddrV4) {
        self.phase = Phase::Connecting;
        self.socket_state = SocketState::Connecting;
        self.connection = Some(connection);
        self.last_connection = Some(connection);
        self.remote = remote;
    }

    /// A stream that a listener accepted.
    pub(crate) fn accepted(connection: ConnectionId, remote: SocketAddrV4) -> Self {
        let connection = Some(connection);
        let (phase, socket_state) = (Phase::Open, SocketState::Connected);
        Self { phase, socket_state, connection, last_connection: connection, remote, is_writable: true, ..Self::new() }
    }

    /// Keeps received bytes.
    #[inline]
    pub(crate) fn push(&mut self, payload: Payload) {
        self.len += payload.len();
        self.received.push_back(payload);
        self.charge_max = self.charge_max.max(self.charge());
    }

    /// Keeps the arrival of the segment that was pushed last.
    #[cold]
    pub(crate) fn keep_arrival(&mut self, arrival: ReceiveTime) {
        self.arrivals.push_back(arrival);
    }

    /// Notes the arrival of the segment that the next read begins with.
    pub(crate) fn note_first(&mut self) {
        let is_known = self.arrivals.len() == self.received.len();
        self.last_read = self.arrivals.front().copied().filter(|_| is_known);
    }

    /// Notes the arrival of the segment of which the last bytes were taken.
    #[cold]
    fn note_last(&mut self) {
        let mut last = None;
        while self.arrivals.len() > self.received.len() {
            last = self.arrivals.pop_front();
        }
        if self.offset > 0 && self.arrivals.len() == self.received.len() {
            last = self.arrivals.front().copied();
        }
        self.last_read = last;
    }

    /// Bytes that wait (`FIONREAD`).
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The waiting bytes as `SO_RCVBUF` counts them.
    #[inline]
    pub(crate) fn charge(&self) -> usize {
        self.len.max(self.received.len() * BUFFER_CHARGE)
    }

    /// Copies bytes from the front, and forgets them.
    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < into.len()
            && let Some(first) = self.received.front()
        {
            let count = first.copy(self.offset, &mut into[copied..]);
            copied += count;
            self.offset += count;
            if self.offset == first.len() {
                self.received.pop_front();
                self.offset = 0;
            }
        }
        self.len -= copied;
        if !self.arrivals.is_empty() {
            self.note_last();
        }
        copied
    }

    /// Copies bytes from the front, and leaves them (`MSG_PEEK`).
    pub(crate) fn peek(&self, into: &mut [u8]) -> usize {
        let (mut copied, mut offset) = (0, self.offset);
        for payload in &self.received {
            copied += payload.copy(offset, &mut into[copied..]);
            offset = 0;
        }
        copied
    }

    /// Copies bytes from the front into several parts, and leaves them.
    pub(crate) fn peek_parts(&self, into: &mut [IoSliceMut<'_>]) -> usize {
        let mut copied = 0;
        for part in into {
            let mut skip = self.offset + copied;
            let mut filled = 0;
            for payload in &self.received {
                if skip >= payload.len() {
                    skip -= payload.len();
                    continue;
                }
                filled += payload.copy(skip, &mut part[filled..]);
                skip = 0;
                if filled == part.len() {
                    break;
                }
            }
            copied += filled;
        }
        copied
    }

    /// Forgets bytes from the front (`MSG_TRUNC`).
    pub(crate) fn discard(&mut self, count: usize) -> usize {
        let count = count.min(self.len);
        self.len -= count;
        self.offset += count;
        while let Some(first) = self.received.front()
            && self.offset >= first.len()
        {
            self.offset -= first.len();
            self.received.pop_front();
        }
        if !self.arrivals.is_empty() {
            self.note_last();
        }
        count
    }

    /// The connection is gone: neither direction is open (Linux `tcp_done`).
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Closed;
        self.connection = None;
        self.is_read_shut = true;
        self.is_write_shut = true;
    }

    /// Linux `tcp_poll`.
    pub(crate) fn ready(&self, low_water: usize) -> Ready {
        let is_closed = self.phase == Phase::Closed;
        let reads_end = self.is_peer_closed || self.is_read_shut;
        let ends = Ready::when(reads_end, Ready::IN | Ready::RDHUP)
            | Ready::when(is_closed || (reads_end && self.is_write_shut), Ready::HUP);
        if self.phase == Phase::Connecting {
            return ends;
        }
        // No more bytes come while the receive buffer is full, however few they are: each segment
        // takes at least a packet buffer's room.
        let has_enough = self.len >= low_water.max(1) || (self.is_paused && self.len > 0);
        ends | Ready::when(has_enough, Ready::IN)
            | Ready::when(self.is_writable || self.is_write_shut || is_closed, Ready::OUT)
    }

    /// The connection that bytes go to.
    #[inline]
    pub(crate) fn sends_by(&self) -> Result<ConnectionId, Errno> {
        match (self.phase, self.connection) {
            (Phase::Connecting, _) => Err(Errno::EAGAIN),
            (Phase::Open, Some(connection)) if !(self.is_write_shut | self.sends_fin) => Ok(connection),
            // The process ends: a call that sends goes on until then.
            (Phase::Open, Some(_)) if !self.is_write_shut => Err(Errno::EAGAIN),
            _ => Err(Errno::EPIPE),
        }
    }
}
