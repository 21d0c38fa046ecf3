//! A segment arrives (RFC 9293 3.10.7): the phases are functions, in the RFC's order.
//!
//! ```text
//!  expected ─ prediction
//!  no connection, LISTEN ─ listen      SYN-SENT ─ syn_sent      SYN-RECEIVED ─ syn_received      TIME-WAIT ─ time_wait
//!  all others: checks ─▶ acknowledgment ─▶ assembly ─▶ fin
//! ```
//!
//! The input is a segment and its payload. The payload is returned to the caller where it is next
//! in order, queued where it is not, and dropped with a reason otherwise.

mod checks;
mod fin;
mod listen;
mod negotiation;
mod prediction;
mod syn_received;
mod syn_sent;
mod time_wait;

pub(crate) use listen::is_host;
pub(crate) use negotiation::{HEADERS_LEN, less_options, receive_mss};

use crate::proto::slab::NIL;
use crate::proto::tcp::event::{CloseReason, ConnectionId, ListenerId};
use crate::proto::tcp::listening::listener::AcceptDecision;
use crate::proto::tcp::machine::{Context, Tcp};
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Segment;
use crate::proto::tcp::state::connection::{AppFlags, Connection, InputFlags, OutputFlags, Pending, State};
use crate::proto::{ConsumerId, Flow};
use crate::time::Instant;
use crate::wire::reason::drop_list;
use crate::wire::tcp::TcpFlags;

/// A segment, and its flow.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// `local` is the segment's destination.
    pub flow: Flow,
    /// The fields of the header.
    pub segment: Segment,
}

drop_list! {
    /// Why a segment changes nothing.
    #[non_exhaustive]
    pub enum TcpDrop {
        /// There is neither such a connection nor a listener.
        NoConnection => "no_connection",
        /// Outside the window: answered by an acknowledgment (RFC 9293 3.10.7.4, first).
        NotAcceptable => "not_acceptable",
        /// It acknowledges data that was never sent.
        BadAck => "bad_ack",
        /// Flags that are invalid together, or in this state.
        BadFlags => "bad_flags",
        /// No host's address, or port 0.
        BadAddress => "bad_address",
        /// Older than an earlier segment by its timestamp, or without one (RFC 7323 5).
        PawsReject => "paws_reject",
        /// A reset that is not exactly the next number (RFC 5961 3).
        BlindReset => "blind_reset",
        /// A SYN within a connection (RFC 5961 4).
        BlindSyn => "blind_syn",
        /// SYNs beyond the listener's rate, or more repeats than a handshake answers.
        SynRateExceeded => "syn_rate_exceeded",
        /// The configured number of connections, or the part for remote clients, is used up: the
        /// peer sends its SYN again.
        TableFull => "table_full",
        /// The listener's limit of connections is reached.
        ListenerFull => "listener_full",
        /// The listener's limit for one address is reached.
        SourceFull => "source_full",
        /// The connection's share of the store is used up: the peer sends the data again.
        NoRoom => "no_room",
        /// All of it is queued already, out of order.
        Duplicate => "duplicate",
        /// Data behind the peer's own FIN.
        AfterFin => "after_fin",
        /// The listener's app does not want this peer.
        Refused => "refused",
        /// It ended the connection, or arrived after its end.
        AfterClose => "after_close",
        /// The connection is in TIME-WAIT.
        TimeWait => "time_wait",
    }
}

/// The result of a segment.
pub type Received<P> = Result<Option<(ConnectionId, P)>, TcpDrop>;

impl<P: Payload> Tcp<P> {
    /// Processes a segment. Data that is next in order, with no data waiting before it, is returned
    /// at once; [`next_event`](Self::next_event) reports other data and all else. `accept` decides
    /// about a peer for a listener.
    #[inline]
    pub fn receive<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        payload: Option<P>,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        let Arrival { flow, segment } = arrival;
        if segment.is_plain()
            && let Some((id, _)) = self.receive_expected(*flow, &segment.predicted_fields(), now)
        {
            return Ok(payload.map(|data| (id, data)));
        }
        self.receive_any(arrival, payload, accept, now, output)
    }

    /// As [`receive_expected`](Self::receive_expected), for a segment that it did not take or that
    /// was not offered to it.
    pub fn receive_any<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        payload: Option<P>,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        self.shared.tally.segments_in += 1;
        let Some(&slot) = self.flows.get(arrival.flow.into()) else {
            return self.arrive_without_connection(arrival, payload, accept, now, output);
        };
        let mut cx = self.context(slot, output, now);
        cx.connection.tally.segments_in += 1;
        if !(State::Established..=State::LastAck).contains(&cx.connection.state) {
            return self.arrive_rarely(slot, arrival, payload, accept, now, output);
        }
        let delivered = cx.arrive(&arrival.segment, payload)?;
        let id = ConnectionId { slot, generation: cx.connection.generation };
        Ok(delivered.map(|data| (id, data)))
    }

    /// States that a connection passes through once.
    #[cold]
    #[inline(never)]
    fn arrive_rarely<O: Output<P>>(
        &mut self,
        slot: u32,
        arrival: &Arrival,
        payload: Option<P>,
        accept: impl FnOnce(ListenerId, ConsumerId) -> AcceptDecision,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        let segment = &arrival.segment;
        let delivered = match self.connections[slot].state {
            State::SynSent => self.arrive_in_syn_sent(slot, arrival, payload, now, output)?,
            State::SynReceived => match self.check_late_cookie(slot, arrival, now) {
                Some((listener, syn)) => {
                    self.release(slot);
                    return self.open_by_cookie(arrival, payload, listener, &syn, accept, now, output);
                }
                None => self.arrive_in_syn_received(slot, arrival, payload, now, output)?,
            },
            State::TimeWait => match self.context(slot, output, now).arrive_in_time_wait(segment) {
                time_wait::TimeWaitAction::Drop => return Err(TcpDrop::TimeWait),
                time_wait::TimeWaitAction::Reopen(iss_min) => {
                    return self.reopen(slot, iss_min, arrival, accept, now, output);
                }
            },
            _ => {
                // The connection is closed, but the app has no event of it yet: the flow is free.
                self.detach(slot);
                return self.arrive_without_connection(arrival, payload, accept, now, output);
            }
        };
        let id = ConnectionId { slot, generation: self.connections[slot].generation };
        Ok(delivered.map(|data| (id, data)))
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// RFC 9293 3.10.7.4: ESTABLISHED to LAST-ACK.
    #[inline]
    fn arrive(&mut self, segment: &Segment, payload: Option<P>) -> Result<Option<P>, TcpDrop> {
        self.check_timestamps(segment)?;
        self.check_sequence(segment)?;
        if segment.flags.intersects(TcpFlags::RST | TcpFlags::SYN) {
            return Err(self.take_reset_or_syn(segment));
        }
        let before = self.connection.snd.una;
        self.process_ack(segment)?;
        let acks_data = self.connection.snd.una != before;
        self.segment_text(segment, payload, acks_data)
    }

    /// After the acknowledgment: our FIN may be acknowledged by now. Sixth, the urgent pointer, is
    /// ignored: data stays in line (RFC 6093 6). Seventh the data, eighth the FIN. `acks_data`: the
    /// segment has acknowledged data of ours.
    #[inline]
    fn segment_text(&mut self, segment: &Segment, payload: Option<P>, acks_data: bool) -> Result<Option<P>, TcpDrop> {
        if self.connection.state != State::Established {
            self.check_fin_acknowledged()?;
            self.check_wanted(segment)?;
        }
        let delivered = match payload {
            Some(payload) if self.connection.state.may_receive() => self.take_data(segment, payload, acks_data),
            Some(_) => Err(TcpDrop::AfterFin),
            None => Ok(None),
        };
        if segment.has(TcpFlags::FIN) || self.connection.has(InputFlags::FIN_SEEN) {
            self.check_fin(segment);
        }
        delivered
    }

    /// The handshake is done.
    pub(crate) fn establish(&mut self) {
        let connection = &mut *self.connection;
        connection.state = State::Established;
        connection.clear(AppFlags::EMBRYONIC);
        connection.set(AppFlags::CONNECT_EVENT_PENDING);
        connection.clock.note_received(self.now);
        connection.clock.stop();
        connection.snd.small = connection.snd.una;
        self.begin_congestion();
        self.connection.clock.forget_backoff();
        self.connection.clock.wait_since(Instant::MAX);
        self.begin_idle_timer();
        if self.connection.deadline() == Instant::MAX {
            // Clears the handshake's deadline. Otherwise the wheel would process it for nothing,
            // and would move it when the first data leaves, together with its neighbors, which are
            // no longer in the cache then.
            self.disarm();
        }
        self.shared.tally.established += 1;
        if self.connection.accepted_by.listener().is_some() {
            self.shared.count_session(self.connection);
        }
        self.notify(Pending::CONNECTED);
        let Connection { flow, snd, rcv, .. } = *self.connection;
        self.output.opened(self.slot, flow, snd.nxt, rcv.nxt);
    }

    /// The connection is closed: frees its unsent data, and queues the app's event.
    #[cold]
    pub(crate) fn close(&mut self, reason: CloseReason) {
        let connection = &mut *self.connection;
        if connection.state == State::Closed {
            return;
        }
        // For a connection in TIME-WAIT the app already had the event of its end.
        if connection.state != State::TimeWait {
            connection.ending.reason = reason;
            connection.pending.insert(Pending::CLOSED);
            if reason != CloseReason::Finished {
                connection.end_pause();
            }
        }
        self.output.closed(self.slot);
        connection.state = State::Closed;
        connection.pending.remove(Pending::WRITABLE);
        if reason != CloseReason::Finished {
            connection.pending.remove(Pending::PEER_CLOSED);
        }
        self.stop_sending();
        // A connection without an event is queued too: that is when its slot is freed.
        self.connection.set(AppFlags::IN_READY);
        self.shared.ready.remove(self.slot);
        self.shared.ready.push(self.slot);
    }

    /// Nothing more is sent, and no timer runs.
    fn stop_sending(&mut self) {
        let connection = &mut *self.connection;
        connection.send.queue.clear(&mut self.shared.chunks);
        if connection.send.next_unsent != NIL {
            // Control segments that have not left.
            connection.clear(AppFlags::FIN_QUEUED);
        }
        connection.out_of_order.queue.clear(&mut self.shared.chunks);
        connection.send.forget_all();
        connection.forget_losses();
        connection.clear(OutputFlags::IN_FLUSH | OutputFlags::SYN_OWED | OutputFlags::PACED);
        self.stop_timers();
    }
}

impl Connection {
    /// The connection ends without both FINs: a paused app gets the event now, not when it resumes.
    /// The data received so far is delivered first, because it was acknowledged and will not be
    /// sent again.
    fn end_pause(&mut self) {
        self.clear(AppFlags::PAUSED);
        if !self.rare_rcv.in_order.is_empty() {
            self.pending.insert(Pending::READABLE);
        }
    }
}
