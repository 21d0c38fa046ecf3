//! Captures of NYSE Pillar's Integrated Feed made by hand, replayed as a user does.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use common::made::{A, B, Capture, udp_frame};
use common::numbers;
use market::framing::PacketWriter;
use market::framing::pillar::{PillarHeader, PillarPacket};
use market::pillar::{
    AddOrder, DeleteOrder, Head, OrderExecution, SequenceNumberReset, SourceTimeReference, SymbolClear, SymbolHead,
    SymbolIndexMapping,
};
use serde_json::{Value, json};
use zerocopy::IntoBytes;

/// Lines A and B of one channel.
const LINES: &str = r#"
[[channels]]
name = "integrated-1"
format = "nyse-pillar"
lines = [{ name = "A", group = "239.1.1.1", port = 7 }, { name = "B", group = "239.1.1.2", port = 7 }]
"#;

fn of(symbol_index: u32) -> SymbolHead {
    SymbolHead { source_time_ns: 1.into(), symbol_index: symbol_index.into(), symbol_seq_num: 0.into() }
}

/// The definition of an instrument whose prices have six decimals.
fn mapping(symbol_index: u32, name: [u8; 11]) -> Vec<u8> {
    let head = Head::new(SymbolIndexMapping::LEN, SymbolIndexMapping::KIND);
    let mut definition = [0; SymbolIndexMapping::LEN];
    definition[..4].copy_from_slice(head.as_bytes());
    definition[4..8].copy_from_slice(&symbol_index.to_le_bytes());
    definition[8..19].copy_from_slice(&name);
    definition[24] = 6;
    definition.to_vec()
}

fn add(symbol_index: u32, order_id: u64, side: u8, cents: u32) -> Vec<u8> {
    let head = Head::new(AddOrder::LEN, AddOrder::KIND);
    let (price, volume) = ((cents * 10_000).into(), 100.into());
    AddOrder {
        head,
        of: of(symbol_index),
        order_id: order_id.into(),
        price,
        volume,
        side,
        firm_id: [b' '; 5],
        reserved_1: 0,
    }
    .as_bytes()
    .to_vec()
}

fn second() -> Vec<u8> {
    let head = Head::new(SourceTimeReference::LEN, SourceTimeReference::KIND);
    SourceTimeReference { head, id: 0.into(), symbol_seq_num: 0.into(), source_time: 1_700_000_000.into() }
        .as_bytes()
        .to_vec()
}

fn execution(symbol_index: u32, order_id: u64, volume: u32) -> Vec<u8> {
    OrderExecution {
        head: Head::new(OrderExecution::LEN, OrderExecution::KIND),
        of: of(symbol_index),
        order_id: order_id.into(),
        trade_id: 1.into(),
        price: 990_000.into(),
        volume: volume.into(),
        printable_flag: 1,
        reserved_1: 0,
        trade_cond: *b"@   ",
    }
    .as_bytes()
    .to_vec()
}

fn delete(symbol_index: u32, order_id: u64) -> Vec<u8> {
    let head = Head::new(DeleteOrder::LEN, DeleteOrder::KIND);
    DeleteOrder { head, of: of(symbol_index), order_id: order_id.into(), reserved_1: 0 }.as_bytes().to_vec()
}

fn symbol_clear(symbol_index: u32) -> Vec<u8> {
    SymbolClear {
        head: Head::new(SymbolClear::LEN, SymbolClear::KIND),
        source_time: 1_700_000_000.into(),
        source_time_ns: 5.into(),
        symbol_index: symbol_index.into(),
        next_source_seq_num: 0.into(),
    }
    .as_bytes()
    .to_vec()
}

fn reset() -> Vec<u8> {
    SequenceNumberReset {
        head: Head::new(SequenceNumberReset::LEN, SequenceNumberReset::KIND),
        source_time: 1_700_000_001.into(),
        source_time_ns: 0.into(),
        product_id: 1,
        channel_id: 1,
    }
    .as_bytes()
    .to_vec()
}

fn packet(delivery_flag: u8, seq: u32, sent_ns: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1_400];
    let header = PillarHeader { delivery_flag, count: 0, seq, sent_ns };
    let mut writer = PacketWriter::<PillarPacket>::new(header, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

fn original(seq: u32, messages: &[Vec<u8>]) -> Vec<u8> {
    packet(PillarHeader::ORIGINAL, seq, 1_000_000_000 + u64::from(seq), messages)
}

/// A day of seven packets: definitions, two books, and a heartbeat.
fn day() -> Vec<Vec<u8>> {
    vec![
        original(1, &[mapping(9, *b"AAPL\0\0\0\0\0\0\0"), mapping(4_719, *b"AKO.A\0\0\0\0\0\0"), second()]),
        original(4, &[add(9, 1, b'B', 9_900), add(9, 2, b'S', 10_000)]),
        original(6, &[add(4_719, 3, b'B', 2_000), add(9, 4, b'B', 9_901)]),
        packet(PillarHeader::HEARTBEAT, 8, 1_000_000_008, &[]),
        original(8, &[execution(9, 4, 100)]),
        original(9, &[add(4_719, 5, b'S', 2_100), delete(9, 2)]),
        original(11, &[add(9, 6, b'S', 9_950)]),
    ]
}

/// Replays packets on both lines, without these of line A and of line B.
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
    capture.replay_of("nyse-pillar", LINES, &["--top-of-book", "all"])
}

/// Bid and offer of an instrument at the end, and whether they are stale.
fn top(summary: &Value, symbol: &str) -> Value {
    let tops = summary["channels"][0]["books"]["tops"].as_array().unwrap();
    let top = tops.iter().find(|top| top["symbol"] == symbol).unwrap();
    json!([top["bid"], top["ask"], top["stale"]])
}

#[test]
fn packets_lost_on_one_line_change_nothing() {
    let summary = replay(&day(), &[2, 5, 7], &[1, 3, 6]);
    assert_eq!(numbers(&summary, ["channels.0.messages", "channels.0.missing"]), [11, 0], "{summary}");
    let by_type = json!({ "100": 6, "102": 1, "103": 1, "2": 1, "3": 2 });
    assert_eq!(summary["by_type"], by_type, "{summary}");
    assert_eq!(top(&summary, "AAPL"), json!(["99.0000", "99.5000", false]));
    assert_eq!(top(&summary, "AKO.A"), json!(["20.0000", "21.0000", false]));
}

/// What a re-request brings is a packet of its own kind, on another group: here it is forged.
#[test]
fn unsequenced_packet_on_a_numbered_channel_changes_no_book_and_is_counted() {
    let mut packets = day();
    for flag in PillarHeader::ONE_REFRESH_PACKET..=PillarHeader::MESSAGE_UNAVAILABLE {
        packets.push(packet(flag, 12, 2_000_000_000, &[symbol_clear(9), add(9, 70, b'B', 9_800)]));
    }
    let summary = replay(&packets, &[], &[]);
    assert_eq!(top(&summary, "AAPL"), json!(["99.0000", "99.5000", false]), "{summary}");
    assert_eq!(top(&summary, "AKO.A"), json!(["20.0000", "21.0000", false]));
    assert_eq!((numbers(&summary, ["messages"]), &summary["drops"]), ([11], &json!({ "feed.unsequenced": 10 })));
}

#[test]
fn packet_lost_on_both_lines_is_a_gap() {
    let summary = replay(&day(), &[3], &[3]);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[6, 7]]), "{summary}");
    assert_eq!(top(&summary, "AAPL")[2], true);
}

#[test]
fn messages_of_instruments_whose_definition_was_lost_are_refused_and_counted() {
    let summary = replay(&day(), &[1], &[1]);
    assert_eq!(summary["undecoded"]["undefined"], 8, "{summary}");
    assert_eq!(numbers(&summary, ["channels.0.books.instruments"]), [0]);
}

#[test]
fn symbol_clear_empties_one_book() {
    let mut packets = day();
    packets.push(original(12, &[symbol_clear(9), add(9, 7, b'B', 9_000)]));
    let summary = replay(&packets, &[], &[]);
    assert_eq!(top(&summary, "AAPL"), json!(["90.0000", null, false]), "{summary}");
    assert_eq!(top(&summary, "AKO.A"), json!(["20.0000", "21.0000", false]));
}

#[test]
fn sequence_number_reset_begins_anew_with_empty_books_and_no_definitions() {
    let (days_later, ms_later) = (1_000_000_000_000, 1_010_000_000);
    [days_later, ms_later].into_iter().for_each(begins_anew);
}

fn begins_anew(later: u64) {
    let mut packets = day();
    packets.push(packet(PillarHeader::SEQUENCE_NUMBER_RESET, 1, later, &[reset()]));
    let again = [add(9, 7, b'B', 7_000), mapping(9, *b"AAPL\0\0\0\0\0\0\0"), add(9, 8, b'B', 8_000)];
    packets.push(packet(PillarHeader::ORIGINAL, 2, later + 1, &again));
    let summary = replay(&packets, &[], &[]);
    assert_eq!(numbers(&summary, ["channels.0.missing", "channels.0.restarts"]), [0, 1], "{summary}");
    assert_eq!(summary["undecoded"]["undefined"], 1, "the order before the definition");
    assert_eq!(top(&summary, "AAPL"), json!(["80.0000", null, true]), "the better order is missing: {summary}");
    assert_eq!(summary["undecoded"]["lost_to_books"], 1);
}

#[test]
fn format_is_recognized_where_another_was_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("made.pcap");
    Capture::default().frame(0, udp_frame(A, &day()[1])).write(&file);
    let output = common::run(&["replay", file.to_str().unwrap(), "--format", "iex-tops", "--cpu", "any"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("use --format nyse-pillar"), "{error}");
}
