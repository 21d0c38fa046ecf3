//! Recovery of a channel from its snapshots, without leaving the live feed.
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
//! *Loops without a total.* A feed may not say how many instruments a loop has, and then says where
//! a loop begins: those of the loop before are all there are, where none of its packets is known to
//! be missing, and two loops have as many.
//!
//! *Several messages.* A snapshot of many orders comes in several messages, and live ones of its
//! instrument come between them. So they are kept until the last order is there, and then applied
//! at once. Those of a snapshot that lost one are given up.
//!
//! The machine does no I/O, and takes the messages of the snapshot feed as they are: what brings
//! them judges their packets, whose numbers begin anew with each loop: [`super::LoopLines`].

use super::assembly::{Assembly, Step};
use super::{LoopFeed, SnapshotHead, SnapshotPart};
use crate::book::{Change, HealingBooks};
use crate::codec::MessageCounts;
use crate::event::{self, Event};
use crate::framing::Session;
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
    /// Snapshots of another session than the live feed's: from before the numbers began anew.
    pub other_session: u64,
    /// Snapshots of which messages were lost, or that were longer than the memory for one.
    pub incomplete: u64,
    /// Messages of the snapshot feed that are no snapshots of books, or broken, or orders of a
    /// snapshot that is of no use.
    pub ignored: u64,
    /// Times that a snapshot of each instrument was seen.
    pub loops: u64,
    /// Times that the queue closed with all books whole.
    pub completed: u64,
}

impl RecoveryCounts {
    /// Snapshots of books that were of no use.
    pub const fn refused(&self) -> u64 {
        self.too_old + self.too_far + self.doubtful + self.too_early + self.other_session + self.incomplete
    }
}

/// The queue of live messages, and the rules for it. [`Recovery::new`] allocates its memory.
#[derive(Debug)]
pub struct Recovery<C> {
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
    assembly: Assembly,
    /// Of the last live packet that was queued.
    session: Session,
    /// What the messages of the loop have said so far.
    place: C,
    codec: C,
    counts: RecoveryCounts,
    /// For messages that were counted when they were live.
    uncounted: MessageCounts,
}

impl<C: LoopFeed> Recovery<C> {
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
            assembly: Assembly::new(C::SNAPSHOT_LEN_MAX),
            session: Session::default(),
            place: C::default(),
            codec: C::default(),
            counts: RecoveryCounts::default(),
            uncounted: MessageCounts::new(),
        }
    }

    /// Bytes that [`Recovery::new`] allocates.
    pub const fn memory(config: RecoveryConfig) -> u128 {
        LiveQueue::memory(config.queue_len_max, config.messages_max)
            + SeenBooks::memory(config.books_max)
            + C::SNAPSHOT_LEN_MAX as u128
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

    /// The session of the live messages that follow: a snapshot that names another one is from
    /// before the numbers began anew.
    #[inline]
    pub const fn session(&mut self, session: Session) {
        self.session = session;
    }

    /// Packets of the live feed are missing on all lines, and the books are marked so.
    pub fn gap(&mut self, gap: Gap) {
        // What was queued before the hole does not reach over it.
        self.open(gap.to.saturating_add(1));
    }

    /// The live feed restarts, as each week: the books are empty, or nobody knows what they have.
    pub fn restart(&mut self) {
        self.place = C::default();
        if C::RESTARTS_EMPTY { self.close() } else { self.open(1) }
    }

    /// What a message of the snapshot feed, of the loop's packet `packet`, is for books of this
    /// kind.
    pub fn part<B: HealingBooks>(&mut self, packet: u64, message: &[u8]) -> SnapshotPart {
        self.place.part(packet, message, B::BY_ORDER)
    }

    /// A message of the snapshot feed that is this `part` of it, of the loop's packet `packet`. One
    /// that cannot help costs its header, and one of a snapshot that is not whole yet a copy.
    /// Passes the events of a snapshot, and their effects, to `each`, with the number of its last
    /// live packet. Where it makes a book anew, the events of that book that were queued behind it
    /// follow, each with the number of its packet, so that books elsewhere become the same; and the
    /// end of the snapshot once more: with the last event the book is as of now.
    pub fn take<B: HealingBooks>(
        &mut self,
        part: SnapshotPart,
        (packet, message): (u64, &[u8]),
        books: &mut B,
        counts: &mut MessageCounts,
        each: impl FnMut(u64, &Event, Option<Change>, &B),
    ) {
        match part {
            SnapshotPart::LoopStart { before } if self.is_open => {
                self.counts.incomplete += u64::from(self.assembly.give_up());
                if before.is_some_and(|total| self.seen.are_all_of(total)) {
                    self.end_loop(books);
                }
            }
            SnapshotPart::Head(head) if self.is_open => {
                self.counts.incomplete += u64::from(self.assembly.give_up());
                match (self.is_of_use(&head), head.orders) {
                    (false, _) => {}
                    (true, 0) => self.apply(&head, core::iter::once(message), books, counts, each),
                    (true, _) => self.assembly.begin(head, packet, message),
                }
            }
            SnapshotPart::Orders { symbol, count } if self.is_open => {
                match self.assembly.add(symbol, count, packet, message) {
                    // While it came, the queue may have lost what is behind it.
                    Step::Whole(head) if self.is_of_use(&head) => self.apply_assembled(&head, books, counts, each),
                    Step::Whole(_) | Step::Begun => {}
                    Step::Broken => self.counts.incomplete += 1,
                    Step::Stray => self.counts.ignored += 1,
                }
            }
            _ => self.counts.ignored += 1,
        }
    }

    /// A message of the snapshot feed, of the loop's packet `packet`: [`Recovery::part`], and then
    /// [`Recovery::take`].
    pub fn snapshot<B: HealingBooks>(
        &mut self,
        packet: u64,
        message: &[u8],
        books: &mut B,
        counts: &mut MessageCounts,
        each: impl FnMut(u64, &Event, Option<Change>, &B),
    ) {
        let part = self.part::<B>(packet, message);
        self.take(part, (packet, message), books, counts, each);
    }

    /// Whether the queue reaches back to the snapshot, and is short enough. Counts why not.
    fn is_of_use(&mut self, head: &SnapshotHead) -> bool {
        let last_seq = head.last_seq;
        let refused = if head.session.is_some_and(|session| session != self.session) {
            &mut self.counts.other_session
        } else if last_seq.saturating_add(1) < self.covers_from {
            &mut self.counts.too_old
        } else if last_seq > self.live_next.saturating_add(self.distance_max) {
            &mut self.counts.doubtful
        } else if last_seq >= self.live_next {
            &mut self.counts.too_early
        } else if self.queue.behind(last_seq).len() > self.replay_max {
            &mut self.counts.too_far
        } else {
            return true;
        };
        *refused += 1;
        false
    }

    fn apply_assembled<B: HealingBooks>(
        &mut self,
        head: &SnapshotHead,
        books: &mut B,
        counts: &mut MessageCounts,
        each: impl FnMut(u64, &Event, Option<Change>, &B),
    ) {
        // The messages are taken out for a moment, because the rest of the machine is in use.
        let assembly = core::mem::take(&mut self.assembly);
        self.apply(head, assembly.messages(), books, counts, each);
        self.assembly = assembly;
    }

    /// Applies a snapshot that is whole, and what is queued behind it.
    fn apply<'a, B: HealingBooks>(
        &mut self,
        head: &SnapshotHead,
        messages: impl Iterator<Item = &'a [u8]>,
        books: &mut B,
        counts: &mut MessageCounts,
        mut each: impl FnMut(u64, &Event, Option<Change>, &B),
    ) {
        let SnapshotHead { last_seq, total, symbol, orders, is_last_part, .. } = *head;
        books.announce(orders);
        let (queue, codec, uncounted) = (&self.queue, &mut self.codec, &mut self.uncounted);
        let (mut adopted, mut state, mut all_state) = (false, None, None);
        let mut snapshots = self.place.clone();
        for message in messages {
            snapshots.decode_all(message, counts, &mut |event| {
                let change = match event {
                    // The live feed may be within an event, which this one would end.
                    Event::EndOfEvent(_) => return,
                    // Of a book that needs no snapshot it is older than what the live feed has
                    // said.
                    Event::Status(status) if status.symbol == Symbol::NONE => return all_state = Some(*status),
                    Event::Status(status) => return state = Some(*status),
                    Event::SnapshotEnd(_) => {
                        books.apply(event);
                        books.adopted().map(|book| {
                            adopted = true;
                            books.publish_book(book);
                            for status in [all_state.take(), state.take()].into_iter().flatten() {
                                each(last_seq, &Event::Status(status), None, books);
                            }
                            if queue.behind(last_seq).len() > 0 {
                                each(last_seq, event, None, books);
                                replay(queue, last_seq, symbol, books, codec, uncounted, &mut each);
                            }
                            Change { book, is_top: true }
                        })
                    }
                    _ => books.apply(event),
                };
                if books.tells_snapshot() {
                    each(last_seq, event, change, books);
                }
            });
        }
        self.counts.applied += 1;
        self.counts.adopted += u64::from(adopted);
        if !is_last_part {
            return;
        }
        self.seen.insert(books.find(symbol));
        if total.is_some_and(|total| self.seen.are_all_of(total)) {
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
        self.assembly.give_up();
        self.is_open = false;
    }

    #[cold]
    fn queue(&mut self, seq: u64, message: &[u8]) {
        if C::empties_books(message) {
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
fn replay<C: LoopFeed, B: HealingBooks>(
    queue: &LiveQueue,
    last_seq: u64,
    symbol: Symbol,
    books: &mut B,
    codec: &mut C,
    uncounted: &mut MessageCounts,
    each: &mut impl FnMut(u64, &Event, Option<Change>, &B),
) {
    let Some(book) = books.find(symbol) else { return };
    for (seq, message) in queue.behind(last_seq).filter(|(_, message)| C::is_about(message, symbol)) {
        codec.decode_all(message, uncounted, &mut |event| {
            match event {
                Event::EndOfEvent(_) => books.publish_book(book),
                Event::Other(_) => {}
                Event::Status(status) if status.symbol == Symbol::NONE => {
                    // The others may have been told a later state of their own.
                    let symbol = if status.operational { Symbol::NONE } else { symbol };
                    each(seq, &Event::Status(event::Status { symbol, ..*status }), None, books);
                }
                // The others were told when it arrived.
                Event::GroupStatus(status) => {
                    each(seq, &Event::GroupStatus(event::GroupStatus { symbol, ..*status }), None, books);
                }
                // An order is named by its reference alone, in a message about one instrument.
                _ if event.symbol().is_none_or(|of| of == symbol) => {
                    let change = books.apply(event);
                    each(seq, event, change, books);
                }
                _ => {}
            }
        });
    }
}

#[cfg(test)]
mod tests;
