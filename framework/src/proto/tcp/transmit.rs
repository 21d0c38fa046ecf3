//! What leaves, and when (RFC 9293 3.8).

use super::connection::{AckOwed, State};
use super::machine::{Tcp, Turn};
use super::payload::{Output, Payload, Unsent};
use super::queue::{PUSH, SENT};
use super::segment::{Outgoing, SynOptions};
use crate::proto::slab::NIL;
use crate::time::Instant;
use crate::wire::tcp::TcpFlags;

impl<P: Payload> Tcp<P> {
    /// Time passes, and a burst has ended: what waited for it is sent, and timers run out. Bounded work.
    #[inline]
    pub fn tick<O: Output<P>>(&mut self, now: Instant, output: &mut O) {
        let Some(last) = self.shared.flush.last() else { return };
        while let Some(slot) = self.shared.flush.first() {
            self.shared.flush.remove(slot);
            let mut turn = self.turn(slot, output, now);
            turn.connection.clear(super::connection::flag::IN_FLUSH);
            turn.transmit();
            if slot == last {
                return;
            }
        }
    }
}

impl<P: Payload, O: Output<P>> Turn<'_, P, O> {
    /// Sends what may be sent now, and the acknowledgment that is due where nothing carried it.
    pub(super) fn transmit(&mut self) {
        while self.connection.next_unsent != NIL && self.send_next().is_ok() {}
        if self.connection.ack_owed == AckOwed::Now {
            self.send_ack();
        }
    }

    /// Sends the first chunk that was never sent.
    fn send_next(&mut self) -> Result<(), Unsent> {
        let idx = self.connection.next_unsent;
        let chunk = &mut self.shared.chunks[idx];
        let mut flags = TcpFlags::ACK;
        if chunk.has(PUSH) {
            flags = flags | TcpFlags::PSH;
        }
        let outgoing = header(self.connection, chunk.seq, flags, self.now);
        self.output.send(Some(self.slot), &outgoing, chunk.payload.as_mut())?;
        chunk.flags |= SENT;
        chunk.sent_at = self.now;
        self.connection.snd_nxt = chunk.end();
        self.connection.next_unsent = chunk.next;
        self.sent(&outgoing);
        Ok(())
    }

    /// A segment that carries nothing but the acknowledgment.
    pub(super) fn send_ack(&mut self) {
        let outgoing = header(self.connection, self.connection.snd_nxt, TcpFlags::ACK, self.now);
        if self.output.send(Some(self.slot), &outgoing, None).is_ok() {
            self.sent(&outgoing);
        }
    }

    /// SYN, or SYN and ACK.
    pub(super) fn send_syn(&mut self) {
        let is_answer = self.connection.state == State::SynReceived;
        let flags = if is_answer { TcpFlags::SYN | TcpFlags::ACK } else { TcpFlags::SYN };
        let mut outgoing = header(self.connection, self.connection.iss, flags, self.now);
        outgoing.syn =
            Some(SynOptions { mss: Some(self.connection.rcv_mss), window_scale: None, sack_permitted: false });
        if self.output.send(Some(self.slot), &outgoing, None).is_ok() {
            self.connection.snd_nxt = self.connection.iss + 1;
            self.sent(&outgoing);
        }
    }

    /// What a segment that left has told the peer.
    fn sent(&mut self, outgoing: &Outgoing) {
        let connection = &mut *self.connection;
        connection.ack_owed = AckOwed::No;
        connection.last_ack_sent = outgoing.ack;
        connection.tally.segments_out += 1;
        self.shared.tally.segments_out += 1;
    }
}

/// The header of a segment of the connection.
fn header(
    connection: &mut super::connection::Connection,
    seq: super::seq::Seq,
    flags: TcpFlags,
    now: Instant,
) -> Outgoing {
    let _ = now;
    let wnd = (connection.rcv_wnd() >> connection.rcv_wscale).min(65_535);
    connection.rcv_adv = connection.rcv_nxt + (wnd << connection.rcv_wscale);
    Outgoing { wnd: wnd as u16, ..Outgoing::bare(connection.flow, seq, connection.rcv_nxt, flags) }
}
