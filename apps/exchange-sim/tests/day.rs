//! The day as a receiver sees it, against its truth.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use common::{Seen, day, receive};
use exchange_sim::{Burst, Settings, Truth, read_truth, write_truth};

fn settings() -> Settings {
    Settings { symbols: 50, messages: 30_000, ..Settings::default() }
}

/// The same faults on both lines.
fn faulty(loss: &str, reorder: &str, duplicate: &str) -> Settings {
    let mut settings = settings();
    for line in &mut settings.lines {
        line.loss = loss.parse().unwrap();
        line.reorder = reorder.parse().unwrap();
        line.duplicate = duplicate.parse().unwrap();
    }
    settings
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Generates, receives, and compares everything that a receiver can count.
fn check(settings: &Settings) -> (Truth, Seen) {
    let (capture, truth) = day(settings);
    let seen = receive(capture, settings);
    truth.check().unwrap();
    for (line, seen) in truth.lines.iter().zip(&seen.lines) {
        assert_eq!(seen.packets, line.sent.total, "line {}", line.name);
        assert_eq!(seen.messages, line.sent.messages, "line {}", line.name);
        assert_eq!(seen.heartbeats, line.sent.heartbeats, "line {}", line.name);
        assert_eq!(seen.ends, line.sent.end_of_session, "line {}", line.name);
        assert_eq!(seen.reordered, line.reordered, "line {}", line.name);
    }
    assert_eq!(seen.messages.len() as u64, truth.receivable);
    let missing: Vec<u64> = (1..=truth.messages).filter(|number| !seen.messages.contains_key(number)).collect();
    let lost: Vec<u64> = truth.lost_on_both.ranges.iter().flat_map(|range| range.first..=range.last).collect();
    assert_eq!(missing, lost);
    (truth, seen)
}

#[test]
fn same_seed_gives_the_same_bytes() {
    let settings = faulty("1%", "2%", "1%");
    let (first, truth) = day(&settings);
    assert_eq!((first.clone(), truth), day(&settings));
    // Users rely on the bytes: a change of the model that changes this number goes into
    // CHANGELOG.md.
    assert_eq!(hash(&first), 5_557_003_389_891_376_516);
    assert_ne!(hash(&first), hash(&day(&Settings { seed: 2, ..settings }).0));
}

#[test]
fn nothing_is_missing_without_injection() {
    let (truth, seen) = check(&settings());
    assert_eq!(truth.receivable, 30_000);
    assert!(truth.lost_on_both.ranges.is_empty());
    assert_eq!(truth.lines[0].sent, truth.packets);
    assert_eq!(truth.lines[1].sent, truth.packets);
    for (&kind, &count) in &truth.by_type {
        let received = seen.messages.values().filter(|message| message[0] == kind as u8).count();
        assert_eq!(received as u64, count, "{kind}");
    }
}

#[test]
fn messages_lost_on_both_lines_are_ranges() {
    let (truth, _) = check(&faulty("20%", "0", "0"));
    assert!(truth.lost_on_both.ranges.len() > 100);
    let ranges = &truth.lost_on_both.ranges;
    assert!(ranges.windows(2).all(|pair| pair[0].last + 1 < pair[1].first), "adjacent ranges are one");
}

#[test]
fn loss_of_one_line_is_healed_by_the_other() {
    let mut settings = settings();
    settings.lines[0].loss = "100%".parse().unwrap();
    let (truth, _) = check(&settings);
    assert_eq!(truth.lines[0].sent.total, 0);
    assert_eq!(truth.receivable, 30_000);
}

#[test]
fn loss_of_everything_is_one_range() {
    let (truth, _) = check(&faulty("1", "1", "1"));
    assert_eq!(truth.receivable, 0);
    assert_eq!(truth.lost_on_both.ranges.len(), 1);
    assert_eq!(truth.lost_on_both.ranges[0].count(), 30_000);
}

#[test]
fn reordering_and_duplication_lose_nothing() {
    let (truth, _) = check(&faulty("0", "5%", "3%"));
    assert_eq!(truth.receivable, 30_000);
    for line in &truth.lines {
        assert!(line.reordered > 100 && line.duplicated.total > 100);
        assert!(line.reordered <= line.delayed);
    }
}

#[test]
fn all_faults_at_once_add_up() {
    check(&faulty("10%", "10%", "10%"));
}

#[test]
fn loss_of_one_line_leaves_the_other_as_it_was() {
    let mut lossy = faulty("1%", "1%", "1%");
    let before = check(&lossy).0;
    lossy.lines[0].loss = "30%".parse().unwrap();
    let after = check(&lossy).0;
    assert_eq!(before.lines[1], after.lines[1]);
    assert_eq!(before.by_type, after.by_type);
    assert_ne!(before.lines[0], after.lines[0]);
}

#[test]
fn each_mtu_is_kept() {
    for mtu in [94, 576, 9216] {
        check(&Settings { mtu, ..settings() });
    }
}

#[test]
fn quiet_day_has_heartbeats_in_its_quiet_seconds() {
    let (truth, _) = check(&Settings { messages: 400, symbols: 10, rate: 3, burst: Burst::NONE, ..settings() });
    assert!(truth.packets.heartbeats > 10, "{}", truth.packets.heartbeats);
}

#[test]
fn truth_reads_back_as_it_was_written() {
    let truth = day(&faulty("20%", "0.3%", "1.7%")).1;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("day.truth.json");
    write_truth(&truth, &path).unwrap();
    assert_eq!(read_truth(&path).unwrap(), truth);
}

#[test]
fn truth_that_was_edited_does_not_add_up() {
    let truth = day(&faulty("20%", "1%", "1%")).1;
    let edits: [fn(&mut Truth); 8] = [
        |truth| truth.messages += 1,
        |truth| *truth.by_type.get_mut(&'A').unwrap() += 1,
        |truth| truth.last_sequence += 1,
        |truth| truth.packets.heartbeats += 1,
        |truth| truth.lines[0].lost.data += 1,
        |truth| truth.lines[1].sent.messages -= 1,
        |truth| truth.lost_on_both.ranges[0].last += 1,
        |truth| truth.receivable -= 1,
    ];
    for (idx, edit) in edits.into_iter().enumerate() {
        let mut edited = truth.clone();
        edit(&mut edited);
        assert!(edited.check().is_err(), "edit {idx}");
    }
}
