//! The counters of a program under the library, which `wirepath stats` shows.

use wirepath::counters::Snapshot;
use wirepath_tests::live::preload::{compile, is_listening, start, wire};
use wirepath_tests::live::wait_until;

const PORT: u16 = 7_000;

#[test]
fn gauges_of_a_program_that_sleeps_are_true() {
    let test = "gauges_of_a_program_that_sleeps_are_true";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "answers.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    let (counters, place) = (folder.path().join("counters"), folder.path().display().to_string());
    std::fs::create_dir(&counters).unwrap();
    let setting = format!("WIREPATH_SHM={}", counters.display());
    let _server = start(&wire, "env", &[&setting, &program, "1", &place, "all"]);
    wait_until("the server listens", || is_listening(&wire.near, PORT));
    let gauge = |name: &str| {
        let found = Snapshot::list(&counters).unwrap().running;
        found.iter().filter_map(|process| process.count(name)).sum::<u64>()
    };
    // The rx ring has buffers from the start.
    wait_until("the buffers of the rx ring are in use", || gauge("worker0/pool/in_use") > 0);
    let before = gauge("worker0/last_poll");
    wait_until("the worker has polled since", || gauge("worker0/last_poll") > before);
}
