//! Sequence numbers of one channel: new, seen and missing ones, and restarts of the feed.
//!
//! ```text
//!   header [seq, seq + count) ── offer ──> restart?  gap?  then deliver from message k / duplicate / heartbeat / end
//! ```
//!
//! The machine decides at once: a number that is skipped is a gap. Where there are two lines, or a
//! network that reorders, or where a packet can be kept for a moment, [`crate::arbitration`] waits
//! first; it decides by the same rules.
//!
//! *Restart or late packet?* Both have numbers before the expected one. A new session is a restart.
//! These are restarts too: a packet that its publisher sent clearly after all others (IEX writes
//! the send time into each packet), a packet that lies farther back than any network delays
//! ([`Policy::restart_distance`]), and a heartbeat that repeats the same old number many times in a
//! row. After a restart, late packets from before it are recognized by session, send time or
//! number, and counted as [`SequenceCounts::past`].
//!
//! *Which claims of a single packet are accepted.* A single flipped bit that the checksum misses,
//! or a single forged packet, would void the books twice: by its claim, and by the return to the
//! true numbers. So an implausible claim waits for a witness: a second packet with the same claim,
//! the next one of the same line or one of another line.
//!
//! | claim | [`Sequence`] | [`Arbiter`](crate::Arbiter) |
//! |---|---|---|
//! | another session, the numbers began anew | a second packet | a second packet |
//! | numbers were skipped | a second packet beyond [`Policy::restart_distance`] | a second packet, always |
//! | the first packet of all | as numbers that were skipped | a second packet, unless it begins at 1 as expected |
//! | the same old number, heartbeat after heartbeat | 16 of them | 16 of them |
//!
//! The arbiter keeps the packet meanwhile and delivers it with its witness, so that doubt costs a
//! short delay but no message. The machine alone cannot keep it and counts it as
//! [`SequenceCounts::doubted`]. An unconfirmed claim is counted there too, and changes nothing
//! else: messages reported missing were sent, unless two packets agree in a false claim. A
//! network's copy of the packet itself is not a witness; a heartbeat has to come three times.
//!
//! *What numbers cannot show.* A forged packet with the expected number, in the present session, is
//! the next packet as far as numbers can tell: its messages are delivered, the true ones of these
//! numbers are duplicates then, and one datagram of 726 empty MoldUDP64 messages moves the expected
//! number by 726. Against that serve a network that only the venue sends into, and the senders that
//! a line accepts (`sources` of the feed handler). A packet without a number, where the others have
//! some, is never delivered: [`SequenceCounts::unsequenced`].

use crate::framing::{Header, Session};

mod channels;
mod doubts;
mod track;

pub use channels::{ChannelKey, Channels};
pub use doubts::DOUBTS_MAX;

pub(crate) use doubts::{Claim, Contradiction, Doubt, Doubts, Finding};
pub(crate) use track::{SequencePosition, Track, is_numbered};

/// Where a channel's numbers begin, for a machine that has just started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartSequence {
    /// At 1: all messages before the first packet are missing.
    #[default]
    FromOne,
    /// At the first packet that arrives: the machine joins late on purpose. After a restart the
    /// numbers begin at 1.
    Anywhere,
}

/// The operator's settings of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Where the numbers begin. By default [`StartSequence::FromOne`].
    pub first: StartSequence,
    /// A packet that ends more than this many messages behind the expected number is a restart, not
    /// a late packet, where the send time does not decide it. If it is too low, a slow line looks
    /// like restarts; if it is too high, a restart is overlooked until the next quiet second. A
    /// [`Sequence`] also accepts a single packet that skips up to this many messages: if the
    /// distance is too low, each large loss costs one more packet; if it is too high, damaged
    /// numbers are accepted. By default 100,000.
    pub restart_distance: u64,
}

impl Default for Policy {
    /// From one; 100,000 messages, a tenth of a second of the largest bursts known.
    fn default() -> Self {
        Self { first: StartSequence::FromOne, restart_distance: 100_000 }
    }
}

/// A range of missing numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The first missing number.
    pub from: u64,
    /// The last missing number.
    pub to: u64,
}

impl Gap {
    /// The number of messages in the gap. A gap is never empty, so there is no `is_empty`.
    #[expect(clippy::len_without_is_empty, reason = "a gap has one message at least")]
    pub const fn len(self) -> u64 {
        self.to - self.from + 1
    }

    /// Messages that `self` and the range `[from, end)` share.
    const fn overlap(self, from: u64, end: u64) -> u64 {
        let from = if self.from > from { self.from } else { from };
        let end = if self.to < end { self.to + 1 } else { end };
        end.saturating_sub(from)
    }
}

/// The verdict on a packet, to be applied in this order: forget everything (`restart`), mark as
/// stale (`gap`), then `action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceVerdict {
    /// The feed restarted before this packet: the channel's books are void.
    pub restart: bool,
    /// Numbers that are missing before this packet.
    pub gap: Option<Gap>,
    /// The packet itself.
    pub action: Action,
}

/// The action for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Process its messages but the first `skip`, which were seen before.
    Deliver {
        /// Messages to leave out.
        skip: u32,
    },
    /// All of its messages were seen before, or came too late.
    Duplicate,
    /// The packet is from before a restart: drop it.
    Past,
    /// The packet's claim needs a second packet: drop it.
    Doubt,
    /// It has no messages.
    Heartbeat,
    /// The packet has no messages, and no others will follow in this session.
    EndOfSession,
    /// Its messages are outside of the channel's numbers: drop it. Nothing shows whether they came
    /// before, or who sent them.
    Unsequenced,
}

/// Counts of a channel. Every offered message is delivered, a duplicate, late, past, doubted or
/// unsequenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    /// Packets with messages.
    pub packets: u64,
    /// Packets without messages.
    pub heartbeats: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages that had been delivered before.
    pub duplicates: u64,
    /// Messages that arrived after their number had been given up. They are not delivered.
    pub late: u64,
    /// Messages from before a restart that arrived after it: the restart lost them. They are not
    /// delivered.
    pub past: u64,
    /// Messages of packets whose implausible claim found no witness. They are not delivered.
    pub doubted: u64,
    /// Messages outside of the channel's numbers. They are not delivered.
    pub unsequenced: u64,
    /// Gaps.
    pub gaps: u64,
    /// Messages in all gaps.
    pub missing: u64,
    /// Times that the feed restarted.
    pub restarts: u64,
    /// Packets that ended the session.
    pub ends: u64,
}

/// The machine. About a kilobyte; a packet in order costs a few compares.
#[derive(Clone, Debug)]
pub struct Sequence {
    track: Track,
    doubts: Doubts<()>,
}

impl Sequence {
    /// A channel without a packet yet.
    pub const fn new(policy: Policy) -> Self {
        Self { track: Track::new(policy, policy.restart_distance), doubts: Doubts::new() }
    }

    /// Decides about a packet and advances. A skipped number is a gap at once.
    pub fn offer(&mut self, header: &Header) -> SequenceVerdict {
        let mut restart = false;
        match self.track.place(header) {
            SequencePosition::Doubtful(claim) => {
                if !self.is_proven(header, claim) {
                    return SequenceVerdict { restart: false, gap: None, action: self.track.doubt(header) };
                }
                restart = claim == Claim::Restart;
                match claim {
                    Claim::Begin => self.track.start(header),
                    Claim::Jump => self.track.record_accepted(header),
                    Claim::Restart => self.track.restart(header),
                }
            }
            SequencePosition::First => {
                self.doubts.clear();
                self.track.start(header);
            }
            SequencePosition::Straggler => {
                return SequenceVerdict { restart: false, gap: None, action: self.track.refuse_past(header) };
            }
            SequencePosition::Restart => {
                self.doubts.clear();
                self.track.restart(header);
                restart = true;
            }
            SequencePosition::Here | SequencePosition::Ahead if !self.doubts.is_empty() => {
                self.doubts.contradict(&Contradiction { header, line_idx: 0, before_ns: 0, over_ns: 0 });
                self.doubts.drop_dismissed();
            }
            SequencePosition::Behind | SequencePosition::Here | SequencePosition::Ahead => {}
        }
        let gap = if is_numbered(header) { self.track.give_up(header.seq) } else { None };
        SequenceVerdict { restart, gap, action: self.track.accept(header) }
    }

    /// The next expected number.
    pub const fn next(&self) -> u64 {
        self.track.next()
    }

    /// The publisher's session; `None` before the first packet with a number.
    pub const fn session(&self) -> Option<Session> {
        self.track.session()
    }

    /// The counts so far.
    pub const fn counts(&self) -> &SequenceCounts {
        self.track.counts()
    }

    /// Whether a second packet proves the claim. A packet that proves none waits for its own
    /// witness.
    #[cold]
    fn is_proven(&mut self, header: &Header, claim: Claim) -> bool {
        if self.doubts.is_copy(header, 0) {
            let is_repeated = |doubt: &Doubt<()>| doubt.header == *header && doubt.is_repeated_heartbeat();
            if !self.doubts.iter().any(is_repeated) {
                return false;
            }
        } else if !self.doubts.has_witness(header, claim, 0) {
            self.doubts.push(claim, *header, 0, 0, ());
            self.doubts.drop_dismissed();
            return false;
        }
        self.doubts.clear();
        true
    }
}

#[cfg(test)]
mod tests;
