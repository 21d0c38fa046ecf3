//! Against a real server of the distribution: over its death, consumers end with each record once.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::{Ring, Server, record};
use market::Symbol;
use market_fanout::{ConsumerEvent, Policy, PublisherConfig, Stopped, Turn};
use market_gateway_nats::{Consumer, JetStream, Login, NatsServer, Publisher, latest_quotes};
use market_ring::{Flags, Quote, Record, RingConfig, RingReader, RingWriter};

/// A bound on waiting, for a machine that is busy; what is tested does not depend on it.
const PATIENCE: Duration = Duration::from_secs(120);

/// With small streams: a server sets their whole size aside when they are made, and refuses where
/// the disk has less room.
fn broker(server: &Server) -> JetStream {
    let server = server.address().into();
    JetStream { server, venue: "xnas".into(), stream_bytes_max: 64 << 20, ..JetStream::default() }
}

fn publisher_to(server: &Server, ring: RingReader) -> Publisher {
    Publisher::new(broker(server), PublisherConfig::default(), ring)
}

/// Takes turns until `count` records have come.
fn read(consumer: &mut Consumer, count: usize, found: &mut BTreeMap<u64, Record>) {
    let until = Instant::now() + PATIENCE;
    while found.len() < count {
        assert!(Instant::now() < until, "{} of {count} records have come", found.len());
        consumer.turn(Duration::from_millis(10), |item| collect(item, found));
    }
}

fn collect(item: ConsumerEvent, found: &mut BTreeMap<u64, Record>) {
    let ConsumerEvent::Record(seq, record) = item else { panic!("{item:?}") };
    assert_eq!(found.insert(seq, record), None, "{seq} came twice");
}

fn finish(publisher: &mut Publisher) {
    let until = Instant::now() + PATIENCE;
    while publisher.turn().unwrap() != Turn::Ended {
        assert!(Instant::now() < until, "{:?} {:?}", publisher.counts(), publisher.why_down());
    }
}

#[test]
fn broker_that_is_killed_under_load_costs_no_record_and_repeats_none() {
    const COUNT: u64 = 60_000;
    let Some(mut server) = Server::start("broker_that_is_killed_under_load_costs_no_record_and_repeats_none") else {
        return;
    };
    let mut ring = Ring::new(1 << 17);
    let mut publisher = publisher_to(&server, ring.reader());
    let (mut consumer, mut found) = (Consumer::new(server.address(), "MD"), BTreeMap::new());
    for number in 0..COUNT {
        ring.writer.publish(&record(number));
        match number {
            20_000 => {
                // Something is acknowledged before the broker dies.
                while publisher.counts().acknowledged == 0 {
                    publisher.turn().unwrap();
                }
                server.kill();
            }
            40_000 => server.restart().unwrap(),
            _ => (),
        }
        if number % 500 == 0 {
            publisher.turn().unwrap();
            consumer.turn(Duration::from_millis(1), |item| collect(item, &mut found));
        }
    }
    drop(ring);
    finish(&mut publisher);
    read(&mut consumer, COUNT as usize, &mut found);
    let written: BTreeMap<u64, Record> = (0..COUNT).map(|number| (number, record(number))).collect();
    assert!(found == written, "a record is not what was written");
    assert!(publisher.counts().connections >= 2 && publisher.counts().missed == 0, "{:?}", publisher.counts());
    let (mut late, mut found) = (Consumer::new(server.address(), "MD"), BTreeMap::new());
    read(&mut late, COUNT as usize, &mut found);
    assert!(found == written, "a late joiner has something else");
}

#[test]
fn broker_that_is_set_up_anew_is_sent_what_is_kept_and_consumers_begin_anew_without_repetitions() {
    let Some(mut server) = Server::start("broker_that_is_set_up_anew_is_sent_what_is_kept") else { return };
    let mut ring = Ring::new(1 << 12);
    let mut publisher = publisher_to(&server, ring.reader());
    let (mut consumer, mut found) = (Consumer::new(server.address(), "MD"), BTreeMap::new());
    (0..1_000).for_each(|number| _ = ring.writer.publish(&record(number)));
    connect(&mut publisher);
    while publisher.counts().acknowledged < 3 {
        publisher.turn().unwrap();
    }
    read(&mut consumer, 1_000, &mut found);
    server.kill();
    server.replace_disk();
    server.restart().unwrap();
    (1_000..1_100).for_each(|number| _ = ring.writer.publish(&record(number)));
    drop(ring);
    finish(&mut publisher);
    read(&mut consumer, 1_100, &mut found);
    let (mut late, mut found) = (Consumer::new(server.address(), "MD"), BTreeMap::new());
    read(&mut late, 1_100, &mut found);
}

#[test]
fn batches_that_a_full_broker_refuses_are_not_acknowledged() {
    let test = "batches_that_a_full_broker_refuses_are_not_acknowledged";
    let Some(server) = Server::start_with_disk(test, Some(1 << 20)) else { return };
    let mut ring = Ring::new(1 << 15);
    // The stream may have more than the disk.
    let broker = JetStream { stream_bytes_max: -1, ..broker(&server) };
    let mut publisher = Publisher::new(broker, PublisherConfig::default(), ring.reader());
    (0..20_000).for_each(|number| _ = ring.writer.publish(&record(number)));
    connect(&mut publisher);
    let until = Instant::now() + PATIENCE;
    while publisher.why_down().is_none() {
        let counts = publisher.counts();
        assert!(Instant::now() < until && counts.acknowledged < 20_000 / 256, "{counts:?}");
        publisher.turn().unwrap();
    }
    let (counts, why) = (publisher.counts(), publisher.why_down().unwrap().to_owned());
    assert!(why.starts_with("JetStream does not take a message: ") && why.ends_with("`nats stream info`"), "{why}");
    assert!(3 < counts.acknowledged && counts.acknowledged < counts.batches, "{counts:?}");
    let (mut consumer, mut found) = (Consumer::new(server.address(), "MD"), BTreeMap::new());
    // The last batch of each channel is not full.
    while found.len() < 256 * (counts.acknowledged as usize - 3) {
        assert!(Instant::now() < until, "{} records have come", found.len());
        consumer.turn(Duration::from_millis(10), |item| {
            if let ConsumerEvent::Record(seq, record) = item {
                found.insert(seq, record);
            }
        });
    }
}

#[test]
fn answers_to_one_connection_reach_no_other() {
    let Some(server) = Server::start("answers_to_one_connection_reach_no_other") else { return };
    let (mut ring, quiet) = (Ring::new(64), Ring::new(64));
    let mut publisher = publisher_to(&server, ring.reader());
    connect(&mut publisher);
    let (mut consumer, mut found) = (Consumer::new(server.address(), "MD"), BTreeMap::new());
    consumer.turn(Duration::ZERO, |item| panic!("{item:?}"));
    // Answers to its requests, and to its first batch.
    let mut other = Publisher::new(
        JetStream { venue: "other".into(), stream: "OTHER".into(), ..broker(&server) },
        PublisherConfig::default(),
        quiet.reader(),
    );
    connect(&mut other);
    (0..10).for_each(|number| _ = ring.writer.publish(&record(number)));
    drop(ring);
    finish(&mut publisher);
    read(&mut consumer, 10, &mut found);
    other.turn().unwrap();
    assert_eq!(other.counts().acknowledged, 0);
}

fn connect(publisher: &mut Publisher) {
    let until = Instant::now() + PATIENCE;
    while publisher.counts().connections == 0 {
        assert!(Instant::now() < until, "{:?}", publisher.why_down());
        publisher.turn().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a consumer is told until `count` things have come.
fn told(server: &Server, count: usize) -> Vec<ConsumerEvent> {
    let (mut consumer, mut items) = (Consumer::new(server.address(), "MD"), Vec::new());
    let until = Instant::now() + PATIENCE;
    while items.len() < count && Instant::now() < until {
        consumer.turn(Duration::from_millis(10), |item| items.push(item));
    }
    items
}

/// The channels and numbers that consumers miss, and the numbers that they have.
fn sorted(items: &[ConsumerEvent]) -> (Vec<(u16, u64, u64)>, Vec<u64>) {
    let missed = items.iter().filter_map(|item| match *item {
        ConsumerEvent::Missed { channel, first, last } => Some((channel, first, last)),
        _ => None,
    });
    let (mut missed, records) =
        (missed.collect::<Vec<_>>(), items.iter().filter(|item| matches!(item, ConsumerEvent::Record(..))));
    let mut seqs: Vec<u64> = records.map(seq).collect();
    missed.sort_unstable();
    seqs.sort_unstable();
    (missed, seqs)
}

#[test]
fn each_channels_next_batch_names_what_the_ring_had_overwritten() {
    let Some(server) = Server::start("each_channels_next_batch_names_what_the_ring_had_overwritten") else { return };
    let mut ring = Ring::new(64);
    let mut publisher = publisher_to(&server, ring.reader());
    (0..100).for_each(|number| _ = ring.writer.publish(&record(number)));
    drop(ring);
    finish(&mut publisher);
    let (missed, seqs) = sorted(&told(&server, 3 + 32));
    assert_eq!(missed, [(0, 0, 67), (1, 0, 67), (2, 0, 67)]);
    assert_eq!(seqs, (68..100).collect::<Vec<_>>());
}

#[test]
fn publisher_that_was_restarted_tells_what_it_missed_meanwhile() {
    let Some(server) = Server::start("publisher_that_was_restarted_tells_what_it_missed_meanwhile") else { return };
    let mut ring = Ring::new(64);
    let mut publisher = publisher_to(&server, ring.reader());
    (0..9).for_each(|number| _ = ring.writer.publish(&record(number)));
    while publisher.counts().acknowledged < 3 {
        publisher.turn().unwrap();
    }
    drop(publisher);
    (9..109).for_each(|number| _ = ring.writer.publish(&record(number)));
    let mut publisher = publisher_to(&server, ring.reader());
    drop(ring);
    finish(&mut publisher);
    let (missed, seqs) = sorted(&told(&server, 3 + 9 + 32));
    assert_eq!(missed, [(0, 9, 76), (1, 9, 76), (2, 9, 76)]);
    assert_eq!(seqs, (0..9).chain(77..109).collect::<Vec<_>>());
}

#[test]
fn publisher_follows_a_writer_that_was_killed_and_started_again() {
    let Some(server) = Server::start("publisher_follows_a_writer_that_was_killed_and_started_again") else { return };
    let mut ring = Ring::new(64);
    (0..6).for_each(|number| _ = ring.writer.publish(&record(number)));
    let quote = Quote { symbol: Symbol::new("AAPL").unwrap(), bid_qty: 7, ..Quote::default() };
    ring.writer.update(0, &quote);
    // What a killed writer leaves: a file that is not closed, and that nobody has locked.
    let killed = ring.copy();
    let mut publisher = publisher_to(&server, RingReader::open(&killed).unwrap());
    let until = Instant::now() + PATIENCE;
    while publisher.turn().unwrap() != Turn::WriterGone {
        assert!(Instant::now() < until, "{:?} {:?}", publisher.counts(), publisher.why_down());
    }
    let latest = latest_quotes(server.address(), "MD-quotes").unwrap();
    assert_eq!(latest, [Quote { flags: Flags::STALE, ..quote }], "it says nothing about the market");
    let mut next = RingWriter::create(&killed, &RingConfig { records: 64, ..RingConfig::default() }).unwrap();
    publisher.follow(RingReader::open(&killed).unwrap());
    (0..3).for_each(|number| _ = next.publish(&record(number)));
    drop(next);
    finish(&mut publisher);
    let items = told(&server, 6 + 3 + 3);
    let restart = items.iter().position(|item| matches!(item, ConsumerEvent::Restart { .. })).unwrap();
    assert_eq!(
        (sorted(&items[..restart]), sorted(&items[restart..])),
        ((vec![], (0..6).collect()), (vec![], (0..3).collect()))
    );
}

fn seq(item: &ConsumerEvent) -> u64 {
    let ConsumerEvent::Record(seq, _) = item else { panic!("{item:?}") };
    *seq
}

#[test]
fn late_joiner_gets_the_latest_quote_of_each_instrument() {
    let Some(server) = Server::start("late_joiner_gets_the_latest_quote_of_each_instrument") else { return };
    let ring = Ring::new(64);
    let config =
        PublisherConfig { policy: Policy::Conflate, quotes_every: Duration::ZERO, ..PublisherConfig::default() };
    let mut publisher = Publisher::new(broker(&server), config, ring.reader());
    let last = ring.change_quotes(|| _ = publisher.turn().unwrap());
    finish(&mut publisher);
    assert_eq!((publisher.counts().batches, publisher.counts().records), (0, 0), "no events are published");
    let mut found = latest_quotes(server.address(), "MD-quotes").unwrap();
    found.sort_by_key(|quote| quote.symbol.0);
    assert_eq!(found, last);
}

#[test]
fn publisher_that_must_not_skip_names_the_first_record_that_was_not_acknowledged() {
    let away = JetStream { server: "127.0.0.1:1".into(), ..JetStream::default() };
    let config = PublisherConfig { policy: Policy::Disconnect, patience: Duration::ZERO, ..PublisherConfig::default() };
    let mut ring = Ring::new(64);
    let mut publisher = Publisher::new(away.clone(), config.clone(), ring.reader());
    (0..100).for_each(|number| _ = ring.writer.publish(&record(number)));
    assert_eq!(publisher.turn(), Err(Stopped { first: 0, last: 67 }));
    // What was read before the ring overtook it was not acknowledged either.
    let mut ring = Ring::new(64);
    let mut publisher = Publisher::new(away, config, ring.reader());
    (0..10).for_each(|number| _ = ring.writer.publish(&record(number)));
    assert_eq!(publisher.turn(), Ok(Turn::Busy));
    (10..110).for_each(|number| _ = ring.writer.publish(&record(number)));
    assert_eq!(publisher.turn(), Err(Stopped { first: 0, last: 77 }));
}

#[test]
fn publisher_that_must_not_skip_ends_when_all_that_it_has_read_is_acknowledged() {
    let Some(server) = Server::start("publisher_that_must_not_skip_ends_when_all_is_acknowledged") else { return };
    let mut ring = Ring::new(64);
    let config = PublisherConfig { policy: Policy::Disconnect, patience: PATIENCE, ..PublisherConfig::default() };
    let mut publisher = Publisher::new(broker(&server), config, ring.reader());
    (0..10).for_each(|number| _ = ring.writer.publish(&record(number)));
    publisher.turn().unwrap();
    (10..110).for_each(|number| _ = ring.writer.publish(&record(number)));
    let stopped = loop {
        if let Err(stopped) = publisher.turn() {
            break stopped;
        }
    };
    assert_eq!(stopped, Stopped { first: 10, last: 77 });
    let (missed, seqs) = sorted(&told(&server, 10 + 3));
    assert_eq!((missed.len(), seqs), (3, (0..10).collect()));
}

/// A broker that takes a publisher's connection, or not even that, and then reads nothing more.
fn stalled_broker(answers: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut clients = Vec::new();
        for client in listener.incoming() {
            let client = client.unwrap();
            if answers {
                answer_until_the_streams_are_made(&client);
            }
            clients.push(client);
        }
    });
    address
}

fn answer_until_the_streams_are_made(mut client: &TcpStream) {
    let mut requests = 0;
    for line in BufReader::new(client).lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["PING"] => client.write_all(b"PONG\r\n").unwrap(),
            ["SUB", inbox, number] => {
                client.write_all(format!("MSG {inbox} {number} 2\r\n{{}}\r\n").as_bytes()).unwrap();
                requests += 1;
            }
            _ => (),
        }
        if requests == 2 {
            return;
        }
    }
}

#[test]
fn broker_that_stalls_holds_up_no_turn_and_the_ring_is_read_on() {
    // More than the kernel keeps for a peer that reads nothing, less than what may wait.
    const COUNT: u64 = 200_000;
    for answers in [true, false] {
        let server = stalled_broker(answers);
        let mut ring = Ring::new(1 << 14);
        let broker = JetStream { server: server.into(), ..JetStream::default() };
        let config = PublisherConfig { patience: PATIENCE, ..PublisherConfig::default() };
        let mut publisher = Publisher::new(broker, config, ring.reader());
        let mut longest = Duration::ZERO;
        let mut turn = |publisher: &mut Publisher| {
            let begun = Instant::now();
            publisher.turn().unwrap();
            longest = longest.max(begun.elapsed());
        };
        let until = Instant::now() + PATIENCE;
        while answers && publisher.counts().connections == 0 {
            assert!(Instant::now() < until, "{:?}", publisher.why_down());
            turn(&mut publisher);
        }
        for number in 0..COUNT {
            ring.writer.publish(&record(number));
            if number % 1_000 == 999 {
                turn(&mut publisher);
            }
        }
        let counts = publisher.counts();
        assert_eq!((counts.records, counts.missed, counts.acknowledged), (COUNT, 0, 0), "{:?}", publisher.why_down());
        // A write, or a greeting, that is waited for takes five seconds.
        assert!(longest < Duration::from_secs(3), "a turn took {longest:?}");
    }
}

/// What is wrong is told by the server's own words, and is no secret.
#[test]
fn server_with_a_login_takes_who_has_it_and_refuses_others_aloud() {
    let test = "server_with_a_login_takes_who_has_it_and_refuses_others_aloud";
    let user = |password: &str| Login::User { name: "feed".into(), password: password.into() };
    for (name, secret, login, wrong) in [
        ("feed", "a \"secret\"", user("a \"secret\""), user("another")),
        ("", "t0ken", Login::Token("t0ken".into()), Login::None),
    ] {
        let Some(server) = Server::start_with_login(test, name, secret) else { return };
        let mut ring = Ring::new(64);
        (0..10).for_each(|number| _ = ring.writer.publish(&record(number)));
        let at = |login: &Login| NatsServer { address: server.address(), login: login.clone() };
        let with = |login: &Login| JetStream { server: at(login), ..broker(&server) };
        let publish =
            |login: &Login, ring: &Ring| Publisher::new(with(login), PublisherConfig::default(), ring.reader());
        let mut stranger = publish(&wrong, &ring);
        let until = Instant::now() + PATIENCE;
        while !stranger.why_down().is_some_and(|why| why.contains("Authorization")) {
            stranger.turn().unwrap();
            assert!(Instant::now() < until, "{:?}", stranger.why_down());
        }
        assert!(!format!("{:?} {:?}", with(&wrong), with(&login)).contains("secret"));
        let mut publisher = publish(&login, &ring);
        let (mut consumer, mut found) = (Consumer::new(at(&login), "MD"), BTreeMap::new());
        drop(ring);
        finish(&mut publisher);
        read(&mut consumer, 10, &mut found);
    }
}
