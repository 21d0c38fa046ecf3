//! The same by OUCH 4.2: gateways that are killed, and a line that breaks in the middle of orders.

use exchange_sim::Served;
use order_entry::ouch::Ouch42Client;

use crate::exchange::Running;
use crate::gateway::{Mode, Protocol, start_by};
use crate::journal::replay_by;
use crate::kill::{agree, trade_and_kill};

/// Kills gateways at these records, and compares both sides at the end.
fn check(port: u16, faults: &[&str], points: &[u64], fills: u64) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let exchange = Running::start(port, faults);
    for (&point, seed) in points.iter().zip(1..) {
        trade_and_kill(Protocol::Ouch42, &exchange, &path, point, seed);
    }
    let mut last = start_by(Protocol::Ouch42, &exchange, &path, Mode::Listen, 0);
    assert!(last.wait().unwrap().success());
    let replayed = replay_by(Ouch42Client::rules(), &path);
    let venue = exchange.ouch42_log();
    assert!(venue.totals.fills > fills, "it was no load: {:?}", venue.totals);
    agree(&replayed, &venue);
    let served = exchange.stop();
    assert_eq!((served.trades[0], &served.violation), (venue.totals, &None));
    served
}

#[test]
fn gateway_of_ouch_42_killed_at_random_points_loses_nothing_that_it_sent() {
    check(26_645, &[], &[900, 3, 211, 1, 1_733, 40, 2, 617, 7, 2_500, 90, 12], 300);
}

#[test]
fn line_of_ouch_42_that_breaks_before_answers_loses_nothing() {
    let served = check(26_647, &["lost-ack=0.02", "crossing-fill=0.05"], &[3_000, 500, 2_000], 100);
    assert!(served.counts.lost_acks > 5, "{}", served.counts.lost_acks);
}
