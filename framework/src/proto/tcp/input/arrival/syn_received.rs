//! SYN-RECEIVED (RFC 9293 3.10.7.4): the acknowledgment of our SYN. An app knows of the connection
//! only where it opened it; a listener's handshake "returns to LISTEN": it is removed.

use super::Arrival;
use super::TcpDrop;
use crate::proto::tcp::event::CloseReason;
use crate::proto::tcp::machine::{Context, Tcp};
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::state::connection::{AppFlags, State};
use crate::time::Instant;
use crate::wire::tcp::TcpFlags;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// The peer has not received our SYN, so the acknowledgment that the RFC prescribes would mean
    /// nothing to it: sends the SYN again. The timer keeps running, so that a peer that only sends
    /// SYNs does not keep its slot. A few are sent in a second at most, because the sender may be
    /// forged.
    fn repeat_syn(&mut self) -> TcpDrop {
        if !self.connection.take_challenge(self.now) {
            return TcpDrop::SynRateExceeded;
        }
        let (timer, at) = (self.connection.clock.timer, self.connection.clock.timer_at);
        self.send_syn();
        self.connection.clock.start(timer, at);
        TcpDrop::NotAcceptable
    }
}

impl<P: Payload> Tcp<P> {
    pub(super) fn arrive_in_syn_received<O: Output<P>>(
        &mut self,
        slot: u32,
        arrival: &Arrival,
        payload: Option<P>,
        now: Instant,
        output: &mut O,
    ) -> Result<Option<P>, TcpDrop> {
        let mut segment = arrival.segment;
        let mut cx = self.context(slot, output, now);
        let is_first =
            segment.seq == cx.connection.rare_rcv.irs && segment.has(TcpFlags::SYN) && !segment.has(TcpFlags::RST);
        if is_first && !segment.has(TcpFlags::ACK) {
            return Err(cx.repeat_syn());
        }
        if is_first {
            // The second SYN of two that crossed acknowledges ours. Its window is not scaled (RFC
            // 7323 2.2), and is converted to the scale of later ones.
            segment = segment.without_syn();
            segment.wnd >>= cx.connection.snd.wscale;
        }
        cx.check_timestamps(&segment)?;
        cx.check_sequence(&segment)?;
        if segment.flags.intersects(TcpFlags::RST | TcpFlags::SYN) {
            return Err(self.leave_syn_received(slot, arrival, now, output));
        }
        if !segment.has(TcpFlags::ACK) {
            return Err(TcpDrop::BadFlags);
        }
        // Fifth: SND.UNA < SEG.ACK =< SND.NXT, which is one number.
        if segment.ack != cx.connection.snd.nxt {
            let was_embryonic = cx.connection.has(AppFlags::EMBRYONIC);
            return Err(self.refuse_other_ack(was_embryonic, arrival, now, output));
        }
        let was_embryonic = cx.connection.has(AppFlags::EMBRYONIC);
        if was_embryonic {
            self.check_room_for_session(slot, arrival, now, output)?;
        }
        let mut cx = self.context(slot, output, now);
        cx.note_arrival(&segment.predicted_fields());
        cx.process_ack(&segment)?;
        if cx.connection.state == State::SynReceived {
            return Err(TcpDrop::BadAck);
        }
        if is_first {
            cx.owe_ack_now();
        }
        // Data that came with the acknowledgment waits in order, because the event of the
        // connection comes first.
        let text = cx.segment_text(&segment, payload, false);
        // Computed here, so that the first answer leaves as fast as the next ones.
        cx.compute_send_room();
        if was_embryonic {
            self.count_embryonic_out(slot);
        }
        text
    }

    /// The segment acknowledges another SYN than ours.
    fn refuse_other_ack<O: Output<P>>(
        &mut self,
        was_embryonic: bool,
        arrival: &Arrival,
        now: Instant,
        output: &mut O,
    ) -> TcpDrop {
        match self.listeners.choose(arrival.flow).filter(|_| was_embryonic) {
            Some(listener) => self.refuse_ack(arrival, listener, now, output),
            None => self.answer_with_reset(arrival, now, output),
        }
        TcpDrop::BadAck
    }

    /// Handshakes are not counted as sessions, so more may be open than are accepted: the peer,
    /// which considers itself connected, is reset.
    fn check_room_for_session<O: Output<P>>(
        &mut self,
        slot: u32,
        arrival: &Arrival,
        now: Instant,
        output: &mut O,
    ) -> Result<(), TcpDrop> {
        let id = self.connections[slot].accepted_by.id;
        if self.listeners.get_mut(id).is_none() {
            return Ok(());
        }
        self.check_limits(id.slot(), *arrival.flow.remote.ip()).inspect_err(|_| {
            self.answer_with_reset(arrival, now, output);
            self.release(slot);
        })
    }

    /// Second and fourth: a reset, or another SYN.
    fn leave_syn_received<O: Output<P>>(
        &mut self,
        slot: u32,
        arrival: &Arrival,
        now: Instant,
        output: &mut O,
    ) -> TcpDrop {
        let mut cx = self.context(slot, output, now);
        let is_reset = arrival.segment.has(TcpFlags::RST);
        if is_reset && !cx.is_exact_reset(&arrival.segment) {
            return TcpDrop::BlindReset;
        }
        cx.shared.tally.resets_in += u64::from(is_reset);
        if cx.connection.has(AppFlags::EMBRYONIC) {
            self.release(slot);
        } else if is_reset {
            cx.close(CloseReason::Refused);
        } else {
            cx.challenge_ack();
        }
        if is_reset { TcpDrop::AfterClose } else { TcpDrop::BlindSyn }
    }
}
