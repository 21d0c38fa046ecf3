//! What a child of `fork` has of its parent's, and calls that take several steps.

use wirepath_tests::live::preload::compile_with;

use super::{plays_the_same, says_the_same};

#[test]
fn timeout_of_a_call_is_that_of_all_its_steps() {
    says_the_same("timeout_of_a_call_is_that_of_all_its_steps", "deadlines.c");
}

#[test]
fn child_has_the_parents_streams_and_none_of_its_signals() {
    let test = "child_has_the_parents_streams_and_none_of_its_signals";
    let folder = tempfile::tempdir().unwrap();
    let Some(early) = compile_with(test, "forking.c", folder.path(), &["-shared", "-fPIC"]) else { return };
    let program = compile_with(test, "forks.c", folder.path(), &[&early]).unwrap();
    plays_the_same(test, &program);
}
