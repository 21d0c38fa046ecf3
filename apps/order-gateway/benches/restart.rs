//! How long a gateway takes from its start on a journal of a million records to the bytes of its
//! first order: the file is opened and mapped, its records become orders and sums, the session
//! logs in and recovers, the first book comes. Without the round trips of a network.
//!
//! `cargo bench -p order-gateway --bench restart`
#![allow(clippy::unwrap_used, missing_docs, reason = "a panic is the report of a bench")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::env;
use std::path::Path;
use std::time::Instant;

use common::{Buyer, RESERVE, SECOND, Venue, book, config, session};
use order_entry::journal::Journal;
use order_entry::risk::KillSwitch;
use order_gateway::{Core, Gateway, MappedFile, SyncPolicy};

/// An order has three: its intent, its acceptance, its end.
const RECORDS: u64 = 1_000_000;
const JOURNAL_LEN: usize = 128 << 20;
const SAMPLES: usize = 5;
/// By then the rates that are used up at a start have drained.
const DRAINED_NS: u64 = 2_000_000;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let mut venue = Venue::new();
    write_journal(&path, &mut venue);
    let mut seconds: Vec<_> = (0..SAMPLES).map(|sample| restart(&path, &mut venue, sample as u64)).collect();
    seconds.sort_by(f64::total_cmp);
    let (least, median, greatest) = (seconds[0], seconds[SAMPLES / 2], seconds[SAMPLES - 1]);
    if env::args().nth(1).is_some_and(|word| word == "rows") {
        // For the report of wirepath-benches.
        return println!("row\tfirst-order\ts\t{median}\t{least}\t{greatest}");
    }
    println!(
        "restart on a journal of {RECORDS} records to the first order: {median:.3} s, {least:.3} to {greatest:.3}"
    );
}

/// The journal of a gateway whose orders were accepted and canceled.
fn write_journal(path: &Path, venue: &mut Venue) {
    let (memory, _) = MappedFile::open(path, JOURNAL_LEN, SyncPolicy::Off).unwrap();
    let journal = Journal::create(memory, 1, 0, RESERVE).unwrap();
    let mut gateway = Gateway::new(Buyer::default(), Core::new(config(&KillSwitch::new()), session(), journal));
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    for order in 0..RECORDS / 3 {
        let now_ns = SECOND + order * 10_000;
        gateway.on_book(&book(10, now_ns));
        venue.pump(&mut gateway, now_ns);
        end_last(venue, now_ns);
        venue.pump(&mut gateway, now_ns);
    }
    assert_eq!(gateway.core().counts().orders, RECORDS / 3);
    venue.disconnected();
}

/// Accepts the last order, and cancels it.
fn end_last(venue: &mut Venue, now_ns: u64) {
    let last = venue.orders.len() - 1;
    venue.accept(last, now_ns);
    venue.cancel(last, 10, now_ns);
}

/// Seconds until the first order stands. Each restart is a second behind the one before it: at the
/// same time its order would be a duplicate of that one's, which the journal has.
fn restart(path: &Path, venue: &mut Venue, sample: u64) -> f64 {
    let now_ns = (3_600 + sample) * SECOND;
    let started = Instant::now();
    let (memory, _) = MappedFile::open(path, JOURNAL_LEN, SyncPolicy::Off).unwrap();
    let (core, rebuild) = Core::recover(config(&KillSwitch::new()), session(), memory, RESERVE).unwrap();
    let mut gateway = Gateway::new(Buyer::default(), core);
    venue.connect(&mut gateway, now_ns);
    gateway.core_mut().arm(now_ns);
    let now_ns = now_ns + DRAINED_NS;
    gateway.on_book(&book(10, now_ns));
    assert!(!gateway.core().to_send().is_empty(), "{:?}", gateway.strategy().refusals);
    let seconds = started.elapsed().as_secs_f64();
    assert!(rebuild.counts().applied >= RECORDS && rebuild.counts().refused == 0);
    venue.pump(&mut gateway, now_ns);
    end_last(venue, now_ns);
    venue.pump(&mut gateway, now_ns);
    venue.disconnected();
    seconds
}
