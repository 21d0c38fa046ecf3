//! Days of exchange-sim on two lines, with every fault of a network, against their truth.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::path::PathBuf;

use common::{essence, numbers, replay, replay_any};
use exchange_sim::{Settings, Truth};
use market::truth::Probability;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// A capture, its truth, and their folder, which is removed with them.
struct Day {
    _directory: TempDir,
    capture: PathBuf,
    truth_path: PathBuf,
    truth: Truth,
}

/// The probabilities of faults on line A and line B.
#[derive(Clone, Copy, Default)]
struct Chances {
    loss: [f64; 2],
    reorder: [f64; 2],
    duplicate: [f64; 2],
}

fn day(seed: u64, chances: Chances) -> Day {
    let mut settings = Settings { seed, messages: 30_000, symbols: 50, ..Settings::default() };
    for (idx, line) in settings.lines.iter_mut().enumerate() {
        let chance = |chances: [f64; 2]| Probability::try_from(chances[idx]).unwrap();
        line.loss = chance(chances.loss);
        line.reorder = chance(chances.reorder);
        line.duplicate = chance(chances.duplicate);
    }
    let directory = tempdir().unwrap();
    let capture = directory.path().join("day.pcap");
    let truth = exchange_sim::generate(&settings, &capture).unwrap();
    Day { truth_path: Truth::path_beside(&capture), capture, truth, _directory: directory }
}

impl Day {
    fn replay(&self, flags: &[&str]) -> Value {
        replay(&self.capture, "mold-itch50", flags)
    }

    /// Replays against the truth, which has to hold, and checks the rest that the truth has.
    fn check(&self) -> Value {
        let summary = self.replay(&["--truth", self.truth_path.to_str().unwrap()]);
        assert_eq!(summary["truth"]["agrees"], true, "{}", summary["truth"]);
        let sent: u64 = self.truth.lines.iter().map(|line| line.sent.total).sum();
        let found = numbers(&summary, ["packets", "messages", "missing"]);
        assert_eq!(found, [sent, self.truth.receivable, self.truth.lost_on_both.messages]);
        assert_eq!(summary["channels"].as_array().unwrap().len(), 1, "both lines carry one channel");
        for (idx, line) in self.truth.lines.iter().enumerate() {
            let heard = &summary["channels"][0]["lines"][idx];
            assert_eq!(heard["name"], line.name.to_string());
            assert_eq!(numbers(heard, ["packets", "messages"]), [line.sent.data, line.sent.messages]);
            assert_eq!(numbers(heard, ["heartbeats"]), [line.sent.heartbeats + line.sent.end_of_session]);
        }
        summary
    }
}

#[test]
fn undisturbed_day_is_delivered_once_with_every_book_right() {
    let day = day(1, Chances::default());
    let summary = day.check();
    assert_eq!(numbers(&summary, ["gaps", "late", "duplicates"]), [0, 0, day.truth.messages]);
    assert_eq!(summary["truth"]["tops_agree"], true);
    let by_type: Value = day.truth.by_type.iter().map(|(kind, count)| (kind.to_string(), json!(count))).collect();
    assert_eq!(summary["by_type"], by_type);
    assert_eq!(numbers(&summary, ["books.unknown_orders", "books.refused", "books.stale"]), [0, 0, 0]);
}

#[test]
fn losses_on_one_line_are_healed_by_the_other() {
    let chances = Chances { loss: [0.2, 0.0], reorder: [0.05, 0.05], duplicate: [0.01, 0.02] };
    let day = day(2, chances);
    let summary = day.check();
    assert_eq!(numbers(&summary, ["gaps", "late"]), [0, 0]);
    assert_eq!(summary["truth"]["tops_agree"], true);
    assert!(day.truth.lines[0].lost.messages > 1_000);
    let [first_b, lost_a] = numbers(&summary, ["channels.0.lines.1.first", "channels.0.lines.0.lost"]);
    assert!(first_b >= lost_a && lost_a > 1_000, "{first_b} {lost_a}");
}

#[test]
fn losses_on_both_lines_are_exactly_the_gaps() {
    for seed in 3..8 {
        let chances = Chances { loss: [0.05, 0.1], reorder: [0.02, 0.02], duplicate: [0.02, 0.01] };
        let day = day(seed, chances);
        let summary = day.check();
        assert!(day.truth.lost_on_both.messages > 0, "seed {seed}");
        assert_eq!(summary["truth"]["gaps_agree"], true, "seed {seed}");
    }
}

#[test]
fn configured_channels_find_what_learned_ones_do() {
    let day = day(9, Chances { loss: [0.05, 0.05], ..Chances::default() });
    let learned = day.replay(&[]);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/example.toml");
    let mut configured = day.replay(&["--config", example]);
    assert_eq!(configured["channels"][0]["name"], "totalview");
    configured["channels"][0]["name"] = learned["channels"][0]["name"].clone();
    assert_eq!(essence(&configured), essence(&learned));
}

#[test]
fn one_line_alone_has_its_own_losses_as_gaps() {
    let day = day(10, Chances { loss: [0.05, 0.05], ..Chances::default() });
    let summary = day.replay(&["--group", "233.252.0.1:26477"]);
    let line = &day.truth.lines[0];
    assert_eq!(numbers(&summary, ["messages", "missing"]), [line.sent.messages, line.lost.messages]);
    let other = day.truth.lines[1].sent.total;
    assert_eq!(summary["drops"], json!({ "udp.no_consumer": other }));
}

#[test]
fn faults_injected_here_are_dropped_by_name_and_seen_as_gaps() {
    let day = day(11, Chances::default());
    let flags = ["--fault-loss", "10%", "--fault-duplicate", "2%", "--fault-reorder", "2%", "--fault-corrupt", "5%"];
    let summary = day.replay(&flags);
    let drops = &summary["drops"];
    assert!(drops["fault.rx.loss"].as_u64().unwrap() > 100, "{drops}");
    assert!(drops["udp.bad_checksum"].as_u64().unwrap() > 100, "{drops}");
    assert!(summary["missing"].as_u64().unwrap() > 10);
    let again = day.replay(&flags);
    assert_eq!(again["drops"]["fault.rx.loss"], drops["fault.rx.loss"], "the same seed gives the same losses");
}

#[test]
fn truth_of_another_day_does_not_hold() {
    let (day, other) = (day(12, Chances::default()), day_of_other_length());
    let flags = ["--truth", other.truth_path.to_str().unwrap()];
    let (summary, output) = replay_any(&day.capture, "mold-itch50", &flags);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the truth does not hold: line A"), "{error}");
    assert_eq!((&summary["truth"]["agrees"], &summary["accounted"]), (&json!(false), &json!(true)));
}

fn day_of_other_length() -> Day {
    let settings = Settings { messages: 20_000, symbols: 50, ..Settings::default() };
    let directory = tempdir().unwrap();
    let capture = directory.path().join("other.pcap");
    let truth = exchange_sim::generate(&settings, &capture).unwrap();
    Day { truth_path: Truth::path_beside(&capture), capture, truth, _directory: directory }
}
