//! The state of one line: its first arrivals, its losses, and the time of its last packet.

use crate::framing::Header;
use crate::sequence::{Policy, StartSequence, Track, is_numbered};

/// A line of a channel by its number: A is 0, B is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub usize);

impl Line {
    /// The first line.
    pub const A: Self = Self(0);
    /// The second line.
    pub const B: Self = Self(1);
}

/// Counts of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Packets with messages.
    pub packets: u64,
    /// Packets without messages.
    pub heartbeats: u64,
    /// Messages in its packets.
    pub messages: u64,
    /// Messages that it brought first; its share of the delivered ones shows which line is faster.
    pub first: u64,
    /// Messages that it brought into a hole another line had revealed.
    pub healed: u64,
    /// Times that it skipped numbers, even where it brought them later.
    pub gaps: u64,
    /// Messages that it had brought itself before.
    pub duplicates: u64,
    /// Numbers that the line skipped and did not bring later: losses of this line, even if other
    /// lines brought them.
    pub lost: u64,
    /// When its last packet arrived, ns. A line without packets for seconds is dead, even if no
    /// message is missing yet.
    pub last_packet_ns: u64,
}

impl LineCounts {
    /// Messages that another line had brought before, or that came too late.
    pub const fn redundant(&self) -> u64 {
        self.messages.saturating_sub(self.first)
    }
}

/// The counters of a line and its own view of the numbers.
#[derive(Clone, Debug)]
pub(super) struct LineState {
    track: Track,
    /// Restarts of the channel that this line has followed.
    restarts: u64,
    packets: u64,
    heartbeats: u64,
    messages: u64,
    pub(super) first: u64,
    pub(super) healed: u64,
    last_packet_ns: u64,
}

impl Default for LineState {
    fn default() -> Self {
        // Messages from before the line's first packet are the channel's loss, not the line's.
        let policy = Policy { first: StartSequence::Anywhere, ..Policy::default() };
        let (packets, heartbeats, messages) = (0, 0, 0);
        let (restarts, first, healed, last_packet_ns) = (0, 0, 0, 0);
        Self { track: Track::new(policy, 0), restarts, packets, heartbeats, messages, first, healed, last_packet_ns }
    }
}

impl LineState {
    /// Records a packet, whether accepted or not.
    #[inline]
    pub(super) fn receive(&mut self, header: &Header, now_ns: u64) {
        self.packets += u64::from(header.count > 0);
        self.heartbeats += u64::from(header.count == 0);
        self.messages += u64::from(header.count);
        self.last_packet_ns = now_ns;
    }

    /// The channel accepts the packet after `restarts` restarts; so does the line.
    #[inline(always)]
    pub(super) fn follow(&mut self, header: &Header, restarts: u64) {
        if self.restarts == restarts && self.track.is_next(header) {
            self.track.go_on(header);
        } else {
            self.follow_other(header, restarts);
        }
    }

    /// The same for a packet that is not the line's next one.
    #[inline(never)]
    fn follow_other(&mut self, header: &Header, restarts: u64) {
        if !is_numbered(header) {
            return;
        }
        if self.track.session().is_none() {
            self.track.start(header);
        } else if self.restarts != restarts {
            self.track.restart(header);
        }
        self.restarts = restarts;
        self.track.give_up(header.seq);
        self.track.accept(header);
    }

    pub(super) fn counts(&self) -> LineCounts {
        let own = self.track.counts();
        LineCounts {
            packets: self.packets,
            heartbeats: self.heartbeats,
            messages: self.messages,
            first: self.first,
            healed: self.healed,
            gaps: own.gaps,
            duplicates: own.duplicates,
            lost: own.missing.saturating_sub(own.late),
            last_packet_ns: self.last_packet_ns,
        }
    }
}
