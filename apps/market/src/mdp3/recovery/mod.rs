//! Recovery of a channel of MDP 3.0: from its snapshots, without leaving the live feed.
//!
//! ```text
//!   live, in order ── live() ──────▶ books          and, while any is hurt, a copy into the queue
//!   holes ─────────── gap() ───────▶ books unconfirmed, the queue opens
//!   snapshot feed ─── snapshot() ──▶ a hurt book, then the queued messages behind the snapshot
//! ```
//!
//! A snapshot says with which packet of the live feed it was taken. It is of use where each packet
//! behind that one is queued: then the snapshot and the queued packets together are the book of
//! now. The queued messages pass through the books as they first did, and the books' own numbers
//! leave out what each already has, so books that were never hurt stay as they are. An older
//! snapshot is refused, because nothing covers the numbers between it and the queue.
//!
//! *Late join.* The first live packet is not the first of the week: [`Recovery::gap`] opens the
//! queue, every book is hurt by its first update, and the loop of snapshots heals them. *Overflow.*
//! The oldest packets leave the queue, which is counted; a later snapshot covers what is left.
//! *End.* The queue closes when as many snapshots as a loop has were seen since the last hole, and
//! no book is stale or unconfirmed. Then leave the snapshot group: [`Recovery::wants_snapshots`].
//!
//! The machine does no I/O. The snapshot feed has its own numbers and its own
//! [`crate::AbChannel`]; what that delivers is given here, so that a forged or doubtful packet of
//! either feed has ended there.

use std::collections::VecDeque;

use super::Mdp3;
use super::layout::{Snapshot, split_head};
use crate::book::{Books, DepthBooks};
use crate::codec::{Decoder, MessageCounts};
use crate::event::Event;
use crate::sequence::Gap;
use crate::units::Symbol;

/// The limits of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// Bytes of live messages that are queued at most. Too few, and no snapshot of a slow loop
    /// reaches the queue. By default 64 MiB: a minute at CME's busiest second.
    pub queue_len_max: usize,
    /// Messages that are queued at most. By default 1,048,576.
    pub messages_max: usize,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self { queue_len_max: 64 << 20, messages_max: 1 << 20 }
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
    /// Snapshots from before the queue: later ones of the same instrument will do.
    pub too_old: u64,
    /// Messages of the snapshot feed that are no snapshots of books, or broken.
    pub ignored: u64,
    /// Whole loops of snapshots.
    pub loops: u64,
    /// Times that the queue closed with all books whole.
    pub completed: u64,
}

/// The queue of live messages, and the rules for it. [`Recovery::new`] allocates its memory.
#[derive(Debug)]
pub struct Recovery {
    config: RecoveryConfig,
    /// The messages one behind the other, the oldest first.
    bytes: VecDeque<u8>,
    messages: VecDeque<Queued>,
    /// Where the next message begins, counted from the first that was ever queued.
    end: u64,
    /// Every live packet from this number on is in the queue.
    covers_from: u64,
    is_open: bool,
    /// Snapshots of use since the last hole.
    seen: u32,
    codec: Mdp3,
    counts: RecoveryCounts,
}

/// A message in the queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    /// The number of its packet.
    seq: u64,
    begin: u64,
}

impl Recovery {
    /// A recovery that nothing was lost of yet: books without an update are as they are.
    pub fn new(config: RecoveryConfig) -> Self {
        Self {
            bytes: VecDeque::with_capacity(config.queue_len_max),
            messages: VecDeque::with_capacity(config.messages_max),
            config,
            end: 0,
            covers_from: 0,
            is_open: false,
            seen: 0,
            codec: Mdp3,
            counts: RecoveryCounts::default(),
        }
    }

    /// A message of the live feed, in order, from packet `seq`: into the books, and into the queue
    /// while it is open. Closed, the queue costs a compare.
    #[inline]
    pub fn live(&mut self, seq: u64, message: &[u8], books: &mut DepthBooks, counts: &mut MessageCounts) {
        let mut is_reset = false;
        self.codec.decode_all(message, counts, &mut |event| {
            is_reset |= matches!(event, Event::Clear(_));
            books.apply(event);
        });
        if is_reset {
            return self.close();
        }
        if self.is_open {
            return self.queue(seq, message);
        }
        if books.stale_count() > 0 {
            // Nothing before this message is queued.
            self.open(seq + 1);
        }
    }

    /// Packets of the live feed are missing on all lines.
    pub fn gap(&mut self, gap: Gap, books: &mut DepthBooks) {
        books.mark_stale();
        // What was queued before the hole does not reach over it.
        self.open(gap.to.saturating_add(1));
    }

    /// The live feed restarts, as each week: the books are empty and the queue is closed.
    pub fn restart(&mut self, books: &mut DepthBooks) {
        books.clear();
        self.close();
    }

    /// A message of the snapshot feed. One that cannot help costs its header.
    pub fn snapshot(&mut self, message: &[u8], books: &mut DepthBooks, counts: &mut MessageCounts) {
        let root = match split_head(message) {
            Ok((head, body)) if head.template == Snapshot::ID => Snapshot::parse(head, body).ok().map(|it| it.root),
            _ => None,
        };
        let Some(root) = root.filter(|_| self.is_open) else {
            self.counts.ignored += 1;
            return;
        };
        let last_seq = u64::from(root.last_seq.get());
        if last_seq + 1 < self.covers_from {
            self.counts.too_old += 1;
            return;
        }
        let unneeded = books.depth_counts().snapshots_unneeded;
        self.codec.decode_all(message, counts, &mut |event| {
            books.apply(event);
        });
        self.counts.applied += 1;
        if books.depth_counts().snapshots_unneeded == unneeded {
            self.replay(last_seq, Symbol::from_number(root.security_id.get() as u32 as u64), books);
        }
        self.seen += 1;
        if self.seen >= root.reports_total.get() {
            self.counts.loops += 1;
            self.seen = 0;
            if books.are_sure() {
                self.counts.completed += 1;
                self.close();
            }
        }
    }

    /// Packets of the snapshot feed are missing: the loop is counted anew.
    pub fn snapshot_gap(&mut self) {
        self.seen = 0;
    }

    /// Whether snapshots are of use: while not, leave their group.
    pub const fn wants_snapshots(&self) -> bool {
        self.is_open
    }

    /// Messages in the queue.
    pub fn queued_count(&self) -> usize {
        self.messages.len()
    }

    /// The counts so far.
    pub const fn counts(&self) -> &RecoveryCounts {
        &self.counts
    }

    #[cold]
    fn open(&mut self, covers_from: u64) {
        self.close();
        (self.is_open, self.covers_from) = (true, covers_from);
    }

    fn close(&mut self) {
        self.bytes.clear();
        self.messages.clear();
        (self.is_open, self.seen) = (false, 0);
    }

    fn queue(&mut self, seq: u64, message: &[u8]) {
        let RecoveryConfig { queue_len_max, messages_max } = self.config;
        while self.bytes.len() + message.len() > queue_len_max || self.messages.len() >= messages_max {
            let Some(oldest) = self.messages.pop_front() else { break };
            let next = self.messages.front().map_or(self.end, |next| next.begin);
            self.bytes.drain(..(next - oldest.begin) as usize);
            self.covers_from = oldest.seq + 1;
            self.counts.overflowed += 1;
        }
        if message.len() > queue_len_max || messages_max == 0 {
            self.counts.overflowed += 1;
            self.covers_from = seq + 1;
            return;
        }
        self.messages.push_back(Queued { seq, begin: self.end });
        self.bytes.extend(message);
        self.end += message.len() as u64;
        self.counts.queued += 1;
    }

    /// Applies what was queued behind packet `last_seq` to one book. The others have it.
    fn replay(&mut self, last_seq: u64, symbol: Symbol, books: &mut DepthBooks) {
        let first = self.messages.partition_point(|queued| queued.seq <= last_seq);
        let Some(base) = self.messages.front().map(|queued| queued.begin) else { return };
        // These messages were counted when they were live.
        let mut counted = MessageCounts::new();
        let bytes = self.bytes.make_contiguous();
        let ends = self.messages.iter().skip(first + 1).map(|queued| queued.begin).chain([self.end]);
        for (queued, end) in self.messages.iter().skip(first).zip(ends) {
            let message = &bytes[(queued.begin - base) as usize..(end - base) as usize];
            self.codec.decode_all(message, &mut counted, &mut |event| {
                if is_about(event, symbol) {
                    books.apply(event);
                }
            });
        }
    }
}

/// Whether an event changes the book, or counts in the numbers, of `symbol`, or ends an event.
fn is_about(event: &Event, symbol: Symbol) -> bool {
    let of = match event {
        Event::Depth(depth) => depth.symbol,
        Event::Numbered(numbered) => numbered.symbol,
        Event::TradeSummary(trade) => trade.symbol,
        Event::BookReset(reset) => reset.symbol,
        Event::EndOfEvent(_) => return true,
        _ => return false,
    };
    of == symbol
}

#[cfg(test)]
mod tests;
