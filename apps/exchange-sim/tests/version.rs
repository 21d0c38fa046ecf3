//! `exchange-sim --version` prints the commit that was built; tests/tests/repository/version.rs
//! tests how.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::process::Command;

#[test]
fn version_says_the_commit() {
    let head = ["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short=12", "HEAD"];
    let head = Command::new("git").args(head).output().ok().filter(|output| output.status.success());
    let output = Command::new(env!("CARGO_BIN_EXE_exchange-sim")).arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    match head.map(|output| String::from_utf8(output.stdout).unwrap()) {
        Some(head) => assert_eq!(said, format!("exchange-sim {} ({})\n", env!("CARGO_PKG_VERSION"), head.trim())),
        None => assert!(said.starts_with(concat!("exchange-sim ", env!("CARGO_PKG_VERSION"))), "{said}"),
    }
}
