//! Segments without data: acknowledgments, SYN, RST, probes.

use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::{Output, Unsent};
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::{Outgoing, SynOptions};
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{Connection, InputFlags, OutputFlags, Pending, RetransmitTimer, State};
use crate::proto::tcp::state::stored::switch;
use crate::time::Instant;
use crate::wire::tcp::{TcpFlags, Timestamps};

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Sends a bare acknowledgment at once. Where the output has no room, the acknowledgment stays
    /// owed.
    pub(crate) fn send_ack(&mut self) {
        let outgoing = self.header(self.connection.acceptable_seq(), TcpFlags::ACK, u32::MAX);
        if self.output.send(Some(self.slot), &outgoing, None) == Err(Unsent::Busy) {
            self.connection.clock.owe_ack_now();
            return self.try_again();
        }
        self.note_header_sent(&outgoing);
        if self.connection.is_on(switch::DISORDERLY) {
            self.out_of_line().repeat_ack_later();
        }
    }

    /// An acknowledgment with our numbers: a true peer can go on, and a forger has gained nothing
    /// (RFC 5961 7).
    #[cold]
    pub(crate) fn challenge_ack(&mut self) {
        let shared = &mut *self.shared;
        if !self.connection.take_challenge(self.now) || !shared.challenges.take(&shared.secret, self.now) {
            self.shared.tally.challenge_acks_suppressed += 1;
            return;
        }
        self.shared.tally.challenge_acks += 1;
        self.send_ack();
    }

    /// Sends a segment that the peer cannot accept and must answer, because its number was
    /// acknowledged before (RFC 9293 3.8.4, 3.10.7.4). False where the output has no room.
    #[cold]
    pub(crate) fn send_probe(&mut self) -> bool {
        let outgoing = self.header(self.connection.snd.una - 1, TcpFlags::ACK, u32::MAX);
        if self.output.send(Some(self.slot), &outgoing, None) == Err(Unsent::Busy) {
            self.shared.tally.output_busy += 1;
            return false;
        }
        self.note_header_sent(&outgoing);
        true
    }

    /// Resets the peer (RFC 9293 3.10.5). The reset is not retransmitted: where it is lost, the
    /// peer's next segment is answered by a reset.
    #[cold]
    pub(crate) fn send_reset(&mut self) {
        let connection = &mut *self.connection;
        let seq = if connection.state.is_synchronized() { connection.acceptable_seq() } else { connection.snd.nxt };
        let mut outgoing = connection.bare(seq, connection.rcv.nxt, TcpFlags::RST | TcpFlags::ACK);
        outgoing.timestamps = connection.timestamps(self.now);
        self.connection.tally.segments_out += 1;
        self.shared.post_reset(Some(self.slot), &outgoing, self.output);
    }

    /// SYN, or SYN and ACK, for the first time or again. Sets the timer for the next.
    #[cold]
    pub(crate) fn send_syn(&mut self) {
        let connection = &mut *self.connection;
        connection.clock.start(RetransmitTimer::Timeout, self.now + connection.backed_off(connection.clock.backoff));
        connection.snd.nxt = connection.rare_snd.iss + 1;
        let has_never_left = connection.has(OutputFlags::SYN_OWED) && connection.clock.backoff == 0;
        if connection.clock.unacked_since == Instant::MAX || has_never_left {
            connection.clock.wait_since(self.now);
        }
        let outgoing = connection.syn(self.now);
        match self.output.send(Some(self.slot), &outgoing, None) {
            Ok(()) => {
                self.connection.clear(OutputFlags::SYN_OWED | OutputFlags::NO_ROUTE | OutputFlags::NO_ROUTE_REPORTED);
                self.connection.pending.remove(Pending::NO_ROUTE);
                self.note_header_sent(&outgoing);
            }
            Err(unsent) => {
                self.connection.set(OutputFlags::SYN_OWED);
                match unsent {
                    Unsent::Busy => self.try_again(),
                    Unsent::NoRoute => {
                        self.note_no_route();
                        self.notify_no_route();
                    }
                }
            }
        }
        self.arm();
    }
}

impl Connection {
    /// The number of a segment that uses up no number: SND.NXT, unless the peer has shrunk its
    /// window below that and would ignore the segment (Linux: `tcp_acceptable_seq`).
    #[inline(always)]
    fn acceptable_seq(&self) -> Seq {
        self.snd.nxt.min(self.snd.una + self.snd.wnd)
    }

    /// The header of our SYN.
    fn syn(&mut self, now: Instant) -> Outgoing {
        let is_answer = self.state == State::SynReceived;
        let has =
            |option: u8, negotiated: InputFlags| if is_answer { self.has(negotiated) } else { self.is_on(option) };
        let mut flags = if is_answer { TcpFlags::SYN | TcpFlags::ACK } else { TcpFlags::SYN };
        // RFC 3168 6.1.1: an ECN-setup SYN has both bits, the answer one; 6.1.1.1: a repeated SYN
        // has neither. A repeated answer is unchanged, because we consider ECN negotiated.
        if has(switch::ECN, InputFlags::ECN) && (is_answer || self.clock.backoff == 0) {
            flags = flags | if is_answer { TcpFlags::ECE } else { TcpFlags::ECE | TcpFlags::CWR };
        }
        let has_window_scale = !is_answer || self.has(InputFlags::WINDOW_SCALE);
        let echo_reply = if is_answer { self.ts.recent } else { 0 };
        let timestamps = has(switch::TIMESTAMPS, InputFlags::TIMESTAMPS);
        let syn = SynOptions {
            mss: Some(self.rcv.mss),
            window_scale: has_window_scale.then_some(self.snd.rcv_wscale),
            sack_permitted: has(switch::SACK, InputFlags::SACK),
        };
        // RFC 7323 2.2: the window of a SYN is never scaled.
        let wnd = self.options.receive_buffer.min(u16::MAX.into());
        self.advertised.adv = self.rcv.nxt + wnd;
        let ack = if is_answer { self.rcv.nxt } else { Seq(0) };
        Outgoing {
            wnd: wnd as u16,
            timestamps: timestamps.then(|| Timestamps { value: self.ts.now(now), echo_reply }),
            syn: Some(syn),
            ..self.bare(self.rare_snd.iss, ack, flags)
        }
    }
}
