//! Against brokers of librdkafka: over an outage, consumers end with each record once.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Cluster, Ring, record};
use market_fanout::{ConsumerEvent, Policy, Publisher, PublisherConfig, Turn};
use market_gateway_kafka::{Consumer, Kafka, latest_quotes};
use market_ring::Record;

/// A bound on waiting, for a machine that is busy; what is tested does not depend on it.
const PATIENCE: Duration = Duration::from_secs(120);

fn kafka(cluster: &Cluster) -> Kafka {
    Kafka::new(cluster.servers().to_vec(), "xnas")
}

fn consumer(cluster: &Cluster) -> Consumer {
    Consumer::new(cluster.servers(), "xnas").unwrap()
}

fn finish(publisher: &mut Publisher<Kafka>) {
    let until = Instant::now() + PATIENCE;
    while publisher.turn().unwrap() != Turn::Ended {
        assert!(Instant::now() < until, "{:?} {:?}", publisher.counts(), publisher.why_down());
    }
}

/// Takes turns until `count` records have come.
fn read(consumer: &mut Consumer, count: usize) -> BTreeMap<u64, Record> {
    let (mut found, until) = (BTreeMap::new(), Instant::now() + PATIENCE);
    while found.len() < count {
        assert!(Instant::now() < until, "{} of {count} records have come", found.len());
        consumer.turn(Duration::from_millis(10), |item| {
            let ConsumerEvent::Record(seq, record) = item else { panic!("{item:?}") };
            assert_eq!(found.insert(seq, record), None, "{seq} came twice");
        });
    }
    found
}

#[test]
fn brokers_that_stand_still_under_load_cost_no_record_and_repeat_none() {
    const COUNT: u64 = 60_000;
    let test = "brokers_that_stand_still_under_load_cost_no_record_and_repeat_none";
    let Some(cluster) = Cluster::start(test) else { return };
    let mut ring = Ring::new(1 << 17);
    let config = PublisherConfig { patience: Duration::from_secs(1), ..PublisherConfig::default() };
    let mut publisher = Publisher::new(kafka(&cluster), config, ring.reader());
    let until = Instant::now() + PATIENCE;
    for number in 0..COUNT {
        ring.writer.publish(&record(number));
        if number == 20_000 {
            while publisher.counts().acknowledged == 0 {
                publisher.turn().unwrap();
            }
            cluster.stand_still();
        }
        if number == 40_000 {
            while publisher.why_down().is_none() {
                assert!(Instant::now() < until, "{:?}", publisher.counts());
                publisher.turn().unwrap();
            }
            cluster.go_on();
        }
        if number % 500 == 0 {
            publisher.turn().unwrap();
        }
    }
    drop(ring);
    finish(&mut publisher);
    let counts = publisher.counts();
    assert!(counts.connections >= 2 && counts.missed == 0 && counts.records == COUNT, "{counts:?}");
    let found = read(&mut consumer(&cluster), COUNT as usize);
    assert!(found.iter().all(|(number, found)| *found == record(*number)), "a record is not what was written");
}

#[test]
fn each_channels_next_batch_names_what_the_ring_had_overwritten() {
    let test = "each_channels_next_batch_names_what_the_ring_had_overwritten";
    let Some(cluster) = Cluster::start(test) else { return };
    let mut ring = Ring::new(64);
    let mut publisher = Publisher::new(kafka(&cluster), PublisherConfig::default(), ring.reader());
    (0..100).for_each(|number| _ = ring.writer.publish(&record(number)));
    drop(ring);
    finish(&mut publisher);
    let (mut consumer, mut missed, mut records) = (consumer(&cluster), Vec::new(), 0);
    let until = Instant::now() + PATIENCE;
    while missed.len() + records < 3 + 32 && Instant::now() < until {
        consumer.turn(Duration::from_millis(10), |item| match item {
            ConsumerEvent::Missed { channel, first, last } => missed.push((channel, first, last)),
            _ => records += 1,
        });
    }
    missed.sort_unstable();
    assert_eq!((missed, records), (vec![(0, 0, 67), (1, 0, 67), (2, 0, 67)], 32));
}

#[test]
fn late_joiner_gets_the_latest_quote_of_each_instrument() {
    let Some(cluster) = Cluster::start("late_joiner_gets_the_latest_quote_of_each_instrument") else { return };
    let ring = Ring::new(64);
    let config =
        PublisherConfig { policy: Policy::Conflate, quotes_every: Duration::ZERO, ..PublisherConfig::default() };
    let mut publisher = Publisher::new(kafka(&cluster), config, ring.reader());
    let last = ring.change_quotes(|| _ = publisher.turn().unwrap());
    finish(&mut publisher);
    assert_eq!((publisher.counts().batches, publisher.counts().records), (0, 0), "no events are published");
    let mut found = latest_quotes(cluster.servers(), "xnas").unwrap();
    found.sort_by_key(|quote| quote.symbol.0);
    assert_eq!(found, last);
}

/// kcat: key, headers and bytes of the value, of each message of the topic.
#[test]
fn unmodified_consumer_reads_batches_by_channel_with_their_headers() {
    let test = "unmodified_consumer_reads_batches_by_channel_with_their_headers";
    let Some(cluster) = Cluster::start(test) else { return };
    let mut ring = Ring::new(64);
    let mut publisher = Publisher::new(kafka(&cluster), PublisherConfig::default(), ring.reader());
    (0..6).for_each(|number| _ = ring.writer.publish(&record(number)));
    drop(ring);
    finish(&mut publisher);
    let mut kcat = Command::new("kcat");
    kcat.args(["-C", "-b", &cluster.servers()[0], "-t", "md.xnas.events", "-e", "-f", "%k %S %h\n"]);
    let output = match kcat.stderr(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return println!("SKIPPED {test}: kcat: {error}; install the package kcat"),
    };
    let text = String::from_utf8(output.stdout).unwrap();
    for (channel, seq) in [("0", "0-3"), ("1", "1-4"), ("2", "2-5")] {
        let batch =
            |line: &&str| line.starts_with(&format!("{channel} 256 ")) && line.contains(&format!("Wp-Seq={seq}"));
        let end = |line: &&str| line.starts_with(&format!("{channel} 0 ")) && line.contains("Wp-End=1");
        assert_eq!(text.lines().filter(batch).count(), 1, "{text}");
        assert_eq!(text.lines().filter(end).count(), 1, "{text}");
    }
}
