//! Captures of T7's EOBI made by hand, replayed as a user does.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use common::made::{A, B, Capture, udp_frame};
use common::numbers;
use market::eobi::emit;
use market::eobi::layout::{FullOrderExecution, OrderAddRoot, PartialOrderExecutionRoot};
use market::framing::PacketWriter;
use market::framing::eobi::{EobiBody, EobiHeader, EobiPacket};
use market::sbe::Block;
use serde_json::{Value, json};

/// Lines A and B of one product.
const LINES: &str = r#"
[[channels]]
name = "bund"
format = "eurex-eobi"
numbers = [688]
lines = [{ name = "A", group = "239.1.1.1", port = 7 }, { name = "B", group = "239.1.1.2", port = 7 }]
"#;

const PRODUCT: i32 = 688;
const JUNE: i64 = 5_578_438;
const SEPTEMBER: i64 = 5_578_439;
/// The last of four decimals of a price, and a whole unit.
const UNIT: i64 = 10_000;

/// Message `seq`: an order for one to buy (1) or sell (2), with that priority time.
fn order(seq: u32, security_id: i64, priority: u64, side: u8, price: i64) -> Vec<u8> {
    let root = OrderAddRoot {
        security_id: security_id.into(),
        time_priority: priority.into(),
        display_qty: UNIT.into(),
        side,
        price: (price * UNIT * 10_000).into(),
        ..OrderAddRoot::NULL
    };
    let mut out = Vec::new();
    emit::order_add(seq, &root, &mut out);
    out
}

/// Message `seq`: an order trades.
fn traded(seq: u32, security_id: i64, priority: u64, side: u8, price: i64) -> Vec<u8> {
    let root = PartialOrderExecutionRoot {
        side,
        price: (price * UNIT * 10_000).into(),
        last_px: (price * UNIT * 10_000).into(),
        time_priority: priority.into(),
        security_id: security_id.into(),
        last_qty: UNIT.into(),
        ..PartialOrderExecutionRoot::NULL
    };
    let mut out = Vec::new();
    emit::message(FullOrderExecution::ID, seq, &root, PartialOrderExecutionRoot::BLOCK_LEN, &mut out);
    out
}

fn packet_of(packet: u32, product: i32, is_complete: bool, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_400];
    let (partition, is_reset, sent_ns) = (1, false, 1_000_000_000 + u64::from(packet));
    let header = EobiHeader { packet, product, partition, is_complete, is_reset, sent_ns, body: EobiBody::default() };
    let mut writer = PacketWriter::<EobiPacket>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

/// An event that ends with this packet.
fn packet(packet: u32, messages: &[Vec<u8>]) -> Vec<u8> {
    packet_of(packet, PRODUCT, true, messages)
}

fn silence(number: u32, last_seq: u32) -> Vec<u8> {
    let mut message = Vec::new();
    emit::heartbeat(last_seq, &mut message);
    packet(number, &[message])
}

/// A day of seven packets, one of them of a silence, and one event of two packets.
fn day() -> Vec<Vec<u8>> {
    vec![
        packet(1, &[order(1, JUNE, 1, 1, 130), order(2, SEPTEMBER, 2, 1, 160)]),
        packet(2, &[order(3, JUNE, 3, 2, 133)]),
        packet(3, &[order(4, JUNE, 4, 1, 131)]),
        silence(4, 4),
        packet_of(5, PRODUCT, false, &[order(5, SEPTEMBER, 5, 2, 163)]),
        packet(6, &[traded(6, SEPTEMBER, 2, 1, 160), order(7, SEPTEMBER, 7, 1, 159)]),
        packet(7, &[order(8, JUNE, 8, 2, 132)]),
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
    capture.replay_of("eurex-eobi", LINES, &["--top-of-book", "all"])
}

/// Bid and offer of an instrument at the end.
fn top(summary: &Value, security_id: i64) -> Value {
    let tops = summary["channels"][0]["books"]["tops"].as_array().unwrap();
    let top = tops.iter().find(|top| top["symbol"] == format!("#{security_id}")).unwrap();
    json!([top["bid"], top["ask"]])
}

#[test]
fn packets_lost_on_one_line_change_nothing() {
    let summary = replay(&day(), &[2, 5], &[1, 3, 7]);
    assert_eq!(numbers(&summary, ["channels.0.messages", "channels.0.missing"]), [8, 0], "{summary}");
    let by_type = json!({ "13000 PacketHeader": 6, "13100 OrderAdd": 7, "13104 FullOrderExecution": 1 });
    assert_eq!(summary["by_type"], by_type);
    assert_eq!(top(&summary, JUNE), json!(["131.0000", "132.0000"]));
    assert_eq!(top(&summary, SEPTEMBER), json!(["159.0000", "163.0000"]));
    assert_eq!(numbers(&summary, ["channels.0.books.stale", "channels.0.books.unconfirmed"]), [0, 0]);
}

#[test]
fn packet_lost_on_both_lines_leaves_the_books_of_its_product_unconfirmed() {
    let summary = replay(&day(), &[3], &[3]);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[4, 4]]));
    assert_eq!(numbers(&summary, ["channels.0.books.stale", "channels.0.books.unconfirmed"]), [0, 2]);
}

#[test]
fn heartbeat_shows_that_the_last_packet_was_lost() {
    let mut packets = day();
    packets.extend((8..12).map(|number| silence(number, 8)));
    let summary = replay(&packets, &[7], &[7]);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[8, 8]]));
}

#[test]
fn packets_of_another_product_on_the_group_are_refused() {
    let mut packets = day();
    packets.push(packet_of(8, PRODUCT + 1, true, &[order(9, JUNE, 9, 1, 199)]));
    let summary = replay(&packets, &[], &[]);
    assert_eq!(numbers(&summary, ["channels.0.messages"]), [8]);
    assert_eq!(top(&summary, JUNE), json!(["131.0000", "132.0000"]));
}

#[test]
fn format_is_recognized_where_another_was_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("made.pcap");
    Capture::default().frame(0, udp_frame(A, &day()[0])).write(&file);
    let output = common::run(&["replay", file.to_str().unwrap(), "--format", "iex-tops", "--cpu", "any"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("use --format eurex-eobi"), "{error}");
}
