//! Channels of MDP 3.0, of B3 and of T7 with their loops, without sockets: the test is the lines,
//! and the thread.

use market::b3_umdf::layout::{OrderRoot, SnapshotHeaderRoot, SnapshotOrdersEntry};
use market::eobi::layout::{InstrumentSummaryRoot, OrderAddRoot, ProductSummaryRoot, SnapshotOrderRoot};
use market::framing::b3_umdf::{B3Header, B3Packet};
use market::framing::eobi::{EobiBody, EobiHeader, EobiPacket};
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
use crate::feed::{ArrivalClock, Feed, FeedConfig, FeedLine, Sampler, SetConfig};
use crate::format::{B3Umdf, CmeMdp3, EurexEobi, Protocol};
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
struct Play<P: Protocol> {
    feed: Feed<P>,
    thread: ThreadEnd<P::Books>,
    block: CounterBlock,
    now_ns: u64,
}

impl<P: Protocol> Play<P> {
    fn new(first: StartSequence) -> Self {
        Self::with_numbers(first, Vec::new())
    }

    /// A feed of a set with these channels.
    fn with_numbers(first: StartSequence, numbers: Vec<u32>) -> Self {
        let line = |name: &str, group: &str| FeedLine {
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
            format: P::FORMAT,
            queue: None,
            numbers,
            lines: vec![line("A", "239.1.1.1:7"), line("B", "239.1.1.2:7")],
            recovery: RecoveryPlan { loops: Some(loops), ..RecoveryPlan::default() },
        };
        let config = FeedConfig {
            policy: Policy { first, ..Policy::default() },
            // No buffer is there for packets that wait: each hole is a gap at once.
            window: Window { packets: 0, wait_ns: WAIT_NS },
            capacity: Capacity { books: 8, orders: 16, levels: 16 },
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
            let packet = P::Framing::parse(bytes).unwrap();
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

    fn books(&self) -> &P::Books {
        &self.feed.channels[0].builder.books
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(&format!("worker0/feed/{name}")).unwrap()
    }
}

impl Play<CmeMdp3> {
    fn trusts(&self) -> Vec<Trust> {
        (0..self.books().len() as u32).map(|book| self.books().trust(BookIdx(book))).collect()
    }

    fn bid(&self, idx: usize) -> Option<i64> {
        let book = self.books().find(Symbol::from_number(IDS[idx] as u64))?;
        Some(self.books().exact_top(book).bid.price.0)
    }
}

/// A venue that has sent a bid of both instruments, and a handler that has both.
fn begun() -> (Venue, Play<CmeMdp3>) {
    let (mut venue, mut play) =
        (Venue { rpt_seq: [0; 2], bids: [0; 2], seq: 0 }, Play::<CmeMdp3>::new(StartSequence::FromOne));
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
    let (mut venue, mut play) =
        (Venue { rpt_seq: [0; 2], bids: [0; 2], seq: 0 }, Play::<CmeMdp3>::new(StartSequence::Anywhere));
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
    let (mut venue, mut play) =
        (Venue { rpt_seq: [0; 2], bids: [0; 2], seq: 0 }, Play::<CmeMdp3>::new(StartSequence::FromOne));
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
    let mut play = Play::<CmeMdp3>::new(StartSequence::Anywhere);
    play.bring(&venue.snapshots());
    assert_eq!((play.count("answers_refused"), play.feed.channels.len()), (1, 0));
}

/// B3's instruments, with an order to buy each.
const B3_IDS: [u64; 2] = [200_000_000_005, 200_000_000_006];

fn b3_packet(seq: u32, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_400];
    let header = B3Header { channel: 72, sequence_version: 3, seq, sent_ns: 1, next_seq: None };
    let mut writer = PacketWriter::<B3Packet>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

/// The live packet with order `seq`.
fn b3_order(seq: u32, idx: usize, rpt_seq: u32) -> Vec<u8> {
    let root = OrderRoot {
        security_id: B3_IDS[idx].into(),
        event_end: 0x80,
        action: 0,
        entry_type: b'0',
        price: i64::from(seq).into(),
        size: 1.into(),
        order_id: u64::from(seq).into(),
        rpt_seq: rpt_seq.into(),
        ..OrderRoot::NULL
    };
    let mut message = Vec::new();
    market::b3_umdf::emit::order(&root, &mut message);
    b3_packet(seq, &[message])
}

/// The snapshot of an instrument, its head and its orders in a packet each.
fn b3_snapshot(first: u32, idx: usize, last_seq: u32, rpt_seq: u32, orders: &[u32]) -> [Vec<u8>; 2] {
    let root = SnapshotHeaderRoot {
        security_id: B3_IDS[idx].into(),
        last_seq: last_seq.into(),
        reports_total: 2.into(),
        bids: (orders.len() as u32).into(),
        offers: 0.into(),
        last_rpt_seq: rpt_seq.into(),
        last_sequence_version: 3.into(),
        ..SnapshotHeaderRoot::NULL
    };
    let entry = |&order: &u32| SnapshotOrdersEntry {
        price: i64::from(order).into(),
        size: 1.into(),
        order_id: u64::from(order).into(),
        entry_type: b'0',
        ..SnapshotOrdersEntry::NULL
    };
    let (mut head, mut body) = (Vec::new(), Vec::new());
    market::b3_umdf::emit::snapshot_header(&root, &mut head);
    market::b3_umdf::emit::snapshot_orders(B3_IDS[idx], &orders.iter().map(entry).collect::<Vec<_>>(), &mut body);
    [b3_packet(first, &[head]), b3_packet(first + 1, &[body])]
}

#[test]
fn book_of_orders_is_healed_by_a_snapshot_of_several_packets_with_live_ones_between_them() {
    let mut play = Play::<B3Umdf>::new(StartSequence::FromOne);
    play.live(&b3_order(1, 0, 1)).live(&b3_order(2, 1, 1));
    assert_eq!(play.told(), ["define"]);
    // The packet with order 3, the second of instrument 0, is lost on both lines.
    play.live(&b3_order(4, 0, 3)).live(&b3_order(5, 0, 4)).live(&b3_order(6, 1, 2));
    let stale = |play: &Play<B3Umdf>| [0, 1].map(|book| play.books().is_stale(BookIdx(book)));
    assert_eq!((stale(&play), play.told()), ([true, false], vec!["join", "define"]));
    let ([head, orders], [other, orders_of_other]) =
        (b3_snapshot(1, 0, 5, 4, &[1, 3, 4, 5]), b3_snapshot(3, 1, 5, 1, &[2]));
    play.bring(&head).live(&b3_order(7, 0, 5));
    assert_eq!((stale(&play), play.told()), ([true, false], vec![]));
    play.bring(&orders).bring(&other).bring(&orders_of_other).turn();
    assert_eq!((stale(&play), play.told()), ([false, false], vec!["leave"]));
    let (top, other) = (play.books().top(BookIdx(0)), play.books().top(BookIdx(1)));
    assert_eq!((top.bid_px.0, other.bid_px.0, play.books().orders().orders_count()), (7, 6, 7));
    assert_eq!(["snapshots", "snapshots_refused"].map(|name| play.count(name)), [2, 0]);
}

/// Products of T7 with one instrument each.
const PRODUCTS: [i32; 2] = [688, 689];
const SECURITY_ID: i64 = 5_578_438;

fn eobi_packet(packet: u32, product: i32, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_400];
    let (partition, is_complete, is_reset, sent_ns) = (1, true, false, packet.into());
    let header = EobiHeader { packet, product, partition, is_complete, is_reset, sent_ns, body: EobiBody::default() };
    let mut writer = PacketWriter::<EobiPacket>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

/// The live packet with message `seq` of a product, an order to buy at that price.
fn eobi_order(product: i32, seq: u32) -> Vec<u8> {
    let root = OrderAddRoot {
        security_id: SECURITY_ID.into(),
        time_priority: u64::from(seq).into(),
        display_qty: 10_000.into(),
        side: 1,
        price: (i64::from(seq) * 10_000).into(),
        ..OrderAddRoot::NULL
    };
    let mut message = Vec::new();
    market::eobi::emit::order_add(seq, &root, &mut message);
    eobi_packet(seq, product, &[message])
}

/// The part of loop packet `packet` that is a product's: all its orders up to `last_seq`.
fn eobi_snapshot(packet: u32, product: i32, last_seq: u32) -> Vec<u8> {
    let mut messages = vec![Vec::new(), Vec::new()];
    let root = ProductSummaryRoot { last_msg_seq_num_processed: last_seq.into(), ..ProductSummaryRoot::NULL };
    market::eobi::emit::product_summary(0, &root, &mut messages[0]);
    let (security_id, orders) = (SECURITY_ID.into(), (last_seq as u16).into());
    let root = InstrumentSummaryRoot { security_id, tot_no_orders: orders, ..InstrumentSummaryRoot::NULL };
    market::eobi::emit::instrument_summary(1, &root, &mut messages[1]);
    for seq in 1..=last_seq {
        let root = SnapshotOrderRoot {
            time_priority: u64::from(seq).into(),
            display_qty: 10_000.into(),
            side: 1,
            price: (i64::from(seq) * 10_000).into(),
            ..SnapshotOrderRoot::NULL
        };
        messages.push(Vec::new());
        market::eobi::emit::snapshot_order(seq + 1, &root, messages.last_mut().unwrap());
    }
    eobi_packet(packet, product, &messages)
}

#[test]
fn loop_that_products_share_is_not_left_while_one_of_them_lacks_something() {
    let numbers = PRODUCTS.map(|product| product as u32).to_vec();
    let mut play = Play::<EurexEobi>::with_numbers(StartSequence::FromOne, numbers);
    // The second message of each is lost on both lines.
    for product in PRODUCTS {
        for seq in [1, 3, 4] {
            play.live(&eobi_order(product, seq));
        }
    }
    let are_unsure = |play: &Play<EurexEobi>| {
        [0, 1].map(|idx: usize| play.feed.channels[idx].builder.books.is_unconfirmed(BookIdx(0)))
    };
    assert_eq!(are_unsure(&play), [true, true]);
    assert_eq!(play.told().iter().filter(|told| **told == "join").count(), 2);
    for packet in [1, 3, 5] {
        play.bring(&eobi_snapshot(packet, PRODUCTS[0], 4));
    }
    assert_eq!((are_unsure(&play), play.told()), ([false, true], vec![]), "the first needs it no more");
    for packet in [8, 10, 12] {
        play.bring(&eobi_snapshot(packet, PRODUCTS[1], 4));
    }
    assert_eq!((are_unsure(&play), play.told()), ([false, false], vec!["leave", "leave"]));
    let orders = [0, 1].map(|idx: usize| play.feed.channels[idx].builder.books.orders().orders_count());
    assert_eq!(orders, [4, 4]);
}
