//! CLOSED and LISTEN (RFC 9293 3.10.7.1 and 3.10.7.2): a segment that belongs to no connection.

use super::Arrival;
use super::Received;
use super::TcpDrop;
use super::negotiation::{asks_for_ecn, receive_mss, window_scale};
use crate::proto::tcp::event::{ConnectionId, ListenerId};
use crate::proto::tcp::listening::handover::Arriving;
use crate::proto::tcp::listening::listener::{AcceptDecision, Listener};
use crate::proto::tcp::listening::syn_cookie;
use crate::proto::tcp::machine::Tcp;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{Outgoing, Segment, SynOptions};
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{AppFlags, Connection, State};
use crate::proto::{ConsumerId, Flow};
use crate::time::Instant;
use crate::wire::tcp::{TcpFlags, Timestamps};

/// A flood of handshakes leaves one slot free for each this many of them, so that a real peer's
/// returned cookie can use it.
const HANDSHAKES_PER_FREE_SLOT: usize = 8;
/// The most connections in TIME-WAIT that count as free slots. So many are enough, and the work for
/// a SYN stays bounded.
const TIME_WAIT_COUNTED_MAX: usize = 64;

impl<P: Payload> Tcp<P> {
    #[cold]
    #[inline(never)]
    pub(super) fn arrive_without_connection<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        payload: Option<P>,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        let segment = &arrival.segment;
        if segment.has(TcpFlags::RST) {
            return Err(TcpDrop::NoConnection);
        }
        if !is_host(arrival.flow) {
            return Err(TcpDrop::BadAddress);
        }
        if self.shared.handovers.has_left(arrival.flow, now) {
            return Err(TcpDrop::AfterClose);
        }
        let Some(listener) = self.listeners.choose(arrival.flow) else {
            let is_syn = !segment.has(TcpFlags::ACK);
            if !is_syn || !self.shared.handovers.listens_elsewhere(arrival.flow.local, now) {
                self.answer_with_reset(arrival, now, output);
            }
            return Err(TcpDrop::NoConnection);
        };
        if !segment.has(TcpFlags::ACK) {
            return self.arrive_in_listen(arrival, accept, now, output);
        }
        // Second: an acknowledgment belongs to a cookie, or to a connection that is gone.
        match self.check_cookie(arrival, listener, now) {
            Some(syn) => self.open_by_cookie(arrival, payload, listener, &syn, accept, now, output),
            None => {
                self.refuse_ack(arrival, listener, now, output);
                Err(TcpDrop::BadAck)
            }
        }
    }

    /// Whether a SYN of `flow` exceeds its listener's rate. Called before checksums are computed
    /// and connections are looked up, it makes a flood cheapest; the price is that a restarted
    /// peer's SYN within an old connection is dropped meanwhile.
    #[inline]
    pub fn refuses_syn(&mut self, flow: Flow, now: Instant) -> bool {
        self.listeners.refuses(flow, now)
    }

    /// Third: a SYN.
    pub(super) fn arrive_in_listen<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        let Some(idx) = self.listeners.choose(arrival.flow) else {
            self.answer_with_reset(arrival, now, output);
            return Err(TcpDrop::NoConnection);
        };
        if !arrival.segment.has(TcpFlags::SYN) || arrival.segment.has(TcpFlags::FIN) {
            return Err(TcpDrop::BadFlags);
        }
        self.admit(arrival, idx, accept, now, output)?;
        // One that was another machine's cannot have a number of our choice.
        if !self.shared.handovers.is_arriving() && self.needs_cookie(idx) && self.can_admit_peer() {
            self.answer_with_cookie(arrival, idx, now, output);
            return Ok(None);
        }
        if !self.make_room_for_peer() {
            // A cookie would be useless. The peer sends its SYN again.
            return Err(TcpDrop::TableFull);
        }
        let slot = self.open_passively(arrival, &arrival.segment, idx, now, output)?;
        self.context(slot, output, now).send_syn();
        Ok(None)
    }

    /// Whether a listener keeps no more SYNs: its backlog is full, or so many handshakes are open
    /// that few slots are left for peers that bring a cookie back.
    fn needs_cookie(&self, idx: u32) -> bool {
        let listener = &self.listeners.slots[idx];
        let handshakes = listener.embryonic as usize;
        let left = handshakes.div_ceil(HANDSHAKES_PER_FREE_SLOT);
        let are_few = self.connections.free_count().min(self.shared.admission.left()) <= left;
        listener.is_full() || handshakes > 0 && are_few && self.has_too_few_slots(left + 1)
    }

    /// Whether fewer than `count` slots are left for clients, those included that only wait in
    /// TIME-WAIT.
    #[cold]
    fn has_too_few_slots(&self, count: usize) -> bool {
        if self.shared.admission.left() < count {
            return true;
        }
        let wanted = count.saturating_sub(self.connections.free_count()).min(TIME_WAIT_COUNTED_MAX);
        self.shared.ready.aside().take(wanted).count() < wanted
    }

    /// Whether the listener's rate and limits allow one more connection, and its app wants the
    /// peer.
    pub(super) fn admit<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        idx: u32,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        now: Instant,
        output: &mut O,
    ) -> Result<(), TcpDrop> {
        if self.listeners.slots[idx].rate.as_mut().is_some_and(|rate| !rate.take(now)) {
            return Err(TcpDrop::SynRateExceeded);
        }
        self.check_limits(idx, *arrival.flow.remote.ip())?;
        self.ask(accept, arrival, idx, now, output)
    }

    /// Whether the listener's app wants the peer.
    fn ask<O: Output<P>>(
        &mut self,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        arrival: &Arrival,
        listener: u32,
        now: Instant,
        output: &mut O,
    ) -> Result<(), TcpDrop> {
        let Listener { id, options, .. } = &self.listeners.slots[listener];
        match accept(*id, options.consumer) {
            AcceptDecision::Yes => return Ok(()),
            AcceptDecision::Ignore => (),
            AcceptDecision::Refuse => self.answer_with_reset(arrival, now, output),
        }
        Err(TcpDrop::Refused)
    }

    /// Half a handshake: opens a connection that the app does not know yet.
    pub(super) fn open_passively<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        syn: &Segment,
        listener: u32,
        now: Instant,
        output: &mut O,
    ) -> Result<u32, TcpDrop> {
        let (options, id) = (self.listeners.slots[listener].options, self.listeners.slots[listener].id);
        let mut connection =
            Connection::new(arrival.flow, State::SynReceived, &options.connection, options.consumer, now);
        connection.accepted_by.id = id;
        connection.set(AppFlags::EMBRYONIC);
        let slot = self.insert(connection).ok_or(TcpDrop::TableFull)?;
        self.shared.count_place(&mut self.connections[slot]);
        self.listeners.slots[listener].embryonic += 1;
        self.shared.tally.passive_opens += 1;
        let arriving = self.shared.handovers.take_arriving();
        if let Some(arriving) = arriving {
            self.note_incomplete(slot, arriving.next);
        }
        let mut cx = self.context(slot, output, now);
        cx.prepare();
        if let Some(arriving) = arriving {
            continue_numbers(cx.connection, arriving, now);
        }
        cx.take_syn(syn);
        Ok(slot)
    }

    /// A listener's handshake is done, or given up.
    pub(in crate::proto::tcp) fn count_embryonic_out(&mut self, slot: u32) {
        let id = self.connections[slot].accepted_by.id;
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.embryonic -= 1;
        }
    }

    /// A SYN-ACK that encodes the SYN.
    fn answer_with_cookie<O: Output<P>>(&mut self, arrival: &Arrival, idx: u32, now: Instant, output: &mut O) {
        let (flow, segment) = (arrival.flow, &arrival.segment);
        let listener = &mut self.listeners.slots[idx];
        let options = &listener.options.connection;
        let mss = receive_mss(output.mtu(*flow.remote.ip()), options.mss_max.unwrap_or(0));
        let secret = &self.shared.secret;
        let cookie = syn_cookie::encode(secret, flow, segment.seq, segment.syn.mss.unwrap_or(536).min(mss), now);
        let mut answer = Outgoing {
            wnd: options.receive_buffer.min(65_535) as u16,
            ttl: options.ttl,
            tos: options.tos,
            ..Outgoing::bare(flow, cookie, segment.seq + 1, TcpFlags::SYN | TcpFlags::ACK)
        };
        let mut said = SynOptions { mss: Some(mss), ..SynOptions::default() };
        if let Some(theirs) = segment.timestamps.filter(|_| options.timestamps) {
            let agreed = SynOptions { sack_permitted: segment.syn.sack_permitted && options.sack, ..segment.syn };
            said.sack_permitted = agreed.sack_permitted;
            said.window_scale = agreed.window_scale.map(|_| window_scale(options.receive_buffer));
            let clock = ((now.as_nanos() / 1_000_000) as u32).wrapping_add(secret.timestamp_offset(flow));
            let ecn = options.ecn && asks_for_ecn(segment);
            if ecn {
                answer.flags = answer.flags | TcpFlags::ECE;
            }
            let value = syn_cookie::stamp(clock, &agreed, ecn);
            answer.timestamps = Some(Timestamps { value, echo_reply: theirs.value });
        }
        answer.syn = Some(said);
        listener.cookies_until = now + syn_cookie::LIFETIME;
        if output.send(None, &answer, None).is_ok() {
            self.shared.tally.syn_cookies_sent += 1;
            self.shared.tally.segments_out += 1;
        }
    }

    /// The SYN that an acknowledged cookie encodes.
    fn check_cookie(&self, arrival: &Arrival, idx: u32, now: Instant) -> Option<Segment> {
        let segment = &arrival.segment;
        let listener = &self.listeners.slots[idx];
        if now > listener.cookies_until || segment.has(TcpFlags::SYN) {
            return None;
        }
        let (isn, cookie) = (segment.seq - 1, segment.ack - 1);
        let mss = syn_cookie::check(&self.shared.secret, arrival.flow, isn, cookie, now)?;
        let timestamps = segment.timestamps.filter(|_| listener.options.connection.timestamps);
        let (options, ecn) = timestamps.map(|stamps| syn_cookie::read_stamp(stamps.echo_reply)).unwrap_or_default();
        let syn = SynOptions { mss: Some(mss), ..options };
        let flags = if ecn { TcpFlags::SYN | TcpFlags::ECE | TcpFlags::CWR } else { TcpFlags::SYN };
        Some(Segment { seq: isn, flags, len: 0, sack_count: 0, syn, timestamps, ..*segment })
    }

    /// Handles a peer that returns a cookie while a handshake with it is open here. Its SYN came
    /// twice. The first time there was no room, and we answered with a cookie; the second time
    /// there was room, and our answer had another number. The peer uses the first answer it gets,
    /// so the open handshake is void.
    pub(super) fn check_late_cookie(&self, slot: u32, arrival: &Arrival, now: Instant) -> Option<(u32, Segment)> {
        let (connection, segment) = (&self.connections[slot], &arrival.segment);
        let is_other = segment.has(TcpFlags::ACK) && segment.ack != connection.snd.nxt;
        if !is_other || segment.has(TcpFlags::RST) || !connection.has(AppFlags::EMBRYONIC) {
            return None;
        }
        let listener = self.listeners.choose(arrival.flow)?;
        Some((listener, self.check_cookie(arrival, listener, now)?))
    }

    /// Answers an acknowledgment of none of our numbers with a reset. But a segment that may follow
    /// a late or lost one with a cookie gets no answer, because a reset would end the peer's
    /// connection.
    pub(super) fn refuse_ack<O: Output<P>>(&mut self, arrival: &Arrival, listener: u32, now: Instant, output: &mut O) {
        let (segment, secret) = (&arrival.segment, &self.shared.secret);
        let (seq, cookie) = (segment.seq - 1, segment.ack - 1);
        let is_out = now <= self.listeners.slots[listener].cookies_until;
        if !is_out || !syn_cookie::may_be_before(secret, arrival.flow, seq, cookie, now) {
            self.answer_with_reset(arrival, now, output);
        }
    }

    /// The peer that brings a cookie back has our answer: the connection is created as if its SYN
    /// had been kept, and takes the segment.
    #[expect(clippy::too_many_arguments, reason = "what `receive` has, and the SYN")]
    pub(super) fn open_by_cookie<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        payload: Option<P>,
        listener: u32,
        syn: &Segment,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        self.ask(accept, arrival, listener, now, output)?;
        let refusal = match self.check_limits(listener, *arrival.flow.remote.ip()) {
            Ok(()) => (!self.make_room_for_peer()).then_some(TcpDrop::TableFull),
            Err(reason) => Some(reason),
        };
        if let Some(reason) = refusal {
            // The peer considers itself connected.
            self.answer_with_reset(arrival, now, output);
            return Err(reason);
        }
        let slot = self.open_passively(arrival, syn, listener, now, output)?;
        self.shared.tally.syn_cookies_accepted += 1;
        let connection = &mut self.connections[slot];
        connection.rare_snd.iss = arrival.segment.ack - 1;
        (connection.snd.una, connection.snd.nxt) = (connection.rare_snd.iss, connection.rare_snd.iss + 1);
        connection.snd.wl2 = connection.rare_snd.iss;
        connection.advertised.adv = connection.rcv.nxt + connection.options.receive_buffer.min(65_535);
        let delivered = self.arrive_in_syn_received(slot, arrival, payload, now, output)?;
        let id = ConnectionId { slot, generation: self.connections[slot].generation };
        Ok(delivered.map(|data| (id, data)))
    }

    /// RFC 9293 3.10.7.1: so that a peer with an old connection learns that it does not exist.
    #[cold]
    pub(super) fn answer_with_reset<O: Output<P>>(&mut self, arrival: &Arrival, now: Instant, output: &mut O) {
        if !self.shared.resets.take(*arrival.flow.remote.ip(), now) {
            self.shared.tally.resets_suppressed += 1;
            return;
        }
        self.reset(arrival, output);
    }

    /// The reset itself, which no limit holds back.
    pub(super) fn reset<O: Output<P>>(&mut self, arrival: &Arrival, output: &mut O) {
        let segment = &arrival.segment;
        let mut reset = if segment.has(TcpFlags::ACK) {
            Outgoing::bare(arrival.flow, segment.ack, Seq(0), TcpFlags::RST)
        } else {
            Outgoing::bare(arrival.flow, Seq(0), segment.end(), TcpFlags::RST | TcpFlags::ACK)
        };
        if let Some((ttl, tos)) = self.ttl_and_tos(arrival.flow) {
            (reset.ttl, reset.tos) = (ttl, tos);
        }
        self.shared.post_reset(None, &reset, output);
    }

    /// TTL and TOS of the connection that a segment arrived for, or of the listener: a peer with
    /// GTSM (RFC 5082) accepts no others.
    fn ttl_and_tos(&self, flow: Flow) -> Option<(u8, u8)> {
        if let Some(&slot) = self.flows.get(flow.into()) {
            let options = &self.connections[slot].options;
            return Some((options.ttl, options.tos));
        }
        let listener = self.listeners.choose(flow)?;
        let options = &self.listeners.slots[listener].options.connection;
        Some((options.ttl, options.tos))
    }
}

/// Our side of a connection that was another machine's has the numbers that its peer knows.
fn continue_numbers(connection: &mut Connection, arriving: Arriving, now: Instant) {
    let Arriving { iss, timestamp, next: _ } = arriving;
    connection.rare_snd.iss = iss;
    (connection.snd.una, connection.snd.nxt) = (iss, iss);
    connection.ts.offset = connection.ts.offset.wrapping_add(timestamp.wrapping_sub(connection.ts.now(now)));
}

/// Whether a connection can be between these ends (RFC 9293 3.9.2.3, RFC 1122 3.2.1.3).
pub(crate) fn is_host(flow: Flow) -> bool {
    let remote = flow.remote.ip();
    flow.remote.port() != 0
        && !flow.local.ip().is_multicast()
        && !(remote.is_unspecified() || remote.is_multicast() || remote.is_broadcast())
}
