//! Decides when to send which request for missing messages to a re-request server.
//!
//! ```text
//!   Arbiter ── missing ──> Rerequester ── Ask ──> request packet to the server
//!      ^ ^                     └───────── GiveUp ──┐
//!      │ └── give_up ──────────────────────────────┘
//!      └──── offer_answer ── answer packet from the server, then heard
//! ```
//!
//! Most holes fill without a request, from the other line or by a late packet: one is requested
//! when it is [`Patience::delay_ns`] old. A wide one is requested in pieces, a bounded number of
//! them at once. An answer may hold fewer messages than were requested (MoldUDP64: as many as fit a
//! packet), and the rest is requested at once. A piece without an answer is requested again after a
//! timeout, a bounded number of times; then its hole is given up, and is a gap as if there were no
//! server. So a dead server costs [`Patience::unanswered_ns`] for each hole.
//!
//! The machine does no I/O and reads no clock. A turn of the caller's loop, after it has offered
//! packets and answers:
//!
//! ```
//! use market::framing::mold_udp64::{Request, session_name};
//! use market::{Arbiter, Rerequester, Step};
//!
//! fn turn<H>(arbiter: &mut Arbiter<H>, rerequester: &mut Rerequester, now_ns: u64, mut send: impl FnMut([u8; 20])) {
//!     while let Some(step) = rerequester.poll(arbiter.missing(), now_ns) {
//!         match (step, arbiter.session()) {
//!             (Step::Ask(ask), Some(session)) => {
//!                 send(Request { session: session_name(session), seq: ask.seq, count: ask.count }.emit());
//!             }
//!             (Step::Ask(_), None) => {}
//!             (Step::GiveUp(_), _) => arbiter.give_up(),
//!         }
//!     }
//!     // Then drain `arbiter.poll(now_ns)`: kept packets and gaps come out there, in order.
//! }
//! ```
//!
//! Answers are parsed like any packet of the feed, offered with [`Arbiter::offer_answer`] (from the
//! server's address only), and reported with [`Rerequester::heard`]. On [`Output::Restart`] call
//! [`Rerequester::forget`]. The arbiter's [`Window`] stays in force as the outer limit: make it
//! longer than [`Patience::unanswered_ns`], and large enough for the packets that arrive meanwhile.
//!
//! [`Arbiter::offer_answer`]: crate::Arbiter::offer_answer
//! [`Output::Restart`]: crate::Output::Restart
//! [`Window`]: crate::Window

use std::collections::VecDeque;

use crate::arbitration::Missing;
use crate::sequence::Gap;

/// Times and limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Age of a hole at its first request. Too short requests what the other line is about to
    /// bring, too long delays all messages behind a true loss. Holes are checked twice in this
    /// time.
    pub delay_ns: u64,
    /// Timeout of an answer: a round trip to the server, and the rate that it allows.
    pub timeout_ns: u64,
    /// Requests for the same first number, before the hole is given up. At least 1.
    pub attempts: u32,
    /// Requests under way at once. Servers limit each receiver's rate.
    pub outstanding: usize,
    /// Messages in one request. If they fit one answer, nothing is left to request again.
    pub messages: u16,
}

impl Default for Patience {
    /// 1 ms, the arbiter's default wait; three times 50 ms for a server at the same site; 8
    /// requests of 40 messages, as many as an ITCH packet of 1500 bytes holds.
    fn default() -> Self {
        Self { delay_ns: 1_000_000, timeout_ns: 50_000_000, attempts: 3, outstanding: 8, messages: 40 }
    }
}

impl Patience {
    /// The longest time from a hole to its gap where no answer comes.
    pub const fn unanswered_ns(&self) -> u64 {
        2 * self.delay_ns + (self.timeout_ns + self.delay_ns) * self.attempts as u64
    }
}

/// A range to request from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Number of the first message wanted.
    pub seq: u64,
    /// Messages wanted, 1 at least.
    pub count: u16,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send a request.
    Ask(Ask),
    /// The oldest hole will not be filled: call [`Arbiter::give_up`](crate::Arbiter::give_up).
    GiveUp(Gap),
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskCounts {
    /// Requests.
    pub asked: u64,
    /// Of these, repeated because no answer came.
    pub repeated: u64,
    /// Holes that were given up.
    pub given_up: u64,
}

/// The machine for one channel. Memory is allocated at construction.
#[derive(Debug)]
pub struct Rerequester {
    patience: Patience,
    /// Disjoint, in rising order.
    outstanding: Vec<Outstanding>,
    /// Decided and not yet returned by `poll`.
    asks: VecDeque<Ask>,
    look_ns: u64,
    counts: AskCounts,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// The requested range; its first number is still missing, or an answer has come.
    range: Gap,
    asked_ns: u64,
    attempts: u32,
}

impl Rerequester {
    /// A machine without requests.
    ///
    /// Panics where `patience` allows no request at all, or none with a message in it.
    pub fn new(patience: Patience) -> Self {
        assert!(patience.attempts > 0 && patience.outstanding > 0 && patience.messages > 0, "room for one request");
        // 0xFFFF is the end of the session in MoldUDP64 and no count.
        let patience = Patience { messages: patience.messages.min(0xfffe), ..patience };
        Self {
            outstanding: Vec::with_capacity(patience.outstanding),
            asks: VecDeque::with_capacity(patience.outstanding),
            patience,
            look_ns: 0,
            counts: AskCounts::default(),
        }
    }

    /// The next step, given what is missing; `None` where there is nothing to do. Call it once a
    /// turn until then. One compare, and a walk over `missing` twice in [`Patience::delay_ns`] and
    /// after each [`Rerequester::heard`].
    pub fn poll(&mut self, missing: impl Iterator<Item = Missing> + Clone, now_ns: u64) -> Option<Step> {
        if self.asks.is_empty() && now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(1 + self.patience.delay_ns / 2);
            self.review(missing.clone(), now_ns);
            if let Some(gap) = self.exhausted(missing.clone(), now_ns) {
                self.counts.given_up += 1;
                return Some(Step::GiveUp(gap));
            }
            self.extend(missing, now_ns);
        }
        self.asks.pop_front().map(Step::Ask)
    }

    /// An answer was offered to the arbiter: a rest may have to be requested.
    pub fn heard(&mut self) {
        self.look_ns = 0;
    }

    /// The feed restarted: pending requests are void.
    pub fn forget(&mut self) {
        self.outstanding.clear();
        self.asks.clear();
        self.look_ns = 0;
    }

    /// The counts so far.
    pub const fn counts(&self) -> &AskCounts {
        &self.counts
    }

    /// Requests under way now.
    pub fn outstanding_count(&self) -> usize {
        self.outstanding.len()
    }

    /// Removes requests that were answered, and repeats those that timed out.
    fn review(&mut self, missing: impl Iterator<Item = Missing>, now_ns: u64) {
        let Self { patience, outstanding, asks, counts, .. } = self;
        let mut missing = missing.map(|missing| missing.gap).peekable();
        outstanding.retain_mut(|pending| {
            while missing.next_if(|gap| gap.to < pending.range.from).is_some() {}
            // If the first number is there, an answer came; the rest of it is requested again.
            if missing.peek().is_none_or(|gap| gap.from > pending.range.from) {
                return false;
            }
            let is_late = now_ns.saturating_sub(pending.asked_ns) >= patience.timeout_ns;
            if is_late && pending.attempts < patience.attempts {
                pending.asked_ns = now_ns;
                pending.attempts += 1;
                counts.asked += 1;
                counts.repeated += 1;
                asks.push_back(pending.ask());
            }
            true
        });
    }

    /// The oldest hole, if its first number was requested as often as allowed.
    fn exhausted(&self, mut missing: impl Iterator<Item = Missing>, now_ns: u64) -> Option<Gap> {
        let oldest = missing.next()?.gap;
        let pending = self.outstanding.first()?;
        let is_late = now_ns.saturating_sub(pending.asked_ns) >= self.patience.timeout_ns;
        let is_last = pending.attempts == self.patience.attempts;
        (is_late && is_last && pending.range.from == oldest.from).then_some(oldest)
    }

    /// Requests holes that are old enough and not requested yet, as far as there is room.
    fn extend(&mut self, missing: impl Iterator<Item = Missing>, now_ns: u64) {
        let mut idx = 0;
        for Missing { gap, since_ns } in missing {
            if self.outstanding.len() == self.patience.outstanding {
                return;
            }
            if now_ns.saturating_sub(since_ns) < self.patience.delay_ns {
                continue;
            }
            let mut from = gap.from;
            while from <= gap.to && self.outstanding.len() < self.patience.outstanding {
                while self.outstanding.get(idx).is_some_and(|pending| pending.range.to < from) {
                    idx += 1;
                }
                let pending = self.outstanding.get(idx).map(|pending| pending.range);
                if let Some(pending) = pending.filter(|pending| pending.from <= from) {
                    let Some(next) = pending.to.checked_add(1) else { break };
                    from = next;
                    continue;
                }
                let free_to = pending.map_or(gap.to, |pending| gap.to.min(pending.from - 1));
                let to = free_to.min(from.saturating_add(u64::from(self.patience.messages) - 1));
                let ask = Outstanding { range: Gap { from, to }, asked_ns: now_ns, attempts: 1 };
                self.outstanding.insert(idx, ask);
                self.counts.asked += 1;
                self.asks.push_back(ask.ask());
                // The largest possible number has no next one.
                let Some(next) = to.checked_add(1) else { break };
                from = next;
            }
        }
    }
}

impl Outstanding {
    fn ask(&self) -> Ask {
        // A range is never longer than `Patience::messages`.
        Ask { seq: self.range.from, count: self.range.len() as u16 }
    }
}

#[cfg(test)]
mod tests;
