//! Prepared orders: a frame that stands ready, payload, headers, checksums and all, but for the
//! numbers that only the moment knows.
//!
//! ```text
//!  | link | IPv4 | TCP: ports … seq ack … window checksum | timestamps | payload |
//!                            ▲   ▲        ▲      ▲            ▲ put in by `fire`, into a copy
//!                                                                           ▲ changed by `patch`
//! ```
//!
//! The template belongs to the app. `patch` overwrites bytes of the payload and brings the checksum
//! up to date by their difference. `fire` copies the frame into a buffer, puts the numbers in and
//! posts it; the copy is what is sent again should it get lost, so that the template may be patched
//! and fired again at once.

use core::fmt;

use super::super::node::Cx;
use super::ConnectionId;
use super::SendError;
use super::bytes::Bytes;
use super::fast::{PendingSend, SendRecords};
use super::headers::{Body, HEADERS_LEN_MAX, compose};
use super::output::TcpOutput;
use super::path::{NextHop, Path, PathRequest, Unreachable};
use super::sockets::{Inner, TcpCalls, TcpSockets};
use crate::device::{Offload, Preposted, TxQueue};
use crate::mem::{Mbuf, Pool};
use crate::proto::Asker;
use crate::proto::tcp::{HeaderTemplate, Numbers, Outgoing, Tcp};
use crate::time::Instant;
use crate::wire::checksum::{Patch, Sum};
use crate::wire::tcp::Timestamps;
use crate::wire::{ipv4, tcp};

/// A segment of a connection, ready to be sent. It follows its host as the connection does: where
/// the way has changed, the next `fire` prepares the headers anew.
#[derive(Debug)]
pub struct Template {
    pub(super) connection: ConnectionId,
    /// Headers, which end at `HEADERS_LEN_MAX`, and the payload from there.
    pub(super) bytes: Box<[u8]>,
    /// The last of the headers are those of TCP: with the timestamps option, where the connection
    /// has it, and no other.
    pub(super) headers_len: usize,
    /// What the TCP checksum covers, as it would be were all numbers zero.
    sum: Sum,
    /// What [`changes`] were when the headers were prepared; [`NEVER`] before.
    seen: u64,
    /// Where it stands in the device, if nothing has taken its place there.
    pub(super) preposted: Option<Preposted>,
}

/// What became of bytes that the connection has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// They were given to the device, and it has been told of them. By [`post`](TcpCalls::post)
    /// they leave with the next doorbell. Over AF_XDP `tx/wakeups_refused` counts where the kernel
    /// did not take them at once: then they leave as soon as it does.
    Posted,
    /// They have not left. They wait: for data before them, for the peer's window or the congestion
    /// window, for the device. They leave as soon as may be; [`abort`](TcpCalls::abort) is what
    /// takes them back.
    Queued,
    /// They have not left, as there is no way to the peer. They wait as well, and leave, once and
    /// in order, as soon as there is one: when the link is up, when the neighbor has answered.
    Unreachable(Unreachable),
}

/// Why there is no template, or no such place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// The connection cannot send.
    Send(SendError),
    /// A payload without a byte.
    Empty,
    /// More than a segment carries.
    OverSegment {
        /// Bytes of the payload.
        len: usize,
        /// The most: the MSS.
        limit: usize,
    },
    /// More than the peer's window has ever had room for, or than the send buffer has.
    OverWindow {
        /// Bytes of the payload.
        len: usize,
        /// The most.
        limit: usize,
    },
    /// Bytes that the payload does not have.
    OutOfRange {
        /// The first byte.
        offset: usize,
        /// How many.
        len: usize,
        /// Bytes of the payload.
        payload_len: usize,
    },
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(error) => error.fmt(f),
            Self::Empty => f.write_str("a template without a byte of payload: give it as many as the order has"),
            Self::OverSegment { len, limit } => {
                write!(f, "{len} bytes do not fit a segment of {limit}: make the payload shorter, or use send")
            }
            Self::OverWindow { len, limit } => write!(
                f,
                "{len} bytes are more than the {limit} that the peer's window or the send buffer ever had room for: \
                 make the payload shorter, or use send"
            ),
            Self::OutOfRange { offset, len, payload_len } => {
                write!(f, "{len} bytes from {offset} are not inside the template's {payload_len}")
            }
        }
    }
}

impl std::error::Error for TemplateError {}

impl Template {
    /// Whose it is.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// The payload as it would be sent now.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADERS_LEN_MAX..]
    }

    /// Overwrites bytes of the payload from `offset` on. Costs as much as there are bytes, however
    /// long the payload is.
    #[inline]
    pub fn patch(&mut self, offset: usize, bytes: &[u8]) -> Result<(), TemplateError> {
        let len = bytes.len();
        let begin = offset.checked_add(HEADERS_LEN_MAX);
        let range = begin.and_then(|begin| Some(begin..begin.checked_add(len)?));
        let Some(place) = range.and_then(|range| self.bytes.get_mut(range)) else {
            return Err(TemplateError::OutOfRange { offset, len, payload_len: self.payload_len() });
        };
        // Headers are whole words, so the payload's offset is as even as the segment's.
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
        // What stands has the old ones.
        self.preposted = None;
    }

    /// A copy of the frame with the numbers of now, where it may leave now.
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

/// Moves with whatever prepared headers depend on: the host, and the options of connections.
#[inline(always)]
fn changes(cx: &Cx<'_>, inner: &Inner) -> u64 {
    cx.host.changes() + inner.machine.option_changes()
}

/// More changes than there will be.
const NEVER: u64 = u64::MAX;

/// Prepared orders.
impl TcpCalls<'_, '_> {
    /// Prepares a segment of a connection whose handshake is done. Takes memory, so make templates
    /// before they are needed.
    pub fn template(&mut self, id: ConnectionId, payload: &[u8]) -> Result<Template, TemplateError> {
        let header_template = self.header_template(id).map_err(TemplateError::Send)?;
        let len = payload.len();
        if len == 0 {
            return Err(TemplateError::Empty);
        }
        let buffer = self.0.pool.layout().data_room().saturating_sub(HEADERS_LEN_MAX);
        let limit = header_template.mss.min(buffer);
        if len > limit {
            return Err(TemplateError::OverSegment { len, limit });
        }
        let limit = header_template.window_max.min(header_template.send_buffer);
        if len > limit {
            return Err(TemplateError::OverWindow { len, limit });
        }
        let mut bytes = vec![0; HEADERS_LEN_MAX + len].into_boxed_slice();
        bytes[HEADERS_LEN_MAX..].copy_from_slice(payload);
        let mut template =
            Template { connection: id, bytes, headers_len: 0, sum: Sum::EMPTY, seen: NEVER, preposted: None };
        // Where no way is known yet, the first `fire` looks again.
        self.refresh(&mut template);
        Ok(template)
    }

    /// Sends the template's payload with the connection's numbers of now. Where it may leave at
    /// once, the device has been told of it with the end of this call, and of all that was posted
    /// before it; it does not wait for the end of the burst. Otherwise it is sent as by
    /// [`send`](TcpCalls::send), whole or not at all.
    ///
    /// It rings, which of AF_XDP is a system call for each order ([`TxQueue`] says what of which
    /// device). Several orders at once leave with one doorbell where all but the last go by
    /// [`post`](Self::post).
    #[inline]
    pub fn fire(&mut self, template: &mut Template) -> Result<Sent, SendError> {
        if self.launch_urgent(template) { Ok(Sent::Posted) } else { self.send_and_ring(template) }
    }

    /// [`fire`](Self::fire) without the doorbell: the order leaves with the next one, that of
    /// another `fire`, of [`Cx::ring_doorbell`], or of the turn's end. Makes no system call.
    #[inline]
    pub fn post(&mut self, template: &mut Template) -> Result<Sent, SendError> {
        let is_posted = self.launch(template, |tx, frame| tx.post(frame, Offload::NONE));
        if is_posted { Ok(Sent::Posted) } else { self.send_template(template) }
    }

    /// [`fire`](Self::fire) where the order may leave at once, and otherwise nothing: what comes
    /// too late is worth nothing, or less. False, and nothing has happened, where it would wait, or
    /// the segment would have to say more than the usual: of data that is missing, of congestion.
    #[inline]
    pub fn fire_fast(&mut self, template: &mut Template) -> Result<bool, SendError> {
        if self.launch_urgent(template) { Ok(true) } else { self.cannot(template) }
    }

    /// Walks the way of [`fire`](Self::fire) as far as the device, with the same instructions
    /// through the same memory, and nothing leaves: so that the order that comes after some quiet
    /// seconds finds it warm. Call it where nothing else is due. Says whether the way is open.
    #[inline]
    pub fn warm(&mut self, template: &mut Template) -> Result<bool, SendError> {
        if !self.is_current(template) {
            return self.cannot(template);
        }
        let Cx { tcp: TcpSockets(Some(inner)), pool, tx, now, .. } = &mut *self.0 else { return self.cannot(template) };
        let Some(pending) = template.load(&mut inner.machine, pool, *now) else { return self.cannot(template) };
        match template.preposted.and_then(|which| tx.preposted(which)) {
            Some(frame) => {
                template.complete(frame, &pending.permit.numbers());
                pending.frame.free();
            }
            None => tx.dry_run(pending.frame, OFFLOAD),
        }
        pending.permit.dry_run(Bytes::Held(pending.payload));
        Ok(true)
    }

    /// By the place where it stands, or by a copy that is posted.
    #[inline(always)]
    fn launch_urgent(&mut self, template: &mut Template) -> bool {
        let is_fired = template.preposted.is_some() && self.launch_preposted(template);
        is_fired || self.launch(template, |tx, frame| tx.post_urgent(frame))
    }

    /// Posts a copy of the frame by `post` where it may leave at once; false, and nothing has
    /// happened, where not.
    #[inline(always)]
    fn launch(
        &mut self,
        template: &mut Template,
        post: impl FnOnce(&mut dyn TxQueue, Mbuf) -> Result<(), Mbuf>,
    ) -> bool {
        if !self.is_current(template) {
            return false;
        }
        let Cx { tcp: TcpSockets(Some(inner)), pool, tx, now, .. } = &mut *self.0 else { return false };
        let Inner { machine, counters, roster, .. } = &mut **inner;
        let Some(pending) = template.load(machine, pool, *now) else { return false };
        pending.leave(|frame| post(&mut **tx, frame), &SendRecords { counters, roster })
    }

    /// Whether the headers are those of now: prepared anew where they can be.
    #[inline(always)]
    pub(super) fn is_current(&mut self, template: &mut Template) -> bool {
        let Some(inner) = &self.0.tcp.0 else { return false };
        template.seen == changes(self.0, inner) || self.refresh(template)
    }

    /// It does not leave now. An error where it never will.
    #[cold]
    fn cannot(&mut self, template: &Template) -> Result<bool, SendError> {
        self.header_template(template.connection).map(|_| false)
    }

    /// Prepares the headers anew, where the way is known and the connection may send.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self, template: &mut Template) -> bool {
        let id = template.connection;
        let Ok(header_template) = self.header_template(id) else { return false };
        let Some(inner) = &self.0.tcp.0 else { return false };
        let seen = changes(self.0, inner);
        let outgoing = header_template.outgoing;
        let request = PathRequest::of(outgoing.flow, Asker::Peer);
        let known = Inner::call(self.0, |_, TcpOutput { cx, paths, roster, .. }| {
            let news = |path: &Path| {
                if let Some(roster) = &mut **roster {
                    roster.set_link(id.slot() as u32, path.known());
                }
            };
            let NextHop::Known(link) = paths[id.slot()].resolve_next_hop(request, cx, news) else { return false };
            template.prepare(&outgoing, link);
            true
        });
        if known == Some(true) {
            template.seen = seen;
        }
        known == Some(true)
    }

    pub(super) fn header_template(&mut self, id: ConnectionId) -> Result<HeaderTemplate, SendError> {
        self.machine().ok_or(SendError::NotFound)?.header_template(id)
    }

    /// As [`send_template`](Self::send_template), and rings where it has left.
    #[cold]
    #[inline(never)]
    fn send_and_ring(&mut self, template: &mut Template) -> Result<Sent, SendError> {
        let sent = self.send_template(template)?;
        if sent == Sent::Posted {
            self.0.ring_doorbell();
        }
        Ok(sent)
    }

    /// It cannot leave at once, or not in this form.
    #[cold]
    #[inline(never)]
    fn send_template(&mut self, template: &Template) -> Result<Sent, SendError> {
        let id = template.connection;
        self.header_template(id)?;
        let Some(payload) = self.0.pool.alloc_copy(template.payload()) else {
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
            return Ok(Sent::Posted);
        }
        let missing = machine.waits_for_route(id).and_then(|flow| Unreachable::to(*flow.remote.ip(), self.0));
        Ok(missing.map_or(Sent::Queued, Sent::Unreachable))
    }
}

/// The checksum stands already, and nothing is more urgent.
const OFFLOAD: Offload = Offload::URGENT;
