//! What a program under the library costs while it sleeps.

use std::fs;
use std::thread;
use std::time::Duration;

use wirepath_tests::live::preload::{start, wire};
use wirepath_tests::live::wait_until;

/// Sleeps in a receive, as a server does for which nothing comes.
const RECEIVES: &str = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                        s.bind(('0.0.0.0', 7000))\nwhile True: s.recv(100)";
const OBSERVED: Duration = Duration::from_secs(3);

#[test]
fn idle_program_is_woken_some_times_a_second() {
    let Some(wire) = wire("idle_program_is_woken_some_times_a_second", &["python3"]) else { return };
    let program = start(&wire, "python3", &["-c", RECEIVES]);
    wait_until("the worker runs", || sleeps(program.id()).iter().any(|(task, _)| task == "wirepath-bg"));
    // The start is over, and any spinning.
    thread::sleep(Duration::from_secs(2));
    let before = sleeps(program.id());
    thread::sleep(OBSERVED);
    let each: Vec<_> = sleeps(program.id())
        .into_iter()
        .map(|(task, count)| {
            (before.iter().find(|(same, _)| *same == task).map_or(count, |(_, was)| count - was), task)
        })
        .collect();
    let count: u64 = each.iter().map(|(count, _)| count).sum();
    assert!(count > 0 && count <= 10 * OBSERVED.as_secs(), "woken {count} times in {OBSERVED:?}: {each:?}");
}

/// How often each thread of a process has gone to sleep so far.
fn sleeps(process: u32) -> Vec<(String, u64)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |task: &std::path::Path| {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name).map(str::trim));
        Some((field("Name:")?.to_owned(), field("voluntary_ctxt_switches:")?.parse().ok()?))
    };
    tasks.filter_map(|task| of(&task.ok()?.path())).collect()
}
