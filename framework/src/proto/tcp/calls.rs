//! The app's calls of the machine (RFC 9293 3.10.1 to 3.10.6).

use core::net::SocketAddrV4;

use super::event::{CallError, CloseReason, ConnectError, ConnectionId, ListenError, ListenerId, SendError};
use super::input::arrival::is_host;
use super::listening::listener::ListenOptions;
use super::machine::{Context, Tcp};
use super::options::ConnectionOptions;
use super::output::interface::Output;
use super::output::transmit::SEGMENTS_MAX;
use super::payload::Payload;
use super::seq::Seq;
use super::state::connection::{AppFlags, Connection, InputFlags, OutputFlags, Pending, State};
use super::state::queue::{Chunk, FIN, PUSH};
use crate::proto::slab::NIL;
use crate::proto::{ConsumerId, Flow};
use crate::time::{Duration, Instant};

/// Opening.
impl<P: Payload> Tcp<P> {
    /// Listens at `local`; the unspecified address means all of ours.
    pub fn listen(&mut self, local: SocketAddrV4, options: &ListenOptions) -> Result<ListenerId, ListenError> {
        self.listeners.open(local, options)
    }

    /// Sets the options of the connections that a listener accepts from now on.
    pub fn set_listen_options(&mut self, id: ListenerId, options: &ConnectionOptions) -> Result<(), CallError> {
        options.check().map_err(CallError::Option)?;
        self.listeners.get_mut(id).ok_or(CallError::NotFound)?.options.connection = *options;
        Ok(())
    }

    /// Sets how many handshakes of a listener may be open at the same time
    /// ([`ListenOptions::backlog`]). Those that are open stay.
    pub fn set_backlog(&mut self, id: ListenerId, backlog: u32) -> Result<(), CallError> {
        let listener = self.listeners.get_mut(id).ok_or(CallError::NotFound)?;
        ListenOptions::check_backlog(backlog).map_err(CallError::Option)?;
        listener.options.backlog = backlog;
        Ok(())
    }

    /// Closes a listener. Unfinished handshakes are removed, and their peers get a reset when they
    /// continue; established connections stay. False where there is no such listener. Scans all
    /// connections.
    pub fn close_listener(&mut self, id: ListenerId) -> bool {
        if self.listeners.get_mut(id).is_none() {
            return false;
        }
        for slot in 0..self.connections.capacity() as u32 {
            let is_its =
                |connection: &Connection| connection.accepted_by.id == id && connection.has(AppFlags::EMBRYONIC);
            if self.connections.get(slot).is_some_and(is_its) {
                self.release(slot);
            }
        }
        self.listeners.close(id)
    }

    /// Opens a connection; `Connected` or `Closed` reports the outcome. Local port 0 takes a free
    /// one.
    pub fn connect<O: Output<P>>(
        &mut self,
        flow: Flow,
        options: &ConnectionOptions,
        consumer: ConsumerId,
        now: Instant,
        output: &mut O,
    ) -> Result<ConnectionId, ConnectError> {
        options.check().map_err(ConnectError::Option)?;
        if flow.local.ip().is_unspecified() || flow.local.ip().is_multicast() || flow.local.ip().is_broadcast() {
            return Err(ConnectError::BadAddress(flow.local));
        }
        if !is_host(flow) {
            return Err(ConnectError::BadAddress(flow.remote));
        }
        let Claim { flow, last, iss_min } = self.claim(flow, options, now)?;
        let makes_room = last.is_some_and(|last| self.connections[last].is_orphaned_open());
        if !makes_room && !self.can_make_room() {
            return Err(ConnectError::TooMany { limit: self.shared.config.connections_max });
        }
        // Nothing can fail from here on, so an old connection with this flow is removed.
        if let Some(last) = last {
            self.give_up(last, now, output);
        }
        self.make_room();
        let connection = Connection::new(flow, State::SynSent, options, consumer, now);
        let taken = ConnectError::AddressInUse { local: flow.local, remote: flow.remote };
        let slot = self.insert(connection).ok_or(taken)?;
        self.shared.tally.active_opens += 1;
        let mut cx = self.context(slot, output, now);
        cx.prepare();
        if let Some(iss_min) = iss_min {
            cx.connection.begin_above(iss_min);
        }
        cx.send_syn();
        Ok(ConnectionId { slot, generation: cx.connection.generation })
    }

    /// Whether [`connect`](Self::connect) from a named port would get these ends now.
    pub fn is_free(&self, flow: Flow, options: &ConnectionOptions, now: Instant) -> bool {
        self.claim_named(flow, options, now).is_ok()
    }

    /// The ends of a connection that is to be opened. Changes nothing yet.
    fn claim(&mut self, flow: Flow, options: &ConnectionOptions, now: Instant) -> Result<Claim, ConnectError> {
        match flow.local.port() {
            0 => self.choose_port(flow, options, now).ok_or(ConnectError::NoPort { remote: flow.remote }),
            _ => self.claim_named(flow, options, now),
        }
    }

    /// The ends of a connection from a named local port. An app that names a port again gives up
    /// the closed connection that still lingers on that port. The old connection would block the
    /// port for as long as a silent peer is retried, and the app already knows that its result will
    /// not be reported. Linux refuses the port (`__inet_check_established`), but gives up an orphan
    /// sooner.
    fn claim_named(&self, flow: Flow, options: &ConnectionOptions, now: Instant) -> Result<Claim, ConnectError> {
        match self.flows.get(flow.into()).map(|&slot| (slot, &self.connections[slot])) {
            Some((slot, last)) if last.is_orphaned_open() => {
                Ok(Claim { flow, last: Some(slot), iss_min: Some(last.next_iss_min()) })
            }
            _ => self.claim_port(flow, options, now),
        }
    }

    /// The ends of a connection from `flow`'s local port.
    pub(super) fn claim_port(
        &self,
        flow: Flow,
        options: &ConnectionOptions,
        now: Instant,
    ) -> Result<Claim, ConnectError> {
        let Flow { local, remote } = flow;
        let Some(&slot) = self.flows.get(flow.into()) else { return Ok(Claim { flow, last: None, iss_min: None }) };
        let last = &self.connections[slot];
        match last.state {
            State::Closed => Ok(Claim { flow, last: Some(slot), iss_min: None }),
            State::TimeWait => {
                let wait = self.wait_for_reuse(last, options, now);
                if wait > Duration::ZERO {
                    return Err(ConnectError::InTimeWait { local, remote, wait });
                }
                Ok(Claim { flow, last: Some(slot), iss_min: Some(last.next_iss_min()) })
            }
            _ => Err(ConnectError::AddressInUse { local, remote }),
        }
    }

    /// Frees the ends of a connection that is over, or lingers after `close`.
    fn give_up<O: Output<P>>(&mut self, slot: u32, now: Instant, output: &mut O) {
        match self.connections[slot].state {
            State::TimeWait => self.end_time_wait(slot, now, output),
            State::Closed => self.detach(slot),
            _ => self.end_orphan(slot, now, output),
        }
    }

    /// Ends a connection that lingers after `close`, and frees its slot.
    fn end_orphan<O: Output<P>>(&mut self, slot: u32, now: Instant, output: &mut O) {
        self.context(slot, output, now).abort();
        self.release(slot);
    }

    /// How long the ends of a connection in TIME-WAIT cannot be reused. With timestamps that is
    /// until ours have certainly advanced: late segments are recognized by them (RFC 6191 2, RFC
    /// 7323 5; Linux: `tcp_tw_reuse`).
    fn wait_for_reuse(&self, last: &Connection, options: &ConnectionOptions, now: Instant) -> Duration {
        let mut free_at = last.rare_clock.idle_at;
        if options.timestamps && last.has(InputFlags::TIMESTAMPS) {
            free_at = free_at.min(last.rare_clock.idle_at - self.shared.config.time_wait + REUSE_AFTER);
        }
        free_at.since(now)
    }
}

/// Time after which the ends of a connection in TIME-WAIT may be reused, where both sides have
/// timestamps.
const REUSE_AFTER: Duration = Duration::from_secs(1);

/// Ends that may be used.
pub(super) struct Claim {
    pub(super) flow: Flow,
    /// The connection that still has them, and is over.
    pub(super) last: Option<u32>,
    /// The lowest initial sequence number.
    pub(super) iss_min: Option<Seq>,
}

/// Sending.
impl<P: Payload> Tcp<P> {
    /// Sends data; returns it where it is refused.
    pub fn send<O: Output<P>>(
        &mut self,
        id: ConnectionId,
        payload: P,
        now: Instant,
        output: &mut O,
    ) -> Result<(), (SendError, P)> {
        let Some(mut cx) = self.context_of(id, output, now) else { return Err((SendError::NotFound, payload)) };
        if cx.may_send_fast(payload.len()) {
            cx.send_fast(payload, PUSH);
            return Ok(());
        }
        if let Err(error) = cx.check_room(payload.len()) {
            return Err((error, payload));
        }
        if !payload.is_empty() {
            if let Err(payload) = cx.queue(payload, PUSH) {
                cx.await_room();
                return Err((SendError::NoChunk, payload));
            }
            cx.transmit();
        }
        Ok(())
    }

    /// Sends a copy of `bytes`, or of as many from the front as fit, and returns their number. They
    /// go into the last unsent buffer, as far as it has room, and then into buffers that `make`
    /// supplies. `make` gets the bytes of one segment, or of several where the device cuts them,
    /// and each buffer takes as many of them as it holds.
    pub fn send_copy<O: Output<P>>(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        mut make: impl FnMut(&[u8]) -> Option<P>,
        now: Instant,
        output: &mut O,
    ) -> Result<usize, SendError> {
        let mut cx = self.context_of(id, output, now).ok_or(SendError::NotFound)?;
        cx.check_room(usize::from(!bytes.is_empty()))?;
        let room = (cx.connection.options.send_buffer - cx.connection.send.len) as usize;
        let wanted = &bytes[..bytes.len().min(room)];
        let mss = usize::from(cx.connection.snd.mss);
        // Data for the device to cut leaves as one frame.
        let is_cut = wanted.len() > mss && cx.gathers();
        let (piece_len, at_once_max) = if is_cut { (cx.piece_len(), 0) } else { (mss, SEGMENTS_MAX) };
        let mut taken = cx.append_to_tail(wanted, piece_len);
        let mut refusal = SendError::PoolEmpty;
        let mut at_once = 0;
        let mut make_from = |from: usize| {
            let piece = &wanted[from..wanted.len().min(from + piece_len)];
            if piece.is_empty() { None } else { make(piece).filter(|payload| !payload.is_empty()) }
        };
        let mut next = make_from(taken);
        while let Some(payload) = next {
            let len = payload.len();
            next = if cx.has_chunks_for_two() { make_from(taken + len) } else { None };
            // The call's data ends here: PSH is set (RFC 9293 MUST-61), and not before, because
            // peers that merge segments stop at each PSH.
            let ends_call = if next.is_none() { PUSH } else { 0 };
            if at_once < at_once_max && cx.may_send_fast(len) {
                cx.send_fast(payload, ends_call);
                at_once += 1;
            } else if cx.queue(payload, ends_call).is_err() {
                refusal = SendError::NoChunk;
                break;
            }
            taken += len;
        }
        if taken < wanted.len() {
            cx.await_room();
            if taken == 0 {
                return Err(refusal);
            }
        } else if taken < bytes.len() {
            cx.connection.set(AppFlags::WANTS_ROOM);
        }
        if at_once == 0 || cx.connection.send.next_unsent != NIL {
            cx.transmit();
        }
        Ok(taken)
    }
}

/// Closing, pausing.
impl<P: Payload> Tcp<P> {
    /// We send no more: a FIN follows the queued data. The peer's data still arrives. A second call
    /// is no error.
    pub fn shutdown<O: Output<P>>(&mut self, id: ConnectionId, now: Instant, output: &mut O) -> Result<(), CallError> {
        let slot = self.find(id).ok_or(CallError::NotFound)?;
        self.context(slot, output, now).shut_down()
    }

    /// Ends both directions: sends a FIN as `shutdown` does, and answers data that still arrives
    /// with a reset (RFC 9293 3.6.1). Data that the app has not read causes a reset too
    /// (RFC 2525 2.17), and so do delegated numbers. `ConnectionOptions::linger` limits how long
    /// `Closed` waits for our data. `Closed` is the last event.
    pub fn close<O: Output<P>>(&mut self, id: ConnectionId, now: Instant, output: &mut O) -> Result<(), CallError> {
        let slot = self.find(id).ok_or(CallError::NotFound)?;
        let mut cx = self.context(slot, output, now);
        let is_unread = cx.connection.rcv.in_order_len > 0;
        let linger_ms = cx.connection.rare_options.linger_ms;
        // Numbers that another sender may still use are a gap before our FIN, which would never be
        // filled.
        let is_delegated = cx.connection.has(OutputFlags::DELEGATED);
        if !cx.connection.state.is_synchronized() || is_unread || is_delegated || linger_ms == 0 {
            cx.abort();
            return Ok(());
        }
        cx.shut_down()?;
        cx.connection.set(AppFlags::RECEIVES_NO_MORE);
        match cx.connection.state {
            State::FinWait2 if cx.connection.rare_options.fin_wait_s == 0 => cx.abort(),
            State::FinWait2 => cx.limit_fin_wait(),
            _ => cx.limit_linger(),
        }
        Ok(())
    }

    /// Ends the connection at once: queued data is dropped, and the peer receives a reset. `Closed`
    /// follows, unless it was reported already with `LingerTimedOut` while the connection went on.
    pub fn abort<O: Output<P>>(&mut self, id: ConnectionId, now: Instant, output: &mut O) -> Result<(), CallError> {
        if let Some(mut cx) = self.context_of(id, output, now) {
            cx.abort();
            return Ok(());
        }
        let is_its = |connection: &Connection| connection.generation == id.generation && connection.is_orphaned_open();
        if !self.connections.get(id.slot).is_some_and(is_its) {
            return Err(CallError::NotFound);
        }
        self.end_orphan(id.slot, now, output);
        Ok(())
    }

    /// Sends the resets that found no room before. Then, from slot `first` on, aborts connections
    /// that their peers may still have open: `limit` at most, and only while their resets can be
    /// queued. Returns their number, and the slot to continue at: `None` where no peer is left to
    /// be reset.
    pub fn abort_from<O: Output<P>>(
        &mut self,
        first: u32,
        limit: usize,
        now: Instant,
        output: &mut O,
    ) -> (usize, Option<u32>) {
        self.send_owed_resets(output);
        let (mut count, end) = (0, self.connections.capacity() as u32);
        for slot in first..end {
            let is_open = |connection: &Connection| !matches!(connection.state, State::TimeWait | State::Closed);
            if !self.connections.get(slot).is_some_and(is_open) {
                continue;
            }
            if count == limit || self.shared.owed_resets.is_full() {
                return (count, Some(slot));
            }
            self.context(slot, output, now).abort();
            count += 1;
        }
        (count, (!self.shared.owed_resets.is_empty()).then_some(end))
    }

    /// The app accepts no data now: data waits, and the window closes when the receive buffer is
    /// full. Where the connection ends otherwise than by `Finished`, the waiting data is still
    /// delivered, and `Closed` after it.
    pub fn pause(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let slot = self.find(id).ok_or(CallError::NotFound)?;
        let connection = &mut self.connections[slot];
        if connection.state != State::Closed {
            connection.set(AppFlags::PAUSED);
        }
        Ok(())
    }

    /// The app accepts data again: `Readable` reports data that has arrived meanwhile.
    pub fn resume(&mut self, id: ConnectionId) -> Result<(), CallError> {
        let slot = self.find(id).ok_or(CallError::NotFound)?;
        let connection = &mut self.connections[slot];
        connection.clear(AppFlags::PAUSED);
        if !connection.rare_rcv.in_order.is_empty() {
            connection.pending.insert(Pending::READABLE);
            connection.set(AppFlags::IN_READY);
            self.shared.ready.push(slot);
        }
        Ok(())
    }
}

/// Options.
impl<P: Payload> Tcp<P> {
    /// The options of a connection as they were set. Whether the handshake has negotiated them is
    /// in its [`info`](Self::info): the peer may have refused.
    pub fn options(&self, id: ConnectionId) -> Option<ConnectionOptions> {
        let connection = &self.connections[self.find(id)?];
        Some(connection.options())
    }

    /// Increments whenever options of a connection change: headers prepared with them must be
    /// prepared again.
    #[inline]
    pub fn option_changes(&self) -> u64 {
        self.shared.option_changes
    }

    /// Sets the options of a connection. Options that the handshake has negotiated, or that our SYN
    /// has offered, do not change: timestamps, SACK, ECN and the window's scale.
    pub fn set_options<O: Output<P>>(
        &mut self,
        id: ConnectionId,
        options: &ConnectionOptions,
        now: Instant,
        output: &mut O,
    ) -> Result<(), CallError> {
        let slot = self.find(id).ok_or(CallError::NotFound)?;
        options.check().map_err(CallError::Option)?;
        let mut cx = self.context(slot, output, now);
        cx.shared.option_changes += 1;
        let linger_ms = cx.connection.rare_options.linger_ms;
        let receive_buffer = cx.connection.options.receive_buffer;
        let keepalive = cx.connection.keepalive_idle_ms();
        cx.connection.change_options(options);
        if let Some(mss_max) = options.mss_max {
            cx.limit_mss(mss_max);
        }
        if cx.connection.may_ask() {
            cx.change_keepalive(keepalive);
        }
        if cx.connection.rare_options.linger_ms != linger_ms {
            cx.limit_linger();
        }
        let has_grown = options.receive_buffer > receive_buffer;
        if has_grown && cx.connection.state.may_receive() && cx.connection.owes_window_update() {
            cx.owe_ack_now();
        }
        if cx.connection.state.may_send() && cx.connection.has(AppFlags::WANTS_ROOM) {
            cx.offer_room();
        }
        // Nagle's algorithm may be off now.
        cx.flush_later();
        // The user timeout may expire before the wheel's entry, or have expired.
        cx.arm();
        Ok(())
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Whether the machine may keep one more chunk beside the chunks reserved for others.
    #[inline(always)]
    pub(super) fn has_chunk(&self) -> bool {
        self.shared.has_share(self.connection.send.queue.count)
    }

    /// Whether two more chunks may be kept.
    fn has_chunks_for_two(&self) -> bool {
        self.shared.has_share(self.connection.send.queue.count + 2)
    }

    /// Whether `len` bytes may be queued now.
    fn check_room(&mut self, len: usize) -> Result<(), SendError> {
        let connection = &mut *self.connection;
        if !connection.state.is_synchronized() {
            return Err(SendError::NotConnected);
        }
        if !connection.state.may_send() {
            return Err(SendError::Closed);
        }
        let limit = connection.options.send_buffer as usize;
        if len > limit {
            return Err(SendError::TooLong { limit });
        }
        if connection.send.len as usize + len > limit {
            connection.set(AppFlags::WANTS_ROOM);
            return Err(SendError::Full);
        }
        Ok(())
    }

    /// Appends to the queued data.
    pub(super) fn queue(&mut self, payload: P, flags: u8) -> Result<(), P> {
        if !self.has_chunk() {
            return Err(payload);
        }
        let len = payload.len() as u32;
        self.queue_chunk(len, flags, Some(payload)).map_err(|payload| payload.expect("it was put in above"))?;
        self.connection.send.grow(len);
        Ok(())
    }

    pub(super) fn queue_chunk(&mut self, len: u32, flags: u8, payload: Option<P>) -> Result<(), Option<P>> {
        let connection = &mut *self.connection;
        let behind = self.shared.chunks.get(connection.send.queue.tail).map(Chunk::end);
        // Later data goes behind it.
        connection.send.forget_room();
        let mut chunk = Chunk::new(behind.unwrap_or(connection.snd.nxt), len, payload);
        chunk.flags = flags;
        let idx = connection.send.queue.push_back(&mut self.shared.chunks, chunk).map_err(|chunk| chunk.payload)?;
        connection.send.note_unsent(idx);
        Ok(())
    }

    /// Copies into the last unsent buffer, as far as its piece has room.
    fn append_to_tail(&mut self, bytes: &[u8], piece_len: usize) -> usize {
        let connection = &mut *self.connection;
        if connection.send.next_unsent == NIL {
            return 0;
        }
        let tail = &mut self.shared.chunks[connection.send.queue.tail];
        let room = piece_len.saturating_sub(tail.len as usize);
        let Some(payload) = tail.payload.as_mut().filter(|_| room > 0) else { return 0 };
        let taken = payload.append(&bytes[..bytes.len().min(room)]);
        tail.len += taken as u32;
        connection.send.grow(taken as u32);
        taken
    }

    /// RFC 9293 3.10.4: the FIN follows all queued data, and the call changes the state. A FIN for
    /// which no chunk is free is owed (`room`).
    fn shut_down(&mut self) -> Result<(), CallError> {
        let next = match self.connection.state {
            State::SynSent | State::SynReceived => return Err(CallError::NotConnected),
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            _ => return Ok(()),
        };
        self.connection.clear(AppFlags::WANTS_ROOM);
        self.connection.state = next;
        match self.connection.send.next_unsent {
            NIL => self.queue_fin(),
            _ => {
                self.shared.chunks[self.connection.send.queue.tail].flags |= FIN;
                self.connection.set(AppFlags::FIN_QUEUED);
            }
        }
        self.transmit();
        Ok(())
    }

    /// RFC 9293 3.10.5: a peer that knows of the connection, and has not ended it too, gets a
    /// reset.
    pub(super) fn abort(&mut self) {
        let state = self.connection.state;
        if !matches!(state, State::SynSent | State::TimeWait | State::Closed) {
            self.send_reset();
        }
        if self.connection.rcv.in_order_len > 0 {
            // The peer's end would mean "all its data was delivered", which would be wrong.
            self.connection.pending.remove(Pending::PEER_CLOSED | Pending::READABLE);
            self.connection.ending.reason = CloseReason::Aborted;
        }
        self.connection.rare_rcv.in_order.clear(&mut self.shared.chunks);
        self.connection.set_in_order_len(0);
        if matches!(state, State::TimeWait | State::Closed) {
            // The close event may have waited for the data before it.
            self.connection.set(AppFlags::IN_READY);
            self.shared.ready.push(self.slot);
            return;
        }
        self.close(CloseReason::Aborted);
    }
}
