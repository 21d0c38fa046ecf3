//! Checks the timers, for tests and simulators, between two calls: a lost timer shows only as a
//! connection that stops, perhaps once, after minutes.
//!
//! The rules are written here a second time, apart from the code that follows them, so that one
//! mistake does not hide another. The audit changes nothing and scans all connections; production
//! code does not call it.

use core::fmt;

use super::machine::{Shared, Tcp};
use super::payload::Payload;
use super::state::connection::{AckOwed, AppFlags, Connection, OutputFlags, RetransmitTimer, State};
use super::timers::STEPS_MAX;
use crate::proto::slab::NIL;
use crate::proto::wheel::Wheel;
use crate::time::{Duration, Instant};

/// Steps of the wheel in one tick that a connection takes at most: moved down on each level, taken
/// and searched for, and a few more.
const STEPS_OF_ONE: usize = 10;

/// A lost timer, or a deadline without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerFault {
    /// The connection's slot and state, where it has one; none for the wheel.
    pub place: Option<(u32, Option<State>)>,
    /// The violated rule.
    pub what: &'static str,
}

impl fmt::Display for TimerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            None => f.write_str(self.what),
            Some((slot, None)) => write!(f, "place {slot}: {}", self.what),
            Some((slot, Some(state))) => write!(f, "place {slot}, {state:?}: {}", self.what),
        }
    }
}

impl<P: Payload> Tcp<P> {
    /// Checks that each connection with a deadline or other work will be processed in time, and
    /// that the last [`tick`](Self::tick), at `ticked_at`, did all that was due. Scans all
    /// connections and deadlines: for tests.
    pub fn check_timers(&self, ticked_at: Option<Instant>) -> Result<(), TimerFault> {
        if self.is_empty() && self.shared.wheel.is_empty() {
            return Ok(());
        }
        // With many connections a tick may leave some to the next.
        let ticked_at = ticked_at.filter(|_| self.len() * STEPS_OF_ONE <= STEPS_MAX as usize);
        self.shared.wheel.check().map_err(|what| TimerFault { place: None, what })?;
        if ticked_at.is_some_and(|at| self.shared.wheel.is_due(at)) {
            return Err(TimerFault { place: None, what: "the wheel stands still" });
        }
        for slot in 0..self.connections.capacity() as u32 {
            let connection = self.connections.get(slot).filter(|connection| connection.state != State::Closed);
            let state = connection.map(|connection| connection.state);
            let fault = |what: &'static str| TimerFault { place: Some((slot, state)), what };
            match connection {
                None if self.shared.wheel.is_set(slot) => return Err(fault("the wheel has one that is gone")),
                None => (),
                Some(connection) => {
                    connection.check_wheel(slot, &self.shared.wheel).map_err(fault)?;
                    connection.check_deadlines().map_err(fault)?;
                    connection.check_pace(ticked_at).map_err(fault)?;
                    self.shared.check_flush(slot, connection).map_err(fault)?;
                }
            }
        }
        Ok(())
    }
}

impl<P> Shared<P> {
    /// Work that is due at the end of the burst.
    fn check_flush(&self, slot: u32, connection: &Connection) -> Result<(), &'static str> {
        let is_listed = connection.has(OutputFlags::IN_FLUSH);
        let waits = connection.send.next_unsent != NIL || connection.sack.lost_len != 0;
        let has_room_to_wait_for =
            connection.snd.flight() > 0 || connection.send.next_unsent != NIL || self.wheel.is_set(slot);
        let rules = [
            (is_listed && !self.flush.has(slot), "its flag says that it is in the list of the burst, and it is not"),
            (connection.clock.ack_owed == AckOwed::Now && !is_listed, "an acknowledgment is owed, and nobody sends it"),
            (
                waits && connection.has(OutputFlags::NO_ROUTE) && connection.clock.timer_at == Instant::MAX,
                "what has not left has no timer",
            ),
            (connection.has(AppFlags::WANTS_ROOM) && !has_room_to_wait_for, "its app waits for room, and nobody looks"),
        ];
        first_broken(&rules)
    }
}

impl Connection {
    /// The wheel has one entry for the connection, with the tick that the connection records, and
    /// no later than its earliest deadline.
    fn check_wheel(&self, slot: u32, wheel: &Wheel) -> Result<(), &'static str> {
        let earliest = self.deadlines().into_iter().min().unwrap_or(Instant::MAX);
        let Some(due) = wheel.due(slot) else {
            let rules = [
                (earliest != Instant::MAX, "a deadline stands, and the wheel knows of none"),
                (self.clock.wheel_tick != NIL, "it thinks that the wheel comes by, which does not"),
            ];
            return first_broken(&rules);
        };
        // A deadline that had passed when it was set is entered at the next tick.
        let is_behind = |tick: u32| (due.wrapping_sub(tick) as i32) > 0 && !wheel.is_next(due);
        let rules = [
            (self.clock.wheel_tick == NIL, "the wheel comes by, and it does not know"),
            (is_behind(self.clock.wheel_tick), "the wheel comes by later than it thinks"),
            (earliest != Instant::MAX && is_behind(Wheel::tick_of(earliest)), "the wheel comes by behind its deadline"),
        ];
        first_broken(&rules)
    }

    /// All deadlines that RFC 9293 3.8 and the options require.
    fn deadlines(&self) -> [Instant; 5] {
        let only = |counts: bool, at: Instant| if counts { at } else { Instant::MAX };
        let user_timeout = Duration::from_millis(self.options.user_timeout_ms.into());
        [
            self.clock.timer_at,
            self.rare_clock.idle_at,
            only(self.clock.ack_owed == AckOwed::Delayed, self.clock.ack_at),
            only(self.has(OutputFlags::PACED), self.rare_clock.pace_at),
            only(
                user_timeout != Duration::ZERO && self.clock.unacked_since != Instant::MAX,
                self.clock.unacked_since + user_timeout,
            ),
        ]
    }

    /// A rate holds a connection back until its time, and no longer.
    fn check_pace(&self, ticked_at: Option<Instant>) -> Result<(), &'static str> {
        let is_over = ticked_at.is_some_and(|at| self.rare_clock.pace_at + Duration::from_nanos(Wheel::TICK_NS) <= at);
        first_broken(&[(self.has(OutputFlags::PACED) && is_over, "its rate holds back, and the moment is over")])
    }

    /// A connection that waits for an event has a deadline for it.
    fn check_deadlines(&self) -> Result<(), &'static str> {
        let sends = (State::Established..=State::LastAck).contains(&self.state);
        let is_silent = self.clock.timer_at == Instant::MAX;
        let is_idle = self.rare_clock.idle_at == Instant::MAX;
        let is_tended = self.has(OutputFlags::IN_FLUSH | OutputFlags::PACED | OutputFlags::DELEGATED);
        let is_open = matches!(self.state, State::Established | State::CloseWait);
        let is_left = self.state == State::FinWait2 && self.has(AppFlags::RECEIVES_NO_MORE);
        let rules = [
            (
                (self.clock.timer == RetransmitTimer::Off) != is_silent,
                "a retransmission timer without a time, or a time without one",
            ),
            (!self.state.is_synchronized() && is_silent, "its SYN is not sent again"),
            (sends && self.snd.flight() > 0 && is_silent, "data is on its way, and nothing would send it again"),
            (sends && self.send.next_unsent != NIL && is_silent && !is_tended, "data waits, and nobody looks"),
            (
                self.clock.ack_owed == AckOwed::Delayed && self.clock.ack_at == Instant::MAX,
                "a delayed acknowledgment without a time",
            ),
            (self.state == State::TimeWait && is_idle, "TIME-WAIT does not end"),
            (is_left && is_idle, "FIN-WAIT-2 of an app that is gone does not end"),
            (is_open && self.options.keepalive_count != 0 && is_idle, "keepalive asks nobody"),
        ];
        first_broken(&rules)
    }
}

fn first_broken(rules: &[(bool, &'static str)]) -> Result<(), &'static str> {
    rules.iter().find(|(is_broken, _)| *is_broken).map_or(Ok(()), |(_, what)| Err(what))
}
