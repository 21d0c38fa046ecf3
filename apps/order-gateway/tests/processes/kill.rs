//! A gateway that is killed loses nothing that it sent.

use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use exchange_sim::Served;
use order_entry::orders::OrderRules;
use order_entry::ouch::OuchClient;

use crate::exchange::Running;
use crate::gateway::{Mode, Protocol, start_by};
use crate::journal::{Replayed, records, replay_by};
use crate::truth::VenueLog;

/// From a kill during the recovery to one after thousands of orders.
pub const POINTS: [u64; 12] = [900, 3, 211, 1, 1_733, 40, 2, 617, 7, 2_500, 90, 12];
/// A line that breaks in the middle of orders.
pub const FAULTS: [&str; 2] = ["lost-ack=0.02", "crossing-fill=0.05"];

/// An exchange at a port, whose gateways are killed.
pub struct Day<'a> {
    pub port: u16,
    /// How the gateways that are killed run.
    pub mode: Mode,
    pub faults: &'a [&'a str],
    /// How many records each gateway writes until it is killed.
    pub points: &'a [u64],
    /// More fills make a load.
    pub fills: u64,
}

/// Kills the gateways of a day, and compares both sides at its end. `log` reads the venue's by the
/// journal at a path.
pub fn kill_and_compare(
    protocol: Protocol,
    rules: OrderRules,
    day: &Day<'_>,
    log: impl FnOnce(&Running, &Path) -> VenueLog,
) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let exchange = Running::start(day.port, day.faults);
    for (&point, seed) in day.points.iter().zip(1..) {
        let target = records(&path) + point;
        kill_at(start_by(protocol, &exchange, &path, day.mode, seed), &path, target);
    }
    let mut last = start_by(protocol, &exchange, &path, Mode::Listen, 0);
    assert!(last.wait().unwrap().success());
    let (replayed, venue) = (replay_by(rules, &path), log(&exchange, &path));
    assert!(venue.totals.fills > day.fills, "it was no load: {:?}", venue.totals);
    agree(&replayed, &venue);
    let served = exchange.stop();
    assert_eq!((served.trades[0], &served.violation), (venue.totals, &None));
    served
}

/// Kills a gateway when its journal has so many records.
pub fn kill_at(mut child: Child, path: &Path, target: u64) {
    let end = Instant::now() + Duration::from_secs(120);
    while records(path) < target {
        assert!(child.try_wait().unwrap().is_none(), "the gateway has ended by itself");
        assert!(Instant::now() < end, "the gateway writes nothing");
        thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

pub fn agree(replayed: &Replayed, venue: &VenueLog) {
    assert_eq!(replayed.alarms, Vec::<String>::new());
    assert_eq!(replayed.totals, venue.totals);
    assert_eq!(replayed.position, venue.totals.bought - venue.totals.sold);
    let open = venue.open.iter().map(|(id, order)| (*id, (order.side, order.leaves, order.price)));
    assert_eq!(replayed.open, open.collect());
    for (id, (_, qty, price)) in &venue.accepted {
        let (intended, at) = replayed.intents[id];
        assert!(*qty <= intended && *price == at, "order {id}: {qty} at {price:?}, intended {intended} at {at:?}");
    }
}

#[test]
fn gateway_killed_at_random_points_loses_nothing_that_it_sent() {
    let day = Day { port: 26_631, mode: Mode::Trade, faults: &[], points: &POINTS, fills: 300 };
    kill_and_compare(Protocol::Ouch, OuchClient::rules(), &day, |exchange, _| exchange.log());
}

/// The exchange must not see an order before it is on the disk, so each intent is there at least
/// when its order is.
#[test]
fn gateway_that_syncs_before_each_send_and_is_killed_has_all_that_the_exchange_saw_in_its_journal() {
    let day = Day { port: 26_665, mode: Mode::Synced, faults: &[], points: &POINTS, fills: 300 };
    kill_and_compare(Protocol::Ouch, OuchClient::rules(), &day, |exchange, _| exchange.log());
}
