//! The tests of rdma-core for pyverbs, its Python module, over a software ConnectX whose cable
//! leads back to itself. `outcomes.txt` has what becomes of each test, and why those are skipped
//! that are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::stage::{ABIS, Running, is_inside};

/// All tests take three seconds; a test that does not end is named.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Debian's. Its package has the tests as documentation.
const MODULE: &str = "/usr/lib/python3/dist-packages/pyverbs";
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// The version of the tests that the list is of; another one has others.
const LISTED: &str = "44.";

const OUTCOMES: &str = include_str!("outcomes.txt");

#[test]
fn tests_of_pyverbs_end_as_the_list_says() {
    let test = "pyverbs::tests_of_pyverbs_end_as_the_list_says";
    for (path, remedy) in [(MODULE, "apt install python3-pyverbs"), (TESTS, "dpkg leaves documentation out here")] {
        if !Path::new(path).exists() {
            println!("SKIPPED {test}: there is no {path}; {remedy}");
            return;
        }
    }
    let version = installed_version();
    if !version.starts_with(LISTED) {
        println!("SKIPPED {test}: the list is of python3-pyverbs {LISTED}, and here is {version:?}");
        return;
    }
    if !is_inside(test, "python3", "python3-pyverbs") {
        return;
    }
    let folder = Folder::new();
    for abi in ABIS {
        let (outcomes, said) = folder.run(abi);
        let expected = expected(abi);
        let differs = |(name, outcome): &(&str, &str)| match outcomes.get(*name) {
            _ if *outcome == "any" => None,
            Some((now, _)) if now == outcome => None,
            now => Some(format!("{name} by {abi}: {outcome} in the list, now {now:?}")),
        };
        let different: Vec<String> = expected.iter().filter_map(differs).collect();
        assert!(different.is_empty(), "{}\n{said}", different.join("\n"));
        assert!(expected.iter().filter(|(_, outcome)| *outcome == "ok").count() > 100, "the list was not read");
    }
}

fn installed_version() -> String {
    let answer = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "python3-pyverbs"]).output();
    answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default()
}

/// The tests of the list, each with its outcome.
fn expected(abi: &str) -> Vec<(&'static str, &'static str)> {
    let mut outcome = "";
    let mut tests = Vec::new();
    for line in OUTCOMES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("== ") {
            None => tests.push((line, outcome)),
            Some(heading) => {
                let both = heading.split_once(':').map_or(heading, |(both, _why)| both);
                let (first, second) = both.split_once(", by write ").unwrap_or((both, both));
                outcome = if abi == "write" { second } else { first };
            }
        }
    }
    tests
}

/// Where the tests are unpacked, as long as this lives.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("softhca-pyverbs-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let this = Self(folder);
        let unpack = format!("cp -r {TESTS} . && gunzip -f tests/*.gz");
        let status = Command::new("sh").args(["-c", &unpack]).current_dir(&this.0).status().unwrap();
        assert!(status.success(), "the tests were not unpacked: {status}");
        this
    }

    /// Runs all tests: the outcome of each with its reason, and what was said.
    fn run(&self, abi: &str) -> (HashMap<String, (String, String)>, String) {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/pyverbs/run.py");
        let results = self.0.join(abi);
        let (folder, file) = (self.0.display(), results.display());
        // The interpreter that the package is for, and not another one in PATH.
        let command = format!("/usr/bin/python3 -B {program} {folder} {file}");
        let ended = Running::start(&format!("--abi {abi}"), &command).end(TIMEOUT);
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        let lines = std::fs::read_to_string(results).unwrap();
        let outcomes = lines.lines().map(|line| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            let mut word = || words.next().unwrap_or_default();
            (word(), (word(), word()))
        });
        (outcomes.collect(), ended.said)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
