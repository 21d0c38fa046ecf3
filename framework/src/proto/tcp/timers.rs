//! Timers: the wheel returns the connection that is due, and the connection knows the reason.
//!
//! ```text
//!  timer_at   SYN again; retransmission, tail loss probe, reordering (all three done by `recovery`); closed window
//!  ack_at     the acknowledgment that waited for company
//!  idle_at    keepalive; linger, FIN-WAIT-2 and TIME-WAIT of who closes
//!  pace_at    the next segment of a limited rate
//!  (none)     room for who was refused (`room`)
//! ```
//!
//! The wheel has one entry for each connection, at its earliest deadline or before. When a deadline
//! moves to a later time, as nearly all do, the entry stays, and is set again when it fires.

use super::config::{RTO_MAX, TcpConfig};
use super::event::{CloseReason, ConnectionId};
use super::machine::{Context, Tcp};
use super::output::interface::Output;
use super::output::transmit::Sending;
use super::payload::Payload;
use super::state::connection::{AckOwed, AppFlags, Connection, OutputFlags, Pending, RetransmitTimer, State};
use crate::proto::slab::NIL;
use crate::proto::wheel::Wheel;
use crate::time::{Duration, Instant};

/// Steps of the wheel in one tick, where an entry is one step; further ones are due with the next
/// tick.
pub(super) const STEPS_MAX: u32 = 256;
/// The wheel is set no further ahead: a later deadline is checked once more before.
const AHEAD_MAX: Duration = Duration::from_secs(5 * 86_400);
/// How soon the SYN is sent again after the reset (Linux `tcp_rcv_synsent_state_process`,
/// `TCP_TIMEOUT_MIN` of a kernel with 1,000 ticks a second).
const SYN_AFTER_RESET: Duration = Duration::from_millis(2);

impl<P: Payload> Tcp<P> {
    /// Processes the connections whose deadline has passed.
    #[inline]
    pub(super) fn run_timers<O: Output<P>>(&mut self, now: Instant, output: &mut O) {
        let mut steps = STEPS_MAX;
        while let Some(slot) = self.shared.wheel.take_due(now, &mut steps) {
            let connection = &mut self.connections[slot];
            connection.clock.wheel_tick = NIL;
            if connection.is_due(now) {
                self.context(slot, output, now).on_due();
            } else {
                // The deadline has moved to a later time since, as nearly all do. Nothing else
                // changes, so stored facts about the connection stay valid.
                Context { connection, slot, shared: &mut self.shared, output, now }.arm();
            }
        }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// Sets the wheel to the earliest deadline.
    #[inline]
    pub(super) fn arm(&mut self) {
        self.arm_by(self.connection.deadline());
    }

    /// Sets the timer where only one deadline may have moved earlier.
    #[inline(always)]
    pub(super) fn arm_by(&mut self, at: Instant) {
        if !self.is_set_by(at) && at != Instant::MAX {
            self.wake(at.min(self.now + AHEAD_MAX));
        }
    }

    /// Sets the timer after data has left: only the deadline of the retransmission timer can be
    /// earlier than before.
    #[inline(always)]
    pub(super) fn arm_for_data(&mut self) {
        if self.connection.options.user_timeout_ms != 0 {
            // The retransmission timer may have started with this data.
            return self.out_of_line().arm();
        }
        self.wake(self.connection.clock.timer_at);
    }

    /// Sets the wheel to `at`, where it would fire later.
    #[inline(always)]
    pub(super) fn wake(&mut self, at: Instant) {
        let (tick, set) = (Wheel::tick_of(at), self.connection.clock.wheel_tick);
        // Half the ring of ticks is more than AHEAD_MAX.
        if set == NIL || (tick.wrapping_sub(set) as i32) < 0 {
            self.connection.clock.wheel_tick = if tick == NIL { tick - 1 } else { tick };
            self.shared.wheel.set(self.slot, at);
        }
    }

    /// Whether the wheel surely fires by `at`, as it nearly always does: one subtraction, without
    /// the rounding and the limit of a deadline that is set. What lies half the ring of ticks or
    /// more ahead does not count as sure.
    #[inline(always)]
    fn is_set_by(&self, at: Instant) -> bool {
        let set = self.connection.clock.wheel_tick;
        set != NIL && Wheel::floor_tick_of(at).wrapping_sub(set) as i32 >= 0
    }

    /// Takes the connection out of the wheel.
    pub(super) fn disarm(&mut self) {
        self.connection.clock.wheel_tick = NIL;
        self.shared.wheel.clear(self.slot);
    }

    /// Clears all deadlines.
    pub(super) fn stop_timers(&mut self) {
        self.connection.clock.stop();
        self.connection.clock.settle_ack();
        self.connection.rare_clock.idle_at = Instant::MAX;
        self.disarm();
    }

    /// A deadline has passed, or had passed when the wheel was set.
    #[inline(never)]
    fn on_due(&mut self) {
        if self.connection.user_deadline() <= self.now {
            let is_call = self.connection.state == State::SynSent;
            return self.close(if is_call { self.connection.unanswered() } else { CloseReason::TimedOut });
        }
        if self.connection.has(OutputFlags::PACED) && self.connection.rare_clock.pace_at <= self.now {
            // Data that the rate delayed leaves below, if it is still there.
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
            // Sends the delayed acknowledgment, and data that the rate delayed.
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

    /// The peer has shrunk its window below the data in flight: as with probes, a peer that answers
    /// may keep the window closed for as long as the app keeps the connection open
    /// (RFC 9293 3.8.6.1).
    fn forgive_closed_window(&mut self, at: Instant) {
        let connection = &mut *self.connection;
        let is_answered = connection.clock.last_received_at + connection.backed_off(connection.clock.backoff) >= at;
        if connection.snd.wnd == 0 && is_answered && !connection.has(AppFlags::RECEIVES_NO_MORE) {
            connection.clock.limit_backoff(self.shared.config.retries.saturating_sub(1));
        }
    }

    /// The peer has acknowledged nothing for too long. A peer that is alive, and only does not
    /// read, gets a reset.
    #[cold]
    pub(super) fn give_up(&mut self) {
        if self.connection.has(AppFlags::RECEIVES_NO_MORE) {
            self.send_reset();
        }
        self.close(CloseReason::TimedOut);
    }

    /// Our SYN was not answered (RFC 9293 3.8.3).
    fn on_syn_timeout(&mut self) {
        self.shared.tally.timeouts += 1;
        let retries = match self.connection.rare_options.syn_retries {
            0 => self.shared.config.syn_retries,
            retries => retries,
        };
        if self.connection.clock.backoff >= retries {
            return self.close(self.connection.unanswered());
        }
        self.connection.clock.back_off();
        let rare = &mut self.connection.rare_tally;
        rare.timeouts = rare.timeouts.saturating_add(1);
        self.report_path_problem();
        self.send_syn();
    }

    /// Sends the SYN again within milliseconds instead of a second. Only the first SYN, as on
    /// Linux: no peer has us send more SYNs than a lost answer does. Whether it was the first.
    pub(super) fn send_syn_soon(&mut self) -> bool {
        let clock = &mut self.connection.clock;
        let at = self.now + SYN_AFTER_RESET;
        let is_first = clock.backoff == 0 && at < clock.timer_at;
        if is_first {
            clock.start(RetransmitTimer::Timeout, at);
            self.arm();
        }
        is_first
    }

    /// The peer's window is closed for waiting data (RFC 9293 3.8.6.1): the first probe after a
    /// retransmission timeout, then at growing intervals.
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

    /// The window is still closed. A peer that answers may keep it closed as long as the app keeps
    /// the connection open; a peer that does not answer is dead.
    fn on_persist(&mut self, at: Instant) {
        let connection = &mut *self.connection;
        let span = connection.backed_off(connection.clock.backoff);
        if connection.clock.last_received_at + span >= at && !connection.has(AppFlags::RECEIVES_NO_MORE) {
            connection.clock.forget_probes();
        } else if connection.clock.probes >= self.shared.config.retries
            && connection.r2_expired(&self.shared.config, self.now)
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

    /// The window has been open for a while by less than a useful segment: send as much as fits
    /// (RFC 9293 3.8.6.2.1 (4)).
    fn send_override(&mut self) -> bool {
        let idx = self.connection.send.next_unsent;
        let chunk = &self.shared.chunks[idx];
        let part = chunk.len.min(self.connection.usable_window()).min(self.connection.snd.mss.into());
        let is_whole = part == chunk.len && chunk.seq_len() <= self.connection.usable_window();
        let sending = if is_whole { self.send_chunk(idx) } else { self.send_part(idx, part) };
        sending == Sending::Sent
    }

    fn id(&self) -> ConnectionId {
        ConnectionId { slot: self.slot, generation: self.connection.generation }
    }

    /// Keepalive begins, where it is on. A connection that came from another owner is looked at
    /// first: has all of its data come?
    pub(super) fn begin_idle_timer(&mut self) {
        if let Some(at) = self.shared.handovers.complete_by(self.id(), self.now) {
            return self.idle_until(at);
        }
        let connection = &mut *self.connection;
        connection.clock.forget_probes();
        connection.rare_clock.idle_at = match connection.options.keepalive_count {
            0 => Instant::MAX,
            _ => connection.clock.last_received_at + ms(connection.rare_options.keepalive_idle_ms),
        };
        self.arm();
    }

    /// Options have changed. Unanswered probes are forgotten only where keepalive begins or ends:
    /// otherwise an app that sets an option now and then would never learn that its peer is dead.
    /// Another idle time moves the next probe (Linux: `tcp_set_keepalive`,
    /// `tcp_sock_set_keepidle_locked`).
    pub(super) fn change_keepalive(&mut self, idle_ms_before: Option<u32>) {
        match (idle_ms_before, self.connection.keepalive_idle_ms()) {
            (before, now) if before == now => (),
            // The idle time begins behind the look whether all data has come from the last owner.
            (Some(_), Some(_)) if self.shared.handovers.complete_by(self.id(), self.now).is_some() => (),
            (Some(_), Some(idle_ms)) => self.idle_until(self.connection.clock.last_received_at + ms(idle_ms)),
            _ => self.begin_idle_timer(),
        }
    }

    /// Processes the connection at `at`, where nothing happens before.
    pub(super) fn idle_until(&mut self, at: Instant) {
        self.connection.rare_clock.idle_at = at;
        self.arm();
    }

    /// Starts the linger time of an app that has closed: it waits for the acknowledgment of its
    /// data (`SO_LINGER`).
    pub(super) fn limit_linger(&mut self) {
        if self.connection.is_lingering() {
            self.idle_until(self.now + ms(self.connection.rare_options.linger_ms));
        }
    }

    /// SO_LINGER expired: the call returns, and the connection continues as an orphan (Linux:
    /// `tcp_close`, after `sk_stream_wait_close`). A peer that acknowledges nothing is given up
    /// like any other.
    fn end_linger(&mut self) {
        self.connection.ending.set(CloseReason::LingerTimedOut);
        self.notify(Pending::CLOSED);
    }

    /// `idle_at` has passed.
    fn on_idle(&mut self) {
        self.connection.rare_clock.idle_at = Instant::MAX;
        if self.connection.may_ask()
            && let Some(next) = self.shared.handovers.take_incomplete(self.id())
        {
            if self.connection.rcv.nxt.is_before(next) {
                self.send_reset();
                return self.close(CloseReason::Aborted);
            }
            return self.begin_idle_timer();
        }
        match self.connection.state {
            State::TimeWait => self.close(CloseReason::Finished),
            State::FinWait2 if self.connection.has(AppFlags::RECEIVES_NO_MORE) => self.close(CloseReason::Finished),
            _ if self.connection.is_lingering() => self.end_linger(),
            _ if self.connection.options.keepalive_count != 0 => self.on_keepalive(),
            _ => (),
        }
    }

    /// Whether the peer has sent nothing for long (RFC 9293 3.8.4). Each segment writes
    /// `last_received_at` but not the deadline, which is computed here.
    fn on_keepalive(&mut self) {
        let connection = &mut *self.connection;
        let idle = ms(connection.rare_options.keepalive_idle_ms);
        let may_leave = connection.send.next_unsent != NIL && !connection.has(OutputFlags::DELEGATED);
        if connection.snd.flight() > 0 || may_leave {
            // Retransmissions detect a dead peer.
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
    /// Whether the app had the event that its linger time is over, while the connection continues.
    pub(super) fn is_orphaned_open(&self) -> bool {
        self.has(AppFlags::ORPHANED) && !matches!(self.state, State::TimeWait | State::Closed)
    }

    /// Whether a silent peer is probed where keepalive is on. That includes a peer that may still
    /// send after our FIN. A connection whose app has closed has other deadlines.
    pub(super) fn may_ask(&self) -> bool {
        self.state.is_synchronized()
            && !matches!(self.state, State::TimeWait | State::Closed)
            && !self.has(AppFlags::RECEIVES_NO_MORE)
    }

    /// The silence that keepalive allows, where it is on.
    pub(super) fn keepalive_idle_ms(&self) -> Option<u32> {
        (self.options.keepalive_count != 0).then_some(self.rare_options.keepalive_idle_ms)
    }

    /// Whether the wheel has fired for a reason: a deadline that has passed, or work without one.
    #[inline]
    fn is_due(&self, now: Instant) -> bool {
        self.deadline() <= now || self.path.lowered_at_s != 0 || self.has(AppFlags::WANTS_ROOM)
    }

    /// The connection's next deadline.
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

    /// When data has waited too long for its acknowledgment (RFC 5482).
    #[inline]
    fn user_deadline(&self) -> Instant {
        match self.options.user_timeout_ms {
            0 => Instant::MAX,
            timeout => self.clock.unacked_since + ms(timeout),
        }
    }

    /// The retransmission timeout after `backoff` earlier ones (RFC 6298 5.5).
    pub(super) fn backed_off(&self, backoff: u8) -> Duration {
        let us = u64::from(self.rtt.rto.0) << backoff.min(20);
        Duration::from_micros(us).min(RTO_MAX.max(self.rtt.rto.span()))
    }

    /// Whether at least the time of all retries has passed (RFC 9293 3.8.3, R2, which is a time). A
    /// low minimum timeout is for detecting a loss soon, not for ending a connection while a switch
    /// reboots.
    #[cold]
    pub(super) fn r2_expired(&self, config: &TcpConfig, now: Instant) -> bool {
        now.since(self.clock.unacked_since) >= config.retries_timeout()
    }

    /// The app has closed it, and only ACKs of its data and FIN are outstanding.
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

    /// Whether enough keepalive probes went unanswered. A user timeout replaces their count
    /// (tcp(7), TCP_USER_TIMEOUT).
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
