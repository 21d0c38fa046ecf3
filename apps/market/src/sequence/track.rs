//! The state of one channel's numbers: the expected one, the highest one reached, those before the
//! last restart. It classifies a packet; the owner decides with [`Doubts`] whether to accept a
//! claim.
//!
//! [`Doubts`]: super::doubts::Doubts

use super::doubts::Claim;
use super::{Action, Gap, Policy, SequenceCounts, StartSequence};
use crate::framing::{Header, PacketKind, Session};

/// Gaps that are kept to distinguish a late message from a duplicate.
const GAPS_REMEMBERED: usize = 8;
/// Heartbeats come once a second, so after half a second of silence a packet has not merely been
/// overtaken.
const RESTART_QUIET_NS: u64 = 500_000_000;
/// The number of heartbeats with the same old number, and no other packets between them, after
/// which that number is accepted.
const STALE_HEARTBEATS_MAX: u8 = 16;
/// After this many consecutive packets from before a restart, the restart counts as a mistake.
const STRAGGLERS_MAX: u8 = 64;
/// A send time that is farther ahead of all others is accepted with the second one near it. Feeds
/// send a heartbeat a second.
const SENT_JUMP_NS: u64 = 60_000_000_000;

/// The state of a channel's numbers. A packet in order costs a few compares.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    policy: Policy,
    /// Numbers that a single packet may skip.
    jump_max: u64,
    session: Option<Session>,
    next: u64,
    /// One past the highest accepted number, `next` or above.
    reach: u64,
    before: Option<Before>,
    /// A packet that said that the numbers begin anew, and has no witness yet.
    reset: Option<Header>,
    sent: SendTimes,
    stragglers: u8,
    stale_heartbeats: u8,
    stale_seq: u64,
    gaps: [Option<Gap>; GAPS_REMEMBERED],
    counts: SequenceCounts,
}

/// The numbers before the restart.
#[derive(Clone, Copy, Debug)]
struct Before {
    session: Session,
    next: u64,
}

/// The publisher's clock as far as known; zeros where packets have no send time.
#[derive(Clone, Copy, Debug)]
struct SendTimes {
    newest_ns: u64,
    /// Far ahead of `newest_ns`, and no second packet has confirmed it.
    doubted_ns: u64,
    /// Send time just after the newest packet before the restart; a packet that is not newer is
    /// from before it.
    floor_ns: u64,
}

/// The class of a packet, before it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequencePosition {
    /// The first packet of all, where it has to be.
    First,
    /// From before: another session, or sent before the restart.
    Straggler,
    /// The numbers restarted, confirmed by enough packets; or nothing is known that contradicts a
    /// packet which says so.
    Restart,
    /// All of its numbers were expected before.
    Behind,
    /// The expected number is in it, or it has none and changes nothing.
    Here,
    /// Behind a hole.
    Ahead,
    /// The packet's claim needs a second packet.
    Doubtful(Claim),
}

impl Track {
    /// A channel without a packet yet. A single packet that skips up to `jump_max` numbers is
    /// accepted.
    pub(crate) const fn new(policy: Policy, jump_max: u64) -> Self {
        Self {
            policy,
            jump_max,
            session: None,
            next: 1,
            reach: 1,
            before: None,
            reset: None,
            sent: SendTimes { newest_ns: 0, doubted_ns: 0, floor_ns: 0 },
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
                past: 0,
                doubted: 0,
                unsequenced: 0,
                gaps: 0,
                missing: 0,
                restarts: 0,
                ends: 0,
            },
        }
    }

    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    pub(crate) const fn reach(&self) -> u64 {
        self.reach
    }

    pub(crate) const fn session(&self) -> Option<Session> {
        self.session
    }

    pub(crate) const fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) const fn counts(&self) -> &SequenceCounts {
        &self.counts
    }

    /// Classifies a packet. Records the send time and the reach of a packet without an implausible
    /// claim, and nothing of any other.
    #[inline]
    pub(crate) fn place(&mut self, header: &Header) -> SequencePosition {
        if !is_numbered(header) {
            return SequencePosition::Here;
        }
        let Some(session) = self.session else { return self.place_first(header) };
        if self.before.is_some() && self.is_past(header) {
            self.stragglers = self.stragglers.saturating_add(1);
            let insists = self.stragglers > STRAGGLERS_MAX;
            return if insists { SequencePosition::Doubtful(Claim::Restart) } else { SequencePosition::Straggler };
        }
        if session != header.session {
            return SequencePosition::Doubtful(Claim::Restart);
        }
        if self.begins_with_reset(header) {
            return SequencePosition::Restart;
        }
        if self.follows_reset(header) {
            return SequencePosition::Doubtful(Claim::Restart);
        }
        if self.is_behind(header) {
            self.stragglers = 0;
            return self.place_behind(header);
        }
        if header.seq > self.reach.saturating_add(self.jump_max) {
            return SequencePosition::Doubtful(Claim::Jump);
        }
        // The old numbers go on behind a packet that said that they begin anew.
        self.reset = self.reset.filter(|reset| header.sent_ns <= reset.sent_ns);
        self.record_accepted(header);
        if header.seq > self.next { SequencePosition::Ahead } else { SequencePosition::Here }
    }

    /// Whether the packet begins with the expected number, as nearly every packet does: then
    /// [`Track::place`] and [`Track::accept`] are [`Track::record_accepted`] and [`Track::go_on`].
    #[inline(always)]
    pub(crate) fn is_next(&self, header: &Header) -> bool {
        header.kind == PacketKind::Data
            && header.seq == self.next
            && header.end() > self.next
            && self.session == Some(header.session)
            && (self.before.is_none() || !self.is_past(header))
    }

    /// Moves the expected number behind a packet that begins with it.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, header: &Header) {
        self.counts.packets += 1;
        self.counts.delivered += u64::from(header.count);
        self.next = header.end();
        self.reach = self.reach.max(self.next);
    }

    /// Records an accepted packet that continues from known numbers.
    #[inline]
    pub(crate) fn record_accepted(&mut self, header: &Header) {
        self.reach = self.reach.max(header.end());
        self.stragglers = 0;
        self.stale_heartbeats = 0;
        self.sent.learn(header.sent_ns);
    }

    /// Begins with `header`, the first packet of all.
    pub(crate) fn start(&mut self, header: &Header) {
        self.session = Some(header.session);
        self.next = self.policy.first_seq(header);
        self.reach = self.next;
        self.record_accepted(header);
    }

    /// Restarts with `header`: the numbers begin at 1, wherever they did at the start, so what is
    /// lost of a new day is a gap also for who joined the last one late. Where `header` is from
    /// before the last restart, which was a mistake then, the numbers continue where they were.
    pub(crate) fn restart(&mut self, header: &Header) {
        let returned = self.before.filter(|_| self.is_past(header));
        self.before = self.session.map(|session| Before { session, next: self.next });
        self.session = Some(header.session);
        let reset_ns = self.reset.map_or(u64::MAX, |reset| reset.sent_ns);
        self.sent.restart(header.sent_ns.min(reset_ns));
        self.next = returned.map_or(1, |before| before.next);
        self.reach = self.next.max(header.end());
        self.stragglers = 0;
        self.stale_heartbeats = 0;
        self.gaps = [None; GAPS_REMEMBERED];
        self.reset = None;
        self.counts.restarts += 1;
    }

    /// The numbers before those that the channel begins with on purpose, for a machine that has
    /// just started; `None` where there are none.
    pub(crate) fn late_join(&self) -> Option<Gap> {
        (self.next > 1).then(|| Gap { from: 1, to: self.next - 1 })
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
        self.reach = self.reach.max(seq);
        Some(gap)
    }

    /// Takes a packet that has no hole before it and moves the expected number behind it.
    #[inline]
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
            PacketKind::Unsequenced => return self.refuse_unsequenced(header),
            PacketKind::Data | PacketKind::SequenceReset => {}
        }
        if header.end() <= self.next {
            return self.refuse(header);
        }
        // Numbers below the expected one were seen; count has 32 bits, so has a part of it.
        let skip = self.next.saturating_sub(header.seq) as u32;
        if skip > 0 {
            self.count_seen(header.seq, skip);
        }
        self.counts.packets += 1;
        self.counts.delivered += u64::from(header.count - skip);
        self.next = header.end();
        self.reach = self.reach.max(self.next);
        Action::Deliver { skip }
    }

    /// Counts a packet without anything new.
    pub(crate) fn refuse(&mut self, header: &Header) -> Action {
        self.put_aside(header, Action::Duplicate, |track| track.count_seen(header.seq, header.count))
    }

    /// Counts a packet from before the last restart.
    pub(crate) fn refuse_past(&mut self, header: &Header) -> Action {
        self.put_aside(header, Action::Past, |track| {
            let end = track.before.map_or(0, |before| before.next);
            let seen = end.saturating_sub(header.seq).min(u64::from(header.count));
            track.counts.duplicates += seen;
            track.counts.past += u64::from(header.count) - seen;
        })
    }

    /// Counts a packet outside of the channel's numbers.
    #[cold]
    fn refuse_unsequenced(&mut self, header: &Header) -> Action {
        self.put_aside(header, Action::Unsequenced, |track| track.counts.unsequenced += u64::from(header.count))
    }

    /// Counts a packet whose claim is not accepted.
    pub(crate) fn doubt(&mut self, header: &Header) -> Action {
        self.put_aside(header, Action::Doubt, |track| track.counts.doubted += u64::from(header.count))
    }

    /// Counts a packet that is not delivered: its messages by `count`, or as one without messages.
    fn put_aside(&mut self, header: &Header, action: Action, count: impl FnOnce(&mut Self)) -> Action {
        match header.kind {
            PacketKind::Heartbeat => self.counts.heartbeats += 1,
            PacketKind::EndOfSession => self.counts.ends += 1,
            PacketKind::Data | PacketKind::SequenceReset | PacketKind::Unsequenced => {
                self.counts.packets += 1;
                count(self);
                return action;
            }
        }
        Action::Heartbeat
    }

    /// Sorts `count` messages from number `from` on, all behind the expected number, into late ones
    /// and duplicates.
    #[cold]
    fn count_seen(&mut self, from: u64, count: u32) {
        let count = u64::from(count);
        let end = from.saturating_add(count);
        let late: u64 = self.gaps.iter().flatten().map(|gap| gap.overlap(from, end)).sum();
        self.counts.late += late;
        self.counts.duplicates += count - late;
    }

    #[cold]
    fn place_first(&self, header: &Header) -> SequencePosition {
        let is_plausible = match self.policy.first {
            StartSequence::FromOne => header.seq <= self.jump_max.saturating_add(1),
            StartSequence::Anywhere => self.jump_max > 0,
        };
        match header.kind {
            _ if !is_plausible => SequencePosition::Doubtful(Claim::Begin),
            // What the channel was before is not known.
            PacketKind::SequenceReset => SequencePosition::Restart,
            _ => SequencePosition::First,
        }
    }

    /// Nothing but heartbeats came before the packet that says that the numbers begin anew.
    fn begins_with_reset(&self, header: &Header) -> bool {
        header.kind == PacketKind::SequenceReset && self.next == 1 && self.before.is_none()
    }

    fn place_behind(&mut self, header: &Header) -> SequencePosition {
        if header.count > 0 || header.seq != self.stale_seq {
            self.stale_heartbeats = 0;
        }
        if header.count == 0 {
            self.stale_seq = header.seq;
            self.stale_heartbeats = self.stale_heartbeats.saturating_add(1);
        }
        let is_insisting = self.stale_heartbeats >= STALE_HEARTBEATS_MAX;
        let is_newer = self.sent.is_newer(header.sent_ns, if is_insisting { 0 } else { RESTART_QUIET_NS });
        let is_far = self.next - header.end() > self.policy.restart_distance;
        match is_newer {
            // A heartbeat that was sent long ago stays old, however often it comes.
            Some(is_newer) if is_insisting && is_newer => SequencePosition::Restart,
            Some(true) => SequencePosition::Doubtful(Claim::Restart),
            Some(false) => SequencePosition::Behind,
            None if is_insisting => SequencePosition::Restart,
            None if is_far => SequencePosition::Doubtful(Claim::Restart),
            None => SequencePosition::Behind,
        }
    }

    /// The packet says that the numbers begin anew, or is the one right behind such a packet.
    fn follows_reset(&mut self, header: &Header) -> bool {
        let is_reset = header.kind == PacketKind::SequenceReset && self.sent.is_newer(header.sent_ns, 0) == Some(true);
        if is_reset {
            self.reset = Some(*header);
        }
        let is_behind = |reset: Header| header.seq == reset.end() && header.sent_ns >= reset.sent_ns;
        is_reset || self.reset.is_some_and(|reset| header.count > 0 && (is_behind(reset) || *header == reset))
    }

    /// The packet is from before the last restart: as its session or its send time shows or, where
    /// packets have neither, numbers that continue the old sequence and not the present one.
    fn is_past(&self, header: &Header) -> bool {
        let Some(before) = self.before else { return false };
        if self.session != Some(header.session) {
            return before.session == header.session;
        }
        if header.sent_ns != 0 {
            return header.sent_ns <= self.sent.floor_ns;
        }
        let distance = self.policy.restart_distance;
        let is_near = before.next.abs_diff(header.seq) <= distance;
        before.session == header.session && is_near && header.seq > self.reach.saturating_add(distance)
    }

    /// The packet has nothing new. A heartbeat with the expected number is not behind but agrees.
    #[inline]
    fn is_behind(&self, header: &Header) -> bool {
        if header.count == 0 { header.seq < self.next } else { header.end() <= self.next }
    }
}

impl Policy {
    /// The first expected number, where the numbers begin with `header`.
    fn first_seq(&self, header: &Header) -> u64 {
        match self.first {
            StartSequence::FromOne => 1,
            StartSequence::Anywhere => header.seq,
        }
    }
}

impl SendTimes {
    #[inline]
    fn learn(&mut self, sent_ns: u64) {
        if sent_ns <= self.newest_ns {
            return;
        }
        let is_near = |ns: u64| ns != 0 && sent_ns.abs_diff(ns) <= SENT_JUMP_NS;
        if is_near(self.newest_ns) || is_near(self.doubted_ns) {
            self.newest_ns = sent_ns;
            self.doubted_ns = 0;
        } else {
            self.doubted_ns = sent_ns;
        }
    }

    fn restart(&mut self, sent_ns: u64) {
        // Half of the quiet time: packets from before may still be under way, and line B's clock
        // differs a little.
        let floor_ns = self.newest().saturating_add(RESTART_QUIET_NS / 2);
        self.floor_ns = floor_ns.min(sent_ns.saturating_sub(1));
        self.newest_ns = sent_ns;
        self.doubted_ns = 0;
    }

    /// Sent more than `by_ns` after all others; `None` where the send times do not show it.
    fn is_newer(&self, sent_ns: u64, by_ns: u64) -> Option<bool> {
        let newest_ns = self.newest();
        (sent_ns != 0 && newest_ns != 0).then(|| sent_ns > newest_ns.saturating_add(by_ns))
    }

    fn newest(&self) -> u64 {
        self.newest_ns.max(self.doubted_ns)
    }
}

/// A heartbeat with number 0 comes from a group without numbers (Cboe's gap-response group).
#[inline]
pub(crate) fn is_numbered(header: &Header) -> bool {
    header.kind != PacketKind::Unsequenced && (header.seq != 0 || header.count != 0)
}
