//! Dependencies must be as `deny.toml` requires: permissively licensed, from the registry, each in
//! one version. `cargo deny` checks the same in `make lint` where it is installed; this test checks
//! it everywhere.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All that the workspace is built of on this platform, as cargo has it locked.
fn dependencies() -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"]);
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().filter(|package| !package["source"].is_null()).cloned().collect()
}

/// The strings between the brackets behind `key` in `deny.toml`.
fn listed(key: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, behind) = text.split_once(&format!("\n{key} = [")).unwrap();
    let (inside, _) = behind.split_once(']').unwrap();
    let code = inside.lines().map(|line| line.split('#').next().unwrap());
    code.flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether one of the alternatives of an SPDX expression is allowed in all its parts. A bracket
/// stands around alternatives only, and an exception only widens its license.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let alternative = |one: &str| {
        let license = one.trim().trim_matches(['(', ')']).split(" WITH ").next().unwrap();
        allowed.iter().any(|allowed| allowed == license)
    };
    expression.split(" AND ").all(|part| part.split(" OR ").any(alternative))
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

#[test]
fn licences_are_permissive() {
    let allowed = listed("allow");
    for package in dependencies() {
        let license = package["license"].as_str().unwrap_or("no license");
        assert!(is_allowed(license, &allowed), "{}: {license} is not in deny.toml", name(&package));
    }
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned()];
    for good in ["MIT", "MIT/Apache-2.0", "GPL-2.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["GPL-2.0", "MIT AND GPL-2.0", "(MIT OR Apache-2.0) AND GPL-2.0", "no license"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

#[test]
fn sources_are_the_registry() {
    let allowed = listed("allow-registry");
    for package in dependencies() {
        let source = package["source"].as_str().unwrap();
        let is_known = source.strip_prefix("registry+").is_some_and(|url| allowed.iter().any(|allowed| allowed == url));
        assert!(is_known, "{} comes from {source}", name(&package));
    }
}

#[test]
fn crates_come_in_one_version_but_for_those_that_are_excused() {
    let mut versions = BTreeMap::<String, Vec<String>>::new();
    for package in dependencies() {
        versions.entry(name(&package).to_owned()).or_default().push(package["version"].as_str().unwrap().to_owned());
    }
    let excused = listed("skip");
    for (name, versions) in versions {
        let left = versions.iter().filter(|version| !excused.contains(&format!("{name}@{version}")));
        assert!(left.count() <= 1, "{name} comes as {}: excuse one in deny.toml, or do without", versions.join(", "));
    }
}
