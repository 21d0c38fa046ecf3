//! The scripts of `tests/scripts`: facts about sessions, one a file, on a virtual clock.

#![allow(clippy::unwrap_used)] // a panic here is the report

mod script;

use script::check_folder;

#[test]
fn soupbin_scripts_hold() {
    check_folder("soupbin", script::soupbin::machine);
}

#[test]
fn boe_scripts_hold() {
    check_folder("boe", script::boe::machine);
}

#[test]
fn ilink3_scripts_hold() {
    check_folder("ilink3", script::ilink3::machine);
}
