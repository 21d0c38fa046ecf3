//! The demo of `make fanout`.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::path::Path;
use std::process::Command;

#[test]
fn demo_ends_with_each_record_at_its_consumer_once_although_the_server_was_killed() {
    let test = "demo_ends_with_each_record_at_its_consumer_once_although_the_server_was_killed";
    let programs = Path::new(env!("CARGO_BIN_EXE_market-gateway-nats")).parent().unwrap();
    for program in ["exchange-sim", "market-gateway", "examples/consumer"] {
        if !programs.join(program).exists() {
            return println!("SKIPPED {test}: {program} is not built; `make test` builds it");
        }
    }
    if Command::new("nats-server").arg("--version").output().is_err() {
        return println!("SKIPPED {test}: install the package nats-server");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo-fanout");
    let ended =
        Command::new(script).arg(programs).envs([("FANOUT_MESSAGES", "100k"), ("FANOUT_PACE", "4x")]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("was started again"), "{said}");
}
