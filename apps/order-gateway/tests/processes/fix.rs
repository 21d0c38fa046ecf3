//! The same by FIX: gateways that are killed, and a line that breaks in the middle of orders.

use exchange_sim::Served;
use order_entry::fix::FixClient;

use crate::gateway::{Mode, Protocol};
use crate::kill::{Day, FAULTS, POINTS, kill_and_compare};

fn check(port: u16, faults: &[&str], points: &[u64], fills: u64) -> Served {
    let day = Day { port, mode: Mode::Trade, faults, points, fills };
    kill_and_compare(Protocol::Fix, FixClient::rules(), &day, |exchange, path| exchange.fix_log(path))
}

#[test]
fn gateway_of_fix_killed_at_random_points_loses_nothing_that_it_sent() {
    check(26_641, &[], &POINTS, 300);
}

#[test]
fn line_of_fix_that_breaks_before_answers_loses_nothing() {
    let served = check(26_643, &FAULTS, &[3_000, 500, 2_000], 100);
    assert!(served.counts.lost_acks > 5, "{}", served.counts.lost_acks);
}
