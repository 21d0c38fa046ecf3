//! The program over a small capture.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::process::Command;

use exchange_sim::Settings;
use tempfile::tempdir;

/// What a replay of a day of 100 instruments with these flags says on standard error and on
/// standard output, and whether it succeeds.
fn try_replay(flags: &[&str]) -> (String, String, bool) {
    let folder = tempdir().unwrap();
    let (file, ring) = (folder.path().join("day.pcap"), folder.path().join("ring"));
    exchange_sim::generate(&Settings { messages: 2_000, symbols: 100, ..Settings::default() }, &file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_market-gateway"));
    command.args(["replay", "--cpu", "any", "--format", "mold-itch50"]).arg(&file).arg("--ring").arg(&ring);
    let output = command.args(flags).output().unwrap();
    let [said, printed] = [output.stderr, output.stdout].map(|bytes| String::from_utf8(bytes).unwrap());
    (said, printed, output.status.success())
}

fn replay(flags: &[&str]) -> (String, String) {
    let (said, printed, is_success) = try_replay(flags);
    assert!(is_success, "{said}{printed}");
    (said, printed)
}

#[test]
fn ring_with_too_few_quotes_is_told_at_the_start_and_at_the_end() {
    let (said, printed) = replay(&["--quotes", "2"]);
    assert!(said.contains("the ring has 2 quotes, and the books have places for 16384 instruments"), "{said}");
    assert!(printed.contains("changes of quotes had no place in the ring"), "{printed}");
}

#[test]
fn ring_has_a_quote_for_each_place_in_the_books_where_nothing_is_said() {
    let (said, printed) = replay(&[]);
    assert!(!said.contains("quotes") && !printed.contains("had no place"), "{said}{printed}");
}

#[test]
fn socket_of_images_is_gone_with_the_gateway_and_takes_the_place_of_no_other_file() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("images");
    let flags = ["--images", path.to_str().unwrap()];
    replay(&flags);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    let (said, printed, is_success) = try_replay(&flags);
    assert!(!is_success && said.contains("no images at"), "{said}{printed}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}
