//! Captures of MDP 3.0 made by hand, replayed as a user does.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use common::made::{A, B, Capture, udp_frame};
use common::numbers;
use market::framing::PacketWriter;
use market::framing::mdp3::{Mdp3Header, Mdp3Packet};
use market::mdp3::emit;
use market::mdp3::layout::{AdminHeartbeat, BookEntry, BookRoot, emit_head};
use market::sbe::Block;
use serde_json::{Value, json};

/// Lines A and B of one channel.
const LINES: &str = r#"
[[channels]]
name = "310"
format = "cme-mdp3"
lines = [{ name = "A", group = "239.1.1.1", port = 7 }, { name = "B", group = "239.1.1.2", port = 7 }]
"#;

/// A message with one level of a book, which ends its event.
fn level(security_id: i32, rpt_seq: u32, entry_type: u8, price: i64) -> Vec<u8> {
    let entry = BookEntry {
        price: (price * 1_000_000_000).into(),
        size: 3.into(),
        security_id: security_id.into(),
        rpt_seq: rpt_seq.into(),
        level: 1,
        action: 0,
        entry_type,
        ..BookEntry::NULL
    };
    let mut out = Vec::new();
    emit::book(&BookRoot { transact_time: 9.into(), event_end: 0x84 }, &[entry], &mut out);
    out
}

fn packet(seq: u32, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_400];
    let header = Mdp3Header { seq, sent_ns: 1_000_000_000 + u64::from(seq) };
    let mut writer = PacketWriter::<Mdp3Packet>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

/// A day of six packets: two instruments, and a heartbeat.
fn day() -> Vec<Vec<u8>> {
    vec![
        packet(1, &[level(5, 1, b'0', 100), level(6, 1, b'0', 200)]),
        packet(2, &[level(5, 2, b'1', 110)]),
        packet(3, &[level(5, 3, b'0', 101)]),
        packet(4, &[level(6, 2, b'1', 210), level(6, 3, b'E', 205)]),
        packet(5, &[emit_head(AdminHeartbeat::ID, 0).to_vec()]),
        packet(6, &[level(5, 4, b'0', 102), level(6, 4, b'1', 209)]),
    ]
}

/// Replays the day without these packets of line A and of line B.
fn replay(lost_a: &[usize], lost_b: &[usize]) -> Value {
    let mut capture = Capture::default();
    for (idx, packet) in day().iter().enumerate() {
        let at_us = 10_000 * idx as u64;
        for (line, lost) in [(A, lost_a), (B, lost_b)] {
            if !lost.contains(&(idx + 1)) {
                capture = capture.frame(at_us, udp_frame(line, packet));
            }
        }
    }
    capture.replay_of("cme-mdp3", LINES, &["--top-of-book", "all"])
}

/// Bid and offer of an instrument at the end, and whether they are stale.
fn top(summary: &Value, symbol: &str) -> Value {
    let tops = summary["channels"][0]["books"]["tops"].as_array().unwrap();
    let top = tops.iter().find(|top| top["symbol"] == symbol).unwrap();
    json!([top["bid"], top["ask"], top["stale"]])
}

#[test]
fn packets_lost_on_one_line_change_nothing() {
    let summary = replay(&[2, 5], &[1, 3, 6]);
    assert_eq!(numbers(&summary, ["channels.0.messages", "channels.0.missing"]), [6, 0], "packets, by CME's numbers");
    assert_eq!(summary["by_type"], json!({ "12 AdminHeartbeat": 1, "46 Book": 8 }), "{summary}");
    assert_eq!(top(&summary, "#5"), json!(["102.0000", "110.0000", false]));
    assert_eq!(top(&summary, "#6"), json!(["200.0000", "209.0000", false]), "an implied bid is no bid");
    let unconfirmed = numbers(&summary, ["channels.0.books.stale", "channels.0.books.unconfirmed"]);
    assert_eq!(unconfirmed, [0, 2], "nobody has told how many levels the venue publishes of them");
}

#[test]
fn packet_lost_on_both_lines_hurts_the_one_book_that_it_was_about() {
    let summary = replay(&[3], &[3]);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[3, 3]]));
    assert_eq!(numbers(&summary, ["channels.0.books.instruments", "channels.0.books.stale"]), [2, 1]);
    assert_eq!(top(&summary, "#5")[2], true);
    assert_eq!(top(&summary, "#6"), json!(["200.0000", "209.0000", false]));
}

#[test]
fn format_is_recognized_where_another_was_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("made.pcap");
    Capture::default().frame(0, udp_frame(A, &day()[0])).write(&file);
    let output = common::run(&["replay", file.to_str().unwrap(), "--format", "iex-tops", "--cpu", "any"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("use --format cme-mdp3"), "{error}");
}
