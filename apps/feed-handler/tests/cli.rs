//! Bad input from a user: one sentence with the remedy, exit code 2 for usage and 1 for failure.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{command, replay_any, run};
use exchange_sim::{Settings, Truth};
use tempfile::{TempDir, tempdir};

/// A folder with a small day of exchange-sim in it.
struct Bench {
    directory: TempDir,
    day: PathBuf,
}

fn bench() -> Bench {
    let directory = tempdir().unwrap();
    let day = directory.path().join("day.pcap");
    let settings = Settings { messages: 3_000, symbols: 10, ..Settings::default() };
    exchange_sim::generate(&settings, &day).unwrap();
    Bench { directory, day }
}

impl Bench {
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Replays the day with `flags`; see [`refused`].
    fn refused(&self, flags: &[&str], code: i32, says: &[&str]) {
        refused(&self.day, flags, code, says);
    }
}

/// Replays `file`; expects this exit code, one sentence that contains all of `says`, and no
/// standard output.
fn refused(file: &Path, flags: &[&str], code: i32, says: &[&str]) {
    let mut arguments = vec!["replay", file.to_str().unwrap(), "--quiet"];
    arguments.extend(flags);
    let output = run(&arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{flags:?}: {error}");
    assert!(output.stdout.is_empty(), "{flags:?} printed a summary");
    for part in says {
        assert!(error.contains(part), "{flags:?} should say {part:?}: {error}");
    }
    if error.starts_with("feed-handler: ") {
        assert_eq!(error.lines().count(), 1, "one sentence: {error}");
    }
}

/// Runs live with the invalid configuration `text`.
fn run_refused(text: &str, flags: &[&str], code: i32, says: &[&str]) {
    let directory = tempdir().unwrap();
    let config = directory.path().join("live.toml");
    fs::write(&config, text).unwrap();
    let output = run(&[&["run", config.to_str().unwrap()], flags].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}: {error}");
    assert!(output.stdout.is_empty() && error.lines().count() == 1, "{error}");
    says.iter().for_each(|part| assert!(error.contains(part), "{text} should say {part:?}: {error}"));
}

#[test]
fn live_run_that_cannot_be_is_one_sentence() {
    let port = "[port]\ninterface = \"not-there\"\n";
    let channels =
        "[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\nlines = [{ group = \"239.1.1.1\", port = 1 }]\n";
    run_refused("", &[], 2, &["names no interface", "[port]"]);
    run_refused(port, &[], 2, &["no [[channels]]"]);
    run_refused(&(port.to_owned() + channels), &[], 1, &["no interface not-there", "ip link"]);
    let owner = format!("{port}owner = \"nobody\"\n{channels}");
    run_refused(&owner, &[], 2, &["line 3, column 9", "shared"]);
    let truth = port.to_owned() + &channels.replace("mold-itch50", "iex-tops");
    run_refused(&truth, &["--truth", "x"], 2, &["--truth is about days of exchange-sim"]);
}

const ITCH: [&str; 2] = ["--format", "mold-itch50"];

#[test]
fn file_that_is_no_capture_says_what_it_is() {
    let bench = bench();
    let missing = bench.directory.path().join("nowhere.pcap");
    refused(&missing, &ITCH, 1, &["cannot open the capture", "nowhere.pcap", "check the path"]);
    refused(bench.directory.path(), &ITCH, 1, &["not a folder"]);
    refused(&bench.file("text", "hello, this is no capture"), &ITCH, 1, &["is not a pcap", "hello", "tcpdump -w"]);
    refused(&bench.file("empty", ""), &ITCH, 1, &["it is empty"]);
    refused(&missing, &["--format", "itch50-file"], 1, &["cannot open the file", "check the path"]);
    refused(&bench.file("text", "hello"), &["--format", "itch50-file"], 1, &["not a file of ITCH 5.0 messages"]);
}

#[test]
fn wrong_format_is_answered_with_the_right_one() {
    let bench = bench();
    for format in ["iex-tops", "iex-deep", "cboe-pitch"] {
        let says = ["does not hold", format, "looks like mold-itch50", "use --format mold-itch50"];
        bench.refused(&["--format", format], 1, &says);
    }
    bench.refused(&["--format", "itch50-file"], 1, &["is a capture", "use --format mold-itch50"]);
    let messages = bench.file("messages", [&[0, 12][..], b"S\0\0\0\0\0\0\0\0\0\x01O", &[0, 0]].concat());
    refused(&messages, &ITCH, 1, &["plain file of ITCH 5.0 messages", "use --format itch50-file"]);
}

#[test]
fn real_captures_are_recognized() {
    for (name, looks_like) in [
        ("iex_tops16_20170710_uat.pcap.gz", "iex-tops"),
        ("cboe_pitch_realtime_20140901.pcap", "cboe-pitch"),
        ("itch50_synthetic_ritch.bin.gz", "itch50-file"),
    ] {
        let Some(file) = wirepath_captures::find("real_captures_are_recognized", name) else { continue };
        refused(&file, &ITCH, 1, &[&format!("use --format {looks_like}")]);
    }
}

#[test]
fn capture_without_packets_is_a_failure_that_says_so() {
    let bench = bench();
    let header = fs::read(&bench.day).unwrap()[..24].to_vec();
    let (summary, output) = replay_any(&bench.file("empty.pcap", header), "mold-itch50", &[]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &summary["packets"]), (Some(1), &0.into()), "{error}");
    assert!(error.contains("holds no packets"), "{error}");
}

#[test]
fn damaged_capture_gives_what_it_holds_and_fails() {
    let bench = bench();
    let mut bytes = fs::read(&bench.day).unwrap();
    let len = bytes.len();
    bytes.extend([0xff; 64]);
    let (summary, output) = replay_any(&bench.file("damaged.pcap", &bytes), "mold-itch50", &[]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &summary["messages"]), (Some(1), &3_000.into()), "{error}");
    assert!(error.contains(&format!("damaged at byte {len}")), "{error}");
}

#[test]
fn cut_capture_is_no_failure() {
    let bench = bench();
    let bytes = fs::read(&bench.day).unwrap();
    let (summary, output) = replay_any(&bench.file("cut.pcap", &bytes[..bytes.len() - 10]), "mold-itch50", &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(summary["truncation"].as_str().unwrap().starts_with("cut in the middle of the packet at byte"));
}

#[test]
fn flags_that_make_no_sense_are_usage_errors() {
    let bench = bench();
    let with = |flags: &[&'static str]| [&ITCH[..], flags].concat();
    bench.refused(&[], 2, &["add --format with one of mold-itch50"]);
    bench.refused(&["--format", "itch"], 2, &["no such format", "iex-tops"]);
    bench.refused(&with(&["--group", "10.0.0.1:5"]), 2, &["not a multicast address", "for example"]);
    bench.refused(&with(&["--group", "239.1.1.1"]), 2, &["GROUP:PORT"]);
    bench.refused(&with(&["--pace", "fast"]), 2, &["full, recorded"]);
    bench.refused(&with(&["--fault-loss", "120%"]), 2, &["0.1%"]);
    bench.refused(&with(&["--max-packets", "0"]), 2, &["--max-packets"]);
    bench.refused(&with(&["--top-of-book", "many"]), 2, &["a number, or all"]);
    bench.refused(&with(&["--formt", "x"]), 2, &["--format"]);
    bench.refused(&with(&["--truth", "x", "--fault-loss", "1%"]), 2, &["let exchange-sim inject"]);
    bench.refused(&with(&["--truth", "x", "--max-packets", "1"]), 2, &["leave --max-packets out"]);
    bench.refused(&["--format", "iex-tops", "--truth", "x"], 2, &["days of exchange-sim"]);
    let day = bench.day.clone();
    bench.refused(&["--format", "mold-itch50", "--capture", day.to_str().unwrap()], 2, &["would overwrite"]);
    assert!(fs::metadata(&day).unwrap().len() > 24, "the capture is still there");
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["replay"]).status.code(), Some(2));
}

#[test]
fn configuration_is_refused_with_line_and_column() {
    let bench = bench();
    let config = |text: &str, code, says: &[&str]| {
        let path = bench.file("feed.toml", text);
        bench.refused(&["--format", "mold-itch50", "--config", path.to_str().unwrap()], code, says);
    };
    config("[worker]\nbrust = 32\n", 2, &["feed.toml line 2, column 1", "brust", "burst"]);
    let channel = "[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\n";
    let line = |group: &str| format!("{channel}lines = [{{ group = \"{group}\", port = 5 }}]\n");
    config(&line("10.0.0.1"), 2, &["line 4, column 20", "not a multicast address"]);
    config(&line("239.1.1.1").replace("mold-itch50", "iex-deep"), 2, &["do not agree"]);
    bench.refused(&["--config", "/nowhere.toml"], 1, &["cannot read the configuration", "check the path"]);
}

#[test]
fn group_that_is_not_in_the_capture_is_answered_with_those_that_are() {
    let bench = bench();
    let (_, output) = replay_any(&bench.day, "mold-itch50", &["--group", "239.1.1.1:5"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("no packet to the groups that were named") && error.contains("233.252.0.1:26477"),
        "{error}"
    );
}

#[test]
fn packets_that_were_lost_on_the_way_do_not_make_the_format_wrong() {
    let bench = bench();
    let (summary, output) = replay_any(&bench.day, "mold-itch50", &["--fault-loss", "1"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &summary["drops"]["fault.rx.loss"]), (Some(1), &summary["packets"]), "{error}");
    assert!(error.contains("see what dropped them") && !error.contains("use --format"), "{error}");
}

#[test]
fn place_or_file_that_cannot_be_had_is_a_failure() {
    let bench = bench();
    let with = |flags: &[&'static str]| [&ITCH[..], flags].concat();
    bench.refused(&with(&["--cpu", "100000"]), 1, &["core 100000", "lscpu"]);
    bench.refused(&with(&["--capture", "/nowhere/out.pcap"]), 1, &["/nowhere/out.pcap", "check the folder"]);
    bench.refused(&with(&["--truth", "/nowhere/truth.json"]), 1, &["/nowhere/truth.json", "exchange-sim generate"]);
    let untrue = bench.file("untrue.json", "{}");
    bench.refused(&["--format", "mold-itch50", "--truth", untrue.to_str().unwrap()], 1, &["not a truth file"]);
}

#[test]
fn hugepages_that_are_not_there_are_told_loudly_or_refused() {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let reserved = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Total:")?.trim().parse().ok());
    let reserved: usize = reserved.unwrap_or(0);
    if reserved > 256 {
        println!("SKIPPED hugepages_that_are_not_there: {reserved} are, and a pool beyond them takes too much memory");
        return;
    }
    let bench = bench();
    // A buffer has room for a jumbo frame, so 256 of them take more than a page of 2 MiB: more
    // pages than there are.
    let buffers = (reserved + 1) * 256 + 512;
    let config = |hugepages| format!("[worker]\nbuffers = {buffers}\nhugepages = \"{hugepages}\"\n");
    let says = ["hugepages are required", "hugepage-setup apply"];
    let require = bench.file("require.toml", config("require"));
    bench.refused(&["--format", "mold-itch50", "--config", require.to_str().unwrap()], 1, &says);
    let prefer = bench.file("prefer.toml", config("prefer"));
    let prefer = ["--format", "mold-itch50", "--config", prefer.to_str().unwrap()];
    bench.refused(&[&prefer[..], &["--require-hugepages"]].concat(), 1, &says);
    let output = run(&[&["replay", bench.day.to_str().unwrap(), "--cpu", "any"], &prefer[..]].concat());
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && reported.contains("FALLBACK to 4 KiB pages"), "{reported}");
    assert!(reported.contains("22 ns instead of 18 ns") && reported.contains("hugepage-setup apply"), "{reported}");
}

/// A replay of some ten seconds that is stopped midway.
fn stopped(bench: &Bench, flags: &[&str]) -> (i32, String, String) {
    let mut arguments = vec!["replay", bench.day.to_str().unwrap(), "--format", "mold-itch50", "--cpu", "any"];
    arguments.extend(["--pace", "0.2x"]);
    arguments.extend(flags);
    let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(3_000));
    interrupt(&child);
    let (mut out, mut error) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    (child.wait().unwrap().code().unwrap(), out, error)
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn interrupt_ends_with_the_summary_so_far() {
    let bench = bench();
    let (code, out, error) = stopped(&bench, &["--summary", "json", "--fault-reorder", "10%"]);
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &summary["stopped"], &summary["accounted"]), (0, &true.into(), &true.into()), "{out}{error}");
    assert!(
        error.lines().filter(|line| line.contains(" messages, ") && line.contains("/s")).count() >= 1,
        "progress once a second: {error}"
    );
    assert!(!out.contains("progress") && out.lines().count() == 1);
}

#[test]
fn truth_cannot_be_confirmed_by_a_replay_that_was_stopped() {
    let bench = bench();
    let truth = Truth::path_beside(&bench.day);
    let (code, _, error) = stopped(&bench, &["--quiet", "--truth", truth.to_str().unwrap()]);
    assert!(code == 1 && error.contains("stopped before the end of the day"), "{error}");
}

#[test]
fn reader_that_leaves_early_is_no_failure() {
    let bench = bench();
    let mut arguments = vec!["replay", bench.day.to_str().unwrap(), "--cpu", "any", "--quiet"];
    arguments.extend(ITCH);
    let mut child = command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn summary_that_cannot_be_written_is_a_failure() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        println!("SKIPPED summary_that_cannot_be_written_is_a_failure: there is no /dev/full");
        return;
    };
    let bench = bench();
    let mut arguments = vec!["replay", bench.day.to_str().unwrap(), "--cpu", "any", "--quiet"];
    arguments.extend(ITCH);
    let status = command(&arguments).stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
