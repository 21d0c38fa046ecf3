use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::itch50::{AddOrder, Head};
use market::{BookIdx, Books, Capacity, Locate, Policy, Symbol, Window};
use wirepath::counters::Block;
use wirepath::time::MonotonicClock;
use zerocopy::IntoBytes;

use super::*;
use crate::format::{Format, MoldItch50};
use crate::report::newly_met;

const WAIT_NS: u64 = 1_000;

fn config() -> FeedConfig {
    FeedConfig {
        policy: Policy::default(),
        window: Window { packets: 8, wait_ns: WAIT_NS },
        capacity: Capacity { books: 1, orders: 1, levels: 1 },
        clock: ArrivalClock::Worker,
        sets: Vec::new(),
        places: Vec::new(),
        groups: Vec::new(),
        learned_max: 0,
    }
}

/// A feed that learns up to `learned_max` channels, and receives `groups` groups.
fn feed(learned_max: usize, groups: u8) -> Feed<MoldItch50> {
    let groups = (1..=groups).map(|idx| SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, idx), 7)).collect();
    made(FeedConfig { groups, learned_max, ..config() })
}

fn feed_of(sets: Vec<SetConfig>) -> Feed<MoldItch50> {
    made(FeedConfig { sets, ..config() })
}

fn made(config: FeedConfig) -> Feed<MoldItch50> {
    made_in(&Block::heap(), config)
}

fn made_in(block: &Block, config: FeedConfig) -> Feed<MoldItch50> {
    Feed::new(config, Sampler::new(MonotonicClock::start(), 0), &block.scope("worker0"))
}

fn line() -> FeedLine {
    FeedLine { name: String::new(), group: "239.1.1.1:7".parse().unwrap(), vlan: None, senders: Vec::new() }
}

fn header(session: u8) -> Header {
    MoldUdp64::header(&MoldHeader::new([b'0' + session; 10], 1))
}

/// With one message.
fn packet(session: u8, seq: u64) -> Vec<u8> {
    packet_of(session, seq, b"S\0\0\0\0\0\0\0\0\0\x01O")
}

fn packet_of(session: u8, seq: u64, message: &[u8]) -> Vec<u8> {
    let mut room = [0; 64];
    let header = MoldHeader::new([b'0' + session; 10], seq);
    let mut writer = PacketWriter::<MoldUdp64>::new(header, &mut room).unwrap();
    writer.push(message).unwrap();
    writer.finish().to_vec()
}

fn add(order: u64) -> Vec<u8> {
    let (head, stock) = (Head::new(AddOrder::KIND, Locate(1), 0), Symbol::new("AAPL").unwrap());
    let (order, shares, price) = (order.into(), 100.into(), 10_000.into());
    AddOrder { head, order, side: b'B', shares, stock, price }.as_bytes().to_vec()
}

#[test]
fn order_that_found_no_place_makes_the_books_stale_and_is_told_while_it_runs() {
    let block = Block::heap();
    let mut feed = made_in(&block, FeedConfig { learned_max: 1, groups: vec![line().group], ..config() });
    let mut process = |seq, message: &[u8]| {
        let bytes = packet_of(0, seq, message);
        let packet = MoldUdp64::parse(&bytes).unwrap();
        let before = block.snapshot();
        let (idx, line) = feed.open(0, &packet.header).unwrap();
        feed.process(idx, line, &packet, 0, || None);
        (feed.channels[0].builder.books.is_stale(BookIdx(0)), newly_met(&before, &block.snapshot()))
    };
    assert_eq!(process(1, &add(1)), (false, vec![]), "there is room for one order");
    let (is_stale, told) = process(2, &add(2));
    assert!(is_stale && told.len() == 1 && told[0].contains("raise `orders`"), "{told:?}");
    let (is_stale, told) = process(3, b"A");
    assert!(is_stale && told.len() == 1 && told[0].contains("could not be decoded"), "{told:?}");
    assert_eq!(process(4, &add(3)), (true, vec![]), "each is told once");
}

/// Counts the packets that show that its channel lives.
#[derive(Clone, Default)]
struct Pulse(Arc<AtomicU64>);

impl EventSink for Pulse {
    fn alive(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn packets_of_the_session_show_that_a_channel_lives_and_forged_ones_do_not() {
    let (pulse, block) = (Pulse::default(), Block::heap());
    let config = FeedConfig { learned_max: 1, groups: vec![line().group], ..config() };
    let sampler = Sampler::new(MonotonicClock::start(), 0);
    let mut feed = Feed::<MoldItch50, _>::with_sink(config, pulse.clone(), sampler, &block.scope("worker0"));
    let mut lives = |bytes: &[u8]| {
        let packet = MoldUdp64::parse(bytes).unwrap();
        let (idx, line) = feed.open(0, &header(0)).unwrap();
        let before = pulse.0.load(Ordering::Relaxed);
        feed.process(idx, line, &packet, 0, || None);
        pulse.0.load(Ordering::Relaxed) > before
    };
    assert!(lives(&packet(0, 1)) && lives(&packet(0, 1)), "a copy has nothing new");
    assert!(!lives(&packet(7, 2)), "nothing confirms its session");
    let mut room = [0; 32];
    let heartbeat = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"0000000000", 2), &mut room).unwrap().finish();
    assert!(lives(heartbeat));
}

#[test]
fn channels_are_learned_as_far_as_the_memory_reached_at_the_start() {
    let mut feed = feed(2, 3);
    let opened = [0, 1, 2].map(|source: u8| feed.open(usize::from(source), &header(source)));
    assert_eq!(opened, [Ok((0, Line(0))), Ok((1, Line(0))), Err(FeedDrop::NoMemory)]);
    assert_eq!(feed.open(1, &header(1)), Ok((1, Line(0))), "and those that are there stay");
}

#[test]
fn packets_that_wait_are_given_back_when_their_set_has_all_its_channels() {
    for (numbers, opens) in [(vec![], &[1][..]), (vec![1, 2], &[2, 1][..])] {
        let mut feed = feed_of(vec![SetConfig {
            name: String::new(),
            format: Format::MoldItch50,
            queue: None,
            numbers,
            lines: vec![line()],
            recovery: RecoveryPlan::default(),
        }]);
        let introduce = |feed: &mut Feed<MoldItch50>, channel, session, seq| {
            let bytes = packet(session, seq);
            let mut packet = MoldUdp64::parse(&bytes).unwrap();
            packet.header.channel = channel;
            let _ = feed.introduce(0, &packet, 0, || None);
        };
        // Of another session, and of another channel where the first may be any.
        [7, 8].into_iter().for_each(|session| introduce(&mut feed, 1, session, 1));
        introduce(&mut feed, 9, 0, 1);
        for &channel in opens {
            [1, 2].into_iter().for_each(|seq| introduce(&mut feed, channel, 0, seq));
        }
        assert_eq!(feed.channels.len(), opens.len());
        assert!(feed.unassigned_packets[0].pop().is_none(), "{opens:?}");
    }
}

#[test]
fn holes_of_several_channels_each_grow_old_in_their_time() {
    let mut feed = feed(3, 3);
    let process = |feed: &mut Feed<MoldItch50>, session: u8, seq, now_ns| {
        let bytes = packet(session, seq);
        let packet = MoldUdp64::parse(&bytes).unwrap();
        let (idx, line) = feed.open(usize::from(session), &packet.header).unwrap();
        feed.process(idx, line, &packet, now_ns, || None);
    };
    for session in 0..3 {
        process(&mut feed, session, 1, 0);
    }
    assert!(!feed.deadlines.is_due(u64::MAX - 1), "nothing is missing yet");
    // Skipped numbers are accepted when a second packet skips them too.
    for (session, now_ns) in [(2, 100), (0, 300)] {
        process(&mut feed, session, 3, now_ns);
        process(&mut feed, session, 4, now_ns);
    }
    let gaps = |feed: &Feed<MoldItch50>| [0, 1, 2].map(|idx| feed.channels[idx].arbiter.counts().gaps);
    for (now_ns, expected) in
        [(99 + WAIT_NS, [0; 3]), (100 + WAIT_NS, [0, 0, 1]), (299 + WAIT_NS, [0, 0, 1]), (300 + WAIT_NS, [1, 0, 1])]
    {
        if feed.deadlines.is_due(now_ns) {
            feed.expire(now_ns);
        }
        assert_eq!(gaps(&feed), expected, "at {now_ns} ns");
    }
    assert!(!feed.deadlines.is_due(u64::MAX - 1), "and nothing is looked at any more");
}
