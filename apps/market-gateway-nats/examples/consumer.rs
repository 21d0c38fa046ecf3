//! Counts the records of a stream, says each second how many there are, and at Ctrl-C what of each
//! channel was missed: `cargo run -p market-gateway-nats --example consumer -- 127.0.0.1:4222 MD`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use market_fanout::ConsumerEvent;
use market_gateway_nats::Consumer;
use wirepath::worker::StopFlag;

/// What came of a channel.
#[derive(Default)]
struct Counts {
    records: u64,
    missed: u64,
    restarts: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().unwrap_or_else(|| "127.0.0.1:4222".to_owned());
    let stream = arguments.next().unwrap_or_else(|| "MD".to_owned());
    let stop = StopFlag::on_signals()?;
    let mut consumer = Consumer::new(server.as_str(), &stream);
    let mut channels = BTreeMap::<u16, Counts>::new();
    let (mut malformed, mut told_at) = (0, Instant::now());
    while !stop.is_stopping() {
        consumer.turn(Duration::from_millis(10), |event| match event {
            // A book is built here; after a hole or a restart it begins anew.
            ConsumerEvent::Record(_, record) => channels.entry(record.channel).or_default().records += 1,
            ConsumerEvent::Missed { channel, .. } => channels.entry(channel).or_default().missed += 1,
            ConsumerEvent::Restart { channel } => channels.entry(channel).or_default().restarts += 1,
            ConsumerEvent::Malformed => malformed += 1,
        });
        if told_at.elapsed() >= Duration::from_secs(1) {
            told_at = Instant::now();
            println!("{} records", channels.values().map(|channel| channel.records).sum::<u64>());
        }
    }
    for (channel, Counts { records, missed, restarts }) in channels {
        println!("channel {channel}: {records} records, {missed} holes, {restarts} restarts");
    }
    println!("{malformed} messages were none of a gateway");
    Ok(())
}
