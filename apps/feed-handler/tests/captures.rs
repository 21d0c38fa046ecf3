//! Real captures against the counts of independent decoders (docs/captures.md): plain, through a
//! fault device without faults, through one that loses packets, and from a recording of themselves.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::path::Path;

use common::{essence, numbers, replay};
use serde_json::{Value, json};
use tempfile::tempdir;

const IEX: &str = "iex_tops16_20170710_uat.pcap.gz";
const PITCH: &str = "cboe_pitch_realtime_20140901.pcap";
const ITCH: &str = "itch50_synthetic_ritch.bin.gz";
const TRUNCATED: &str = "iex_tops_prod_20180103_truncated.pcapng";

/// Replays plainly, checks, and checks that wrappers without faults change nothing.
fn check(test: &str, name: &str, format: &str, expect: fn(&Value)) {
    let Some(file) = wirepath_captures::find(test, name) else { return };
    let plain = replay(&file, format, &["--top-of-book", "all"]);
    expect(&plain);
    let faultless = replay(&file, format, &["--top-of-book", "all", "--fault-loss", "0", "--fault-corrupt", "0%"]);
    assert_eq!(essence(&faultless), essence(&plain), "a fault device without faults changes nothing");
    check_recording(&file, format, &plain);
    check_losses(&file, format, &plain);
}

/// The tap's recording replays to the same summary.
fn check_recording(file: &Path, format: &str, plain: &Value) {
    let directory = tempdir().unwrap();
    let out = directory.path().join("out.pcap");
    let tapped = replay(file, format, &["--top-of-book", "all", "--capture", out.to_str().unwrap()]);
    assert_eq!(essence(&tapped), essence(plain), "a tap changes nothing");
    assert_eq!(tapped["captured"], plain["packets"]);
    // A plain file of messages travels as MoldUDP64, and is recorded as such.
    let recorded_as = if format == "itch50-file" { "mold-itch50" } else { format };
    let again = replay(&out, recorded_as, &["--top-of-book", "all"]);
    assert_eq!(essence(&again), essence(plain), "the recording replays to the same summary");
    assert_eq!(again["truncated"], false);
}

/// Losses have a drop reason, and all sums still hold.
fn check_losses(file: &Path, format: &str, plain: &Value) {
    for seed in ["1", "2", "3"] {
        let flags =
            ["--fault-loss", "20%", "--fault-duplicate", "5%", "--fault-reorder", "5%", "--fault-corrupt", "5%"];
        let lossy = replay(file, format, &[&flags[..], &["--fault-seed", seed]].concat());
        let [packets, read] = numbers(&lossy, ["packets", "packet_account.read"]);
        assert_eq!((packets, read), (plain["packets"].as_u64().unwrap(), packets), "seed {seed}");
        if packets > 100 {
            let lost = lossy["drops"]["fault.rx.loss"].as_u64().unwrap();
            let [copied] = numbers(&lossy, ["packet_account.duplicated"]);
            assert!(lost > packets / 8 && copied > 0, "seed {seed}: {lossy}");
        }
    }
}

#[test]
fn iex_capture_has_its_counts() {
    check("iex_capture_has_its_counts", IEX, "iex-tops", |summary| {
        let by_type = json!({
            "P": 7802, "O": 7801, "H": 7803, "Q": 27217, "T": 6390, "A": 642, "D": 10, "S": 6, "B": 3,
        });
        assert_eq!(summary["by_type"], by_type);
        let found = numbers(summary, ["packets", "messages", "heartbeats", "gaps", "duplicates", "restarts"]);
        assert_eq!(found, [13_022, 57_674, 237, 0, 0, 0]);
        assert_eq!((&summary["drops"], &summary["truncated"]), (&json!({}), &json!(false)));
        assert_eq!(summary["books"]["instruments"], 7_799);
        assert_eq!(summary["channels"].as_array().unwrap().len(), 1);
        assert_eq!(summary["channels"][0]["lines"][0]["group"], "224.67.0.199:16642");
    });
}

#[test]
fn pitch_capture_has_exactly_one_gap() {
    check("pitch_capture_has_exactly_one_gap", PITCH, "cboe-pitch", |summary| {
        assert_eq!(numbers(summary, ["packets", "messages", "gaps", "missing"]), [739, 40, 1, 2]);
        let [real_time, gap_response] = [&summary["channels"][0], &summary["channels"][1]];
        assert_eq!(real_time["lines"][0]["group"], "239.39.62.190:32001");
        assert_eq!(real_time["gap_ranges"], json!([[1, 2]]));
        assert_eq!(numbers(real_time, ["messages", "heartbeats", "lines.0.packets"]), [40, 356, 19]);
        assert_eq!(gap_response["lines"][0]["group"], "239.39.62.191:32001");
        assert_eq!(numbers(gap_response, ["messages", "heartbeats", "gaps"]), [0, 364, 0]);
    });
}

#[test]
fn itch_file_has_its_messages_by_type_and_its_unknown_orders() {
    check("itch_file_has_its_messages", ITCH, "itch50-file", |summary| {
        let by_type = json!({
            "A": 4997, "F": 3, "E": 198, "X": 45, "D": 1745, "U": 12, "P": 5000, "S": 6, "R": 3, "H": 3,
        });
        assert_eq!(summary["by_type"], by_type);
        assert_eq!(numbers(summary, ["messages", "books.unknown_orders", "gaps", "ends"]), [12_012, 117, 0, 1]);
        assert_eq!(summary["books"]["instruments"], 3);
    });
}

#[test]
fn truncated_capture_gives_what_it_holds_and_names_the_cut() {
    check("truncated_capture_gives_what_it_holds", TRUNCATED, "iex-tops", |summary| {
        assert_eq!(numbers(summary, ["packets", "messages", "heartbeats", "gaps"]), [2, 53, 1, 0]);
        assert_eq!(summary["truncated"], true);
        assert_eq!(summary["truncation"], "cut in the middle of the block at byte 3480");
    });
}
