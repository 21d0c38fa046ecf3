//! `make soak` in small: some hundred thousand frames in seconds, instead of a hundred million in
//! two minutes.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::time::Duration;

use wirepath::device::af_xdp::Mode;
use wirepath_tests::netns::Namespace;
use wirepath_tests::soak::{Soak, run};

const FRAMES: u64 = 200_000;

fn adds_up(test: &str, mode: Mode) {
    if let Err(why) = Namespace::new() {
        return println!("SKIPPED {test}: {why}; run as root");
    }
    let soak = Soak { frames: FRAMES, mode, progress_every: Duration::from_secs(5) };
    let balance = run(&soak, &mut |_| {}).unwrap();
    println!("{balance}");
    assert!(balance.adds_up() && balance.sent == FRAMES, "{balance}");
    assert!(balance.received > 0, "{balance}");
}

#[test]
fn every_frame_through_the_driver_is_accounted_for() {
    adds_up("every_frame_through_the_driver_is_accounted_for", Mode::Native);
}

#[test]
fn every_frame_behind_the_driver_is_accounted_for() {
    adds_up("every_frame_behind_the_driver_is_accounted_for", Mode::Generic);
}
