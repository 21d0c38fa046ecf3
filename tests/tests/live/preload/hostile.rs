//! Hostile arguments: each call with each of its pointers bad, in each state of a socket, on the
//! kernel's sockets and on ours. One in seven of them is played, and 300 draws with several bad
//! pointers; `SEED=n` plays others, `STRIDE=1` all of them, `DRAWS=n` so many.

use std::env;

use wirepath_tests::live::THEIRS;
use wirepath_tests::live::preload::{LAST_WORDS, compile, echo, run, segments_received, text, wire};

/// The lines of both that differ, but for those where libc itself fails on the kernel's.
fn differences(kernel: &str, ours: &str) -> String {
    let both = kernel.lines().zip(ours.lines()).filter(|(kernel, _)| !kernel.ends_with("a fault"));
    both.filter(|(kernel, ours)| kernel != ours).map(|(kernel, ours)| format!("{kernel}\n  ours: {ours}\n")).collect()
}

fn plays_the_same(test: &str, way: &str, name: &str, usual: &str) {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "hostile.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let of = |name: &str, usual: &str| env::var(name).unwrap_or_else(|_| usual.to_owned());
    let (peer, seed, count) = (THEIRS.to_string(), of("SEED", "1"), of(name, usual));
    let arguments = [peer.as_str(), way, &seed, &count];
    let kernel = text(&wire.near.command(&program, &arguments).unwrap());
    let before = segments_received(&wire.near);
    let ours = text(&run(&wire, &program, &arguments));
    let segments = segments_received(&wire.near) - before;
    assert!(kernel.lines().count() > 100, "{kernel}");
    assert_eq!(kernel.lines().count(), ours.lines().count(), "ours ended early: {:?}", ours.lines().last());
    let differences = differences(&kernel, &ours);
    assert!(differences.is_empty(), "{differences}");
    assert!(segments < LAST_WORDS, "{segments} segments went by the kernel: the program's sockets were not ours");
}

#[test]
fn bad_pointer_of_each_call_has_the_kernels_error_in_each_state_of_a_socket() {
    let test = "bad_pointer_of_each_call_has_the_kernels_error_in_each_state_of_a_socket";
    plays_the_same(test, "table", "STRIDE", "9");
}

#[test]
fn several_bad_pointers_of_a_call_have_the_kernels_error() {
    plays_the_same("several_bad_pointers_of_a_call_have_the_kernels_error", "draws", "DRAWS", "300");
}
