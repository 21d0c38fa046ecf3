//! SYN-SENT (RFC 9293 3.10.7.3): the answer to our SYN, or a SYN that crosses it.

use super::Arrival;
use super::TcpDrop;
use crate::proto::tcp::event::CloseReason;
use crate::proto::tcp::machine::{Context, Tcp};
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Segment;
use crate::proto::tcp::state::connection::State;
use crate::time::Instant;
use crate::wire::tcp::TcpFlags;

impl<P: Payload> Tcp<P> {
    pub(super) fn arrive_in_syn_sent<O: Output<P>>(
        &mut self,
        slot: u32,
        arrival: &Arrival,
        payload: Option<P>,
        now: Instant,
        output: &mut O,
    ) -> Result<Option<P>, TcpDrop> {
        let segment = &arrival.segment;
        // First: the ACK. A peer that acknowledges another SYN than ours has an older connection;
        // the reset ends it. The peer has dropped our SYN for it, so the SYN is sent again soon.
        if segment.has(TcpFlags::ACK) && segment.ack != self.connections[slot].rare_snd.iss + 1 {
            if !segment.has(TcpFlags::RST) {
                // The first counts towards no limit: the SYN that follows is in vain without it,
                // and a program that is started again has many such calls at a time.
                if self.context(slot, output, now).send_syn_soon() {
                    self.reset(arrival, output);
                } else {
                    self.answer_with_reset(arrival, now, output);
                }
            }
            return Err(TcpDrop::BadAck);
        }
        self.context(slot, output, now).take_answer(segment, payload)
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    fn take_answer(&mut self, segment: &Segment, payload: Option<P>) -> Result<Option<P>, TcpDrop> {
        // Second: RST.
        if segment.has(TcpFlags::RST) {
            if !segment.has(TcpFlags::ACK) {
                return Err(TcpDrop::BlindReset);
            }
            self.shared.tally.resets_in += 1;
            self.close(CloseReason::Refused);
            return Err(TcpDrop::AfterClose);
        }
        // Fourth: SYN. Fifth: anything else is dropped.
        if !segment.has(TcpFlags::SYN) {
            return Err(TcpDrop::BadFlags);
        }
        self.take_syn(segment);
        self.connection.clock.note_received(self.now);
        if !segment.has(TcpFlags::ACK) {
            // Both have opened at once (RFC 9293 3.5, figure 8).
            self.connection.state = State::SynReceived;
            self.send_syn();
            return Ok(None);
        }
        self.connection.snd.una = segment.ack;
        self.establish();
        self.owe_ack_now();
        // Data that came with the answer waits in order, because the event of the connection comes
        // first.
        self.segment_text(&segment.without_syn(), payload, false)
    }
}
