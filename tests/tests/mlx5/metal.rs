//! `make metal` without metal: the same program, on ConnectXs made of software.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::process::Output;

use softhca::testing;

/// Runs `metal ARGUMENTS` under `softhca run OPTIONS`, with short measurements, because no one
/// reads the figures.
fn metal(test: &str, options: &[&str], arguments: &[&str]) -> Option<(Output, String, String)> {
    let mut command = match testing::command(options) {
        Ok(command) => command,
        Err(why) => {
            println!("SKIPPED {test}: {why}");
            return None;
        }
    };
    command.arg(env!("CARGO_BIN_EXE_metal")).args(["--seconds", "0.05"]).args(arguments);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    println!("{out}{err}");
    Some((output, out, err))
}

/// It cannot run, and prints the reason in one sentence.
fn refused(test: &str, options: &[&str], arguments: &[&str], expected: &str) {
    let Some((output, _, err)) = metal(test, options, arguments) else { return };
    assert_eq!(output.status.code(), Some(2));
    let said: Vec<_> = err.lines().filter(|line| line.starts_with("metal: ")).collect();
    assert_eq!(said.len(), 1, "{err}");
    assert!(said[0].contains(expected), "{err}");
}

#[test]
fn device_that_is_not_there_is_told() {
    let test = "device_that_is_not_there_is_told";
    refused(test, &["--devices", "2"], &["--device", "mlx5_0", "--peer", "mlx5_7"], "mlx5_7");
}

#[test]
fn port_that_is_its_own_peer_is_told() {
    let test = "port_that_is_its_own_peer_is_told";
    refused(test, &["--devices", "2"], &["--device", "mlx5_0", "--peer", "mlx5_0"], "named twice");
}

#[test]
fn ports_that_no_cable_joins_are_told() {
    let options = ["--wire", "loop", "--wire", "loop"];
    let arguments = ["--device", "mlx5_0", "--peer", "mlx5_1"];
    refused("ports_that_no_cable_joins_are_told", &options, &arguments, "does not arrive at mlx5_1");
}

#[test]
fn report_names_what_holds_what_is_left_out_and_whose_figures_these_are() {
    let test = "report_names_what_holds_what_is_left_out_and_whose_figures_these_are";
    let options = ["--strict", "--devices", "2", "--without", "striding-rq"];
    let arguments = ["--device", "mlx5_0", "--peer", "mlx5_1"];
    let Some((output, out, _)) = metal(test, &options, &arguments) else { return };
    assert_eq!(output.status.code(), Some(0));
    let has = |part: &str| assert!(out.contains(part), "no {part:?} in the report");
    has("\nplain\n  holds  frames of every length arrive unchanged\n");
    has("\ncompressed completions\n  holds");
    has("\nstriding receive queue\n  left out: mlx5_0");
    has("made of software");
    has("frames a second");
    has("round trip");
    has("\nEvery fact holds.\n");
    assert!(!out.contains("FAILS"));
}
