//! Prepared orders: a complete frame, with payload, headers and checksums, except for the numbers
//! of the moment of sending.
//!
//! ```text
//!  | link | IPv4 | TCP: ports … seq ack … window checksum | timestamps | payload |
//!                            ▲   ▲        ▲      ▲            ▲ put in by `fire`, into a copy
//!                                                                           ▲ changed by `patch`
//! ```
//!
//! The order belongs to the app. `patch` overwrites bytes of the payload and brings the checksum
//! up to date by their difference. `fire` copies the frame into a buffer, puts the numbers in and
//! posts it; a retransmission sends the copy, so that the order may be patched and fired again
//! at once.

use core::fmt;

use super::ConnectionId;
use super::SendError;
use super::bytes::Bytes;
use super::fast::{PendingSend, SendRecords};
use super::headers::{Body, HEADERS_LEN_MAX, compose};
use super::next_hop::{LinkHeaderCache, NextHop, NextHopError, NextHopRequest};
use super::output::TcpOutput;
use super::sockets::{Inner, TcpCalls, TcpSockets};
use crate::device::{Offload, Preposted, TxQueue};
use crate::mem::{Mbuf, Pool};
use crate::pipeline::node::Cx;
use crate::proto::ResolutionCause;
use crate::proto::tcp::{HeaderTemplate, Numbers, Outgoing, Tcp};
use crate::time::Instant;
use crate::wire::checksum::{Patch, Sum};
use crate::wire::tcp::Timestamps;
use crate::wire::{ipv4, tcp};

/// A segment of a connection, ready to be sent. Where the path to the peer has changed, the next
/// `fire` prepares the headers again.
#[derive(Debug)]
pub struct PreparedOrder {
    pub(super) connection: ConnectionId,
    /// Headers, which end at `HEADERS_LEN_MAX`, and the payload from there.
    pub(super) bytes: Box<[u8]>,
    /// Bytes of the headers. The last are TCP's: with the timestamps option where the connection
    /// has it, and no other.
    pub(super) headers_len: usize,
    /// The sum under the TCP checksum with all numbers zero.
    sum: Sum,
    /// The value of [`changes`] when the headers were prepared; [`NEVER`] before.
    seen: u64,
    /// Its position in the device, unless another frame has overwritten it. Set by `prepost`;
    /// cleared when the preposted frame is fired, and when the headers are composed again.
    pub(super) preposted: Option<Preposted>,
}

/// The outcome of bytes that the connection has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpSent {
    /// The bytes were posted, and the doorbell has been rung; after [`post`](TcpCalls::post) they
    /// leave with the next doorbell. Over AF_XDP `tx/wakeups_refused` counts where the kernel did
    /// not accept them at once: they leave as soon as it does.
    Posted,
    /// The bytes have not left. They wait for earlier data, for the peer's window or the congestion
    /// window, or for the device, and leave as soon as possible; only [`abort`](TcpCalls::abort)
    /// takes them back.
    Queued,
    /// The bytes have not left, because there is no path to the peer. They wait, and are sent once
    /// and in order as soon as there is a path: when the link is up and the neighbor has replied.
    Unreachable(NextHopError),
}

/// Why there is no order, or why a patch is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreparedOrderError {
    /// The connection cannot send.
    Send(SendError),
    /// An empty payload.
    Empty,
    /// More than a segment carries.
    OverSegment {
        /// Bytes of the payload.
        len: usize,
        /// The most: the MSS.
        limit: usize,
    },
    /// More than the peer's window has ever allowed, or than the send buffer holds.
    OverWindow {
        /// Bytes of the payload.
        len: usize,
        /// The most.
        limit: usize,
    },
    /// A patch outside of the payload.
    OutOfRange {
        /// The first byte.
        offset: usize,
        /// How many.
        len: usize,
        /// Bytes of the payload.
        payload_len: usize,
    },
}

impl fmt::Display for PreparedOrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(error) => error.fmt(f),
            Self::Empty => f.write_str("a order without a byte of payload: give it as many as the order has"),
            Self::OverSegment { len, limit } => {
                write!(f, "{len} bytes do not fit a segment of {limit}: make the payload shorter, or use send")
            }
            Self::OverWindow { len, limit } => write!(
                f,
                "{len} bytes are more than the {limit} that the peer's window or the send buffer ever had room for: \
                 make the payload shorter, or use send"
            ),
            Self::OutOfRange { offset, len, payload_len } => {
                write!(f, "{len} bytes from {offset} are not inside the order's {payload_len}")
            }
        }
    }
}

impl std::error::Error for PreparedOrderError {}

impl PreparedOrder {
    /// The order's connection.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// The payload as it would be sent now.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADERS_LEN_MAX..]
    }

    /// Overwrites bytes of the payload from `offset` on. Costs by the number of those bytes, not by
    /// the payload's length.
    #[inline]
    pub fn patch(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PreparedOrderError> {
        let len = bytes.len();
        let begin = offset.checked_add(HEADERS_LEN_MAX);
        let range = begin.and_then(|begin| Some(begin..begin.checked_add(len)?));
        let Some(place) = range.and_then(|range| self.bytes.get_mut(range)) else {
            return Err(PreparedOrderError::OutOfRange { offset, len, payload_len: self.payload_len() });
        };
        // Headers are whole 16-bit words, so a payload offset has the parity of its offset in the
        // segment.
        self.sum = self.sum.patched(Patch { offset, old: place, new: bytes });
        place.copy_from_slice(bytes);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn frame(&self) -> &[u8] {
        &self.bytes[HEADERS_LEN_MAX - self.headers_len..]
    }

    #[inline(always)]
    pub(super) fn payload_len(&self) -> usize {
        self.bytes.len() - HEADERS_LEN_MAX
    }

    /// Writes the headers; `outgoing` has zeros for numbers.
    fn prepare(&mut self, outgoing: &Outgoing, link: &[u8]) {
        let headers = compose(link, outgoing, Body::of(self.payload(), false));
        self.headers_len = headers.len();
        let place = &mut self.bytes[HEADERS_LEN_MAX - headers.len()..HEADERS_LEN_MAX];
        place.copy_from_slice(&headers);
        let at = link.len() + ipv4::HEADER_LEN;
        self.sum = Sum::EMPTY.add_u16(!u16::from_be_bytes([headers[at + 16], headers[at + 17]]));
        // The preposted frame has the old headers.
        self.preposted = None;
    }

    /// A copy of the frame with the current numbers, where it may leave now.
    #[inline(always)]
    fn load<'a>(&self, machine: &'a mut Tcp<Bytes>, pool: &Pool, now: Instant) -> Option<PendingSend<'a>> {
        let permit = machine.send_permit(self.connection, self.payload_len(), now)?;
        let mut fresh = pool.alloc_fresh_copy(self.frame())?;
        if let Some((headers, _)) = fresh.bytes_mut().split_at_mut_checked(self.headers_len) {
            self.stamp(headers, &permit.numbers());
        }
        let (frame, payload) = fresh.keep(self.headers_len);
        Some(PendingSend { frame, payload, permit })
    }

    /// Puts the numbers of the moment into a copy of the headers.
    #[inline(always)]
    pub(super) fn stamp(&self, mut headers: &mut [u8], numbers: &Numbers) {
        let (seq, ack, wnd) = (numbers.seq.0, numbers.ack.0, numbers.wnd);
        let mut sum = Sum::of_words([seq, ack, wnd.into()]);
        if let Some(Timestamps { value, echo_reply }) = numbers.timestamps {
            let Some((before, option)) = headers.split_last_chunk_mut::<{ Timestamps::ALIGNED_LEN }>() else { return };
            option[4..8].copy_from_slice(&value.to_be_bytes());
            option[8..12].copy_from_slice(&echo_reply.to_be_bytes());
            sum = sum.combine(Sum::of_words([value, echo_reply]));
            headers = before;
        }
        if let Some(header) = headers.last_chunk_mut::<{ tcp::HEADER_LEN }>() {
            header[4..8].copy_from_slice(&seq.to_be_bytes());
            header[8..12].copy_from_slice(&ack.to_be_bytes());
            header[14..16].copy_from_slice(&wnd.to_be_bytes());
            header[16..18].copy_from_slice(&sum.combine(self.sum).finish().to_be_bytes());
        }
    }
}

/// Increments when anything changes that prepared headers depend on: the host, or the options of
/// connections.
#[inline(always)]
fn changes(cx: &Cx<'_>, inner: &Inner) -> u64 {
    cx.host.changes() + inner.machine.option_changes()
}

/// A count that is never reached.
const NEVER: u64 = u64::MAX;

/// Prepared orders.
impl TcpCalls<'_, '_> {
    /// Prepares a segment of a connection whose handshake is done. Allocates, so make orders
    /// before they are needed.
    pub fn prepare(&mut self, id: ConnectionId, payload: &[u8]) -> Result<PreparedOrder, PreparedOrderError> {
        let header_template = self.header_template(id).map_err(PreparedOrderError::Send)?;
        let len = payload.len();
        if len == 0 {
            return Err(PreparedOrderError::Empty);
        }
        let buffer = self.0.pool.layout().data_room().saturating_sub(HEADERS_LEN_MAX);
        let limit = header_template.mss.min(buffer);
        if len > limit {
            return Err(PreparedOrderError::OverSegment { len, limit });
        }
        let limit = header_template.window_max.min(header_template.send_buffer);
        if len > limit {
            return Err(PreparedOrderError::OverWindow { len, limit });
        }
        let mut bytes = vec![0; HEADERS_LEN_MAX + len].into_boxed_slice();
        bytes[HEADERS_LEN_MAX..].copy_from_slice(payload);
        let mut order =
            PreparedOrder { connection: id, bytes, headers_len: 0, sum: Sum::EMPTY, seen: NEVER, preposted: None };
        // Where no path is known yet, the first `fire` looks it up again.
        self.refresh(&mut order);
        Ok(order)
    }

    /// Sends the order's payload with the connection's current numbers. Where the payload may
    /// leave at once, this call rings the doorbell before it returns, for all frames posted earlier
    /// too, and does not wait for the end of the burst. Otherwise the payload is sent as by
    /// [`send`](TcpCalls::send), whole or not at all.
    ///
    /// Over AF_XDP the doorbell is a system call for each order ([`TxQueue`] has the cost of each
    /// device). Several orders share one doorbell where all but the last go by
    /// [`post`](Self::post).
    #[inline]
    pub fn fire(&mut self, order: &mut PreparedOrder) -> Result<TcpSent, SendError> {
        if self.launch_urgent(order) { Ok(TcpSent::Posted) } else { self.send_and_ring(order) }
    }

    /// [`fire`](Self::fire) without the doorbell: the order leaves with the next one, that of
    /// another `fire`, of [`Cx::ring_doorbell`], or of the turn's end. Makes no system call.
    #[inline]
    pub fn post(&mut self, order: &mut PreparedOrder) -> Result<TcpSent, SendError> {
        let is_posted = self.launch(order, |tx, frame| tx.post(frame, Offload::NONE));
        if is_posted { Ok(TcpSent::Posted) } else { self.send_prepared(order) }
    }

    /// Sends the order as [`fire`](Self::fire) does if it can leave in this call, and otherwise not
    /// at all: for orders that are worthless or harmful when late. Returns whether it was sent.
    /// Where it returns false nothing has changed and nothing is queued: the windows are full, the
    /// ring is, the next hop is not known, or the segment must carry SACK blocks or congestion
    /// flags, which the prepared headers have no room for.
    #[inline]
    pub fn try_fire(&mut self, order: &mut PreparedOrder) -> Result<bool, SendError> {
        if self.launch_urgent(order) { Ok(true) } else { self.cannot(order) }
    }

    /// Runs the code of [`fire`](Self::fire) up to the device, with the same instructions through
    /// the same memory, and sends nothing, so that an order after some quiet seconds finds the
    /// caches warm. Call it when the app has nothing else to do. Returns whether `fire` would send
    /// at once.
    #[inline]
    pub fn warm(&mut self, order: &mut PreparedOrder) -> Result<bool, SendError> {
        if !self.is_current(order) {
            return self.cannot(order);
        }
        let Cx { tcp: TcpSockets(Some(inner)), pool, tx, now, .. } = &mut *self.0 else { return self.cannot(order) };
        let Some(pending) = order.load(&mut inner.machine, pool, *now) else { return self.cannot(order) };
        match order.preposted.and_then(|which| tx.preposted(which)) {
            Some(frame) => {
                order.complete(frame, &pending.permit.numbers());
                pending.frame.free();
            }
            None => tx.dry_run(pending.frame, OFFLOAD),
        }
        pending.permit.dry_run(Bytes::Held(pending.payload));
        Ok(true)
    }

    /// Fires by the preposted frame, or by a copy that is posted.
    #[inline(always)]
    fn launch_urgent(&mut self, order: &mut PreparedOrder) -> bool {
        let is_fired = order.preposted.is_some() && self.launch_preposted(order);
        is_fired || self.launch(order, |tx, frame| tx.post_urgent(frame))
    }

    /// Posts a copy of the frame by `post` where it may leave at once. Otherwise returns false and
    /// changes nothing.
    #[inline(always)]
    fn launch(
        &mut self,
        order: &mut PreparedOrder,
        post: impl FnOnce(&mut dyn TxQueue, Mbuf) -> Result<(), Mbuf>,
    ) -> bool {
        if !self.is_current(order) {
            return false;
        }
        let Cx { tcp: TcpSockets(Some(inner)), pool, tx, now, .. } = &mut *self.0 else { return false };
        let Inner { machine, counters, roster, .. } = &mut **inner;
        let Some(pending) = order.load(machine, pool, *now) else { return false };
        pending.leave(|frame| post(&mut **tx, frame), &SendRecords { counters, roster })
    }

    /// Whether the headers are current: prepares them again where possible.
    #[inline(always)]
    pub(super) fn is_current(&mut self, order: &mut PreparedOrder) -> bool {
        let Some(inner) = &self.0.tcp.0 else { return false };
        order.seen == changes(self.0, inner) || self.refresh(order)
    }

    /// The order does not leave now. Returns an error where it can never leave.
    #[cold]
    fn cannot(&mut self, order: &PreparedOrder) -> Result<bool, SendError> {
        self.header_template(order.connection).map(|_| false)
    }

    /// Prepares the headers again, where the path is known and the connection may send.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self, order: &mut PreparedOrder) -> bool {
        let id = order.connection;
        let Ok(header_template) = self.header_template(id) else { return false };
        let Some(inner) = &self.0.tcp.0 else { return false };
        let seen = changes(self.0, inner);
        let outgoing = header_template.outgoing;
        let request = NextHopRequest::of(outgoing.flow, ResolutionCause::Connection);
        let known = Inner::call(self.0, |_, TcpOutput { cx, link_headers, roster, .. }| {
            let news = |path: &LinkHeaderCache| {
                if let Some(roster) = &mut **roster {
                    roster.set_link(id.slot() as u32, path.known());
                }
            };
            let NextHop::Known(link) = link_headers[id.slot()].resolve_next_hop(request, cx, news) else {
                return false;
            };
            order.prepare(&outgoing, link);
            true
        });
        if known == Some(true) {
            order.seen = seen;
        }
        known == Some(true)
    }

    pub(super) fn header_template(&mut self, id: ConnectionId) -> Result<HeaderTemplate, SendError> {
        self.machine().ok_or(SendError::NotFound)?.header_template(id)
    }

    /// As [`send_prepared`](Self::send_prepared), and rings the doorbell where it has left.
    #[cold]
    #[inline(never)]
    fn send_and_ring(&mut self, order: &mut PreparedOrder) -> Result<TcpSent, SendError> {
        let sent = self.send_prepared(order)?;
        if sent == TcpSent::Posted {
            self.0.ring_doorbell();
        }
        Ok(sent)
    }

    /// The slow path of an order that cannot leave at once, or not in the prepared form.
    #[cold]
    #[inline(never)]
    fn send_prepared(&mut self, order: &PreparedOrder) -> Result<TcpSent, SendError> {
        let id = order.connection;
        self.header_template(id)?;
        let Some(payload) = self.0.pool.alloc_copy(order.payload()) else {
            let now = self.0.now;
            if let Some(machine) = self.machine() {
                machine.await_room(id, now);
            }
            return Err(SendError::PoolEmpty);
        };
        if let Err((error, payload)) = self.send_mbuf(id, payload) {
            payload.free();
            return Err(error);
        }
        let Some(machine) = self.machine() else { return Err(SendError::NotFound) };
        if !machine.has_unsent(id) {
            return Ok(TcpSent::Posted);
        }
        let missing = machine.waits_for_route(id).and_then(|flow| NextHopError::check(*flow.remote.ip(), self.0));
        Ok(missing.map_or(TcpSent::Queued, TcpSent::Unreachable))
    }
}

/// The checksum is computed already, and the frame is urgent.
const OFFLOAD: Offload = Offload::URGENT;
