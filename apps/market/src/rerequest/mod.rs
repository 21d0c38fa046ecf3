//! Decides when to send which request for missing messages to a re-request server.
//!
//! ```text
//!   Arbiter ── missing ──> Rerequester ── RerequestRange ──> request packet to the server
//!      ^ ^                     └───────── GiveUp ──┐
//!      │ └── give_up ──────────────────────────────┘
//!      └──── offer_answer ── answer packet from the server, then heard
//! ```
//!
//! Most holes fill without a request, from the other line or by a late packet, so a hole is
//! requested only when it is [`RetryPolicy::delay_ns`] old. A wide hole is requested in pieces, a
//! bounded number of them at once. An answer may hold fewer messages than were requested
//! (MoldUDP64: as many as fit a packet), and the rest is requested at once. A piece without an
//! answer is requested again after a timeout, a bounded number of times. Then its hole is given up
//! and becomes a gap, as if there were no server. So a dead server costs
//! [`RetryPolicy::unanswered_ns`] for each hole.
//!
//! The machine does no I/O and reads no clock. A turn of the caller's loop, after it has offered
//! packets and answers:
//!
//! ```
//! use market::framing::mold_udp64::{Request, session_name};
//! use market::{Arbiter, Rerequester, RerequestStep};
//!
//! fn turn<H>(arbiter: &mut Arbiter<H>, rerequester: &mut Rerequester, now_ns: u64, mut send: impl FnMut([u8; 20])) {
//!     while let Some(step) = rerequester.poll(arbiter.missing(), now_ns) {
//!         match (step, arbiter.session()) {
//!             (RerequestStep::Request(ask), Some(session)) => {
//!                 send(Request { session: session_name(session), seq: ask.seq, count: ask.count }.emit());
//!             }
//!             (RerequestStep::Request(_), None) => {}
//!             (RerequestStep::GiveUp(_), _) => arbiter.give_up(),
//!         }
//!     }
//!     // Then drain `arbiter.poll(now_ns)`: kept packets and gaps come out there, in order.
//! }
//! ```
//!
//! Answers are parsed like any packet of the feed, offered with [`Arbiter::offer_answer`] (from the
//! server's address only, and where they [were requested](Rerequester::is_asked): anybody may send
//! packets with that address), and reported with [`Rerequester::answer_received`]. On
//! [`Output::Restart`] call
//! [`Rerequester::forget`]. The arbiter's [`Window`] stays in force as the outer limit: make it as
//! long as [`RetryPolicy::wait_ns`], and large enough for the packets that arrive meanwhile.
//!
//! [`Arbiter::offer_answer`]: crate::Arbiter::offer_answer
//! [`Output::Restart`]: crate::Output::Restart
//! [`Window`]: crate::Window

use std::collections::VecDeque;

use crate::arbitration::Missing;
use crate::framing::Header;
use crate::sequence::Gap;

/// Until a hole that only heartbeats reveal is believed: two more, a second apart, and some time
/// for these to be late.
const BELIEVED_NS: u64 = 3_000_000_000;

/// Times and limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Age of a hole at its first request. If it is too short, messages are requested that the
    /// other line is about to bring; if it is too long, all messages behind a true loss are
    /// delayed. Holes are checked twice in this time. By default 1 ms.
    pub delay_ns: u64,
    /// Timeout of an answer: a round trip to the server, and the rate that it allows. By default 50
    /// ms.
    pub timeout_ns: u64,
    /// Requests for the same first number, before the hole is given up. At least 1. By default 3.
    pub attempts: u32,
    /// Requests under way at once. Servers limit each receiver's rate. By default 8.
    pub outstanding: usize,
    /// Messages in one request. If they fit one answer, nothing is left to request again. By
    /// default 40.
    pub messages: u16,
    /// Time between two requests in the long run: servers refuse those who ask more often, and
    /// Cboe's have quotas of a day. 0 is no limit. By default 1 ms.
    pub interval_ns: u64,
    /// Requests at once, after a time without. At least 1. By default 64.
    pub burst: u32,
}

impl Default for RetryPolicy {
    /// 1 ms, the arbiter's default wait; three times 50 ms for a server at the same site; 8
    /// requests of 40 messages, as many as an ITCH packet of 1500 bytes holds; a thousand requests
    /// a second.
    fn default() -> Self {
        Self {
            delay_ns: 1_000_000,
            timeout_ns: 50_000_000,
            attempts: 3,
            outstanding: 8,
            messages: 40,
            interval_ns: 1_000_000,
            burst: 64,
        }
    }
}

impl RetryPolicy {
    /// The longest time from a hole to its gap where no answer comes.
    pub const fn unanswered_ns(&self) -> u64 {
        2 * self.delay_ns + (self.timeout_ns + self.delay_ns) * self.attempts as u64
    }

    /// How long a hole is to stay open for its requests, from the packet on that revealed it: this
    /// machine gives up first. Where nothing follows a loss, only heartbeats reveal it, and the
    /// third of the same number is believed.
    pub const fn wait_ns(&self) -> u64 {
        BELIEVED_NS + self.unanswered_ns().saturating_mul(2)
    }
}

/// A range to request from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RerequestRange {
    /// Number of the first message wanted.
    pub seq: u64,
    /// Messages wanted, 1 at least.
    pub count: u16,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerequestStep {
    /// Send a request.
    Request(RerequestRange),
    /// The oldest hole will not be filled: call [`Arbiter::give_up`](crate::Arbiter::give_up).
    GiveUp(Gap),
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RerequestCounts {
    /// Requests.
    pub requested: u64,
    /// Of these, repeated because no answer came.
    pub repeated: u64,
    /// Holes that were given up.
    pub given_up: u64,
}

/// The machine for one channel. Memory is allocated at construction.
#[derive(Debug)]
pub struct Rerequester {
    policy: RetryPolicy,
    /// Disjoint, in rising order.
    outstanding: Vec<Outstanding>,
    /// Decided and not yet returned by `poll`.
    requests: VecDeque<RerequestRange>,
    look_ns: u64,
    pace: Pace,
    counts: RerequestCounts,
}

/// The rate of requests (the generic cell rate algorithm of ATM): when all requests so far are used
/// up at [`RetryPolicy::interval_ns`].
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    busy_until_ns: u64,
}

impl Pace {
    /// Whether one more request may be made now; counts it.
    fn take(&mut self, policy: &RetryPolicy, now_ns: u64) -> bool {
        let busy_until_ns = self.busy_until_ns.max(now_ns);
        let saved_ns = policy.interval_ns.saturating_mul(u64::from(policy.burst) - 1);
        if busy_until_ns - now_ns > saved_ns {
            return false;
        }
        self.busy_until_ns = busy_until_ns.saturating_add(policy.interval_ns);
        true
    }
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// The requested range; its first number is still missing, or an answer has come.
    range: Gap,
    requested_ns: u64,
    attempts: u32,
    /// The server will not answer.
    is_refused: bool,
}

impl Rerequester {
    /// A machine without requests.
    ///
    /// Panics where `policy` allows no request at all, or none with a message in it.
    pub fn new(policy: RetryPolicy) -> Self {
        assert!(policy.attempts > 0 && policy.outstanding > 0 && policy.messages > 0, "room for one request");
        // 0xFFFF is the end of the session in MoldUDP64 and no count.
        let policy = RetryPolicy { messages: policy.messages.min(0xfffe), burst: policy.burst.max(1), ..policy };
        Self {
            outstanding: Vec::with_capacity(policy.outstanding),
            requests: VecDeque::with_capacity(policy.outstanding),
            policy,
            look_ns: 0,
            pace: Pace::default(),
            counts: RerequestCounts::default(),
        }
    }

    /// The next step, given the missing numbers; `None` where there is nothing to do. In each turn,
    /// call it until it returns `None`. Costs one compare, and an iteration over `missing` twice in
    /// [`RetryPolicy::delay_ns`] and after each [`Rerequester::answer_received`].
    pub fn poll(&mut self, missing: impl Iterator<Item = Missing> + Clone, now_ns: u64) -> Option<RerequestStep> {
        if self.requests.is_empty() && now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(1 + self.policy.delay_ns / 2);
            self.review(missing.clone(), now_ns);
            if let Some(gap) = self.exhausted(missing.clone(), now_ns) {
                self.counts.given_up += 1;
                return Some(RerequestStep::GiveUp(gap));
            }
            self.make_room(missing.clone(), now_ns);
            self.extend(missing, now_ns);
        }
        self.requests.pop_front().map(RerequestStep::Request)
    }

    /// An answer was offered to the arbiter: a rest may have to be requested.
    pub fn answer_received(&mut self) {
        self.look_ns = 0;
    }

    /// Whether a packet of the server may be an answer: all of its messages are of one request that
    /// is under way.
    pub fn is_asked(&self, header: &Header) -> bool {
        let is_within = |range: Gap| range.from <= header.seq && header.end() <= range.to.saturating_add(1);
        header.count > 0 && self.outstanding.iter().any(|pending| is_within(pending.range))
    }

    /// Whether a packet of a group on which all requests are answered, in the packets of the feed,
    /// has a message of a request that is under way.
    pub fn is_asked_in_part(&self, header: &Header) -> bool {
        let overlaps = |range: Gap| header.seq <= range.to && range.from < header.end();
        self.outstanding.iter().any(|pending| overlaps(pending.range))
    }

    /// The server has no message before `seq` any more: requests that begin before it are refused,
    /// as by [`refused`](Self::refused). `false` where there are none.
    pub fn refused_below(&mut self, seq: u64) -> bool {
        let end = self.outstanding.partition_point(|pending| pending.range.from < seq);
        for pending in &mut self.outstanding[..end] {
            (pending.attempts, pending.is_refused, self.look_ns) = (self.policy.attempts, true, 0);
        }
        end > 0
    }

    /// The server refuses the request that began at `seq`: its hole is given up when it is the
    /// oldest, without another attempt.
    pub fn refused(&mut self, seq: u64) {
        if let Some(pending) = self.outstanding.iter_mut().find(|pending| pending.range.from == seq) {
            (pending.attempts, pending.is_refused) = (self.policy.attempts, true);
            self.look_ns = 0;
        }
    }

    /// The feed restarted: pending requests are void.
    pub fn forget(&mut self) {
        self.outstanding.clear();
        self.requests.clear();
        self.look_ns = 0;
    }

    /// The counts so far.
    pub const fn counts(&self) -> &RerequestCounts {
        &self.counts
    }

    /// Requests under way now.
    pub fn outstanding_count(&self) -> usize {
        self.outstanding.len()
    }

    /// Removes requests that were answered, and repeats those that timed out.
    fn review(&mut self, missing: impl Iterator<Item = Missing>, now_ns: u64) {
        let Self { policy, outstanding, requests, counts, pace, .. } = self;
        let mut missing = missing.map(|missing| missing.gap).peekable();
        outstanding.retain_mut(|pending| {
            while missing.next_if(|gap| gap.to < pending.range.from).is_some() {}
            // If the first number is there, an answer came; the rest of it is requested again.
            if missing.peek().is_none_or(|gap| gap.from > pending.range.from) {
                return false;
            }
            let is_late = now_ns.saturating_sub(pending.requested_ns) >= policy.timeout_ns;
            if is_late && pending.attempts < policy.attempts && pace.take(policy, now_ns) {
                pending.requested_ns = now_ns;
                pending.attempts += 1;
                counts.requested += 1;
                counts.repeated += 1;
                requests.push_back(pending.range());
            }
            true
        });
    }

    /// The oldest hole, if its first number was requested as often as allowed.
    fn exhausted(&self, mut missing: impl Iterator<Item = Missing>, now_ns: u64) -> Option<Gap> {
        let oldest = missing.next()?.gap;
        let pending = self.outstanding.first()?;
        (pending.range.from == oldest.from && self.is_exhausted(pending, now_ns)).then_some(oldest)
    }

    /// Ends the request for the highest numbers, if it was repeated as often as allowed, and the
    /// oldest hole needs its place: a hole that appears before all others is given up first, so its
    /// request cannot wait for theirs.
    fn make_room(&mut self, mut missing: impl Iterator<Item = Missing>, now_ns: u64) {
        let Some(Missing { gap, since_ns }) = missing.next() else { return };
        let is_full = self.outstanding.len() == self.policy.outstanding;
        let is_due = now_ns.saturating_sub(since_ns) >= self.policy.delay_ns;
        let is_first = self.outstanding.first().is_some_and(|pending| pending.range.from > gap.from);
        if is_full && is_due && is_first {
            let last = self.outstanding.last().is_some_and(|last| self.is_exhausted(last, now_ns));
            self.outstanding.truncate(self.outstanding.len() - usize::from(last));
        }
    }

    fn is_exhausted(&self, pending: &Outstanding, now_ns: u64) -> bool {
        let is_late = now_ns.saturating_sub(pending.requested_ns) >= self.policy.timeout_ns;
        (is_late || pending.is_refused) && pending.attempts == self.policy.attempts
    }

    /// Requests holes that are old enough and not requested yet, as far as there is room.
    fn extend(&mut self, missing: impl Iterator<Item = Missing>, now_ns: u64) {
        let mut idx = 0;
        for Missing { gap, since_ns } in missing {
            if self.outstanding.len() == self.policy.outstanding {
                return;
            }
            if now_ns.saturating_sub(since_ns) < self.policy.delay_ns {
                continue;
            }
            let mut from = gap.from;
            while from <= gap.to && self.outstanding.len() < self.policy.outstanding {
                while self.outstanding.get(idx).is_some_and(|pending| pending.range.to < from) {
                    idx += 1;
                }
                let pending = self.outstanding.get(idx).map(|pending| pending.range);
                if let Some(pending) = pending.filter(|pending| pending.from <= from) {
                    let Some(next) = pending.to.checked_add(1) else { break };
                    from = next;
                    continue;
                }
                if !self.pace.take(&self.policy, now_ns) {
                    return;
                }
                let free_to = pending.map_or(gap.to, |pending| gap.to.min(pending.from - 1));
                let to = free_to.min(from.saturating_add(u64::from(self.policy.messages) - 1));
                let pending =
                    Outstanding { range: Gap { from, to }, requested_ns: now_ns, attempts: 1, is_refused: false };
                self.outstanding.insert(idx, pending);
                self.counts.requested += 1;
                self.requests.push_back(pending.range());
                // The largest possible number has no next one.
                let Some(next) = to.checked_add(1) else { break };
                from = next;
            }
        }
    }
}

impl Outstanding {
    fn range(&self) -> RerequestRange {
        // A range is never longer than `RetryPolicy::messages`.
        RerequestRange { seq: self.range.from, count: self.range.len() as u16 }
    }
}

#[cfg(test)]
mod tests;
