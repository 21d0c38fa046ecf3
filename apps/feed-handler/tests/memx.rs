//! Captures of MEMX's MEMOIR Depth made by hand, replayed as a user does.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use common::made::{A, B, Capture, udp_frame};
use common::{numbers, run};
use market::framing::PacketWriter;
use market::framing::memx_udp::{MemxHeader, MemxUdp};
use market::memx::layout::{
    ClearBook, ClearBookRoot, InstrumentDirectory, InstrumentDirectoryRoot, OrderAdded, OrderAddedRoot, OrderDeleted,
    OrderDeletedRoot, OrderExecuted, OrderExecutedRoot, OrderReduced, OrderReducedRoot, emit_head,
};
use market::sbe::{Block, emit_block};
use serde_json::{Value, json};
use tempfile::tempdir;

/// Lines A and B of one channel.
const LINES: &str = r#"
[[channels]]
name = "depth-1"
format = "memx-depth"
lines = [{ name = "A", group = "239.1.1.1", port = 7 }, { name = "B", group = "239.1.1.2", port = 7 }]
"#;
const SESSION: MemxHeader = MemxHeader { kind: MemxHeader::SEQUENCED, session: 20_261_128, seq: 1, count: 0 };
const CENT: i64 = 10_000;

fn message<T: Block>(template: u16, root: &T) -> Vec<u8> {
    let mut out = emit_head(template, size_of::<T>() as u16).to_vec();
    emit_block(root, size_of::<T>(), &mut out);
    out
}

fn directory(security_id: u16, name: &[u8; 6]) -> Vec<u8> {
    let root =
        InstrumentDirectoryRoot { security_id: security_id.into(), root: *name, suffix: [b' '; 6], ..Block::NULL };
    message(InstrumentDirectory::ID, &root)
}

fn add(security_id: u16, order_id: u64, side: u8, cents: i64) -> Vec<u8> {
    let (security_id, order_id, price) = (security_id.into(), order_id.into(), (cents * CENT).into());
    let root = OrderAddedRoot { timestamp: 1.into(), security_id, order_id, side, quantity: 100.into(), price };
    message(OrderAdded::ID, &root)
}

fn reduce(security_id: u16, order_id: u64, quantity: u32) -> Vec<u8> {
    let (security_id, order_id, quantity) = (security_id.into(), order_id.into(), quantity.into());
    message(OrderReduced::ID, &OrderReducedRoot { timestamp: 1.into(), security_id, order_id, quantity })
}

fn execute(security_id: u16, order_id: u64, quantity: u32) -> Vec<u8> {
    let (security_id, order_id, quantity) = (security_id.into(), order_id.into(), quantity.into());
    let root = OrderExecutedRoot { security_id, order_id, quantity, price: CENT.into(), ..Block::NULL };
    message(OrderExecuted::ID, &root)
}

fn delete(security_id: u16, order_id: u64) -> Vec<u8> {
    let root = OrderDeletedRoot { timestamp: 1.into(), security_id: security_id.into(), order_id: order_id.into() };
    message(OrderDeleted::ID, &root)
}

fn clear(security_id: u16) -> Vec<u8> {
    message(ClearBook::ID, &ClearBookRoot { timestamp: 1.into(), security_id: security_id.into() })
}

fn packet(seq: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut room = [0; 1400];
    let mut writer = PacketWriter::<MemxUdp>::new(MemxHeader { seq, ..SESSION }, &mut room).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    writer.finish().to_vec()
}

fn control(kind: u8, highest: u64) -> Vec<u8> {
    MemxHeader { kind, seq: highest, ..SESSION }.emit().to_vec()
}

fn replay(payloads: impl IntoIterator<Item = (std::net::Ipv4Addr, Vec<u8>)>) -> Value {
    let frames = (0..).step_by(100).zip(payloads);
    let capture = frames.fold(Capture::default(), |capture, (at_us, (group, payload))| {
        capture.frame(at_us, udp_frame(group, &payload))
    });
    capture.replay_of("memx-depth", LINES, &[])
}

/// Two instruments, each with a bid and an offer.
fn opening() -> Vec<Vec<u8>> {
    vec![
        directory(7, b"AAPL  "),
        directory(8, b"MSFT  "),
        add(7, 1, b'B', 10_000),
        add(7, 2, b'S', 10_010),
        add(8, 3, b'B', 20_000),
        add(8, 4, b'S', 20_010),
    ]
}

fn tops(summary: &Value) -> Vec<(String, Value, u64, u64, bool)> {
    let tops = summary["channels"][0]["books"]["tops"].as_array().unwrap();
    let top = |top: &Value| {
        let (bid, ask) = (top["bid_shares"].as_u64().unwrap(), top["ask_shares"].as_u64().unwrap());
        (top["symbol"].as_str().unwrap().to_owned(), top["bid"].clone(), bid, ask, top["stale"].as_bool().unwrap())
    };
    tops.iter().map(top).collect()
}

#[test]
fn day_on_two_lines_makes_the_books_of_its_messages() {
    let changes = vec![reduce(7, 1, 40), execute(7, 2, 30), add(7, 5, b'B', 10_005), delete(8, 4)];
    let both = |payload: Vec<u8>| [(A, payload.clone()), (B, payload)];
    let packets = [
        both(packet(1, &opening())).to_vec(),
        both(packet(7, &changes)).to_vec(),
        both(control(MemxHeader::HEARTBEAT, 10)).to_vec(),
        both(control(MemxHeader::SESSION_SHUTDOWN, 10)).to_vec(),
    ];
    let summary = replay(packets.concat());
    assert_eq!(numbers(&summary, ["messages", "duplicates", "gaps", "heartbeats", "ends"]), [10, 10, 0, 2, 2]);
    assert_eq!(summary["by_type"]["10 OrderAdded"], 5);
    assert_eq!(
        tops(&summary),
        [("AAPL".to_owned(), json!("100.0500"), 100, 70, false), ("MSFT".to_owned(), json!("200.0000"), 100, 0, false)]
    );
}

#[test]
fn packet_that_both_lines_lost_is_a_gap_that_a_heartbeat_shows() {
    let lost = [(A, packet(1, &opening())), (A, control(MemxHeader::HEARTBEAT, 8))];
    let summary = replay(lost);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[7, 8]]));
    assert!(tops(&summary).iter().all(|top| top.4));
}

#[test]
fn cleared_book_is_empty_and_the_others_are_as_they_were() {
    let summary = replay([(A, packet(1, &opening())), (A, packet(7, &[clear(7), add(7, 6, b'B', 9_000)]))]);
    let expected =
        [("MSFT".to_owned(), json!("200.0000"), 100, 100, false), ("AAPL".to_owned(), json!("90.0000"), 100, 0, false)];
    assert_eq!(tops(&summary), expected);
}

/// Nobody sends an image of these books.
#[test]
fn book_that_the_venue_clears_behind_a_gap_is_whole_and_the_others_stay_stale() {
    let behind = [clear(7), add(7, 6, b'B', 9_000), add(8, 7, b'B', 20_001)];
    let summary = replay([(A, packet(1, &opening())), (A, packet(9, &behind))]);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[7, 8]]));
    let mut found = tops(&summary);
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let expected =
        [("AAPL".to_owned(), json!("90.0000"), 100, 0, false), ("MSFT".to_owned(), json!("200.0100"), 100, 100, true)];
    assert_eq!(found, expected);
}

#[test]
fn order_of_an_instrument_that_was_not_defined_is_counted_and_leaves_the_books_stale() {
    let summary = replay([(A, packet(1, &opening())), (A, packet(7, &[add(9, 9, b'B', 1)]))]);
    assert_eq!(numbers(&summary, ["undecoded.undefined", "undecoded.lost_to_books"]), [1, 1]);
    assert!(tops(&summary).iter().all(|top| top.4));
}

#[test]
fn format_of_a_capture_is_found() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("memx.pcap");
    let capture = Capture::default().frame(0, udp_frame(A, &packet(1, &opening())));
    capture.frame(9, udp_frame(A, &packet(7, &[reduce(7, 1, 1)]))).write(&file);
    let output = run(&["replay", file.to_str().unwrap(), "--format", "iex-deep"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("use --format memx-depth"), "{said}");
}
