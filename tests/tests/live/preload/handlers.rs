//! Calls of signal handlers, which may come upon `malloc`.

use wirepath_tests::live::preload::{compile, run, text, wire};
use wirepath_tests::live::{OURS, Program, THEIRS};

/// Plays a part of `handlers.c` on the kernel's sockets and under the library, while a program at
/// the far end connects to its listener.
fn plays_part_the_same(test: &str, part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "handlers.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    super::echo(&wire);
    let _caller = Program::start(&wire.far, &program, &[&OURS.to_string(), "calls"]);
    let arguments = [&*THEIRS.to_string(), part];
    let kernel = wire.near.command(&program, &arguments).unwrap();
    let ours = run(&wire, &program, &arguments);
    assert_eq!(text(&kernel), text(&ours), "the kernel's (left) and ours (right)");
}

#[test]
fn no_call_asks_the_programs_malloc_for_memory() {
    plays_part_the_same("no_call_asks_the_programs_malloc_for_memory", "memory");
}

#[test]
fn handler_that_comes_upon_malloc_makes_calls() {
    plays_part_the_same("handler_that_comes_upon_malloc_makes_calls", "storm");
}
