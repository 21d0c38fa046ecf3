//! A segment arrives (RFC 9293 3.10.7): the phases are functions, in the RFC's order.

use super::connection::{AckOwed, Connection, State, flag, pending};
use super::event::{CloseReason, ConnectionId, ListenerId};
use super::listener::Accept;
use super::machine::{Tcp, Turn};
use super::payload::{Output, Payload};
use super::segment::{Outgoing, Segment};
use crate::proto::Flow;
use crate::time::Instant;
use crate::wire::tcp::TcpFlags;

/// What came, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// `local` is the segment's destination.
    pub flow: Flow,
    /// What the header says.
    pub segment: Segment,
}

/// Why a segment changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum TcpDrop {
    NoConnection,
    NotAcceptable,
    BadAck,
    BadFlags,
    PawsReject,
    BlindReset,
    BlindSyn,
    SynRateExceeded,
    NoRoom,
    Refused,
    AfterClose,
    TimeWait,
}

/// What a segment brought.
pub type Received<P> = Result<Option<(ConnectionId, P)>, TcpDrop>;

impl<P: Payload> Tcp<P> {
    /// A segment arrives. Data that is next in order, and that nothing waits before, comes back at once; other data, and what else
    /// happened, is told by [`next_event`](Self::next_event). `accept` is asked of a peer that a listener may take.
    #[inline]
    pub fn receive<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        payload: Option<P>,
        accept: impl FnOnce(ListenerId) -> Accept,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        self.shared.tally.segments_in += 1;
        let Some(&slot) = self.flows.get(arrival.flow.into()) else {
            return self.arrive_without_connection(arrival, accept, now, output);
        };
        let mut turn = self.turn(slot, output, now);
        turn.connection.tally.segments_in += 1;
        turn.connection.last_received_at = now;
        let delivered = match turn.connection.state {
            State::SynSent => turn.arrive_in_syn_sent(&arrival.segment).map(|()| None),
            State::TimeWait => turn.arrive_in_time_wait(&arrival.segment).map(|()| None),
            _ => turn.arrive(&arrival.segment, payload),
        };
        let id = ConnectionId { slot, generation: turn.connection.generation };
        delivered.map(|data| data.map(|data| (id, data)))
    }

    /// RFC 9293 3.10.7.1 (CLOSED) and 3.10.7.2 (LISTEN).
    #[cold]
    fn arrive_without_connection<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        accept: impl FnOnce(ListenerId) -> Accept,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        let (flow, segment) = (arrival.flow, &arrival.segment);
        if segment.has(TcpFlags::RST) {
            return Err(TcpDrop::NoConnection);
        }
        let Some(listener) = self.listeners.find(flow.local) else {
            self.answer_with_reset(arrival, now, output);
            return Err(TcpDrop::NoConnection);
        };
        if segment.has(TcpFlags::ACK) {
            self.answer_with_reset(arrival, now, output);
            return Err(TcpDrop::BadAck);
        }
        if !segment.has(TcpFlags::SYN) {
            return Err(TcpDrop::BadFlags);
        }
        match accept(ListenerId(listener)) {
            Accept::Yes => (),
            Accept::Ignore => return Err(TcpDrop::Refused),
            Accept::Refuse => {
                self.answer_with_reset(arrival, now, output);
                return Err(TcpDrop::Refused);
            }
        }
        self.open_passively(arrival, listener, now, output)
    }

    /// A SYN for a listener: the half of a handshake.
    fn open_passively<O: Output<P>>(
        &mut self,
        arrival: &Arrival,
        listener: u32,
        now: Instant,
        output: &mut O,
    ) -> Received<P> {
        let options = self.listeners.slots[listener].options;
        let mut connection =
            Connection::new(arrival.flow, State::SynReceived, &options.connection, options.consumer, now);
        connection.listener = listener;
        connection.set(flag::EMBRYONIC);
        let slot = self.insert(connection).ok_or(TcpDrop::NoRoom)?;
        self.shared.tally.passive_opens += 1;
        let mut turn = self.turn(slot, output, now);
        turn.choose_secrets();
        turn.take_syn(&arrival.segment);
        turn.send_syn();
        Ok(None)
    }

    /// RFC 9293 3.10.7.1: so that a peer that believes in a connection learns that there is none.
    fn answer_with_reset<O: Output<P>>(&mut self, arrival: &Arrival, now: Instant, output: &mut O) {
        if !self.shared.resets.take(now) {
            self.shared.tally.resets_suppressed += 1;
            return;
        }
        let segment = &arrival.segment;
        let reset = if segment.has(TcpFlags::ACK) {
            Outgoing::bare(arrival.flow, segment.ack, super::seq::Seq(0), TcpFlags::RST)
        } else {
            Outgoing::bare(arrival.flow, super::seq::Seq(0), segment.end(), TcpFlags::RST | TcpFlags::ACK)
        };
        if output.send(None, &reset, None).is_ok() {
            self.shared.tally.resets_out += 1;
        }
    }
}

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// Sequence numbers and clock of a new connection.
    pub(super) fn choose_secrets(&mut self) {
        let connection = &mut *self.connection;
        connection.iss = self.shared.secret.isn(connection.flow, self.now);
        connection.ts_offset = self.shared.secret.timestamp_offset(connection.flow);
        (connection.snd_una, connection.snd_nxt) = (connection.iss, connection.iss);
    }

    /// What the peer's SYN says of it.
    pub(super) fn take_syn(&mut self, segment: &Segment) {
        let connection = &mut *self.connection;
        (connection.irs, connection.rcv_nxt) = (segment.seq, segment.seq + 1);
        (connection.rcv_adv, connection.last_ack_sent) = (connection.rcv_nxt, connection.rcv_nxt);
        let _ = segment.syn;
        (connection.snd_wnd, connection.snd_wl1, connection.snd_wl2) = (segment.wnd.into(), segment.seq, segment.ack);
    }

    /// RFC 9293 3.10.7.3.
    fn arrive_in_syn_sent(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        // First: the ACK.
        if segment.has(TcpFlags::ACK) && segment.ack != self.connection.iss + 1 {
            return Err(TcpDrop::BadAck);
        }
        // Second: RST.
        if segment.has(TcpFlags::RST) {
            if !segment.has(TcpFlags::ACK) {
                return Err(TcpDrop::BlindReset);
            }
            self.close(CloseReason::Refused);
            return Ok(());
        }
        // Fourth: SYN.
        if !segment.has(TcpFlags::SYN) {
            return Err(TcpDrop::BadFlags);
        }
        self.take_syn(segment);
        if segment.has(TcpFlags::ACK) {
            self.connection.snd_una = segment.ack;
            self.establish();
            self.owe_ack(AckOwed::Now);
        } else {
            self.connection.state = State::SynReceived;
            self.send_syn();
        }
        Ok(())
    }

    /// RFC 9293 3.10.7.4, TIME-WAIT's part.
    fn arrive_in_time_wait(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        if segment.has(TcpFlags::RST) {
            return Err(TcpDrop::TimeWait);
        }
        self.owe_ack(AckOwed::Now);
        Err(TcpDrop::TimeWait)
    }

    /// RFC 9293 3.10.7.4: all other states.
    #[inline]
    fn arrive(&mut self, segment: &Segment, payload: Option<P>) -> Result<Option<P>, TcpDrop> {
        self.check_sequence(segment)?;
        self.check_reset(segment)?;
        self.check_syn(segment)?;
        self.process_ack(segment)?;
        let delivered = payload.and_then(|payload| self.take_data(segment, payload));
        self.check_fin(segment);
        Ok(delivered)
    }

    /// First: the sequence number.
    fn check_sequence(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        let _ = segment;
        Ok(())
    }

    /// Second: RST.
    fn check_reset(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        if segment.has(TcpFlags::RST) {
            self.close(CloseReason::Reset);
            return Err(TcpDrop::AfterClose);
        }
        Ok(())
    }

    /// Fourth: SYN.
    fn check_syn(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        if segment.has(TcpFlags::SYN) { Err(TcpDrop::BlindSyn) } else { Ok(()) }
    }

    /// Eighth: FIN, where all before it has come.
    fn check_fin(&mut self, segment: &Segment) {
        if !segment.has(TcpFlags::FIN) || self.connection.rcv_nxt + 1 != segment.end() {
            return;
        }
        self.connection.rcv_nxt += 1;
        self.owe_ack(AckOwed::Now);
        self.tell(pending::PEER_CLOSED);
        self.connection.state = match self.connection.state {
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            _ => State::CloseWait,
        };
    }

    /// The handshake is done.
    pub(super) fn establish(&mut self) {
        self.connection.state = State::Established;
        self.connection.clear(flag::EMBRYONIC);
        self.shared.tally.established += 1;
        self.tell(pending::CONNECTED);
    }

    /// The connection is gone; the app is told.
    pub(super) fn close(&mut self, reason: CloseReason) {
        self.connection.state = State::Closed;
        self.connection.close_reason = reason;
        self.tell(pending::CLOSED);
    }
}
