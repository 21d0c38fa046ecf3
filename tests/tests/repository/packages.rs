//! The registry's data about each package, and which packages are published.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fs;
use std::path::{Path, PathBuf};
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
    // The names on crates.io, where `rdma-core-sys` and `market` belong to others. These were free
    // in November 2026.
    let ours = [
        "hugepage-setup",
        "wirepath",
        "wirepath-cli",
        "wirepath-market",
        "wirepath-market-ring",
        "wirepath-matching-engine",
        "wirepath-order-entry",
        "wirepath-rdma",
        "wirepath-rdma-core-sys",
        "wirepath-sockets",
    ];
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
            // Packages that are not published are for tests only, and cargo leaves packages without
            // a version out of the archive.
            let wanted =
                if is_published(ours) { format!("^{}", ours["version"].as_str().unwrap()) } else { "*".into() };
            assert_eq!(dependency["req"], *wanted, "{} of {}", name(ours), name(package));
            assert!(is_published(ours) || dependency["kind"] == "dev", "{} needs {}", name(package), name(ours));
        }
    }
}

/// Whether the `main.rs` beside a file, which the loop below finds as well, takes it in.
fn is_module_of_a_test(path: &Path) -> bool {
    let declaration = format!("\nmod {};", path.file_stem().unwrap().to_str().unwrap());
    fs::read_to_string(path.with_file_name("main.rs")).is_ok_and(|main| main.contains(&declaration))
}

/// Cargo finds no tests in subfolders by itself: one that the manifest does not list would never
/// run.
#[test]
fn every_file_of_tests_is_a_test_that_cargo_runs() {
    let packages = packages();
    let ours = packages.iter().find(|package| name(package) == "wirepath-tests").unwrap();
    let targets = ours["targets"].as_array().unwrap();
    let listed = |path: &Path| targets.iter().any(|target| target["src_path"].as_str() == path.to_str());
    let (mut folders, mut count) = (vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")], 0);
    while let Some(folder) = folders.pop() {
        let paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        for path in paths {
            match path.is_dir() {
                true => folders.push(path),
                // A program that a test compiles.
                false if path.extension().is_some_and(|extension| extension == "c" || extension == "h") => (),
                false if is_module_of_a_test(&path) => count += 1,
                false => {
                    count += 1;
                    assert!(listed(&path), "{}: list it in tests/Cargo.toml", path.display());
                }
            }
        }
    }
    assert!(count > 50, "only {count} files: this test no longer finds them");
}

/// A tool that rewrites files turns links into copies, which then differ one day.
#[test]
fn what_packages_share_is_linked_and_not_copied() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let version = fs::read_to_string(root.join("scripts/version.rs")).unwrap();
    let mut copies = Vec::new();
    for package in packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
        let is_shared = |file: &PathBuf| match file.file_name().unwrap().to_str() {
            Some("build.rs") => fs::read_to_string(file).is_ok_and(|text| text == version),
            _ => file.exists(),
        };
        let shared = ["build.rs", "LICENSE-APACHE", "LICENSE-MIT"].map(|name| folder.join(name));
        copies.extend(shared.into_iter().filter(|file| is_shared(file) && !file.is_symlink()));
    }
    assert!(copies.is_empty(), "link these to the one file: {copies:?}");
}
