//! Plain files of messages: how they end, and how they are published.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::fs;
use std::io::Write;
use std::time::Instant;

use common::{numbers, replay};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::tempdir;

/// A system event at `at_ms` after midnight, with its length.
fn event(at_ms: u64) -> Vec<u8> {
    let time = (at_ms * 1_000_000).to_be_bytes();
    [&[0, 12][..], b"S\0\0\0\0", &time[2..], b"O"].concat()
}

fn events(count: u64) -> Vec<u8> {
    (0..count).flat_map(event).collect()
}

fn replay_bytes(bytes: &[u8], flags: &[&str]) -> Value {
    let directory = tempdir().unwrap();
    let file = directory.path().join("messages");
    fs::write(&file, bytes).unwrap();
    replay(&file, "itch50-file", flags)
}

#[test]
fn file_that_ends_in_mid_message_gives_the_whole_ones_and_names_the_cut() {
    let mut bytes = events(100);
    bytes.truncate(bytes.len() - 1);
    let summary = replay_bytes(&bytes, &[]);
    assert_eq!(numbers(&summary, ["messages", "gaps"]), [99, 0]);
    assert_eq!(summary["truncation"], format!("cut in the middle of the message at byte {}", 99 * 14));
}

#[test]
fn gzip_stream_that_was_cut_is_a_truncation() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(&events(10_000)).unwrap();
    let gzip = encoder.finish().unwrap();
    let summary = replay_bytes(&gzip[..gzip.len() / 2], &[]);
    assert!(summary["truncation"].as_str().unwrap().contains("gzip stream"), "{}", summary["truncation"]);
    assert!(summary["messages"].as_u64().unwrap() > 1_000);
}

#[test]
fn length_of_zero_ends_the_file() {
    let summary = replay_bytes(&[&events(3)[..], &[0, 0], &events(3)].concat(), &[]);
    assert_eq!((numbers(&summary, ["messages"]), &summary["truncated"]), ([3], &json!(false)));
}

#[test]
fn message_of_unknown_type_is_counted_and_one_that_fits_no_frame_is_dropped_by_name() {
    let block = |len: u16| [&len.to_be_bytes()[..], &vec![b'~'; len.into()]].concat();
    let summary = replay_bytes(&[events(2), block(3_000), block(65_000), events(2)].concat(), &[]);
    assert_eq!(numbers(&summary, ["messages", "undecoded.unknown_type", "missing"]), [5, 1, 1]);
    assert_eq!(summary["drops"], json!({ "rx.too_long": 1 }));
}

#[test]
fn losses_are_gaps_of_the_published_session() {
    let summary = replay_bytes(&events(2_000), &["--fault-loss", "10%"]);
    // Each packet has two messages, because they are a millisecond apart.
    let lost = summary["drops"]["fault.rx.loss"].as_u64().unwrap();
    assert!(lost > 50 && summary["missing"].as_u64().unwrap() >= 2 * (lost - 1), "{summary}");
}

#[test]
fn recorded_pace_is_that_of_the_times_in_the_messages() {
    let bytes = [event(34_200_000), event(34_200_400)].concat();
    let started = Instant::now();
    let summary = replay_bytes(&bytes, &["--pace", "recorded"]);
    assert!(started.elapsed().as_millis() >= 400);
    assert!(summary["seconds"].as_f64().unwrap() >= 0.4);
    assert!(replay_bytes(&bytes, &["--pace", "100x"])["seconds"].as_f64().unwrap() < 0.4);
}
