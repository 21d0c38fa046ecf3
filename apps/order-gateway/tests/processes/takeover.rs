//! A standby that takes over loses nothing that the primary sent.

use std::thread;
use std::time::Duration;

use crate::exchange::Running;
use crate::gateway::{Mode, start};
use crate::journal::{records, replay};
use crate::kill::{agree, kill_at};

#[test]
fn standby_takes_over_from_a_killed_primary_with_all_that_it_sent() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, copy) = (directory.path().join("journal"), directory.path().join("copy"));
    let exchange = Running::start(26_633, &[]);
    // The standby first: on a busy machine the primary would fill its journal before it is there.
    let standby = start(&exchange, &copy, Mode::Standby, 2);
    let primary = start(&exchange, &ours, Mode::Primary, 1);
    while records(&copy) < 300 {
        assert!(records(&ours) < 50_000, "the standby follows");
        thread::sleep(Duration::from_millis(1));
    }
    let target = records(&ours) + 1_000;
    kill_at(primary, &ours, target);
    let fills = replay(&copy).totals.fills;
    // It trades on, and is killed in its turn.
    let target = records(&copy) + 2_000;
    kill_at(standby, &copy, target);
    let mut last = start(&exchange, &copy, Mode::Listen, 0);
    assert!(last.wait().unwrap().success());
    let (replayed, venue) = (replay(&copy), exchange.log());
    assert!(fills > 0 && venue.totals.fills > fills, "both have traded: {fills}, {:?}", venue.totals);
    agree(&replayed, &venue);
    assert_eq!(exchange.stop().trades[0], venue.totals);
}
