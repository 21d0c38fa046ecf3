//! The close of both sides: our FIN is acknowledged, the peer's arrives (RFC 9293 3.6, 3.10.7.4
//! fifth and eighth).

use super::TcpDrop;
use crate::proto::tcp::event::CloseReason;
use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Segment;
use crate::proto::tcp::state::connection::{AckOwed, AppFlags, InputFlags, Pending, State};
use crate::time::Duration;
use crate::wire::tcp::TcpFlags;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Fifth: where our FIN is acknowledged, which is when the queue is empty, the state changes.
    pub(super) fn check_fin_acknowledged(&mut self) -> Result<(), TcpDrop> {
        let connection = &mut *self.connection;
        if !connection.has(AppFlags::FIN_QUEUED) || !connection.send.queue.is_empty() {
            return Ok(());
        }
        match connection.state {
            State::FinWait1 => {
                connection.state = State::FinWait2;
                self.limit_fin_wait();
            }
            State::Closing => self.enter_time_wait(),
            State::LastAck => {
                self.close(CloseReason::Finished);
                return Err(TcpDrop::AfterClose);
            }
            _ => (),
        }
        Ok(())
    }

    /// In FIN-WAIT-2 an app that has closed does not wait for ever for a FIN (RFC 9293 3.6, Linux
    /// `tcp_fin_timeout`). An app that has only shut down its own direction may receive for as long
    /// as it likes.
    pub(crate) fn limit_fin_wait(&mut self) {
        if self.connection.has(AppFlags::RECEIVES_NO_MORE) {
            let span = Duration::from_secs(self.connection.rare_options.fin_wait_s.into());
            self.idle_until(self.now + span);
        }
    }

    /// RFC 9293 3.6.1: data for an app that has closed is answered by a reset, so that the peer
    /// knows that it was not read.
    pub(super) fn check_wanted(&mut self, segment: &Segment) -> Result<(), TcpDrop> {
        let is_new = segment.len > 0 && (segment.seq + segment.len).is_after(self.connection.rcv.nxt);
        if !is_new || !self.connection.has(AppFlags::RECEIVES_NO_MORE) || !self.connection.state.may_receive() {
            return Ok(());
        }
        self.send_reset();
        self.close(CloseReason::Aborted);
        Err(TcpDrop::AfterClose)
    }

    /// Eighth: a FIN. It takes effect when all data before it has arrived.
    #[cold]
    #[inline(never)]
    pub(super) fn check_fin(&mut self, segment: &Segment) {
        let connection = &mut *self.connection;
        if !connection.state.may_receive() {
            return;
        }
        if segment.has(TcpFlags::FIN) {
            let number = segment.seq + segment.len;
            // A FIN needs no room: a closed window does not exclude the next number. A FIN beyond
            // the window does not belong to this stream yet.
            if number == connection.rcv.nxt || number.is_before(connection.advertised.adv) {
                connection.rare_rcv.fin = number;
                connection.set(InputFlags::FIN_SEEN);
            }
        }
        if !connection.has(InputFlags::FIN_SEEN) || connection.rcv.nxt != connection.rare_rcv.fin {
            if segment.has(TcpFlags::FIN) && segment.len == 0 {
                self.owe_ack_now();
            } else if connection.clock.ack_owed == AckOwed::Now {
                // Data beyond a hole, which is acknowledged each time (RFC 5681 4.2).
                self.send_ack();
            }
            return;
        }
        connection.clear(InputFlags::FIN_SEEN);
        connection.rcv.nxt += 1;
        connection.out_of_order.queue.clear(&mut self.shared.chunks);
        self.notify(Pending::PEER_CLOSED);
        match self.connection.state {
            State::Established => self.connection.state = State::CloseWait,
            State::FinWait1 => self.connection.state = State::Closing,
            _ => self.enter_time_wait(),
        }
        self.owe_ack_now();
    }

    /// Both sides have closed, and each knows that the other has: keep the connection for a while,
    /// so that late segments find it (RFC 9293 3.4.1).
    pub(super) fn enter_time_wait(&mut self) {
        self.connection.state = State::TimeWait;
        self.shared.count_out(self.connection);
        self.connection.ending.reason = CloseReason::Finished;
        self.stop_sending();
        self.output.closed(self.slot);
        self.notify(Pending::CLOSED);
        self.restart_time_wait();
    }
}
