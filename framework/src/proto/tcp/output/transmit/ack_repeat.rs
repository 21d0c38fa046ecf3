//! Repeated acknowledgments, where segments are lost and the peer is silent.
//!
//! Where segments are lost acknowledgments are too, and a peer that gets none waits for its
//! timeout: Linux for 200 ms at least, and twice as long each time. A sender's data repeats the
//! acknowledgment, and a probe follows soon (`loss::rack`); a pure receiver sends it only once.
//!
//! RFC 5681 4.2 does not let a receiver acknowledge a segment twice "other than to update the
//! offered window as the receiving application consumes new data". So the repetition is a window
//! update. After disorder a part of the window is held back; if the peer sends nothing, the window
//! grows by a full segment (RFC 9293 3.8.6.2.2), in an acknowledgment that repeats the one before.
//! There are at most as many repetitions as full segments that the app has read, few in a row, and
//! none where nothing was lost recently.

use crate::proto::tcp::machine::Context;
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Outgoing;
use crate::proto::tcp::state::connection::{AckOwed, Connection, Micros, OutputFlags};
use crate::proto::tcp::state::stored::switch;
use crate::time::{Duration, Instant};

/// Full segments of window that are held back: enough for some silences in a row without new data.
const HELD_SEGMENTS: u32 = 16;
/// The most that is held back, as a part of the receive buffer.
const HELD_SHARE: u32 = 8;
/// The shortest time without a segment of the peer before a repetition: a live peer that may send
/// answers within a round trip.
const SILENCE_MIN_US: u64 = 1_000;
/// The factor by which each wait is longer than the one before. After four repetitions, 64 ms in
/// all where the round trip is short, the peer's own timeout is near. Where one acknowledgment in
/// five is lost, all five are lost once in 3,000.
const GROWTH: u64 = 4;
const IN_A_ROW: u32 = 4;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// A bare acknowledgment has left: it is repeated if the peer stays silent.
    #[cold]
    pub(super) fn repeat_ack_later(&mut self) {
        let Some(wait) = self.connection.silence_to_break(self.now) else { return };
        if self.connection.updates_left() == 0 || !self.connection.state.may_receive() {
            return;
        }
        self.connection.clock.owe_ack(AckOwed::Delayed, self.now + wait);
        self.arm_by(self.connection.clock.ack_at);
    }

    /// Sends an acknowledgment that was delayed, or that is repeated.
    pub(super) fn send_late_ack(&mut self) {
        let connection = &mut *self.connection;
        if connection.rcv.nxt == connection.advertised.last_ack_sent {
            if connection.updates_left() == 0 {
                return connection.clock.settle_ack();
            }
            connection.show_update();
        }
        connection.options.note_late_ack();
        self.send_ack();
    }
}

impl Connection {
    /// The wait before the next repetition, by the peer's silence so far; `None` after the last
    /// one, and without an RTT.
    fn silence_to_break(&self, now: Instant) -> Option<Duration> {
        if self.rtt.srtt == Micros::ZERO {
            return None;
        }
        let first = (2 * u64::from(self.rtt.srtt.0)).max(SILENCE_MIN_US);
        let silent = now.since(self.clock.last_received_at).as_nanos() / 1_000;
        let wait = if silent < first { first } else { silent * (GROWTH - 1) };
        (silent < first * GROWTH.pow(IN_A_ROW - 1)).then(|| Duration::from_micros(wait))
    }

    /// The part of the window that is held back.
    #[inline]
    pub(super) fn held_back(&self) -> u32 {
        if self.is_on(switch::DISORDERLY) { self.held_back_most() } else { 0 }
    }

    /// The most that is held back, in whole segments: with less, no update could be sent.
    #[cold]
    fn held_back_most(&self) -> u32 {
        let len = self.update_len().max(1);
        (self.options.receive_buffer / HELD_SHARE / len).min(HELD_SEGMENTS) * len
    }

    /// The growth of the window in a repetition.
    fn update_len(&self) -> u32 {
        self.window_step().max(1 << self.snd.rcv_wscale)
    }

    /// The number of repetitions left.
    fn updates_left(&self) -> u32 {
        self.receive_buffer_room().saturating_sub(self.advertised_window()) / self.update_len().max(1)
    }

    /// The window grows.
    fn show_update(&mut self) {
        self.advertised.adv += self.update_len();
        self.clear(OutputFlags::WINDOW_STAYS);
    }

    /// When SACK blocks are repeated that found no room in a full segment.
    #[inline]
    pub(super) fn sacks_again_at(&self, outgoing: &Outgoing) -> Option<Instant> {
        let is_unowned = self.clock.ack_owed == AckOwed::Delayed && outgoing.sack_count == 0 && self.owes_sacks();
        is_unowned.then_some(self.clock.ack_at)
    }
}
