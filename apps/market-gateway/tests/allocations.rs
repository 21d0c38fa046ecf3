//! After the start the worker allocates nothing for its ring, however many events it hands on.
//! Alone in its program, because allocations of all other threads are counted.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use exchange_sim::Settings;
use feed_handler::args::{Cli, Command};
use feed_handler::{Event, SinkContext, replay_with};
use market::truth::Probability;
use market_gateway::{GatewayCounts, RingSink};
use market_ring::RingConfig;
use wirepath::worker::StopFlag;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Allocations of the worker's thread in a day of so many messages, and the day's gaps.
fn allocations(folder: &Path, messages: u64) -> (u64, u64) {
    let (file, ring) = (folder.join("day.pcap"), folder.join("day.ring"));
    let mut settings = Settings { messages, symbols: 20, ..Settings::default() };
    settings.lines.iter_mut().for_each(|line| line.loss = Probability::try_from(0.05).unwrap());
    exchange_sim::generate(&settings, &file).unwrap();
    let arguments = ["feed-handler", "replay", file.to_str().unwrap(), "--cpu", "any", "--format", "mold-itch50"];
    let Command::Replay(args) = Cli::parse_from(arguments).command else { panic!("a replay was asked for") };
    let counts = Arc::new(GatewayCounts::default());
    let sinks = move |context: &SinkContext| {
        let config = RingConfig { records: 64, quotes: 64, ..RingConfig::default() };
        RingSink::create(&ring, &config, context, Arc::clone(&counts))
    };
    let before = allocations::count_elsewhere();
    let summary = replay_with(&args.plan().unwrap(), &StopFlag::new(), |_: Event| (), sinks).unwrap();
    (allocations::count_elsewhere() - before, summary.gaps)
}

#[test]
fn handing_on_allocates_nothing_however_long_the_day() {
    let folder = tempfile::tempdir().unwrap();
    // The thread that waits for this test allocates as it begins to, which the first counts.
    allocations(folder.path(), 1_000);
    let (short, _) = allocations(folder.path(), 5_000);
    let (long, gaps) = allocations(folder.path(), 20_000);
    assert!(gaps > 3, "{gaps} gaps: the day was too quiet to tell");
    assert_eq!(long, short);
}
