//! What happens because time passes: the wheel says which connection is to be looked at, the
//! connection knows for what.
//!
//! ```text
//!  timer_at   SYN again; retransmission, tail loss probe, reordering (all three done by `recovery`); closed window
//!  ack_at     the acknowledgment that waited for company
//!  idle_at    keepalive; linger, FIN-WAIT-2 and TIME-WAIT of who closes
//!  pace_at    the next segment of a limited rate
//!  (none)     room for who was refused (`room`)
//! ```
//!
//! The wheel has one entry for each connection, at its earliest deadline or before: a deadline that
//! moves away, as nearly all do, leaves it where it is, and it is set again when it comes.

use super::config::TcpConfig;
use super::event::CloseReason;
use super::machine::{Context, Tcp};
use super::output::transmit::Sending;
use super::payload::{Output, Payload};
use super::state::connection::{AckOwed, AppFlags, Connection, OutputFlags, RetransmitTimer, State, pending};
use crate::proto::slab::NIL;
use crate::proto::wheel::Wheel;
use crate::time::{Duration, Instant};

/// Steps of the wheel in one tick, an entry being one: what is left is due with the next.
pub(super) const STEPS_MAX: u32 = 256;
/// Between two retransmissions, or probes of a closed window, no more time passes than this
/// (RFC 6298 2.5).
pub(super) const RTO_MAX: Duration = Duration::from_secs(60);
/// The wheel is set no further ahead: a deadline beyond is looked at once more before.
const AHEAD_MAX: Duration = Duration::from_secs(5 * 86_400);

/// How long an app that wants nothing more waits for the peer's FIN: Linux's tcp_fin_timeout.
pub(super) const FIN_WAIT_2: Duration = Duration::from_secs(60);

impl<P: Payload> Tcp<P> {
    /// Looks at the connections whose deadline has passed.
    #[inline]
    pub(super) fn run_timers<O: Output<P>>(&mut self, now: Instant, output: &mut O) {
        let mut steps = STEPS_MAX;
        while let Some(slot) = self.shared.wheel.take_due(now, &mut steps) {
            let connection = &mut self.connections[slot];
            connection.clock.wheel_tick = NIL;
            if connection.is_due(now) {
                self.context(slot, output, now).on_due();
            } else {
                // The deadline has moved on since, as nearly all do. Nothing happens: what was
                // found out of the connection stays true.
                Context { connection, slot, shared: &mut self.shared, output, now }.arm();
            }
        }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Has the wheel come by at the earliest deadline.
    #[inline]
    pub(super) fn arm(&mut self) {
        self.arm_by(self.connection.deadline());
    }

    /// The same where one deadline may have come nearer, and no other has.
    #[inline(always)]
    pub(super) fn arm_by(&mut self, at: Instant) {
        if at != Instant::MAX {
            self.wake(at.min(self.now + AHEAD_MAX));
        }
    }

    /// The same when data has left: no deadline is closer than it was, but that of the
    /// retransmission timer.
    #[inline(always)]
    pub(super) fn arm_for_data(&mut self) {
        if self.connection.options.user_timeout_ms != 0 {
            // It may have begun with this data.
            return self.aside().arm();
        }
        self.wake(self.connection.clock.timer_at);
    }

    /// Has the wheel come by at `at`, where it would come later.
    #[inline(always)]
    pub(super) fn wake(&mut self, at: Instant) {
        let (tick, set) = (Wheel::tick_of(at), self.connection.clock.wheel_tick);
        // Half the ring of ticks is more than AHEAD_MAX.
        if set == NIL || (tick.wrapping_sub(set) as i32) < 0 {
            self.connection.clock.wheel_tick = if tick == NIL { tick - 1 } else { tick };
            self.shared.wheel.set(self.slot, at);
        }
    }

    /// Takes the connection out of the wheel.
    pub(super) fn disarm(&mut self) {
        self.connection.clock.wheel_tick = NIL;
        self.shared.wheel.clear(self.slot);
    }

    /// Nothing is waited for any more.
    pub(super) fn stop_timers(&mut self) {
        self.connection.clock.stop();
        self.connection.clock.settle_ack();
        self.connection.rare_clock.idle_at = Instant::MAX;
        self.disarm();
    }

    /// One deadline or more has passed, or was there when the wheel was set.
    #[inline(never)]
    fn on_due(&mut self) {
        if self.connection.user_deadline() <= self.now {
            let is_call = self.connection.state == State::SynSent;
            return self.close(if is_call { self.connection.unanswered() } else { CloseReason::TimedOut });
        }
        if self.connection.has(OutputFlags::PACED) && self.connection.rare_clock.pace_at <= self.now {
            // What the rate held back leaves below, if it is still there.
            self.connection.clear(OutputFlags::PACED);
        }
        if self.connection.path.lowered_at_s != 0 {
            self.raise_mss();
        }
        if self.connection.clock.timer_at <= self.now {
            self.on_retransmit_timer();
        }
        if self.connection.rare_clock.idle_at <= self.now && self.connection.state != State::Closed {
            self.on_idle();
        }
        if self.connection.state != State::Closed {
            // The delayed acknowledgment, and what the rate held back.
            self.transmit();
            if self.connection.has(AppFlags::WANTS_ROOM) {
                self.offer_room();
            }
        }
    }

    fn on_retransmit_timer(&mut self) {
        let (timer, at) = (self.connection.clock.timer, self.connection.clock.timer_at);
        self.connection.clock.stop();
        match timer {
            RetransmitTimer::Off => (),
            RetransmitTimer::Timeout if !self.connection.state.is_synchronized() => self.on_syn_timeout(),
            RetransmitTimer::Timeout => {
                self.forgive_closed_window(at);
                self.on_timeout();
            }
            RetransmitTimer::Probe => self.on_probe_time(at),
            RetransmitTimer::Reordering => self.on_reordering(),
            RetransmitTimer::Persist => self.on_persist(at),
        }
    }

    /// The peer has taken its window back from under what is on its way: as with probes, one that
    /// answers may do so as long as the app cares (RFC 9293 3.8.6.1).
    fn forgive_closed_window(&mut self, at: Instant) {
        let connection = &mut *self.connection;
        let is_answered = connection.clock.last_received_at + connection.backed_off(connection.clock.backoff) >= at;
        if connection.snd.wnd == 0 && is_answered && !connection.has(AppFlags::RECEIVES_NO_MORE) {
            connection.clock.limit_backoff(self.shared.config.retries.saturating_sub(1));
        }
    }

    /// The peer has acknowledged nothing for too long. One that is there still, and only does not
    /// read, hears of it.
    #[cold]
    pub(super) fn give_up(&mut self) {
        if self.connection.has(AppFlags::RECEIVES_NO_MORE) {
            self.send_reset();
        }
        self.close(CloseReason::TimedOut);
    }

    /// Nobody has answered our SYN (RFC 9293 3.8.3).
    fn on_syn_timeout(&mut self) {
        self.shared.tally.timeouts += 1;
        if self.connection.clock.backoff >= self.shared.config.syn_retries {
            return self.close(self.connection.unanswered());
        }
        self.connection.clock.back_off();
        let rare = &mut self.connection.rare_tally;
        rare.timeouts = rare.timeouts.saturating_add(1);
        self.doubt_way();
        self.send_syn();
    }

    /// The peer's window is closed to what waits (RFC 9293 3.8.6.1): the first probe after a
    /// retransmission timeout, then ever less often.
    #[cold]
    pub(super) fn begin_persist(&mut self) {
        let connection = &mut *self.connection;
        connection.clock.forget_backoff();
        connection.clock.forget_probes();
        connection.clock.start(RetransmitTimer::Persist, self.now + connection.backed_off(0));
        if connection.clock.unacked_since == Instant::MAX {
            // As on Linux the user timeout counts a closed window as well, also where the peer
            // answers.
            connection.clock.wait_since(self.now);
        }
    }

    /// The window is still closed to us. A peer that answers may keep it closed as long as the app
    /// cares; one that does not is gone.
    fn on_persist(&mut self, at: Instant) {
        let connection = &mut *self.connection;
        let span = connection.backed_off(connection.clock.backoff);
        if connection.clock.last_received_at + span >= at && !connection.has(AppFlags::RECEIVES_NO_MORE) {
            connection.clock.forget_probes();
        } else if connection.clock.probes >= self.shared.config.retries
            && connection.was_patient(&self.shared.config, self.now)
        {
            return self.give_up();
        }
        if connection.send.next_unsent == NIL {
            return;
        }
        if self.connection.usable_window() > 0 && self.send_override() {
            return;
        }
        let was_sent = self.send_probe();
        let connection = &mut *self.connection;
        if was_sent {
            connection.clock.count_probe();
            connection.clock.back_off();
            self.shared.tally.zero_window_probes += 1;
        }
        connection.clock.start(RetransmitTimer::Persist, self.now + connection.backed_off(connection.clock.backoff));
    }

    /// The window is open by less than is worth a segment, and has been for a while: as much as
    /// fits (RFC 9293 3.8.6.2.1 (4)).
    fn send_override(&mut self) -> bool {
        let idx = self.connection.send.next_unsent;
        let chunk = &self.shared.chunks[idx];
        let part = chunk.len.min(self.connection.usable_window()).min(self.connection.snd.mss.into());
        let is_whole = part == chunk.len && chunk.seq_len() <= self.connection.usable_window();
        let sending = if is_whole { self.send_chunk(idx) } else { self.send_part(idx, part) };
        sending == Sending::Sent
    }

    /// Keepalive begins, where it is asked for.
    pub(super) fn begin_idle_timer(&mut self) {
        let connection = &mut *self.connection;
        connection.clock.forget_probes();
        connection.rare_clock.idle_at = match connection.options.keepalive_count {
            0 => Instant::MAX,
            _ => connection.clock.last_received_at + ms(connection.rare_options.keepalive_idle_ms),
        };
        self.arm();
    }

    /// Has the connection looked at when nothing has happened until `at`.
    pub(super) fn idle_until(&mut self, at: Instant) {
        self.connection.rare_clock.idle_at = at;
        self.arm();
    }

    /// The app that has let go of what it sent waits so long from now to hear that it was
    /// acknowledged.
    pub(super) fn limit_linger(&mut self) {
        if self.connection.is_lingering() {
            self.idle_until(self.now + ms(self.connection.rare_options.linger_ms));
        }
    }

    /// The app waits no longer, and the connection goes on without it (Linux: `tcp_close`, which
    /// returns when `sk_stream_wait_close` does, and makes the socket an orphan). A peer that
    /// acknowledges nothing is given up like any other.
    fn end_linger(&mut self) {
        self.connection.close_reason = CloseReason::LingerTimedOut;
        self.tell(pending::CLOSED);
    }

    /// `idle_at` has come.
    fn on_idle(&mut self) {
        self.connection.rare_clock.idle_at = Instant::MAX;
        match self.connection.state {
            State::TimeWait => self.close(CloseReason::Finished),
            State::FinWait2 if self.connection.has(AppFlags::RECEIVES_NO_MORE) => self.close(CloseReason::Finished),
            _ if self.connection.is_lingering() => self.end_linger(),
            _ if self.connection.options.keepalive_count != 0 => self.on_keepalive(),
            _ => (),
        }
    }

    /// Whether the peer has been silent for long (RFC 9293 3.8.4). `last_received_at` is written by
    /// each segment, the deadline by none: it is looked at here.
    fn on_keepalive(&mut self) {
        let connection = &mut *self.connection;
        let idle = ms(connection.rare_options.keepalive_idle_ms);
        let may_leave = connection.send.next_unsent != NIL && !connection.has(OutputFlags::DELEGATED);
        if connection.snd.flight() > 0 || may_leave {
            // Data finds out by itself.
            connection.rare_clock.idle_at = self.now + idle;
            return;
        }
        if connection.clock.last_received_at + idle > self.now {
            connection.clock.forget_probes();
            connection.rare_clock.idle_at = connection.clock.last_received_at + idle;
            return;
        }
        if connection.is_given_up(self.now) {
            self.send_reset();
            return self.close(CloseReason::KeepaliveTimedOut);
        }
        connection.rare_clock.idle_at = self.now + ms(connection.rare_options.keepalive_interval_ms);
        if self.send_probe() {
            self.connection.clock.count_probe();
            self.shared.tally.keepalive_probes += 1;
        }
    }
}

impl Connection {
    /// Whether the app has heard that its time to linger is over, and the connection goes on.
    pub(super) fn is_unheard(&self) -> bool {
        self.has(AppFlags::ORPHANED) && !matches!(self.state, State::TimeWait | State::Closed)
    }

    /// Whether a silent peer is asked, where keepalive is on: also one that may still send to us
    /// when we have sent our last. Who wants no more has other deadlines.
    pub(super) fn may_ask(&self) -> bool {
        self.state.is_synchronized()
            && !matches!(self.state, State::TimeWait | State::Closed)
            && !self.has(AppFlags::RECEIVES_NO_MORE)
    }

    /// Whether the wheel has come for a reason: a deadline that has passed, or what is looked at
    /// without one.
    #[inline]
    fn is_due(&self, now: Instant) -> bool {
        self.deadline() <= now || self.path.lowered_at_s != 0 || self.has(AppFlags::WANTS_ROOM)
    }

    /// When the connection is to be looked at next.
    #[inline]
    pub(super) fn deadline(&self) -> Instant {
        let mut at = self.clock.timer_at.min(self.rare_clock.idle_at);
        if self.clock.ack_owed == AckOwed::Delayed {
            at = at.min(self.clock.ack_at);
        }
        if self.options.user_timeout_ms != 0 {
            at = at.min(self.user_deadline());
        }
        if self.has(OutputFlags::PACED) {
            at = at.min(self.rare_clock.pace_at);
        }
        at
    }

    /// When data has waited for its acknowledgment for too long (RFC 5482).
    #[inline]
    fn user_deadline(&self) -> Instant {
        match self.options.user_timeout_ms {
            0 => Instant::MAX,
            timeout => self.clock.unacked_since + ms(timeout),
        }
    }

    /// A retransmission timeout after so many that went before (RFC 6298 5.5).
    pub(super) fn backed_off(&self, backoff: u8) -> Duration {
        let us = u64::from(self.rtt.rto.0) << backoff.min(20);
        Duration::from_micros(us).min(RTO_MAX.max(self.rtt.rto.span()))
    }

    /// Whether as much time has passed as the retries take at least (RFC 9293 3.8.3, R2, which is a
    /// time). A low floor of the timeout is to find a loss soon, not to end a connection while a
    /// switch reboots.
    #[cold]
    pub(super) fn was_patient(&self, config: &TcpConfig, now: Instant) -> bool {
        now.since(self.clock.unacked_since) >= config.patience()
    }

    /// The app has closed it, and waits for so long only that what it sent, the FIN being the last
    /// of it, is acknowledged.
    fn is_lingering(&self) -> bool {
        self.has(AppFlags::RECEIVES_NO_MORE)
            && self.rare_options.linger_ms != u32::MAX
            && matches!(self.state, State::FinWait1 | State::Closing | State::LastAck)
    }

    /// The window is open again.
    #[cold]
    pub(super) fn end_persist(&mut self) {
        self.clock.stop();
        self.clock.forget_backoff();
        self.clock.forget_probes();
        self.clock.wait_since(Instant::MAX);
    }

    /// Whether enough keepalive probes went unanswered. A user timeout takes the place of their
    /// count (tcp(7), TCP_USER_TIMEOUT).
    fn is_given_up(&self, now: Instant) -> bool {
        match self.options.user_timeout_ms {
            0 => self.clock.probes >= self.options.keepalive_count,
            timeout => self.clock.probes > 0 && now.since(self.clock.last_received_at) >= ms(timeout),
        }
    }
}

fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}
