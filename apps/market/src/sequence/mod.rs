//! Sequence numbers of one channel: what is new, what was seen, what is missing, when the feed began anew.
//!
//! ```text
//!   header [seq, seq + count) ── offer ──> restart?  gap?  then deliver from message k / duplicate / heartbeat / end
//! ```
//!
//! The machine decides at once: a number that is skipped is a gap. Where two lines carry the feed, or a network that
//! reorders, [`crate::arbitration`] stands in front and waits a moment first; it uses this machine underneath.
//!
//! *Restart or late packet?* Both lie behind the expected number. A new session is a restart. So is a packet that
//! its publisher sent clearly after all others (IEX writes the send time into each packet), one that lies farther
//! back than any network delays ([`Policy::restart_distance`]), and a heartbeat that says the same old number many
//! times in a row. After a restart, stragglers of the time before are recognised by session or send time.
//!
//! *Loss or a damaged number?* A packet far ahead of all others ([`Policy::restart_distance`] again) is dropped, and
//! believed once a second one agrees: the next packet, a repeated heartbeat, or another line. A number that was damaged on the way
//! and slipped through the checksum would else void the books twice, by its gap and by the way back.

use crate::framing::{Header, PacketKind, Session};

mod channels;

pub use channels::{ChannelKey, Channels};

/// Where a channel's numbers begin, for a machine that has just started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum First {
    /// At 1: whatever came before the first packet is missing.
    #[default]
    FromOne,
    /// At the first packet that arrives: the machine joined late and knows it.
    Anywhere,
}

/// What an operator decides about a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Where the numbers begin.
    pub first: First,
    /// A packet that ends more than this many messages behind the expected number is a restart, not a late packet,
    /// where the send time does not tell. Too low turns a slow line into restarts, too high overlooks one until the
    /// next quiet second. A packet that begins more than this many messages ahead of all others waits for a second
    /// one: too low costs a packet behind each large loss, too high believes damaged numbers.
    pub restart_distance: u64,
}

impl Default for Policy {
    /// From one; 100,000 messages, a tenth of a second of the largest bursts known.
    fn default() -> Self {
        Self { first: First::FromOne, restart_distance: 100_000 }
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
    /// Messages in the gap. A gap is never empty, hence no `is_empty`.
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

/// What to do with a packet, in this order: forget everything (`restart`), mark as stale (`gap`), then `action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The feed began anew before this packet: books of the channel are void.
    pub restart: bool,
    /// Numbers that are missing before this packet.
    pub gap: Option<Gap>,
    /// The packet itself.
    pub action: Action,
}

/// What a packet is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Process its messages but the first `skip`, which were seen before.
    Deliver {
        /// Messages to leave out.
        skip: u32,
    },
    /// All of its messages were seen before, or came too late.
    Duplicate,
    /// It is too far ahead to be believed alone: drop it.
    Doubt,
    /// It has no messages.
    Heartbeat,
    /// It has no messages, and no others will follow in this session.
    EndOfSession,
}

/// What happened on a channel. Every message offered is delivered or a duplicate or late or in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    /// Packets with messages.
    pub packets: u64,
    /// Packets without messages.
    pub heartbeats: u64,
    /// Messages delivered, those without numbers included.
    pub delivered: u64,
    /// Messages that had been delivered before, or belong to a session that is over.
    pub duplicates: u64,
    /// Messages that arrived after their number had been given up. They are not delivered.
    pub late: u64,
    /// Messages that were too far ahead to be believed. They are not delivered.
    pub doubted: u64,
    /// Gaps.
    pub gaps: u64,
    /// Messages in all gaps.
    pub missing: u64,
    /// Times the feed began anew.
    pub restarts: u64,
    /// Packets that said the session is over.
    pub ends: u64,
}

/// Gaps that are remembered to tell a late message from a duplicate.
const GAPS_REMEMBERED: usize = 8;
/// Heartbeats come once a second, so a feed that was silent for half of one has not merely been overtaken.
const RESTART_QUIET_NS: u64 = 500_000_000;
/// Heartbeats with the same number behind the expected one, in a row, that make a restart: as many seconds of a
/// quiet feed. A few may be late: a replay at full speed that moves packets by some places moves seconds past data.
const STALE_HEARTBEATS_MAX: u8 = 16;
/// Packets of a past session in a row, after which it is the present one again: the switch away was a mistake.
const STRAGGLERS_MAX: u8 = 64;

/// The machine. Some 300 bytes; a packet costs a few compares.
#[derive(Clone, Debug)]
pub struct Sequence {
    policy: Policy,
    session: Option<Session>,
    session_before: Option<Session>,
    next: u64,
    /// One past the highest number that was believed, at or above `next` while something is missing.
    reach: u64,
    doubted: Option<Doubted>,
    sent_ns_newest: u64,
    /// Send time just after the newest packet before the restart; what is not newer belongs to the time before.
    sent_ns_floor: u64,
    stragglers: u8,
    stale_heartbeats: u8,
    stale_seq: u64,
    gaps: [Option<Gap>; GAPS_REMEMBERED],
    counts: SequenceCounts,
}

/// A packet far ahead of all others that no second one has confirmed yet.
#[derive(Clone, Copy, Debug)]
struct Doubted {
    seq: u64,
    count: u32,
    line_idx: usize,
}

/// Where a packet lies, before anything is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a time that is over: another session, or sent before the restart.
    Straggler,
    /// The first packet of a new time.
    Restart,
    /// All of it was expected before.
    Behind,
    /// The expected number is in it, or it has no number.
    Here,
    /// Behind a hole.
    Ahead,
    /// So far ahead that a second packet has to agree first.
    Doubtful,
}

impl Sequence {
    /// A channel of which nothing has been heard.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            session: None,
            session_before: None,
            next: 1,
            reach: 1,
            doubted: None,
            sent_ns_newest: 0,
            sent_ns_floor: 0,
            stragglers: 0,
            stale_heartbeats: 0,
            stale_seq: 0,
            gaps: [None; GAPS_REMEMBERED],
            counts: SequenceCounts {
                packets: 0,
                heartbeats: 0,
                delivered: 0,
                duplicates: 0,
                late: 0,
                doubted: 0,
                gaps: 0,
                missing: 0,
                restarts: 0,
                ends: 0,
            },
        }
    }

    /// Judges a packet and moves on. A skipped number is a gap at once.
    pub fn offer(&mut self, header: &Header) -> Verdict {
        let restart = match self.place(header, 0) {
            Place::Doubtful => return Verdict { restart: false, gap: None, action: self.doubt(header) },
            Place::Straggler => return Verdict { restart: false, gap: None, action: self.refuse(header) },
            Place::Restart => {
                self.restart(header);
                true
            }
            Place::Behind | Place::Here | Place::Ahead => false,
        };
        let gap = if is_numbered(header) { self.give_up(header.seq) } else { None };
        Verdict { restart, gap, action: self.accept(header) }
    }

    /// The next expected number.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The publisher's session; `None` before the first packet with a number.
    pub const fn session(&self) -> Option<Session> {
        self.session
    }

    /// What happened so far.
    pub const fn counts(&self) -> &SequenceCounts {
        &self.counts
    }

    /// Finds out where a packet lies that came over line `line_idx`. Learns session, send time and reach from it, and
    /// nothing else.
    pub(crate) fn place(&mut self, header: &Header, line_idx: usize) -> Place {
        if !is_numbered(header) {
            return Place::Here;
        }
        match self.session {
            None => self.start(header),
            Some(_) if self.is_straggler(header) => {
                self.stragglers += 1;
                return Place::Straggler;
            }
            Some(session) if session != header.session => return Place::Restart,
            // It was sent before the last restart, and for so long nothing else was: that restart was a mistake.
            Some(_) if self.is_before_floor(header) => return Place::Restart,
            Some(_) => {}
        }
        self.stragglers = 0;
        if self.is_behind(header) {
            return if self.is_restart(header) { Place::Restart } else { Place::Behind };
        }
        if self.is_doubtful(header, line_idx) {
            return Place::Doubtful;
        }
        self.doubted = None;
        self.reach = self.reach.max(header.end());
        self.stale_heartbeats = 0;
        self.sent_ns_newest = self.sent_ns_newest.max(header.sent_ns);
        if header.seq > self.next { Place::Ahead } else { Place::Here }
    }

    /// Begins anew with `header`, which [`Sequence::place`] called a restart. The numbers begin at 1 again.
    pub(crate) fn restart(&mut self, header: &Header) {
        self.session_before = self.session.filter(|&session| session != header.session);
        self.session = Some(header.session);
        // Half of the quiet time: packets of before may still be under way, and line B's clock differs a little.
        let floor = self.sent_ns_newest.saturating_add(RESTART_QUIET_NS / 2);
        self.sent_ns_floor = floor.min(header.sent_ns.saturating_sub(1));
        self.sent_ns_newest = header.sent_ns;
        self.next = 1;
        self.reach = header.end();
        self.doubted = None;
        self.stragglers = 0;
        self.stale_heartbeats = 0;
        self.gaps = [None; GAPS_REMEMBERED];
        self.counts.restarts += 1;
    }

    /// Gives up the numbers before `seq` that have not been seen. `None` where there are none.
    pub(crate) fn give_up(&mut self, seq: u64) -> Option<Gap> {
        if seq <= self.next {
            return None;
        }
        let gap = Gap { from: self.next, to: seq - 1 };
        self.gaps.rotate_right(1);
        self.gaps[0] = Some(gap);
        self.counts.gaps += 1;
        self.counts.missing = self.counts.missing.saturating_add(gap.len());
        self.next = seq;
        Some(gap)
    }

    /// Takes a packet that has no hole before it and moves the expected number behind it.
    pub(crate) fn accept(&mut self, header: &Header) -> Action {
        match header.kind {
            PacketKind::Heartbeat => {
                self.counts.heartbeats += 1;
                return Action::Heartbeat;
            }
            PacketKind::EndOfSession => {
                self.counts.ends += 1;
                return Action::EndOfSession;
            }
            PacketKind::Data | PacketKind::Unsequenced => {}
        }
        if header.kind == PacketKind::Unsequenced {
            self.counts.packets += 1;
            self.counts.delivered += u64::from(header.count);
            return Action::Deliver { skip: 0 };
        }
        if header.end() <= self.next {
            return self.refuse(header);
        }
        // What is in front of the expected number was seen; count is 32 bits, so is a part of it.
        let skip = self.next.saturating_sub(header.seq) as u32;
        self.count_seen(header.seq, skip);
        self.counts.packets += 1;
        self.counts.delivered += u64::from(header.count - skip);
        self.next = header.end();
        Action::Deliver { skip }
    }

    /// Counts a packet of which nothing is new.
    pub(crate) fn refuse(&mut self, header: &Header) -> Action {
        match header.kind {
            PacketKind::Heartbeat => self.counts.heartbeats += 1,
            PacketKind::EndOfSession => self.counts.ends += 1,
            PacketKind::Data | PacketKind::Unsequenced => {
                self.counts.packets += 1;
                self.count_seen(header.seq, header.count);
                return Action::Duplicate;
            }
        }
        Action::Heartbeat
    }

    /// Counts a packet that is too far ahead to be believed.
    pub(crate) fn doubt(&mut self, header: &Header) -> Action {
        if header.kind != PacketKind::Data {
            return self.refuse(header);
        }
        self.counts.packets += 1;
        self.counts.doubted += u64::from(header.count);
        Action::Doubt
    }

    /// Sorts `count` messages from number `from` on, all behind the expected number, into late ones and duplicates.
    fn count_seen(&mut self, from: u64, count: u32) {
        let count = u64::from(count);
        let end = from.saturating_add(count);
        let late: u64 = self.gaps.iter().flatten().map(|gap| gap.overlap(from, end)).sum();
        self.counts.late += late;
        self.counts.duplicates += count - late;
    }

    fn start(&mut self, header: &Header) {
        self.session = Some(header.session);
        self.next = match self.policy.first {
            First::FromOne => 1,
            First::Anywhere => header.seq,
        };
        // The first packet is believed wherever it is: there is nothing to measure it by.
        self.reach = header.end();
    }

    /// Belongs to the time before the last restart, unless nothing else has come for so long that it must be now.
    fn is_straggler(&self, header: &Header) -> bool {
        let is_past = self.session_before == Some(header.session) || self.is_before_floor(header);
        is_past && self.stragglers < STRAGGLERS_MAX
    }

    fn is_before_floor(&self, header: &Header) -> bool {
        header.sent_ns != 0 && header.sent_ns <= self.sent_ns_floor
    }

    /// Nothing in it is new. A heartbeat with the expected number is not behind, it agrees.
    fn is_behind(&self, header: &Header) -> bool {
        if header.count == 0 { header.seq < self.next } else { header.end() <= self.next }
    }

    /// Far ahead of all others, and the doubted packet before it does not agree. `header` is not behind.
    fn is_doubtful(&mut self, header: &Header, line_idx: usize) -> bool {
        let reach = self.reach.max(self.next);
        if header.seq <= reach.saturating_add(self.policy.restart_distance) {
            return false;
        }
        let seen = Doubted { seq: header.seq, count: header.count, line_idx };
        !self.doubted.replace(seen).is_some_and(|before| before.agrees(&seen, self.policy.restart_distance))
    }

    /// Tells a restart from a late packet; `header` is behind.
    fn is_restart(&mut self, header: &Header) -> bool {
        if header.count > 0 || header.seq != self.stale_seq {
            self.stale_heartbeats = 0;
        }
        if header.count == 0 {
            self.stale_seq = header.seq;
            self.stale_heartbeats = self.stale_heartbeats.saturating_add(1);
        }
        let is_insisting = self.stale_heartbeats >= STALE_HEARTBEATS_MAX;
        if header.sent_ns != 0 && self.sent_ns_newest != 0 {
            let quiet_ns = if is_insisting { 0 } else { RESTART_QUIET_NS };
            return header.sent_ns > self.sent_ns_newest.saturating_add(quiet_ns);
        }
        is_insisting || self.next - header.end() > self.policy.restart_distance
    }
}

impl Doubted {
    /// Both are about the same numbers, and the second is more than a copy that the network made of the first. A
    /// heartbeat is repeated by its publisher.
    fn agrees(&self, second: &Self, distance: u64) -> bool {
        let copied = self.line_idx == second.line_idx && (self.seq, self.count) == (second.seq, second.count);
        self.seq.abs_diff(second.seq) <= distance && (!copied || second.count == 0)
    }
}

/// A heartbeat with number 0 comes from a group without numbers (Cboe's gap-response group).
fn is_numbered(header: &Header) -> bool {
    header.kind != PacketKind::Unsequenced && (header.seq != 0 || header.count != 0)
}

#[cfg(test)]
mod tests;
