//! The summary at the end of `make test` must be correct, because people and CI rely on it.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::Write;
use std::process::{Command, Stdio};

fn check(log: &str, expected: &str, success: bool) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/summary.awk");
    let mut awk = Command::new("awk");
    awk.args(["-f", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut awk = awk.spawn().expect("awk runs");
    awk.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let output = awk.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!(output.status.success(), success);
}

#[test]
fn stage_that_does_not_compile_is_a_failure() {
    let log = "error: could not compile\nSTAGE FAILED loom: exit code 101\n";
    check(log, "FAILED loom: exit code 101\n0 passed, 1 failed, 0 skipped\n", false);
}

#[test]
fn failed_test_counts_once() {
    let log = "test wire::a ... FAILED\nfailures:\n\n---- wire::a stdout ----\nSKIPPED wire::a: but it failed\n\n\
               test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\
               STAGE FAILED workspace: exit code 101\n";
    let expected = "SKIPPED wire::a: but it failed\nFAILED wire::a\nFAILED workspace: exit code 101\n\
                    3 passed, 1 failed, 0 skipped\n";
    check(log, expected, false);
}

#[test]
fn skipped_test_is_not_a_passed_one() {
    let log = "test wire::b ... ok\nsuccesses:\n\n---- wire::b stdout ----\nSKIPPED b: no capture\nSKIPPED b: nor the other\n\n\
               successes:\n    wire::b\n\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
    check(log, "SKIPPED b: no capture\nSKIPPED b: nor the other\n2 passed, 0 failed, 1 skipped\n", true);
}

#[test]
fn ignored_tests_and_stages_that_cannot_run_are_skipped() {
    let log = "test proto::c ... ignored, prints timings\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured\n\
               SKIPPED miri: no nightly\n";
    check(
        log,
        "SKIPPED proto::c: ignored; prints timings\nSKIPPED miri: no nightly\n0 passed, 0 failed, 2 skipped\n",
        true,
    );
}
