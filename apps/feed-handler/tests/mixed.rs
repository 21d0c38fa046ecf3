//! Channels of several formats in one process: each is what it is alone.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use clap::Parser;
use common::made::{A, B, Capture, deep_message, deep_of, udp_frame};
use common::{command, essence};
use feed_handler::args::{Cli, Command};
use feed_handler::{SinkContext, replay_with};
use market::EventSink;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use wirepath::worker::StopFlag;

const DEEP_A: Ipv4Addr = Ipv4Addr::new(239, 2, 1, 1);
const DEEP_B: Ipv4Addr = Ipv4Addr::new(239, 2, 1, 2);

fn line(group: Ipv4Addr) -> String {
    format!("{{ group = \"{group}\", port = 7 }}")
}

fn channel(name: &str, format: &str, lines: &[Ipv4Addr], rest: &str) -> String {
    let lines: Vec<_> = lines.iter().map(|&group| line(group)).collect();
    format!("[[channels]]\nname = \"{name}\"\nformat = \"{format}\"\nlines = [{}]\n{rest}", lines.join(", "))
}

/// DEEP, ITCH, DEEP with two channel numbers: no order of formats.
fn channels() -> [String; 3] {
    [
        channel("d1", "iex-deep", &[DEEP_A], ""),
        channel("i", "mold-itch50", &[A, B], ""),
        channel("d2", "iex-deep", &[DEEP_B], "numbers = [4, 2]\n"),
    ]
}

/// Packets of all channels by turns; line B of ITCH lacks some, and packets of d1 are missing.
fn capture() -> Capture {
    (1..=50).fold(Capture::default(), |capture, seq| {
        let itch = |capture: Capture, group| capture.packet(seq * 100, group, b"day1      ", seq * 2 - 1, 2);
        let deep = |group, channel| udp_frame(group, &deep_of(channel, seq, &[deep_message(b'8', 100, 10_0000)]));
        let capture = itch(capture, A);
        let capture = if seq % 7 == 0 { capture } else { itch(capture, B) };
        let capture = if seq == 20 { capture } else { capture.frame(seq * 100, deep(DEEP_A, 9)) };
        [2, 4, 5].into_iter().fold(capture, |capture, channel| capture.frame(seq * 100, deep(DEEP_B, channel)))
    })
}

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { folder: tempdir().unwrap() };
        capture().write(&bench.folder.path().join("made.pcap"));
        bench
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn config(&self, text: &str) -> String {
        std::fs::write(self.path("made.toml"), text).unwrap();
        self.path("made.toml")
    }

    fn replay(&self, config: &str) -> Value {
        let (capture, config) = (self.path("made.pcap"), self.config(config));
        let arguments = ["replay", &capture, "--config", &config, "--cpu", "any", "--quiet", "--summary", "json"];
        let output = command(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn channel_among_others_of_another_format_is_what_it_is_alone() {
    let bench = Bench::new();
    let all = bench.replay(&channels().concat());
    assert_eq!((&all["accounted"], &all["format"]), (&json!(true), &json!("iex-deep, mold-itch50")));
    assert_eq!(all["by_type"], json!({ "iex-deep 8": 149, "mold-itch50 S": 100 }));
    assert_eq!(all["drops"], json!({ "feed.unknown_channel": 50 }));
    let named = |summary: &Value, name: &str| -> Vec<Value> {
        let channels = summary["channels"].as_array().unwrap();
        channels.iter().filter(|channel| channel["name"] == *name).cloned().collect()
    };
    for (name, config) in ["d1", "i", "d2"].into_iter().zip(channels()) {
        let alone = bench.replay(&config);
        assert_eq!(named(&all, name), named(&alone, name));
        assert!(!named(&alone, name).is_empty() && essence(&alone)["accounted"] == true);
    }
    assert_eq!(all["gaps"], 1, "of d1, whose 20th packet is missing");
}

#[test]
fn flag_that_names_one_format_does_not_agree_with_channels_of_two() {
    let bench = Bench::new();
    let config = bench.config(&channels().concat());
    let arguments = ["replay", &bench.path("made.pcap"), "--config", &config, "--format", "iex-deep"];
    let output = command(&arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("--format iex-deep and the configuration's channels of mold-itch50 do not agree"), "{said}");
}

/// Remembers the sets and numbers of channels that opened.
#[derive(Clone, Default)]
struct Opened(Arc<Mutex<Vec<(u16, u32)>>>);

impl EventSink for Opened {
    fn opened(&mut self, set: u16, number: u32) {
        self.0.lock().unwrap().push((set, number));
    }
}

#[test]
fn sink_knows_each_channel_by_its_place_in_the_configuration() {
    let bench = Bench::new();
    let (capture, config) = (bench.path("made.pcap"), bench.config(&channels().concat()));
    let arguments = ["feed-handler", "replay", &capture, "--cpu", "any", "--config", &config];
    let Command::Replay(args) = Cli::parse_from(arguments).command else { panic!("a replay was asked for") };
    let opened = Opened::default();
    let (made, places) = (opened.clone(), Arc::new(Mutex::new(Vec::new())));
    let first = Arc::clone(&places);
    let sinks = move |context: &SinkContext| {
        first.lock().unwrap().clone_from(&context.first_channels);
        Ok(made.clone())
    };
    replay_with(&args.plan().unwrap(), &StopFlag::new(), |_| (), sinks).unwrap();
    let mut opened = opened.0.lock().unwrap().clone();
    opened.sort_unstable();
    assert_eq!(opened, [(0, 9), (1, 0), (2, 2), (2, 4)]);
    assert_eq!(*places.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn file_that_holds_none_of_the_formats_is_refused() {
    let bench = Bench::new();
    let pitch = channel("p", "cboe-pitch", &[A], "") + &channel("m", "cme-mdp3", &[B], "");
    let config = bench.config(&pitch);
    let output = command(&["replay", &bench.path("made.pcap"), "--config", &config]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("does not hold cboe-pitch, cme-mdp3"), "{said}");
}
