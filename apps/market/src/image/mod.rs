//! Recovery of all books of a channel from an image that a server sends: Nasdaq's GLIMPSE, Cboe's
//! spin server.
//!
//! ```text
//!   live, in order ── live() ──▶ LiveMessage::Apply: the books           and, while one is wanted,
//!   holes ─────────── gap() ───▶ an image is wanted, the queue opens   a copy in the queue
//!   time ──────────── poll() ──▶ ImageRequest, at a limited rate ────▶ another thread asks for it
//!   an image's end ── offer() ─▶ taken: put its books in place ──▶ catch_up(): the queued messages
//! ```
//!
//! An image says with which live number it continues. It is of use where all numbers from that one
//! on are queued: then the image and the queued messages together are the books of now. An older
//! image is refused, because nothing covers the numbers between it and the queue; one that claims
//! to continue far beyond everything that was received is refused as doubtful. While the queued
//! messages are applied, a bounded number in each call, live ones queue behind them. Until the last
//! is applied the books are stale.
//!
//! *Overflow.* The oldest messages leave the queue, which is counted; an image that continues
//! behind them is still of use, so the next one is asked for at once.
//!
//! The machine does no I/O and reads no clock. [`ImageRecovery::new`] allocates its memory.

use crate::live_queue::LiveQueue;
use crate::sequence::Gap;

/// The limits of a recovery by images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// Bytes of live messages that are queued at most. Too few, and no image reaches the queue. By
    /// default 64 MiB: two million messages of ITCH.
    pub queue_len_max: usize,
    /// Messages that are queued at most. By default 2,097,152.
    pub messages_max: usize,
    /// Time between two requests for an image. It doubles with each image that was of no use, up
    /// to 64 times. By default 1 s.
    pub interval_ns: u64,
    /// Time that an image may take, from the moment at which it is asked for at the server. Whoever
    /// asks keeps it and reports [`ImageRecovery::failed`] at its end: a request that waits there
    /// behind other channels' images does not grow old. By default 60 s: GLIMPSE sends a whole
    /// day's open orders.
    pub timeout_ns: u64,
    /// An image that continues more than this many numbers beyond the next expected one is
    /// doubtful. By default 100,000.
    pub distance_max: u64,
}

impl Default for ImagePolicy {
    fn default() -> Self {
        Self {
            queue_len_max: 64 << 20,
            messages_max: 1 << 21,
            interval_ns: 1_000_000_000,
            timeout_ns: 60_000_000_000,
            distance_max: 100_000,
        }
    }
}

/// The counts of a recovery by images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageCounts {
    /// Images that were asked for.
    pub requested: u64,
    /// Images that were put in place.
    pub applied: u64,
    /// Images that continue before the queue begins.
    pub too_old: u64,
    /// Images that continue farther ahead than [`ImagePolicy::distance_max`].
    pub doubtful: u64,
    /// Images that nobody wanted: the feed restarted, or lost more, since they were asked for.
    pub unwanted: u64,
    /// Requests that brought no image: refused, broken off, timed out.
    pub failed: u64,
    /// Live messages that were queued.
    pub queued: u64,
    /// Of these, dropped because the queue was full.
    pub overflowed: u64,
    /// Times that the books were whole again.
    pub completed: u64,
}

/// An image that is to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    /// Identifies the request in [`ImageRecovery::offer`] and [`ImageRecovery::failed`].
    pub id: u64,
    /// The image must continue with this number, or a later one.
    pub covers_from: u64,
}

/// What to do with a live message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum LiveMessage {
    /// Apply it to the books.
    Apply,
    /// Leave the books alone: [`ImageRecovery::catch_up`] returns it later, or the image has it.
    Queued,
}

/// The verdict on an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ImageVerdict {
    /// Put its books in place, as stale ones, then call [`ImageRecovery::catch_up`].
    Take,
    /// Drop it.
    Discard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The books are as the live feed makes them.
    Whole,
    /// The books are hurt: each number from `covers_from` on is in the queue.
    Wanting { covers_from: u64 },
    /// An image is in place; the message `next` is to be applied to it.
    CatchingUp { next: u64 },
}

/// The machine for one channel.
#[derive(Debug)]
pub struct ImageRecovery {
    policy: ImagePolicy,
    state: State,
    queue: LiveQueue,
    /// One past the last live message.
    live_next: u64,
    /// The request that has had no answer yet.
    pending: Option<u64>,
    /// No request before this time.
    not_before_ns: u64,
    /// Images in a row that were of no use.
    failures: u32,
    next_id: u64,
    counts: ImageCounts,
}

impl ImageRecovery {
    /// A channel of which nothing is missing yet. Allocates the queue.
    pub fn new(policy: ImagePolicy) -> Self {
        Self {
            queue: LiveQueue::new(policy.queue_len_max, policy.messages_max),
            policy,
            state: State::Whole,
            live_next: 1,
            pending: None,
            not_before_ns: 0,
            failures: 0,
            next_id: 1,
            counts: ImageCounts::default(),
        }
    }

    /// Bytes that [`ImageRecovery::new`] allocates.
    pub const fn memory(policy: ImagePolicy) -> u128 {
        LiveQueue::memory(policy.queue_len_max, policy.messages_max)
    }

    /// A message of the live feed, in order. While nothing is missing it costs a compare, otherwise
    /// a copy. A message without a number, 0, is applied and not queued.
    #[inline]
    pub fn live(&mut self, seq: u64, message: &[u8]) -> LiveMessage {
        if self.state == State::Whole || seq == 0 {
            return LiveMessage::Apply;
        }
        self.queue_live(seq, message)
    }

    #[cold]
    fn queue_live(&mut self, seq: u64, message: &[u8]) -> LiveMessage {
        self.live_next = seq + 1;
        if let State::CatchingUp { next } = self.state
            && seq < next
        {
            // The image has it.
            return LiveMessage::Queued;
        }
        self.counts.queued += 1;
        let lost_to = self.queue.push(seq, message, &mut self.counts.overflowed);
        match self.state {
            State::CatchingUp { next } if lost_to > next => self.want(lost_to),
            State::Wanting { covers_from } => self.state = State::Wanting { covers_from: covers_from.max(lost_to) },
            _ => {}
        }
        if self.is_catching_up() { LiveMessage::Queued } else { LiveMessage::Apply }
    }

    /// Numbers are missing on all lines, and no re-request brought them: the books are stale.
    pub fn gap(&mut self, gap: Gap) {
        if let State::CatchingUp { next } = self.state
            && gap.to < next
        {
            // The image has what is missing.
            return;
        }
        self.queue.clear();
        self.live_next = gap.to.saturating_add(1);
        self.want(self.live_next);
    }

    /// The feed restarts: the books are empty, which is right, and what was asked for is void.
    pub fn restart(&mut self) {
        self.queue.clear();
        self.counts.unwanted += u64::from(self.pending.is_some());
        (self.state, self.pending, self.failures) = (State::Whole, None, 0);
        self.live_next = 1;
    }

    /// The request that is due, if any. Costs a compare while nothing is missing.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> Option<ImageRequest> {
        let State::Wanting { covers_from } = self.state else { return None };
        self.request(covers_from, now_ns)
    }

    #[cold]
    fn request(&mut self, covers_from: u64, now_ns: u64) -> Option<ImageRequest> {
        if self.pending.is_some() || now_ns < self.not_before_ns {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.pending = Some(id);
        self.not_before_ns = now_ns.saturating_add(self.policy.interval_ns);
        self.counts.requested += 1;
        Some(ImageRequest { id, covers_from })
    }

    /// Judges the image of request `id`, which continues with the live message `first_live`.
    pub fn offer(&mut self, id: u64, first_live: u64, now_ns: u64) -> ImageVerdict {
        let State::Wanting { covers_from } = self.state else {
            self.counts.unwanted += 1;
            return ImageVerdict::Discard;
        };
        if self.pending != Some(id) {
            self.counts.unwanted += 1;
            return ImageVerdict::Discard;
        }
        self.pending = None;
        if first_live < covers_from {
            self.counts.too_old += 1;
            self.back_off(now_ns);
            return ImageVerdict::Discard;
        }
        if first_live > self.live_next.saturating_add(self.policy.distance_max) {
            self.counts.doubtful += 1;
            self.back_off(now_ns);
            return ImageVerdict::Discard;
        }
        self.queue.drop_before(first_live);
        self.state = State::CatchingUp { next: first_live };
        self.failures = 0;
        self.counts.applied += 1;
        ImageVerdict::Take
    }

    /// Request `id` brought no image: it was refused, its connection broke, or it took longer than
    /// [`ImagePolicy::timeout_ns`]. Each request is answered by this or by
    /// [`ImageRecovery::offer`]: until then no other one is made.
    pub fn failed(&mut self, id: u64, now_ns: u64) {
        if self.pending == Some(id) {
            self.pending = None;
            self.counts.failed += 1;
            self.back_off(now_ns);
        }
    }

    /// Passes up to `max` queued messages to `apply`, in order, with their numbers. True with the
    /// call that applies the last one: the books are whole. Costs a compare while no image is in
    /// place.
    #[inline]
    pub fn catch_up(&mut self, max: usize, apply: impl FnMut(u64, &[u8])) -> bool {
        matches!(self.state, State::CatchingUp { .. }) && self.apply_queued(max, apply)
    }

    #[cold]
    fn apply_queued(&mut self, max: usize, mut apply: impl FnMut(u64, &[u8])) -> bool {
        let State::CatchingUp { mut next } = self.state else { return false };
        for _ in 0..max {
            let popped = self.queue.pop(|seq, message| {
                next = seq + 1;
                apply(seq, message);
            });
            if !popped {
                break;
            }
        }
        self.state = State::CatchingUp { next };
        // An image that is ahead of the live feed is the books of a time that has not come yet.
        if !self.queue.is_empty() || self.live_next < next {
            return false;
        }
        self.state = State::Whole;
        self.counts.completed += 1;
        true
    }

    /// Whether something is to be done: a request, an image, a queue.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.state != State::Whole
    }

    /// Whether an image is in place and messages are queued behind it.
    #[inline]
    pub fn is_catching_up(&self) -> bool {
        matches!(self.state, State::CatchingUp { .. })
    }

    /// The counts so far.
    pub const fn counts(&self) -> &ImageCounts {
        &self.counts
    }

    fn want(&mut self, covers_from: u64) {
        self.state = State::Wanting { covers_from };
    }

    fn back_off(&mut self, now_ns: u64) {
        const DOUBLINGS_MAX: u32 = 6;
        let wait_ns = self.policy.interval_ns.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        self.not_before_ns = self.not_before_ns.max(now_ns.saturating_add(wait_ns));
    }
}

#[cfg(test)]
mod tests;
