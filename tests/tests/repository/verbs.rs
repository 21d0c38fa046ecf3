//! The summary at the end of `make test` must be correct, because people and CI rely on it; and the
//! packages and tests that verbs name must exist, because some verbs run once in a month.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

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
fn failed_test_is_followed_by_what_it_panicked_with() {
    let log = "test wire::a ... FAILED\nfailures:\n\n---- wire::a stdout ----\n\nthread 'wire::a' panicked at a.rs:1:2:\n\
               assertion failed\nstack backtrace:\n   0: core\n\nfailures:\n    wire::a\n\n\
               test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
    let expected = "FAILED wire::a\n    thread 'wire::a' panicked at a.rs:1:2:\n    assertion failed\n\
                    0 passed, 1 failed, 0 skipped\n";
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

/// Packages of the workspace, and the targets of each: (kind as cargo's options say it, name).
fn targets() -> BTreeMap<String, BTreeSet<(String, String)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"]);
    let output = metadata.arg(root().join("Cargo.toml")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let targets = package["targets"].as_array().unwrap().iter();
        let targets = targets.map(|target| (format!("--{}", text(&target["kind"][0])), text(&target["name"])));
        (text(&package["name"]), targets.collect())
    });
    packages.collect()
}

/// The targets that a command line of cargo's names, and those of its packages that do not exist.
fn unknown_in(line: &str, targets: &BTreeMap<String, BTreeSet<(String, String)>>) -> (usize, Vec<String>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let named = |option: &str| {
        let pairs = words.windows(2).filter(|pair| pair[0] == option);
        pairs.map(|pair| pair[1].to_owned()).collect::<Vec<_>>()
    };
    // What a shell or make puts in is known to them alone.
    let is_literal = |word: &str| word.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter));
    let packages: Vec<String> = named("-p").into_iter().filter(|package| is_literal(package)).collect();
    let mut unknown: Vec<String> = packages.iter().filter(|package| !targets.contains_key(*package)).cloned().collect();
    let mut count = packages.len();
    for option in ["--test", "--bin", "--example", "--bench"] {
        for name in named(option).into_iter().filter(|name| is_literal(name)) {
            count += 1;
            let wanted = (option.to_owned(), name.clone());
            let mut places = targets.iter().filter(|(package, _)| packages.is_empty() || packages.contains(package));
            if !places.any(|(_, targets)| targets.contains(&wanted)) {
                unknown.push(format!("{option} {name}"));
            }
        }
    }
    (count, unknown)
}

#[test]
fn packages_and_targets_that_verbs_and_documents_name_exist() {
    let targets = targets();
    let mut files = vec![root().join("Makefile"), root().join("README.md"), root().join("CONTRIBUTING.md")];
    for folder in ["scripts", "docs", "sockets"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.extend(entries.filter(|path| path.is_file()));
    }
    let (mut named, mut wrong) = (0, Vec::new());
    for file in files {
        // Pictures are no text.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for line in text.replace("\\\n", " ").lines().filter(|line| line.contains("cargo ")) {
            let (count, unknown) = unknown_in(line.trim_end_matches(['`', '.', ';', ':']), &targets);
            named += count;
            wrong.extend(unknown.iter().map(|name| format!("{}: there is no {name}: {line}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(named > 20, "only {named} packages and targets were found: does this test still read the verbs?");
}

#[test]
fn target_that_does_not_exist_is_found() {
    let targets = targets();
    let line = "cargo test --release -p wirepath-tests --test live_tcp --test $(OTHER) -- --ignored";
    assert_eq!(unknown_in(line, &targets), (2, vec![]));
    for (line, unknown) in [
        ("cargo test -p wirepath-tests --test live_tcpp", "--test live_tcpp"),
        ("cargo test -p wirepath-sockets --test live_tcp", "--test live_tcp"),
        ("cargo build -p wirepath-testing", "wirepath-testing"),
    ] {
        assert_eq!(unknown_in(line, &targets).1, [unknown], "{line}");
    }
}
