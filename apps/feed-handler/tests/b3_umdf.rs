//! Captures of B3's UMDF made by hand, replayed as a user does.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use common::made::{A, B, Capture, udp_frame};
use common::numbers;
use market::b3_umdf::emit;
use market::b3_umdf::layout::{DeleteOrderRoot, OrderRoot, TradeRoot};
use market::framing::PacketWriter;
use market::framing::b3_umdf::{B3Header, B3Packet};
use market::sbe::Block;
use serde_json::{Value, json};

/// Lines A and B of one channel.
const LINES: &str = r#"
[[channels]]
name = "equities"
format = "b3-umdf"
numbers = [72]
lines = [{ name = "A", group = "239.1.1.1", port = 7 }, { name = "B", group = "239.1.1.2", port = 7 }]
"#;

const PETR: u64 = 200_000_000_001;
const VALE: u64 = 200_000_000_002;

/// An order to buy (`0`) or sell (`1`), which ends its event.
fn order(security_id: u64, rpt_seq: u32, order_id: u64, entry_type: u8, price: i64) -> Vec<u8> {
    let root = OrderRoot {
        security_id: security_id.into(),
        event_end: 0x80,
        action: 0,
        entry_type,
        price: (price * 10_000).into(),
        size: 3.into(),
        order_id: order_id.into(),
        rpt_seq: rpt_seq.into(),
        ..OrderRoot::NULL
    };
    let mut out = Vec::new();
    emit::order(&root, &mut out);
    out
}

/// A trade that takes an order away, in one event.
fn traded(security_id: u64, rpt_seq: u32, order_id: u64) -> [Vec<u8>; 2] {
    let (mut trade, mut delete) = (Vec::new(), Vec::new());
    let root = TradeRoot {
        security_id: security_id.into(),
        event_end: 0,
        price: 10_000.into(),
        size: 3.into(),
        rpt_seq: rpt_seq.into(),
        ..TradeRoot::NULL
    };
    emit::trade(&root, &mut trade);
    let root = DeleteOrderRoot {
        security_id: security_id.into(),
        event_end: 0x80,
        order_id: order_id.into(),
        rpt_seq: (rpt_seq + 1).into(),
        price: 10_000.into(),
        ..DeleteOrderRoot::NULL
    };
    emit::delete_order(&root, &mut delete);
    [trade, delete]
}

fn packet_of(channel: u8, sequence_version: u16, seq: u32, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_400];
    let sent_ns = 1_000_000_000 + u64::from(seq);
    let header = B3Header { channel, sequence_version, seq, sent_ns, next_seq: None };
    let mut writer = PacketWriter::<B3Packet>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

fn packet(seq: u32, messages: &[Vec<u8>]) -> Vec<u8> {
    packet_of(72, 5, seq, messages)
}

/// `Sequence`, which names the next number.
fn silence(next: u32) -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    emit::sequence(next, &mut message);
    vec![message]
}

/// A day of six packets, and one of a silence, which repeats the last number: two instruments, a
/// trade, and a silence.
fn day() -> Vec<Vec<u8>> {
    vec![
        packet(1, &[order(PETR, 1, 1, b'0', 30), order(VALE, 1, 1, b'0', 60)]),
        packet(2, &[order(PETR, 2, 2, b'1', 33)]),
        packet(3, &[order(PETR, 3, 3, b'0', 31)]),
        packet(4, &[order(VALE, 2, 2, b'1', 63)]),
        packet(4, &silence(5)),
        packet(5, &traded(VALE, 3, 1)),
        packet(6, &[order(PETR, 4, 4, b'1', 32), order(VALE, 5, 3, b'0', 59)]),
    ]
}

/// Replays packets without these of line A and of line B.
fn replay(packets: &[Vec<u8>], lost_a: &[usize], lost_b: &[usize]) -> Value {
    let mut capture = Capture::default();
    for (idx, packet) in packets.iter().enumerate() {
        let at_us = 10_000 * idx as u64;
        for (line, lost) in [(A, lost_a), (B, lost_b)] {
            if !lost.contains(&(idx + 1)) {
                capture = capture.frame(at_us, udp_frame(line, packet));
            }
        }
    }
    capture.replay_of("b3-umdf", LINES, &["--top-of-book", "all"])
}

/// Bid and offer of an instrument at the end, and whether they are stale.
fn top(summary: &Value, security_id: u64) -> Value {
    let tops = summary["channels"][0]["books"]["tops"].as_array().unwrap();
    let top = tops.iter().find(|top| top["symbol"] == format!("#{security_id}")).unwrap();
    json!([top["bid"], top["ask"], top["stale"]])
}

#[test]
fn packets_lost_on_one_line_change_nothing() {
    let summary = replay(&day(), &[2, 5], &[1, 3, 7]);
    assert_eq!(numbers(&summary, ["channels.0.messages", "channels.0.missing"]), [6, 0], "packets, by B3's numbers");
    let by_type = json!({ "50 Order": 7, "51 DeleteOrder": 1, "53 Trade": 1 });
    assert_eq!(summary["by_type"], by_type, "{summary}");
    assert_eq!(top(&summary, PETR), json!(["31.0000", "32.0000", false]));
    assert_eq!(top(&summary, VALE), json!(["59.0000", "63.0000", false]));
    assert_eq!(numbers(&summary, ["channels.0.books.stale", "channels.0.books.unconfirmed"]), [0, 0]);
}

#[test]
fn packet_lost_on_both_lines_hurts_the_one_book_that_it_was_about() {
    let summary = replay(&day(), &[3], &[3]);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[3, 3]]));
    assert_eq!(numbers(&summary, ["channels.0.books.instruments", "channels.0.books.stale"]), [2, 1]);
    assert_eq!(summary["channels"][0]["books"]["own_counts"], json!({ "hurt": 1, "lost_updates": 1 }));
    assert_eq!(summary["books"]["own_counts"], json!({ "hurt": 1, "lost_updates": 1 }));
    assert_eq!(top(&summary, PETR)[2], true);
    assert_eq!(top(&summary, VALE), json!(["59.0000", "63.0000", false]));
}

#[test]
fn silence_is_no_loss_and_shows_one_whether_it_repeats_the_last_number_or_has_the_next() {
    for seq in [6, 7] {
        silence_shows_the_lost_last_packet(seq);
    }
}

/// The last packet is lost, and silences, with number `seq`, name the number behind it.
fn silence_shows_the_lost_last_packet(seq: u32) {
    let mut packets = day();
    packets.extend((0..4).map(|_| packet(seq, &silence(7))));
    let summary = replay(&packets, &[], &[]);
    assert_eq!(numbers(&summary, ["channels.0.messages", "channels.0.missing"]), [6, 0]);
    let summary = replay(&packets, &[7], &[7]);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[6, 6]]));
}

#[test]
fn another_sequence_version_begins_with_empty_books_and_numbers_of_its_own() {
    let mut packets = day();
    packets.extend([
        packet_of(72, 6, 1, &[order(PETR, 1, 9, b'0', 20)]),
        packet_of(72, 6, 2, &[order(PETR, 2, 10, b'1', 21)]),
    ]);
    let summary = replay(&packets, &[], &[]);
    assert_eq!(numbers(&summary, ["channels.0.restarts", "channels.0.missing"]), [1, 0], "{summary}");
    assert_eq!(top(&summary, PETR), json!(["20.0000", "21.0000", false]));
}

#[test]
fn packets_of_another_channel_on_the_group_are_refused() {
    let mut packets = day();
    packets.push(packet_of(73, 5, 8, &[order(PETR, 5, 9, b'0', 99)]));
    let summary = replay(&packets, &[], &[]);
    assert_eq!(numbers(&summary, ["channels.0.messages"]), [6]);
    assert_eq!(top(&summary, PETR), json!(["31.0000", "32.0000", false]));
}

#[test]
fn format_is_recognized_where_another_was_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("made.pcap");
    Capture::default().frame(0, udp_frame(A, &day()[0])).write(&file);
    let output = common::run(&["replay", file.to_str().unwrap(), "--format", "iex-tops", "--cpu", "any"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("use --format b3-umdf"), "{error}");
}
