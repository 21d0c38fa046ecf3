//! After the start the worker allocates nothing, however many packets arrive: a day six times as
//! long costs not one allocation more, losses, repetitions and packets that wait for their turn
//! included.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::fs;
use std::path::Path;

use clap::Parser;
use common::made::{A, Capture, deep_message, deep_of, udp_frame};
use exchange_sim::Settings;
use feed_handler::args::{Cli, Command};
use feed_handler::report::Summary;
use feed_handler::{Event, replay};
use market::truth::Probability;
use tempfile::tempdir;
use wirepath::worker::StopFlag;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

fn summary(file: &Path, flags: &[&str]) -> Summary {
    let arguments = ["feed-handler", "replay", file.to_str().unwrap(), "--cpu", "any"];
    let Command::Replay(args) = Cli::parse_from(arguments.iter().chain(flags)).command else {
        panic!("a replay was asked for")
    };
    replay(&args.plan().unwrap(), &StopFlag::new(), |_: Event| ()).unwrap()
}

/// Allocations of the worker's thread in a day of so many messages, and the day's gaps.
fn allocations(messages: u64) -> (u64, u64) {
    let directory = tempdir().unwrap();
    let file = directory.path().join("day.pcap");
    let mut settings = Settings { messages, symbols: 20, ..Settings::default() };
    for line in &mut settings.lines {
        line.loss = Probability::try_from(0.05).unwrap();
        line.reorder = Probability::try_from(0.05).unwrap();
        line.duplicate = Probability::try_from(0.01).unwrap();
    }
    exchange_sim::generate(&settings, &file).unwrap();
    let before = allocations::count_elsewhere();
    let summary = summary(&file, &["--format", "mold-itch50"]);
    (allocations::count_elsewhere() - before, summary.gaps)
}

#[test]
fn packets_and_forged_channels_cost_no_allocation() {
    // The thread that waits for this test allocates as it begins to, which is counted here.
    let _ = allocations_with_forged(1);
    assert_eq!(allocations_with_forged(300), allocations_with_forged(1));
    let (short, _) = allocations(5_000);
    let (long, gaps) = allocations(30_000);
    assert!(gaps > 10, "{gaps} gaps: the day was too quiet to tell");
    assert_eq!(long, short);
}

/// Allocations of the worker's thread in a day of ten packets, which contains two forged packets
/// for each of `channels` other channels.
fn allocations_with_forged(channels: u32) -> u64 {
    let directory = tempdir().unwrap();
    let (file, config) = (directory.path().join("day.pcap"), directory.path().join("day.toml"));
    let frame = |channel, seq| (seq, udp_frame(A, &deep_of(channel, seq, &[deep_message(b'8', 100, 10_0000)])));
    let forged = (2..2 + channels).flat_map(|channel| [5, 6].map(|seq| frame(channel, seq)));
    Capture((1..=5).map(|seq| frame(1, seq)).chain(forged).chain((6..=10).map(|seq| frame(1, seq))).collect())
        .write(&file);
    let line = "lines = [{ group = \"239.1.1.1\", port = 7 }]";
    fs::write(&config, format!("[[channels]]\nname = \"c\"\nformat = \"iex-deep\"\n{line}\n")).unwrap();
    let before = allocations::count_elsewhere();
    let summary = summary(&file, &["--config", config.to_str().unwrap()]);
    assert_eq!((summary.messages, summary.packets), (10, 10 + 2 * u64::from(channels)));
    allocations::count_elsewhere() - before
}
