//! A C program for ordinary verbs finds the same behavior in the software ConnectX as in hardware:
//! `verbs/verbs.c` lists the facts that it tests.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::path::PathBuf;
use std::process::Command;

use softhca::testing;

/// Compiles the program; why it cannot be.
fn compiled(test: &str) -> Result<PathBuf, String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verbs/verbs.c");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("verbs-{test}"));
    if !std::path::Path::new("/usr/include/infiniband/verbs.h").exists() {
        return Err("the headers of verbs are not installed: apt install libibverbs-dev".into());
    }
    let output =
        Command::new("cc").args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).arg("-libverbs").output();
    let output = output.map_err(|error| format!("no C compiler: {error}"))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

/// Every fact holds on two devices that are made with `options` and joined to each other.
fn check(test: &str, options: &[&str]) {
    let started = compiled(test).and_then(|program| {
        let mut command = testing::command(&[options, &["--devices", "2"]].concat())?;
        command.arg(program).args(["mlx5_0", "mlx5_1"]).output().map_err(|error| error.to_string())
    });
    match started {
        Err(why) => println!("SKIPPED {test}: {why}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 15, "{said}");
        }
    }
}

#[test]
fn c_program_finds_a_connectx_by_write() {
    check("c_program_finds_a_connectx_by_write", &["--abi", "write"]);
}

#[test]
fn c_program_finds_a_connectx_by_ioctl() {
    check("c_program_finds_a_connectx_by_ioctl", &["--abi", "ioctl"]);
}

#[test]
fn c_program_finds_a_strict_connectx() {
    check("c_program_finds_a_strict_connectx", &["--abi", "write", "--strict"]);
}
