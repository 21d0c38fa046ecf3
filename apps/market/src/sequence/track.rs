//! Where one channel stands: the expected number, what it has reached, the time before the last
//! restart. It tells what a packet is and does what its owner decides; whether to believe a claim
//! is the owner's to find out, with [`Doubts`].
//!
//! [`Doubts`]: super::doubts::Doubts

use super::doubts::Claim;
use super::{Action, First, Gap, Policy, SequenceCounts};
use crate::framing::{Header, PacketKind, Session};

/// Gaps that are remembered to tell a late message from a duplicate.
const GAPS_REMEMBERED: usize = 8;
/// Heartbeats come once a second, so a feed that was silent for half of one has not merely been
/// overtaken.
const RESTART_QUIET_NS: u64 = 500_000_000;
/// Heartbeats with the same old number, and nothing else, after which it is believed.
const STALE_HEARTBEATS_MAX: u8 = 16;
/// Packets of the time before a restart, and nothing else, after which that time is believed to go
/// on.
const STRAGGLERS_MAX: u8 = 64;
/// A send time that is farther ahead of all others is believed with the second one that is near it.
/// Feeds send a heartbeat a second.
const SENT_JUMP_NS: u64 = 60_000_000_000;

/// The state of a channel's numbers. A packet in order costs a few compares.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    policy: Policy,
    /// Numbers that one packet may skip and is believed alone.
    jump_max: u64,
    session: Option<Session>,
    next: u64,
    /// One past the highest number that was believed, `next` or above.
    reach: u64,
    before: Option<Before>,
    sent: SendTimes,
    stragglers: u8,
    stale_heartbeats: u8,
    stale_seq: u64,
    gaps: [Option<Gap>; GAPS_REMEMBERED],
    counts: SequenceCounts,
}

/// Where the numbers stood when they began anew.
#[derive(Clone, Copy, Debug)]
struct Before {
    session: Session,
    next: u64,
}

/// What is known of the publisher's clock; zeros where packets have no send time.
#[derive(Clone, Copy, Debug)]
struct SendTimes {
    newest_ns: u64,
    /// Far ahead of `newest_ns`, and no second packet has confirmed it.
    doubted_ns: u64,
    /// Send time just after the newest packet before the restart; what is not newer belongs to the
    /// time before.
    floor_ns: u64,
}

/// Where a packet lies, before anything is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first packet of all, where it has to be.
    First,
    /// In a time that is over: another session, or sent before the restart.
    Straggler,
    /// The numbers began anew, and so many packets said so that it is certain.
    Restart,
    /// All of it was expected before.
    Behind,
    /// The expected number is in it, or it has no number.
    Here,
    /// Behind a hole.
    Ahead,
    /// It claims what only a second packet can prove.
    Doubtful(Claim),
}

impl Track {
    /// A channel of which nothing has been heard. A packet that skips up to `jump_max` numbers is
    /// believed alone.
    pub(crate) const fn new(policy: Policy, jump_max: u64) -> Self {
        Self {
            policy,
            jump_max,
            session: None,
            next: 1,
            reach: 1,
            before: None,
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

    /// Finds out where a packet lies. Learns send time and reach from one that claims nothing
    /// implausible, and else nothing.
    #[inline]
    pub(crate) fn place(&mut self, header: &Header) -> Place {
        if !is_numbered(header) {
            return Place::Here;
        }
        let Some(session) = self.session else { return self.place_first(header) };
        if self.before.is_some() && self.is_past(header) {
            self.stragglers = self.stragglers.saturating_add(1);
            let insists = self.stragglers > STRAGGLERS_MAX;
            return if insists { Place::Doubtful(Claim::Restart) } else { Place::Straggler };
        }
        if session != header.session {
            return Place::Doubtful(Claim::Restart);
        }
        if self.is_behind(header) {
            self.stragglers = 0;
            return self.place_behind(header);
        }
        if header.seq > self.reach.saturating_add(self.jump_max) {
            return Place::Doubtful(Claim::Jump);
        }
        self.believe(header);
        if header.seq > self.next { Place::Ahead } else { Place::Here }
    }

    /// Learns from a packet that goes on from what is known.
    #[inline]
    pub(crate) fn believe(&mut self, header: &Header) {
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
        self.believe(header);
    }

    /// Begins anew with `header`. Where that is of the time before the last restart, which was a
    /// mistake then, the numbers go on where they stood.
    pub(crate) fn restart(&mut self, header: &Header) {
        let returned = self.before.filter(|_| self.is_past(header));
        self.before = self.session.map(|session| Before { session, next: self.next });
        self.session = Some(header.session);
        self.sent.restart(header.sent_ns);
        self.next = returned.map_or(self.policy.first_seq(header), |before| before.next);
        self.reach = self.next.max(header.end());
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
        self.reach = self.reach.max(self.next);
        Action::Deliver { skip }
    }

    /// Counts a packet of which nothing is new.
    pub(crate) fn refuse(&mut self, header: &Header) -> Action {
        self.put_aside(header, Action::Duplicate, |track| track.count_seen(header.seq, header.count))
    }

    /// Counts a packet of the time before the last restart.
    pub(crate) fn refuse_past(&mut self, header: &Header) -> Action {
        self.put_aside(header, Action::Past, |track| {
            let end = track.before.map_or(0, |before| before.next);
            let seen = end.saturating_sub(header.seq).min(u64::from(header.count));
            track.counts.duplicates += seen;
            track.counts.past += u64::from(header.count) - seen;
        })
    }

    /// Counts a packet that nobody believes.
    pub(crate) fn doubt(&mut self, header: &Header) -> Action {
        self.put_aside(header, Action::Doubt, |track| track.counts.doubted += u64::from(header.count))
    }

    /// Counts a packet that is not delivered: its messages as `count` says, or that it had none.
    fn put_aside(&mut self, header: &Header, action: Action, count: impl FnOnce(&mut Self)) -> Action {
        match header.kind {
            PacketKind::Heartbeat => self.counts.heartbeats += 1,
            PacketKind::EndOfSession => self.counts.ends += 1,
            PacketKind::Data | PacketKind::Unsequenced => {
                self.counts.packets += 1;
                count(self);
                return action;
            }
        }
        Action::Heartbeat
    }

    /// Sorts `count` messages from number `from` on, all behind the expected number, into late ones
    /// and duplicates.
    fn count_seen(&mut self, from: u64, count: u32) {
        let count = u64::from(count);
        let end = from.saturating_add(count);
        let late: u64 = self.gaps.iter().flatten().map(|gap| gap.overlap(from, end)).sum();
        self.counts.late += late;
        self.counts.duplicates += count - late;
    }

    #[cold]
    fn place_first(&self, header: &Header) -> Place {
        let is_plausible = match self.policy.first {
            First::FromOne => header.seq <= self.jump_max.saturating_add(1),
            First::Anywhere => self.jump_max > 0,
        };
        if is_plausible { Place::First } else { Place::Doubtful(Claim::Begin) }
    }

    fn place_behind(&mut self, header: &Header) -> Place {
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
            // A heartbeat that was sent long ago stays one, however often it comes.
            Some(is_newer) if is_insisting && is_newer => Place::Restart,
            Some(true) => Place::Doubtful(Claim::Restart),
            Some(false) => Place::Behind,
            None if is_insisting => Place::Restart,
            None if is_far => Place::Doubtful(Claim::Restart),
            None => Place::Behind,
        }
    }

    /// Belongs to the time before the last restart: by its session, by its send time, or where
    /// packets have neither, by numbers that go on from there and not from here.
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

    /// Nothing in it is new. A heartbeat with the expected number is not behind, it agrees.
    #[inline]
    fn is_behind(&self, header: &Header) -> bool {
        if header.count == 0 { header.seq < self.next } else { header.end() <= self.next }
    }
}

impl Policy {
    /// The number that is expected first, where the numbers begin with `header`.
    fn first_seq(&self, header: &Header) -> u64 {
        match self.first {
            First::FromOne => 1,
            First::Anywhere => header.seq,
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
        // Half of the quiet time: packets of before may still be under way, and line B's clock
        // differs a little.
        let floor_ns = self.newest().saturating_add(RESTART_QUIET_NS / 2);
        self.floor_ns = floor_ns.min(sent_ns.saturating_sub(1));
        self.newest_ns = sent_ns;
        self.doubted_ns = 0;
    }

    /// Sent more than `by_ns` after all others; `None` where the times do not tell.
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
