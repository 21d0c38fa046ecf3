//! Arbitration of the lines (A and B) that carry one channel: each message once, in order, from the
//! line that has it first.
//!
//! ```text
//!   line A ─┐            ┌─ Deliver: process now       ┌─ Deliver (kept packets, in order), Discard
//!           ├─ offer ────┼─ Keep: hand over with keep ─┤
//!   line B ─┘            └─ Discard: free it           └─ Gap, Restart, LateJoin, EndOfSession
//!                                                       (poll, until None)
//! ```
//!
//! Lines may cut the same messages into different packets, so numbers are compared, never packets.
//! A packet behind a hole is kept until the hole is filled, by the other line or by a late packet
//! of the same one, or until the [`Window`] ends: too many packets wait, or the oldest has waited
//! too long. Then the hole is a gap.
//!
//! A packet with an implausible claim (skipped numbers or restarted numbers) is kept apart until a
//! second packet confirms the claim, as [`crate::sequence`] says. Only a confirmed claim makes a
//! hole or a restart. On a line with traffic or with a twin the second packet comes at once; on a
//! single quiet line it is the next heartbeat. At the end of all packets, [`Arbiter::close`]
//! accepts those that nothing contradicts.
//!
//! Where the publisher has a re-request server, [`crate::rerequest`] requests the numbers that
//! [`Arbiter::missing`] returns, and [`Arbiter::offer_answer`] takes the answers.
//!
//! A kept packet is an opaque handle of the caller: a buffer it owns, or a copy in [`Slots`]. Each
//! handle given to [`Arbiter::keep`] comes back exactly once. Memory is allocated at construction;
//! time is an argument in nanoseconds.

use std::collections::VecDeque;

use crate::framing::{Header, PacketKind};
use crate::sequence::{
    Action, Claim, Contradiction, Doubt, Doubts, Finding, Gap, Policy, SequenceCounts, SequencePosition, Track,
    is_numbered,
};

mod answers;
mod line;
mod next;
mod slots;

pub use answers::{AnswerCounts, Missing};
pub use line::{Line, LineCounts};
pub use slots::{Slot, Slots};

use line::LineState;

/// How long a hole may stay open. Both limits apply; the hole becomes a gap when the first of them
/// is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The most packets that wait behind a hole. They hold buffers of the pool, so size the pool
    /// for them, and for [`DOUBTS_MAX`](crate::sequence::DOUBTS_MAX) more that wait for a witness.
    /// 0 makes each hole a gap at once. By default 64.
    pub packets: usize,
    /// Longest wait. Lines at the same site differ by tens of microseconds; if it is too short,
    /// gaps are declared that the other line would have filled; if it is too long, every message
    /// behind a true loss is delayed. By default a millisecond.
    pub wait_ns: u64,
}

impl Default for Window {
    /// 64 packets, one millisecond.
    fn default() -> Self {
        Self { packets: 64, wait_ns: 1_000_000 }
    }
}

/// The decision about the packet that was just offered. Call [`Arbiter::poll`] afterwards in any
/// case.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Process its messages now, but the first `skip`.
    Deliver {
        /// Messages to leave out.
        skip: u32,
    },
    /// Pass it to [`Arbiter::keep`]. A caller that cannot keep it drops it, and it is lost unless
    /// another line brings it.
    Keep,
    /// The packet has nothing new, is not credible, or is outside of the channel's numbers. Free
    /// it.
    Discard,
}

/// The next output, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<H> {
    /// A kept packet's turn has come: process its messages but the first `skip`.
    Deliver {
        /// The packet.
        handle: H,
        /// Messages to leave out.
        skip: u32,
    },
    /// A kept packet has nothing new, or is not credible. Free it.
    Discard {
        /// The packet.
        handle: H,
    },
    /// Numbers that no line brought in time.
    Gap(Gap),
    /// The channel begins behind these numbers on purpose ([`StartSequence::Anywhere`]): books have
    /// nothing of them.
    ///
    /// [`StartSequence::Anywhere`]: crate::StartSequence::Anywhere
    LateJoin(Gap),
    /// The feed restarts: the channel's books are void.
    Restart,
    /// No more messages in this session.
    EndOfSession,
}

/// The outcomes of holes. A hole that is filled in its middle counts as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoleCounts {
    /// Holes that a packet or a heartbeat revealed.
    pub opened: u64,
    /// Numbers that were missing and came over another line than the one that revealed them: lost
    /// on one line, recovered by the other.
    pub healed: u64,
    /// Closed by the line that revealed them: the network had reordered packets.
    pub reordered: u64,
    /// Closed by an answer to a re-request.
    pub recovered: u64,
    /// Became a gap because no answer came ([`Arbiter::give_up`]).
    pub given_up_unanswered: u64,
    /// Became a gap because too many packets waited.
    pub given_up_full: u64,
    /// Became a gap because the wait timed out.
    pub given_up_late: u64,
    /// Became a gap because the feed restarted.
    pub given_up_restart: u64,
    /// Most packets that ever waited at once.
    pub depth_max: usize,
}

/// The number of kept packets before a number that are compared with it. A longer packet that lies
/// farther back is missed; then a packet is kept twice and one copy discarded in the end.
const LOOK_BACK: usize = 8;

/// The machine for one channel. `H` is the caller's handle of a kept packet.
#[derive(Debug)]
pub struct Arbiter<H> {
    track: Track,
    /// Packets that wait for a witness.
    doubts: Doubts<Doubted<H>>,
    window: Window,
    /// The lines, followed by the answers to re-requests as one more line.
    lines: Vec<LineState>,
    answers: AnswerCounts,
    /// Packets that wait, by their first number.
    kept: VecDeque<(Arrival, H)>,
    /// The packet for which [`Verdict::Keep`] was returned.
    offered: Option<Offered>,
    /// The packet that reaches farthest. While it ends above the expected number, something is
    /// missing.
    horizon: Option<Arrival>,
    hole: Option<Hole>,
    /// A restart that waits until the packets before it are delivered: the packet that caused it,
    /// and its handle if it was kept.
    restarting: Option<(Arrival, Option<H>)>,
    session_end: SessionEnd,
    /// No packet will come any more.
    is_closing: bool,
    holes: HoleCounts,
}

/// The record of a packet that waits for a witness. There is no handle where the caller could not
/// keep the packet, or where the packet has no messages.
#[derive(Debug)]
struct Doubted<H> {
    arrival: Arrival,
    handle: Option<H>,
}

/// The destination of a packet that is being kept.
#[derive(Clone, Copy, Debug)]
enum Offered {
    /// Behind the hole.
    BehindHole(Arrival),
    /// The packet is among those that wait for a witness; it is the last of them.
    Doubted,
    /// The numbers restart with the packet.
    Restarting,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    line: Line,
    header: Header,
    now_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    /// The line that revealed it.
    revealed_by: Line,
    /// The line that last brought a part of it.
    filled_by: Line,
    since_ns: u64,
    /// No packet will fill it.
    is_given_up: bool,
}

/// A publisher repeats the end of its session every second; the consumer gets it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    Open,
    /// The end is known and its last messages have not arrived yet.
    Announced {
        seq: u64,
    },
    Reported,
}

impl<H> Arbiter<H> {
    /// A channel with `lines_count` lines. Allocates the memory for the packets of the window.
    pub fn new(lines_count: usize, policy: Policy, window: Window) -> Self {
        Self {
            track: Track::new(policy, 0),
            doubts: Doubts::new(),
            window,
            lines: vec![LineState::default(); lines_count + 1],
            answers: AnswerCounts::default(),
            // One more than may wait: the packet that makes the window overflow is kept, then the
            // hole is given up.
            kept: VecDeque::with_capacity(window.packets + 1),
            offered: None,
            horizon: None,
            hole: None,
            restarting: None,
            session_end: SessionEnd::Open,
            is_closing: false,
            holes: HoleCounts::default(),
        }
    }

    /// Decides about a packet from `line`. The slower line's copy costs one compare.
    ///
    /// Panics where the caller has not drained [`Arbiter::poll`] since the last packet, or names a
    /// line that this arbiter does not have.
    pub fn offer(&mut self, line: Line, header: &Header, now_ns: u64) -> Verdict {
        assert!(self.restarting.is_none(), "poll until it gives None before the next packet is offered");
        assert!(line.0 + 1 < self.lines.len(), "a line of this arbiter");
        self.offered = None;
        self.lines[line.0].receive(header, now_ns);
        let arrival = Arrival { line, header: *header, now_ns };
        match self.track.place(header) {
            SequencePosition::First => {
                self.track.start(header);
                self.doubts.begin(header, Claim::Begin);
                self.follow(&arrival);
                self.take(arrival)
            }
            SequencePosition::Here => {
                self.go_on(&arrival);
                self.take(arrival)
            }
            SequencePosition::Ahead => {
                self.go_on(&arrival);
                self.wait(arrival)
            }
            SequencePosition::Behind => {
                self.follow(&arrival);
                self.refuse(header)
            }
            SequencePosition::Straggler => {
                self.track.refuse_past(header);
                Verdict::Discard
            }
            SequencePosition::Doubtful(claim) => self.doubt(claim, arrival),
            SequencePosition::Restart => {
                self.restarting = Some((arrival, None));
                if header.count == 0 {
                    return Verdict::Discard;
                }
                self.offered = Some(Offered::Restarting);
                Verdict::Keep
            }
        }
    }

    /// Keeps the packet for which [`Verdict::Keep`] was returned; returns it in any other case.
    /// Costs a move of the kept packets behind it, at most [`Window::packets`].
    pub fn keep(&mut self, handle: H) -> Result<(), H> {
        match self.offered.take() {
            None => return Err(handle),
            Some(Offered::BehindHole(arrival)) => self.insert(arrival, handle),
            Some(Offered::Restarting) => {
                let Some((_, first)) = &mut self.restarting else { return Err(handle) };
                *first = Some(handle);
            }
            Some(Offered::Doubted) => {
                let Some(doubt) = self.doubts.last_mut() else { return Err(handle) };
                doubt.kept.handle = Some(handle);
            }
        }
        Ok(())
    }

    /// The next output; `None` where there is nothing to do until a packet arrives or
    /// [`Arbiter::deadline_ns`] passes. Call it until it returns `None`, after each offer and, for
    /// the deadlines, once in each turn of the loop.
    pub fn poll(&mut self, now_ns: u64) -> Option<Output<H>> {
        if let Some(output) = self.poll_doubts().or_else(|| self.poll_kept()) {
            return Some(output);
        }
        self.update_hole();
        if let Some(gap) = self.poll_gap(now_ns) {
            return Some(Output::Gap(gap));
        }
        if let SessionEnd::Announced { seq } = self.session_end
            && seq <= self.track.next()
        {
            self.session_end = SessionEnd::Reported;
            return Some(Output::EndOfSession);
        }
        let (arrival, first) = self.restarting.take()?;
        self.finish_restart(arrival, first);
        Some(Output::Restart)
    }

    /// Call it when no packet will come any more. It accepts packets that wait for a witness and
    /// that nothing contradicts, unless they claim a restart or lie farther ahead than
    /// [`Policy::restart_distance`]. Call [`Arbiter::poll`] afterwards, with `u64::MAX` to give up
    /// the missing numbers.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// When the open hole becomes a gap, if there is one.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.hole.map(|hole| hole.since_ns.saturating_add(self.window.wait_ns))
    }

    /// Since when the oldest hole is open, behind which packets wait.
    pub fn hole_since_ns(&self) -> Option<u64> {
        self.hole.map(|hole| hole.since_ns)
    }

    /// Messages delivered, duplicates and gaps of the channel. A packet that waits is counted when
    /// its turn comes.
    pub const fn counts(&self) -> &SequenceCounts {
        self.track.counts()
    }

    /// The outcomes of holes.
    pub const fn holes(&self) -> &HoleCounts {
        &self.holes
    }

    /// The counts of each line, in the order of their numbers.
    pub fn lines(&self) -> impl Iterator<Item = LineCounts> + '_ {
        self.lines[..self.answers_line().0].iter().map(LineState::counts)
    }

    /// Packets that wait behind a hole now.
    pub fn kept_count(&self) -> usize {
        self.kept.len()
    }

    /// Packets that wait for a witness now, those without messages included.
    pub fn doubted_count(&self) -> usize {
        self.doubts.iter().count()
    }

    /// The next expected number.
    pub const fn next_seq(&self) -> u64 {
        self.track.next()
    }

    fn refuse(&mut self, header: &Header) -> Verdict {
        self.track.refuse(header);
        Verdict::Discard
    }

    /// The packet has no implausible claim: its line continues with it, and earlier claims of the
    /// line become less credible.
    #[inline]
    fn go_on(&mut self, arrival: &Arrival) {
        self.follow(arrival);
        if !self.doubts.is_empty() && is_numbered(&arrival.header) {
            self.contradict(arrival, arrival.now_ns);
        }
    }

    /// The claims of the packet's line until `before_ns` are less credible.
    fn contradict(&mut self, arrival: &Arrival, before_ns: u64) {
        let Arrival { line, ref header, now_ns } = *arrival;
        let over_ns = now_ns.saturating_sub(self.window.wait_ns);
        self.doubts.contradict(&Contradiction { header, line_idx: line.0, before_ns, over_ns });
    }

    /// The packet's line follows an accepted packet.
    #[inline]
    fn follow(&mut self, arrival: &Arrival) {
        let restarts = self.track.counts().restarts;
        self.lines[arrival.line.0].follow(&arrival.header, restarts);
    }

    /// The packet waits for a witness, and may be the witness of another.
    #[cold]
    fn doubt(&mut self, claim: Claim, arrival: Arrival) -> Verdict {
        let Arrival { line, header, now_ns } = arrival;
        if self.doubts.is_copy(&header, line.0) {
            self.track.doubt(&header);
            return Verdict::Discard;
        }
        self.doubts.push(claim, header, line.0, now_ns, Doubted { arrival, handle: None });
        if header.count == 0 {
            return Verdict::Discard;
        }
        self.offered = Some(Offered::Doubted);
        Verdict::Keep
    }

    /// The expected number is in this packet, or it has none.
    fn take(&mut self, arrival: Arrival) -> Verdict {
        let Action::Deliver { skip } = self.accept(&arrival) else { return Verdict::Discard };
        if let Some(hole) = &mut self.hole {
            hole.filled_by = arrival.line;
            if hole.revealed_by != arrival.line {
                self.lines[arrival.line.0].healed += u64::from(arrival.header.count - skip);
            }
        } else if !self.doubts.is_empty() {
            self.fill_doubted_hole(&arrival, skip);
        }
        Verdict::Deliver { skip }
    }

    /// Counts a hole that was filled before a second packet had revealed it.
    #[cold]
    fn fill_doubted_hole(&mut self, arrival: &Arrival, skip: u32) {
        let Some(line_idx) = self.doubts.reached_by(self.track.next()) else { return };
        self.holes.opened += 1;
        if line_idx == arrival.line.0 {
            self.holes.reordered += 1;
        } else {
            self.holes.healed += 1;
            self.lines[arrival.line.0].healed += u64::from(arrival.header.count - skip);
        }
    }

    /// Messages before this packet are missing.
    fn wait(&mut self, arrival: Arrival) -> Verdict {
        if self.horizon.is_none_or(|horizon| horizon.header.end() < arrival.header.end()) {
            self.horizon = Some(arrival);
        }
        if arrival.header.count == 0 {
            self.accept(&arrival);
            return Verdict::Discard;
        }
        if self.is_kept(&arrival.header) {
            return self.refuse(&arrival.header);
        }
        self.offered = Some(Offered::BehindHole(arrival));
        Verdict::Keep
    }

    /// All packets before the restart are delivered: restarts with the accepted packet.
    fn finish_restart(&mut self, arrival: Arrival, handle: Option<H>) {
        let claim = if self.track.session().is_none() { Claim::Begin } else { Claim::Restart };
        self.track.restart(&arrival.header);
        self.doubts.begin(&arrival.header, claim);
        self.session_end = SessionEnd::Open;
        self.horizon = None;
        self.show(&arrival);
        if let Some(handle) = handle {
            self.insert(arrival, handle);
        }
    }

    /// The outcomes of packets that waited for a witness. Takes none while the window overflows, or
    /// while the packets before a restart are being delivered.
    #[inline]
    fn poll_doubts(&mut self) -> Option<Output<H>> {
        if self.doubts.is_empty() || !(self.is_closing || self.doubts.is_due(self.track.reach())) {
            return None;
        }
        self.take_doubts()
    }

    #[cold]
    fn take_doubts(&mut self) -> Option<Output<H>> {
        while self.kept.len() <= self.window.packets && self.restarting.is_none() {
            let mut taken = self.doubts.take(self.track.reach());
            if taken.is_none() && self.is_closing {
                let reach_max = self.track.reach().saturating_add(self.track.policy().restart_distance);
                taken = self.doubts.take_last(reach_max);
            }
            let (Doubt { header, claim, kept: Doubted { arrival, handle }, .. }, finding) = taken?;
            if finding == Finding::Dismissed {
                // The caller has counted the messages that it could not keep.
                if handle.is_some() || header.count == 0 {
                    self.track.doubt(&header);
                }
                if let Some(handle) = handle {
                    return Some(Output::Discard { handle });
                }
                continue;
            }
            let mut late_join = None;
            match claim {
                Claim::Begin => {
                    self.track.start(&header);
                    self.doubts.begin(&header, Claim::Begin);
                    late_join = self.track.late_join();
                }
                Claim::Jump => self.track.record_accepted(&header),
                Claim::Restart => {
                    self.restarting = Some((arrival, handle));
                    return None;
                }
            }
            if let Some(handle) = self.admit(arrival, handle) {
                return Some(Output::Discard { handle });
            }
            if let Some(gap) = late_join {
                return Some(Output::LateJoin(gap));
            }
        }
        None
    }

    /// Processes a packet that is now accepted. Returns its handle where it has nothing new.
    fn admit(&mut self, arrival: Arrival, handle: Option<H>) -> Option<H> {
        self.show(&arrival);
        let (header, handle) = (&arrival.header, handle?);
        if header.end() <= self.track.next() || self.is_kept(header) {
            self.track.refuse(header);
            return Some(handle);
        }
        self.insert(arrival, handle);
        None
    }

    /// Applies the numbers of a packet that is now accepted, without its messages.
    fn show(&mut self, arrival: &Arrival) {
        self.follow(arrival);
        if let Some(before_ns) = arrival.now_ns.checked_sub(1) {
            self.contradict(arrival, before_ns);
        }
        if self.horizon.is_none_or(|horizon| horizon.header.end() < arrival.header.end()) {
            self.horizon = Some(*arrival);
        }
        if arrival.header.count == 0 {
            self.accept(arrival);
        }
    }

    fn accept(&mut self, arrival: &Arrival) -> Action {
        self.receive_end(&arrival.header);
        let action = self.track.accept(&arrival.header);
        if let Action::Deliver { skip } = action {
            self.lines[arrival.line.0].first += u64::from(arrival.header.count - skip);
        }
        action
    }

    fn receive_end(&mut self, header: &Header) {
        if header.kind == PacketKind::EndOfSession && self.session_end == SessionEnd::Open {
            self.session_end = SessionEnd::Announced { seq: header.seq };
        }
    }

    /// Whether all messages of the packet are kept already, as far as a short search shows. A
    /// window that is wide enough for re-requests holds thousands of packets, so a binary search is
    /// used instead of a full one.
    fn is_kept(&self, header: &Header) -> bool {
        let idx = self.kept.partition_point(|(kept, _)| kept.header.seq <= header.seq);
        let mut next = header.seq;
        for (kept, _) in self.kept.range(idx.saturating_sub(LOOK_BACK)..) {
            if kept.header.seq > next || next >= header.end() {
                break;
            }
            next = next.max(kept.header.end());
        }
        next >= header.end()
    }

    fn insert(&mut self, arrival: Arrival, handle: H) {
        assert!(self.kept.len() <= self.window.packets, "poll until it gives None before the next packet is kept");
        let idx = self.kept.partition_point(|(kept, _)| kept.header.seq <= arrival.header.seq);
        self.kept.insert(idx, (arrival, handle));
        self.holes.depth_max = self.holes.depth_max.max(self.kept.len());
    }

    /// The first kept packet, once nothing is missing before it.
    fn poll_kept(&mut self) -> Option<Output<H>> {
        if self.kept.front()?.0.header.seq > self.track.next() {
            return None;
        }
        self.close_hole();
        let (arrival, handle) = self.kept.pop_front()?;
        match self.accept(&arrival) {
            Action::Deliver { skip } => Some(Output::Deliver { handle, skip }),
            _ => Some(Output::Discard { handle }),
        }
    }

    /// Opens the hole before the first kept packet, or before the horizon; closes it where there is
    /// none any more.
    fn update_hole(&mut self) {
        let Some(horizon) = self.horizon else { return };
        if horizon.header.end() <= self.track.next() {
            self.close_hole();
            self.horizon = None;
            return;
        }
        if self.hole.is_some() {
            return;
        }
        let earliest = self.kept.iter().map(|(kept, _)| *kept).min_by_key(|kept| kept.now_ns).unwrap_or(horizon);
        let Arrival { line, now_ns, .. } = earliest;
        self.hole = Some(Hole { revealed_by: line, filled_by: line, since_ns: now_ns, is_given_up: false });
        self.holes.opened += 1;
    }

    fn close_hole(&mut self) {
        let Some(hole) = self.hole.take() else { return };
        if hole.filled_by == self.answers_line() {
            self.holes.recovered += 1;
        } else if hole.filled_by == hole.revealed_by {
            self.holes.reordered += 1;
        } else {
            self.holes.healed += 1;
        }
    }

    /// Gives up the hole where it has timed out or the window is full.
    fn poll_gap(&mut self, now_ns: u64) -> Option<Gap> {
        let deadline_ns = self.deadline_ns()?;
        if self.restarting.is_some() {
            self.holes.given_up_restart += 1;
        } else if self.kept.len() > self.window.packets {
            self.holes.given_up_full += 1;
        } else if self.hole.is_some_and(|hole| hole.is_given_up) {
            self.holes.given_up_unanswered += 1;
        } else if now_ns >= deadline_ns {
            self.holes.given_up_late += 1;
        } else {
            return None;
        }
        self.hole = None;
        let horizon = self.horizon?.header.end();
        self.track.give_up(self.kept.front().map_or(horizon, |(kept, _)| kept.header.seq))
    }
}

#[cfg(test)]
mod tests;
