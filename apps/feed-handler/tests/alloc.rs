//! After the start the worker allocates nothing, however many packets arrive: a day six times as
//! long costs not one allocation more, losses, repetitions and packets that wait for their turn
//! included.
//!
//! Invariants of the counting allocator, which std offers in no safe form:
//! 1. Every call goes to the system allocator unchanged, with the caller's contract.
//! 2. The flag is a thread-local without a destructor and the counter a static, so counting
//!    allocates nothing itself.
#![allow(unsafe_code, reason = "a global allocator is unsafe by its trait")]
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use common::made::{A, Capture, deep_message, deep_of, udp_frame};
use exchange_sim::{Probability, Settings};
use feed_handler::args::{Cli, Command};
use feed_handler::report::Summary;
use feed_handler::{Event, replay};
use tempfile::tempdir;
use wirepath::worker::StopFlag;

/// Counts the allocations of all threads but the test's own.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_TEST: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if !IS_TEST.get() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on unchanged, and counting allocates nothing (1, 2).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc` (1).
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `memory` came from `System` (1).
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`, and `memory` came from `System` (1).
        unsafe { System.realloc(memory, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

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
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let summary = summary(&file, &["--format", "mold-itch50"]);
    (ALLOCATIONS.load(Ordering::Relaxed) - before, summary.gaps)
}

#[test]
fn packets_and_forged_channels_cost_no_allocation() {
    IS_TEST.set(true);
    // The thread that waits for this test allocates as it begins to, which is counted here.
    let _ = allocations_with_forged(1);
    assert_eq!(allocations_with_forged(300), allocations_with_forged(1));
    let (short, _) = allocations(5_000);
    let (long, gaps) = allocations(30_000);
    assert!(gaps > 10, "{gaps} gaps: the day was too quiet to tell");
    assert_eq!(long, short);
}

/// Allocations of the worker's thread in a day of ten packets, with two forged ones of each of so
/// many other channels in it.
fn allocations_with_forged(channels: u32) -> u64 {
    let directory = tempdir().unwrap();
    let (file, config) = (directory.path().join("day.pcap"), directory.path().join("day.toml"));
    let frame = |channel, seq| (seq, udp_frame(A, &deep_of(channel, seq, &[deep_message(b'8', 100, 10_0000)])));
    let forged = (2..2 + channels).flat_map(|channel| [5, 6].map(|seq| frame(channel, seq)));
    Capture((1..=5).map(|seq| frame(1, seq)).chain(forged).chain((6..=10).map(|seq| frame(1, seq))).collect())
        .write(&file);
    let line = "lines = [{ group = \"239.1.1.1\", port = 7 }]";
    fs::write(&config, format!("[[channels]]\nname = \"c\"\nformat = \"iex-deep\"\n{line}\n")).unwrap();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let summary = summary(&file, &["--config", config.to_str().unwrap()]);
    assert_eq!((summary.messages, summary.packets), (10, 10 + 2 * u64::from(channels)));
    ALLOCATIONS.load(Ordering::Relaxed) - before
}
