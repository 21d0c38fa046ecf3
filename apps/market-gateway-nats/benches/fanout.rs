//! Events a second that four subscribers get, from a ring by one publisher and a real nats-server
//! with JetStream, all over loopback: `cargo bench -p market-gateway-nats --bench fanout`.
#![allow(clippy::unwrap_used, missing_docs, reason = "a panic is the report of a bench")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Ring, Server, record};
use market_fanout::{PublisherConfig, Turn};
use market_gateway_nats::wire::ServerMessage;
use market_gateway_nats::{Connection, JetStream, Publisher};

const SUBSCRIBERS: usize = 4;
const RECORDS: u64 = 2_000_000;
/// Bytes of a record in a batch.
const ENTRY_LEN: u64 = 128;

fn main() {
    let Some(server) = Server::start("fanout") else { return };
    let mut ring = Ring::new(1 << 17);
    let broker = JetStream { server: server.address().into(), venue: "bench".into(), ..JetStream::default() };
    let mut publisher = Publisher::new(broker, PublisherConfig::default(), ring.reader());
    // Connected, and the streams made, before the clock runs.
    while publisher.counts().connections == 0 {
        publisher.turn().unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    let (ready, is_ready) = mpsc::channel();
    let subscribers: Vec<_> = (0..SUBSCRIBERS)
        .map(|_| {
            let (address, ready) = (server.address().into(), ready.clone());
            thread::spawn(move || {
                let mut link = Connection::open(&address).unwrap();
                link.subscribe("md.bench.*.events");
                link.flush(|_| ()).unwrap();
                ready.send(()).unwrap();
                let mut records = 0;
                while records < RECORDS {
                    let take = |told: ServerMessage<'_>| {
                        if let ServerMessage::Message { payload, .. } = told {
                            records += payload.len() as u64 / ENTRY_LEN;
                        }
                    };
                    link.poll(Duration::from_secs(1), take).unwrap();
                }
            })
        })
        .collect();
    subscribers.iter().for_each(|_| is_ready.recv().unwrap());
    let (started, mut next) = (Instant::now(), 0);
    while next < RECORDS {
        for _ in 0..4_096 {
            ring.writer.publish(&record(next));
            next += 1;
        }
        // The ring holds all that the publisher has not read: nothing is missed.
        while publisher.counts().records < next {
            publisher.turn().unwrap();
        }
    }
    drop(ring);
    while publisher.turn().unwrap() != Turn::Ended {}
    subscribers.into_iter().for_each(|subscriber| subscriber.join().unwrap());
    let seconds = started.elapsed().as_secs_f64();
    let each = RECORDS as f64 / seconds / 1e6;
    let delivered = each * SUBSCRIBERS as f64;
    if std::env::args().nth(1).is_some_and(|name| name == "rows") {
        // For the report of wirepath-benches: one sample.
        return println!("row\tdelivered\tM/s\t{delivered}\t{delivered}\t{delivered}");
    }
    println!("{RECORDS} events to each of {SUBSCRIBERS} subscribers in {seconds:.2} s, {:?}", publisher.counts());
    println!("{each:.2} M events/s to each, {delivered:.2} M/s delivered in all");
}
