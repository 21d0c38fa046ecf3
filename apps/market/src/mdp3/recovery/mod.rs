//! Recovery of a channel of MDP 3.0: from its snapshots, without leaving the live feed.
//!
//! ```text
//!   live, in order ── live() ──────▶ behind the books: while any is hurt, a copy into the queue
//!   holes ─────────── gap() ───────▶ books unconfirmed, the queue opens
//!   snapshot feed ─── snapshot() ──▶ a hurt book, then the queued messages behind the snapshot
//! ```
//!
//! A snapshot says with which packet of the live feed it was taken. It is of use where each packet
//! behind that one is queued: then the snapshot and the queued packets together are the book of
//! now. The queued messages pass through the books as they first did, and the books' own numbers
//! leave out what each already has, so books that were never hurt stay as they are. An older
//! snapshot is refused, because nothing covers the numbers between it and the queue; one behind
//! which more than [`RecoveryConfig::replay_max`] messages are queued is left for a fresher one,
//! because the worker that applies them serves other books meanwhile. One that claims to be of a
//! time far ahead of the live feed ([`RecoveryConfig::distance_max`]) is damaged or forged. One of
//! a packet that the live feed has not brought yet is left for the next loop: each snapshot is so
//! checked by the instrument's live updates, whose numbers go on behind it. Where they do not, the
//! book is stale again.
//!
//! *Late join.* The first live packet is not the first of the week: [`Recovery::gap`] opens the
//! queue, every book is hurt by its first update, and the loop of snapshots heals them. *Overflow.*
//! The oldest packets leave the queue, which is counted; a later snapshot covers what is left.
//! *End.* The queue closes when a snapshot of each instrument of a loop was seen since the last
//! hole (in one loop, or in several where packets of it were lost), and no book is stale or
//! unconfirmed. A book without an update and without a snapshot is one of an instrument that did
//! not trade this week: it is empty. One that two loops lack, without an update meanwhile, is that
//! of an instrument which is gone, and is emptied. That is not concluded while instruments of the
//! loop have no book, because the table is full: each of their snapshots counts, so that a loop may
//! seem whole which is not. Then leave the snapshot group: [`Recovery::wants_snapshots`].
//!
//! The machine does no I/O, and takes the messages of the snapshot feed as they are: what brings
//! them judges their packets, whose numbers begin anew with each loop: [`super::LoopLines`].

use super::Mdp3;
use super::layout::{ChannelReset, OrderSnapshot, Snapshot, split_head};
use crate::book::{Change, HealingBooks};
use crate::codec::{Decoder, MessageCounts};
use crate::event::Event;
use crate::live_queue::LiveQueue;
use crate::sequence::Gap;
use crate::units::Symbol;
use seen::SeenBooks;

mod seen;

/// The limits of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// Bytes of live messages that are queued at most. Too few, and no snapshot of a slow loop
    /// reaches the queue. By default 64 MiB: a minute at CME's busiest second.
    pub queue_len_max: usize,
    /// Messages that are queued at most. By default 1,048,576.
    pub messages_max: usize,
    /// Messages behind a snapshot that are applied at once at most: a bound on the time that one
    /// takes. By default 16,384, less than a millisecond; CME's loop is some milliseconds behind.
    pub replay_max: usize,
    /// A snapshot that was taken more than this many packets behind the last live one is doubtful.
    /// By default 100,000.
    pub distance_max: u64,
    /// Instruments that are told apart in a loop of snapshots: those that the books have room for.
    /// By default 16,384. Of others each snapshot counts, which may end a loop too early.
    pub books_max: usize,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            queue_len_max: 64 << 20,
            messages_max: 1 << 20,
            replay_max: 1 << 14,
            distance_max: 100_000,
            books_max: 1 << 14,
        }
    }
}

/// The counts of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// Live messages that were queued.
    pub queued: u64,
    /// Of these, dropped because the queue was full.
    pub overflowed: u64,
    /// Snapshots that were applied, or confirmed a book.
    pub applied: u64,
    /// Of these, the ones that made a book anew.
    pub adopted: u64,
    /// Snapshots from before the queue: later ones of the same instrument will do.
    pub too_old: u64,
    /// Snapshots with too many messages behind them: later ones will do.
    pub too_far: u64,
    /// Snapshots that claim to be from farther ahead than [`RecoveryConfig::distance_max`].
    pub doubtful: u64,
    /// Snapshots of packets that the live feed has not brought yet: later ones will do.
    pub too_early: u64,
    /// Messages of the snapshot feed that are no snapshots of books, or broken.
    pub ignored: u64,
    /// Times that a snapshot of each instrument was seen.
    pub loops: u64,
    /// Times that the queue closed with all books whole.
    pub completed: u64,
}

impl RecoveryCounts {
    /// Snapshots of books that were of no use.
    pub const fn refused(&self) -> u64 {
        self.too_old + self.too_far + self.doubtful + self.too_early
    }
}

/// The queue of live messages, and the rules for it. [`Recovery::new`] allocates its memory.
#[derive(Debug)]
pub struct Recovery {
    replay_max: usize,
    distance_max: u64,
    queue: LiveQueue,
    /// One past the last live packet, while the queue is open.
    live_next: u64,
    /// Every live packet from this number on is in the queue.
    covers_from: u64,
    is_open: bool,
    /// The instruments with a snapshot of use since the last hole.
    seen: SeenBooks,
    codec: Mdp3,
    counts: RecoveryCounts,
    /// For messages that were counted when they were live.
    uncounted: MessageCounts,
}

/// What the head of a snapshot says.
#[derive(Clone, Copy, Debug)]
struct SnapshotHead {
    last_seq: u64,
    /// Instruments of the loop.
    total: u32,
    symbol: Symbol,
    /// It is whole with this message.
    is_last_part: bool,
}

impl SnapshotHead {
    /// `None` where the message is no snapshot of these books.
    fn read(message: &[u8], by_order: bool) -> Option<Self> {
        let (head, body) = split_head(message).ok()?;
        let symbol = |id: i32| Symbol::from_number(id as u32 as u64);
        match head.template {
            Snapshot::ID if !by_order => {
                let root = Snapshot::parse(head, body).ok()?.root;
                let (last_seq, total) = (root.last_seq.get().into(), root.reports_total.get());
                Some(Self { last_seq, total, symbol: symbol(root.security_id.get()), is_last_part: true })
            }
            OrderSnapshot::ID if by_order => {
                let root = OrderSnapshot::parse(head, body).ok()?.root;
                let (last_seq, total) = (root.last_seq.get().into(), root.reports_total.get());
                let is_last_part = root.chunk.get() >= root.chunks.get();
                Some(Self { last_seq, total, symbol: symbol(root.security_id.get()), is_last_part })
            }
            _ => None,
        }
    }
}

impl Recovery {
    /// A recovery that nothing was lost of yet: books without an update are as they are.
    pub fn new(config: RecoveryConfig) -> Self {
        Self {
            replay_max: config.replay_max,
            distance_max: config.distance_max,
            live_next: 0,
            queue: LiveQueue::new(config.queue_len_max, config.messages_max),
            covers_from: 0,
            is_open: false,
            seen: SeenBooks::new(config.books_max),
            codec: Mdp3,
            counts: RecoveryCounts::default(),
            uncounted: MessageCounts::new(),
        }
    }

    /// Bytes that [`Recovery::new`] allocates.
    pub const fn memory(config: RecoveryConfig) -> u128 {
        LiveQueue::memory(config.queue_len_max, config.messages_max) + SeenBooks::memory(config.books_max)
    }

    /// Whether [`Recovery::live`] would do nothing. Costs two compares.
    #[inline]
    pub fn is_idle(&self, books: &impl HealingBooks) -> bool {
        !self.is_open && books.stale_count() == 0
    }

    /// A message of the live feed, in order, from packet `seq`, which `books` have already: into
    /// the queue while it is open. Closed, the queue costs two compares.
    #[inline]
    pub fn live(&mut self, seq: u64, message: &[u8], books: &impl HealingBooks) {
        if self.is_open {
            self.queue(seq, message);
        } else if books.stale_count() > 0 {
            // Nothing before this message is queued.
            self.open(seq + 1);
        }
    }

    /// Packets of the live feed are missing on all lines, and the books are marked so.
    pub fn gap(&mut self, gap: Gap) {
        // What was queued before the hole does not reach over it.
        self.open(gap.to.saturating_add(1));
    }

    /// The live feed restarts, as each week: the books are empty.
    pub fn restart(&mut self) {
        self.close();
    }

    /// A message of the snapshot feed. One that cannot help costs its header. Passes its events,
    /// and their effects, to `each`, with the number of its last live packet. Where it makes a book
    /// anew, the events of that book that were queued behind it follow, each with the number of its
    /// packet, so that books elsewhere become the same; and the end of the snapshot once more: with
    /// the last event the book is as of now.
    pub fn snapshot<B: HealingBooks>(
        &mut self,
        message: &[u8],
        books: &mut B,
        counts: &mut MessageCounts,
        mut each: impl FnMut(u64, &Event, Option<Change>, &B),
    ) {
        let head = SnapshotHead::read(message, B::BY_ORDER).filter(|_| self.is_open);
        let Some(SnapshotHead { last_seq, total, symbol, is_last_part }) = head else {
            self.counts.ignored += 1;
            return;
        };
        if last_seq + 1 < self.covers_from {
            self.counts.too_old += 1;
            return;
        }
        if last_seq > self.live_next.saturating_add(self.distance_max) {
            self.counts.doubtful += 1;
            return;
        }
        if last_seq >= self.live_next {
            self.counts.too_early += 1;
            return;
        }
        if self.queue.behind(last_seq).len() > self.replay_max {
            self.counts.too_far += 1;
            return;
        }
        let (queue, codec, uncounted) = (&self.queue, &mut self.codec, &mut self.uncounted);
        let mut adopted = false;
        Mdp3.decode_all(message, counts, &mut |event| {
            let change = match event {
                // The live feed may be within an event, which this one would end.
                Event::EndOfEvent(_) => return,
                Event::SnapshotEnd(_) => {
                    books.apply(event);
                    books.adopted().map(|book| {
                        adopted = true;
                        books.publish_book(book);
                        if queue.behind(last_seq).len() > 0 {
                            each(last_seq, event, None, books);
                            replay(queue, last_seq, symbol, books, codec, uncounted, &mut each);
                        }
                        Change { book, is_top: true }
                    })
                }
                _ => books.apply(event),
            };
            each(last_seq, event, change, books);
        });
        self.counts.applied += 1;
        self.counts.adopted += u64::from(adopted);
        if is_last_part && self.seen.take(books.find(symbol), total) {
            self.end_loop(books);
        }
    }

    fn end_loop(&mut self, books: &mut impl HealingBooks) {
        self.counts.loops += 1;
        if self.seen.are_exact() {
            books.confirm_inactive(|book| self.seen.has(book));
        }
        self.seen.clear();
        if books.are_sure() {
            self.counts.completed += 1;
            self.close();
        }
    }

    /// Whether snapshots are of use: while not, leave their group.
    pub const fn wants_snapshots(&self) -> bool {
        self.is_open
    }

    /// Messages in the queue.
    pub fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// The counts so far.
    pub const fn counts(&self) -> &RecoveryCounts {
        &self.counts
    }

    #[cold]
    fn open(&mut self, covers_from: u64) {
        self.close();
        (self.is_open, self.covers_from, self.live_next) = (true, covers_from, covers_from);
    }

    fn close(&mut self) {
        self.queue.clear();
        self.seen.clear();
        self.is_open = false;
    }

    #[cold]
    fn queue(&mut self, seq: u64, message: &[u8]) {
        if split_head(message).is_ok_and(|(head, _)| head.template == ChannelReset::ID) {
            // The books are empty, as they should be.
            return self.close();
        }
        self.live_next = seq + 1;
        let overflowed = self.counts.overflowed;
        let lost_to = self.queue.push(seq, message, &mut self.counts.overflowed);
        self.covers_from = self.covers_from.max(lost_to);
        self.counts.queued += u64::from(lost_to <= seq || self.counts.overflowed == overflowed);
    }
}

/// Applies what was queued behind packet `last_seq` to one book. The others have it.
fn replay<B: HealingBooks>(
    queue: &LiveQueue,
    last_seq: u64,
    symbol: Symbol,
    books: &mut B,
    codec: &mut Mdp3,
    uncounted: &mut MessageCounts,
    each: &mut impl FnMut(u64, &Event, Option<Change>, &B),
) {
    let Some(book) = books.find(symbol) else { return };
    for (seq, message) in queue.behind(last_seq) {
        codec.decode_all(message, uncounted, &mut |event| {
            if matches!(event, Event::EndOfEvent(_)) {
                books.publish_book(book);
            } else if event.symbol() == Some(symbol) {
                let change = books.apply(event);
                each(seq, event, change, books);
            }
        });
    }
}

#[cfg(test)]
mod tests;
