//! A channel of MDP 3.0 with its loops, without sockets: the test is the lines, and the thread.

use market::framing::mdp3::{Mdp3Header, Mdp3Packet};
use market::framing::{Framing, PacketWriter};
use market::mdp3::emit;
use market::mdp3::layout::{
    BookEntry, BookRoot, FutureDefinitionFeed, FutureDefinitionRoot, SnapshotEntry, SnapshotRoot,
};
use market::sbe::Block;
use market::{BookIdx, Capacity, Line, Policy, StartSequence, Symbol, Trust, Window};
use wirepath::counters::Block as CounterBlock;
use wirepath::time::MonotonicClock;

use super::*;
use crate::feed::{ArrivalClock, Feed, FeedConfig, LineConfig, Sampler, SetConfig};
use crate::format::{CmeMdp3, Format};
use crate::recovery::{Answer, Command, RecoveryPlan, ThreadEnd, link};

const WAIT_NS: u64 = 1_000;
/// The instruments.
const IDS: [i32; 2] = [5, 6];

/// A venue whose instruments have one bid each.
struct Venue {
    rpt_seq: [u32; 2],
    bids: [i64; 2],
    seq: u32,
}

impl Venue {
    /// The next packet: the bid of an instrument has a new price, at the same level.
    fn update(&mut self, idx: usize, bid: i64) -> Vec<u8> {
        let action = u8::from(self.rpt_seq[idx] > 0);
        self.rpt_seq[idx] += 1;
        self.bids[idx] = bid;
        let entry = BookEntry {
            price: bid.into(),
            size: 1.into(),
            security_id: IDS[idx].into(),
            rpt_seq: self.rpt_seq[idx].into(),
            level: 1,
            action,
            entry_type: b'0',
            ..BookEntry::NULL
        };
        let mut message = Vec::new();
        emit::book(&BookRoot { transact_time: 1.into(), event_end: 0x80 }, &[entry], &mut message);
        self.seq += 1;
        packet(self.seq, &[message])
    }

    /// A packet of the loop with the snapshots of both instruments, as of now.
    fn snapshots(&self) -> Vec<u8> {
        let messages = [0, 1].map(|idx| {
            let root = SnapshotRoot {
                last_seq: self.seq.into(),
                reports_total: 2.into(),
                security_id: IDS[idx].into(),
                rpt_seq: self.rpt_seq[idx].into(),
                ..SnapshotRoot::NULL
            };
            let entry = SnapshotEntry {
                price: self.bids[idx].into(),
                size: 1.into(),
                level: 1,
                entry_type: b'0',
                ..SnapshotEntry::NULL
            };
            let mut message = Vec::new();
            emit::snapshot(&root, &[entry], &mut message);
            message
        });
        packet(1, &messages)
    }

    /// A packet of the loop with the definitions of both instruments.
    fn definitions() -> Vec<u8> {
        let messages = IDS.map(|id| {
            let root =
                FutureDefinitionRoot { security_id: id.into(), reports_total: 2.into(), ..FutureDefinitionRoot::NULL };
            let mut message = Vec::new();
            emit::future_definition(&root, &[FutureDefinitionFeed { feed_type: *b"GBX", depth: 1 }], &mut message);
            message
        });
        packet(1, &messages)
    }
}

fn packet(seq: u32, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_400];
    let mut writer = PacketWriter::<Mdp3Packet>::new(Mdp3Header { seq, sent_ns: 1 }, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

/// The feed, and the thread's end of its rings.
struct Play {
    feed: Feed<CmeMdp3>,
    thread: ThreadEnd<DepthBooks>,
    block: CounterBlock,
    now_ns: u64,
}

impl Play {
    fn new(first: StartSequence) -> Self {
        let line = |name: &str, group: &str| LineConfig {
            name: name.into(),
            group: group.parse().unwrap(),
            vlan: None,
            senders: Vec::new(),
        };
        let loops = LoopPlan {
            snapshots: Vec::new(),
            definitions: Vec::new(),
            interface: std::net::Ipv4Addr::UNSPECIFIED,
            limits: RecoveryConfig { queue_len_max: 4_096, messages_max: 64, ..RecoveryConfig::default() },
        };
        let set = SetConfig {
            name: "310".into(),
            format: Format::CmeMdp3,
            queue: None,
            numbers: Vec::new(),
            lines: vec![line("A", "239.1.1.1:7"), line("B", "239.1.1.2:7")],
            recovery: RecoveryPlan { loops: Some(loops), ..RecoveryPlan::default() },
        };
        let config = FeedConfig {
            policy: Policy { first, ..Policy::default() },
            // No buffer is there for packets that wait: each hole is a gap at once.
            window: Window { packets: 0, wait_ns: WAIT_NS },
            capacity: Capacity { books: 8, orders: 0, levels: 0 },
            clock: ArrivalClock::Worker,
            sets: vec![set],
            places: Vec::new(),
            groups: Vec::new(),
            learned_max: 0,
        };
        let block = CounterBlock::heap();
        let sampler = Sampler::new(MonotonicClock::start(), 0);
        let mut feed = Feed::new(config, sampler, &block.scope("worker0"));
        let (worker, thread) = link();
        feed.recover_by(worker);
        Self { feed, thread, block, now_ns: 0 }
    }

    /// Both lines bring a packet, and a turn ends.
    fn live(&mut self, bytes: &[u8]) -> &mut Self {
        for line in [Line::A, Line::B] {
            self.now_ns += 1;
            let packet = Mdp3Packet::parse(bytes).unwrap();
            let (channel, _) = self.feed.open(line.0, &packet.header).unwrap();
            self.feed.process(channel, line, &packet, self.now_ns, || None);
        }
        self.turn()
    }

    /// Time passes in which holes expire, and the recovery has its turn.
    fn turn(&mut self) -> &mut Self {
        self.now_ns += 1_000_000;
        self.feed.expire(self.now_ns);
        self.feed.recover(self.now_ns);
        self
    }

    /// The thread passes a packet of a loop on.
    fn bring(&mut self, bytes: &[u8]) -> &mut Self {
        let bytes = bytes.try_into().unwrap();
        assert!(self.thread.answers.push(Answer::LoopPacket { set: 0, bytes }).is_ok());
        self.turn()
    }

    /// What the thread was told since the last look.
    fn told(&mut self) -> Vec<&'static str> {
        let mut told = Vec::new();
        while let Some(command) = self.thread.commands.pop() {
            told.push(match command {
                Command::Definitions { set: 0 } => "define",
                Command::Snapshots { set: 0, are_wanted: true } => "join",
                Command::Snapshots { set: 0, are_wanted: false } => "leave",
                _ => "?",
            });
        }
        told
    }

    fn books(&self) -> &DepthBooks {
        &self.feed.channels[0].builder.books
    }

    fn trusts(&self) -> Vec<Trust> {
        (0..self.books().len() as u32).map(|book| self.books().trust(BookIdx(book))).collect()
    }

    fn bid(&self, idx: usize) -> Option<i64> {
        let book = self.books().find(Symbol::from_number(IDS[idx] as u64))?;
        Some(self.books().exact_top(book).bid.price.0)
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(&format!("worker0/feed/{name}")).unwrap()
    }
}

/// A venue that has sent a bid of both instruments, and a handler that has both.
fn begun() -> (Venue, Play) {
    let (mut venue, mut play) = (Venue { rpt_seq: [0; 2], bids: [0; 2], seq: 0 }, Play::new(StartSequence::FromOne));
    play.live(&venue.update(0, 100)).live(&venue.update(1, 200)).bring(&Venue::definitions());
    assert_eq!((play.trusts(), play.told()), (vec![Trust::Sure; 2], vec!["define"]));
    (venue, play)
}

#[test]
fn packet_lost_on_both_lines_hurts_one_book_until_its_snapshot_and_the_loop_is_left_then() {
    let (mut venue, mut play) = begun();
    let _lost = venue.update(0, 101);
    play.live(&venue.update(0, 102)).live(&venue.update(0, 103)).live(&venue.update(1, 201));
    assert_eq!(play.trusts(), [Trust::Stale, Trust::Sure], "one lost packet must not blank the channel");
    assert_eq!((play.told(), play.bid(1)), (vec!["join", "define"], Some(201)));
    let snapshots = venue.snapshots();
    play.live(&venue.update(0, 104)).bring(&snapshots);
    assert_eq!((play.trusts(), play.bid(0), play.bid(1)), (vec![Trust::Sure; 2], Some(104), Some(201)));
    play.turn();
    assert_eq!(play.told(), ["leave"]);
    assert_eq!(["snapshots", "snapshots_refused", "definitions"].map(|name| play.count(name)), [2, 0, 2]);
}

#[test]
fn handler_that_joins_late_has_the_books_by_snapshots() {
    let (mut venue, mut play) = (Venue { rpt_seq: [0; 2], bids: [0; 2], seq: 0 }, Play::new(StartSequence::Anywhere));
    for bid in 100..110 {
        venue.update((bid % 2) as usize, bid);
    }
    play.live(&venue.update(0, 110)).live(&venue.update(0, 111));
    assert_eq!((play.trusts(), play.told()), (vec![Trust::Stale], vec!["join", "define"]));
    play.bring(&venue.snapshots()).bring(&Venue::definitions());
    assert_eq!((play.trusts(), play.bid(0), play.bid(1)), (vec![Trust::Sure; 2], Some(111), Some(109)));
}

#[test]
fn handler_that_must_begin_at_one_and_is_started_in_mid_session_has_the_books_by_snapshots() {
    let (mut venue, mut play) = (Venue { rpt_seq: [0; 2], bids: [0; 2], seq: 0 }, Play::new(StartSequence::FromOne));
    for bid in 100..110 {
        venue.update((bid % 2) as usize, bid);
    }
    play.live(&venue.update(0, 110)).live(&venue.update(0, 111)).bring(&venue.snapshots());
    assert_eq!((play.trusts(), play.bid(0), play.bid(1)), (vec![Trust::Sure; 2], Some(111), Some(109)));
}

#[test]
fn book_that_an_update_of_each_level_has_healed_needs_no_snapshot() {
    let (mut venue, mut play) = begun();
    let _lost = venue.update(0, 101);
    play.live(&venue.update(0, 102)).live(&venue.update(0, 103));
    // One level a side is published, and an offer comes too.
    assert_eq!(play.trusts()[0], Trust::Stale);
    let entry = BookEntry {
        price: 300.into(),
        size: 1.into(),
        security_id: IDS[0].into(),
        rpt_seq: (venue.rpt_seq[0] + 1).into(),
        level: 1,
        action: 5,
        entry_type: b'1',
        ..BookEntry::NULL
    };
    let bid =
        BookEntry { price: 104.into(), rpt_seq: (venue.rpt_seq[0] + 2).into(), action: 5, entry_type: b'0', ..entry };
    let mut message = Vec::new();
    emit::book(&BookRoot { transact_time: 1.into(), event_end: 0x80 }, &[entry, bid], &mut message);
    play.live(&packet(venue.seq + 1, &[message]));
    assert_eq!((play.trusts()[0], play.bid(0)), (Trust::Sure, Some(104)));
}

#[test]
fn queue_that_is_full_drops_its_oldest_packets_by_name_and_a_later_snapshot_heals() {
    let (mut venue, mut play) = begun();
    let _lost = venue.update(0, 101);
    play.live(&venue.update(0, 102));
    let early = venue.snapshots();
    for bid in 103..300 {
        play.live(&venue.update(0, bid));
    }
    play.bring(&early);
    assert_eq!(play.trusts()[0], Trust::Stale);
    assert!(play.count("queue_overflowed") > 100 && play.count("snapshots_refused") > 0);
    play.bring(&venue.snapshots());
    assert_eq!((play.trusts()[0], play.bid(0)), (Trust::Sure, Some(299)));
}

#[test]
fn packet_of_a_loop_before_the_first_live_one_is_counted_and_changes_nothing() {
    let venue = Venue { rpt_seq: [1; 2], bids: [5; 2], seq: 9 };
    let mut play = Play::new(StartSequence::Anywhere);
    play.bring(&venue.snapshots());
    assert_eq!((play.count("answers_refused"), play.feed.channels.len()), (1, 0));
}
