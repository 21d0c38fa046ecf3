//! Acknowledgments that are told again, where segments get lost and the peer is silent.
//!
//! Where segments get lost acknowledgments do as well, and a peer that hears of nothing waits for
//! its timeout: Linux for 200 ms at least, and twice as long each time. Data that we send carries
//! the acknowledgment again, and is asked about soon (`loss::rack`); who only receives has nothing
//! but the one.
//!
//! RFC 5681 4.2 has a receiver send no second acknowledgment of a segment "other than to update the
//! offered window as the receiving application consumes new data". So that is what is sent: behind
//! disorder some of the room is not shown at once, and if the peer stays silent the window grows by
//! a full segment (RFC 9293 3.8.6.2.2), in an acknowledgment with all that the one before it said.
//! There are no more of them than full segments that the app has taken, few in a row, and none where
//! nothing was lost of late.

use super::super::super::machine::Context;
use super::super::super::payload::{Output, Payload};
use super::super::super::segment::Outgoing;
use super::super::super::state::connection::{AckOwed, Connection, Micros, OutputFlags};
use super::super::super::state::stored::switch;
use crate::time::{Duration, Instant};

/// Full segments of room that are not shown at once: enough for some silences in a row that bring
/// nothing new.
const HELD_SEGMENTS: u32 = 16;
/// Nor is more held back than this part of the receive buffer.
const HELD_SHARE: u32 = 8;
/// A peer is silent for so long at least before it is told again: one that is there and may go on
/// answers within a round trip.
const SILENCE_MIN_US: u64 = 1_000;
/// Each silence is so many times as long as the one before. After four, of 64 ms in all where the
/// round trip is short, the peer's own timeout is near, and of five acknowledgments in a row one in
/// 3,000 is lost with all others where each fifth is.
const GROWTH: u64 = 4;
const IN_A_ROW: u32 = 4;

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// An acknowledgment has left that no data carried: it is told again if the peer stays silent.
    #[cold]
    pub(super) fn tell_again_later(&mut self) {
        let Some(wait) = self.connection.silence_to_break(self.now) else { return };
        if self.connection.updates_left() == 0 || !self.connection.state.may_receive() {
            return;
        }
        self.connection.clock.owe_ack(AckOwed::Delayed, self.now + wait);
        self.arm_by(self.connection.clock.ack_at);
    }

    /// An acknowledgment that has waited leaves: for company, or for the peer to speak.
    pub(super) fn send_late_ack(&mut self) {
        let connection = &mut *self.connection;
        if connection.rcv.nxt == connection.shown.last_ack_sent {
            if connection.updates_left() == 0 {
                return connection.clock.settle_ack();
            }
            connection.show_update();
        }
        self.send_ack();
    }
}

impl Connection {
    /// How long the peer is silent from now on until it is told again. It has been silent since
    /// what it was told first.
    fn silence_to_break(&self, now: Instant) -> Option<Duration> {
        if self.rtt.srtt == Micros::ZERO {
            return None;
        }
        let first = (2 * u64::from(self.rtt.srtt.0)).max(SILENCE_MIN_US);
        let silent = now.since(self.clock.last_received_at).as_nanos() / 1_000;
        let wait = if silent < first { first } else { silent * (GROWTH - 1) };
        (silent < first * GROWTH.pow(IN_A_ROW - 1)).then(|| Duration::from_micros(wait))
    }

    /// Room that is not shown at once.
    #[inline]
    pub(super) fn held_back(&self) -> u32 {
        if self.is_on(switch::DISORDERLY) { self.held_back_most() } else { 0 }
    }

    /// Whole segments of it: of less nothing could be shown again.
    #[cold]
    fn held_back_most(&self) -> u32 {
        let len = self.update_len().max(1);
        (self.options.receive_buffer / HELD_SHARE / len).min(HELD_SEGMENTS) * len
    }

    /// By how much the window grows when the peer is told again.
    fn update_len(&self) -> u32 {
        self.window_step().max(1 << self.snd.rcv_wscale)
    }

    /// How often it may.
    fn updates_left(&self) -> u32 {
        self.whole_room().saturating_sub(self.shown_window()) / self.update_len().max(1)
    }

    /// The window grows.
    fn show_update(&mut self) {
        self.shown.adv += self.update_len();
        self.clear(OutputFlags::WINDOW_STAYS);
    }

    /// When SACK blocks are told again that the segment has no room for, as a full one has not.
    #[inline]
    pub(super) fn sacks_again_at(&self, outgoing: &Outgoing) -> Option<Instant> {
        let is_untold = self.clock.ack_owed == AckOwed::Delayed && outgoing.sack_count == 0 && self.owes_sacks();
        is_untold.then_some(self.clock.ack_at)
    }
}
