//! Days of exchange-sim as MDP 3.0 (`generate --mdp3`), replayed as a user does, against the books
//! of the exchange. A replay joins no loops, so what both lines lost heals by natural refresh
//! alone.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use common::{numbers, replay};
use exchange_sim::{LineSettings, Mdp3Groups, Settings, Truth};
use market::Price;
use market::truth::PriceLevel;
use serde_json::Value;
use tempfile::tempdir;

/// Generates a day of ten instruments with these losses on line A and line B, and replays its
/// incremental feed.
fn play(seed: u64, loss: [&str; 2]) -> (Truth, Value) {
    let groups = Mdp3Groups::default();
    let mut settings = Settings { seed, symbols: 10, messages: 20_000, mdp3: Some(groups), ..Settings::default() };
    for (line, loss) in settings.lines.iter_mut().zip(loss) {
        *line = LineSettings { loss: loss.parse().unwrap(), ..line.clone() };
    }
    let directory = tempdir().unwrap();
    let (capture, config) = (directory.path().join("day.pcap"), directory.path().join("day.toml"));
    let truth = exchange_sim::generate(&settings, &capture).unwrap();
    let groups = settings.mdp3.unwrap();
    let lines = groups.incremental.map(|group| format!("{{ group = \"{group}\", port = {} }}", groups.port));
    let text = format!("[[channels]]\nname = \"310\"\nformat = \"cme-mdp3\"\nlines = [{}]\n", lines.join(", "));
    std::fs::write(&config, text).unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--top-of-book", "all"];
    (truth, replay(&capture, "cme-mdp3", &flags))
}

/// Instruments whose best prices by the handler, which holds them for right, are not those of the
/// exchange.
fn wrong(truth: &Truth, summary: &Value) -> Vec<String> {
    let side = |level: &Option<PriceLevel>| {
        level.as_ref().map_or_else(|| "null 0".to_owned(), |it| format!("\"{}\" {}", Price(it.price.into()), it.shares))
    };
    let tops = summary["channels"][0]["books"]["tops"].as_array().unwrap();
    let compare = |top: &Value| {
        let theirs = truth.book_tops.iter().find(|theirs| top["symbol"] == format!("#{}", theirs.locate)).unwrap();
        let theirs = (side(&theirs.bid), side(&theirs.ask));
        let ours = (format!("{} {}", top["bid"], top["bid_shares"]), format!("{} {}", top["ask"], top["ask_shares"]));
        (top["stale"] == false && ours != theirs).then(|| format!("{}: {ours:?}, not {theirs:?}", top["symbol"]))
    };
    tops.iter().filter_map(compare).collect()
}

#[test]
fn packets_lost_on_one_line_leave_the_exchanges_books() {
    let (truth, summary) = play(1, ["20%", "0%"]);
    let found = numbers(&summary, ["channels.0.missing", "channels.0.books.stale", "channels.0.books.instruments"]);
    assert_eq!(found, [0, 0, 10]);
    assert_eq!(wrong(&truth, &summary), [""; 0]);
}

#[test]
fn books_that_losses_on_both_lines_have_hurt_are_stale_or_the_exchanges() {
    for seed in 1..6 {
        let (truth, summary) = play(seed, ["5%", "5%"]);
        let [missing, stale] = numbers(&summary, ["channels.0.missing", "channels.0.books.stale"]);
        assert!(missing > 5, "{missing} packets are missing");
        assert!(stale < 10, "each book was hurt in the course of the day, and none has healed");
        assert_eq!(wrong(&truth, &summary), [""; 0], "seed {seed}");
    }
}
