//! SECURITY.md keeps its promises: each of them names tests, and these exist.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::path::{Path, PathBuf};

/// Files that read the environment, and the check that keeps them from trusting the user who starts
/// a program with privileges.
const READERS: [&str; 5] = [
    // Asks the kernel first.
    "framework/rdma-core-sys/src/load.rs",
    // The one function for all others.
    "framework/src/counters/environment.rs",
    // Costs speed at worst, and libmlx5 does the same.
    "framework/src/device/mlx5/setup/own_device.rs",
    // Where libc looks for a program too: it says only whether there is one. Nothing is ours in a
    // privileged program.
    "preload/src/abi/exec.rs",
    // Asks the kernel first: in a privileged program nothing is ours.
    "preload/src/config.rs",
];

#[test]
fn promises_name_tests_that_exist() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (mut promises, mut wrong) = (0, Vec::new());
    for (heading, promise) in promises_of(&text) {
        let proofs: Vec<&str> = promise.split('`').skip(1).step_by(2).filter(|code| code.contains(".rs::")).collect();
        promises += usize::from(!proofs.is_empty());
        if proofs.is_empty() && heading != "What is not defended" {
            wrong.push(format!("without a test: {promise}"));
        }
        wrong.extend(proofs.into_iter().filter(|proof| !has_test(proof)).map(str::to_owned));
    }
    assert_eq!(wrong, [""; 0], "promises without a proof, and proofs that nobody finds");
    assert!(promises > 20, "only {promises} promises: this test no longer finds them");
}

#[test]
fn environment_is_read_where_it_is_known_whose_it_is() {
    let mut readers = Vec::new();
    for folder in ["framework", "c", "apps", "hugepage-setup", "preload"] {
        for file in rust_files(&root().join(folder)) {
            let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&file).unwrap();
            let code = code_of(&text);
            if name.contains("/src/") && ["env::var", "env::{var", "getenv("].iter().any(|call| code.contains(call)) {
                readers.push(name);
            }
        }
    }
    readers.sort();
    assert_eq!(readers, READERS, "files that read the environment (left) and those that are named here (right)");
}

#[test]
fn code_behind_an_item_for_tests_is_code() {
    let text = "a\n#[cfg(test)]\nmod rig;\nb\n#[cfg(test)]\nmod tests {\n    c\n}\nd\n";
    assert_eq!(code_of(text), "a\n#[cfg(test)]\nmod rig;\nb\n#[cfg(test)]\nd\n");
    assert_eq!(code_of("a\nb\n"), "a\nb\n");
}

/// A file without its tests. Other items that are only for tests count as code, because code may
/// follow them.
fn code_of(text: &str) -> String {
    let Some((before, tests)) = text.split_once("\nmod tests {") else { return text.into() };
    let behind = tests.split_once("\n}").map_or("", |(_, behind)| behind);
    before.to_owned() + behind
}

/// The items of its lists, each with the heading above it.
fn promises_of(text: &str) -> Vec<(&str, String)> {
    let (mut promises, mut heading): (Vec<(&str, String)>, _) = (Vec::new(), "");
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title;
        } else if let Some(first) = line.strip_prefix("- ") {
            promises.push((heading, first.to_owned()));
        } else if let (Some(more), Some((_, promise))) = (line.strip_prefix("  "), promises.last_mut()) {
            promise.push(' ');
            promise.push_str(more);
        }
    }
    promises
}

fn has_test(proof: &str) -> bool {
    let Some((file, test)) = proof.split_once("::") else { return false };
    std::fs::read_to_string(root().join(file)).is_ok_and(|text| text.contains(&format!("fn {test}(")))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
