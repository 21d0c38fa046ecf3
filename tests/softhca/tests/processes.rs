//! The preload library and the life of processes: `processes/processes.c` says which facts it
//! tries.
#![allow(clippy::unwrap_used)] // a panic here is the report

use softhca::testing;

fn check(test: &str, options: &[&str], argument: &str) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/processes/processes.c");
    let started = testing::compiled(source, env!("CARGO_TARGET_TMPDIR")).and_then(|program| {
        let mut command = testing::command(options)?;
        command.arg(program).arg(argument).output().map_err(|error| error.to_string())
    });
    match started {
        Err(why) => println!("SKIPPED {test}: {why}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            assert!(said.lines().count() > 5 && said.lines().all(|line| line.starts_with("ok ")), "{said}");
        }
    }
}

#[test]
fn children_leave_their_parents_device_alone() {
    for abi in ["ioctl", "write"] {
        check("children_leave_their_parents_device_alone", &["--abi", abi], "");
    }
}

#[test]
fn without_a_thread_nothing_moves_but_by_steps() {
    for options in [&["--manual"][..], &["--manual", "--strict", "--abi", "write"]] {
        check("without_a_thread_nothing_moves_but_by_steps", options, "manual");
    }
}
