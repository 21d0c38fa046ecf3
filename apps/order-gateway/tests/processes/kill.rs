//! A gateway that is killed loses nothing that it sent.

use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use crate::exchange::Running;
use crate::gateway::{Mode, Protocol, start, start_by};
use crate::journal::{Replayed, records, replay};
use crate::truth::VenueLog;

/// Starts a gateway and kills it when it has written `more` records.
pub fn trade_and_kill(protocol: Protocol, exchange: &Running, path: &Path, more: u64, seed: u64) {
    let target = records(path) + more;
    let child = start_by(protocol, exchange, path, Mode::Trade, seed);
    kill_at(child, path, target);
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
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let exchange = Running::start(26_631, &[]);
    // From a kill during the recovery to one after thousands of orders.
    let points = [900, 3, 211, 1, 1_733, 40, 2, 617, 7, 2_500, 90, 12];
    for (point, seed) in points.into_iter().zip(1..) {
        trade_and_kill(Protocol::Ouch, &exchange, &path, point, seed);
    }
    let mut last = start(&exchange, &path, Mode::Listen, 0);
    assert!(last.wait().unwrap().success());
    let (replayed, venue) = (replay(&path), exchange.log());
    assert!(venue.totals.fills > 300, "it was no load: {:?}", venue.totals);
    agree(&replayed, &venue);
    assert_eq!(exchange.stop().trades[0], venue.totals);
}
