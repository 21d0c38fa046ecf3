//! Instructions by callgrind, and system calls by strace: of this program with other arguments.

use std::hint::black_box;
use std::os::unix::process::parent_id;
use std::process::Command;

use super::trade::{Day, TapeWriter};

/// Ticks of such a run.
const COUNTED: usize = 500;
const JOURNAL: usize = 512 * COUNTED + 4_096;

pub(crate) fn report() {
    for (part, what) in [("counted", "with an order"), ("counted-bare", "of the framework alone, with an order")] {
        println!("instructions of a turn {what}: {}, to the post {}", instructions(part), to_post(part));
    }
    println!("instructions of a turn with two messages and no order: {}", instructions("counted-quiet"));
    let calls = system_calls().map_or_else(|why| why, |count| count.to_string());
    println!("system calls in {COUNTED} ticks and orders: {calls}");
}

/// Does what callgrind or strace watches. Whether `part` names such a run.
pub(crate) fn run(part: &str) -> bool {
    let (is_bare, is_quiet, count) = match part {
        "counted" => (false, false, COUNTED),
        "counted-bare" => (true, false, COUNTED),
        "counted-quiet" => (false, true, COUNTED),
        "counted-few" => (false, false, 20),
        "counted-replayed-few" => (false, false, 20),
        "counted-bare-few" => (true, false, 20),
        _ => return false,
    };
    // For a look at the caches with `--cache-sim=yes`, without the venue's code in between.
    if part == "counted-replayed-few" {
        let tape = TapeWriter::new();
        trade(Day::live(JOURNAL, &tape), is_bare, is_quiet, count);
        trade(Day::replayed(JOURNAL, tape.take()), is_bare, is_quiet, count);
        return true;
    }
    trade(Day::live(JOURNAL, &TapeWriter::default()), is_bare, is_quiet, count);
    true
}

fn trade(mut day: Day, is_bare: bool, is_quiet: bool, count: usize) {
    for _ in 0..count {
        if is_quiet {
            day.other()
        } else {
            day.offer()
        }
        day.fires_bare(is_bare);
        // A call that changes nothing marks the begin and the end for strace.
        black_box(parent_id());
        measured_turn(&mut day);
        black_box(parent_id());
        day.fires_bare(false);
        day.finish();
        day.others(2);
    }
}

#[inline(never)]
fn measured_turn(day: &mut Day) {
    day.turn();
}

fn callgrind(part: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").args(arguments).arg(std::env::current_exe().unwrap()).arg(part);
    let output = command.output().ok()?;
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn instructions(part: &str) -> String {
    let arguments = ["--callgrind-out-file=/dev/null", "--collect-atstart=no", "--toggle-collect=*measured_turn*"];
    let Some(text) = callgrind(part, &arguments) else { return "no valgrind".to_owned() };
    let count = text.split("Collected :").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    count.map_or_else(|| text.clone(), |count| format!("{:.0}", count / COUNTED as f64))
}

/// Instructions from the begin of a turn to the order's post: the median of some turns, because
/// callgrind writes a file for each.
fn to_post(part: &str) -> String {
    let directory = std::env::temp_dir().join(format!("tick-to-trade-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let out = format!("--callgrind-out-file={}/counts", directory.display());
    let arguments = [out.as_str(), "--zero-before=*measured_turn*", "--dump-before=*order_posted*"];
    let ran = callgrind(&format!("{part}-few"), &arguments).is_some();
    let mut counts: Vec<u64> = std::fs::read_dir(&directory)
        .unwrap()
        .filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok())
        .filter(|text| text.contains("order_posted"))
        .filter_map(|text| text.split("summary:").nth(1)?.split_whitespace().next()?.parse().ok())
        .collect();
    let _ = std::fs::remove_dir_all(&directory);
    counts.sort_unstable();
    match counts.get(counts.len() / 2) {
        Some(count) => count.to_string(),
        None if ran => "not counted".to_owned(),
        None => "no valgrind".to_owned(),
    }
}

/// Calls between two marks, of all turns; else why they are not counted.
pub(crate) fn system_calls() -> Result<usize, String> {
    let mut command = Command::new("strace");
    command.args(["-o", "/dev/stderr"]).arg(std::env::current_exe().unwrap()).arg("counted");
    let output = command.output().map_err(|_| "no strace")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (mut is_measured, mut count, mut marks) = (false, 0, 0);
    for line in text.lines() {
        if line.starts_with("getppid(") {
            (is_measured, marks) = (!is_measured, marks + 1);
        } else {
            count += usize::from(is_measured);
        }
    }
    if marks == 2 * COUNTED { Ok(count) } else { Err(format!("{marks} marks instead of {}", 2 * COUNTED)) }
}
