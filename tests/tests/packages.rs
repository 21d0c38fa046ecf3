//! What the registry is told of each package, and which packages it gets.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The packages of the workspace, as cargo sees them.
fn packages() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(env!("CARGO"));
    let output = command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(root).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// `publish = false` is an empty list of registries.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

#[test]
fn published_packages_are_those_that_lint_packs() {
    let script = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/check-packages")).unwrap();
    let list = script.lines().find_map(|line| line.strip_prefix("packages=(")?.strip_suffix(')')).unwrap();
    let mut packed: Vec<_> = list.split(' ').collect();
    let packages = packages();
    let mut published: Vec<_> = packages.iter().filter(|package| is_published(package)).map(name).collect();
    packed.sort_unstable();
    published.sort_unstable();
    assert_eq!(packed, published, "the others say `publish = false`");
}

#[test]
fn published_packages_have_names_that_nobody_else_has() {
    // On crates.io, where `rdma-core-sys` and `market` are somebody else's. These were free in
    // November 2026.
    let ours =
        ["hugepage-setup", "wirepath", "wirepath-cli", "wirepath-market", "wirepath-rdma-core-sys", "wirepath-sockets"];
    for package in packages().iter().filter(|package| is_published(package)) {
        assert!(ours.contains(&name(package)), "is {} free on crates.io? then add it here", name(package));
    }
}

#[test]
fn published_packages_say_what_they_are() {
    for package in packages().iter().filter(|package| is_published(package)) {
        for key in ["description", "license", "repository", "readme", "rust_version"] {
            assert!(package[key].is_string(), "{} has no {key}", name(package));
        }
        for key in ["keywords", "categories"] {
            let count = package[key].as_array().unwrap().len();
            assert!((1..=5).contains(&count), "{} has {count} {key}, and the registry takes 1 to 5", name(package));
        }
    }
}

#[test]
fn dependencies_on_packages_of_ours_have_the_version_of_today() {
    let packages = packages();
    for package in packages.iter().filter(|package| is_published(package)) {
        for dependency in package["dependencies"].as_array().unwrap() {
            let Some(ours) = packages.iter().find(|other| other["name"] == dependency["name"]) else { continue };
            // What is not published serves tests alone, and cargo leaves what has no version out of
            // the archive.
            let wanted =
                if is_published(ours) { format!("^{}", ours["version"].as_str().unwrap()) } else { "*".into() };
            assert_eq!(dependency["req"], *wanted, "{} of {}", name(ours), name(package));
            assert!(is_published(ours) || dependency["kind"] == "dev", "{} needs {}", name(package), name(ours));
        }
    }
}
