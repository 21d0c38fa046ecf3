//! Captures made by hand: which groups make which channels, and the drop reason of each other
//! packet.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::fs;
use std::net::Ipv4Addr;

use common::made::{
    A, B, Capture, deep, deep_message, deep_of, ethernet, ipv4, ipv4_header, mold, mold_of, tagged, udp, udp_frame,
};
use common::venue::unit_packet;
use common::{numbers, run};
use market::pitch::{AddLong, Head, UnitClear};
use serde_json::{Value, json};
use tempfile::tempdir;
use wirepath::wire::{EtherType, Protocol};
use zerocopy::IntoBytes;

fn channels(summary: &Value) -> usize {
    summary["channels"].as_array().unwrap().len()
}

#[test]
fn groups_with_one_session_are_lines_of_one_channel() {
    let capture = Capture::default().packet(0, B, b"day1      ", 1, 2).packet(1, A, b"day1      ", 1, 3);
    let summary = capture.replay(&[]);
    assert_eq!((channels(&summary), numbers(&summary, ["messages", "duplicates"])), (1, [3, 2]));
    // The lower address is line A, whichever line came first.
    let lines = &summary["channels"][0]["lines"];
    assert_eq!(lines[0]["group"], "239.1.1.1:7");
    assert_eq!(numbers(lines, ["0.first", "1.first", "0.duplicates"]), [1, 2, 0]);
}

#[test]
fn groups_with_two_sessions_are_two_channels() {
    let capture = Capture::default().packet(0, A, b"day1      ", 1, 2).packet(1, B, b"day2      ", 1, 3);
    let summary = capture.replay(&[]);
    assert_eq!((channels(&summary), numbers(&summary, ["messages", "duplicates"])), (2, [5, 0]));
}

#[test]
fn fifth_group_of_a_session_is_dropped_by_name() {
    let group = |idx: u8| Ipv4Addr::new(239, 1, 1, idx);
    let capture = (1..=5).fold(Capture::default(), |capture, idx| capture.packet(0, group(idx), b"day1      ", 1, 1));
    let summary = capture.replay(&[]);
    assert_eq!(summary["drops"], json!({ "feed.lines_full": 1 }));
}

#[test]
fn packet_that_was_overtaken_waits_for_its_turn() {
    let session = b"day1      ";
    let capture =
        Capture::default().packet(0, A, session, 1, 1).packet(10, A, session, 3, 1).packet(20, A, session, 2, 1);
    let summary = capture.replay(&[]);
    assert_eq!(numbers(&summary, ["messages", "gaps", "late", "channels.0.reordered_holes"]), [3, 0, 0, 1]);
}

#[test]
fn packet_that_comes_too_late_is_a_gap_and_then_late() {
    let session = b"day1      ";
    let capture =
        Capture::default().packet(0, A, session, 1, 1).packet(10, A, session, 3, 1).packet(20, A, session, 4, 1);
    let capture = capture.packet(2_000, A, session, 2, 1);
    let summary = capture.replay(&[]);
    assert_eq!(numbers(&summary, ["messages", "gaps", "missing", "late"]), [3, 1, 1, 1]);
}

#[test]
fn heartbeat_reveals_what_was_lost_at_the_end() {
    let session = b"day1      ";
    let capture = Capture::default().packet(0, A, session, 1, 1).packet(10, A, session, 4, 0);
    let summary = capture.replay(&[]);
    assert_eq!(summary["channels"][0]["gap_ranges"], json!([[2, 3]]));
}

#[test]
fn new_session_on_the_same_group_is_a_restart() {
    let (old, new) = (b"day1      ", b"day2      ");
    let capture = Capture::default().packet(0, A, old, 1, 5).packet(1, A, old, 6, 1);
    let summary = capture.packet(2, A, new, 1, 2).packet(3, A, new, 3, 1).replay(&[]);
    assert_eq!((channels(&summary), numbers(&summary, ["messages", "restarts", "gaps"])), (1, [9, 1, 0]));
}

#[test]
fn damaged_and_forged_packets_cost_their_own_messages_and_a_count() {
    let session = b"day1      ";
    let capture = (0..1_000).fold(Capture::default(), |capture, idx| {
        let (at_us, seq) = (idx * 200, 1 + idx * 47);
        match idx {
            // Wrong bits: one in the session, one low and one high in the number.
            300 => capture.packet(at_us, A, b"day0      ", seq, 47),
            500 => capture.packet(at_us, A, session, seq ^ 1 << 15, 47),
            700 => capture.packet(at_us, A, session, seq ^ 1 << 40, 47),
            900 => capture.packet(at_us, A, b"forged    ", 1, 3).packet(at_us, A, session, seq, 47),
            _ => capture.packet(at_us, A, session, seq, 47),
        }
    });
    let summary = capture.replay(&[]);
    assert_eq!(numbers(&summary, ["gaps", "missing", "restarts", "late"]), [3, 3 * 47, 0, 0]);
    assert_eq!(numbers(&summary, ["messages", "message_account.doubted"]), [997 * 47, 3 * 47 + 3]);
}

#[test]
fn damaged_channel_number_opens_no_channel() {
    let capture = (0..20).fold(Capture::default(), |capture, idx| {
        let mut packet = deep(1 + idx, &[deep_message(b'8', 100, 10_0000)]);
        // Two packets that contradict each other.
        packet[4] ^= match idx {
            10 => 1 << 6,
            14 => 1 << 5,
            _ => 0,
        };
        capture.frame(idx, udp_frame(A, &packet))
    });
    let summary = capture.replay_as("iex-deep");
    assert_eq!((channels(&summary), &summary["drops"]), (1, &json!({ "feed.doubtful": 2 })));
    assert_eq!(numbers(&summary, ["messages", "gaps", "missing"]), [18, 2, 2]);
}

const DEEP_LINE: &str =
    "[[channels]]\nname = \"c\"\nformat = \"iex-deep\"\nlines = [{ group = \"239.1.1.1\", port = 7 }]\n";

/// A packet of `channel`, its `seq`th.
fn deep_frame(channel: u32, seq: u64) -> Vec<u8> {
    udp_frame(A, &deep_of(channel, seq, &[deep_message(b'8', 100, 10_0000)]))
}

#[test]
fn channel_number_that_a_configured_line_does_not_have_is_refused_by_name() {
    let good = |seq: u64| (seq, deep_frame(1, seq));
    let forged = (2..=300).flat_map(|channel| [1, 2].map(|seq| (10, deep_frame(channel, seq))));
    let capture = Capture((1..=10).map(good).chain(forged).chain((11..=20).map(good)).collect());
    let summary = capture.replay_of("iex-deep", DEEP_LINE, &[]);
    assert_eq!((channels(&summary), &summary["drops"]), (1, &json!({ "feed.unknown_channel": 2 * 299 })));
    assert_eq!(numbers(&summary, ["messages", "gaps", "channels.0.channel"]), [20, 0, 1]);
}

#[test]
fn numbers_say_which_channels_a_configured_line_has() {
    let capture = (1..=20).fold(Capture::default(), |capture, seq| {
        (1..=4).fold(capture, |capture, channel| capture.frame(seq, deep_frame(channel, seq)))
    });
    let summary = capture.replay_of("iex-deep", &(DEEP_LINE.to_owned() + "numbers = [4, 2]\n"), &[]);
    assert_eq!((channels(&summary), &summary["drops"]), (2, &json!({ "feed.unknown_channel": 40 })));
    assert_eq!(numbers(&summary, ["messages", "gaps", "channels.0.channel", "channels.1.channel"]), [40, 0, 2, 4]);
}

#[test]
fn late_join_is_a_gap_unless_it_is_expected() {
    let late = || Capture::default().packet(0, A, b"day1      ", 100, 1);
    assert_eq!(late().replay(&[])["channels"][0]["gap_ranges"], json!([[1, 99]]));
    let expected = late().replay_with("[arbitration]\nfirst = \"anywhere\"\n", &[]);
    assert_eq!(numbers(&expected, ["messages", "gaps", "channels.0.joined_at"]), [1, 0, 100]);
}

/// An order of Cboe.
fn pitch_add(order: u64, side: u8, price: u64) -> Vec<u8> {
    let head = Head::new(AddLong::LEN, AddLong::KIND, 0);
    let (order, price) = (order.into(), price.into());
    AddLong { head, order, side, qty: 100.into(), symbol: *b"AAA   ", price, flags: 1 }.as_bytes().to_vec()
}

#[test]
fn unsequenced_packet_on_a_numbered_channel_changes_no_book_and_is_counted() {
    let unit_clear = UnitClear { head: Head::new(UnitClear::LEN, UnitClear::KIND, 0) }.as_bytes().to_vec();
    let frame = |seq, messages: &[Vec<u8>]| udp_frame(A, &unit_packet(seq, messages));
    let capture = Capture::default()
        .frame(0, frame(0, &[pitch_add(9, b'B', 999_900)]))
        .frame(1, frame(1, &[pitch_add(1, b'B', 1_000_000)]))
        .frame(2, frame(0, &[unit_clear]))
        .frame(3, frame(0, &[pitch_add(2, b'S', 1_010_000)]))
        .frame(4, frame(2, &[pitch_add(3, b'S', 1_020_000)]));
    let summary = capture.replay_of("cboe-pitch", "", &["--top-of-book", "all"]);
    let top = &summary["channels"][0]["books"]["tops"][0];
    assert_eq!(json!([top["bid"], top["ask"], top["stale"]]), json!(["100.0000", "102.0000", false]), "{summary}");
    assert_eq!((numbers(&summary, ["messages"]), &summary["drops"]), ([2], &json!({ "feed.unsequenced": 3 })));
}

#[test]
fn whatever_is_no_feed_is_dropped_by_name() {
    let good = udp_frame(A, &mold(b"day1      ", 1, 1));
    let mut too_long = udp_frame(A, &[0; 1_400]);
    too_long.resize(20_000, 0);
    let capture = Capture::default()
        .frame(0, good.clone())
        .frame(1, good[..10].to_vec())
        .frame(2, good[..30].to_vec())
        .frame(3, ethernet(EtherType::ARP, &[0; 28]))
        .frame(4, ethernet(EtherType(0x88cc), &[0; 28]))
        .frame(5, ethernet(EtherType::IPV4, &ipv4(A, Protocol::TCP, &[0; 20])))
        .frame(6, udp_frame(Ipv4Addr::new(224, 0, 0, 251), b"mdns"))
        .frame(7, udp_frame(Ipv4Addr::new(10, 0, 0, 1), b"unicast"))
        .frame(8, udp_frame(A, b"short"))
        .frame(9, udp_frame(A, &[mold(b"day1      ", 2, 1), vec![0]].concat()))
        .frame(10, too_long);
    let summary = capture.replay(&[]);
    let drops = json!({
        "ethernet.too_short": 1, "ipv4.too_short": 1, "arp.not_handled": 1, "ethernet.unknown_ethertype": 1,
        "tcp.not_handled": 1, "udp.no_consumer": 2, "feed.header_short": 1, "feed.trailing_bytes": 1, "rx.too_long": 1,
    });
    assert_eq!(summary["drops"], drops);
    assert_eq!(numbers(&summary, ["packets", "messages", "packet_account.delivered"]), [11, 1, 1]);
}

fn fragment(offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut header = ipv4_header(A, Protocol::UDP, payload.len());
    header.set_fragment(offset, more);
    header.fill_checksum(&[]);
    let mut bytes = vec![0; 20];
    header.emit(&mut bytes).unwrap();
    ethernet(EtherType::IPV4, &[&bytes, payload].concat())
}

/// 50 datagrams of 20 messages, each in five fragments; the third one is lost.
fn fragmented_feed_with_a_hole() -> Capture {
    (0..50).filter(|idx| *idx != 2).fold(Capture::default(), |capture, idx| {
        let datagram = udp(A, &mold(b"day1      ", 1 + idx * 20, 20));
        let pieces: Vec<&[u8]> = datagram.chunks(64).collect();
        (0..).zip(&pieces).fold(capture, |capture, (number, piece)| {
            let is_last = usize::from(number) + 1 == pieces.len();
            capture.frame(idx * 10, fragment(number * 64, !is_last, piece))
        })
    })
}

#[test]
fn datagrams_in_fragments_wait_behind_a_hole_like_others() {
    let summary = fragmented_feed_with_a_hole().replay(&[]);
    assert_eq!(numbers(&summary, ["messages", "missing", "message_account.not_kept"]), [49 * 20, 20, 0]);
}

#[test]
fn datagram_in_fragments_for_which_there_is_no_buffer_is_counted_and_the_advice_names_the_buffers() {
    let directory = tempdir().unwrap();
    let (file, config) = (directory.path().join("made.pcap"), directory.path().join("made.toml"));
    fs::write(&config, "[worker]\nbuffers = 512\n[arbitration]\nwindow_packets = 4096\nwindow_us = 1000000\n").unwrap();
    let capture = (0..700).filter(|idx| *idx != 2).fold(Capture::default(), |capture, idx| {
        let datagram = udp(A, &mold(b"day1      ", 1 + idx * 20, 20));
        let (first, rest) = datagram.split_at(64);
        capture.frame(idx * 10, fragment(0, true, first)).frame(idx * 10, fragment(64, false, rest))
    });
    capture.write(&file);
    let flags = ["replay", file.to_str().unwrap(), "--format", "mold-itch50", "--cpu", "any", "--config"];
    let output = run(&[&flags[..], &[config.to_str().unwrap()]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("messages not kept for their turn"), "{text}");
    assert!(text.contains("raise worker.buffers"), "{text}");
    assert!(text.contains("delivered + duplicates + late + not kept: ok"), "{text}");
}

#[test]
fn datagram_in_fragments_is_put_together_and_accounted() {
    let datagram = udp(A, &mold(b"day1      ", 1, 20));
    let (first, rest) = datagram.split_at(64);
    let capture = Capture::default().frame(0, fragment(0, true, first)).frame(1, fragment(64, false, rest));
    let summary = capture.replay(&[]);
    assert_eq!(numbers(&summary, ["packets", "messages", "packet_account.merged"]), [2, 20, 1]);

    let alone = Capture::default().packet(0, B, b"day2      ", 1, 1).frame(1, fragment(0, true, first));
    assert_eq!(numbers(&alone.replay(&[]), ["packets", "messages", "packet_account.held"]), [2, 1, 1]);
}

const LINE: &str = "[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\n";

#[test]
fn line_of_one_vlan_drops_the_others() {
    let frame = udp_frame(A, &mold(b"day1      ", 1, 1));
    let capture =
        || Capture::default().frame(0, tagged(100, &frame)).frame(1, frame.clone()).frame(2, tagged(0x2065, &frame));
    let config = format!("{LINE}lines = [{{ group = \"239.1.1.1\", port = 7, vlan = 100 }}]\n");
    let summary = capture().replay_with(&config, &[]);
    assert_eq!(summary["drops"], json!({ "feed.other_vlan": 2 }));
    // Copies of a group's only packet confirm nothing.
    let summary = capture().replay(&[]);
    assert_eq!((numbers(&summary, ["messages"]), &summary["drops"]), ([1], &json!({ "feed.doubtful": 2 })));
}

#[test]
fn line_of_one_sender_drops_the_others() {
    let config = |sender: &str| {
        format!(
            "{LINE}lines = [{{ group = \"239.1.1.1\", port = 7, sources = [\"{sender}\"] }}, {{ group = \"239.1.1.2\", port = 7 }}]\n"
        )
    };
    let capture = || Capture::default().packet(0, A, b"day1      ", 1, 1).packet(1, B, b"day1      ", 1, 1);
    let other = capture().replay_with(&config("198.51.100.2"), &[]);
    assert_eq!(other["drops"], json!({ "udp.source_filtered": 1 }));
    assert_eq!(capture().replay_with(&config("198.51.100.1"), &[])["drops"], json!({}));
}

#[test]
fn configured_lines_are_one_channel_whatever_their_order() {
    let lines =
        "lines = [{ name = \"north\", group = \"239.1.1.2\", port = 7 }, { group = \"239.1.1.1\", port = 7 }]\n";
    let capture = Capture::default().packet(0, A, b"day1      ", 1, 1).packet(1, B, b"day1      ", 2, 1);
    let summary = capture.replay_with(&format!("{LINE}{lines}"), &[]);
    let lines = &summary["channels"][0]["lines"];
    assert_eq!((&lines[0]["name"], &lines[1]["name"]), (&json!("north"), &json!("B")));
    assert_eq!(numbers(lines, ["0.first", "1.first"]), [1, 1]);
}

#[test]
fn replay_ends_after_as_many_packets_as_were_asked_for() {
    let capture = (1..=100).fold(Capture::default(), |capture, seq| capture.packet(seq, A, b"day1      ", seq, 1));
    let summary = capture.replay(&["--max-packets", "50", "--fault-loss", "0"]);
    assert_eq!(numbers(&summary, ["messages", "packet_account.delivered"]), [50, 50]);
}

const SMALL_BOOKS: &str = "[books]\ninstruments = 1\norders = 1\nlevels = 1\n";

/// The group of a number, two packets to each.
fn many_groups(count: u16) -> Capture {
    (0..count).fold(Capture::default(), |capture, idx| {
        let session = format!("day{idx:<7}").into_bytes().try_into().unwrap();
        let [high, low] = idx.to_be_bytes();
        let group = Ipv4Addr::new(239, 2, high, low);
        capture.packet(u64::from(idx), group, &session, 1, 1).packet(u64::from(idx), group, &session, 2, 1)
    })
}

/// The same groups, which begin together: the second packets come after all first ones.
fn groups_together(count: u16) -> Capture {
    let Capture(frames) = many_groups(count);
    let (first, second): (Vec<_>, Vec<_>) = frames.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).unzip();
    Capture([first, second].concat())
}

/// A configuration of so many channels, a group each.
fn configured(count: u16) -> String {
    let channel = |idx: u16| {
        let [high, low] = idx.to_be_bytes();
        let line = format!("{{ group = \"239.2.{high}.{low}\", port = 7 }}");
        format!("[[channels]]\nname = \"c{idx}\"\nformat = \"mold-itch50\"\nlines = [{line}]\n")
    };
    SMALL_BOOKS.to_owned() + &(0..count).map(channel).collect::<String>()
}

#[test]
fn every_channel_that_is_configured_is_heard_however_many() {
    let summary = many_groups(500).replay_with(&configured(500), &[]);
    assert_eq!((channels(&summary), &summary["drops"]), (500, &json!({})));
    assert_eq!(numbers(&summary, ["messages"]), [1_000]);
}

#[test]
fn channels_that_begin_together_are_all_heard_from_their_first_packet() {
    let summary = groups_together(500).replay_with(&configured(500), &[]);
    assert_eq!((channels(&summary), &summary["drops"]), (500, &json!({})));
    assert_eq!(numbers(&summary, ["messages"]), [1_000]);
    let learned = groups_together(200).replay_with(SMALL_BOOKS, &[]);
    assert_eq!((channels(&learned), &learned["drops"]), (200, &json!({})));
    assert_eq!(numbers(&learned, ["messages"]), [400]);
}

#[test]
fn channels_that_are_learned_end_at_a_limit_that_is_said() {
    let directory = tempdir().unwrap();
    let (file, config) = (directory.path().join("made.pcap"), directory.path().join("made.toml"));
    fs::write(&config, SMALL_BOOKS).unwrap();
    many_groups(300).write(&file);
    let flags = ["replay", file.to_str().unwrap(), "--format", "mold-itch50", "--cpu", "any", "--config"];
    let output = run(&[&flags[..], &[config.to_str().unwrap()]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("(dropped: feed.channels_full) are of channels beyond the 256"), "{text}");
    assert!(text.contains("name the groups that are wanted"), "{text}");
}

#[test]
fn groups_that_are_learned_end_at_a_limit_that_is_said() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("made.pcap");
    let capture = (0..1_030_u16).fold(Capture::default(), |capture, idx| {
        let [high, low] = idx.to_be_bytes();
        // One session, so that there is one channel and its lines are full: the test is about the
        // limit of groups.
        capture.packet(u64::from(idx), Ipv4Addr::new(239, 2, high, low), b"day1      ", 1, 1)
    });
    capture.write(&file);
    let output = run(&["replay", file.to_str().unwrap(), "--format", "mold-itch50", "--cpu", "any"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("6 datagrams (dropped: udp.no_consumer) went to groups beyond the 1024"), "{text}");
    assert!(text.contains("(dropped: feed.lines_full) are of groups beyond the 4 lines"), "{text}");
}

#[test]
fn symbol_with_control_characters_is_printed_without_them() {
    let mut message = [b' '; 39];
    message[0] = b'R';
    message[11..19].copy_from_slice(b"\x1b[2JA\x07\r ");
    let mut add = [0; 36];
    add[0] = b'A';
    add[18] = 1;
    add[19] = b'B';
    add[23] = 100;
    add[24..32].copy_from_slice(&message[11..19]);
    add[35] = 9;
    let payload = mold_of(b"day1      ", 1, &[&message, &add]);
    let directory = tempdir().unwrap();
    let file = directory.path().join("na\u{1b}[31mme.pcap");
    Capture::default().frame(0, udp_frame(A, &payload)).write(&file);
    let output = run(&["replay", file.to_str().unwrap(), "--format", "mold-itch50", "--cpu", "any"]);
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("[2JA") && text.contains("[31mme.pcap"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn what_standard_error_is_told_has_no_control_characters() {
    let output = run(&["replay", "none.pcap", "--config", "/nowhere/na\u{1b}[31mme.toml"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("feed-handler: ") && text.contains("[31mme.toml"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn books_that_the_process_may_not_have_are_refused_before_they_are_taken() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("made.pcap");
    many_groups(1).write(&file);
    let replay =
        format!("{} replay {} --format mold-itch50 --cpu any", env!("CARGO_BIN_EXE_feed-handler"), file.display());
    let output =
        std::process::Command::new("sh").args(["-c", &format!("ulimit -v 150000; exec {replay}")]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the books of 1 channel take 211 MB") && text.contains("ulimit -v"), "{text}");
    assert!(text.contains("[books]"), "{text}");
}

#[test]
fn channel_for_whose_books_there_is_no_memory_is_dropped_by_name() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("made.pcap");
    many_groups(2).write(&file);
    let replay =
        format!("{} replay {} --format mold-itch50 --cpu any", env!("CARGO_BIN_EXE_feed-handler"), file.display());
    // Room for the books of one channel, 211 MB, and not for those of a second one. By itself glibc
    // reserves 64 MB of address space for each thread that allocates, as long as there is room, and
    // maps 128 MB for a moment: the need of a replay would depend on which thread was first.
    let limits = "ulimit -v 350000; export MALLOC_ARENA_MAX=1";
    let output = std::process::Command::new("sh").args(["-c", &format!("{limits}; exec {replay}")]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("2 datagrams (dropped: feed.no_memory) are of channels for whose books"), "{text}");
}

#[test]
fn books_that_find_no_memory_are_counted() {
    let directory = |symbol: &[u8; 8]| {
        let mut message = [b' '; 39];
        message[0] = b'R';
        message[11..19].copy_from_slice(symbol);
        message
    };
    let messages = [directory(b"ONE     "), directory(b"TWO     ")];
    let payload = mold_of(b"day1      ", 1, &[&messages[0], &messages[1]]);
    let capture = Capture::default().frame(0, udp_frame(A, &payload));
    let summary = capture.replay_with("[books]\ninstruments = 1\norders = 1\nlevels = 1\n", &[]);
    assert_eq!(numbers(&summary, ["messages", "books.instruments", "books.refused"]), [2, 1, 1]);
}

#[test]
fn deep_makes_books_of_price_levels() {
    let first = deep(1, &[deep_message(b'8', 100, 10_0000), deep_message(b'5', 200, 10_0500)]);
    let (better, gone) = (deep_message(b'8', 300, 10_0100), deep_message(b'8', 0, 10_0000));
    let second = deep(3, &[better, gone, deep_message(b'T', 50, 10_0100)]);
    let mut capture = Capture::default();
    for (at_us, payload) in [(0, first), (1, second), (2, deep(6, &[]))] {
        capture = capture.frame(at_us, udp_frame(A, &payload)).frame(at_us, udp_frame(B, &payload));
    }
    let summary = capture.replay_as("iex-deep");
    assert_eq!(channels(&summary), 1);
    assert_eq!(numbers(&summary, ["packets", "messages", "duplicates", "gaps", "heartbeats"]), [6, 5, 5, 0, 2]);
    assert_eq!(summary["by_type"], json!({"5": 1, "8": 3, "T": 1}));
    let top = &summary["channels"][0]["books"]["tops"][0];
    assert_eq!(numbers(top, ["bid_shares", "ask_shares"]), [300, 200]);
    assert_eq!([&top["symbol"], &top["bid"], &top["ask"]], ["ZIEXT", "10.0100", "10.0500"]);
}
