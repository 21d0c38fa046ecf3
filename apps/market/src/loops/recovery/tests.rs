use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::book::{Books, DEPTH_MAX, DepthBooks, Trust};
use crate::codec::Decoder;
use crate::event::{Clear, Instrument, Liquidity, Numbered};
use crate::mdp3::layout::{
    BookEntry, BookRoot, ChannelReset, ChannelResetRoot, SecurityStatusRoot, SnapshotEntry, SnapshotRoot, emit_head,
};
use crate::mdp3::{Mdp3, emit};
use crate::sbe::{Block, emit_block};
use crate::units::{Price9, Side};

const INSTRUMENTS: i32 = 3;
/// Where a snapshot has the state of its instrument.
const STATE_AT: usize = 8 + core::mem::offset_of!(SnapshotRoot, trading_status);

fn symbol(id: i32) -> Symbol {
    Symbol::from_number(id as u32 as u64)
}

/// Books of instruments that are defined.
fn books() -> DepthBooks {
    let mut books = DepthBooks::new(8);
    for id in 0..INSTRUMENTS {
        books.apply(&definition(id));
    }
    books
}

fn definition(id: i32) -> Event {
    let (symbol, tick, name, group) = (symbol(id), Price9(1), Symbol::NONE, Symbol::NONE);
    let (depth, implied_depth, action, total, at_ns) = (DEPTH_MAX as u8, 0, b'A', 0, 0);
    Event::Instrument(Instrument { depth, implied_depth, action, total, at_ns, symbol, tick, name, group })
}

/// A message about an instrument, of no level.
fn traded(id: i32) -> Event {
    Event::Numbered(Numbered { kind: 49, rpt_seq: 1, at_ns: 0, symbol: symbol(id) })
}

/// The venue: it knows all books, and writes messages as it would.
struct Venue {
    books: DepthBooks,
    rpt_seq: [u32; INSTRUMENTS as usize],
    counts: MessageCounts,
}

impl Venue {
    fn new() -> Self {
        Self { books: books(), rpt_seq: [0; INSTRUMENTS as usize], counts: MessageCounts::new() }
    }

    /// A message that changes the best bid of an instrument: a new level, or the best is gone.
    fn update(&mut self, id: i32, price: i64) -> Vec<u8> {
        self.rpt_seq[id as usize] += 1;
        let is_there = self.bids(id).is_some_and(|bids| !bids.is_empty());
        let action = if is_there && price % 3 == 0 { 2 } else { 0 };
        let entry = BookEntry {
            price: price.into(),
            size: 1.into(),
            security_id: id.into(),
            rpt_seq: self.rpt_seq[id as usize].into(),
            level: 1,
            action,
            entry_type: b'0',
            ..BookEntry::NULL
        };
        let mut message = Vec::new();
        emit::book(&BookRoot { transact_time: 1.into(), event_end: 0x80 }, &[entry], &mut message);
        let books = &mut self.books;
        Mdp3.decode_all(&message, &mut self.counts, &mut |event| {
            books.apply(event);
        });
        message
    }

    fn bids(&self, id: i32) -> Option<Vec<(i64, u64)>> {
        bids(&self.books, id)
    }

    /// The book of an instrument as of live packet `last_seq`, the one that was sent last.
    fn snapshot(&self, id: i32, last_seq: u64) -> Vec<u8> {
        let root = SnapshotRoot {
            last_seq: (last_seq as u32).into(),
            reports_total: (INSTRUMENTS as u32).into(),
            security_id: id.into(),
            rpt_seq: self.rpt_seq[id as usize].into(),
            ..SnapshotRoot::NULL
        };
        let level = |(idx, (price, qty)): (usize, (i64, u64))| SnapshotEntry {
            price: price.into(),
            size: (qty as i32).into(),
            level: idx as i8 + 1,
            entry_type: b'0',
            ..SnapshotEntry::NULL
        };
        let entries: Vec<_> = self.bids(id).unwrap_or_default().into_iter().enumerate().map(level).collect();
        let mut message = Vec::new();
        emit::snapshot(&root, &entries, &mut message);
        message
    }
}

fn bids(books: &DepthBooks, id: i32) -> Option<Vec<(i64, u64)>> {
    let book = books.find(symbol(id))?;
    Some(books.depth(book, Liquidity::Direct, Side::Buy).iter().map(|level| (level.price.0, level.qty)).collect())
}

/// A receiver of the live feed, with its recovery.
struct Receiver {
    books: DepthBooks,
    recovery: Recovery<Mdp3>,
    counts: MessageCounts,
    next: u64,
}

impl Receiver {
    fn new(config: RecoveryConfig) -> Self {
        let (books, counts) = (books(), MessageCounts::new());
        Self { books, recovery: Recovery::new(config), counts, next: 1 }
    }

    fn live(&mut self, seq: u64, message: &[u8]) {
        if seq > self.next {
            self.books.mark_stale();
            self.recovery.gap(Gap { from: self.next, to: seq - 1 });
        }
        self.next = seq + 1;
        let books = &mut self.books;
        Mdp3.decode_all(message, &mut self.counts, &mut |event| {
            books.apply(event);
        });
        self.recovery.live(seq, message, &self.books);
    }

    fn snapshot(&mut self, message: &[u8]) {
        self.recovery.snapshot(0, message, &mut self.books, &mut self.counts, |_, _, _, _| ());
    }

    fn trust(&self, id: i32) -> Option<Trust> {
        self.books.find(symbol(id)).map(|book| self.books.trust(book))
    }
}

fn small() -> RecoveryConfig {
    RecoveryConfig { queue_len_max: 4_096, messages_max: 16, ..RecoveryConfig::default() }
}

#[test]
fn hurt_book_is_the_snapshot_and_what_was_queued_behind_it() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    receiver.live(1, &venue.update(0, 100));
    let _lost = venue.update(0, 101);
    receiver.live(3, &venue.update(0, 103));
    assert_eq!(receiver.trust(0), Some(Trust::Stale));
    let snapshot = venue.snapshot(0, 3);
    receiver.live(4, &venue.update(0, 104));
    receiver.live(5, &venue.update(1, 200));
    receiver.snapshot(&snapshot);
    assert_eq!(receiver.trust(0), Some(Trust::Sure));
    assert_eq!(bids(&receiver.books, 0), venue.bids(0));
    receiver.live(6, &venue.update(0, 106));
    assert_eq!((receiver.trust(0), bids(&receiver.books, 0)), (Some(Trust::Sure), venue.bids(0)));
}

#[test]
fn books_that_are_built_from_the_told_events_are_healed_too() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    let mut elsewhere = books();
    let mut counts = MessageCounts::new();
    let mut snapshot = Vec::new();
    for seq in 1..=5 {
        let message = venue.update(0, 100 + seq);
        if seq == 3 {
            snapshot = venue.snapshot(0, 3);
        }
        if seq != 2 {
            receiver.live(seq as u64, &message);
            Mdp3.decode_all(&message, &mut counts, &mut |event| _ = elsewhere.apply(event));
        }
    }
    receiver.recovery.snapshot(0, &snapshot, &mut receiver.books, &mut receiver.counts, |_, event, _, _| {
        elsewhere.apply(event);
    });
    let last = venue.update(0, 110);
    Mdp3.decode_all(&last, &mut counts, &mut |event| _ = elsewhere.apply(event));
    assert_eq!(elsewhere.trust(elsewhere.find(symbol(0)).unwrap()), Trust::Sure);
    assert_eq!(bids(&elsewhere, 0), venue.bids(0));
}

#[test]
fn snapshot_from_before_the_hole_is_refused() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    receiver.live(1, &venue.update(0, 100));
    let early = venue.snapshot(0, 1);
    let _lost = venue.update(0, 101);
    let border = venue.snapshot(0, 2);
    receiver.live(3, &venue.update(0, 103));
    receiver.snapshot(&early);
    assert_eq!((receiver.recovery.counts().too_old, receiver.trust(0)), (1, Some(Trust::Stale)));
    // The last packet in it is the last one that was lost: the queue begins right behind.
    receiver.snapshot(&border);
    assert_eq!((receiver.trust(0), bids(&receiver.books, 0)), (Some(Trust::Sure), venue.bids(0)));
}

#[test]
fn snapshot_from_far_ahead_of_the_live_feed_is_refused() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    for seq in [1, 3] {
        receiver.live(seq, &venue.update(0, seq as i64));
        venue.update(0, 10);
    }
    receiver.snapshot(&venue.snapshot(0, u32::MAX.into()));
    assert_eq!((receiver.trust(0), receiver.recovery.counts().doubtful), (Some(Trust::Stale), 1));
}

/// A snapshot that claims many more updates of the instrument than there were, and its own bid.
fn forged(last_seq: u64, number: u32) -> Vec<u8> {
    let mut forger = Venue::new();
    forger.update(0, 999);
    forger.rpt_seq[0] = number;
    forger.snapshot(0, last_seq)
}

#[test]
fn forged_snapshot_freezes_no_book() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    receiver.live(1, &venue.update(0, 100));
    let _lost = venue.update(1, 101);
    receiver.live(3, &venue.update(1, 103));
    receiver.snapshot(&forged(3, 1_000_000));
    for seq in 4..14 {
        receiver.live(seq, &venue.update(0, 100 + seq as i64));
    }
    assert_eq!(receiver.trust(0), Some(Trust::Stale), "its numbers go on below the forged one");
    (0..INSTRUMENTS).for_each(|id| receiver.snapshot(&venue.snapshot(id, 13)));
    assert_eq!((receiver.trust(0), bids(&receiver.books, 0)), (Some(Trust::Sure), venue.bids(0)));
}

#[test]
fn forged_snapshot_that_queued_updates_contradict_leaves_its_book_stale() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    receiver.live(1, &venue.update(0, 100));
    let _lost = venue.update(0, 101);
    for seq in 3..6 {
        receiver.live(seq, &venue.update(0, 100 + seq as i64));
    }
    receiver.snapshot(&forged(2, 1_000_000));
    assert_eq!(receiver.trust(0), Some(Trust::Stale));
}

#[test]
fn snapshot_of_a_packet_that_is_still_to_come_waits_for_the_next_loop() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    let _lost = venue.update(0, 100);
    receiver.live(2, &venue.update(0, 101));
    let later = venue.update(0, 103);
    let snapshot = venue.snapshot(0, 3);
    receiver.snapshot(&snapshot);
    assert_eq!((receiver.recovery.counts().too_early, receiver.trust(0)), (1, Some(Trust::Stale)));
    receiver.live(3, &later);
    receiver.snapshot(&snapshot);
    assert_eq!((receiver.trust(0), bids(&receiver.books, 0)), (Some(Trust::Sure), venue.bids(0)));
}

#[test]
fn queue_that_overflows_drops_its_oldest_and_waits_for_a_later_snapshot() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(RecoveryConfig { messages_max: 2, ..small() }));
    let _lost = venue.update(0, 100);
    receiver.live(2, &venue.update(0, 101));
    let early = venue.snapshot(0, 1);
    let mut late = Vec::new();
    for seq in 3..=6 {
        late = venue.snapshot(0, seq - 1);
        receiver.live(seq, &venue.update(0, 100 + seq as i64));
    }
    receiver.snapshot(&early);
    assert_eq!(receiver.trust(0), Some(Trust::Stale));
    receiver.snapshot(&late);
    let counts = receiver.recovery.counts();
    assert_eq!((counts.overflowed, counts.too_old, receiver.trust(0)), (3, 1, Some(Trust::Sure)));
    assert_eq!(bids(&receiver.books, 0), venue.bids(0));
}

#[test]
fn snapshot_with_too_many_messages_behind_it_waits_for_a_fresher_one() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(RecoveryConfig { replay_max: 2, ..small() }));
    let _lost = venue.update(0, 100);
    let early = venue.snapshot(0, 1);
    (2..=4).for_each(|seq| receiver.live(seq, &venue.update(0, 100 + seq as i64)));
    receiver.snapshot(&early);
    assert_eq!((receiver.recovery.counts().too_far, receiver.trust(0)), (1, Some(Trust::Stale)));
    let fresh = venue.snapshot(0, 4);
    (5..=6).for_each(|seq| receiver.live(seq, &venue.update(0, 100 + seq as i64)));
    receiver.snapshot(&fresh);
    assert_eq!((receiver.trust(0), bids(&receiver.books, 0)), (Some(Trust::Sure), venue.bids(0)));
}

#[test]
fn healed_book_is_published_and_one_within_an_open_event_is_not() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    let _lost = venue.update(0, 100);
    receiver.live(2, &venue.update(0, 101));
    let snapshot = venue.snapshot(0, 2);
    // The event of instrument 1 goes on in a later packet.
    let mut open = venue.update(1, 200);
    open[8 + 8] = 0;
    receiver.live(3, &open);
    let mut told = Vec::new();
    receiver.recovery.snapshot(0, &snapshot, &mut receiver.books, &mut receiver.counts, |_, event, change, books| {
        told.push((event.symbol() == Some(symbol(0)), change.map(|change| books.exact_top(change.book).bid.price.0)));
    });
    assert_eq!(told.last(), Some(&(true, Some(101))), "the end of the snapshot tells the book as of now");
    let one = receiver.books.find(symbol(1)).unwrap();
    assert_eq!(receiver.books.exact_top(one).bid.qty, 0, "its event is open");
}

#[test]
fn queue_closes_when_a_whole_loop_has_healed_or_confirmed_all_books() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    (0..INSTRUMENTS).for_each(|id| receiver.live(1 + id as u64, &venue.update(id, 100)));
    assert!(!receiver.recovery.wants_snapshots());
    let _lost = venue.update(1, 101);
    receiver.live(5, &venue.update(0, 103));
    assert_eq!([0, 1, 2].map(|id| receiver.trust(id)), [Trust::Sure, Trust::Unconfirmed, Trust::Unconfirmed].map(Some));
    for id in 0..INSTRUMENTS {
        assert!(receiver.recovery.wants_snapshots());
        receiver.snapshot(&venue.snapshot(id, 5));
    }
    assert!(!receiver.recovery.wants_snapshots() && receiver.recovery.queued_count() == 0);
    assert_eq!([0, 1, 2].map(|id| receiver.trust(id)), [Some(Trust::Sure); 3]);
    assert_eq!(bids(&receiver.books, 1), venue.bids(1), "its lost update was its last");
}

#[test]
fn instrument_that_a_loop_has_lost_is_seen_in_a_later_one_and_none_counts_twice() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    let _lost = venue.update(0, 101);
    receiver.live(2, &venue.update(1, 103));
    // The packet with instrument 1 is lost, and the other line brings another one twice.
    for id in [0, 2, 2, 0, 2] {
        receiver.snapshot(&venue.snapshot(id, 2));
        assert!(receiver.recovery.wants_snapshots(), "instrument 1 was not seen");
    }
    receiver.snapshot(&venue.snapshot(1, 2));
    assert!(!receiver.recovery.wants_snapshots());
    assert_eq!(receiver.recovery.counts().loops, 1);
}

#[test]
fn snapshot_that_claims_to_be_the_only_one_of_its_loop_ends_no_loop() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    let _lost = venue.update(0, 101);
    receiver.live(2, &venue.update(0, 103));
    let mut forged = venue.snapshot(0, 2);
    forged[8 + 4..8 + 8].copy_from_slice(&1_u32.to_le_bytes());
    receiver.snapshot(&forged);
    assert!(receiver.recovery.wants_snapshots(), "no second one says so");
}

#[test]
fn book_without_a_snapshot_and_without_an_update_is_sure_after_a_whole_loop() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    // It traded last week, and is in no loop of this one.
    receiver.books.apply(&traded(99));
    receiver.books.apply(&Event::Clear(Clear { at_ns: 0 }));
    let _lost = venue.update(0, 101);
    receiver.live(2, &venue.update(0, 103));
    assert_eq!(receiver.trust(99), Some(Trust::Unconfirmed));
    (0..INSTRUMENTS).for_each(|id| receiver.snapshot(&venue.snapshot(id, 2)));
    assert_eq!(receiver.trust(99), Some(Trust::Sure));
    assert!(!receiver.recovery.wants_snapshots());
}

#[test]
fn instrument_that_has_left_the_loop_keeps_no_queue_open() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    receiver.books.apply(&traded(99));
    let _lost = venue.update(0, 101);
    receiver.live(2, &venue.update(0, 103));
    let whole_loop =
        |receiver: &mut Receiver| (0..INSTRUMENTS).for_each(|id| receiver.snapshot(&venue.snapshot(id, 2)));
    whole_loop(&mut receiver);
    assert!(receiver.recovery.wants_snapshots(), "a loop may have begun before it was listed");
    whole_loop(&mut receiver);
    assert!(!receiver.recovery.wants_snapshots());
    assert_eq!(receiver.trust(99), Some(Trust::Sure));
}

#[test]
fn snapshots_of_instruments_without_a_book_confirm_no_other() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    // As many instruments as there are places, and two of the venue's have none.
    receiver.books = DepthBooks::new(2);
    [0, 99].iter().for_each(|id| _ = receiver.books.apply(&traded(*id)));
    receiver.books.apply(&Event::Clear(Clear { at_ns: 0 }));
    assert_eq!([1, 2].map(|id| receiver.trust(id)), [None; 2]);
    let _lost = venue.update(0, 101);
    receiver.live(2, &venue.update(0, 103));
    (0..2 * INSTRUMENTS).for_each(|_| receiver.snapshot(&venue.snapshot(1, 2)));
    assert_eq!(receiver.trust(99), Some(Trust::Unconfirmed), "nobody knows whether the loop was whole");
    assert!(receiver.recovery.wants_snapshots());
}

#[test]
fn reset_of_the_channel_closes_the_queue_with_empty_books() {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    let _lost = venue.update(0, 100);
    receiver.live(2, &venue.update(0, 101));
    let mut reset = emit_head(ChannelReset::ID, ChannelResetRoot::BLOCK_LEN as u16).to_vec();
    emit_block(&ChannelResetRoot::NULL, ChannelResetRoot::BLOCK_LEN, &mut reset);
    reset.extend([2, 0, 0]);
    receiver.live(3, &reset);
    assert!(!receiver.recovery.wants_snapshots());
    assert_eq!(bids(&receiver.books, 0), Some(Vec::new()));
}

proptest! {
    /// Whatever is lost of either feed, no book that is trusted differs from the venue's, and when
    /// the losses are over a whole loop makes all books the venue's.
    #[test]
    fn trusted_books_are_the_venues(
        updates in prop::collection::vec((0..INSTRUMENTS, 1_i64..1_000, prop::bool::weighted(0.8), 0_u8..4), 1..120),
        messages_max in 1_usize..40,
    ) {
        let config = RecoveryConfig { messages_max, ..small() };
        let (mut venue, mut receiver) = (Venue::new(), Receiver::new(config));
        let mut snapshots = VecDeque::new();
        let mut seq = 0;
        for (id, price, arrives, delay) in updates {
            seq += 1;
            let message = venue.update(id, price);
            if arrives {
                receiver.live(seq, &message);
            }
            // The loop of snapshots is behind the live feed.
            snapshots.push_back(venue.snapshot(seq as i32 % INSTRUMENTS, seq));
            while snapshots.len() > delay.into() {
                receiver.snapshot(&snapshots.pop_front().unwrap());
            }
            for id in 0..INSTRUMENTS {
                if receiver.next == seq + 1 && receiver.trust(id) == Some(Trust::Sure) {
                    let (ours, theirs) = (bids(&receiver.books, id), venue.bids(id));
                    prop_assert_eq!(ours.unwrap_or_default(), theirs.unwrap_or_default(), "instrument {}", id);
                }
            }
        }
        receiver.live(seq + 1, &venue.update(0, 1));
        snapshots.iter().for_each(|snapshot| receiver.snapshot(snapshot));
        for turn in (seq + 1..).take(2 * INSTRUMENTS as usize) {
            receiver.snapshot(&venue.snapshot(turn as i32 % INSTRUMENTS, seq + 1));
        }
        prop_assert!(!receiver.recovery.wants_snapshots());
        for id in 0..INSTRUMENTS {
            prop_assert_eq!(bids(&receiver.books, id).unwrap_or_default(), venue.bids(id).unwrap_or_default());
            prop_assert!(receiver.trust(id).is_none_or(|trust| trust == Trust::Sure));
        }
    }
}

/// What the live feed said behind the snapshot is newer, and so is all that it said of a book which
/// needs no snapshot.
#[test]
fn state_of_a_snapshot_is_told_where_the_book_takes_it_and_no_later_one_is_lost() {
    let state = |id: Option<i32>, trading_status| {
        let null = SecurityStatusRoot { security_group: *b"ES    ", ..SecurityStatusRoot::NULL };
        let security_id = id.map_or(null.security_id, Into::into);
        let root = SecurityStatusRoot { security_id, trading_status, ..null };
        let mut message = Vec::new();
        emit::security_status(&root, &mut message);
        message
    };
    let trading = |venue: &Venue, id, last_seq| {
        let mut message = venue.snapshot(id, last_seq);
        message[STATE_AT] = 17;
        message
    };
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(small()));
    receiver.live(1, &venue.update(1, 100));
    let _lost = venue.update(0, 100);
    receiver.live(3, &venue.update(0, 101));
    let snapshots = [trading(&venue, 0, 3), trading(&venue, 1, 3)];
    receiver.live(4, &state(Some(0), 2));
    receiver.live(5, &state(None, 4));
    receiver.live(6, &venue.update(1, 101));
    let mut told = Vec::new();
    for snapshot in snapshots {
        receiver.recovery.snapshot(
            0,
            &snapshot,
            &mut receiver.books,
            &mut receiver.counts,
            |_, event, _, _| match event {
                Event::Status(status) => told.push((status.symbol, status.state)),
                Event::GroupStatus(status) => told.push((status.symbol, status.state)),
                _ => (),
            },
        );
    }
    assert_eq!(told, [(symbol(0), 17), (symbol(0), 2), (symbol(0), 4)], "the last is its group's");
}
