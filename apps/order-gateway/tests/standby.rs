//! A primary and its standby in virtual time: clocks at other rates, delays, lines that break,
//! processes that die.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::collections::VecDeque;

use order_entry::journal::{Journal, Records, Stamp};
use order_gateway::standby::{Followed, Follower, Primary, PrimaryEvent};

const LEASE_NS: u64 = 1_000_000_000;
const STEP_NS: u64 = 5_000_000;
const LEN: usize = 1 << 16;
const NAME: u64 = 77;
/// Of a record with the number of a message.
const KIND: u16 = 11;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Bytes on their way, with the time of their arrival.
type Pipe = VecDeque<(u64, Vec<u8>)>;

/// A primary, a standby, and the line between them.
struct World {
    random: Random,
    now_ns: u64,
    /// How many of 100 ns pass on each side while 100 ns pass.
    rates: [u64; 2],
    journal: Journal<Vec<u8>>,
    primary: Primary,
    named: u64,
    standby: Follower<Vec<u8>>,
    has_taken_over: bool,
    is_connected: bool,
    is_cut: bool,
    to_standby: Pipe,
    to_primary: Pipe,
    /// The journal's end at the last byte that left for the venue.
    sent_end: usize,
    /// The journal's end when bytes began to wait for their records.
    barrier: Option<usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed * 2 + 1);
        let rates = [95 + random.below(11), 95 + random.below(11)];
        Self {
            rates,
            random,
            now_ns: 0,
            journal: Journal::create(vec![0; LEN], 5, 0, 0).unwrap(),
            primary: Primary::new(LEASE_NS, 0),
            named: 0,
            standby: Follower::new(NAME, vec![0; LEN]).unwrap(),
            has_taken_over: false,
            is_connected: false,
            is_cut: false,
            to_standby: Pipe::new(),
            to_primary: Pipe::new(),
            sent_end: 0,
            barrier: None,
        }
    }

    fn clock(&self, side: usize) -> u64 {
        1_000_000_000 + self.now_ns / 100 * self.rates[side]
    }

    fn disconnect(&mut self) {
        self.is_connected = false;
        self.primary.disconnected();
        self.to_standby.clear();
        self.to_primary.clear();
    }

    /// A process dies and starts again with what it has written down, or the line changes.
    fn disturb(&mut self) {
        match self.random.below(400) {
            0 => {
                self.disconnect();
                self.primary = Primary::new(LEASE_NS, self.named);
            }
            1 if !self.has_taken_over => {
                self.disconnect();
                let copy = self.standby.journal().map_or(vec![0; LEN], |journal| journal.memory().clone());
                self.standby = Follower::new(NAME, copy).unwrap();
            }
            2..=4 => self.is_cut = !self.is_cut,
            5 => self.disconnect(),
            _ => (),
        }
    }

    fn exchange(&mut self) {
        if !self.is_connected && !self.is_cut && !self.has_taken_over {
            self.is_connected = true;
            self.primary.connected();
            self.standby.connected();
        }
        if !self.is_connected {
            return;
        }
        // A line that is cut delivers late, and in order.
        let late = if self.is_cut { 3 * LEASE_NS } else { 0 };
        let at_ns = self.now_ns + late + self.random.below(LEASE_NS / 10);
        let bytes = self.primary.to_send().to_vec();
        self.primary.sent(bytes.len());
        let at = self.to_standby.back().map_or(0, |(at, _)| *at).max(at_ns);
        self.to_standby.push_back((at, bytes));
        let bytes = self.standby.to_send().to_vec();
        self.standby.sent(bytes.len());
        let at = self.to_primary.back().map_or(0, |(at, _)| *at).max(at_ns);
        self.to_primary.push_back((at, bytes));
        while self.to_standby.front().is_some_and(|(at, _)| *at <= self.now_ns) {
            let (_, bytes) = self.to_standby.pop_front().unwrap();
            self.standby.receive(&bytes, self.clock(1)).unwrap();
        }
        while self.to_primary.front().is_some_and(|(at, _)| *at <= self.now_ns) {
            let (_, bytes) = self.to_primary.pop_front().unwrap();
            assert_eq!(self.primary.receive(&bytes, &self.journal).unwrap(), None);
        }
    }

    /// The primary writes an intent, and sends it when it may.
    fn trade(&mut self) {
        if self.random.below(4) == 0 {
            let _ = self.journal.append(KIND, Stamp::default(), b"an order");
        }
        if !self.primary.may_send(self.clock(0)) {
            return;
        }
        assert!(!self.has_taken_over, "both send");
        let end = *self.barrier.get_or_insert(self.journal.end());
        if self.primary.has(end) {
            (self.sent_end, self.barrier) = (end, None);
        }
    }

    fn step(&mut self) {
        self.now_ns += STEP_NS;
        self.disturb();
        self.exchange();
        if let Some(PrimaryEvent::Attached(id)) = self.primary.poll(self.clock(0), &self.journal) {
            self.named = id;
        }
        self.trade();
        if self.standby.poll(self.clock(1)) == Some(Followed::TakeOver) && !self.has_taken_over {
            self.has_taken_over = true;
            self.disconnect();
            let copy = self.standby.journal().unwrap();
            assert!(copy.end() >= self.sent_end, "the copy lacks what was sent");
            let records = |memory: &Vec<u8>| Records::new(memory).unwrap().count();
            assert!(records(copy.memory()) <= records(self.journal.memory()));
        }
    }
}

#[test]
fn primary_and_standby_never_send_at_once_and_the_copy_has_all_that_was_sent() {
    let (mut taken_over, mut traded) = (0, 0);
    for seed in 0..1_000 {
        let mut world = World::new(seed);
        (0..3_000).for_each(|_| world.step());
        taken_over += u32::from(world.has_taken_over);
        traded += u32::from(world.has_taken_over && world.sent_end > 500);
    }
    assert!(taken_over > 300 && traded > 300, "{taken_over} take-overs, {traded} of them after orders");
}

/// A pair that is attached, at `now_ns`.
fn attached() -> (Journal<Vec<u8>>, Primary, Follower<Vec<u8>>) {
    let mut journal = Journal::create(vec![0; LEN], 5, 0, 0).unwrap();
    journal.append(KIND, Stamp::default(), b"an order").unwrap();
    let (mut primary, mut standby) = (Primary::new(LEASE_NS, 0), Follower::new(NAME, vec![0; LEN]).unwrap());
    primary.connected();
    standby.connected();
    for _ in 0..4 {
        let (to_primary, to_standby) = (standby.to_send().to_vec(), primary.to_send().to_vec());
        standby.sent(to_primary.len());
        primary.sent(to_standby.len());
        assert_eq!(primary.receive(&to_primary, &journal).unwrap(), None);
        standby.receive(&to_standby, LEASE_NS).unwrap();
        primary.poll(LEASE_NS, &journal);
    }
    (journal, primary, standby)
}

#[test]
fn silent_primary_is_replaced_an_eighth_after_its_lease() {
    let (_, primary, mut standby) = attached();
    assert!(primary.may_send(2 * LEASE_NS - 1) && !primary.may_send(2 * LEASE_NS));
    assert_eq!(standby.poll(2 * LEASE_NS + LEASE_NS / 8 - 1), None);
    assert_eq!(standby.poll(2 * LEASE_NS + LEASE_NS / 8), Some(Followed::TakeOver));
}

/// It would take over without them, with other positions than the primary's.
#[test]
fn records_that_the_standby_does_not_know_end_it_before_it_takes_over() {
    let (mut journal, mut primary, mut standby) = attached();
    journal.append(u16::MAX, Stamp::default(), b"of a newer version").unwrap();
    primary.poll(LEASE_NS, &journal);
    let refusal = standby.receive(primary.to_send(), LEASE_NS).unwrap_err();
    assert!(refusal.contains("this program does not know the kinds of 1 of the journal's records"), "{refusal}");
    let copy = standby.journal().unwrap().memory().clone();
    assert!(Follower::new(NAME, copy).is_err());
}

#[test]
fn another_standby_is_refused_before_the_first_has_left() {
    let (journal, mut primary, _) = attached();
    let mut other = Follower::new(NAME + 1, vec![0; LEN]).unwrap();
    primary.connected();
    other.connected();
    assert!(primary.receive(other.to_send(), &journal).unwrap_err().contains("alone"));
    primary.alone();
    assert!(primary.may_send(u64::MAX));
}

#[test]
fn primary_that_restarts_waits_for_the_standby_that_its_journal_names() {
    let mut primary = Primary::new(LEASE_NS, NAME);
    assert!(!primary.may_send(0) && !primary.has(0));
    primary.alone();
    assert!(primary.may_send(0));
}

#[test]
fn standby_takes_over_at_once_when_it_is_told_to_and_the_primary_sends_nothing_more() {
    let (journal, mut primary, mut standby) = attached();
    let len = primary.to_send().len();
    primary.sent(len);
    assert!(!primary.hand_over(2 * LEASE_NS), "its grant is over");
    assert!(primary.hand_over(LEASE_NS));
    assert!(!primary.may_send(LEASE_NS));
    standby.receive(primary.to_send(), LEASE_NS).unwrap();
    assert_eq!(standby.poll(LEASE_NS), Some(Followed::TakeOver));
    assert_eq!(standby.journal().unwrap().end(), journal.end());
}

#[test]
fn standby_that_has_promised_nothing_is_handed_nothing() {
    let (journal, _, mut standby) = attached();
    let len = standby.to_send().len();
    standby.sent(len);
    let mut primary = Primary::new(LEASE_NS, NAME);
    primary.connected();
    standby.connected();
    assert_eq!(primary.receive(standby.to_send(), &journal).unwrap(), None);
    // Where the message were lost, no grant would end, and nobody would trade.
    assert!(!primary.hand_over(LEASE_NS));
}

#[test]
fn primary_and_standby_that_leave_hand_nothing_over() {
    let (journal, mut primary, mut standby) = attached();
    standby.leave();
    assert_eq!(primary.receive(standby.to_send(), &journal).unwrap(), Some(PrimaryEvent::Left));
    assert!(primary.may_send(u64::MAX));
    let (_, mut primary, mut standby) = attached();
    primary.leave();
    standby.receive(primary.to_send(), LEASE_NS).unwrap();
    assert_eq!(standby.poll(u64::MAX), Some(Followed::Ended));
}

/// It would work until it is full, and then the primary would send nothing more.
#[test]
fn standby_with_a_smaller_journal_is_refused_before_it_has_a_record() {
    let journal = Journal::create(vec![0; LEN], 5, 0, 0).unwrap();
    let (mut primary, mut standby) = (Primary::new(LEASE_NS, 0), Follower::new(NAME, vec![0; LEN - 1]).unwrap());
    primary.connected();
    standby.connected();
    let refusal = primary.receive(standby.to_send(), &journal).unwrap_err();
    let sizes = "room for 65535 bytes, and the primary's has 65536";
    assert!(refusal.contains(sizes), "{refusal}");
    assert!(standby.receive(primary.to_send(), LEASE_NS).unwrap_err().contains(sizes), "it is told why");
    assert_eq!((standby.journal().is_none(), standby.poll(u64::MAX)), (true, None));
    assert_eq!(primary.poll(LEASE_NS, &journal), None, "nobody follows");
}

/// An older standby sends no room, and is taken as before.
#[test]
fn standby_that_does_not_say_its_room_is_taken() {
    let journal = Journal::create(vec![0; LEN], 5, 0, 0).unwrap();
    let (mut primary, mut standby) = (Primary::new(LEASE_NS, 0), Follower::new(NAME, vec![0; LEN - 1]).unwrap());
    primary.connected();
    standby.connected();
    let mut older = standby.to_send().to_vec();
    let room = older.len() - 8;
    older[room..].fill(0);
    assert_eq!(primary.receive(&older, &journal).unwrap(), None);
    assert_eq!(primary.poll(LEASE_NS, &journal), Some(PrimaryEvent::Attached(NAME)));
}

#[test]
fn copy_of_another_journal_is_refused() {
    let (journal, _, mut standby) = attached();
    let other = Journal::create(vec![0; LEN], 6, 0, 0).unwrap();
    let mut primary = Primary::new(LEASE_NS, 0);
    primary.connected();
    standby.connected();
    assert!(primary.receive(standby.to_send(), &other).unwrap_err().contains("empty file"));
    assert_eq!(journal.id(), 5);
}
